use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::calls::Calls;
use super::harness::{Town, condition, password, template};
use super::withstands::{Wide, administrator};

fn deployment(name: &str) -> Value {
    let container = json!({
        "name": "c", "image": testkit::cluster::SHELL_IMAGE, "command": ["sleep", "600"],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": name,
            "annotations": {"template.alpha.openshift.io/wait-for-ready": "true"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_made_labelled_owned_and_removed() {
    let town = Town::new("template-life").await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
        "stringData": {"NAME": "web", "UNKNOWN": "passed over"},
    });
    town.make(secret).await;
    let more = [("requester", json!({"username": "editor"})), ("secret", json!({"name": "given"}))];
    town.order_with("i", password(), &more).await;
    let instance = town.ready("i").await;
    assert_eq!(condition(&instance, "Ready")["reason"], "Created");
    assert_eq!(instance["metadata"]["finalizers"], json!(["template.openshift.io/finalizer"]));
    let uid = &instance["metadata"]["uid"];
    for (index, kind) in ["Secret", "ConfigMap", "Service"].into_iter().enumerate() {
        let object = town.object("v1", kind, "web").await.unwrap();
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["template.openshift.io/template-instance-owner"], *uid);
        assert_eq!(metadata["ownerReferences"][0]["uid"], *uid, "{kind}");
        let expected = json!({"ref": {
            "apiVersion": "v1", "kind": kind, "name": "web",
            "namespace": town.cluster.namespace, "uid": metadata["uid"],
        }, "state": "Created"});
        assert_eq!(instance["status"]["objects"][index], expected, "in the template's order");
    }
    let made = town.secret("web", "password").await.unwrap();
    let map = town.object("v1", "ConfigMap", "web").await.unwrap();
    assert_eq!((made.len(), &map["data"]["twice"]), (24, &json!(made)), "one password");
    let record = format!("template-instance-{}", uid.as_str().unwrap());
    assert!(town.secret(&record, "record").await.unwrap().contains(&made));
    assert!(!instance.to_string().contains(&made), "a password is in Secrets alone");
    town.delete("i").await;
    town.gone("i").await;
    for kind in ["Secret", "ConfigMap", "Service"] {
        assert_eq!(town.object("v1", kind, "web").await, None, "{kind}");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_be_ready_is_waited_for() {
    let town = Town::new("template-ready").await;
    town.order("i", "editor", template(json!([deployment("web")]), json!([]))).await;
    let waits = |object: &Value| condition(object, "Ready")["status"] == "False";
    let instance = town.until("i", "waiting", waits).await;
    let ready = condition(&instance, "Ready");
    assert_eq!(ready["reason"], "Waiting");
    assert_eq!(ready["message"], "Waiting for instantiated objects to report ready");
    assert_eq!(instance["status"]["objects"][0]["state"], "Waiting");
    let instance = town.ready("i").await;
    assert_eq!(instance["status"]["objects"][0]["state"], "Ready");
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("apps/v1", "Deployment", "web").await, None, "it waits for its pods");
    town.remove().await;
}

/// Writes: that it is held, its values, each object, what was made, that it is ready. Reads: the parameters.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_costs_a_write_for_each_object_and_four() {
    let mut town = Town::still("template-budget").await;
    let calls = Calls::default();
    let client = calls.of(&town.cluster.client, &town.cluster.namespace);
    town.start_with(client).await;
    let given = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
        "stringData": {"NAME": "web"},
    });
    town.make(given).await;
    let order = async |name: &str| {
        let mut template = password();
        template["objects"].as_array_mut().unwrap().push(deployment("${NAME}"));
        let mut more = vec![("requester", json!({"username": "editor"}))];
        if name == "first" {
            template["parameters"][0]["value"] = json!("first");
        } else {
            more.push(("secret", json!({"name": "given"})));
        }
        town.order_with(name, template, &more).await;
        town.ready(name).await;
    };
    // The first finds out which kinds there are.
    order("first").await;
    sleep(Duration::from_secs(1)).await;
    calls.take();
    order("second").await;
    // Nine calls, and four reviews.
    let mut taken = calls.settled(13).await;
    // Each is a SelfSubjectAccessReview.
    let reviews = |call: &String| call == "POST /authorization.k8s.io";
    assert_eq!(taken.iter().filter(|call| reviews(call)).count(), 4, "{taken:?}");
    taken.retain(|call| !reviews(call));
    // What others need is there before them; what is of one rank is made at once.
    taken[3..5].sort();
    taken[5..7].sort();
    let expected = [
        "GET secrets",
        "PATCH templateinstances",
        "POST secrets",
        "POST configmaps",
        "POST secrets",
        "POST deployments",
        "POST services",
        "PATCH templateinstances/status",
        "PATCH templateinstances/status",
    ];
    assert_eq!(taken, expected);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(calls.take(), Vec::<String>::new(), "what is ready costs nothing");
    town.remove().await;
}

