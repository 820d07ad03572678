//! A store before an API server that answers as a test says, and whose watches bring nothing.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use engine::ports::{Filter, Kind as Records};
use engine::record::{Lifecycle, Phase};
use engine::testing::store_contract::sample_binding;
use http::{Request, Response};
use kube::client::Body;

use super::*;
use crate::split::{self, Places, Written};

/// The resource of a record.
fn resource(record: &Record, places: Places) -> Value {
    let written = Written {
        record: split::split(record).unwrap().public,
        write: "w".to_owned(),
        since: None,
        places,
    };
    json!({
        "apiVersion": crate::resources::api_version(), "kind": Kind::of(&record.key).name(),
        "metadata": {
            "name": names::resource("b", &record.key),
            "namespace": "n", "uid": "u", "resourceVersion": "7",
        },
        "status": {"record": serde_json::to_string(&written).unwrap()},
    })
}

/// A store of an API server that answers so, and from which no watch hears.
fn answered(
    answer: impl Fn(&Request<Body>) -> (u16, Value) + Send + Sync + 'static,
) -> KubernetesStore {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (status, answer) = answer(&request);
        let body = Body::from(answer.to_string().into_bytes());
        let response = Response::builder().status(status).body(body).unwrap();
        async move { Ok::<_, tower::BoxError>(response) }
    });
    let api = RecordApi {
        client: Client::new(service, "n"),
        settings: StoreSettings { namespace: "n".to_owned(), broker: "b".to_owned() },
        broker: names::broker_label("b"),
        secrets: Secrets::default(),
    };
    KubernetesStore {
        api: api.into(),
        known: Arc::default(),
        has_secret_catalog: Default::default(),
        _watches: Default::default(),
    }
}

/// A store of an API server that has nothing but this, and from which no watch hears.
fn behind(record: &Record) -> KubernetesStore {
    let (object, kind) = (resource(record, Places::default()), Kind::of(&record.key));
    answered(move |request| match request.uri().path().ends_with(kind.plural()) {
        true => (200, json!({"metadata": {"resourceVersion": "8"}, "items": [object]})),
        false => (200, object.clone()),
    })
}

#[tokio::test]
async fn a_busy_record_that_is_read_before_the_watch_brings_it_is_told_of_once() {
    let mut record = sample_binding("i", "b");
    record.operation.phase = Phase::Pending { not_before: None };
    let key = record.key.clone();
    let query = Query {
        kind: Records::Bindings,
        instance: Some(key.instance().clone()),
        filter: Filter::All,
        after: None,
        limit: 1,
    };
    for name in ["read", "among what its instance has"] {
        let store = behind(&record);
        let mut changes = store.changes().unwrap();
        for _ in 0..2 {
            match name {
                "read" => drop(store.read(&key).await.unwrap().unwrap()),
                _ => assert_eq!(store.scan(&query).await.unwrap().len(), 1),
            }
        }
        let told = RecordChange { key: key.clone(), busy: true, gone: false, unwanted: false };
        assert_eq!(changes.try_recv().ok(), Some(told), "{name}");
        assert!(changes.try_recv().is_err(), "{name}");
    }
}

