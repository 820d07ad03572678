//! An account that lacks a right which operators are to give it: what is refused to it is said, and nothing is made.

use kube::client::Client;
use kubernetes::templates::admission::{Admission, Answers, Changes};
use kubernetes::templates::names::GROUP;
use serde_json::{Value, json};

use super::counter::{Counter, id, put};
use super::harness::{Town, condition, password, template};
use super::rights::rule;
use super::support;
use super::withstands::Wide;

/// What the broker, the controller and the webhook have to be let do in their own name, but for one thing each.
fn rights() -> Vec<Value> {
    let instances = ["templateinstances", "templateinstances/status"];
    vec![
        rule(GROUP, &["templates"], &["list", "watch"]),
        rule(GROUP, &instances, &["get", "list", "watch", "patch"]),
        rule(GROUP, &["brokertemplateinstances"], &["get", "list", "create", "patch", "delete"]),
        rule("", &["secrets"], &["get", "create", "update", "patch"]),
        rule("", &["events"], &["create"]),
        rule("", &["namespaces"], &["list", "watch"]),
    ]
}

/// What lets it act for others.
fn acting() -> Vec<Value> {
    vec![
        rule("", &["users", "groups", "serviceaccounts"], &["impersonate"]),
        rule("authentication.k8s.io", &["*"], &["impersonate"]),
    ]
}

/// A client of an account with these rights in the whole cluster, and what it takes to be rid of them.
async fn account(town: &Town, rights: Vec<Value>) -> (Client, Wide) {
    let namespace = &town.cluster.namespace;
    let client = support::account(&town.cluster, "broker").await;
    let role = format!("broker-{namespace}");
    let wide = Wide::of(&[&["clusterrolebinding", &role], &["clusterrole", &role]]);
    give(town, rights);
    testkit::cluster::apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "broker", "namespace": namespace}],
    }));
    (client, wide)
}

/// Has the account have these rights, and no others.
fn give(town: &Town, rights: Vec<Value>) {
    testkit::cluster::apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("broker-{}", town.cluster.namespace)}, "rules": rights,
    }));
}

fn sample() -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    template(json!([map]), json!([{"name": "GIVEN"}]))
}

const PLANTED: &str = "planted-in-the-parameters";

/// Orders as this user; what is answered. Nothing is made of it.
async fn refused(counter: &Counter, user: &str) -> super::counter::Answer {
    let (id, service) = (id(), counter.service("sample").await);
    let order = counter.order(&service, json!({"GIVEN": PLANTED}));
    let answer = counter.send(user, "PUT", &put(&id), Some(&order)).await;
    assert!(!answer.body.to_string().contains(PLANTED), "{answer:?}");
    assert_eq!(counter.claim(&id).await, None, "nothing is begun");
    for (api_version, kind) in [("template.openshift.io/v1", "TemplateInstance"), ("v1", "Secret")]
    {
        assert_eq!(counter.town.object(api_version, kind, &id).await, None, "{kind}");
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_may_not_ask_for_others_says_so_and_begins_nothing() {
    let town = Town::new("account-broker").await;
    let (client, _wide) = account(&town, rights()).await;
    town.make(sample()).await;
    let offered = vec![town.cluster.namespace.clone()];
    let counter = Counter::with(town, &client, offered, 1).await;
    let answer = refused(&counter, "editor").await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.words().contains("the broker's rights do not reach so far"), "{answer:?}");
    counter.remove().await;
}

/// Nobody lets those ask anything whom the cluster does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_requester_who_may_ask_nothing_is_refused_and_nothing_is_begun() {
    let counter = Counter::new("account-unknown", &[sample()]).await;
    let answer = refused(&counter, "system:anonymous").await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.words().contains("let such a requester ask what it may do"), "{answer:?}");
    counter.remove().await;
}

