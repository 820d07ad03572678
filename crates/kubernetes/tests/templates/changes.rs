//! What was ordered is changed, as the original never let it be.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::harness::{PATIENCE, Town, condition, password, template};
use super::support::wait;

pub(super) fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// The template with a password, its port and a further object as said.
fn with_port(port: &str) -> Value {
    let mut template = password();
    template["parameters"][1]["value"] = json!(port);
    template
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_template_changes_its_objects_and_no_password() {
    let town = Town::new("template-change").await;
    town.order("i", "editor", password()).await;
    let first = town.ready("i").await;
    let secret = town.secret("sample", "password").await.unwrap();
    let mut changed = with_port("9090");
    changed["objects"][1]["data"] = json!({"twice": "${PASSWORD}", "more": "${NAME}"});
    town.change("i", "editor", changed).await;
    let second = town.ready_again("i").await;
    assert_eq!(second["status"]["revision"], 2);
    assert_eq!(town.secret("sample", "password").await.unwrap(), secret, "no second password");
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 9090);
    assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), 1);
    let map = town.object("v1", "ConfigMap", "sample").await.unwrap();
    let expected = json!({"twice": secret, "more": "sample"});
    assert_eq!(map["data"], expected, "what the template says no more is gone");
    assert_eq!(
        first["status"]["objects"], second["status"]["objects"],
        "they are the same objects"
    );
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "Secret", "sample").await, None);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_the_template_goes_and_what_others_wrote_stays() {
    let town = Town::new("template-prune").await;
    let mut stays = map("stays", json!({"a": "1"}));
    stays["metadata"]["annotations"] = json!({"template.manciple.dev/prune": "false"});
    let objects =
        json!([map("kept", json!({"a": "1", "b": "1"})), map("leaves", json!({})), stays]);
    town.order("i", "editor", template(objects, json!([]))).await;
    town.ready("i").await;
    // Somebody adds, somebody else makes what is to come.
    let merge = Patch::Merge(json!({"data": {"theirs": "1"}}));
    let maps = town.objects("v1", "ConfigMap");
    maps.patch("kept", &PatchParams::default(), &merge).await.unwrap();
    let objects = json!([map("kept", json!({"a": "2"})), map("comes", json!({}))]);
    town.change("i", "editor", template(objects, json!([]))).await;
    let instance = town.ready_again("i").await;
    let kept = town.object("v1", "ConfigMap", "kept").await.unwrap();
    assert_eq!(kept["data"], json!({"a": "2", "theirs": "1"}));
    assert_eq!(town.object("v1", "ConfigMap", "leaves").await, None);
    assert!(town.object("v1", "ConfigMap", "comes").await.is_some());
    assert!(town.object("v1", "ConfigMap", "stays").await.is_some(), "it says that it stays");
    assert_eq!(instance["status"]["objects"].as_array().unwrap().len(), 2);
    town.delete("i").await;
    town.gone("i").await;
    for name in ["kept", "comes", "stays"] {
        assert_eq!(town.object("v1", "ConfigMap", name).await, None, "{name}");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_changed_by_another_secret() {
    let town = Town::new("template-parameters").await;
    for (name, port) in [("p1", "1001"), ("p2", "1002")] {
        town.make(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"PORT": port},
        }))
        .await;
    }
    let more = |secret: &str| {
        [("requester", json!({"username": "editor"})), ("secret", json!({"name": secret}))]
    };
    town.order_with("i", password(), &more("p1")).await;
    town.ready("i").await;
    let made = town.secret("sample", "password").await.unwrap();
    town.change_with("i", password(), &more("p2")).await;
    town.ready_again("i").await;
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 1002);
    assert_eq!(town.secret("sample", "password").await.unwrap(), made);
    town.change_with("i", password(), &more("p3")).await;
    let object =
        town.until("i", "waiting", |it| condition(it, "Ready")["reason"] == "Retrying").await;
    let message = condition(&object, "Ready")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("secrets \"p3\" not found"), "{message}");
    town.change_with("i", password(), &more("p1")).await;
    town.ready_again("i").await;
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 1001, "back to what it was");
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_changes_nothing_and_is_told_what_is_missing() {
    let town = Town::new("template-change-rights").await;
    town.order("i", "editor", password()).await;
    let before = town.ready("i").await;
    town.change("i", "viewer", with_port("9090")).await;
    let why = town.failed_again("i").await;
    for verb in ["create", "patch"] {
        assert!(why.contains(&format!("\"viewer\" may not {verb} services")), "{why}");
    }
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8080);
    assert_eq!(town.get("i").await["status"]["objects"], before["status"]["objects"]);
    let told = async || {
        let events = town.objects("v1", "Event").list(&Default::default()).await.unwrap();
        let mut told = events.iter().map(|it| it.data.clone());
        let of_it = |it: &Value| it["reason"] == "Failed" && it["involvedObject"]["name"] == "i";
        told.find(of_it).ok_or("no event of it")
    };
    let event = wait::until("nobody is told", PATIENCE, told).await;
    assert_eq!(event["message"], *why, "`kubectl describe` says it");
    // What failed is ordered otherwise, and goes.
    town.change("i", "editor", with_port("9091")).await;
    let after = town.ready_again("i").await;
    assert_eq!(condition(&after, "InstantiateFailure")["status"], "False");
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 9091);
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "Service", "sample").await, None);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_nobody_has_verified_is_refused_and_touches_nothing() {
    let town = Town::new("template-change-forged").await;
    town.order("i", "editor", password()).await;
    town.ready("i").await;
    let admin = json!({"username": "admin", "groups": ["system:masters"]});
    town.patch("i", "", json!({"spec": {"requester": admin}})).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("what was verified is not what is there"), "{why}");
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 8080);
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(
        town.object("v1", "Service", "sample").await,
        None,
        "it is removed by what is recorded"
    );
    town.remove().await;
}