/// Which of so many bindings of an instance a query finds, and how many pages are read for it.
async fn found(bindings: usize, filter: Filter, limit: usize) -> (Vec<Key>, usize) {
    let bindings: Vec<Record> = (0..bindings)
        .map(|number| {
            let mut binding = sample_binding("i", &format!("{number:04}"));
            if number % 150 == 149 {
                binding.operation.phase = Phase::Pending { not_before: None };
            }
            binding
        })
        .collect();
    let key = bindings[0].key.clone();
    let pages = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&pages);
    let store = answered(move |request| {
        let asked = request.uri().query().unwrap_or_default();
        let of = |name: &str| {
            let mut pairs = asked.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find_map(|(key, value)| (key == name).then_some(value));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        read.fetch_add(1, Ordering::Relaxed);
        let (first, most) = (of("continue").unwrap_or(0), of("limit").unwrap());
        let page = bindings.iter().skip(first).take(most);
        let items: Vec<_> = page.map(|it| resource(it, Places::default())).collect();
        let next = first + items.len();
        let token = if next < bindings.len() { next.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": "8", "continue": token});
        (200, json!({"metadata": metadata, "items": items}))
    });
    let query = Query {
        kind: Records::Bindings,
        instance: Some(key.instance().clone()),
        filter,
        after: None,
        limit,
    };
    let found = store.scan(&query).await.unwrap();
    let keys = found.iter().map(|it| Stored::key_of(it).clone()).collect();
    (keys, pages.load(Ordering::Relaxed))
}

#[tokio::test]
async fn of_what_an_instance_has_no_more_pages_are_read_than_are_asked_for() {
    for (name, bindings, filter, limit, expected, pages) in [
        ("whether there is any", 250, Filter::Live, 1, vec![0], 1),
        ("as many as come in two pages", 250, Filter::Live, 101, (0..101).collect(), 2),
        ("whether any is busy", 250, Filter::Busy, 1, vec![149], 2),
        ("none of the first are", 400, Filter::Busy, 2, vec![149, 299], 3),
        ("all that are busy", 250, Filter::Busy, 64, vec![149], 3),
        ("all", 250, Filter::All, 1000, (0..250).collect(), 3),
    ] {
        let expected: Vec<Key> =
            expected.iter().map(|it| sample_binding("i", &format!("{it:04}")).key).collect();
        assert_eq!(found(bindings, filter, limit).await, (expected, pages), "{name}");
    }
}

/// Of four records the second is removed, or buried, while they are read.
#[tokio::test]
async fn a_page_is_short_only_where_no_more_follow_whatever_goes_meanwhile() {
    let bindings: Vec<Record> = ["a", "b", "c", "d"].map(|id| sample_binding("i", id)).into();
    let places = Places { order: Some("order-1".to_owned()), rest: None };
    let objects: Vec<Value> = bindings.iter().map(|it| resource(it, places.clone())).collect();
    let name = |at: usize| objects[at]["metadata"]["name"].as_str().unwrap().to_owned();
    let mut buried = bindings[1].clone();
    buried.lifecycle = Lifecycle::Deleted;
    buried.operation.phase = Phase::Succeeded;
    let mut buried = resource(&buried, Places::default());
    buried["metadata"]["resourceVersion"] = json!("9");
    let everywhere = Query {
        kind: Records::Bindings,
        instance: None,
        filter: Filter::Live,
        after: None,
        limit: 2,
    };
    let of_one = Query { instance: Some(bindings[0].key.instance().clone()), ..everywhere.clone() };
    for (case, now, query) in [
        ("removed", None, &everywhere),
        ("buried", Some(&buried), &everywhere),
        ("removed of an instance", None, &of_one),
    ] {
        let order = split::split(&bindings[0]).unwrap().order;
        let secret = json!({
            "metadata": {"name": "s", "uid": "s", "resourceVersion": "7"},
            "data": {"order-1": data_encoding::BASE64.encode(json!(order).to_string().as_bytes())},
        });
        let (known, now, second) = (objects.clone(), now.cloned(), name(1));
        let objects = known.clone();
        let goes = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&goes);
        let names: Vec<String> = (0..4).map(name).collect();
        let store = answered(move |request| {
            let path = request.uri().path();
            let (_, asked) = path.rsplit_once('/').unwrap();
            let is_gone = gone.load(Ordering::Relaxed);
            match names.iter().position(|name| name == asked) {
                Some(1) if is_gone && path.contains("/secrets/") => missing(&second),
                Some(1) if is_gone => now.clone().map_or_else(|| missing(&second), |it| (200, it)),
                Some(_) if path.contains("/secrets/") => (200, secret.clone()),
                Some(at) => (200, objects[at].clone()),
                None if asked == "servicebindings" => {
                    // It goes once it was listed.
                    let there = |at: &usize| *at != 1 || !is_gone;
                    let items: Vec<_> = (0..4).filter(there).map(|at| &objects[at]).collect();
                    let list = json!({"metadata": {"resourceVersion": "8"}, "items": items});
                    gone.store(true, Ordering::Relaxed);
                    (200, list)
                }
                None => missing(asked),
            }
        });
        if query.instance.is_none() {
            for (binding, object) in bindings.iter().zip(&known) {
                let object = serde_json::from_value(object.clone()).unwrap();
                let entry = RecordApi::entry_of(&binding.key, &object).unwrap();
                store.known.hear(Arc::new(entry), Source::Event);
            }
            goes.store(true, Ordering::Relaxed);
        }
        let found = store.scan(query).await.unwrap();
        let found: Vec<&Key> = found.iter().map(Stored::key_of).collect();
        assert_eq!(found, [&bindings[0].key, &bindings[2].key], "{case}");
        let rest =
            store.scan(&Query { after: Some(found[1].clone()), ..query.clone() }).await.unwrap();
        let rest: Vec<&Key> = rest.iter().map(Stored::key_of).collect();
        assert_eq!(rest, [&bindings[3].key], "{case}");
    }
}

