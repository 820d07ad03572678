//! What instances were begun with, as it is kept.

use k8s_openapi::api::core::v1::Secret;
use ring::hmac;
use serde_json::{Value, json};

use super::{key, of, seen};
use crate::templates::record::{self, Record, StoredRecord, Values};
use crate::templates::resource::{Instance, Key};
use crate::templates::values::{generated_again, stay, template};

#[test]
fn a_record_is_of_one_instance_and_of_nobody_else() {
    let instance = Instance::of(seen("1", &json!({}))).unwrap();
    let record = Record::of(&instance, &[], "hello".to_owned(), String::new());
    let secret = kept_as(&StoredRecord::new(record.clone(), instance.spec()));
    assert_eq!(record::read(&of(), &secret, &key()).unwrap().record, record);
    assert!(record.is_of(&instance));
    let other = Key { uid: "u-2".into(), ..of() };
    let stranger = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
    for (name, of, key) in [("another's", &other, &key()), ("another key", &of(), &stranger)] {
        let why = record::read(of, &secret, key).err().unwrap();
        assert!(why.contains("somebody else has written it"), "{name}: {why}");
    }
    let changed = json!({"spec": {"requester": {"username": "root"}}});
    let changed = Instance::of(seen("2", &changed)).unwrap();
    assert!(!record.is_of(&changed), "what it was begun with is not what it says now");
}

fn kept_as(kept: &StoredRecord) -> Secret {
    serde_json::from_value(record::secret(&of(), kept, &key())).unwrap()
}

fn ordered(message: &str) -> Instance {
    Instance::of(seen("1", &json!({"spec": {"template": {"message": message}}}))).unwrap()
}

#[test]
fn revisions_are_kept_as_long_as_there_is_room_and_ten_of_them() {
    let record = |instance: &Instance| Record::of(instance, &[], String::new(), String::new());
    let first = ordered("1");
    let mut secret = kept_as(&StoredRecord::new(record(&first), first.spec()));
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
    let kept = StoredRecord::new(record, first.spec());
    assert!(kept.values_before().is_empty());
    let record = Record::of(&second, &[], String::new(), String::new());
    let next = kept.next(record, second.spec(), &of(), &key());
    assert_eq!(next.values_before()["PASSWORD"], "before");
    let read = record::read(&of(), &kept_as(&next), &key()).unwrap();
    assert_eq!(read.values_before()["PASSWORD"], "before", "whoever comes after knows them");
}

#[test]
fn a_template_that_says_of_which_revision_it_is_is_that() {
    let spec = |port: u64| json!({"template": {"objects": [{"port": port}]}});
    let record = |spec: &Value, revision: u64| {
        let with = json!({"spec": spec});
        let instance = Instance::of(seen("1", &with)).unwrap();
        let mut record = Record::of(&instance, &[], String::new(), String::new());
        record.revision = revision;
        record
    };
    let first = StoredRecord::new(record(&spec(1), 1), &spec(1));
    let second = first.next(record(&spec(2), 2), &spec(2), &of(), &key());
    let third = second.next(record(&spec(3), 3), &spec(3), &of(), &key());
    let kept =
        |kept: &StoredRecord| serde_json::from_value::<Secret>(record::secret(&of(), kept, &key()));
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
    let forged = StoredRecord::new(record(&spec(9), 1), &spec(9));
    let forged = kept(&forged).unwrap().data.unwrap();
    let data = secret.data.as_mut().unwrap();
    for name in ["record", "spec"] {
        data.insert(format!("{name}.1"), forged[name].clone());
    }
    assert!(record::is_what_it_says(&said(9, 1), &read(&secret)).is_err());
    assert!(record::is_what_it_says(&said(2, 2), &read(&secret)).is_ok(), "the others are kept");
    assert_eq!(record::of_revision(json!([]), 1), json!([]), "what is no template stays");
}

/// A password is generated, given, and rolled back to what it was; then somebody gives none.
#[test]
fn what_was_generated_is_so_again_after_a_rollback_over_what_was_given() {
    let parameter = json!({"name": "PASSWORD", "generate": "expression", "from": "[a-z]{8}"});
    let spec = json!({"template": {"objects": [], "parameters": [parameter]}});
    let instance = Instance::of(seen("1", &json!({"spec": spec}))).unwrap();
    let record = |revision: u64, value: &str, generated: Option<&[&str]>| {
        let mut record = Record::of(&instance, &[], String::new(), String::new());
        record.revision = revision;
        record.parameters.insert("PASSWORD".to_owned(), value.to_owned());
        record.generated = generated.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
        record
    };
    let again = |revision: u64| record::of_revision(spec["template"].clone(), revision);
    let noted: Option<&[&str]> = Some(&["PASSWORD"]);
    for (name, was, ordered, given, is_generated) in [
        ("a rollback", noted, again(1), "made", true),
        ("a rollback of one from before that was noted", None, again(1), "made", true),
        ("a rollback to what was given", Some(&[][..]), again(1), "made", false),
        ("a rollback, and another value", noted, again(1), "other", false),
        ("the same value, given", noted, spec["template"].clone(), "made", false),
        ("a rollback to what is not kept", noted, again(7), "made", false),
    ] {
        let first = StoredRecord::new(record(1, "made", was), instance.spec());
        let given_since = record(2, "given", Some(&[]));
        let second = first.next(given_since, instance.spec(), &of(), &key());
        let given = Values::from([("PASSWORD".to_owned(), given.to_owned())]);
        let order = json!({"template": ordered});
        let mut template = template(&order).unwrap();
        template.set_all(&given);
        let again = generated_again(&order["template"], &second);
        let generated = stay(&mut template, &given, &again, Some(&second.record), || None);
        assert_eq!(generated.contains("PASSWORD"), is_generated, "{name}");
    }
}

/// As the garbage collector leaves what it lets be.
#[test]
fn a_record_that_nobody_owns_is_orphaned() {
    let instance = Instance::of(seen("1", &json!({}))).unwrap();
    let record = Record::of(&instance, &[], String::new(), String::new());
    let secret = kept_as(&StoredRecord::new(record, instance.spec()));
    let another = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "i", "uid": "u-2"}]);
    for (name, owners, expected) in [
        ("as it was recorded", json!(secret.metadata.owner_references), false),
        ("nobody's", json!(null), true),
        ("nobody's, said otherwise", json!([]), true),
        ("another's", another, true),
    ] {
        let mut secret = secret.clone();
        secret.metadata.owner_references = serde_json::from_value(owners).unwrap();
        let kept = record::read(&of(), &secret, &key()).unwrap();
        assert_eq!(kept.is_orphaned, expected, "{name}");
    }
}
