//! The metrics that a server and a controller have in common: the program's version, and the counts of
//! TemplateInstances.

use kubernetes::templates::Counts;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// Registers the metric that says which program this is.
pub(crate) fn of_program(registry: &mut Registry) {
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The program", build);
}

/// Appends the counts of TemplateInstances, without the end of the text. No name is ever a label: the number of series
/// is fixed.
///
/// # Errors
/// Those of the text; a string has none.
pub(crate) fn write(text: &mut String, counts: &Counts) -> std::fmt::Result {
    let mut ours = Registry::with_prefix("manciple");
    of_templates(&mut ours, counts);
    let mut original = Registry::default();
    of_the_original(&mut original, counts);
    encode_registry(text, &ours)?;
    encode_registry(text, &original)
}

/// The upper bounds of ages, in seconds: those of the original controller.
const AGES: [f64; 7] = [600.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0, 4200.0];

fn of_templates(registry: &mut Registry, counts: &Counts) {
    let Counts { known, ages, .. } = counts;
    for (name, help, value) in [
        ("template_instances", "TemplateInstances", *known),
        ("template_instances_in_progress", "Those that are being made or removed", ages.len()),
    ] {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        registry.register(name, help, ConstGauge::new(value));
    }
}

/// Registers the metrics under the names of the original controller, which lack Manciple's prefix.
fn of_the_original(registry: &mut Registry, counts: &Counts) {
    let completed = Family::<[(&str, &str); 1], Counter>::default();
    for (condition, count) in [("Ready", counts.ready), ("InstantiateFailure", counts.failed)] {
        completed.get_or_create(&[("condition", condition)]).inc_by(count);
    }
    let help = "TemplateInstances that came to an end, by the condition that says which";
    registry.register("openshift_template_instance_completed", help, completed);
    let ages = Histogram::new(AGES);
    counts.ages.iter().for_each(|age| ages.observe(age_of(*age)));
    let help = "How long those are at it that did not come to an end, in seconds";
    registry.register("openshift_template_instance_active_age_seconds", help, ages);
}

fn age_of(seconds: u64) -> f64 {
    std::time::Duration::from_secs(seconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_counted_under_the_names_of_the_original() {
        let counts = Counts { known: 4, ages: vec![5, 3000], ready: 7, failed: 2 };
        let mut text = String::new();
        write(&mut text, &counts).unwrap();
        for expected in [
            "manciple_template_instances 4\n",
            "manciple_template_instances_in_progress 2\n",
            "openshift_template_instance_completed_total{condition=\"Ready\"} 7\n",
            "openshift_template_instance_completed_total{condition=\"InstantiateFailure\"} 2\n",
            "openshift_template_instance_active_age_seconds_bucket{le=\"600.0\"} 1\n",
            "openshift_template_instance_active_age_seconds_bucket{le=\"3000.0\"} 2\n",
            "openshift_template_instance_active_age_seconds_count 2\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let bucket = "openshift_template_instance_active_age_seconds_bucket{le=\"";
        let bounds = text.lines().filter_map(|line| line.strip_prefix(bucket)?.split('"').next());
        let expected =
            ["600.0", "1200.0", "1800.0", "2400.0", "3000.0", "3600.0", "4200.0", "+Inf"];
        assert_eq!(bounds.collect::<Vec<_>>(), expected, "{text}");
        // Ages are those of now: what was at it before is not counted with them.
        let later = Counts { ages: vec![5], ..counts };
        let mut text = String::new();
        write(&mut text, &later).unwrap();
        let expected = "openshift_template_instance_active_age_seconds_count 1\n";
        assert!(text.contains(expected), "{text}");
    }
}
