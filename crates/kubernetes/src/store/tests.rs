//! A store whose watches are behind: what they are to bring is read first.

use engine::ports::{Filter, Kind as Records};
use engine::record::Phase;
use engine::testing::store_contract::sample_binding;
use http::{Request, Response};
use kube::client::Body;

use super::*;
use crate::split::{self, Places, Written};

/// A store of an API server that has nothing but this, and from which no watch hears.
fn behind(record: &Record) -> KubernetesStore {
    let written = Written {
        record: split::split(record).unwrap().public,
        write: "w".to_owned(),
        since: None,
        places: Places::default(),
    };
    let kind = Kind::of(&record.key);
    let name = names::resource("b", &record.key);
    let object = json!({
        "apiVersion": crate::resources::api_version(), "kind": kind.name(),
        "metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7"},
        "status": {"record": serde_json::to_string(&written).unwrap()},
    });
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_list = request.uri().path().ends_with(kind.plural());
        let list = || json!({"metadata": {"resourceVersion": "8"}, "items": [object]});
        let answer = if is_list { list() } else { object.clone() };
        let response = Response::new(Body::from(answer.to_string().into_bytes()));
        async move { Ok::<_, tower::BoxError>(response) }
    });
    let place = Place {
        client: Client::new(service, "n"),
        settings: Settings { namespace: "n".to_owned(), broker: "b".to_owned() },
        broker: names::broker_label("b"),
        secrets: Secrets::default(),
    };
    KubernetesStore {
        place: place.into(),
        known: Arc::default(),
        has_secret_catalog: Default::default(),
        _watches: Default::default(),
    }
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
        let told = Change { key: key.clone(), busy: true, gone: false, unwanted: false };
        assert_eq!(changes.try_recv().ok(), Some(told), "{name}");
        assert!(changes.try_recv().is_err(), "{name}");
    }
}
