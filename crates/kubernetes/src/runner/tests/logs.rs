//! A report that is in a log, before a simulated API server that may not have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::{Clock, RunState, Runner as _};
use engine::record::Timestamp;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::super::seen::{Periods, Seen};
use super::super::settings::JobSettings;
use super::super::stage::End;
use super::super::{Agents, Followed, JobRunner, Keys, Mounts, Places, Shared, Source};
use super::status::running;
use super::{MADE, job, pod};
use crate::Bonds;
use crate::server_time::ServerTime;

/// A clock that is set.
pub(super) struct Set(AtomicI64);

impl Set {
    pub(super) fn at(second: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(second)))
    }
}

#[async_trait]
impl Clock for Set {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed).unsigned_abs() * 1000)
    }

    async fn sleep(&self, _: Duration) {}
}

/// Gives out no log, with this status or none, and answers all else as long as it is there: it has no Job any more.
fn server(is_there: &Arc<AtomicBool>, of_log: Option<u16>) -> Client {
    let is_there = Arc::clone(is_there);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_there = Arc::clone(&is_there);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let is_log = parts.uri.path().ends_with("/log");
            if (is_log && of_log.is_none()) || !is_there.load(Ordering::Relaxed) {
                return Err(tower::BoxError::from("the connection was closed"));
            }
            let said = |status: u16, message: &str| {
                (status, json!({"message": message, "code": status}).to_string().into_bytes())
            };
            let (status, body) = match (parts.method, of_log.filter(|_| is_log)) {
                (_, Some(status)) => said(status, "come again"),
                (Method::POST, None) => (201, body.to_vec()),
                _ => said(404, "it is gone"),
            };
            Ok(Response::builder().status(status).body(Body::from(body))?)
        }
    });
    Client::new(service, "n")
}

/// The runs of a broker, which are known of by nothing but what a test says.
pub(super) async fn runs(client: &Client, clock: &Arc<Set>) -> Shared {
    let settings = JobSettings::new("n", "b", "image", "agent");
    let (client, time) = ServerTime::by(Arc::clone(clock) as _, client, "n");
    Shared {
        readings: Default::default(),
        keys: Keys::open(client.clone(), Arc::clone(&time), "n", "b").await.unwrap(),
        client,
        time,
        label: "b".to_owned(),
        namespaces: vec!["n".to_owned()],
        periods: Periods::of(&settings),
        delivery: settings.delivery.clone(),
        key_rotation: settings.key_rotation,
        linger: settings.linger,
        source: Source::One(Box::new(settings)),
        forgets_pods: false,
        makes_second_pods: true,
        known: Arc::default(),
        followed: Followed::default(),
        mounts: Mounts::default(),
        agents: Agents::default(),
        places: Places::default(),
        bonds: Bonds::default(),
    }
}

/// What of its report is no more than where it is.
pub(super) fn ended_at(second: i64) -> End {
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
    let job = job(&json!({}));
    let seen = Seen { job: Some(job), pods: vec![pod("a", &running())], ..Seen::default() };
    let yet = "it has ended, and its report is in its pod's log: it does not come";
    let busy =
        "it has ended, and its report is in its pod's log: the API server has too much to do";
    for (of_log, after, answers, expected) in [
        (None, 0, true, Ok(("goes on", yet))),
        (None, 300, true, Ok(("goes on", yet))),
        (None, 0, false, Ok(("goes on", yet))),
        (None, 301, true, Ok(("lost", "its report in its pod's log was not to be had: no answer"))),
        (None, 301, false, Err("no answer from the API server")),
        (Some(429), 0, true, Ok(("goes on", busy))),
        (Some(429), 300, true, Ok(("goes on", busy))),
        (Some(429), 301, true, Ok(("lost", "the API server has too much to do: come again"))),
    ] {
        let is_there = Arc::new(AtomicBool::new(true));
        let clock = Arc::new(Set(AtomicI64::new(MADE)));
        let shared = runs(&server(&is_there, of_log), &clock).await;
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
        assert!(is_as_expected, "{of_log:?}, after {after} s, it answers: {answers}: {said:?}");
    }
}

#[tokio::test]
async fn what_was_given_where_nothing_owns_it_is_looked_for() {
    let client = server(&Arc::new(AtomicBool::new(true)), None);
    for (further, expected) in [(None, false), (Some("jobs"), true)] {
        let mut shared = runs(&client, &Arc::new(Set(AtomicI64::new(MADE)))).await;
        shared.namespaces.extend(further.map(str::to_owned));
        let runner = JobRunner { shared: Arc::new(shared), _tasks: Arc::default() };
        assert_eq!(runner.hides_leftovers(), expected, "{further:?}");
    }
}