/// It is like others: held, recorded, and its parameters are asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_without_objects_is_ready() {
    let town = Town::new("template-empty").await;
    let empty = || template(json!([]), json!([]));
    town.order("i", "editor", empty()).await;
    let instance = town.ready("i").await;
    assert_eq!(instance["metadata"]["finalizers"], json!(["template.openshift.io/finalizer"]));
    let record = format!("template-instance-{}", instance["metadata"]["uid"].as_str().unwrap());
    assert!(town.secret(&record, "record").await.is_some(), "{record} is not there");
    let absent =
        [("requester", json!({"username": "editor"})), ("secret", json!({"name": "absent"}))];
    town.order_with("without", empty(), &absent).await;
    let is_said = |it: &Value| it["status"]["conditions"].is_array();
    let said = town.until("without", "said to stand in any way", is_said).await;
    let ready = condition(&said, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Retrying")));
    let why = "unable to retrieve TemplateInstance Secret: secrets \"absent\" not found";
    assert_eq!(ready["message"], why);
    for name in ["i", "without"] {
        town.delete(name).await;
        town.gone(name).await;
    }
    town.remove().await;
}

/// What nothing owns, too; whether somebody is there to see that it was said, or comes later.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_orphaned_stays() {
    let mut town = Town::new("template-orphans").await;
    let (user, _wide) = administrator(&town).await;
    for name in ["seen", "unseen"] {
        let role = format!("{}-{name}", town.cluster.namespace);
        let _more = Wide::of(&[&["clusterrole", &role]]);
        let mut template = password();
        template["parameters"][0]["value"] = json!(name);
        template["objects"].as_array_mut().unwrap().push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": [],
        }));
        town.order(name, &user, template).await;
        let instance = town.ready(name).await;
        if name == "unseen" {
            town.kill();
        }
        let orphan = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        town.instances().delete(name, &orphan).await.unwrap();
        if name == "unseen" {
            let orphaned =
                |object: &Value| !object["metadata"]["finalizers"].to_string().contains("orphan");
            town.until(name, "orphaned", orphaned).await;
            town.start().await;
        }
        town.gone(name).await;
        // What is deleted may take a moment to go.
        sleep(Duration::from_secs(1)).await;
        for kind in ["Secret", "ConfigMap", "Service"] {
            let object = town.object("v1", kind, name).await.expect(kind);
            assert!(object["metadata"]["deletionTimestamp"].is_null(), "{kind} of {name}");
        }
        let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
        assert!(roles.get_opt(&role).await.unwrap().is_some(), "{name}");
        let record = format!("template-instance-{}", instance["metadata"]["uid"].as_str().unwrap());
        town.until_gone("v1", "Secret", &record).await;
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_made_is_removed() {
    let town = Town::new("template-others").await;
    town.order("i", "editor", password()).await;
    let instance = town.ready("i").await;
    // Somebody makes it anew, under the same name.
    let maps = town.objects("v1", "ConfigMap");
    maps.delete("sample", &Default::default()).await.unwrap();
    let uid = &instance["metadata"]["uid"];
    let labels = json!({"template.openshift.io/template-instance-owner": uid});
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample", "labels": labels},
        "data": {"of": "somebody else"},
    });
    town.make(map).await;
    town.delete("i").await;
    town.gone("i").await;
    let map = town.object("v1", "ConfigMap", "sample").await.expect("it is another");
    assert_eq!(map["data"]["of"], "somebody else");
    assert_eq!(town.object("v1", "Secret", "sample").await, None);
    town.remove().await;
}
