//! When a schedule begins.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::time::{sleep, timeout};

/// How long nobody may lead.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// Waits until somebody leads in this namespace. On a busy machine nobody does for seconds, in which nothing that is to go
/// wrong can. Where it does not come to that, whatever fails for it says more than this.
pub(crate) async fn until_led(client: &Client, namespace: &str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let is_led = async || {
        let mut all = leases.list(&ListParams::default()).await.into_iter().flatten();
        all.any(|lease| lease.spec.is_some_and(|spec| spec.holder_identity.is_some()))
    };
    let led = async {
        while !is_led().await {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(PATIENCE, led).await;
}
