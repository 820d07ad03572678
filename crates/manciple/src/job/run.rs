//! `manciple job run`: sets the strategy `now`, and waits for the end of the run that this makes.

use std::time::{Duration, Instant};

use engine::trigger::{Concurrency, Strategy};
use jiff::Timestamp;
use kubernetes::quarks::view::{RunEnd, RunView, Taken, View};
use serde_json::{Value, json};

use super::args::{Input, RunArgs};
use super::cluster::Cluster;
use super::{document, took, waiting, why};
use crate::cli::cluster::{Away, pause};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, one_line, shown};
use crate::cli::progress::Progress;
use crate::cli::times;

/// How many times the write is tried if others write between the read and the write.
const TRIES: usize = 10;
/// How long a trigger may stand before the user is told that no controller takes it. A controller that is there takes
/// it at once; replicas change places in some 15 s.
const UNTAKEN: Duration = Duration::from_secs(10);

pub(crate) async fn run(cluster: &Cluster, args: &RunArgs) -> Result<(), Failure> {
    let before = trigger(cluster, args).await?;
    let look = format!("see what comes of it: {}", cluster.command("history", &args.name));
    // Given again, the command would begin another run.
    let unprinted = |failure: Failure| failure.hint(&look);
    if !args.waits() {
        triggered(cluster, &args.name).map_err(unprinted)?;
        cluster.out.hint(&look);
        return Ok(());
    }
    let run = Waiter::new(cluster, &before).wait().await?;
    cluster.ongoing.clear();
    shown(print(cluster.out, &run).map_err(unprinted), ended(cluster, &args.name, &run))
}

/// Sets the strategy `now`. Returns the job as it was before: the run is the first after those that it had.
async fn trigger(cluster: &Cluster, args: &RunArgs) -> Result<View, Failure> {
    let subject = cluster.subject(&args.name);
    let spec = spec(&args.input);
    for _ in 0..TRIES {
        let view = cluster.view(&args.name).await?;
        if view.deleting {
            return Err(Failure::missing(format!("{subject} is being deleted")));
        }
        if view.strategy == Strategy::Now {
            join(cluster, &view, &args.input)?;
            return Ok(view);
        }
        if !args.input.is_empty() {
            match cluster.patch(&view, &spec, true).await? {
                Some(tried) if tried.inputs != json!(args.input) => {
                    return Err(no_inputs(&subject));
                }
                Some(_) => {}
                None => continue,
            }
        }
        if cluster.patch(&view, &spec, false).await?.is_some() {
            return Ok(view);
        }
    }
    let message = format!("cannot trigger {subject}: somebody writes it all the time");
    Err(Failure::new(Exit::Refused, message).hint("try again"))
}

fn spec(inputs: &[Input]) -> Value {
    let mut trigger = json!({"strategy": "now"});
    if !inputs.is_empty() {
        trigger["inputs"] = json!(inputs);
    }
    json!({ "trigger": trigger })
}

/// Checks that this trigger means the same as a `now` that stands already: one run is made of both.
fn join(cluster: &Cluster, view: &View, inputs: &[Input]) -> Result<(), Failure> {
    let subject = cluster.subject(&view.name);
    let is_same = match &view.inputs {
        Value::Null => inputs.is_empty(),
        theirs => *theirs == json!(inputs),
    };
    if !is_same {
        let message = format!("somebody has triggered {subject} already, with other inputs");
        let look = cluster.command("history", &view.name);
        return Err(Failure::new(Exit::Refused, message)
            .hint(format!("try again when that is taken, which this shows: {look}")));
    }
    if cluster.out.is_chatty() {
        let waits = waits_for(view)
            .map(|waits| format!("; {}", waiting(waits.as_ref())))
            .unwrap_or_default();
        let with = match view.inputs.as_array().map_or(0, Vec::len) {
            0 => "",
            _ => ", with inputs",
        };
        let note = format!("somebody has triggered {subject} already{with}{waits}");
        cluster.out.note(&one_line(&note));
    }
    Ok(())
}

