//! What is decided without a cluster.

use k8s_openapi::api::core::v1::Secret;
use kube::discovery::ApiResource;
use ring::hmac;
use serde_json::{Value, json};

use super::kinds::Place;
use super::plan::{Planned, plan};
use super::record::{self, Kept, Record};
use super::resource::{Instance, Key};
use super::seen::SeenInstance;
use super::status::{Made, Stand, State, TIMEOUT, WAITING, conditions, said_of_drift};
use super::table::Table;
use super::trouble::Trouble;
use crate::calls::CallError;

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
}

fn of() -> Key {
    Key { namespace: "shop".into(), name: "i".into(), uid: "u-1".into() }
}

fn place(group: &str, kind: &str, is_namespaced: bool) -> Place {
    let dot = if group.is_empty() { "" } else { "/" };
    Place {
        resource: ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}{dot}v1"),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        },
        is_namespaced,
        is_kept: true,
    }
}

fn planned(kind: &str, metadata: Value) -> Result<Planned, String> {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    plan(&of(), 3, object, place("", kind, kind != "Namespace"), &key())
}

fn seen(version: &str, with: &Value) -> SeenInstance {
    let mut object = json!({
        "metadata": {
            "namespace": "shop", "name": "i", "uid": "u-1", "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"template": {"objects": []}},
    });
    for (name, value) in with.as_object().into_iter().flatten() {
        match (&mut object[name], value) {
            (Value::Object(there), Value::Object(more)) => there.extend(more.clone()),
            (there, value) => *there = value.clone(),
        }
    }
    serde_json::from_str(&object.to_string()).unwrap()
}

#[test]
fn names_that_are_generated_are_the_same_whoever_comes_after() {
    let first = planned("ConfigMap", json!({"generateName": "web-"})).unwrap();
    let again = planned("ConfigMap", json!({"generateName": "web-"})).unwrap();
    assert_eq!(first.name, again.name);
    assert!(first.name.starts_with("web-") && first.name.len() == 12, "{}", first.name);
    assert_eq!(first.object["metadata"].get("generateName"), None);
}

#[test]
fn what_cannot_be_planned_says_why() {
    for (name, kind, metadata, expected) in [
        ("no name", "ConfigMap", json!({}), "metadata.name: Required value"),
        ("a path", "ConfigMap", json!({"name": "../x"}), "metadata.name: Invalid value: \"../x\""),
        ("a space", "ConfigMap", json!({"name": "My App"}), "metadata.name: Invalid value"),
        (
            "a namespace that is a path",
            "ConfigMap",
            json!({"name": "a", "namespace": "x/y"}),
            "metadata.namespace: Invalid value",
        ),
        (
            "labels that are none",
            "ConfigMap",
            json!({"name": "a", "labels": []}),
            "metadata.labels: has to be a map",
        ),
    ] {
        let why = planned(kind, metadata).unwrap_err();
        assert!(why.starts_with(expected), "{name}: {why}");
    }
}

#[test]
fn what_is_taken_for_ours_cannot_be_copied() {
    let near = planned("ConfigMap", json!({"name": "a"})).unwrap();
    let far = planned("ConfigMap", json!({"name": "a", "namespace": "other"})).unwrap();
    let wide = planned("Namespace", json!({"name": "a"})).unwrap();
    assert_eq!(near.namespace.as_deref(), Some("shop"));
    assert_eq!(wide.namespace, None);
    for planned in [&near, &far, &wide] {
        assert!(planned.is(&of(), &planned.object, &key()), "{}", planned.words());
        let mut bare = planned.object.clone();
        bare["metadata"]["ownerReferences"] = json!([]);
        bare["metadata"]["annotations"] = json!({});
        assert!(!planned.is(&of(), &bare, &key()), "a label alone anybody can write");
        let other = Key { uid: "u-2".into(), ..of() };
        assert!(!planned.is(&other, &planned.object, &key()), "it is another instance's");
    }
    let mut copied = wide.object.clone();
    copied["metadata"]["annotations"] = far.object["metadata"]["annotations"].clone();
    assert!(!wide.is(&of(), &copied, &key()), "a mark is of one object");
    assert_eq!(near.object["metadata"].get("annotations"), None, "what is owned needs no mark");
}

#[test]
fn what_was_made_under_a_former_group_is_ours() {
    let of_group = |group: &str| {
        let object = json!({"kind": "Ingress", "metadata": {"name": "a", "namespace": "other"}});
        let resource = kube::discovery::ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: "Ingress".to_owned(),
            plural: "ingresses".to_owned(),
        };
        plan(&of(), 0, object, Place { resource, is_namespaced: true, is_kept: true }, &key())
            .unwrap()
    };
    let [old, new, another] = ["extensions", "networking.k8s.io", "example.com"].map(of_group);
    assert!(new.is(&of(), &old.object, &key()));
    assert!(!another.is(&of(), &old.object, &key()), "this group has objects of its own");
    assert!(!new.is(&of(), &another.object, &key()));
}

