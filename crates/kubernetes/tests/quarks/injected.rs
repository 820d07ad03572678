//! Containers that somebody puts into pods on their way, as a mesh does: no template names them.

use k8s_openapi::api::batch::v1::Job;
use kube::client::Body;
use serde_json::{Value, json};

use super::gate::{Gate, WAITS};
use super::harness::{PATIENCE, Town, before, pod, spec};
use super::support::wait;

/// A client by which each Job is made with a further container in its pods, which runs this.
fn injecting(town: &Town, script: &'static str) -> kube::Client {
    let base = town.cluster.client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let base = base.clone();
        async move {
            if request.method() != "POST" || !request.uri().path().ends_with("/jobs") {
                return base.send(request).await;
            }
            let (mut parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let mut job: Value = serde_json::from_slice(&bytes).unwrap();
            let containers = job["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
            let mut proxy = pod(script)["containers"][0].clone();
            proxy["name"] = json!("proxy");
            containers.push(proxy);
            parts.headers.remove(http::header::CONTENT_LENGTH);
            let body = Body::from(serde_json::to_vec(&job).unwrap());
            base.send(http::Request::from_parts(parts, body)).await
        }
    });
    kube::Client::new(service, town.cluster.namespace.clone())
}

/// One run of this script, which has written its output before.
pub(crate) fn makes(name: &str, script: &str) -> Value {
    let well = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;
    let mut spec = spec("once", &pod(&format!("{well}; {script}")));
    spec["output"] = json!({
        "outputMap": {"c": {"o.json": {"name": name}}}, "writeOnFailure": true,
    });
    spec
}

/// The same, and then it waits at this gate.
fn makes_before(gate: &Gate, name: &str) -> Value {
    let mut spec = makes(name, WAITS);
    let pod = &mut spec["template"]["spec"]["template"]["spec"];
    *pod = before(gate, pod.take());
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_into_a_pod_and_never_ends_delays_no_end_and_loses_no_output() {
    for wraps in [true, false] {
        let mut town = Town::either_way("injected", wraps).await;
        town.start_with(injecting(&town, "sleep 600")).await;
        town.create("good", makes("good", "true")).await;
        town.create("bad", makes("bad", "exit 3")).await;
        for (name, succeeded, reason, message) in [
            ("good", true, "Completed", Value::Null),
            ("bad", false, "Failed", json!("container c exited with 3")),
        ] {
            let run = town.ended(name, 1).await;
            let found = (&run["succeeded"], &run["reason"], &run["message"], &run["made"]);
            let (succeeded, reason, made) = (json!(succeeded), json!(reason), json!([name]));
            assert_eq!(found, (&succeeded, &reason, &message, &made), "wrapped: {wraps}");
            assert_eq!(town.data(name).await["k"], "v");
        }
        let pods = town.pods().await;
        let has_proxy = |it: &k8s_openapi::api::core::v1::Pod| {
            it.spec.as_ref().unwrap().containers.iter().any(|it| it.name == "proxy")
        };
        assert!(!pods.is_empty() && pods.iter().all(has_proxy), "it was put into each");
        town.nothing_runs().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_into_a_pod_and_ends_by_itself_is_no_matter() {
    for wraps in [true, false] {
        let mut town = Town::either_way("ends", wraps).await;
        town.start_with(injecting(&town, "true")).await;
        town.create("a", makes("a", "sleep 3")).await;
        let run = town.ended("a", 1).await;
        assert_eq!((&run["reason"], &run["made"]), (&json!("Completed"), &json!(["a"])), "{run}");
    }
}

/// Kubernetes calls such a pod failed, and its Job: whoever hears that first is right all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_into_a_pod_and_fails_fails_no_run_that_did_its_work() {
    for wraps in [true, false] {
        let mut town = Town::either_way("fails", wraps).await;
        town.start_with(injecting(&town, "exit 1")).await;
        town.create("a", makes("a", "sleep 2")).await;
        town.create("bad", makes("bad", "sleep 2; exit 3")).await;
        let run = town.ended("a", 1).await;
        assert_eq!((&run["reason"], &run["made"]), (&json!("Completed"), &json!(["a"])), "{run}");
        let run = town.ended("bad", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(false), &json!(["bad"])), "{run}");
        // A sidecar waits to be told. Without one a Job may have ended before anybody looks.
        if !wraps {
            continue;
        }
        let gate = Gate::new();
        let mut late = makes_before(&gate, "late");
        late["output"].as_object_mut().unwrap().remove("writeOnFailure");
        town.create("late", late).await;
        town.one_runs("late").await;
        town.kill();
        gate.open();
        let is_over = |it: &Job| {
            let status = it.status.as_ref();
            let is_its = it.metadata.name.as_ref().is_some_and(|it| it.starts_with("late-"));
            is_its && status.is_some_and(|it| it.conditions.is_some())
        };
        wait::until("its Job does not end", PATIENCE, async || {
            let jobs = town.batch_jobs().await;
            if jobs.iter().any(is_over) { Ok(()) } else { Err(jobs) }
        })
        .await;
        town.start().await;
        let run = town.ended("late", 1).await;
        let found = (&run["reason"], &run["made"], &run["message"]);
        assert_eq!(found, (&json!("Completed"), &json!(["late"]), &Value::Null), "{run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kubernetes_tries_again_though_the_work_is_done_does_not_go_on_after_the_run() {
    let mut town = Town::still("tried-again").await;
    town.start_with(injecting(&town, "exit 1")).await;
    let gate = Gate::new();
    let mut spec = makes_before(&gate, "a");
    spec["template"]["spec"]["backoffLimit"] = json!(2);
    town.create("a", spec).await;
    town.one_runs("a").await;
    town.kill();
    gate.open();
    wait::until("Kubernetes does not try again", PATIENCE, async || {
        let pods = town.pods().await;
        if pods.len() < 2 { Err(pods) } else { Ok(()) }
    })
    .await;
    town.start().await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["reason"], &run["made"]), (&json!("Completed"), &json!(["a"])), "{run}");
    town.no_jobs().await;
    town.nothing_runs().await;
}
