//! The runners of this crate keep the contract of every runner, as far as their nature lets them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::in_process::InProcess;
use engine::names::RunName;
use engine::ports::{Offer, Runner};
use engine::record::Reason;
use engine::testing::ScriptedRunner;
use engine::testing::runner_contract::{Harness, Nature};
use engine::testing::scripted_runner::{Act, failure};
use osb::jobs::contract::Capability;
use osb::{Broker, Catalog, Failure, InstanceId, Output, Work};
use serde_json::json;

fn made() -> Output {
    Output { dashboard_url: Some("https://dashboard.example".into()), ..Output::default() }
}

/// Does what its plan says, as the contract's script does.
#[derive(Clone, Default)]
struct Author(Arc<Mutex<HashMap<InstanceId, usize>>>);

impl Author {
    fn effect(&self, work: &Work) {
        *self.0.lock().unwrap().entry(work.instance_id.clone()).or_default() += 1;
    }
}

impl Broker for Author {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        Ok(Catalog::default())
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        self.effect(&work);
        match work.plan_id.as_str() {
            "fails" => return Err(Failure::failed("no disk left")),
            "junk" => panic!("made it"),
            "slow" => tokio::time::sleep(Duration::from_secs(2)).await,
            "repeats" => loop {
                self.effect(&work);
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            "reports" => work.progress.report("half way (50%)"),
            _ => {}
        }
        if matches!(work.plan_id.as_str(), "sleeps" | "stubborn" | "reports") {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        Ok(made())
    }

    async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }
}

#[async_trait]
impl Harness for Author {
    async fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(InProcess::new(self.clone()))
    }

    fn nature(&self) -> Nature {
        let capabilities = &[Capability::Update, Capability::RequestFile, Capability::Progress];
        Nature { survives: false, prints: false, capabilities }
    }

    async fn effects(&self, instance: &InstanceId) -> usize {
        self.0.lock().unwrap().get(instance).copied().unwrap_or_default()
    }

    async fn lose(&self, _: &RunName) {
        panic!("a run in this process is lost with it");
    }
}

struct Scripted(ScriptedRunner);

impl Scripted {
    fn new() -> Self {
        let runner = ScriptedRunner::new(|work| match work.plan_id.as_str() {
            "succeeds" => Act::End(Duration::ZERO, Ok(made())),
            "slow" => Act::End(Duration::from_secs(2), Ok(made())),
            "fails" => Act::End(Duration::ZERO, Err(failure(Reason::Reported, "no disk left"))),
            "junk" => Act::End(Duration::ZERO, Err(failure(Reason::Killed, "it panicked"))),
            "reports" => Act::Say("half way (50%)"),
            _ => Act::Hang,
        });
        let capabilities = vec![Capability::Progress];
        runner.set_offer(Offer {
            catalog: json!({"services": []}),
            capabilities,
            ..Offer::default()
        });
        Self(runner)
    }
}

#[async_trait]
impl Harness for Scripted {
    async fn runner(&self) -> Arc<dyn Runner> {
        Arc::new(self.0.clone())
    }

    fn nature(&self) -> Nature {
        Nature { prints: false, ..Nature::default() }
    }

    async fn effects(&self, instance: &InstanceId) -> usize {
        let works = self.0.works();
        works.iter().filter(|work| work.instance_id == *instance).count()
    }

    async fn lose(&self, run: &RunName) {
        self.0.lose(run);
    }
}

mod in_process {
    engine::runner_contract!(super::Author::default());
}

mod scripted {
    engine::runner_contract!(super::Scripted::new());
}
