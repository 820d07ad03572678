//! What the API server serves and lets in by the definitions.

use std::time::Duration;

use kube::api::{DynamicObject, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod, spec};
use super::output::{WELL, makes};

#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_are_served_under_the_names_of_the_originals() {
    let town = Town::still("served").await;
    for (group, kind, plural, short) in [
        ("quarks.cloudfoundry.org", "QuarksJob", "quarksjobs", ["qjob", "qjobs"]),
        ("fissile.cloudfoundry.org", "ExtendedJob", "extendedjobs", ["ejob", "ejobs"]),
    ] {
        let request = http::Request::get(format!("/apis/{group}/v1alpha1")).body(Vec::new());
        let found: Value = town.cluster.client.request(request.unwrap()).await.unwrap();
        let of = |name: &str| {
            let mut all = found["resources"].as_array().into_iter().flatten();
            all.find(|it| it["name"] == name).cloned().unwrap_or_default()
        };
        let whole = of(plural);
        assert_eq!((&whole["kind"], &whole["namespaced"]), (&json!(kind), &json!(true)), "{found}");
        assert_eq!(whole["shortNames"], json!(short), "{found}");
        assert_eq!(whole["singularName"], kind.to_lowercase(), "{found}");
        assert_eq!(of(&format!("{plural}/status"))["kind"], kind, "{found}");
    }
}

/// Why the API server does not let in one with this trigger; `None`: it does. Nothing is made.
async fn refusal(town: &Town, trigger: &Value) -> Option<String> {
    let template = match town.dialect {
        Dialect::QuarksJob => json!({"spec": {"template": {"spec": pod("true")}}}),
        Dialect::ExtendedJob => json!({"spec": pod("true")}),
    };
    let object = json!({
        "apiVersion": town.dialect.api_version(), "kind": town.dialect.kind(),
        "metadata": {"name": "a"}, "spec": {"trigger": trigger, "template": template},
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let tried = PostParams { dry_run: true, ..PostParams::default() };
    match town.jobs().create(&tried, &object).await {
        Ok(_) => None,
        Err(kube::Error::Api(said)) if said.code == 422 => Some(said.message.clone()),
        Err(error) => panic!("{trigger}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_is_one_of_those_of_the_original_and_a_trigger_has_one() {
    let mut town = Town::still("strategies").await;
    for dialect in Dialect::ALL {
        town.dialect = dialect;
        for strategy in ["manual", "once", "now", "done"] {
            let refused = refusal(&town, &json!({"strategy": strategy})).await;
            assert_eq!(refused, None, "{dialect:?}, {strategy}");
        }
        let podstate = json!({"strategy": "podstate", "podstate": {"when": "ready"}});
        let is_in = refusal(&town, &podstate).await.is_none();
        assert_eq!(is_in, dialect == Dialect::ExtendedJob, "podstate is of ExtendedJobs alone");
        for trigger in [
            json!({"strategy": "Now"}),
            json!({"strategy": "always"}),
            json!({"strategy": ""}),
            json!({"strategy": 1}),
            json!({"schedule": "@daily"}),
            json!({}),
        ] {
            let refused = refusal(&town, &trigger).await.unwrap_or_default();
            assert!(refused.contains("spec.trigger.strategy"), "{dialect:?}, {trigger}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_trigger_nor_a_template_has_to_be_there_and_what_has_none_does_not_run() {
    let town = Town::new("bare").await;
    let told = spec("now", &pod("true"));
    town.create("no-trigger", json!({"template": told["template"]})).await;
    town.create("no-template", json!({"trigger": {"strategy": "manual"}})).await;
    town.create("neither", json!({})).await;
    // By now it would have been taken.
    sleep(Duration::from_secs(3)).await;
    for name in ["no-trigger", "no-template", "neither"] {
        assert_eq!(town.runs(name).await, 0, "{name}");
    }
    assert_eq!(town.batch_jobs().await, []);
    // They have them later.
    for name in ["no-trigger", "no-template", "neither"] {
        town.patch(name, json!({"spec": told})).await;
        let run = town.ended(name, 1).await;
        assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("now"), &json!(true)), "{run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_type_is_taken_whatever_it_says_and_output_is_json_all_the_same() {
    let town = Town::new("output-type").await;
    let mut spec = makes(WELL, json!({"name": "made"}));
    spec["output"]["outputType"] = json!("yaml");
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
    assert_eq!(town.data("made").await["bar"], "baz");
    assert_eq!(town.get("a").await["spec"]["output"]["outputType"], "yaml", "it stays");
}