/// Who may write instances could bring back what somebody ordered once, with the seal that it had then.
#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_was_left_is_not_brought_back_with_its_seal() {
    let town = Town::new("template-replay").await;
    town.order("i", "editor", with_port("1001")).await;
    let first = town.ready("i").await;
    town.change("i", "editor", with_port("1002")).await;
    town.ready_again("i").await;
    let annotations = first["metadata"]["annotations"].clone();
    let back = json!({"metadata": {"annotations": annotations}, "spec": first["spec"]});
    town.patch("i", "", back).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("what was verified is not what is there"), "{why}");
    let service = town.object("v1", "Service", "sample").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 1002);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_somebody_else_keeps_a_change_from_its_place() {
    let town = Town::new("template-change-foreign").await;
    town.order("i", "editor", template(json!([map("a", json!({}))]), json!([]))).await;
    town.ready("i").await;
    town.make(map("b", json!({"whose": "theirs"}))).await;
    let objects = json!([map("a", json!({"x": "1"})), map("b", json!({"whose": "ours"}))]);
    town.change("i", "editor", template(objects, json!([]))).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("configmaps \"b\" already exists"), "{why}");
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "ConfigMap", "a").await, None);
    let theirs = town.object("v1", "ConfigMap", "b").await.unwrap();
    assert_eq!(theirs["data"], json!({"whose": "theirs"}));
    town.remove().await;
}