#[test]
fn what_others_need_comes_first() {
    let rank = |group: &str, kind: &str| {
        let object = json!({"metadata": {"name": "a"}});
        plan(&of(), 0, object, place(group, kind, true), &key()).unwrap().rank
    };
    let rbac = "rbac.authorization.k8s.io";
    let ranks = [
        rank("", "Namespace"),
        rank("", "Secret"),
        rank(rbac, "RoleBinding"),
        rank("apps", "Deployment"),
    ];
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert_eq!(rank(rbac, "Role"), rank("", "ServiceAccount"));
    assert_eq!(rank("example.org", "Thing"), rank("", "Pod"));
}

#[test]
fn a_record_is_of_one_instance_and_of_nobody_else() {
    let instance = Instance::of(&seen("1", &json!({}))).unwrap();
    let record = Record::of(&instance, &[], "hello".to_owned(), String::new());
    let secret = kept_as(&Kept::new(record.clone(), instance.spec()));
    assert_eq!(record::read(&of(), &secret, &key()).unwrap().record, record);
    assert!(record.is_of(&instance));
    let other = Key { uid: "u-2".into(), ..of() };
    let stranger = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
    for (name, of, key) in [("another's", &other, &key()), ("another key", &of(), &stranger)] {
        let why = record::read(of, &secret, key).err().unwrap();
        assert!(why.contains("somebody else has written it"), "{name}: {why}");
    }
    let changed = json!({"spec": {"requester": {"username": "root"}}});
    let changed = Instance::of(&seen("2", &changed)).unwrap();
    assert!(!record.is_of(&changed), "what it was begun with is not what it says now");
}

fn kept_as(kept: &Kept) -> Secret {
    serde_json::from_value(record::secret(&of(), kept, &key())).unwrap()
}

fn ordered(message: &str) -> Instance {
    Instance::of(&seen("1", &json!({"spec": {"template": {"message": message}}}))).unwrap()
}

#[test]
fn revisions_are_kept_as_long_as_there_is_room_and_ten_of_them() {
    let record = |instance: &Instance| Record::of(instance, &[], String::new(), String::new());
    let first = ordered("1");
    let mut secret = kept_as(&Kept::new(record(&first), first.spec()));
    for number in 2..=14 {
        let instance = ordered(&number.to_string());
        let before = record::read(&of(), &secret, &key()).unwrap();
        secret = kept_as(&before.next(record(&instance), instance.spec(), &of(), &key()));
    }
    let numbers = |secret: &Secret| {
        let said = record::revisions(secret).into_iter().map(|it| it.record.revision);
        said.collect::<Vec<u64>>()
    };
    assert_eq!(numbers(&secret), (4..=14).rev().collect::<Vec<u64>>());
    let revisions = record::revisions(&secret);
    assert_eq!(revisions[0].spec.as_ref(), Some(ordered("14").spec()), "what is in force");
    assert_eq!(revisions[2].spec.as_ref(), Some(ordered("12").spec()));
    // What cannot be made small pushes out what is old, and at last itself.
    let noise = |size: usize| {
        let random = testkit::random::Random::new(size as u64);
        let mut random = random;
        (0..size).map(|_| char::from(33 + random.below(90) as u8)).collect::<String>()
    };
    for (size, kept, whole) in [(500_000, 11, true), (700_000, 1, true), (1_400_000, 2, false)] {
        let instance = ordered(&noise(size));
        let before = record::read(&of(), &secret, &key()).unwrap();
        secret = kept_as(&before.next(record(&instance), instance.spec(), &of(), &key()));
        let data: usize = secret.data.iter().flatten().map(|(_, value)| value.0.len()).sum();
        assert!(data < 1 << 20, "{size}: {data} bytes");
        let revisions = record::revisions(&secret);
        assert_eq!((revisions.len(), revisions[0].spec.is_some()), (kept, whole), "{size}");
    }
}

