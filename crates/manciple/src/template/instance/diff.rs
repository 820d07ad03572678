//! `manciple template instance diff`: prints what a change or a rollback would do to the objects of an instance, and
//! what has drifted.

use kube::api::DynamicObject;
use kubernetes::templates::preview::{self, Fate, Preview, PreviewError, Previewed};
use serde_json::{Value, json};

use super::args::DiffArgs;
use super::cluster::Cluster;
use super::order::{self, Desired};
use super::revisions::choose;
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::template::diff::{self, NOTHING};
use crate::template::print;

/// Prints the difference that the options ask for: of a change, of a rollback, or of the current order applied anew.
pub(super) async fn print(cluster: &Cluster, args: &DiffArgs) -> Result<(), Failure> {
    let instance = cluster.instance().await?;
    let order = match args.order.is_given() {
        true => order::given(cluster, &instance, &args.order).await?,
        false => {
            let revisions = cluster.revisions(&instance).await?;
            let newest = revisions.first().map(|it| it.record.revision);
            let number = args.to_revision.or(newest);
            let spec = &instance.data["spec"];
            let (revision, spec) = choose(&revisions, number, spec, &cluster.subject())?;
            order::recorded(spec, &revision.record)
        }
    };
    show(cluster, &instance, &order).await
}

/// Prints what an order would change in an instance.
pub(super) async fn show(
    cluster: &Cluster,
    instance: &DynamicObject,
    order: &Desired,
) -> Result<(), Failure> {
    let revisions = cluster.revisions(instance).await?;
    let subject = cluster.subject();
    let Some(recorded) = revisions.first() else {
        return Err(Failure::missing(format!("nothing is recorded of {subject} yet"))
            .hint("it is not begun: is a controller running, and is its requester verified?"));
    };
    let order = preview::Desired { template: &order.template, values: &order.values };
    let preview = preview::preview(&cluster.client, instance, recorded, order).await;
    let preview = preview.map_err(|error| failed(&subject, &error))?;
    let found: Vec<Told> =
        preview.objects.iter().filter_map(|it| told(it, &cluster.namespace, &preview)).collect();
    if !preview.generated.is_empty() && cluster.out.is_chatty() {
        let names = preview.generated.join(", ");
        cluster.out.note(&format!("would be generated, and is not what is shown: {names}"));
    }
    if cluster.out.is_json() {
        let items: Vec<Value> = found.iter().map(Told::document).collect();
        return cluster.out.json(&json!({ "items": items }));
    }
    for told in &found {
        cluster.out.foreign(&told.lines(cluster.out.quiet))?;
    }
    if found.is_empty() {
        cluster.out.note("no differences");
    }
    Ok(())
}

fn failed(subject: &str, error: &PreviewError) -> Failure {
    let exit = match error {
        PreviewError::Template(_) => Exit::Usage,
        PreviewError::Refused(_) => Exit::Refused,
        PreviewError::Unanswered(_) => Exit::Unreachable,
    };
    let failure = Failure::new(exit, format!("cannot tell what {subject} would be: {error}"));
    match error {
        PreviewError::Template(_) => {
            failure.hint("give values: -p NAME=VALUE, or --param-file FILE")
        }
        _ => failure,
    }
}

/// An object that differs, without what must not be shown.
struct Told {
    name: String,
    /// The word for programs.
    word: &'static str,
    why: Option<String>,
    /// The places that differ, with the values before and after.
    places: Vec<(String, [Option<String>; 2])>,
}

/// The difference of an object; `None`: it stays what it is.
fn told(object: &Previewed, home: &str, preview: &Preview) -> Option<Told> {
    let redact = |text: &str| preview.redactor.redact(text).into_owned();
    let mut told = Told { name: name(object, home), word: "made", why: None, places: Vec::new() };
    let why = |why: &String| Some(redact(why));
    match &object.fate {
        Fate::Made => {}
        Fate::Removed => told.word = "removed",
        Fate::InTheWay => told.word = "in-the-way",
        Fate::Replaced(said) => (told.word, told.why) = ("replaced", why(said)),
        Fate::Refused(said) => (told.word, told.why) = ("refused", why(said)),
        Fate::Changed(states) => {
            let [is, would_be] = &**states;
            let places = diff::places(is, would_be);
            if places.is_empty() {
                return None;
            }
            told.word = "changed";
            let place = |place: &diff::Change<'_>| {
                let shown = place.shown().map(|text| text.map(|text| redact(&text)));
                (redact(&place.path), shown)
            };
            told.places = places.iter().map(place).collect();
        }
    }
    Some(told)
}