fn job(image: &str, annotations: Value) -> Value {
    let container = json!({"name": "c", "image": image, "command": ["true"]});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "annotations": annotations},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_changed_fails_or_is_made_anew_if_it_says_so() {
    let town = Town::new("template-replace").await;
    let of = |image: &str, annotations| template(json!([job(image, annotations)]), json!([]));
    town.order("i", "editor", of("one", json!({}))).await;
    let first = town.ready("i").await;
    town.change("i", "editor", of("two", json!({}))).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("unable to change jobs.batch, Name=once"), "{why}");
    assert!(why.contains("field is immutable"), "{why}");
    assert!(why.contains("template.manciple.dev/on-change: replace"), "{why}: what to do");
    town.change("i", "editor", of("two", json!({"template.manciple.dev/on-change": "replace"})))
        .await;
    let second = town.ready_again("i").await;
    let uid = |instance: &Value| instance["status"]["objects"][0]["ref"]["uid"].clone();
    assert_ne!(uid(&first), uid(&second), "it is another");
    let there = town.object("batch/v1", "Job", "once").await.unwrap();
    assert_eq!(there["metadata"]["uid"], uid(&second));
    assert_eq!(there["spec"]["template"]["spec"]["containers"][0]["image"], "two");
    town.remove().await;
}

/// What is refused may be a slip: made anew it would be refused again, and nothing would be left of what works. Ports of
/// nodes are no reason: they are free when the Service has gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_would_not_be_taken_anew_is_not_removed() {
    let town = Town::new("template-slip").await;
    let replace = json!({"template.manciple.dev/on-change": "replace"});
    let of = |image: &str, policy: &str, port: Value| {
        let mut job = job(image, replace.clone());
        job["spec"]["template"]["spec"]["restartPolicy"] = json!(policy);
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "once", "annotations": replace},
            "spec": {"type": "NodePort", "ports": [{"port": port, "nodePort": "${{NODE_PORT}}"}]},
        });
        template(json!([job, service]), json!([{"name": "NODE_PORT", "value": "0"}]))
    };
    town.order("i", "editor", of("one", "Never", json!(80))).await;
    let first = town.ready("i").await;
    let service = town.object("v1", "Service", "once").await.unwrap();
    let held = &service["spec"]["ports"][0]["nodePort"];
    let mut slip = of("two", "Nevr", json!(0));
    slip["parameters"][0]["value"] = json!(held.to_string());
    town.change("i", "editor", slip.clone()).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("it would not be taken anew"), "{why}");
    assert!(why.contains("Nevr"), "{why}: what is wrong");
    for (index, (version, kind)) in [("batch/v1", "Job"), ("v1", "Service")].into_iter().enumerate()
    {
        let there = town.object(version, kind, "once").await.expect(kind);
        let made = &first["status"]["objects"][index]["ref"]["uid"];
        assert_eq!(there["metadata"]["uid"], *made, "{kind}");
        assert!(there["metadata"]["deletionTimestamp"].is_null(), "{kind}");
    }
    let mut good = of("two", "Never", json!(80));
    good["objects"][1]["spec"]["clusterIP"] = json!("None");
    good["objects"][1]["spec"]["type"] = json!("ClusterIP");
    good["objects"][1]["spec"]["ports"][0].as_object_mut().unwrap().remove("nodePort");
    town.change("i", "editor", good).await;
    let second = town.ready_again("i").await;
    for index in [0, 1] {
        let uid = |it: &Value| it["status"]["objects"][index]["ref"]["uid"].clone();
        assert_ne!(uid(&first), uid(&second), "{index}: it is another");
    }
    town.remove().await;
}