#[test]
fn values_of_the_revision_before_are_known() {
    let (first, second) = (ordered("1"), ordered("2"));
    let mut record = Record::of(&first, &[], String::new(), String::new());
    record.parameters.insert("PASSWORD".into(), "before".into());
    let kept = Kept::new(record, first.spec());
    assert!(kept.values_before().is_empty());
    let record = Record::of(&second, &[], String::new(), String::new());
    let next = kept.next(record, second.spec(), &of(), &key());
    assert_eq!(next.values_before()["PASSWORD"], "before");
    let read = record::read(&of(), &kept_as(&next), &key()).unwrap();
    assert_eq!(read.values_before()["PASSWORD"], "before", "whoever comes after knows them");
}

#[test]
fn drift_is_said_when_it_is_news() {
    let with = |condition: Value| {
        Instance::of(&seen("1", &json!({"status": {"conditions": [condition]}}))).unwrap()
    };
    let none = with(json!({"type": "Ready", "status": "True"}));
    let said = |of: &Instance, drifted, repaired, message: &str| {
        let conditions = said_of_drift(of, drifted, repaired, message, "2026-01-01T00:00:00Z")?;
        let conditions = conditions.as_array().cloned().unwrap();
        conditions.into_iter().find(|it| it["type"] == "Drifted")
    };
    assert_eq!(said(&none, false, false, ""), None, "it never drifted");
    let drifted = said(&none, true, false, "a").unwrap();
    assert_eq!((&drifted["status"], &drifted["message"]), (&json!("True"), &json!("a")));
    let again = with(drifted.clone());
    assert_eq!(said(&again, true, false, "a"), None, "it is said already");
    assert_eq!(said(&again, true, false, "b").unwrap()["message"], "b");
    assert_eq!(said(&again, false, false, "").unwrap()["reason"], "AsMade");
    let repaired = said(&again, false, true, "a").unwrap();
    assert_eq!((&repaired["status"], &repaired["reason"]), (&json!("False"), &json!("Repaired")));
    assert_eq!(
        said(&with(repaired), false, false, ""),
        None,
        "that it was repaired stays to be seen"
    );
}

#[test]
fn a_change_is_what_nobody_has_taken_up() {
    for (name, generation, status, expected) in [
        ("it is new", 1, json!({}), false),
        ("it was changed before it was begun", 2, json!({}), true),
        ("it is ready", 1, json!({"observedGeneration": 1}), false),
        ("it was ready", 2, json!({"observedGeneration": 1}), true),
        (
            "it was taken up",
            2,
            json!({"observedGeneration": 1, "change": {"generation": 2}}),
            false,
        ),
        ("it is changed again", 3, json!({"change": {"generation": 2}}), true),
        ("nobody counts", 0, json!({}), false),
    ] {
        let with = json!({"metadata": {"generation": generation}, "status": status});
        let instance = Instance::of(&seen("1", &with)).unwrap();
        assert_eq!(instance.is_changed(), expected, "{name}");
    }
}

