//! A report that is in a log, before a simulated API server that may not have it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::{Clock, RunState};
use engine::record::Timestamp;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;

use super::super::seen::{End, Kept};
use super::super::settings::JobSettings;
use super::super::watch::Seen;
use super::super::{Agents, Followed, Keys, Mounts, Shared, Source};
use super::status::running;
use super::{MADE, job, pod};
use crate::server_time::ServerTime;

/// A clock that is set.
struct Set(AtomicI64);

#[async_trait]
impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed).unsigned_abs() * 1000)
    }

    async fn sleep(&self, _: Duration) {}
}

/// Gives out no log, and answers all else as long as it is there: it has no Job any more.
fn server(is_there: &Arc<AtomicBool>) -> Client {
    let is_there = Arc::clone(is_there);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_there = Arc::clone(&is_there);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            if parts.uri.path().ends_with("/log") || !is_there.load(Ordering::Relaxed) {
                return Err(tower::BoxError::from("the connection was closed"));
            }
            let (status, body) = match parts.method {
                Method::POST => (201, body.to_vec()),
                _ => (404, br#"{"message": "it is gone", "code": 404}"#.to_vec()),
            };
            Ok(Response::builder().status(status).body(Body::from(body))?)
        }
    });
    Client::new(service, "n")
}

/// The runs of a broker, which are known of by nothing but what a test says.
async fn runs(client: &Client, clock: &Arc<Set>) -> Shared {
    let settings = JobSettings::new("n", "b", "image", "agent");
    let (client, time) = ServerTime::by(Arc::clone(clock) as _, client, "n");
    Shared {
        keys: Keys::open(client.clone(), "n", "b").await.unwrap(),
        client,
        time,
        label: "b".to_owned(),
        namespaces: vec!["n".to_owned()],
        kept: Kept::of(&settings),
        delivery: settings.delivery.clone(),
        key_rotation: settings.key_rotation,
        linger: settings.linger,
        source: Source::One(Box::new(settings)),
        forgets_pods: false,
        known: Arc::default(),
        followed: Followed::default(),
        mounts: Mounts::default(),
        agents: Agents::default(),
        store: OnceLock::new(),
        lead: OnceLock::new(),
    }
}

/// What of its report is no more than where it is.
fn ended_at(second: i64) -> End {
    let digest = "0f".repeat(32);
    End {
        message: Some(format!("MANCIPLE1 logged a5f0123456789abc {digest} 100000")),
        said: None,
        exit_code: 0,
        reason: "Completed".to_owned(),
        pod: None,
        at: Some(second),
    }
}

#[tokio::test]
async fn a_log_that_does_not_come_is_given_up_after_a_while_unless_the_api_server_is_away() {
    let name = RunName::parse("run-1").unwrap();
    let job = job(&serde_json::json!({}));
    let seen = Seen { job: Some(job), pods: vec![pod("a", &running())], warning: None };
    let yet = "it has ended, and its report is in its pod's log: it does not come";
    for (after, answers, expected) in [
        (0, true, Ok(("goes on", yet))),
        (300, true, Ok(("goes on", yet))),
        (0, false, Ok(("goes on", yet))),
        (301, true, Ok(("lost", "its report in its pod's log was not to be had: no answer"))),
        (301, false, Err("no answer from the API server")),
    ] {
        let is_there = Arc::new(AtomicBool::new(true));
        let clock = Arc::new(Set(AtomicI64::new(MADE)));
        let shared = runs(&server(&is_there), &clock).await;
        clock.0.store(MADE + after, Ordering::Relaxed);
        is_there.store(answers, Ordering::Relaxed);
        let state = shared.reported(&name, &seen, &ended_at(MADE)).await;
        let said = match state {
            Ok(RunState::Running { progress }) => Ok(("goes on", progress.unwrap_or_default())),
            Ok(RunState::Lost { why }) => Ok(("lost", why)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        let is_as_expected = match (&said, expected) {
            (Ok((state, said)), Ok((expected, words))) => {
                *state == expected && said.contains(words)
            }
            (Err(said), Err(words)) => said.contains(words),
            _ => false,
        };
        assert!(is_as_expected, "after {after} s, it answers: {answers}: {said:?}");
    }
}
