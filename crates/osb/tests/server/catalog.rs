use osb::catalog::{CompiledCatalog, parse};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::{
    BINDING, INSTANCE, Rig, bind_with, catalog, delete, get, patch, provision_with, put,
};
use serde_json::json;

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn rig() -> (Rig, String) {
    let rig = Rig::new();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let compiled = CompiledCatalog::compile_at(parse(&catalog()).unwrap(), at).unwrap();
    let etag = compiled.etag().to_owned();
    *rig.backend.catalog.lock().unwrap() = Some(Arc::new(compiled));
    (rig, etag)
}

#[tokio::test]
async fn item_11_the_catalog_is_served_as_it_is() {
    let (rig, etag) = rig();
    let answer = rig.send(get("/v2/catalog")).await;
    assert_eq!((answer.status, answer.json()), (200, catalog()));
    assert_eq!(answer.header("etag"), Some(etag.as_str()));
    assert_eq!(answer.header("last-modified"), Some(MODIFIED));
}

#[tokio::test]
async fn item_17_a_platform_that_has_the_catalog_is_told_304_without_a_body() {
    let (rig, etag) = rig();
    let known = [
        ("if-none-match", etag.clone()),
        ("if-none-match", format!("W/{etag}")),
        ("if-none-match", format!("\"x\", W/\"y\" ,{etag}")),
        ("if-none-match", "*".to_owned()),
        ("if-modified-since", MODIFIED.to_owned()),
        ("if-modified-since", "Sunday, 06-Nov-94 08:49:37 GMT".to_owned()),
        ("if-modified-since", "Sun Nov  6 08:49:37 1994".to_owned()),
        ("if-modified-since", "Mon, 07 Nov 1994 08:49:37 GMT".to_owned()),
    ];
    for (name, value) in known {
        let answer = rig
            .send(
                get("/v2/catalog")
                    .header(name, &value)
                    .header("x-broker-api-request-identity", "r"),
            )
            .await;
        assert_eq!((answer.status, answer.bytes.len()), (304, 0), "{name}: {value}");
        assert_eq!(answer.header("etag"), Some(etag.as_str()));
        assert_eq!(answer.header("last-modified"), Some(MODIFIED));
        assert_eq!(answer.header("x-broker-api-request-identity"), Some("r"));
    }
    let unknown = [
        ("if-none-match", "\"x\"".to_owned()),
        ("if-none-match", etag.trim_matches('"').to_owned()),
        ("if-none-match", String::new()),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:36 GMT".to_owned()),
        ("if-modified-since", "yesterday".to_owned()),
    ];
    for (name, value) in unknown {
        let answer = rig.send(get("/v2/catalog").header(name, &value)).await;
        assert_eq!(answer.status, 200, "{name}: {value}");
    }
    let listed_apart =
        get("/v2/catalog").header("if-none-match", "\"x\"").header("if-none-match", &etag);
    assert_eq!(rig.send(listed_apart).await.status, 304);
    // A tag that differs goes before a date that does not.
    let both =
        get("/v2/catalog").header("if-none-match", "\"x\"").header("if-modified-since", MODIFIED);
    assert_eq!(rig.send(both).await.status, 200);
}

#[tokio::test]
async fn without_a_catalog_what_needs_one_is_503_and_deletes_go_on() {
    let rig = Rig::new();
    *rig.backend.catalog.lock().unwrap() = None;
    for ask in [
        get("/v2/catalog"),
        put(INSTANCE, &provision_with(json!({}))),
        patch(INSTANCE, &json!({"service_id": "db"})),
        put(BINDING, &bind_with(json!({}))),
    ] {
        let answer = rig.send(ask).await;
        answer.refusal(503, "Unavailable");
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    assert_eq!(rig.heard(), []);
    rig.send(put(INSTANCE, &json!({}))).await.names(&["service_id"]);
    assert_eq!(rig.send(delete(&format!("{INSTANCE}?service_id=a&plan_id=b"))).await.status, 200);
    rig.send(get(INSTANCE)).await.refusal(404, "NotFound");
    rig.send(get(BINDING)).await.refusal(404, "NotFound");
}
