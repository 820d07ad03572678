//! Who may ask, on a real cluster: tokens of service accounts, rights from its roles, users in Secrets.

mod support;

use serde_json::{Value, json};
use support::town::Town;
use support::{Served, http, within};
use testkit::cluster::apply;
use testkit::proxy::{Plan, Proxy};

/// A namespace, and the settings of a server there that lets these ask.
fn office(auth: Value) -> Town {
    let mut office = Town::empty();
    // Who may ask is told before there is a catalog: no broker is needed.
    let cluster = json!({
        "namespace": office.namespace,
        "image": "manciple.test/none:1",
        "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
    });
    office.site.settings = json!({"auth": auth, "kubernetes": cluster}).to_string();
    office
}

/// A cluster role and its binding, of this name: they go when the test is over.
struct ClusterWide<'n>(&'n str);

impl Drop for ClusterWide<'_> {
    fn drop(&mut self) {
        for what in ["clusterrole", "clusterrolebinding"] {
            let delete = ["delete", what, self.0, "--ignore-not-found"];
            let _ = testkit::cluster::kubectl().args(delete).output();
        }
    }
}

fn asked(server: &Served, method: &str, path: &str, authorization: &str) -> http::Answer {
    let header = format!("Authorization: {authorization}\r\n");
    http::send_with(&server.address, method, path, None, &header).expect("an answer")
}

fn status(server: &Served, method: &str, path: &str, authorization: &str) -> u16 {
    asked(server, method, path, authorization).status
}

fn basic(user: &str, password: &str) -> String {
    let pair = format!("{user}:{password}");
    format!("Basic {}", data_encoding::BASE64.encode(pair.as_bytes()))
}

/// The first character of a signature is changed: of the last one, base64 uses two bits of six, and who reads
/// it takes four spellings for the same.
fn with_another_signature(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').expect("a token is signed");
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{first}{}", &signature[1..])
}

const INSTANCE: &str = "/v2/service_instances/i";

#[test]
fn a_service_account_has_the_role_that_it_is_granted() {
    let mut office = office(json!({}));
    let (platform, platform_token) = office.account("platform", "manciple");
    let (_, stranger) = office.account("stranger", "manciple");
    let (_, elsewhere) = office.account("platform", "somebody-else");
    let group = format!("system:serviceaccounts:{}", "nowhere");
    let mut settings: Value = serde_json::from_str(&office.site.settings).unwrap();
    settings["auth"] = json!({"kubernetes": {"audiences": ["manciple"], "grants": [
        {"user": platform, "role": "platform"}, {"group": group, "role": "operator"},
    ]}});
    office.site.settings = settings.to_string();
    let server = office.start();
    let bearer = |token: &str| format!("Bearer {token}");
    assert_eq!(status(&server, "GET", INSTANCE, &bearer(&platform_token)), 404);
    assert_eq!(status(&server, "GET", "/admin/v1/instances", &bearer(&platform_token)), 403);
    let refused = asked(&server, "GET", INSTANCE, &bearer(&stranger));
    assert_eq!(refused.status, 403);
    let words = refused.body["description"].as_str().unwrap();
    assert!(words.contains("stranger") && words.contains("auth.kubernetes.grants"), "{words}");
    assert_eq!(status(&server, "GET", INSTANCE, &bearer(&elsewhere)), 401, "another audience");
    let forged = with_another_signature(&platform_token);
    for wrong in ["x", "", "a.b.c", forged.as_str(), &"x".repeat(20_000)] {
        assert_eq!(status(&server, "GET", INSTANCE, &bearer(wrong)), 401, "{wrong}");
    }
    assert_eq!(status(&server, "GET", INSTANCE, &basic("platform", &platform_token)), 401);
    assert!(!server.log().contains(&platform_token[..40]), "a token is in the log");
}

/// Nobody is refused for it, and nobody let in; who was known a moment ago still is.
#[test]
fn a_token_that_no_api_server_looks_at_is_told_to_come_again() {
    let auth = json!({"kubernetes": {"audiences": ["manciple"]}});
    let mut office = office(auth);
    let (known, known_token) = office.account("known", "manciple");
    let (late, late_token) = office.account("late", "manciple");
    let mut settings: Value = serde_json::from_str(&office.site.settings).unwrap();
    settings["auth"]["kubernetes"]["grants"] =
        json!([{"user": known, "role": "platform"}, {"user": late, "role": "platform"}]);
    office.site.settings = settings.to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let proxy = runtime.block_on(async {
        let kubeconfig = testkit::cluster::kubeconfig().unwrap();
        let cluster = kubernetes::client(Some(&kubeconfig)).await.unwrap();
        Proxy::start(cluster, Plan::calm()).await.unwrap()
    });
    let kubeconfig = office.site.write("kubeconfig", &proxy.kubeconfig());
    let server = Served::start(office.command().env("KUBECONFIG", kubeconfig)).unwrap();
    let (known, late) = (format!("Bearer {known_token}"), format!("Bearer {late_token}"));
    assert_eq!(status(&server, "GET", INSTANCE, &known), 404);

    proxy.hold_up(|call| call.contains("tokenreviews"));
    for authorization in [late.as_str(), "Bearer of-nobody"] {
        let answer = asked(&server, "GET", INSTANCE, authorization);
        assert_eq!(answer.status, 503, "{answer:?}");
        let said = answer.body["description"].as_str().unwrap();
        assert!(said.contains("come again"), "{said}");
    }
    server.says("TokenReview");
    assert_eq!(status(&server, "GET", INSTANCE, &known), 404, "it was asked for a moment ago");

    proxy.hold_up(|_| false);
    assert_eq!(status(&server, "GET", INSTANCE, &late), 404);
    assert_eq!(status(&server, "GET", INSTANCE, "Bearer of-nobody"), 401);
    assert!(!server.log().contains(&late_token[..40]), "a token is in the log");
}