fn no_inputs(subject: &str) -> Failure {
    let message =
        format!("cannot trigger {subject}: this cluster keeps no inputs, and nothing was run");
    Failure::new(Exit::Refused, message).hint(
        "its definition is not Manciple's; who administers the cluster applies that: manciple crds | \
         kubectl apply -f -",
    )
}

/// The reason why a trigger waits, as far as the resource says it.
pub(super) fn waits_for(view: &View) -> Option<String> {
    let going = view.runs.iter().find(|run| run.end.is_none());
    let queued = matches!(view.concurrency, Concurrency::Queue | Concurrency::Replace);
    match (view.waits.as_deref(), going) {
        (Some(""), None) => Some("the controller does not say for what".to_owned()),
        (Some(waits), _) if !waits.is_empty() => Some(waits.to_owned()),
        (_, Some(run)) if queued => Some(format!("for the end of run {}", run.id)),
        _ => None,
    }
}

/// Prints that the run was triggered, where the user does not wait for its end.
fn triggered(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let out = cluster.out;
    if out.is_json() {
        let (kind, namespace) = (cluster.dialect.kind(), &cluster.namespace);
        return out.json(
            &json!({"kind": kind, "namespace": namespace, "name": name, "state": "triggered"}),
        );
    }
    if out.quiet {
        return out.line(name);
    }
    out.line(&format!("{} is triggered", cluster.subject(name)))
}

/// A waiter for the end of a run, which shows its progress.
struct Waiter<'c> {
    cluster: &'c Cluster,
    before: &'c View,
    progress: Progress,
    started: Instant,
    away: Away,
    /// Whether the user was told that nobody takes the trigger.
    hinted: bool,
    /// The run, once it is known.
    run: Option<u64>,
}

impl<'c> Waiter<'c> {
    fn new(cluster: &'c Cluster, before: &'c View) -> Self {
        let what = format!("run of {}", cluster.subject(&before.name));
        cluster.ongoing.set(what.clone(), cluster.command("history", &before.name));
        let progress = Progress::new(&what, cluster.out, "triggered");
        let started = Instant::now();
        Self { cluster, before, progress, started, away: Away::default(), hinted: false, run: None }
    }

