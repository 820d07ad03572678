//! The CustomResourceDefinitions of QuarksJob and ExtendedJob, with the names that their users know.
//!
//! Members that the schema does not know are kept: the official examples carry members at wrong levels, and what
//! somebody wrote is not ours to drop.

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::record::RECORD;
use crate::definition::{
    Schema, column, condition_list, custom_resource, described, document, flag, object, text,
};

/// The definition of a kind, for any API server from 1.16 on.
pub fn definition(dialect: Dialect) -> Value {
    let mut definition = custom_resource(&dialect.resource(), &schema(dialect), &columns());
    definition["spec"]["names"]["shortNames"] = json!(dialect.short_names());
    definition
}

fn columns() -> Vec<Value> {
    let shown = [
        ("completed", "boolean", ".status.completed", 0),
        ("strategy", "string", ".spec.trigger.strategy", 0),
        ("last", "string", ".status.lastRun.reason", 0),
        ("ended", "date", ".status.lastRun.endedAt", 0),
        ("made", "string", ".status.lastRun.made", 0),
        ("waits", "string", r#".status.conditions[?(@.type=="Waiting")].message"#, 0),
        ("message", "string", ".status.lastRun.message", 10),
        ("updateOnConfigChange", "boolean", ".spec.updateOnConfigChange", 20),
    ];
    shown.map(|(name, kind, path, priority)| column(name, kind, path, priority)).into()
}

fn schema(dialect: Dialect) -> Value {
    document(
        "A Job that runs when something happens, and whose output is kept.",
        [("spec", spec(dialect)), ("status", status())],
    )
}

fn spec(dialect: Dialect) -> Value {
    let template = match dialect {
        Dialect::QuarksJob => "The Job: batch/v1 JobTemplateSpec.",
        Dialect::ExtendedJob => "The pod: PodTemplateSpec.",
    };
    let concurrency = described(
        json!({"type": "string", "enum": ["Allow", "Forbid", "Queue", "Replace"]}),
        "What happens to a trigger while a run goes on: another run beside it (the default), nothing, \
         another run after it, or instead of it.",
    );
    object(
        "What runs, when, and what is kept of it.",
        [
            ("trigger", trigger(dialect)),
            ("template", map(template)),
            (
                "updateOnConfigChange",
                flag(
                    "Whether one that is done runs again when a ConfigMap or Secret that it refers to changes.",
                ),
            ),
            ("output", output(dialect)),
            ("concurrencyPolicy", concurrency),
            (
                "dependsOn",
                described(
                    names(),
                    "Others of this kind and namespace that have to have succeeded.",
                ),
            ),
            (
                "successfulJobsHistoryLimit",
                count(
                    "How many Jobs that succeeded are kept, with their pods. Not said: none, and pods stay.",
                ),
            ),
            (
                "failedJobsHistoryLimit",
                count("How many Jobs that failed are kept; all if it is not said."),
            ),
        ],
    )
    .open()
}

fn trigger(dialect: Dialect) -> Value {
    let strategies: &[&str] = match dialect {
        Dialect::QuarksJob => &["manual", "once", "now", "done"],
        Dialect::ExtendedJob => &["manual", "once", "now", "done", "podstate"],
    };
    let strategy = described(
        json!({"type": "string", "enum": strategies}),
        "manual: when told to, by now, which becomes manual again. once: as soon as it is there; then done.",
    );
    let inputs = json!({"type": "array", "items": map("Name and value, or valueFrom.")});
    let late = json!({"type": "integer", "format": "int64", "minimum": 10});
    let members = [
        ("strategy", strategy),
        (
            "schedule",
            text(
                "Runs at these times too: five fields of cron, or @hourly, @daily, @weekly, @monthly, @yearly.",
            ),
        ),
        ("timeZone", text("Of the schedule, as Europe/Vienna; UTC if it is not said.")),
        (
            "startingDeadlineSeconds",
            described(late, "A time of the schedule that is longer ago than this is passed over."),
        ),
        (
            "inputs",
            described(
                inputs,
                "Variables for all containers of the next run that now or once triggers, and of no other.",
            ),
        ),
    ];
    let podstate = (dialect == Dialect::ExtendedJob).then(|| {
        let says =
            "For podstate: when (ready, notready, created or deleted) and the selector of pods.";
        ("podstate", map(says))
    });
    object("When it runs.", members.into_iter().chain(podstate)).requires(&["strategy"]).open()
}

fn output(dialect: Dialect) -> Value {
    let (says, own) = match dialect {
        Dialect::QuarksJob => (
            "What is kept of what its containers write to /mnt/quarks.",
            vec![
                ("outputMap", map("By container and file: the Secret that it goes into.")),
                (
                    "namePrefix",
                    text(
                        "Instead of it: each container's output.json, into Secrets of this prefix.",
                    ),
                ),
                (
                    "versioned",
                    flag("Whether each output is a new version, of files that do not say."),
                ),
            ],
        ),
        Dialect::ExtendedJob => (
            "What is kept of what its containers print: each one's as a Secret.",
            vec![
                ("namePrefix", text("What the names of the Secrets begin with.")),
                ("versioned", flag("Whether each output is a new version.")),
            ],
        ),
    };
    let common = [
        ("outputType", text("json.")),
        ("secretLabels", map("Labels of all Secrets.")),
        ("writeOnFailure", flag("Whether it is kept though the Job failed.")),
        ("stringifyValues", flag("Whether values that are no strings become their JSON.")),
        ("setOwnerReference", flag("Whether what is not versioned goes with its owner, too.")),
        (
            "versionHistoryLimit",
            count("How many versions of each Secret are kept; all if it is not said."),
        ),
    ];
    object(says, own.into_iter().chain(common)).open()
}

fn status() -> Value {
    let run = |says: &str| {
        let time = || json!({"type": "string", "format": "date-time"});
        let number = json!({"type": "integer", "format": "int64"});
        object(
            says,
            [
                ("id", described(number.clone(), "Its number, from 1.")),
                ("trigger", text("now, once, config-change, schedule or pod-state.")),
                ("job", text("The name of its Job.")),
                ("succeeded", flag("Whether it did its work and its output is kept.")),
                ("reason", text("How it ended, in one word.")),
                ("message", text("For people.")),
                ("startedAt", time()),
                ("endedAt", time()),
                ("seconds", described(number, "How long it took.")),
                ("template", text("A digest of the template that made no Job.")),
                (
                    "made",
                    described(
                        names(),
                        "The Secrets that hold its output; a ConfigMap as configmap/NAME.",
                    ),
                ),
            ],
        )
    };
    let history = json!({"type": "array", "items": run("")});
    let last = described(json!({"type": "string", "nullable": true}), "When it last ran.");
    object(
        "How it stands.",
        [
            ("completed", flag("Whether the last run succeeded, and none goes on.")),
            ("lastReconcile", last),
            ("lastRun", run("The newest run that has ended.")),
            ("history", described(history, "Runs that have ended, the newest first.")),
            ("conditions", condition_list("Succeeded or Waiting.", [])),
            (RECORD, text("The annotation manciple.dev/runs, for where that is removed.")),
        ],
    )
    .open()
}

/// The schema of an object that may have any members.
fn map(says: &str) -> Value {
    described(json!({"type": "object"}), says).open()
}

fn count(says: &str) -> Value {
    described(json!({"type": "integer", "format": "int64", "minimum": 0}), says)
}

fn names() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Dialect, definition};

    fn columns(definition: &Value) -> Vec<([&str; 3], u64)> {
        let shown = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
        let members = ["name", "type", "jsonPath"];
        let all = shown.unwrap().iter();
        let of = |column: &'_ Value| column["priority"].as_u64().unwrap_or_default();
        all.map(|column| (members.map(|member| column[member].as_str().unwrap()), of(column)))
            .collect()
    }

    #[test]
    fn d15_definitions_are_of_v1_and_name_their_kinds_as_the_originals_do() {
        for (dialect, name, kind, short) in [
            (
                Dialect::QuarksJob,
                "quarksjobs.quarks.cloudfoundry.org",
                "QuarksJob",
                json!(["qjob", "qjobs"]),
            ),
            (
                Dialect::ExtendedJob,
                "extendedjobs.fissile.cloudfoundry.org",
                "ExtendedJob",
                json!(["ejob", "ejobs"]),
            ),
        ] {
            let definition = definition(dialect);
            assert_eq!(definition["apiVersion"], "apiextensions.k8s.io/v1");
            assert_eq!(definition["metadata"]["name"], name);
            let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
            assert_eq!((&names["kind"], &names["shortNames"]), (&json!(kind), &short));
            assert_eq!(spec["scope"], "Namespaced");
            let version = &spec["versions"][0];
            assert_eq!(version["name"], "v1alpha1");
            assert_eq!(version["subresources"], json!({"status": {}}));
        }
    }

    #[test]
    fn columns_of_the_original_are_there_and_say_whether_it_ran_why_not_and_what_it_made() {
        let definition = definition(Dialect::QuarksJob);
        let columns = columns(&definition);
        for column in [
            (["completed", "boolean", ".status.completed"], 0),
            // The original's is 10: shown with `-o wide` alone.
            (["strategy", "string", ".spec.trigger.strategy"], 0),
            (["updateOnConfigChange", "boolean", ".spec.updateOnConfigChange"], 20),
            (["last", "string", ".status.lastRun.reason"], 0),
            (["made", "string", ".status.lastRun.made"], 0),
            (["waits", "string", r#".status.conditions[?(@.type=="Waiting")].message"#], 0),
        ] {
            assert!(columns.contains(&column), "{column:?}: {columns:?}");
        }
    }

    #[test]
    fn the_schema_asks_for_no_more_than_the_original_and_drops_nothing() {
        let definition = definition(Dialect::QuarksJob);
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let spec = &schema["spec"];
        assert_eq!(spec["required"], Value::Null, "neither trigger nor template has to be there");
        let trigger = &spec["properties"]["trigger"];
        assert_eq!(trigger["required"], json!(["strategy"]));
        let strategies = &trigger["properties"]["strategy"]["enum"];
        assert_eq!(*strategies, json!(["manual", "once", "now", "done"]));
        let output = &spec["properties"]["output"];
        assert_eq!(output["properties"]["outputType"]["type"], "string", "taken, and not read");
        assert_eq!(schema["status"]["properties"]["lastReconcile"]["nullable"], true);
        for open in [
            spec,
            trigger,
            output,
            &output["properties"]["outputMap"],
            &spec["properties"]["template"],
            &schema["status"],
        ] {
            assert_eq!(open["x-kubernetes-preserve-unknown-fields"], true, "{open}");
        }
    }
}