/// The order is good: it is made as soon as the operator has mended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_may_not_act_for_others_says_so_and_makes_it_when_it_may() {
    let mut town = Town::still("account-controller").await;
    let (client, _wide) = account(&town, rights()).await;
    town.start_with(client).await;
    town.order("i", "editor", password()).await;
    let retries = |it: &Value| condition(it, "Ready")["reason"] == "Retrying";
    let waiting = town.until("i", "tried again", retries).await;
    let why = condition(&waiting, "Ready")["message"].clone();
    let words = why.as_str().unwrap();
    assert!(words.contains("cannot impersonate") && words.contains("resource \"users\""), "{why}");
    for kind in ["Secret", "ConfigMap", "Service"] {
        assert_eq!(town.object("v1", kind, "sample").await, None, "{kind}");
    }
    assert!(waiting["metadata"]["finalizers"].is_null(), "nothing is begun");
    give(&town, [rights(), acting()].concat());
    town.ready("i").await;
    town.remove().await;
}

/// A name alone is not all that somebody may be.
#[tokio::test(flavor = "multi_thread")]
async fn groups_accounts_and_what_else_an_identity_has_take_a_right_each() {
    let mut town = Town::still("account-identity").await;
    let robot = format!("system:serviceaccount:{}:default", town.cluster.namespace);
    town.bind(&robot, "edit").await;
    let names = vec![rule("", &["users"], &["impersonate"])];
    let (client, _wide) = account(&town, [rights(), names].concat()).await;
    town.start_with(client).await;
    let map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let identities = [
        ("groups", json!({"username": "editor", "groups": ["team"]})),
        ("serviceaccounts", json!({"username": robot})),
        ("userextras", json!({"username": "editor", "extra": {"scopes.example": ["all"]}})),
    ];
    for (right, requester) in &identities {
        let template = template(json!([map(&format!("of-{right}"))]), json!([]));
        town.order_with(right, template, &[("requester", requester.clone())]).await;
    }
    for (right, _) in &identities {
        let retries = |it: &Value| condition(it, "Ready")["reason"] == "Retrying";
        let waiting = town.until(right, "tried again", retries).await;
        let why = condition(&waiting, "Ready")["message"].clone();
        let words = format!("resource \"{right}");
        let said = why.as_str().unwrap();
        assert!(said.contains("cannot impersonate") && said.contains(&words), "{right}: {why}");
    }
    give(&town, [rights(), acting()].concat());
    for (right, _) in &identities {
        town.ready(right).await;
        assert!(town.object("v1", "ConfigMap", &format!("of-{right}")).await.is_some(), "{right}");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_may_not_ask_lets_nobody_in_who_names_another() {
    let town = Town::still("account-webhook").await;
    let (client, _wide) = account(&town, rights()).await;
    let namespace = &town.cluster.namespace;
    let opened = Admission::open(&client, namespace, "templates", Changes::Refused).await;
    let admission = opened.unwrap();
    let asked = async |requester: Value| {
        let spec = json!({"template": sample(), "requester": requester});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "CREATE", "namespace": namespace,
                "userInfo": {"username": "alice"},
                "kind": {"group": GROUP, "version": "v1", "kind": "TemplateInstance"},
                "object": {"metadata": {"name": "i"}, "spec": spec},
            },
        });
        let answer = admission.answer(review.to_string().as_bytes()).await.unwrap();
        answer["response"].clone()
    };
    let refused = asked(json!({"username": "bob"})).await;
    assert_eq!(refused["allowed"], false, "{refused}");
    assert!(refused["patch"].is_null(), "nothing is sealed: {refused}");
    let why = refused["status"]["message"].as_str().unwrap();
    for words in [
        "it cannot be verified now",
        "SubjectAccessReview",
        "cannot create resource \"subjectaccessreviews\"",
        "let an administrator grant it",
    ] {
        assert!(why.contains(words), "{why}");
    }
    // Who names nobody else needs nobody to be asked.
    assert_eq!(asked(json!(null)).await["allowed"], true);
    assert_eq!(asked(json!({"username": ""})).await["allowed"], false);
    let answers = Answers { admitted: 1, refused: 1, unanswered: 1 };
    assert_eq!(admission.answers(), answers);
    town.remove().await;
}