#[test]
fn the_cluster_says_who_may_do_what() {
    let office = office(json!({"kubernetes": {"access_review": true}}));
    let (_, token) = office.account("reader", "");
    let token = format!("Bearer {token}");
    let server = office.start();
    let refused = asked(&server, "GET", INSTANCE, &token);
    assert_eq!(refused.status, 403, "{refused:?}");
    let words = refused.body["description"].as_str().unwrap();
    assert!(words.contains("get /v2/service_instances"), "{words}");
    let _roles = ClusterWide(&office.namespace);
    let grant = |verbs: &[&str]| {
        apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": office.namespace},
            "rules": [
                {"nonResourceURLs": ["/v2/*"], "verbs": verbs},
                {"nonResourceURLs": ["/admin/v1/*"], "verbs": verbs},
            ],
        }));
    };
    grant(&["get"]);
    apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": office.namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": office.namespace,
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": "reader", "namespace": office.namespace},
        ],
    }));
    // A refusal holds for ten seconds.
    let allowed = || (status(&server, "GET", INSTANCE, &token) == 404).then_some(());
    assert!(within(30, allowed).is_some(), "never allowed:\n{}", server.log());
    assert_eq!(status(&server, "GET", "/admin/v1/instances", &token), 200);
    for (method, path) in [("PUT", INSTANCE), ("DELETE", INSTANCE), ("POST", "/admin/v1/retry")] {
        assert_eq!(status(&server, method, path, &token), 403, "{method} {path}");
    }
    // The verbs are those of HTTP, in lower case.
    grant(&["get", "put", "delete", "post"]);
    for (method, path) in [("PUT", INSTANCE), ("DELETE", INSTANCE), ("POST", "/admin/v1/retry")] {
        let allowed = || (status(&server, method, path, &token) != 403).then_some(());
        assert!(within(30, allowed).is_some(), "{method} {path}: never\n{}", server.log());
        assert_ne!(status(&server, method, path, &token), 401, "{method} {path}");
    }
}

#[test]
fn users_in_secrets_are_taken_up_as_they_come_change_and_go() {
    let secrets = json!([
        {"name": "of-platform"}, {"name": "of-operator", "role": "operator"},
    ]);
    let office = office(json!({"secrets": secrets}));
    office.secret("of-operator", &json!({"token": "planted-token"}));
    let server = office.start();
    let operator = "Bearer planted-token";
    assert_eq!(status(&server, "GET", "/admin/v1/instances", operator), 200);
    let becomes = |authorization: &str, expected: u16| {
        let ask = || (status(&server, "GET", INSTANCE, authorization) == expected).then_some(());
        assert!(within(20, ask).is_some(), "never {expected}:\n{}", server.log());
    };
    // The one that was not there at the start comes later.
    let (old, new) = (basic("cf", "planted-old"), basic("cf", "planted-new"));
    assert_eq!(status(&server, "GET", INSTANCE, &old), 401);
    office.secret("of-platform", &json!({"username": "cf", "password": "planted-old"}));
    becomes(&old, 404);
    assert_eq!(status(&server, "GET", "/admin/v1/instances", &old), 403);
    office.secret("of-platform", &json!({"username": "cf", "password": "planted-new\n"}));
    becomes(&new, 404);
    assert_eq!(status(&server, "GET", INSTANCE, &old), 401);
    office.kubectl(&["delete", "secret", "of-platform"]);
    becomes(&new, 401);
    assert_eq!(status(&server, "GET", "/admin/v1/instances", operator), 200, "the other stays");
    // Half of one is said, and harms nobody else.
    office.secret("of-platform", &json!({"password": "planted-half"}));
    server.says("Secret of-platform: username: is missing beside password");
    assert_eq!(status(&server, "GET", "/admin/v1/instances", operator), 200);
    assert!(!server.log().contains("planted"), "{}", server.log());
}