/// The first five times they are listed the third of them goes before it is read.
#[tokio::test]
async fn a_page_is_full_however_often_some_of_it_goes() {
    let bindings: Vec<Record> =
        (0..9).map(|number| sample_binding("i", &number.to_string())).collect();
    let places = Places { order: Some("order-1".to_owned()), rest: None };
    let objects: Vec<Value> = bindings.iter().map(|it| resource(it, places.clone())).collect();
    let order = split::split(&bindings[0]).unwrap().order;
    let secret = json!({
        "metadata": {"name": "s", "uid": "s", "resourceVersion": "7"},
        "data": {"order-1": data_encoding::BASE64.encode(json!(order).to_string().as_bytes())},
    });
    let gone = AtomicUsize::new(0);
    let store = answered(move |request| {
        let path = request.uri().path();
        let (_, asked) = path.rsplit_once('/').unwrap();
        let is_of = |object: &&Value| object["metadata"]["name"] == *asked;
        let there = |gone: usize| -> Vec<&Value> {
            objects[..2].iter().chain(&objects[2 + gone..]).collect()
        };
        if asked == "servicebindings" {
            let there = there(gone.load(Ordering::Relaxed));
            gone.store(5.min(gone.load(Ordering::Relaxed) + 1), Ordering::Relaxed);
            return (200, json!({"metadata": {"resourceVersion": "8"}, "items": there}));
        }
        match there(gone.load(Ordering::Relaxed)).into_iter().find(is_of) {
            Some(_) if path.contains("/secrets/") => (200, secret.clone()),
            Some(object) => (200, object.clone()),
            None => missing(asked),
        }
    });
    let query = Query {
        kind: Records::Bindings,
        instance: Some(bindings[0].key.instance().clone()),
        filter: Filter::Live,
        after: None,
        limit: 3,
    };
    let found = store.scan(&query).await.unwrap();
    let found: Vec<&Key> = found.iter().map(Stored::key_of).collect();
    let expected = [&bindings[0].key, &bindings[1].key, &bindings[7].key];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn what_others_hold_is_followed_by_nothing_and_it_is_said_by_whom() {
    let mut gone = sample_binding("i", "b");
    gone.lifecycle = Lifecycle::Deleted;
    gone.operation.phase = Phase::Succeeded;
    let anew = Arc::new(sample_binding("i", "b"));
    let (ours, others) = (names::FINALIZER, ["example.com/one", "example.com/two"]);
    let at = "2026-11-28T12:00:00Z";
    for (name, finalizers, deletion, buries) in [
        ("nobody has deleted it", vec![ours, others[0], others[1]], None, true),
        ("somebody has", vec![ours, others[0], others[1]], Some(at), true),
        ("it waits for others alone", others.to_vec(), Some(at), false),
    ] {
        let mut held = resource(&gone, Places::default());
        held["metadata"]["finalizers"] = json!(finalizers);
        held["metadata"]["deletionTimestamp"] = json!(deletion);
        let made = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&made);
        let store = answered(move |request| {
            let (method, path) = (request.method(), request.uri().path());
            if *method == http::Method::POST {
                writes.lock().unwrap().push(path.rsplit('/').next().unwrap().to_owned());
            }
            let tombstone = json!({"metadata": {"name": "t", "resourceVersion": "9"}});
            match path {
                path if path.contains("/secrets/") => missing("secret"),
                path if path.contains("/configmaps") => (201, tombstone),
                _ => (200, held.clone()),
            }
        });
        let refused = store.write(Arc::clone(&anew), Some(&Version("7".to_owned()))).await;
        let Err(StoreError::Held(why)) = refused else { panic!("{name}: {refused:?}") };
        assert!(others.iter().all(|other| why.contains(other)), "{name}: {why}");
        assert!(!why.contains(ours), "{name}: {why}");
        let tombstones: &[&str] = if buries { &["configmaps"] } else { &[] };
        assert_eq!(*made.lock().unwrap(), tombstones, "{name}: only what is left of it is made");
    }
}

/// What is not there.
fn missing(name: &str) -> (u16, Value) {
    let message = format!("{name} \"{name}\" not found");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        "message": message, "details": {"name": name},
    });
    (404, status)
}

