//! Checks of items 11 to 18: the catalog.

use std::collections::HashSet;

use http::HeaderValue;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use serde_json::Value;

use super::chosen::{Chosen, list};
use super::message::{Answer, Kind};
use super::probe::Probe;
use super::report::Verdict;

pub(super) async fn check(probe: &mut Probe<'_>) {
    let ask = probe.ask(Kind::Catalog);
    let first = probe
        .check("catalog", ask, |answer| {
            answer.expect(&[200]).and(|| {
                let listed = answer.json["services"].is_array();
                if listed { Verdict::Pass } else { answer.fault("services is not a list") }
            })
        })
        .await;
    if first.status != 200 || !first.json["services"].is_array() {
        probe.block("there is no catalog to order from");
        return;
    }
    for (id, rule) in RULES {
        probe.note(id, rule(&first.json));
    }
    check_again(probe, &first).await;
    match Chosen::choose(&first.json, &probe.options) {
        Ok(chosen) => probe.chosen = Some(chosen),
        Err(why) => probe.block(&why),
    }
}

async fn check_again(probe: &mut Probe<'_>, first: &Answer) {
    let ask = probe.ask(Kind::Catalog);
    let ids = |catalog: &Value| {
        let services = list(catalog, "services").iter();
        let mut ids: Vec<_> =
            services.flat_map(|service| identified(service).map(Value::to_string)).collect();
        ids.sort();
        ids
    };
    let before = ids(&first.json);
    probe
        .check("catalog-stable", ask, |answer| {
            let same = ids(&answer.json) == before;
            if same { Verdict::Pass } else { answer.fault("the ids are not those of before") }
        })
        .await;

    let conditions = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    let tag = conditions.into_iter().find_map(|(tag, condition)| {
        first.headers.get(tag).map(|value: &HeaderValue| (condition, value.clone()))
    });
    let Some((condition, value)) = tag else {
        let why = "the catalog has neither an ETag nor a Last-Modified";
        return probe.note("catalog-unchanged", Verdict::Fail(why.to_owned()));
    };
    let mut ask = probe.ask(Kind::Catalog);
    ask.headers.insert(condition, value);
    probe.check("catalog-unchanged", ask, |answer| answer.expect(&[304])).await;
}

type Rule = fn(&Value) -> Verdict;

const RULES: &[(&str, Rule)] = &[
    ("catalog-services", |catalog| {
        each_service(catalog, |service| {
            missing(service, &["id", "name", "description"])
                .or_else(|| (!service["bindable"].is_boolean()).then_some("bindable"))
                .or_else(|| list(service, "plans").is_empty().then_some("plans"))
        })
    }),
    ("catalog-plans", |catalog| {
        each_plan(catalog, |plan| missing(plan, &["id", "name", "description"]))
    }),
    ("catalog-service-names", |catalog| {
        unique("service name", list(catalog, "services").iter().map(|service| &service["name"]))
    }),
    ("catalog-plan-names", |catalog| {
        let services = list(catalog, "services").iter();
        services.fold(Verdict::Pass, |verdict, service| {
            let names = list(service, "plans").iter().map(|plan| &plan["name"]);
            verdict.and(|| unique("plan name", names))
        })
    }),
    ("catalog-ids", |catalog| unique("id", list(catalog, "services").iter().flat_map(identified))),
    ("catalog-friendly", |catalog| {
        let fault = |value: &Value| {
            let name = value["name"].as_str().unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
            let long = ["id", "name", "description"].into_iter().find(|member| {
                value[*member].as_str().is_some_and(|text| text.chars().count() > 255)
            });
            long.or_else(|| (!name.chars().all(plain)).then_some("name"))
        };
        each_service(catalog, fault).and(|| each_plan(catalog, fault))
    }),
    ("catalog-requires", |catalog| {
        each_service(catalog, |service| {
            let known = ["syslog_drain", "route_forwarding", "volume_mount"];
            let is_known = |value: &Value| value.as_str().is_some_and(|one| known.contains(&one));
            let requires = &service["requires"];
            let right = requires.is_null()
                || requires.as_array().is_some_and(|all| all.iter().all(is_known));
            (!right).then_some("requires")
        })
    }),
    ("catalog-plan-flags", |catalog| {
        let flags = ["free", "bindable", "plan_updateable", "binding_rotatable"];
        each_plan(catalog, |plan| wrong(plan, &flags, Value::is_boolean))
    }),
    ("catalog-schemas", |catalog| {
        each_plan(catalog, |plan| {
            let schemas = &plan["schemas"];
            let all = [
                &schemas["service_instance"]["create"],
                &schemas["service_instance"]["update"],
                &schemas["service_binding"]["create"],
            ];
            let right = |schema: &&Value| {
                schema["parameters"].is_null() || is_schema(&schema["parameters"])
            };
            (!all.iter().all(right)).then_some("schemas")
        })
    }),
    ("catalog-maintenance-info", |catalog| {
        each_plan(catalog, |plan| {
            let info = &plan["maintenance_info"];
            let version = info["version"].as_str();
            let right = info.is_null()
                || version.is_some_and(|version| semver::Version::parse(version).is_ok());
            (!right).then_some("maintenance_info")
        })
    }),
    ("catalog-optional", |catalog| {
        let flags = [
            "instances_retrievable",
            "bindings_retrievable",
            "allow_context_updates",
            "plan_updateable",
        ];
        each_service(catalog, |service| {
            let client = &service["dashboard_client"];
            let has_client = client.is_null() || missing(client, &["id", "secret"]).is_none();
            wrong(service, &flags, Value::is_boolean)
                .or_else(|| wrong(service, &["metadata"], Value::is_object))
                .or_else(|| wrong(service, &["tags"], Value::is_array))
                .or_else(|| (!has_client).then_some("dashboard_client"))
        })
        .and(|| {
            each_plan(catalog, |plan| {
                wrong(plan, &["metadata", "schemas"], Value::is_object)
                    .or_else(|| wrong(plan, &["maximum_polling_duration"], Value::is_u64))
            })
        })
    }),
];

