//! What is counted, as it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::client::Body;
use kubernetes::quarks::Counts;

use super::gate::{Gate, WAITS};
use super::harness::{PATIENCE, Town, before, pod, spec};
use super::support::wait;

/// Waits until it is counted so.
async fn counted(town: &Town, expected: Counts) {
    wait::until(&format!("not {expected:?}"), PATIENCE, async || {
        let counts = town.counts();
        if counts == expected { Ok(()) } else { Err(counts) }
    })
    .await;
}

const NONE: Counts =
    Counts { known: 0, going: 0, started: 0, succeeded: 0, failed: 0, looks_failed: 0 };

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_counted_as_they_begin_and_end_and_not_again_after_a_restart() {
    let mut town = Town::new("counts").await;
    assert_eq!(town.counts(), NONE);
    town.create("idle", spec("manual", &pod("true"))).await;
    counted(&town, Counts { known: 1, ..NONE }).await;
    let gate = Gate::new();
    town.create("good", spec("once", &before(&gate, pod(WAITS)))).await;
    town.create("bad", spec("once", &before(&gate, pod(&format!("{WAITS}; exit 1"))))).await;
    counted(&town, Counts { known: 3, going: 2, started: 2, ..NONE }).await;
    gate.open();
    town.ended("good", 1).await;
    town.ended("bad", 1).await;
    counted(&town, Counts { known: 3, started: 2, succeeded: 1, failed: 1, ..NONE }).await;
    town.trigger("idle", "now").await;
    town.ended("idle", 1).await;
    counted(&town, Counts { known: 3, started: 3, succeeded: 2, failed: 1, ..NONE }).await;
    town.create("long", spec("once", &pod("sleep 600"))).await;
    town.one_runs("long").await;
    town.kill();
    town.start().await;
    // How it stands, and nothing of what was before.
    counted(&town, Counts { known: 4, going: 1, ..NONE }).await;
    town.jobs().delete("long", &Default::default()).await.unwrap();
    counted(&town, Counts { known: 3, ..NONE }).await;
}

/// The API server refuses to make its Job so often, and then does.
#[tokio::test(flavor = "multi_thread")]
async fn each_look_that_a_failed_call_ends_is_counted_and_its_run_once() {
    const FAILURES: usize = 2;
    let mut town = Town::still("counts-failed").await;
    let (base, asked) = (town.cluster.client.clone(), Arc::new(AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (base, asked) = (base.clone(), Arc::clone(&asked));
        async move {
            let makes_job = request.method() == "POST" && request.uri().path().ends_with("/jobs");
            if makes_job && asked.fetch_add(1, Ordering::Relaxed) < FAILURES {
                let answer = http::Response::builder().status(503);
                return Ok(answer.body(Body::from(b"not now".to_vec())).unwrap());
            }
            base.send(request).await
        }
    });
    town.start_with(kube::Client::new(service, town.cluster.namespace.clone())).await;
    town.create("a", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.no_jobs().await;
    let expected = Counts { known: 1, started: 1, succeeded: 1, ..NONE };
    counted(&town, Counts { looks_failed: FAILURES as u64, ..expected }).await;
}
