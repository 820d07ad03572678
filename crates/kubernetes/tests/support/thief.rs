//! Somebody who steals Leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use testkit::random::Random;
use tokio::time::sleep;

/// Takes these away from whoever has them, and does nothing with them; counts how often.
pub(crate) async fn thief(leases: Api<Lease>, mut random: Random, stolen: Arc<AtomicU64>) {
    loop {
        sleep(Duration::from_millis(500 + random.below(2000))).await;
        for lease in leases.list(&ListParams::default()).await.into_iter().flatten() {
            let patch = Patch::Merge(json!({
                "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1},
            }));
            let name = lease.metadata.name.unwrap_or_default();
            let patched = leases.patch(&name, &PatchParams::default(), &patch).await;
            stolen.fetch_add(u64::from(patched.is_ok()), Ordering::Relaxed);
        }
    }
}