/// The members of a catalog that have an id: a service and its plans.
fn identified(service: &Value) -> impl Iterator<Item = &Value> {
    std::iter::once(&service["id"]).chain(list(service, "plans").iter().map(|plan| &plan["id"]))
}

/// Judges every service by the member that `fault` finds wrong.
fn each_service(catalog: &Value, fault: impl Fn(&Value) -> Option<&'static str>) -> Verdict {
    for (index, service) in list(catalog, "services").iter().enumerate() {
        if let Some(member) = fault(service) {
            return Verdict::Fail(format!("services[{index}].{member} is not as it should be"));
        }
    }
    Verdict::Pass
}

/// Judges every plan by the member that `fault` finds wrong.
fn each_plan(catalog: &Value, fault: impl Fn(&Value) -> Option<&'static str>) -> Verdict {
    for (outer, service) in list(catalog, "services").iter().enumerate() {
        for (inner, plan) in list(service, "plans").iter().enumerate() {
            if let Some(member) = fault(plan) {
                let path = format!("services[{outer}].plans[{inner}].{member}");
                return Verdict::Fail(format!("{path} is not as it should be"));
            }
        }
    }
    Verdict::Pass
}

/// The first of these members that is not a non-empty string.
fn missing(value: &Value, members: &[&'static str]) -> Option<&'static str> {
    let is_text = |member: &str| value[member].as_str().is_some_and(|text| !text.is_empty());
    members.iter().copied().find(|member| !is_text(member))
}

/// The first of these members that is there and of another type.
fn wrong(
    value: &Value,
    members: &[&'static str],
    is_right: fn(&Value) -> bool,
) -> Option<&'static str> {
    let members = members.iter().copied();
    members.filter(|member| !value[*member].is_null()).find(|member| !is_right(&value[*member]))
}

fn unique<'a>(what: &str, values: impl Iterator<Item = &'a Value>) -> Verdict {
    let mut seen = HashSet::new();
    for value in values {
        if !seen.insert(value) {
            return Verdict::Fail(format!("the {what} {value} is there twice"));
        }
    }
    Verdict::Pass
}

fn is_schema(schema: &Value) -> bool {
    const LARGEST: usize = 64 * 1024;
    schema["$schema"].is_string() && schema.to_string().len() <= LARGEST && refers_inside(schema)
}

/// Whether every `$ref` is to a part of the same schema.
fn refers_inside(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().all(|(name, value)| match value {
            Value::String(target) if name == "$ref" => target.starts_with('#'),
            value => refers_inside(value),
        }),
        Value::Array(values) => values.iter().all(refers_inside),
        _ => true,
    }
}
