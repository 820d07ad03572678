//! What the command says to do after something failed: only what helps.

use serde_json::{Value, json};

use crate::stub::{Run, Stub, answer, cut_short, operation, record};

/// The binding's or the instance's record, as the query asks for.
fn asked_for(query: &str) -> Option<&'static str> {
    query.contains("binding_id=b").then_some("b")
}

/// Refuses orders so, while the instance and the binding `b` stand as given.
fn refusing(status: u16, body: Value, instance: Value, binding: Option<Value>) -> Stub {
    Stub::new(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("PUT" | "PATCH" | "DELETE", _) => Some(answer(status, &body)),
        (_, "/admin/v1/record") => Some(match (asked_for(&request.query), &binding) {
            (None, _) => answer(200, &instance),
            (Some(_), Some(binding)) => answer(200, binding),
            (Some(_), None) => answer(404, &json!({"description": "no such binding"})),
        }),
        _ => None,
    })
}

fn idle() -> Value {
    record("i", None, "ready", &operation("provision", "succeeded"))
}

fn busy() -> Value {
    record("i", None, "ready", &operation("update", "running"))
}

fn hint(run: &Run) -> &str {
    run.stderr.split_once("hint: ").map_or("", |(_, hint)| hint.trim_end())
}

#[test]
fn a_bind_that_failed_can_be_read_retried_or_given_up() {
    let stub = Stub::polled(&[json!({"state": "failed", "description": "no user left"})]);
    let run = stub.run(&["bind", "i", "b"]);
    assert_eq!(run.code, 1, "{run:?}");
    for command in ["logs --instance i --binding b", "retry i b", "unbind i b"] {
        assert!(hint(&run).contains(&format!("manciple {command}")), "{run:?}");
    }
}

#[test]
fn a_binding_that_was_made_and_not_fetched_is_fetched_by_the_same_order() {
    let fetched = "GET /v2/service_instances/i/service_bindings/b";
    for (broken, expected) in [(true, "manciple bind i b"), (false, "manciple unbind i b")] {
        let stub = Stub::new(move |request| match request.method.as_str() {
            "PUT" => Some(answer(202, &json!({}))),
            _ if request.path.ends_with("/last_operation") => {
                Some(answer(200, &json!({"state": "succeeded"})))
            }
            _ if request.line() == fetched && broken => Some(cut_short(b"{")),
            _ if request.line() == fetched => Some(answer(404, &json!({}))),
            _ => None,
        });
        let run = stub.run(&["bind", "i", "b", "--timeout", "2s"]);
        assert_eq!(run.code, if broken { 3 } else { 6 }, "{run:?}");
        assert!(run.stderr.contains("which was made"), "{run:?}");
        assert!(hint(&run).contains(expected), "{run:?}");
    }
}

#[test]
fn what_was_not_accepted_has_no_log_and_nothing_to_retry() {
    let order: [&[&str]; 3] = [
        &["bind", "i", "b"],
        &["update", "i", "--plan", "large"],
        &["provision", "db", "small", "i"],
    ];
    for (status, word) in [(400, ""), (409, ""), (422, "ConcurrencyError"), (500, "")] {
        for order in order {
            let body = json!({"error": word, "description": "no"});
            let run = refusing(status, body, idle(), None).run(order);
            for command in ["manciple logs", "manciple retry"] {
                assert!(!run.stderr.contains(command), "{status} {order:?}: {run:?}");
            }
        }
    }
}

#[test]
fn what_a_former_order_left_is_to_be_removed_first() {
    let failed = record("i", Some("b"), "broken", &operation("bind", "failed"));
    let broken = record("i", None, "broken", &operation("provision", "failed"));
    for status in [409, 500] {
        let body = json!({"description": "exists with other attributes"});
        let stub = refusing(status, body, broken.clone(), Some(failed.clone()));
        let run = stub.run(&["bind", "i", "b"]);
        assert!(hint(&run).ends_with("manciple unbind i b"), "{run:?}");
        let run = stub.run(&["provision", "db", "small", "i"]);
        assert!(hint(&run).ends_with("manciple deprovision i"), "{run:?}");
    }
    let made = record("i", Some("b"), "ready", &operation("bind", "succeeded"));
    let run = refusing(409, json!({}), idle(), Some(made)).run(&["bind", "i", "b"]);
    assert!(hint(&run).ends_with("manciple status i b"), "{run:?}");
}

#[test]
fn what_is_in_the_way_is_named() {
    let conflict = json!({"error": "ConcurrencyError", "description": "busy"});
    let bind: &[&str] = &["bind", "i", "b"];
    let update: &[&str] = &["update", "i", "--plan", "large"];
    for (instance, order, expected) in [
        (busy(), bind, "manciple status i --watch"),
        (idle(), bind, "manciple status i b --watch"),
        (busy(), update, "manciple status i --watch"),
        (idle(), update, "manciple bindings i --state busy"),
    ] {
        let run = refusing(422, conflict.clone(), instance, None).run(order);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(hint(&run).ends_with(expected), "{expected}: {run:?}");
    }
}

#[test]
fn what_has_to_go_first_is_named() {
    let bound = json!({"description": "the service instance has bindings; unbind them first"});
    for (bindings, expected) in [
        (json!([record("i", Some("b"), "ready", &operation("bind", "succeeded"))]), "bindings i"),
        (json!([]), ""),
    ] {
        let bound = bound.clone();
        let stub = Stub::new(move |request| match request.line().as_str() {
            "DELETE /v2/service_instances/i" => Some(answer(422, &bound)),
            "GET /admin/v1/bindings" => Some(answer(200, &json!({"items": bindings}))),
            _ => None,
        });
        let run = stub.run(&["deprovision", "i"]);
        assert_eq!(run.code, 4, "{run:?}");
        assert!(hint(&run).ends_with(expected), "{run:?}");
        assert_eq!(hint(&run).is_empty(), expected.is_empty(), "{run:?}");
    }
}

#[test]
fn an_update_that_would_fail_again_is_not_to_be_retried() {
    for (repeatable, retried) in [(None, true), (Some(true), true), (Some(false), false)] {
        let mut state = json!({"state": "failed", "description": "too small"});
        if let Some(repeatable) = repeatable {
            state["update_repeatable"] = repeatable.into();
        }
        let run = Stub::polled(&[state]).run(&["update", "i", "--plan", "large"]);
        assert_eq!(run.code, 1, "{run:?}");
        assert_eq!(hint(&run).contains("manciple retry i"), retried, "{run:?}");
    }
}

#[test]
fn why_it_failed_is_told_even_if_nothing_more_can_be_shown() {
    let shown = std::sync::atomic::AtomicBool::new(false);
    let stub = Stub::new(move |request| match request.path.as_str() {
        "/admin/v1/record" => Some(match shown.swap(true, std::sync::atomic::Ordering::Relaxed) {
            false => answer(200, &busy()),
            true => answer(503, &json!({})),
        }),
        path if path.ends_with("/last_operation") => {
            Some(answer(200, &json!({"state": "failed", "description": "no disk left"})))
        }
        _ => None,
    });
    let run = stub.run(&["status", "i", "--watch"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("the update of instance i failed: no disk left"), "{run:?}");
}