    async fn wait(mut self) -> Result<RunView, Failure> {
        loop {
            match self.cluster.view(&self.before.name).await {
                Ok(view) => {
                    self.away.answered_again();
                    if let Some(ended) = self.look(&view).await? {
                        return Ok(ended);
                    }
                }
                Err(failure) => self.trouble(failure)?,
            }
            match pause(self.started.elapsed(), self.cluster.patience) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.impatient()),
            }
        }
    }

    /// Looks at the job; returns the run, if it has ended.
    async fn look(&mut self, view: &View) -> Result<Option<RunView>, Failure> {
        if view.uid != self.before.uid {
            return Err(self.deleted());
        }
        match view.taken(self.before.last) {
            Taken::By(run) => {
                self.run = Some(run.id);
                match &run.end {
                    Some(end) => {
                        let reason = &end.outcome.reason;
                        self.progress.tell(&format!("run {} ended: {reason}", run.id));
                        return Ok(Some(run.clone()));
                    }
                    None => {
                        let follow = format!("{} --follow", self.logs());
                        let subject = self.cluster.subject(&self.before.name);
                        self.cluster.ongoing.set(format!("run {} of {subject}", run.id), follow);
                        let waits = view.waits.as_deref().filter(|waits| !waits.is_empty());
                        let waits = waits.map(|waits| format!("; {waits}")).unwrap_or_default();
                        self.progress.tell(&format!("recorded as run {}{waits}", run.id));
                    }
                }
            }
            Taken::NotYet => match waits_for(view) {
                Some(waits) => self.progress.tell(&waiting(waits.as_ref())),
                None if self.started.elapsed() > UNTAKEN => self.untaken().await,
                None => {}
            },
            Taken::PassedOver => return Err(self.passed_over(view)),
        }
        Ok(None)
    }

    /// Takes a failed look; `Ok` if it is worth to look again.
    fn trouble(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.exit == Exit::Missing {
            return Err(self.deleted());
        }
        let hint = format!("it may go on; look at it: {}", self.history());
        self.progress.tell(&self.away.bear(failure, &hint)?);
        Ok(())
    }

    /// Says once that no controller seems to be there.
    async fn untaken(&mut self) {
        self.progress.tell("nothing has taken it yet");
        if std::mem::replace(&mut self.hinted, true) {
            return;
        }
        let namespace = &self.cluster.namespace;
        self.progress.hint(&match self.cluster.missing_labels().await {
            Some(missing) if !missing.is_empty() => format!(
                "no controller seems to monitor namespace {namespace}: it has no label {}",
                missing.join(" and ")
            ),
            _ => format!(
                "no controller seems to monitor namespace {namespace}: is one running, and is its id what the \
                 namespace's label quarks.cloudfoundry.org/monitored says?"
            ),
        });
    }

    fn passed_over(&self, view: &View) -> Failure {
        let subject = self.cluster.subject(&view.name);
        match view.concurrency {
            Concurrency::Forbid => {
                let message = format!(
                    "{subject} was not run: another run goes on, and the trigger was passed over \
                     (concurrencyPolicy: Forbid)"
                );
                let hint = format!("try again when it has ended: {}", self.history());
                Failure::new(Exit::OperationFailed, message).hint(hint)
            }
            _ => {
                let message = format!(
                    "{subject} was not run: somebody took the trigger back, spec.trigger.strategy is {}",
                    view.strategy()
                );
                Failure::new(Exit::OperationFailed, message)
            }
        }
    }

    fn deleted(&self) -> Failure {
        let subject = self.cluster.subject(&self.before.name);
        Failure::missing(format!("{subject} was deleted while its run was waited for"))
    }

    fn impatient(&self) -> Failure {
        let after = times::span(self.cluster.patience.unwrap_or_default());
        let subject = self.cluster.subject(&self.before.name);
        match self.run {
            Some(run) => {
                let message = format!("run {run} of {subject} did not end within {after}");
                let hint = format!("it goes on; follow it: {} --follow", self.logs());
                Failure::new(Exit::Unfinished, message).hint(hint)
            }
            None => {
                let message = format!("{subject} was not begun within {after}");
                let hint = format!("the trigger stands; look at it: {}", self.history());
                Failure::new(Exit::Unfinished, message).hint(hint)
            }
        }
    }

    fn history(&self) -> String {
        self.cluster.command("history", &self.before.name)
    }

    fn logs(&self) -> String {
        let run = self.run.map(|run| format!(" --run {run}")).unwrap_or_default();
        format!("{}{run}", self.cluster.command("logs", &self.before.name))
    }
}

/// Prints the end of a run.
fn print(out: Output, run: &RunView) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&document(run));
    }
    if out.quiet {
        return out.line(&run.id.to_string());
    }
    let outcome = run.end.as_ref().map(|end| &end.outcome);
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    out.fields(vec![
        ("Run", Some(run.id.to_string())),
        ("Outcome", outcome.and_then(|it| text(&it.reason))),
        ("Took", text(&took(run, Timestamp::now()))),
        ("Made", outcome.and_then(|it| text(&it.made.join(", ")))),
        ("Message", outcome.and_then(|it| text(&it.message))),
    ])
}

/// Returns a failure, if the run has failed.
fn ended(cluster: &Cluster, name: &str, run: &RunView) -> Result<(), Failure> {
    match &run.end {
        Some(RunEnd { outcome, .. }) if !outcome.succeeded => {
            let (id, why) = (run.id, why(outcome));
            let message = format!("run {id} of {} failed: {why}", cluster.subject(name));
            let failure = Failure::new(Exit::OperationFailed, message);
            Err(match run.ended_without_job() {
                Some(_) => failure,
                None => {
                    let logs = cluster.command("logs", name);
                    failure.hint(format!("read its log: {logs} --run {id}"))
                }
            })
        }
        _ => Ok(()),
    }
}