#[test]
fn what_passes_is_told_from_what_does_not() {
    let forbidden = |said: &str| CallError::Forbidden(said.to_owned());
    let refused = |said: &str| CallError::Refused(said.to_owned());
    let invalid = CallError::Invalid("spec: Invalid value".to_owned());
    let passing = |trouble: &Trouble| matches!(trouble, Trouble::Passing(_));
    let doubtful = |trouble: &Trouble| matches!(trouble, Trouble::Doubtful(_));
    let last = |trouble: &Trouble| matches!(trouble, Trouble::Final(_));
    let impersonate = r#"users "a" is forbidden: User "m" cannot impersonate resource "users""#;
    type Is<'a> = &'a dyn Fn(&Trouble) -> bool;
    let cases: [(&str, CallError, Is<'_>); 10] = [
        ("we may not impersonate", forbidden(impersonate), &passing),
        ("a quota", forbidden("pods \"a\" is forbidden: exceeded quota: q"), &passing),
        (
            "a namespace that goes",
            forbidden("namespace x because it is being terminated"),
            &passing,
        ),
        (
            "a right that is missing",
            forbidden("pods is forbidden: User \"a\" cannot create"),
            &doubtful,
        ),
        ("a namespace that is not there", CallError::NotFound, &doubtful),
        ("what is invalid", invalid, &last),
        ("too large for etcd", refused("etcdserver: request is too large"), &last),
        (
            "too large for the API server",
            refused("Request entity too large: limit is 3145728"),
            &last,
        ),
        ("a fault of the API server", refused("Internal error occurred"), &passing),
        ("no answer", CallError::NoAnswer("connection reset".to_owned()), &passing),
    ];
    for (name, error, is) in cases {
        assert!(is(&Trouble::from(error)), "{name}");
    }
}

#[test]
fn a_template_that_says_of_which_revision_it_is_is_that() {
    let spec = |port: u64| json!({"template": {"objects": [{"port": port}]}});
    let record = |spec: &Value, revision: u64| {
        let with = json!({"spec": spec});
        let instance = Instance::of(&seen("1", &with)).unwrap();
        let mut record = Record::of(&instance, &[], String::new(), String::new());
        record.revision = revision;
        record
    };
    let first = Kept::new(record(&spec(1), 1), &spec(1));
    let second = first.next(record(&spec(2), 2), &spec(2), &of(), &key());
    let third = second.next(record(&spec(3), 3), &spec(3), &of(), &key());
    let kept = |kept: &Kept| serde_json::from_value::<Secret>(record::secret(&of(), kept, &key()));
    let mut secret = kept(&third).unwrap();
    let read = |secret: &Secret| record::read(&of(), secret, &key()).unwrap();
    let template = |port: u64| spec(port)["template"].clone();
    let said = |port: u64, revision: u64| record::of_revision(template(port), revision);
    for (name, template, is_it) in [
        ("it says nothing", template(9), true),
        ("the first again", said(1, 1), true),
        ("what there is already", said(3, 2), true),
        ("another than it says", said(1, 2), false),
        ("of somebody else", said(9, 1), false),
        ("of one that is not kept", said(1, 7), false),
        ("nonsense", json!("a text"), true),
        ("metadata that are nonsense", json!({"metadata": "a text"}), true),
    ] {
        assert_eq!(record::is_what_it_says(&template, &read(&secret)).is_ok(), is_it, "{name}");
    }
    // Whoever may write the Secret gives the first revision another template, and its digest with it.
    let forged = Kept::new(record(&spec(9), 1), &spec(9));
    let forged = kept(&forged).unwrap().data.unwrap();
    let data = secret.data.as_mut().unwrap();
    for name in ["record", "spec"] {
        data.insert(format!("{name}.1"), forged[name].clone());
    }
    assert!(record::is_what_it_says(&said(9, 1), &read(&secret)).is_err());
    assert!(record::is_what_it_says(&said(2, 2), &read(&secret)).is_ok(), "the others are kept");
    assert_eq!(record::of_revision(json!([]), 1), json!([]), "what is no template stays");
}

#[test]
fn what_was_seen_later_stays() {
    let mut table = Table::default();
    assert_eq!(table.learn(&seen("5", &json!({}))), Some(of()));
    assert_eq!(table.learn(&seen("5", &json!({}))), None, "it is no news");
    assert_eq!(table.learn(&seen("4", &json!({}))), None, "nor what is older");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(table.learn(&seen("6", &ready)), None, "nothing is left to do");
    assert_eq!(table.begun(), (1, Vec::new()));
    assert_eq!(table.learn(&seen("5", &json!({}))), None);
    assert!(table.instance(&of()).is_none());
    let mut other = Table::default();
    assert_eq!(other.learn(&seen("6", &ready)), Some(of()), "one that is ready is looked after");
    let deleted = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:01Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert_eq!(table.learn(&seen("7", &deleted)), Some(of()));
}

#[test]
fn conditions_keep_their_times_and_those_of_others() {
    let there = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "Waiting", "lastTransitionTime": "then"},
        {"type": "Other", "status": "True"},
    ]}});
    let instance = Instance::of(&seen("1", &there)).unwrap();
    let said = conditions(&instance, &Stand::Retrying("why".to_owned()), "now");
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "Retrying", "message": "why",
        "lastTransitionTime": "then",
    });
    assert_eq!(said, json!([ready, {"type": "Other", "status": "True"}]));
    let said = conditions(&instance, &Stand::Failed("why".to_owned(), false), "now");
    assert_eq!(said[0], instance.status()["conditions"][0], "as in the original");
    assert_eq!(said[2]["type"], "InstantiateFailure");
    let said = conditions(&instance, &Stand::Ready, "now");
    assert_eq!(said[0]["lastTransitionTime"], "now");
    assert_eq!(said[0].get("message"), None, "Kubernetes 1.20 takes an empty text for null");
}

