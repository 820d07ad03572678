//! A Lease before an API server that answers as a test says.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;

use super::*;

/// An API server that has one Lease, and writes down what it is asked.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Value>>,
    asked: Mutex<Vec<String>>,
    /// It answers nobody.
    silent: AtomicBool,
    /// It has an error for everybody, after so long.
    fails_after: Mutex<Option<Duration>>,
}

impl Server {
    /// Somebody writes it.
    fn write(&self, mut lease: Value) -> Value {
        let mut kept = self.lease.lock().unwrap();
        let before = kept.as_ref().and_then(|it| it["metadata"]["resourceVersion"].as_str());
        let next = before.map_or(1, |version| version.parse::<u64>().unwrap() + 1);
        lease["metadata"]["resourceVersion"] = json!(next.to_string());
        *kept = Some(lease.clone());
        lease
    }

    fn answer(&self, method: &str, body: Option<Value>) -> (u16, Value) {
        self.asked.lock().unwrap().push(method.to_owned());
        let known = self.lease.lock().unwrap().clone();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method, known, body) {
            ("GET", Some(known), _) => (200, known),
            ("GET", None, _) => (404, refusal(404, "NotFound")),
            ("PUT", Some(known), Some(body)) if version(&known) != version(&body) => {
                (409, refusal(409, "Conflict"))
            }
            (_, _, body) => (200, self.write(body.unwrap())),
        }
    }

    fn lead(self: &Arc<Self>) -> Arc<Lead> {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                if server.silent.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let fails_after = *server.fails_after.lock().unwrap();
                if let Some(after) = fails_after {
                    tokio::time::sleep(after).await;
                    let answer = refusal(500, "InternalError").to_string();
                    let response = Response::builder().status(500).body(answer.into_bytes().into());
                    return response.map_err(Into::<tower::BoxError>::into);
                }
                let method = request.method().to_string();
                let bytes = request.into_body().collect_bytes().await?;
                let (status, answer) = server.answer(&method, serde_json::from_slice(&bytes).ok());
                let answer = Body::from(answer.to_string().into_bytes());
                let response = Response::builder().status(status).body(answer);
                response.map_err(Into::<tower::BoxError>::into)
            }
        });
        Arc::new(Lead::new(Client::new(service, "n"), "n", "b", "me"))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// The task that keeps a Lease.
fn kept(lead: &Arc<Lead>) -> tokio::task::JoinHandle<()> {
    let lead = Arc::clone(lead);
    tokio::spawn(async move { lead.keep().await })
}

fn refusal(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""})
}

#[tokio::test]
async fn what_is_ours_is_written_and_looked_at_only_after_somebody_else_wrote() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    let mut known = Known::default();
    lead.step(&mut known).await.unwrap();
    assert_eq!(server.asked(), ["GET", "POST"]);
    lead.step(&mut known).await.unwrap();
    assert_eq!(server.asked(), ["PUT"]);
    let mut touched = server.lease.lock().unwrap().clone().unwrap();
    server.write(touched.clone());
    lead.step(&mut known).await.unwrap();
    assert!(known.ours.is_some());
    assert_eq!(server.asked(), ["PUT", "GET", "PUT"]);
    touched["spec"]["holderIdentity"] = json!("other");
    server.write(touched);
    lead.step(&mut known).await.unwrap();
    assert!(known.ours.is_none(), "it is another's");
    assert_eq!(server.asked(), ["PUT", "GET"]);
}

#[tokio::test]
async fn what_was_given_back_while_it_was_renewed_is_not_taken_again() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    let mut known = Known::default();
    lead.step(&mut known).await.unwrap();
    lead.tell(true);
    lead.give_back().await;
    lead.step(&mut known).await.unwrap();
    assert!(known.ours.is_none());
    let lease = server.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], Value::Null, "the next need not wait");
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_it_back_leads_no_more_whatever_the_api_server_answers() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    lead.step(&mut Known::default()).await.unwrap();
    lead.tell(true);
    server.silent.store(true, Ordering::Relaxed);
    let cut = tokio::time::timeout(Duration::from_secs(5), lead.give_back()).await;
    assert!(cut.is_err() && !*lead.held().borrow(), "nobody answers");
    lead.tell(true);
    assert!(!*lead.held().borrow(), "an answer that came late is none");
    server.silent.store(false, Ordering::Relaxed);
    server.asked();
    lead.give_back().await;
    let lease = server.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], Value::Null, "it is given back after all");
    assert_eq!(server.asked(), ["GET", "PUT"]);
    lead.give_back().await;
    assert_eq!(server.asked(), Vec::<String>::new(), "once");
}

/// Who leads no more may have been about to.
#[tokio::test(start_paused = true)]
async fn what_becomes_ours_while_it_is_given_back_is_left_to_others() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    server.silent.store(true, Ordering::Relaxed);
    let keeping = kept(&lead);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = tokio::time::timeout(Duration::from_secs(1), lead.give_back()).await;
    // As if the write that was under way had come there.
    server.write(json!({"metadata": {}, "spec": {"holderIdentity": "me"}}));
    server.silent.store(false, Ordering::Relaxed);
    keeping.await.unwrap();
    let lease = server.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], Value::Null, "the next need not wait");
    assert!(!*lead.held().borrow());
}

