//! Every check, shown to fail: brokers with one fault each, and the checks that must see it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderValue;

use super::Mode::{AtOnce, Later};
use super::spoil::{Paths, bodies, refusing, route, status, when};
use super::*;

/// A good broker's way of answering, a fault, and the checks that must fail.
type Row = (Mode, Spoil, &'static [&'static str]);

#[tokio::test]
async fn every_check_fails_at_a_broker_with_its_fault() {
    let usual = [of_headers(), of_the_catalog(), of_instances(), of_operations(), of_bindings()];
    let rows = usual.into_iter().flatten().map(|row| (row, options()));
    let made = |body: &str| status(400, 201, body);
    let moving = Options { update_plan: Some("medium".to_owned()), ..options() };
    let others = [
        ((AtOnce, made("{}"), &["bind-not-bindable"] as _), of_plan("second", "unbindable")),
        ((AtOnce, made("{}"), &["rotate-refused"] as _), of_plan("first", "large")),
        ((AtOnce, keeping_its_plan(), &["update"] as _), moving.clone()),
        ((Later, keeping_its_plan(), &["update"] as _), moving),
    ];
    let runs: Vec<_> = rows
        .chain(others)
        .map(|((mode, spoil, ids), options)| {
            tokio::spawn(async move { (ran(mode, options, spoil).await.report, ids) })
        })
        .collect();
    let (mut shown, mut missed) = (BTreeSet::new(), Vec::new());
    for run in runs {
        let (report, ids) = run.await.unwrap();
        for id in ids {
            match report.verdict(id) {
                Some(Verdict::Fail(_)) => drop(shown.insert(*id)),
                verdict => missed.push(format!("{id}: {verdict:?}, blocked: {:?}", report.blocked)),
            }
        }
    }
    assert!(missed.is_empty(), "faults were not seen: {missed:#?}");
    let never: Vec<_> =
        CHECKS.iter().map(|check| check.id).filter(|id| !shown.contains(id)).collect();
    assert!(never.is_empty(), "no fault is shown to {never:?}");
}

/// Whatever has to be a 400.
const BAD_REQUESTS: &[&str] = &[
    "originating-identity-broken",
    "body-malformed",
    "content-type-mismatch",
    "provision-members",
    "provision-object",
    "provision-unknown-service",
    "provision-unknown-plan",
    "provision-foreign-plan",
    "provision-parameters",
    "update-members",
    "update-unknown-service",
    "update-unknown-plan",
    "bind-members",
    "unbind-members",
    "deprovision-members",
];

fn of_headers() -> Vec<Row> {
    let set = |name: &'static str, value: &'static str| {
        sees(move |seen| drop(seen.headers.insert(name, HeaderValue::from_static(value))))
    };
    vec![
        (
            AtOnce,
            set("x-broker-api-version", "2.17"),
            &["version-unsupported", "version-absent", "version-empty"],
        ),
        (
            AtOnce,
            set("authorization", "Basic dTpw"),
            &["auth-required", "auth-wrong", "auth-first"],
        ),
        (AtOnce, status(401, 401, "no"), &["auth-body"]),
        (
            AtOnce,
            answers(|_, answer| answer.headers.clear()),
            &["identity-echo", "identity-echo-refused", "content-type", "catalog-unchanged"],
        ),
        (
            AtOnce,
            when(
                |seen, _| seen.header("x-broker-api-originating-identity").is_some(),
                |answer| {
                    answer.status = 400;
                },
            ),
            &["originating-identity"],
        ),
        (AtOnce, status(400, 422, "{}"), BAD_REQUESTS),
        (
            AtOnce,
            when(
                |seen, _| !seen.body.is_empty() && seen.header("content-type").is_none(),
                |answer| answer.status = 415,
            ),
            &["content-type-absent"],
        ),
        (
            AtOnce,
            when(
                |seen, _| seen.json().get("x-conformance").is_some(),
                |answer| answer.status = 400,
            ),
            &["unknown-members"],
        ),
        (
            AtOnce,
            bodies(|_, status| status >= 400, |body| body["error"] = json!("two words")),
            &["error-members"],
        ),
        (
            AtOnce,
            bodies(|_, status| status >= 400, |body| body["instance_usable"] = json!(true)),
            &["usable-placement"],
        ),
        (
            AtOnce,
            bodies(|_, status| status >= 400, |body| body["update_repeatable"] = json!(true)),
            &["repeatable-placement"],
        ),
        (
            AtOnce,
            when(|seen, _| seen.path.contains("%2F"), |answer| answer.status = 404),
            &["any-id"],
        ),
        (
            AtOnce,
            when(|seen, _| route(seen) == "GET binding", |answer| answer.hang_up = true),
            &["answers-in-time", "bind-fetch", "bind-fetch-unknown"],
        ),
    ]
}

