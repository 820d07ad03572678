//! A client that writes down every call, watches and first lists left out.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use kube::client::Body;
use tokio::time::sleep;

/// How long a call may take to come that is to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is looked for where a pod does not begin: of it none is expected.
pub(crate) const LOOK: &str = "GET configmaps";
/// In which one would come that is not to.
const MOMENT: Duration = Duration::from_secs(1);

/// What was called: `POST secrets`, `PATCH serviceinstances/status`.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// A client that writes down its calls here.
    pub(crate) fn of(&self, client: &Client, namespace: &str) -> Client {
        let (base, calls) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            calls.note(&request);
            let base = base.clone();
            async move { base.send(request).await }
        });
        Client::new(service, namespace)
    }

    fn note(&self, request: &http::Request<Body>) {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            return;
        }
        let path = request.uri().path();
        let below = path.split("/namespaces/").nth(1).and_then(|rest| rest.split_once('/'));
        let mut words = below.map_or(path, |(_, rest)| rest).split('/');
        let kind = words.next().unwrap_or_default();
        let part = words.nth(1).map(|part| format!("/{part}")).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {kind}{part}", request.method()));
    }

    /// As [`Self::take`], once there were so many, and a moment later, in which there are to be no more.
    pub(crate) async fn settled(&self, expected: usize) -> Vec<String> {
        let begun = Instant::now();
        let so_many = |calls: &[String]| calls.iter().filter(|call| *call != LOOK).count();
        while so_many(&self.0.lock().unwrap()) < expected && begun.elapsed() < PATIENCE {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(MOMENT).await;
        self.take()
    }

    /// What was called since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}