#[tokio::test(start_paused = true)]
async fn whoever_holds_it_or_looks_at_it_finds_that_an_earlier_time_is_back() {
    let held_by = |holder: &str| json!({"metadata": {}, "spec": {"holderIdentity": holder}});
    for (case, holder, writes, restored, undone) in [
        ("ours, from before our last word", "me", 3, Some(("me", 2)), true),
        ("another's, from before its last word", "other", 3, Some(("other", 2)), true),
        ("ours, from before another had it", "other", 3, Some(("me", 2)), true),
        ("another's, from before we had it", "me", 3, Some(("other", 2)), true),
        ("nobody's, and there was none", "me", 3, None, true),
        ("as it was", "other", 3, Some(("other", 3)), false),
        ("taken by another", "me", 3, Some(("other", 9)), false),
    ] {
        let server = Arc::new(Server::default());
        (0..writes).for_each(|_| drop(server.write(held_by(holder))));
        let lead = server.lead();
        let mut known = Known::default();
        lead.step(&mut known).await.unwrap();
        assert!(!lead.is_undone(), "{case}");
        *server.lease.lock().unwrap() = restored.map(|(holder, version)| {
            let mut lease = held_by(holder);
            lease["metadata"]["resourceVersion"] = json!(version.to_string());
            lease
        });
        server.asked();
        lead.step(&mut known).await.unwrap();
        assert_eq!(lead.is_undone(), undone, "{case}");
        if undone && restored.is_some() {
            assert!(!server.asked().ends_with(&["GET".to_owned(), "PUT".to_owned()]), "{case}");
        }
    }
}

/// From when on nobody else has led; between two terms somebody may have.
#[tokio::test(start_paused = true)]
async fn a_term_lasts_from_when_it_was_taken_and_a_new_one_begins_anew() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    let keeping = kept(&lead);
    assert_eq!(lead.lasted(), Duration::ZERO);
    lead.held().wait_for(|held| *held).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let lasted = lead.lasted();
    assert!((99..=100).contains(&lasted.as_secs()), "{lasted:?}: it was renewed meanwhile");
    let other = json!({"metadata": {}, "spec": {"holderIdentity": "other"}});
    server.write(other.clone());
    server.write(other);
    lead.held().wait_for(|held| !*held).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    lead.held().wait_for(|held| *held).await.unwrap();
    assert!(lead.lasted() < Duration::from_secs(10), "{:?}", lead.lasted());
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_renew_it_knows_in_time_that_it_is_held_no_more() {
    let of = Duration::from_secs;
    for (case, fails_after) in [
        ("nobody answers", None),
        ("there are errors", Some(of(0))),
        ("there are errors, late", Some(of(3))),
    ] {
        let server = Arc::new(Server::default());
        let lead = server.lead();
        let keeping = kept(&lead);
        lead.held().wait_for(|held| *held).await.unwrap();
        let renewed = Instant::now();
        server.silent.store(fails_after.is_none(), Ordering::Relaxed);
        *server.fails_after.lock().unwrap() = fails_after;
        lead.held().wait_for(|held| !*held).await.unwrap();
        let held = renewed.elapsed().as_millis();
        assert!((9_900..=10_010).contains(&held), "{case}: {held} ms");
        keeping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_could_not_renew_it_once_tries_again_before_its_time_is_over() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    let keeping = kept(&lead);
    let mut held = lead.held();
    held.wait_for(|held| *held).await.unwrap();
    *server.fails_after.lock().unwrap() = Some(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(8)).await;
    *server.fails_after.lock().unwrap() = None;
    held.mark_unchanged();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!held.has_changed().unwrap(), "it was renewed in the two seconds that were left");
    keeping.abort();
}

/// Its timers stand still then: it finds out when it looks, and not before.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_slept_leads_no_more_whatever_its_timers_say() {
    let server = Arc::new(Server::default());
    let lead = server.lead();
    let keeping = kept(&lead);
    lead.held().wait_for(|held| *held).await.unwrap();
    assert!(lead.left() > Duration::from_secs(5), "{:?}", lead.left());
    waking::tests::sleep(60);
    assert_eq!(lead.left(), Duration::ZERO);
    // Nobody has taken it: it is renewed, and what it led before is another term.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(lead.left() > Duration::from_secs(5), "{:?}", lead.left());
    assert!(lead.lasted() <= Duration::from_secs(10), "{:?}", lead.lasted());
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_in_an_earlier_time() {
    let server = Arc::new(Server::default());
    server.write(json!({"metadata": {}, "spec": {}}));
    let lead = server.lead();
    let keeping = kept(&lead);
    lead.held().wait_for(|held| *held).await.unwrap();
    server.lease.lock().unwrap().take();
    lead.undone().await;
    keeping.await.unwrap();
    assert!(!*lead.held().borrow());
    assert_eq!(lead.left(), Duration::ZERO);
}