fn of_the_catalog() -> Vec<Row> {
    fn row(id: &'static [&'static str], edit: fn(&mut Value)) -> Row {
        (AtOnce, bodies(|seen, status| route(seen) == "GET catalog" && status == 200, edit), id)
    }
    fn service(catalog: &mut Value) -> &mut Value {
        &mut catalog["services"][1]
    }
    fn plan(catalog: &mut Value) -> &mut Value {
        &mut catalog["services"][1]["plans"][1]
    }
    fn usual(catalog: &mut Value) -> &mut Value {
        &mut catalog["services"][0]["plans"][0]
    }
    fn schema(catalog: &mut Value) -> &mut Value {
        &mut usual(catalog)["schemas"]["service_instance"]["create"]["parameters"]
    }
    let counter = AtomicU32::new(0);
    let restless = move |body: &mut Value| {
        plan(body)["id"] = json!(format!("p{}", counter.fetch_add(1, Ordering::Relaxed)));
    };
    let is_catalog = |seen: &Seen, status| route(seen) == "GET catalog" && status == 200;
    vec![
        (AtOnce, bodies(is_catalog, restless), &["catalog-stable"]),
        row(&["catalog"], |body| body["services"] = json!({})),
        row(&["catalog-services"], |body| service(body)["bindable"] = json!("yes")),
        row(&["catalog-services"], |body| service(body)["plans"] = json!([])),
        row(&["catalog-plans"], |body| plan(body)["description"] = json!("")),
        row(&["catalog-service-names"], |body| service(body)["name"] = json!("first")),
        row(&["catalog-plan-names"], |body| plan(body)["name"] = json!("unbindable")),
        row(&["catalog-ids"], |body| plan(body)["id"] = json!("s1")),
        row(&["catalog-friendly"], |body| service(body)["name"] = json!("two words")),
        row(&["catalog-friendly"], |body| plan(body)["description"] = json!("x".repeat(256))),
        row(&["catalog-requires"], |body| service(body)["requires"] = json!(["root"])),
        row(&["catalog-plan-flags"], |body| plan(body)["free"] = json!("no")),
        row(&["catalog-schemas"], |body| {
            schema(body)["properties"]["size"]["$ref"] = json!("https://elsewhere");
        }),
        row(&["catalog-schemas"], |body| schema(body)["$schema"] = json!(null)),
        row(&["catalog-schemas"], |body| schema(body)["title"] = json!("x".repeat(65 * 1024))),
        row(&["catalog-maintenance-info"], |body| {
            usual(body)["maintenance_info"]["version"] = json!("1.0");
        }),
        row(&["catalog-optional"], |body| service(body)["dashboard_client"] = json!({"id": "c"})),
        row(&["catalog-optional"], |body| plan(body)["maximum_polling_duration"] = json!("1h")),
    ]
}

