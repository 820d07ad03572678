//! A client that hangs up takes nothing back: what it asked for is recorded, and so it is carried out.

use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use engine::ports::{Offer, Store};
use engine::record::{Lifecycle, Phase, Reason, Record};
use engine::testing::scripted_runner::{Act, failure, fitting_output};
use engine::testing::{ScriptedRunner, TestClock};
use engine::{Policy, Ports};
use osb::{Backend as _, Call};
use standalone::seal::KeySource;
use standalone::store::{EmbeddedStore, Options};
use tower_service::Service as _;

use super::*;

struct NoBackup;

#[async_trait]
impl Backup for NoBackup {
    async fn backup(&self) -> Result<File, Error> {
        Err(Error::internal("there is none"))
    }
}

/// An engine over a store that takes its time to write, and an instance.
struct Served {
    engine: Engine,
    runner: ScriptedRunner,
    store: Arc<EmbeddedStore>,
    _folder: tempfile::TempDir,
}

impl Served {
    /// With a broker that does this, whose instance was ordered.
    async fn new(act: Act) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let options = Options::new(folder.path().join("store"), KeySource::File(key));
        let store = Arc::new(EmbeddedStore::open(&options).unwrap());
        let runner = ScriptedRunner::new(move |_| act.clone());
        let engine = Engine::new(
            Policy::default(),
            Ports {
                store: Arc::clone(&store) as _,
                runner: Arc::new(runner.clone()),
                clock: Arc::new(TestClock::default()),
                observer: Arc::new(()),
            },
        );
        let catalog = json!({"services": [{
            "id": "s", "name": "db", "description": "d", "bindable": true,
            "plans": [{"id": "p", "name": "small", "description": "d"}],
        }]});
        engine.set_offer(Offer { catalog, ..Offer::default() }).await.unwrap();
        let ordered = json!({
            "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
        });
        let ordered = serde_json::from_value(ordered).unwrap();
        let call = Call { accepts_incomplete: true, ..Call::default() };
        let id = InstanceId::new("i").unwrap();
        engine.provision(&call, &id, ordered).await.unwrap();
        Self { engine, runner, store, _folder: folder }
    }

    async fn record(&self) -> Arc<Record> {
        let key = Key::Instance(InstanceId::new("i").unwrap());
        self.store.read(&key).await.unwrap().unwrap().record
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Record) -> bool) {
        let begun = Instant::now();
        while !is_so(&*self.record().await) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {:?}", self.record().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asks for it, and hangs up when it is recorded and before there is an answer.
    async fn asks_and_hangs_up(&self, route: &str, is_recorded: impl Fn(&Record) -> bool) {
        let admin = Admin {
            engine: self.engine.clone(),
            authentication: Authentication::Disabled,
            backup: Arc::new(NoBackup),
        };
        let request = Request::post(format!("/admin/v1/{route}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(r#"{"instance_id": "i"}"#))
            .unwrap();
        let mut routes = routes(admin);
        let mut answer = pin!(routes.call(request));
        let asked = std::future::poll_fn(|context| Poll::Ready(answer.as_mut().poll(context)));
        assert!(asked.await.is_pending(), "it is written before it is answered");
        self.until("recorded", is_recorded).await;
    }
}

#[tokio::test]
async fn a_retry_is_carried_out_whose_client_hangs_up() {
    let fails = Err(failure(Reason::ExitStatus, "not today"));
    let served = Served::new(Act::End(Duration::ZERO, fails)).await;
    let failed = |record: &Record| matches!(record.operation.phase, Phase::Failed(_));
    served.until("failed", failed).await;
    let well = |work: &osb::Work| Act::End(Duration::ZERO, Ok(fitting_output(work)));
    served.runner.script(well);
    served.asks_and_hangs_up("retry", |record| !failed(record)).await;
    let succeeded = |record: &Record| matches!(record.operation.phase, Phase::Succeeded);
    served.until("succeeded", succeeded).await;
}

#[tokio::test]
async fn a_purge_ends_runs_whose_client_hangs_up() {
    let served = Served::new(Act::Hang).await;
    let runs = served.runner.clone();
    served.until("begun", |_| !runs.kept().is_empty()).await;
    let purged = |record: &Record| record.lifecycle == Lifecycle::Deleted;
    served.asks_and_hangs_up("purge", purged).await;
    served.until("ended", |_| runs.kept().is_empty()).await;
}
