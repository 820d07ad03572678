//! Runs as Jobs, in real pods.

mod support;

use std::sync::Arc;

use async_trait::async_trait;
use engine::names::RunName;
use engine::ports::Runner;
use engine::testing::runner_contract::{BROKER, Harness};
use kube::api::DeleteParams;
use osb::InstanceId;

use support::jobs::Jobs;

#[async_trait]
impl Harness for Jobs {
    async fn runner(&self) -> Arc<dyn Runner> {
        self.open().await
    }

    async fn effects(&self, instance: &InstanceId) -> usize {
        Jobs::effects(self, instance)
    }

    async fn lose(&self, run: &RunName) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.delete_pods_of(run, &now).await;
    }
}

engine::runner_contract!(Jobs::new("runner", BROKER).await);