#[test]
fn how_it_stands_is_said_in_the_words_of_the_original() {
    assert_eq!(WAITING, "Waiting for instantiated objects to report ready");
    assert_eq!(TIMEOUT, "timeout while waiting for template instance to be ready");
    let new = Instance::of(&seen("1", &json!({}))).unwrap();
    let ready = |status, reason| ("Ready", status, reason);
    let failure = ("InstantiateFailure", "True", "Failed");
    for (name, stand, expected) in [
        ("waiting", Stand::Waiting(WAITING.to_owned()), vec![ready("False", "Waiting")]),
        ("ready", Stand::Ready, vec![ready("True", "Created")]),
        ("failed before it was made", Stand::Failed("why".to_owned(), false), vec![failure]),
        (
            "failed while it was waited for",
            Stand::Failed("why".to_owned(), true),
            vec![ready("False", "Failed"), failure],
        ),
    ] {
        let said = conditions(&new, &stand, "now");
        let said = said.as_array().unwrap();
        let text = |it: &Value, of: &str| it[of].as_str().unwrap_or_default().to_owned();
        let found: Vec<[String; 3]> =
            said.iter().map(|it| ["type", "status", "reason"].map(|of| text(it, of))).collect();
        let expected: Vec<[String; 3]> =
            expected.iter().map(|&(kind, is, why)| [kind, is, why].map(str::to_owned)).collect();
        assert_eq!(found, expected, "{name}");
        assert!(said.iter().all(|it| it["lastTransitionTime"] == "now"), "{name}");
    }
}

#[test]
fn what_was_made_is_named_as_the_original_names_it() {
    let made = |namespace: &str| Made {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: "a".to_owned(),
        uid: "u".to_owned(),
        state: State::Created,
        message: String::new(),
    };
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    let mut placed = reference.clone();
    placed["namespace"] = json!("shop");
    for (namespace, expected) in [("shop", placed), ("", reference)] {
        let entry = made(namespace).entry();
        assert_eq!(entry["ref"], expected, "{namespace:?}");
        assert_eq!(Made::of(&entry), Some(made(namespace)), "{namespace:?}");
        // As the original has written it: without a state.
        assert_eq!(Made::of(&json!({"ref": expected})), Some(made(namespace)), "{namespace:?}");
    }
}

#[test]
fn an_instance_is_made_when_it_says_so_of_all_its_objects() {
    let objects = |count: usize| vec![json!({}); count];
    for (name, planned, made, observed, expected) in [
        ("it says nothing", 2, 0, None, false),
        ("some are there", 2, 1, Some(1), false),
        ("all are there", 2, 2, Some(1), true),
        ("of what it was before", 2, 2, Some(0), false),
        // There one without objects is made before anybody has looked at it.
        ("it has none, and nobody has looked", 0, 0, None, false),
        ("it has none", 0, 0, Some(1), true),
    ] {
        let with = json!({
            "metadata": {"generation": 1},
            "spec": {"template": {"objects": objects(planned)}},
            "status": {"objects": objects(made), "observedGeneration": observed},
        });
        let instance = Instance::of(&seen("1", &with)).unwrap();
        assert_eq!(instance.is_made(), expected, "{name}");
    }
}

#[test]
fn an_instance_has_an_hour_unless_it_or_its_template_says_otherwise() {
    let timeout = |text: &str| json!({"template.manciple.dev/ready-timeout": text});
    for (name, own, of_template, until) in [
        ("nobody says", json!({}), json!({}), "2026-01-01T01:00:00Z"),
        ("the template says", json!({}), timeout("15m"), "2026-01-01T00:15:00Z"),
        ("the instance says", timeout("2h"), timeout("15m"), "2026-01-01T02:00:00Z"),
    ] {
        let with = json!({
            "metadata": {"annotations": own},
            "spec": {"template": {"metadata": {"annotations": of_template}}},
        });
        let instance = Instance::of(&seen("1", &with)).unwrap();
        assert_eq!(instance.deadline(), until.parse().unwrap(), "{name}: from its creation");
    }
}

#[test]
fn nothing_further_becomes_of_what_is_ready_or_has_failed() {
    for (kind, status, expected) in [
        ("Ready", "True", true),
        ("Ready", "False", false),
        ("InstantiateFailure", "True", true),
        ("InstantiateFailure", "False", false),
        ("Other", "True", false),
    ] {
        let with = json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        let instance = Instance::of(&seen("1", &with)).unwrap();
        assert_eq!(instance.has_ended(), expected, "{kind} is {status}");
    }
}
