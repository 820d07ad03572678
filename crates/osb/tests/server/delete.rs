use std::sync::atomic::Ordering;

use osb::{Action, Error, ErrorKind, Reply};
use serde_json::json;

use crate::support::{BINDING, Heard, INSTANCE, Rig, delete};

const PATHS: [&str; 2] = [INSTANCE, BINDING];

#[tokio::test]
async fn item_47_missing_or_empty_ids_are_400() {
    let rig = Rig::new();
    for path in PATHS {
        for (query, names) in [
            ("", vec!["service_id", "plan_id"]),
            ("?service_id=&plan_id=", vec!["service_id", "plan_id"]),
            ("?service_id&plan_id", vec!["service_id", "plan_id"]),
            ("?service_id=db", vec!["plan_id"]),
            ("?plan_id=small", vec!["service_id"]),
            ("?service_id=%00&plan_id=small", vec!["service_id"]),
        ] {
            let description = rig.send(delete(&format!("{path}{query}"))).await.names(&names);
            assert!(!description.contains("body"), "{description}");
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_47_ids_that_are_oversized_repeated_or_badly_encoded_are_400() {
    let rig = Rig::new();
    let long = "x".repeat(10_000);
    for (name, right, other) in
        [("service_id", "db", "plan_id=small"), ("plan_id", "small", "service_id=db")]
    {
        for wrong in [
            format!("{name}={long}"),
            format!("{name}=db&{name}=log"),
            format!("{name}={right}&{name}={right}"),
            format!("{name}=&{name}={right}"),
            format!("{name}={right}&{name}"),
            format!("{name}=%FF"),
            format!("{name}={right}%FF"),
            format!("{name}=%C3"),
            format!("{name}=%ED%A0%80"),
            format!("{name}=%"),
            format!("{name}=%4"),
            format!("{name}=%zz"),
            format!("{name}=%0A"),
        ] {
            for query in [format!("{wrong}&{other}"), format!("{other}&{wrong}")] {
                for path in PATHS {
                    let answer = rig.send(delete(&format!("{path}?{query}"))).await;
                    let description = answer.names(&[name]);
                    let of_it = |told: &str| told.starts_with(&format!("{name}: "));
                    assert!(description.split("; ").all(of_it), "{query}: {description}");
                    assert!(!description.contains("xxx"), "{description}");
                }
            }
        }
    }
    for path in PATHS {
        let both = format!("{path}?service_id=%FF&plan_id={long}&plan_id=small");
        rig.send(delete(&both)).await.names(&["service_id", "plan_id"]);
        let flag = format!("{path}?service_id=db&plan_id=small&accepts_incomplete");
        for wrong in ["=true&accepts_incomplete=true", "=%FF", "=TRUE", ""] {
            rig.send(delete(&format!("{flag}{wrong}"))).await.names(&["accepts_incomplete"]);
        }
    }
    assert_eq!(rig.heard(), []);
    // What is no name of the API's is passed over, however it is written.
    for other in ["%FF=%FF", "x=1&x=2", "%", "=", "&&", "Service_id=%FF"] {
        let query = format!("{INSTANCE}?{other}&service_id=db&plan_id=small");
        assert_eq!(rig.send(delete(&query)).await.status, 200, "{other}");
    }
}

#[tokio::test]
async fn item_47_ids_in_the_body_are_told_to_be_in_the_query() {
    let rig = Rig::new();
    let body = json!({"service_id": "db", "plan_id": "small"});
    for path in PATHS {
        let description =
            rig.send(delete(path).json(&body)).await.names(&["service_id", "plan_id"]);
        assert!(
            description.contains("must be in the query")
                && description.contains("body of a DELETE is not read")
        );
        let both = delete(&format!("{path}?service_id=db&plan_id=small")).json(&body);
        assert_eq!(rig.send(both).await.status, 200);
    }
}

#[tokio::test]
async fn item_49_plans_that_left_the_catalog_can_still_be_deleted() {
    let rig = Rig::new();
    for path in PATHS {
        let answer = rig.send(delete(&format!("{path}?service_id=gone&plan_id=gone"))).await;
        assert_eq!((answer.status, answer.json()), (200, json!({})));
    }
    let [Heard::Deprovision(..), Heard::Unbind(..)] = &rig.heard()[..] else { panic!("both") };
    let asked = rig.backend.asked_async.lock().unwrap().clone();
    assert_eq!(asked, [(Action::Deprovision, None), (Action::Unbind, None)]);
}

#[tokio::test]
async fn item_47_replies_become_200_and_202() {
    let rig = Rig::new();
    for path in PATHS {
        for (reply, status, body) in [
            (Reply::Done(()), 200, json!({})),
            (Reply::Created(()), 200, json!({})),
            (Reply::Accepted { operation: "op".into(), body: () }, 202, json!({"operation": "op"})),
        ] {
            rig.answer(|answers| answers.remove = Ok(reply));
            let answer = rig.send(delete(&format!("{path}?service_id=db&plan_id=small"))).await;
            assert_eq!((answer.status, answer.json()), (status, body));
        }
        rig.answer(|answers| answers.remove = Err(Error::new(ErrorKind::Gone, "gone already")));
        rig.send(delete(&format!("{path}?service_id=db&plan_id=small"))).await.refusal(410, "Gone");
    }
}

#[tokio::test]
async fn item_47_async_required_goes_before_gone() {
    let rig = Rig::new();
    rig.backend.requires_async.store(true, Ordering::SeqCst);
    for path in PATHS {
        rig.send(delete(&format!("{path}?service_id=db&plan_id=small")))
            .await
            .refusal(422, "AsyncRequired");
    }
    let asked = rig.backend.asked_async.lock().unwrap().clone();
    let small = || Some("small".to_owned());
    assert_eq!(asked, [(Action::Deprovision, small()), (Action::Unbind, small())]);
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_08_a_failed_deprovision_tells_usable_but_not_repeatable_and_unbind_neither() {
    let rig = Rig::new();
    rig.answer(|answers| {
        answers.remove = Err(Error::internal("x").instance_usable(true).update_repeatable(true));
    });
    let told = json!({"error": "InternalError", "description": "x", "instance_usable": true});
    let answer = rig.send(delete(&format!("{INSTANCE}?service_id=db&plan_id=small"))).await;
    assert_eq!(answer.json(), told);
    let answer = rig.send(delete(&format!("{BINDING}?service_id=db&plan_id=small"))).await;
    assert_eq!(answer.json(), json!({"error": "InternalError", "description": "x"}));
}
