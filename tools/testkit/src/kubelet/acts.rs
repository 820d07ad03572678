//! What pods are to do, and what they did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use engine::ports::Offer;
use serde_json::Value;
use tokio::time::Instant;

/// What a broker does.
#[derive(Debug, Clone)]
pub struct Act {
    /// Until the pod begins.
    pub begins: Duration,
    /// From then until its end.
    pub lasts: Duration,
    /// How it ends.
    pub end: End,
    /// Where it is to be tried or asked again: after how many seconds it wants that.
    pub again: Option<u64>,
}

impl Act {
    /// One that ends well.
    pub fn well(begins: Duration, lasts: Duration) -> Self {
        Self { begins, lasts, end: End::Well, again: None }
    }
}

/// How a broker ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Well; a bind with a password that names its operation.
    Well,
    /// With these words.
    Fails(String),
    /// With these words, to be tried again.
    Transient(String),
    /// Its container is killed, and leaves nothing.
    Killed,
    /// Its work goes on elsewhere, and is this far.
    Elsewhere(String),
}

/// What the broker in an image offers.
pub type Offers = Arc<dyn Fn(&str) -> Offer + Send + Sync>;

/// Decides what the broker of an order does.
pub type Script = Arc<dyn Fn(&Order) -> Act + Send + Sync>;

/// What the pod of a QuarksJob does.
#[derive(Debug, Clone)]
pub struct JobAct {
    /// Until it begins.
    pub begins: Duration,
    /// From then until its end.
    pub lasts: Duration,
    /// How long it takes to end when it is told to before that.
    pub ends: Duration,
    /// What its container exits with.
    pub code: i32,
    /// What it leaves in each file that is gathered.
    pub output: String,
}

/// Decides what a pod does, by the name of its Job.
pub type JobScript = Arc<dyn Fn(&str) -> JobAct + Send + Sync>;

/// What happened to a run.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// How often its broker was started: by the uids of the pods.
    pub begun: Vec<String>,
    /// What it was asked.
    pub order: Option<Order>,
    /// The image that its broker was in.
    pub image: String,
    /// What it was given beside its order; of a QuarksJob, what [`super::INPUT`] says.
    pub given: Option<Value>,
    /// The state that it was given, where there is one.
    pub state: Option<Value>,
    /// When it began and ended, as in a list of all that happened.
    pub times: (usize, usize),
    /// How it ended; `None` while it goes on, and if somebody ended it.
    pub end: Option<End>,
    /// Its pod was told to go while its broker went on, or before it began.
    pub halted: bool,
    /// When its first pod began to run, and when its last one ended.
    pub ran: Option<(Instant, Instant)>,
    /// After how many seconds it wanted to be tried or asked again.
    pub again: Option<u64>,
    /// Its sidecar was told that the others had ended, while they went on.
    pub told_early: bool,
}

/// What happened, by run.
pub type Ledger = BTreeMap<String, Entry>;