/// A kind's usual objects survive being made by POST and applied later: what the API server filled in stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_one_thing_changes_nothing_else() {
    let town = Town::new("template-apply").await;
    let objects = |image: &str| {
        json!([
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {
                    "selector": {"matchLabels": {"app": "d"}},
                    "replicas": 0,
                    "template": {
                        "metadata": {"labels": {"app": "d"}, "creationTimestamp": null},
                        "spec": {"containers": [{
                            "name": "c", "image": image, "ports": [{"containerPort": 80}],
                            "env": [{"name": "A", "value": "1"}], "resources": {},
                        }]},
                    },
                },
                "status": {},
            },
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], "selector": {"app": "d"}},
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            },
            job("one", json!({})),
        ])
    };
    town.bind("boss", "admin").await;
    town.order("i", "boss", template(objects("one"), json!([]))).await;
    town.ready("i").await;
    let specs = async |town: &Town| {
        let mut specs = Vec::new();
        for (version, kind, name) in [
            ("apps/v1", "Deployment", "d"),
            ("v1", "Service", "s"),
            ("v1", "PersistentVolumeClaim", "c"),
            ("batch/v1", "Job", "once"),
        ] {
            let object = town.object(version, kind, name).await.unwrap();
            specs.push((kind, object["metadata"]["uid"].clone(), object["spec"].clone()));
        }
        specs
    };
    let mut before = specs(&town).await;
    town.change("i", "boss", template(objects("two"), json!([]))).await;
    town.ready_again("i").await;
    before[0].2["template"]["spec"]["containers"][0]["image"] = json!("two");
    assert_eq!(specs(&town).await, before);
    town.remove().await;
}

/// One whose object is ready when its data says so.
fn awaited(says: &str, timeout: &str) -> Value {
    let mut map = map("a", json!({"says": says}));
    map["metadata"]["annotations"] =
        json!({"template.manciple.dev/ready-when": "self.data.says == 'ready'"});
    let mut template = template(json!([map]), json!([]));
    template["metadata"]["annotations"] = json!({"template.manciple.dev/ready-timeout": timeout});
    template
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_it_may_take_is_counted_anew_for_a_change() {
    let town = Town::new("template-timeout").await;
    town.order("i", "editor", awaited("nothing", "4s")).await;
    let begun = Instant::now();
    let why = town.failed("i").await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(why.starts_with("timeout while waiting for template instance to be ready"), "{why}");
    assert!(why.contains("ConfigMap a"), "it says what it waited for: {why}");
    // The four seconds since its creation are long over.
    town.change("i", "editor", awaited("still nothing", "4s")).await;
    let changing =
        town.until("i", "waiting", |it| condition(it, "Ready")["reason"] == "Waiting").await;
    assert_eq!(condition(&changing, "InstantiateFailure")["status"], "False");
    let why = town.failed_again("i").await;
    assert!(why.starts_with("timeout while waiting"), "{why}");
    town.change("i", "editor", awaited("ready", "4s")).await;
    town.ready_again("i").await;
    town.remove().await;
}

/// What is remembered of revisions before, as the record of the instance has it.
async fn remembered(town: &Town, name: &str) -> Vec<String> {
    let uid = town.get(name).await["metadata"]["uid"].as_str().unwrap().to_owned();
    let record = town.secret(&format!("template-instance-{uid}"), "record").await.unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let before = record["before"].as_array().cloned().unwrap_or_default();
    before.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_is_remembered_for_a_minute_and_what_stays_for_ever() {
    let town = Town::new("template-remembers").await;
    let mut stays = map("stays", json!({}));
    stays["metadata"]["annotations"] = json!({"template.manciple.dev/prune": "false"});
    let revision = |number: u32, more: &[&Value]| {
        let own = map("own", json!({"of": number.to_string()}));
        let objects: Vec<Value> = more.iter().map(|it| (*it).clone()).chain([own]).collect();
        template(json!(objects), json!([]))
    };
    town.order("i", "editor", revision(1, &[&stays, &map("leaves", json!({}))])).await;
    town.ready("i").await;
    for number in 2..=3 {
        town.change("i", "editor", revision(number, &[])).await;
        town.ready_again("i").await;
        assert_eq!(remembered(&town, "i").await, ["stays", "leaves"], "revision {number}");
    }
    // So long may a call take effect that was not answered.
    sleep(Duration::from_secs(62)).await;
    town.change("i", "editor", revision(4, &[])).await;
    town.ready_again("i").await;
    assert_eq!(remembered(&town, "i").await, ["stays"]);
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "ConfigMap", "stays").await, None);
    town.remove().await;
}
