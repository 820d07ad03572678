//! Translates a DeploymentConfig (`apps.openshift.io/v1`) to a Deployment.
//!
//! Both make pods from a template and replace them step by step. A DeploymentConfig does it by a pod of its own, with
//! hooks; and it has other defaults, which are written out here.

use serde_json::{Map, Value, json};

use super::members::{Members, Notes, map};
use crate::fault::Place;

/// The label that OpenShift sets on every pod of a DeploymentConfig, whatever the template says: Services rely on it.
const LABEL: &str = "deploymentconfig";
/// How many bytes the value of a label has at most.
const LABEL_VALUE: usize = 63;
/// The value of one side of a rolling update while the other is zero: otherwise nothing could ever move.
const QUARTER: &str = "25%";

/// Translates a DeploymentConfig.
pub(super) fn deployment(
    place: &Place<'_>,
    object: Map<String, Value>,
    notes: &mut Notes,
) -> Value {
    let mut config = Members::new(place, object.into(), notes);
    let metadata = config.value("metadata");
    let spec_place = config.at("spec");
    let mut spec = Members::new(&spec_place, config.value("spec"), notes);
    for known in ["apiVersion", "kind", "status"] {
        config.take(known);
    }
    config.end(notes);
    let name = metadata["name"].as_str().unwrap_or_default();
    let name = Some(name).filter(|name| (1..=LABEL_VALUE).contains(&name.len()));
    let (selector, template) = pods(&mut spec, name, notes);
    let (strategy, deadline) = strategy(&mut spec, notes);
    triggers(&mut spec, notes);
    let detail = "a Deployment keeps its pods: make it a Job";
    spec.refuse("test", detail, notes);
    // In a DeploymentConfig it is a plain number, 0 if missing; Kubernetes would take a missing one for 1.
    let replicas = spec.take("replicas").unwrap_or_else(|| {
        notes.warn(&spec.at("replicas"), "is missing, which is 0 for a DeploymentConfig: no pods");
        0.into()
    });
    let [ready, history, paused] =
        ["minReadySeconds", "revisionHistoryLimit", "paused"].map(|key| spec.value(key));
    spec.end(notes);
    map([
        ("apiVersion", "apps/v1".into()),
        ("kind", "Deployment".into()),
        ("metadata", metadata),
        (
            "spec",
            map([
                ("replicas", replicas),
                ("selector", map([("matchLabels", selector)])),
                ("strategy", strategy),
                ("minReadySeconds", ready),
                ("progressDeadlineSeconds", deadline),
                ("revisionHistoryLimit", history),
                ("paused", paused),
                ("template", template),
            ]),
        ),
    ])
}

/// The selector, and the template of the pods.
fn pods(spec: &mut Members<'_>, name: Option<&str>, notes: &mut Notes) -> (Value, Value) {
    let (selector_place, template_place) = (spec.at("selector"), spec.at("template"));
    let mut selector = spec.value("selector");
    if !selector.is_null() && !selector.is_object() {
        notes.wrong(&selector_place, &selector, "has to be a map of labels");
    }
    let Some(mut template) = spec.take("template") else {
        notes.required(&template_place, "says what pods are: add it");
        return (selector, Value::Null);
    };
    let Some(pods) = template.as_object_mut() else {
        notes.wrong(&template_place, &template, "has to be a map");
        return (selector, Value::Null);
    };
    images(&template_place, pods.get_mut("spec"), notes);
    let metadata = pods.entry("metadata").or_insert(Value::Null);
    let place = Place::Key(&template_place, "metadata");
    let Some(metadata) = as_map(metadata) else {
        notes.wrong(&place, metadata, "has to be a map");
        return (selector, Value::Null);
    };
    let labels = metadata.entry("labels").or_insert(Value::Null);
    let Some(labels) = as_map(labels) else {
        notes.wrong(&Place::Key(&place, "labels"), labels, "has to be a map");
        return (selector, Value::Null);
    };
    if selector.as_object().is_none_or(Map::is_empty) {
        if labels.is_empty() {
            let detail = "the pods have no labels to select them by: give them one";
            notes.required(&selector_place, detail);
        }
        selector = Value::Object(labels.clone());
    }
    if let Some(name) = name {
        labels.insert(LABEL.to_owned(), name.into());
        if let Some(label) = selector.get_mut(LABEL) {
            *label = name.into();
        }
    }
    (selector, template)
}