impl Told {
    /// The lines for people. `is_short`: the name alone.
    fn lines(&self, is_short: bool) -> String {
        let (mark, says) = match self.word {
            "made" => ('+', ""),
            "removed" => ('-', ""),
            "changed" => ('~', ""),
            "replaced" => ('~', " would be made anew"),
            "in-the-way" => ('!', " exists, and is not of this instance"),
            _ => ('!', " would be refused"),
        };
        if is_short {
            return format!("{mark} {}\n", self.name);
        }
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let line = |(path, [is, would_be]): &(String, [Option<String>; 2])| {
            let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
            format!("    {path}: {} → {}\n", shown(is), shown(would_be))
        };
        let places: String = self.places.iter().map(line).collect();
        format!("{mark} {}{says}{why}\n{places}", self.name)
    }

    /// The document for programs.
    fn document(&self) -> Value {
        let place = |(path, [is, would_be]): &(String, [Option<String>; 2])| json!({"path": path, "is": is, "would_be": would_be});
        let places: Vec<Value> = self.places.iter().map(place).collect();
        json!({"object": self.name, "fate": self.word, "why": self.why, "places": places})
    }
}

/// The name of an object, as `deployment.apps/web`, with its namespace before it if that is not the instance's.
fn name(object: &Previewed, home: &str) -> String {
    let named = print::name(&json!({
        "apiVersion": object.api_version, "kind": object.kind, "metadata": {"name": object.name},
    }));
    match &object.namespace {
        Some(namespace) if namespace != home => format!("{namespace}/{named}"),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    use engine::redact::{Redactor, Secrets};

    use super::*;

    fn preview() -> Preview {
        let mut secrets = Secrets::default();
        secrets.add(b"hunter2-hunter2");
        Preview { objects: Vec::new(), generated: Vec::new(), redactor: Redactor::new(&secrets) }
    }

    fn object(kind: &str, namespace: &str, fate: Fate) -> Previewed {
        Previewed {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: "a".to_owned(),
            fate,
        }
    }

    #[test]
    fn each_fate_has_its_mark_and_no_value() {
        let state = |kind: &str, value: &str| json!({"kind": kind, "data": {"k": value}});
        let changed = |kind: &str, was: &str, is: &str| {
            Fate::Changed(Box::new([state(kind, was), state(kind, is)]))
        };
        for (kind, namespace, fate, expected) in [
            ("Secret", "shop", Fate::Made, Some("+ secret/a\n")),
            ("ConfigMap", "other", Fate::Removed, Some("- other/configmap/a\n")),
            ("Job", "shop", Fate::InTheWay, Some("! job/a exists, and is not of this instance\n")),
            (
                "Job",
                "shop",
                Fate::Refused("no hunter2-hunter2".to_owned()),
                Some("! job/a would be refused: no [redacted]\n"),
            ),
            (
                "ConfigMap",
                "shop",
                changed("ConfigMap", "1", "x hunter2-hunter2"),
                Some("~ configmap/a\n    data.k: \"1\" → \"x [redacted]\"\n"),
            ),
            (
                "Secret",
                "shop",
                changed("Secret", "MQ==", "Mg=="),
                Some("~ secret/a\n    data.k: (not shown) → (not shown)\n"),
            ),
            ("ConfigMap", "shop", changed("ConfigMap", "1", "1"), None),
        ] {
            let told = told(&object(kind, namespace, fate), "shop", &preview());
            let lines = told.as_ref().map(|told| told.lines(false));
            assert_eq!(lines.as_deref(), expected, "{kind}");
            let document = told.map(|told| told.document().to_string()).unwrap_or_default();
            assert!(!document.contains("hunter2") && !document.contains("MQ=="), "{document}");
        }
    }
}
