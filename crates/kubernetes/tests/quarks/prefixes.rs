//! Output that is named by a prefix: with one dash after it, or as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod, spec};

/// Leaves this, as either kind does where output is named by a prefix.
fn leaves(dialect: Dialect, script: &str, prefix: &str) -> Value {
    let mut spec = match dialect {
        Dialect::QuarksJob => spec("manual", &pod(&format!("{script} > /mnt/quarks/output.json"))),
        Dialect::ExtendedJob => json!({
            "trigger": {"strategy": "manual"}, "template": {"spec": pod(script)},
        }),
    };
    spec["output"] = json!({"namePrefix": prefix});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_container_of_a_quarksjob_leaves_is_named_by_a_prefix_as_in_the_first_releases() {
    let town = Town::new("prefix").await;
    // The container is called `c`, the other one `d`.
    for (name, prefix, expected) in
        [("plain", "foo", ["foo-c", "foo-d"]), ("dashes", "bar--", ["bar-c", "bar-d"])]
    {
        let mut spec = leaves(Dialect::QuarksJob, r#"echo '{"of": "c"}'"#, prefix);
        spec["trigger"]["strategy"] = json!("once");
        let containers = &mut spec["template"]["spec"]["template"]["spec"]["containers"];
        let mut other = containers[0].clone();
        let script = r#"echo '{"of": "d"}' > /mnt/quarks/output.json"#;
        (other["name"], other["args"]) = (json!("d"), json!(["-c", script]));
        containers.as_array_mut().unwrap().push(other);
        town.create(name, spec).await;
        let run = town.ended(name, 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(expected)), "{run}");
        for secret in expected {
            let held = &town.data(secret).await["of"];
            assert!(secret.ends_with(held.as_str()), "{secret} holds {held}");
        }
    }
}

/// One whose controller takes prefixes as they are.
async fn verbatim(test: &str, dialect: Dialect) -> Town {
    let of = dialect.kind().to_lowercase();
    let mut town = Town::still(&format!("{test}-{of}")).await;
    town.dialect = dialect;
    town.settings.verbatim_prefixes = true;
    town.start().await;
    town
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_named_by_a_prefix_exactly_as_it_is_where_that_is_set() {
    // The container is called `c`.
    let named =
        [("plain", "foo", "fooc"), ("dash", "bar-", "bar-c"), ("dashes", "baz--", "baz--c")];
    for dialect in Dialect::ALL {
        let town = verbatim("verbatim", dialect).await;
        for (name, prefix, _) in named {
            let mut spec = leaves(dialect, r#"echo "{\"k\": \"$N\"}""#, prefix);
            spec["output"]["versioned"] = json!(true);
            town.create(name, spec).await;
        }
        let mut there = BTreeSet::new();
        for (run, value, version) in [(1, "one", 1), (2, "one", 1), (3, "two", 2)] {
            let inputs = json!([{"name": "N", "value": value}]);
            let told = json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}});
            for (name, ..) in named {
                town.patch(name, told.clone()).await;
            }
            for (name, _, base) in named {
                let made = format!("{base}-v{version}");
                let run = town.ended(name, run).await;
                assert_eq!(run["made"], json!([made]), "{name}: {run}");
                assert_eq!(town.data(&made).await["k"], value, "{name}");
                there.insert(made);
            }
        }
        let label = format!("{}/secret-kind=versionedSecret", dialect.group());
        let versions = ListParams::default().labels(&label);
        let versions = town.cluster.api::<Secret>().list(&versions).await.unwrap();
        let found: BTreeSet<_> = versions.into_iter().filter_map(|it| it.metadata.name).collect();
        assert_eq!(found, there, "and none by another name");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_writes_under_a_verbatim_prefix_is_no_change_to_it_and_what_a_dash_would_name_is() {
    for dialect in Dialect::ALL {
        let town = verbatim("verbatim-own", dialect).await;
        let mut spec = leaves(dialect, r#"echo "{\"k\": \"$(date +%s%N)\"}""#, "foo");
        spec["trigger"]["strategy"] = json!("once");
        spec["updateOnConfigChange"] = json!(true);
        let path = match dialect {
            Dialect::QuarksJob => "/template/spec/template/spec/containers/0",
            Dialect::ExtendedJob => "/template/spec/containers/0",
        };
        let own = json!({"secretRef": {"name": "fooc", "optional": true}});
        let other = json!({"secretRef": {"name": "foo-c", "optional": true}});
        spec.pointer_mut(path).unwrap()["envFrom"] = json!([own, other]);
        town.create("a", spec).await;
        assert_eq!(town.ended("a", 1).await["made"], json!(["fooc"]));
        // By now it would have run for that.
        sleep(Duration::from_secs(4)).await;
        assert_eq!(town.runs("a").await, 1, "{dialect:?}");
        town.make_secret(json!({"metadata": {"name": "foo-c"}, "stringData": {"of": "another"}}))
            .await;
        assert_eq!(town.ended("a", 2).await["trigger"], "config-change", "{dialect:?}");
    }
}