fn as_map(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Checks that all images are named: one that an image stream fills in on OpenShift is missing here.
fn images(place: &Place<'_>, spec: Option<&mut Value>, notes: &mut Notes) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    let place = Place::Key(place, "spec");
    for list in ["initContainers", "containers"] {
        let place = Place::Key(&place, list);
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, container) in containers.enumerate() {
            let Some(container) = container.as_object_mut() else { continue };
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            // As on OpenShift, a blank image counts as missing.
            let trimmed = image.trim();
            if trimmed.is_empty() {
                let place = Place::Index(&place, index);
                let detail = "is filled in from an image stream on OpenShift: name the image";
                notes.required(&Place::Key(&place, "image"), detail);
            } else if trimmed.len() < image.len() {
                let trimmed = trimmed.to_owned();
                container.insert("image".to_owned(), trimmed.into());
            }
        }
    }
}

/// The strategy for replacing pods, and in how many seconds there has to be progress.
fn strategy(spec: &mut Members<'_>, notes: &mut Notes) -> (Value, Value) {
    let place = spec.at("strategy");
    let mut strategy = Members::new(&place, spec.value("strategy"), notes);
    // Settings of the pod that replaces the others, which a Deployment does not have.
    for deployer in ["resources", "labels", "annotations", "activeDeadlineSeconds"] {
        strategy.take(deployer);
    }
    let kind = strategy.text("type", notes);
    let detail = "a Deployment runs no program of others to replace its pods: leave it out";
    strategy.refuse("customParams", detail, notes);
    // Parameters of another strategy have no effect.
    let (rolling, recreate) = (strategy.value("rollingParams"), strategy.value("recreateParams"));
    let found = match kind.as_str() {
        "" | "Rolling" => rolled(&strategy.at("rollingParams"), rolling, notes),
        "Recreate" => {
            let place = strategy.at("recreateParams");
            let mut params = Members::new(&place, recreate, notes);
            let deadline = common(&mut params, notes);
            params.end(notes);
            (json!({"type": "Recreate"}), deadline)
        }
        _ => {
            let detail = "a Deployment has Rolling and Recreate: take one of these";
            notes.wrong(&strategy.at("type"), &kind.into(), detail);
            (Value::Null, Value::Null)
        }
    };
    strategy.end(notes);
    found
}

fn rolled(place: &Place<'_>, params: Value, notes: &mut Notes) -> (Value, Value) {
    let mut params = Members::new(place, params, notes);
    // How often the pod that replaces the others checks.
    for pace in ["updatePeriodSeconds", "intervalSeconds"] {
        params.take(pace);
    }
    let deadline = common(&mut params, notes);
    let (surge, unavailable) = (params.take("maxSurge"), params.take("maxUnavailable"));
    params.end(notes);
    let (surge, unavailable) = match (surge, unavailable) {
        (Some(surge), None) => (Some(surge.clone()), Some(beside(&surge))),
        (None, Some(unavailable)) => (Some(beside(&unavailable)), Some(unavailable)),
        both => both,
    };
    let update = map([
        ("maxSurge", surge.unwrap_or_default()),
        ("maxUnavailable", unavailable.unwrap_or_default()),
    ]);
    let update = if update == json!({}) { Value::Null } else { update };
    (map([("type", "RollingUpdate".into()), ("rollingUpdate", update)]), deadline)
}

/// The value of the missing side of a rolling update, given the other.
fn beside(said: &Value) -> Value {
    match *said == 0 || *said == "0%" {
        true => QUARTER.into(),
        false => 0.into(),
    }
}

/// Reads what all strategies have: hooks, and a timeout, which runs from the last progress, as in a Deployment.
fn common(params: &mut Members<'_>, notes: &mut Notes) -> Value {
    for hook in ["pre", "mid", "post"] {
        let detail = "a Deployment has no hooks: make it a Job or an init container";
        params.refuse(hook, detail, notes);
    }
    params.value("timeoutSeconds")
}

/// Checks the triggers: a Deployment rolls out every change of its own, and no other.
fn triggers(spec: &mut Members<'_>, notes: &mut Notes) {
    let place = spec.at("triggers");
    let Some(triggers) = spec.take("triggers") else { return };
    let Some(triggers) = triggers.as_array() else {
        return notes.wrong(&place, &triggers, "has to be a list");
    };
    for (index, trigger) in triggers.iter().enumerate() {
        let place = Place::Index(&place, index);
        match trigger["type"].as_str() {
            Some("ConfigChange") => {}
            Some("ImageChange") => {
                let detail =
                    "a Deployment follows no image stream: its images are what the containers say";
                notes.warn(&place, detail);
            }
            _ => {
                let detail = "there is no such trigger: ConfigChange and ImageChange are known";
                notes.wrong(&Place::Key(&place, "type"), &trigger["type"], detail);
            }
        }
    }
    if !triggers.iter().any(|trigger| trigger["type"] == "ConfigChange") {
        notes.warn(&place, "there is no ConfigChange, and a Deployment rolls out each change");
    }
}