fn of_instances() -> Vec<Row> {
    let counter = AtomicU32::new(0);
    let deletes = |seen: &Seen, status: u16| seen.method == Method::DELETE && status == 200;
    vec![
        (
            AtOnce,
            status(201, 200, ""),
            &["provision", "provision-async", "bind", "bind-async", "rotate"],
        ),
        (
            AtOnce,
            when(
                |seen, status| route(seen) != "GET catalog" && status == 200,
                |answer| answer.status = 201,
            ),
            &[
                "provision-again",
                "content-type-absent",
                "unknown-members",
                "fetch",
                "update",
                "update-async",
                "update-context",
                "bind-again",
                "rotate-both",
                "bind-fetch",
            ],
        ),
        (
            AtOnce,
            status(409, 200, "{}"),
            &["provision-conflict-plan", "provision-conflict-space", "bind-conflict"],
        ),
        (
            AtOnce,
            status(404, 410, ""),
            &[
                "last-operation-unknown",
                "bind-last-operation-unknown",
                "fetch-unknown",
                "bind-fetch-unknown",
                "update-unknown-instance",
                "bind-unknown-instance",
            ],
        ),
        (
            AtOnce,
            status(410, 404, ""),
            &[
                "unbind-gone",
                "deprovision-gone",
                "deprovision-bound",
                "deprovision-unlisted-plan",
                "unbind-unlisted-plan",
            ],
        ),
        (
            AtOnce,
            when(
                |seen, _| {
                    seen.method == Method::DELETE && seen.query.contains("not-in-the-catalog")
                },
                |answer| answer.status = 400,
            ),
            &["deprovision-unlisted-plan", "unbind-unlisted-plan"],
        ),
        (AtOnce, applying(400), &["update-refused-whole"]),
        (AtOnce, applying(500), &["update-failed"]),
        (Later, applying(202), &["update-failed"]),
        (
            AtOnce,
            status(422, 422, "{}"),
            &["provision-maintenance", "update-maintenance", "update-plan-fixed-words"],
        ),
        (AtOnce, status(422, 200, "{}"), &["update-plan-fixed"]),
        (AtOnce, bodies(|_, _| true, |body| body["dashboard_url"] = json!(7)), &["dashboard-url"]),
        (
            AtOnce,
            bodies(
                |seen, _| seen.method == Method::PUT,
                |body| body["dashboard_url"] = json!(null),
            ),
            &["dashboard-url-early"],
        ),
        (
            AtOnce,
            bodies(|_, _| true, |body| body["metadata"] = json!({"labels": {"a": 1}})),
            &["metadata"],
        ),
        (
            AtOnce,
            bodies(
                |seen, _| route(seen) == "GET instance",
                move |body| body["plan_id"] = json!(counter.fetch_add(1, Ordering::Relaxed)),
            ),
            &["fetch-body", "update-keeps", "refused-changes-nothing"],
        ),
        (AtOnce, refusing("kubernetes"), &["profile-kubernetes"]),
        (AtOnce, refusing("cloudfoundry"), &["profile-cloudfoundry"]),
        (
            AtOnce,
            when(deletes, |answer| *answer = Answer::raw(204, "")),
            &["unbind", "unbind-async", "deprovision", "deprovision-async"],
        ),
    ]
}

/// Does not hear of the plan that an update names.
fn keeping_its_plan() -> Spoil {
    sees(|seen| {
        if seen.method == Method::PATCH && seen.json()["plan_id"] == "p5" {
            let mut body = seen.json();
            body.as_object_mut().unwrap().remove("plan_id");
            seen.body = body.to_string().into();
        }
    })
}

/// Keeps what an update asks for although it answers this to it.
fn applying(status: u16) -> Spoil {
    let kept = std::sync::Mutex::new(json!(null));
    answers(move |seen, answer| {
        let mut kept = kept.lock().unwrap();
        if seen.method == Method::PATCH && answer.status == status {
            *kept = seen.json()["parameters"].clone();
        }
        if route(seen) == "GET instance" && answer.status == 200 {
            let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
            body["parameters"] = kept.clone();
            answer.body = body.to_string().into();
        }
    })
}

