//! The acts of pods, as a test scripts them, and the ledger of what they did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use engine::ports::Offer;
use serde_json::Value;
use tokio::time::Instant;

/// The act of a broker.
#[derive(Debug, Clone)]
pub struct Act {
    /// The time until the pod begins.
    pub begins: Duration,
    /// From then until its end.
    pub lasts: Duration,
    /// The end of the broker.
    pub end: End,
    /// The seconds after which the broker asks to be tried or polled again, if it does.
    pub again: Option<u64>,
}

impl Act {
    /// The act of a broker that ends well.
    pub fn well(begins: Duration, lasts: Duration) -> Self {
        Self { begins, lasts, end: End::Well, again: None }
    }
}

/// The end of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The broker ends well; a bind returns a password that names its operation.
    Well,
    /// The broker fails with these words.
    Fails(String),
    /// The broker fails with these words, and is to be tried again.
    Transient(String),
    /// The container is killed, and leaves nothing.
    Killed,
    /// The broker leaves external work, with this progress.
    Elsewhere(String),
}

/// A function that gives the offer of the broker in an image.
pub type Offers = Arc<dyn Fn(&str) -> Offer + Send + Sync>;

/// A script that decides the act of the broker for an order.
pub type Script = Arc<dyn Fn(&Order) -> Act + Send + Sync>;

/// The act of a QuarksJob's pod.
#[derive(Debug, Clone)]
pub struct JobAct {
    /// The time until the pod begins.
    pub begins: Duration,
    /// From then until its end.
    pub lasts: Duration,
    /// How long it takes to end when it is told to before that.
    pub ends: Duration,
    /// The exit code of its container.
    pub code: i32,
    /// The content of each file that is gathered.
    pub output: String,
}

/// A script that decides the act of a pod, by the name of its Job.
pub type JobScript = Arc<dyn Fn(&str) -> JobAct + Send + Sync>;

/// The entry of a run in the ledger.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The uids of the pods in which its broker was started.
    pub begun: Vec<String>,
    /// The order of the run.
    pub order: Option<Order>,
    /// The image that its broker was in.
    pub image: String,
    /// The confidential part that it was given beside its order; of a QuarksJob, the value of [`super::INPUT`].
    pub given: Option<Value>,
    /// The state that it was given, if there is one.
    pub state: Option<Value>,
    /// The places of its begin and its end in the list of all events.
    pub times: (usize, usize),
    /// The end of the run; `None` while it goes on, and if somebody ended it.
    pub end: Option<End>,
    /// Whether its pod was told to go while its broker went on, or before it began.
    pub halted: bool,
    /// When its first pod began to run, and when its last one ended.
    pub ran: Option<(Instant, Instant)>,
    /// The seconds after which it asked to be tried or polled again.
    pub again: Option<u64>,
    /// Whether its sidecar was told that the others had ended while they went on.
    pub told_early: bool,
}

/// The ledger: what happened, by run.
pub type Ledger = BTreeMap<String, Entry>;
