//! What becomes of a trigger while the API server lets no run be recorded, or something is in the place of the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kubernetes::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::budget::counted;
use super::calls::Calls;
use super::harness::{PATIENCE, Town, pod, spec};
use super::output::{WELL, makes};
use super::support::{packed_agent, wait};

/// The queries of the records that were refused; `None`: records are let in.
type Refused = Arc<Mutex<Option<Vec<String>>>>;

/// A client that writes down its calls, but for records of runs that are `refused`, as a webhook would refuse them; where
/// it is not asked by dry runs, these are let in.
fn refusing(town: &Town, calls: &Calls, refused: &Refused, dry_runs: bool) -> Client {
    let (base, refused) =
        (calls.of(&town.cluster.client, &town.cluster.namespace), Arc::clone(refused));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (base, uri) = (base.clone(), request.uri().clone());
        let is_record = request.method() == http::Method::PATCH
            && uri.path().contains("/quarksjobs/")
            && !uri.path().ends_with("/status")
            && (dry_runs || !uri.query().unwrap_or_default().contains("dryRun"));
        let is_refused = refused.lock().unwrap().as_mut().filter(|_| is_record).map(|queries| {
            queries.push(uri.query().unwrap_or_default().to_owned());
        });
        async move {
            if is_refused.is_none() {
                return base.send(request).await;
            }
            let why = r#"admission webhook "w.example" denied the request: not now"#;
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403,
                "reason": "Forbidden", "message": why,
            });
            let answer = http::Response::builder().status(403);
            let answer = answer.header("content-type", "application/json");
            Ok(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(service, town.cluster.namespace.clone())
}

/// A town whose QuarksJob `a` has run well, and was triggered again when no record was let in any more.
async fn triggered(name: &str, dry_runs: bool) -> (Town, Calls, Refused) {
    let mut town = Town::still(name).await;
    let (calls, refused) = (Calls::default(), Refused::default());
    town.start_with(refusing(&town, &calls, &refused, dry_runs)).await;
    town.create("a", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.no_jobs().await;
    *refused.lock().unwrap() = Some(Vec::new());
    town.trigger("a", "now").await;
    (town, calls, refused)
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

fn waits_for(object: &Value, words: &str) -> bool {
    condition(object, "Waiting")["message"].as_str().is_some_and(|said| said.contains(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_run_is_let_in_the_status_is_that_of_the_last_and_says_why() {
    let (town, calls, refused) = triggered("qjob-record-refused", true).await;
    let told = town
        .until("a", "told to wait", |it| {
            waits_for(it, "denied the request: not now") && it["status"]["completed"] == true
        })
        .await;
    assert_eq!(condition(&told, "Succeeded")["status"], "True", "{told}");
    assert_eq!(told["spec"]["trigger"]["strategy"], "now", "it is tried again");
    // It is asked whether the record is let in, and nothing is written before it is.
    sleep(Duration::from_secs(1)).await;
    calls.take();
    *refused.lock().unwrap() = Some(Vec::new());
    let asked = wait::until("it is not asked again", PATIENCE, async || {
        let asked = refused.lock().unwrap().clone().unwrap();
        if asked.len() > 1 { Ok(asked) } else { Err(asked) }
    })
    .await;
    assert!(asked.iter().all(|query| query.contains("dryRun=All")), "{asked:?}");
    assert_eq!(calls.take(), Vec::<String>::new());
    *refused.lock().unwrap() = None;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
    let over = town.until("a", "completed", |it| it["status"]["completed"] == true).await;
    assert_eq!(condition(&over, "Waiting")["status"], "False", "{over}");
}

/// A webhook may be left out of dry runs, and etcd has limits of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dry_run_lets_in_and_is_refused_all_the_same_is_not_tried_without_a_pause() {
    let (town, calls, refused) = triggered("qjob-record-misled", false).await;
    let tries = || refused.lock().unwrap().as_ref().map_or(0, Vec::len);
    wait::until("it is not tried again", PATIENCE, async || match tries() {
        0 | 1 => Err(tries()),
        _ => Ok(()),
    })
    .await;
    town.until("a", "told to wait", |it| {
        waits_for(it, "denied the request: not now") && it["status"]["completed"] == true
    })
    .await;
    calls.take();
    let before = tries();
    sleep(Duration::from_secs(5)).await;
    // Thirty seconds pass before the next try.
    assert!(tries() <= before + 1, "{before}, then {}", tries());
    let made = calls.take();
    assert!(made.len() <= 5, "{made:?}");
    *refused.lock().unwrap() = None;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_place_of_the_agent_is_told_and_costs_no_upload_until_it_goes() {
    let mut town = Town::still("qjob-agent-taken").await;
    let maps = town.cluster.api::<ConfigMap>();
    let name = packed_agent().name().to_owned();
    let planted = json!({"metadata": {"name": name}, "data": {"manciple-agent": "planted"}});
    let planted: ConfigMap = serde_json::from_value(planted).unwrap();
    maps.create(&PostParams::default(), &planted).await.unwrap();
    let calls = counted(&mut town).await;
    town.create("a", makes(WELL, json!({"name": "made"}))).await;
    town.until("a", "told to wait", |it| waits_for(it, "holds something else")).await;
    // As often as it is tried.
    sleep(Duration::from_secs(3)).await;
    let made = calls.take();
    assert!(made.iter().all(|call| call != "POST configmaps" && call != "POST jobs"), "{made:?}");
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    let made = calls.take();
    assert_eq!(made.iter().filter(|call| *call == "POST configmaps").count(), 1, "{made:?}");
}