fn of_operations() -> Vec<Row> {
    let counter = AtomicU32::new(0);
    let (ended, deleted, told) = (Paths::default(), Paths::default(), Paths::default());
    let succeeds = |answer: &Answer| answer.body.as_ref() == br#"{"state":"succeeded"}"#;
    let early = |seen: &Seen, status: u16| seen.method == Method::GET && status == 404;
    vec![
        (
            Later,
            bodies(
                |_, status| status == 202,
                move |body| {
                    body["operation"] = json!(counter.fetch_add(1, Ordering::Relaxed).to_string());
                },
            ),
            &[
                "provision-again-early",
                "update-again-early",
                "bind-again-early",
                "unbind-again-early",
                "deprovision-again-early",
            ],
        ),
        (
            Later,
            bodies(|_, status| status == 202, |body| body["operation"] = json!("x".repeat(10_001))),
            &["operation-length"],
        ),
        (
            Later,
            bodies(|_, status| status == 422, |body| body["error"] = json!("Slow")),
            &["provision-async", "bind-async", "unbind-async", "deprovision-async"],
        ),
        (
            Later,
            when(
                |seen, _| route(seen) == "PATCH instance" && !seen.query.contains("true"),
                |answer| answer.status = 500,
            ),
            &["update-async"],
        ),
        (Later, status(409, 202, "{}"), &["provision-conflict-early"]),
        (Later, when(early, |answer| answer.status = 200), &["fetch-early", "bind-fetch-early"]),
        (
            Later,
            when(
                |seen, status| seen.method == Method::GET && status == 422,
                |answer| answer.status = 200,
            ),
            &["fetch-updating"],
        ),
        (
            Later,
            bodies(|seen, _| seen.path.ends_with("n"), |body| body["description"] = json!("")),
            &["last-operation"],
        ),
        (
            Later,
            answers(|_, answer| {
                let date = ("retry-after".to_owned(), "Sun, 06 Nov 1994 08:49:37 GMT".to_owned());
                answer.headers.retain(|(name, _)| name != "retry-after");
                answer.headers.push(date);
            }),
            &["retry-after"],
        ),
        (
            Later,
            when(
                |seen, _| seen.path.ends_with("n") && seen.query.is_empty(),
                |answer| answer.status = 400,
            ),
            &["last-operation-hints"],
        ),
        (
            Later,
            answers(move |seen, answer| {
                if succeeds(answer) && !ended.add(&seen.path) {
                    answer.status = 404;
                }
            }),
            &["last-operation-again"],
        ),
        (
            Later,
            answers(move |seen, answer| {
                if seen.method == Method::DELETE && answer.status == 202 {
                    deleted.add(&format!("{}/last_operation", seen.path));
                }
                if succeeds(answer) && deleted.has(&seen.path) && !told.add(&seen.path) {
                    answer.status = 404;
                }
            }),
            &["last-operation-deleted"],
        ),
        (
            Later,
            when(
                |seen, status| seen.method == Method::DELETE && status == 202,
                |answer| answer.status = 409,
            ),
            &["deprovision-early", "unbind", "deprovision"],
        ),
    ]
}

fn of_bindings() -> Vec<Row> {
    fn given(edit: fn(&mut Value)) -> Spoil {
        bodies(|seen, status| seen.path.contains("service_bindings") && status < 300, edit)
    }
    vec![
        (
            Later,
            bodies(
                |seen, status| route(seen) == "PUT binding" && status == 202,
                |body| body["credentials"] = json!({}),
            ),
            &["bind-early-secrets"],
        ),
        (
            Later,
            bodies(|seen, _| route(seen) == "GET binding", |body| *body = json!({})),
            &["bind-fetch"],
        ),
        (
            AtOnce,
            when(
                |seen, _| {
                    route(seen) == "PUT binding" && seen.json().get("bind_resource").is_none()
                },
                |answer| answer.status = 400,
            ),
            &["bind-without-app", "rotate"],
        ),
        (AtOnce, given(|body| body["route_service_url"] = json!("r")), &["bind-permissions"]),
        (
            AtOnce,
            given(|body| body["volume_mounts"] = json!([{"mode": "rw"}])),
            &["bind-volume-mounts"],
        ),
        (
            AtOnce,
            given(|body| body["endpoints"] = json!([{"host": "h", "ports": [443]}])),
            &["bind-endpoints"],
        ),
        (AtOnce, given(|body| body["endpoints"] = json!([{"host": "h"}])), &["bind-endpoints"]),
        (
            AtOnce,
            given(|body| body["metadata"]["expires_at"] = json!("2030-01-01T00:00:00.0Z")),
            &["bind-expiry"],
        ),
        (
            AtOnce,
            given(|body| body["metadata"]["expires_at"] = json!("2031-02-01T00:00:00+01:00")),
            &["bind-expiry"],
        ),
        (
            AtOnce,
            given(|body| body["metadata"]["expires_at"] = json!("2031-02-01T00:00:00Z")),
            &["bind-expiry"],
        ),
        (AtOnce, status(400, 404, "{}"), &["rotate-unknown"]),
        (
            Later,
            when(
                |seen, status| route(seen) == "DELETE instance" && status == 422,
                |answer| answer.status = 500,
            ),
            &["deprovision-bound"],
        ),
        (
            Later,
            when(
                |seen, status| route(seen) == "PUT binding" && status == 200,
                |answer| answer.status = 201,
            ),
            &["deprovision-bound", "bind-again"],
        ),
    ]
}
