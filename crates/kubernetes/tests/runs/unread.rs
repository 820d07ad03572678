//! What a run has left is in a log that nobody can read: its node does not answer, or is gone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::kubelet::{JobAct, NODE, make_node};
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};

use crate::objects::{history, sure, until};
use crate::place::Place;
use crate::seeds;
use crate::town::{Town, controller};
use crate::users::User;

/// More than a pod's status takes.
const LARGE: usize = 100_000;

/// The conditions of one, as text.
async fn conditions(user: &User) -> String {
    user.get().await.data["status"]["conditions"].to_string()
}

/// Gives the node an address at which nobody answers.
async fn cut_off(nodes: &Api<Node>) {
    let address = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    }});
    let (params, patch) = (PatchParams::default(), Patch::Merge(address));
    sure(|| nodes.patch_status(NODE, &params, &patch)).await;
}

async fn events(town: &Town) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    let events = sure(|| events.list(&all)).await;
    let said = |it: Event| (it.reason.unwrap_or_default(), it.message.unwrap_or_default());
    events.into_iter().map(said).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_in_the_log_of_a_node_that_is_silent_is_waited_for_and_of_one_that_is_gone_unreadable()
 {
    seeds::log();
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let script = Arc::new(|_: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(30),
        ends: Duration::ZERO,
        code: 0,
        output: json!({"k": "x".repeat(LARGE)}).to_string(),
    });
    let town = Arc::new(Town::new(&Place::of(&plane), "unread", script).await);
    make_node(&town.client).await.unwrap();
    let nodes = Api::<Node>::all(town.client.clone());
    cut_off(&nodes).await;
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let leader = controller(&town, &calm, "lease");
    let user = User::who_tells(&town);
    user.create("once", false).await;
    let words = "the API server refuses: ";
    let is_said = || async { conditions(&user).await.contains(words).then_some(()) };
    until("said to wait", is_said).await;
    assert!(history(&user.get().await).is_empty(), "it may be read yet");
    let told = |said: Vec<(String, String)>, reason: &str, words: &str| {
        said.iter().any(|(of, message)| of == reason && message.contains(words)).then_some(())
    };
    until("told of", || async { told(events(&town).await, "Waiting", words) }).await;
    sure(|| async { nodes.delete(NODE, &DeleteParams::default()).await.map(drop) }).await;
    let run: Value = until("over", || async { history(&user.get().await).pop() }).await;
    assert_eq!(
        (&run["succeeded"], &run["reason"]),
        (&json!(false), &json!("OutputUnreadable")),
        "{run}"
    );
    assert!(run["message"].as_str().unwrap().contains("the log lacks "), "{run}");
    let object = user.get().await;
    assert_eq!(object.data["status"]["completed"], false, "{object:#?}");
    assert!(!conditions(&user).await.contains(words), "it waits for nothing any more");
    until("told", || async { told(events(&town).await, "OutputUnreadable", "run 1: ") }).await;
    calm.die();
    leader.shutdown_background();
}