#[tokio::test]
async fn what_is_written_while_labels_are_put_back_is_read() {
    let record = sample_binding("i", "b");
    let mut later = record.clone();
    later.operation.phase = Phase::Pending { not_before: None };
    // Neither has the labels that lists ask for.
    let before = resource(&record, Places::default());
    let mut after = resource(&later, Places::default());
    after["metadata"]["resourceVersion"] = json!("9");
    let store = answered(move |request| match *request.method() == http::Method::PATCH {
        true => (200, after.clone()),
        false => (200, before.clone()),
    });
    let read = store.read(&record.key).await.unwrap().unwrap();
    assert_eq!(read.version, Version("9".to_owned()));
    assert_eq!(read.record.operation.phase, later.operation.phase);
}

#[tokio::test]
async fn how_an_operation_stands_is_known_without_its_secret() {
    let record = sample_binding("i", "b");
    let places = Places { order: Some("order-1".to_owned()), rest: Some("rest-1".to_owned()) };
    let object = resource(&record, places);
    let store = answered(|request| panic!("{} was asked for", request.uri()));
    let entry = RecordApi::entry_of(&record.key, &serde_json::from_value(object).unwrap()).unwrap();
    store.known.hear(Arc::new(entry), Source::Event);
    let seen = store.glance_public(&record.key).await.unwrap().unwrap();
    assert_eq!(seen.version, Version("7".to_owned()));
    assert_eq!(seen.record.operation.phase, record.operation.phase);
    assert!(store.glance_public(&sample_binding("i", "c").key).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn only_what_was_just_made_is_waited_for_where_its_secret_is_not_there() {
    let record = sample_binding("i", "b");
    let places = Places { order: Some("order-1".to_owned()), rest: None };
    let whole = resource(&record, places);
    let mut first = whole.clone();
    first["metadata"]["annotations"] = json!({names::RECORD: whole["status"]["record"]});
    first.as_object_mut().unwrap().remove("status");
    for (name, object, waits) in [("written again", whole, false), ("just made", first, true)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let store = answered(move |request| {
            if request.method() == http::Method::GET {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            match (request.method(), request.uri().path()) {
                (&http::Method::POST, path) if path.ends_with("/secrets") => (201, secret(0)),
                (_, path) if path.contains("/secrets/") => missing("secret"),
                _ => (200, object.clone()),
            }
        });
        let begun = tokio::time::Instant::now();
        let read = store.read(&record.key).await;
        assert_eq!(begun.elapsed() > read::HALF_MADE, waits, "{name}");
        match waits {
            true => assert!(matches!(read, Ok(None)), "{name}: half made, and removed: {read:?}"),
            false => {
                assert!(matches!(read, Err(StoreError::Unreadable { .. })), "{name}: {read:?}");
                assert!(asked.load(Ordering::Relaxed) <= 4, "{name}: {asked:?}");
            }
        }
    }
}

/// A Secret with a part of a record, made so many seconds after its resource.
fn secret(after: i64) -> Value {
    let made = format!("2026-11-21T18:00:{after:02}Z");
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "i", "creationTimestamp": made},
        "data": {"order-1": "e30="},
    })
}

/// Between the reads of the two it may have been removed as half made, and its writer may have come too late.
#[tokio::test(start_paused = true)]
async fn a_record_is_there_if_its_resource_still_was_when_its_secret_was_made() {
    let record = sample_binding("i", "b");
    let places = Places { order: Some("order-1".to_owned()), rest: None };
    let mut first = resource(&record, places);
    first["metadata"]["annotations"] = json!({names::RECORD: first["status"]["record"]});
    first["metadata"]["creationTimestamp"] = json!("2026-11-21T18:00:00Z");
    first.as_object_mut().unwrap().remove("status");
    for (name, after, goes, is_read, reads) in [
        ("at once", 0, true, true, 1),
        ("within two seconds", 1, true, true, 1),
        ("late, and it is there", 2, false, true, 2),
        ("late, and it is gone", 9, true, false, 2),
    ] {
        let (asked, object) = (Arc::new(AtomicUsize::new(0)), first.clone());
        let counted = Arc::clone(&asked);
        let store = answered(move |request| match request.uri().path() {
            path if path.contains("/secrets/") => (200, secret(after)),
            path if path.contains("/configmaps/") => missing("tombstone"),
            // It gets its labels again.
            _ if request.method() == http::Method::PATCH => (200, object.clone()),
            _ => match counted.fetch_add(1, Ordering::Relaxed) {
                1.. if goes => missing("resource"),
                _ => (200, object.clone()),
            },
        });
        let read = store.read(&record.key).await.unwrap();
        assert_eq!(read.is_some(), is_read, "{name}");
        assert_eq!(asked.load(Ordering::Relaxed), reads, "{name}");
    }
}
