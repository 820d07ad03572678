//! Where the time of a run goes: when its Job and its pod were seen to be what, and when its command began,
//! by the clock of the machine that node and bench share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::runtime::watcher::{self, Event, watcher};

use crate::support::Cluster;

/// The steps, each with what comes before its end.
const STEPS: [&str; 6] = [
    "request to Job",
    "Job to pod",
    "pod to node",
    "node to command",
    "command to its end being told",
    "end being told to outcome",
];

/// When each was first seen.
#[derive(Clone, Copy, Default)]
struct Times {
    job: Option<Instant>,
    pod: Option<Instant>,
    node: Option<Instant>,
    ended: Option<Instant>,
}

/// What is seen of all runs, by the name of a bare Job, or the id of an instance.
#[derive(Clone)]
pub(crate) struct Phases {
    seen: Arc<Mutex<HashMap<String, Times>>>,
    ledger: PathBuf,
    /// When the machine had been up for how long.
    up: (Instant, Duration),
}

impl Phases {
    /// Watches a namespace. Commands write `/proc/uptime` into the ledger, into a file of their run's name.
    pub(crate) fn watch(cluster: &Cluster, ledger: &Path) -> Self {
        let up = (Instant::now(), uptime(Path::new("/proc/uptime")).unwrap());
        let phases = Self { seen: Arc::default(), ledger: ledger.to_owned(), up };
        let (jobs, pods) = (phases.clone(), phases.clone());
        let all = || watcher::Config::default();
        let (job_events, pod_events) =
            (watcher(cluster.api::<Job>(), all()), watcher(cluster.api::<Pod>(), all()));
        tokio::spawn(async move {
            pin_mut!(job_events);
            while let Some(event) = job_events.next().await {
                let Ok(Event::Apply(job)) = event else { continue };
                jobs.note(&job, |times, now| _ = times.job.get_or_insert(now));
            }
        });
        tokio::spawn(async move {
            pin_mut!(pod_events);
            while let Some(event) = pod_events.next().await {
                let Ok(Event::Apply(pod)) = event else { continue };
                pods.note(&pod, |times, now| {
                    times.pod.get_or_insert(now);
                    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                        times.node.get_or_insert(now);
                    }
                    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                    let statuses =
                        pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
                    let mut states = statuses.filter_map(|status| status.state.as_ref());
                    if phase == Some("Succeeded") || states.any(|state| state.terminated.is_some())
                    {
                        times.ended.get_or_insert(now);
                    }
                });
            }
        });
        phases
    }

    fn note<K: Resource>(&self, object: &K, change: impl FnOnce(&mut Times, Instant)) {
        let metadata = object.meta();
        let of = |values: &Option<std::collections::BTreeMap<String, String>>, name: &str| {
            values.as_ref().and_then(|values| values.get(name).cloned())
        };
        let id = of(&metadata.annotations, "manciple.dev/instance-id")
            .or_else(|| of(&metadata.labels, "job-name"))
            .or_else(|| metadata.name.clone());
        let Some(id) = id else { return };
        change(self.seen.lock().unwrap().entry(id).or_default(), Instant::now());
    }

    /// The steps of a run, in milliseconds; `None` for what was not seen in order.
    pub(crate) fn steps(&self, id: &str, begun: Instant, over: Instant) -> Option<[f64; 6]> {
        let times = *self.seen.lock().unwrap().get(id)?;
        let command = self.up.0 + uptime(&self.ledger.join(id)).unwrap().checked_sub(self.up.1)?;
        let at = [begun, times.job?, times.pod?, times.node?, command, times.ended?, over];
        let mut steps = [0.0; 6];
        for (step, pair) in steps.iter_mut().zip(at.windows(2)) {
            // Two watches may tell of things in another order than they happened.
            *step = match pair[1].checked_duration_since(pair[0]) {
                Some(time) => time.as_secs_f64() * 1000.0,
                None => -pair[0].duration_since(pair[1]).as_secs_f64() * 1000.0,
            };
        }
        Some(steps)
    }
}

/// The medians of several kinds, beside each other, in milliseconds.
pub(crate) fn print(kinds: &[&str], runs: &[&[[f64; 6]]]) {
    println!("  {:32}{}", "", kinds.iter().map(|kind| format!("{kind:>12}")).collect::<String>());
    for (step, name) in STEPS.iter().enumerate() {
        let medians = runs.iter().map(|runs| {
            let mut times: Vec<f64> = runs.iter().map(|steps| steps[step]).collect();
            times.sort_by(f64::total_cmp);
            format!("{:9.0} ms", times.get(times.len() / 2).copied().unwrap_or(f64::NAN))
        });
        println!("  {name:32}{}", medians.collect::<String>());
    }
}

/// The first number of `/proc/uptime`, or of a copy.
fn uptime(path: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(path).ok()?;
    let seconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_secs_f64(seconds))
}
