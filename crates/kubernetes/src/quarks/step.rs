//! The loop of one turn of a QuarksJob: look, decide elsewhere, do what was decided, look again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::trigger::{Concurrency, Decision, Step, Wait};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::Controller;
use super::api::key::Key;
use super::api::resource::Resource;
use super::api::unread::unwritable;
use super::api::{lint, status};
use super::decided;
use super::job::obstacle::Obstacle;
use super::look::Look;
use super::output::undone::{self, Undone};
use super::state::job::SeenJob;
use crate::calls::{CallError, find};
use crate::queue::Looked;
use crate::resources::time;
use crate::text::Text;

/// How many looks one turn has at most; what is left then waits for the next turn.
const LOOKS: usize = 12;
/// The longest wait before the clock is looked at again.
const LONGEST: Duration = Duration::from_secs(600);

/// How long a QuarksJob is worked on in one turn; what is left then waits for the next. There may be many runs to
/// begin.
const TURN: Duration = Duration::from_secs(2);

/// How many removals of Jobs may go unanswered in one turn, for each takes long: the others are tried in the next.
const UNANSWERED: usize = 2;

/// What came of one pass over the steps of a decision.
enum Acted {
    /// Nothing was done.
    Not,
    Somehow,
    /// Somebody else had written the QuarksJob since it was read.
    TooLate,
}

impl Controller {
    /// Looks at a QuarksJob, does what is decided, and looks again, until nothing is left to do. Returns how the turn ended.
    pub(super) async fn step(&self, key: &Key) -> Looked {
        let mut undone = Vec::new();
        let (begun, mut overtaken) = (Instant::now(), 0);
        for look in 0..LOOKS {
            if look > 0 && begun.elapsed() > TURN {
                return if overtaken == look { Looked::FAILED } else { Looked::AT_ONCE };
            }
            // Another may lead by now.
            if !self.leads() {
                return Looked::Idle;
            }
            let cleared = match self.inherit(key).await {
                Ok(()) => self.clear_doubt(key).await,
                Err(error) => Err(error),
            };
            let Some((resource, look, decision)) = self.look(key) else {
                self.logs.forget(key, Instant::now());
                return self.let_end(key).await;
            };
            let latest = self.latest(&look, decision.wait.as_ref());
            if let Err(error) = cleared {
                return self.failed(key, &resource, &look, latest, error).await;
            }
            if decision.steps.is_empty() {
                return self.idle(key, &resource, look, decision.wait).await;
            }
            let until = begun + TURN;
            let acted = self.act(key, &resource, decision.steps, until, &mut undone).await;
            let (error, later) = match acted {
                Ok(Acted::Somehow) => continue,
                Ok(Acted::TooLate) => {
                    overtaken += 1;
                    continue;
                }
                Ok(Acted::Not) => undone::summed(undone.into_iter().map(|(_, why)| why)),
                Err(error) => (Some(error), None),
            };
            if error.is_none() && later.is_none() {
                return Looked::AT_ONCE;
            }
            let latest = latest.into_iter().chain(later).min();
            return self.stuck(key, &resource, &look, latest, error).await;
        }
        // Either each write came too late, and a pause is due, or there is more to do, and others have their turn
        // first.
        if overtaken == LOOKS { Looked::FAILED } else { Looked::AT_ONCE }
    }

    /// Does these steps until `until` or until one that writes the QuarksJob itself: what follows is decided by its new
    /// state. A removal or the keeping of output that fails goes into `undone` with the reason, is not tried again in
    /// this turn, and keeps no other step from being done.
    async fn act(
        &self,
        key: &Key,
        resource: &Resource,
        mut steps: Vec<Step>,
        until: Instant,
        undone: &mut Vec<(Step, Undone)>,
    ) -> Result<Acted, CallError> {
        let mut acted = Acted::Not;
        steps.sort_by_cached_key(|step| self.turn(key, step));
        for step in &steps {
            let is_over = matches!(acted, Acted::Somehow) && Instant::now() > until;
            if !self.leads() || is_over {
                return Ok(Acted::Somehow);
            }
            let writes_it =
                matches!(step, Step::Reopen | Step::Close | Step::Record { .. } | Step::Settle(..));
            let is_unanswered = |(known, why): &&(Step, Undone)| {
                let no_answer = matches!(why, Undone::Failed(CallError::NoAnswer(_)));
                no_answer && matches!((known, step), (Step::Remove(_), Step::Remove(_)))
            };
            let is_known = undone.iter().any(|(known, _)| known == step);
            if is_known || undone.iter().filter(is_unanswered).count() >= UNANSWERED {
                continue;
            }
            // Output of an ended run that cannot be kept, and a Job that cannot be removed, keep nothing else from
            // being run or looked after.
            let may_stay = matches!(step, Step::Keep(_) | Step::Remove(_));
            let done = self.execute(key, resource, step, &steps).await;
            if let Step::Remove(run) = step {
                let no_answer = matches!(done, Err(Undone::Failed(CallError::NoAnswer(_))));
                self.table().note_removal(key, *run, no_answer.then(Instant::now));
            }
            match done {
                Ok(()) if writes_it => return Ok(Acted::Somehow),
                Ok(()) => acted = Acted::Somehow,
                // Somebody else has written: what is known of the QuarksJob is old.
                Err(Undone::Failed(CallError::Conflict)) => {
                    self.refresh(key).await?;
                    return Ok(Acted::TooLate);
                }
                Err(Undone::Failed(error)) if !may_stay => return Err(error),
                Err(why) => undone.push((step.clone(), why)),
            }
        }
        Ok(acted)
    }

    fn look(&self, key: &Key) -> Option<(Arc<Resource>, Look, Decision)> {
        let now = self.now_millis();
        let (resource, mut look) = {
            let mut table = self.table();
            if !table.is_complete(&key.namespace) {
                return None;
            }
            let resource =
                table.get(key)?.resource.clone().filter(|resource| !resource.deleting)?;
            table.want_peers(&resource);
            let look = table.look(key, self.settings.settle, timestamp(now))?;
            (resource, look)
        };
        let mut decision = look.decision(&time(now));
        tracing::debug!(
            namespace = &*key.namespace, name = &*key.name, strategy = ?resource.strategy,
            does = %decided::said(&decision), fault = look.fault, "looked at"
        );
        if decision.makes_a_run()
            && let Some((why, left)) = self.table().misled(key)
        {
            decision.withhold(&look.state);
            look.fault = Some(why.to_owned());
            let again = timestamp(self.now_millis()) + left;
            look.next = look.next.into_iter().chain([again]).min();
        }
        // A run that is to be replaced goes on until its successor can be begun.
        if decision.makes_a_run() {
            if self.settings.strict {
                look.faults = lint::of_spec(key.dialect, &resource.spec());
            }
            look.faults.extend(unwritable(&resource, &decision.steps));
            look.faults.extend(self.table().without_room(&resource));
            if !look.faults.is_empty() {
                // Decided as if the trigger waited: a run that it would replace, and that has no Job yet, is begun.
                if look.state.concurrency == Concurrency::Replace {
                    look.state.concurrency = Concurrency::Queue;
                    decision = look.decision(&time(now));
                }
                decision.withhold(&look.state);
                look.fault = Some(look.faults.join("; "));
            }
        }
        Some((resource, look, decision))
    }

    /// The API server's time, in milliseconds since 1970.
    pub(super) fn now_millis(&self) -> u64 {
        u64::try_from(self.time.now_millis()).unwrap_or_default()
    }

    /// Ends a turn in which there was nothing to do: looks after runs that go on, and writes to the status what a
    /// trigger waits for, if that is new.
    async fn idle(&self, key: &Key, resource: &Resource, look: Look, wait: Option<Wait>) -> Looked {
        let latest = self.latest(&look, wait.as_ref());
        if let Err(error) = self.look_after(key, resource).await {
            return self.failed(key, resource, &look, latest, error).await;
        }
        let left = self.remove_left(key, resource).await;
        let overdue = self.remind(key).await;
        let Obstacle { words, again } = self.table().obstacle_of(key, timestamp(self.now_millis()));
        let again = again.map(|time| self.until(time));
        let again = latest.into_iter().chain(left).chain(overdue).chain(again).min();
        let trouble = || look.fault.into_iter().chain(words);
        let waits = wait.and_then(|wait| decided::waits(&wait, resource, look.lasts_long));
        let words: Vec<String> = waits.into_iter().chain(trouble()).collect();
        let waits = (!words.is_empty()).then(|| words.join("; "));
        let waits = waits.as_deref().map(status::short);
        match self.tell(key, resource, waits.as_deref()).await {
            Ok(()) => again.into(),
            // Somebody else has written: the wait is to be said of the QuarksJob as it is now.
            Err(CallError::Conflict) => {
                self.refresh(key).await.map_or(Looked::FAILED, |()| Looked::AT_ONCE)
            }
            Err(_) => Looked::FAILED,
        }
    }

    /// After how long the QuarksJob has to be looked at again, even if something fails: a time comes, or changes have
    /// settled.
    fn latest(&self, look: &Look, wait: Option<&Wait>) -> Option<Duration> {
        let settles = (wait == Some(&Wait::Changes)).then_some(self.settings.settle);
        settles.into_iter().chain(look.next.map(|time| self.until(time))).min()
    }

    /// Ends a turn in which steps failed or were put off. Runs that go on are looked after meanwhile.
    async fn stuck(
        &self,
        key: &Key,
        resource: &Resource,
        look: &Look,
        latest: Option<Duration>,
        error: Option<CallError>,
    ) -> Looked {
        let looked_after = self.look_after(key, resource).await;
        let left = self.remove_left(key, resource).await;
        let overdue = self.remind(key).await;
        match looked_after.err().or(error) {
            // The next turn, which is soon enough, sees the rest.
            Some(error) => self.failed(key, resource, look, latest, error).await,
            None => latest.into_iter().chain(left).chain(overdue).min().into(),
        }
    }

    /// How long it is until `then`, at most [`LONGEST`]: clocks are put right.
    fn until(&self, then: Timestamp) -> Duration {
        let millis = then.duration_since(timestamp(self.now_millis())).as_millis();
        // A moment after it, or it may be looked at just before.
        let millis = u64::try_from(millis).unwrap_or_default().saturating_add(5);
        Duration::from_millis(millis).min(LONGEST)
    }

    /// Ends a turn in which a call failed; writes the reason to the status, and what is wrong with the QuarksJob beside
    /// it, unless it says so already.
    async fn failed(
        &self,
        key: &Key,
        resource: &Resource,
        look: &Look,
        latest: Option<Duration>,
        error: CallError,
    ) -> Looked {
        let (namespace, name) = (&*key.namespace, &*key.name);
        self.counters.looks_failed.add();
        tracing::warn!(namespace, name, %error, "it cannot go on now");
        if let Some(words) = trouble(&error, look.fault.as_deref()) {
            let told = resource.status.waits.as_deref().map(gist);
            // A failed write is tried again at the next turn. Writing the same reason for a new number in it would be a
            // change, which begins a turn at once.
            let words = status::short(&words);
            if told != Some(gist(&words)) {
                let _ = self.tell(key, resource, Some(&words)).await;
            }
        }
        Looked::Failed { latest }
    }

    async fn tell(
        &self,
        key: &Key,
        resource: &Resource,
        waits: Option<&str>,
    ) -> Result<(), CallError> {
        if resource.status.waits.as_deref() == waits {
            return Ok(());
        }
        waits.into_iter().for_each(|waits| self.tell_of_waiting(resource, waits));
        let status = status::waits(resource, waits, self.now_millis());
        self.patch_status(key, resource, status).await.inspect_err(|error| {
            tracing::debug!(name = &*key.name, %error, "what it waits for was not written");
        })
    }

    /// Does one of the steps of a decision.
    async fn execute(
        &self,
        key: &Key,
        resource: &Resource,
        step: &Step,
        steps: &[Step],
    ) -> Result<(), Undone> {
        let done = match step {
            Step::Reopen => self.reopen(key, resource, steps).await,
            Step::Close => {
                let closed = status::closed(resource, self.now_millis());
                self.patch_status(key, resource, closed).await
            }
            Step::Record { record, strategy, passed_over } => {
                self.record(key, resource, record, *strategy).await?;
                if let Some(trigger) = passed_over {
                    self.tell_of_one_passed_over(resource, *trigger, record);
                }
                Ok(())
            }
            Step::Start(run) => self.start(key, resource, run).await,
            Step::Keep(run) => return self.take_in(key, resource, run.id).await,
            Step::Settle(run, outcome) => {
                // The output may have been kept since that was decided.
                let kept = self.table().get(key).and_then(|it| it.kept.get(&run.id).cloned());
                self.settle(key, resource, run, kept.as_ref().unwrap_or(outcome)).await
            }
            Step::Remove(run) => self.remove(key, *run).await,
        };
        Ok(done?)
    }

    /// Keeps the output of a run, and notes how that went.
    async fn take_in(&self, key: &Key, resource: &Resource, run: u64) -> Result<(), Undone> {
        let job = self.table().get(key).and_then(|entry| entry.jobs.get(&run).cloned());
        let Some(job) = job else { return Ok(()) };
        let kept = self.keep(resource, &job).await;
        match &kept {
            Ok(outcome) => self.table().kept(resource, run, outcome.clone()),
            Err(Undone::Failed(
                CallError::Forbidden(_) | CallError::Denied(_) | CallError::Stays(_),
            )) => {
                self.table().note_refusal(resource, run, Instant::now());
            }
            Err(Undone::Failed(_)) => self.table().clear_refusal(resource, run),
            Err(Undone::Later(_)) => {}
        }
        kept.map(drop)
    }

    /// Asks the API server for each Job that a list lacked: only its answer says that the Job is gone.
    async fn clear_doubt(&self, key: &Key) -> Result<(), CallError> {
        let doubtful: Vec<SeenJob> = {
            let table = self.table();
            let jobs = table.get(key).into_iter().flat_map(|entry| entry.jobs.values());
            jobs.filter(|job| job.unsure).cloned().collect()
        };
        for job in doubtful {
            let found = find(self.api::<Text<Job>>(&key.namespace).get(&job.name)).await?;
            let found = found.and_then(|found| found.gist());
            let mut table = self.table();
            let found = found.and_then(|found| table.seen_job(&found));
            match found.filter(|found| found.uid == job.uid) {
                Some(found) => drop(table.learn_job(found)),
                None => drop(table.forget_job(&job)),
            }
        }
        Ok(())
    }
}

/// What is told of a call that failed, with what is wrong with the QuarksJob anyhow; `None`: nothing, for it may go better
/// at once.
pub(super) fn trouble(error: &CallError, fault: Option<&str>) -> Option<String> {
    let words = match error {
        CallError::Failed(why)
        | CallError::Forbidden(why)
        | CallError::Denied(why)
        | CallError::Invalid(why) => format!("the API server refuses: {why}"),
        CallError::Hindered(why) | CallError::Stays(why) => why.clone(),
        CallError::Unsent(_) => error.to_string(),
        _ => return None,
    };
    Some([Some(words.as_str()), fault].into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// A message without its words that contain digits, such as ports, ids and times, which differ each time.
fn gist(words: &str) -> String {
    let pieces = words.split_inclusive(|character: char| !character.is_alphanumeric());
    pieces.filter(|piece| !piece.contains(|character: char| character.is_ascii_digit())).collect()
}

/// A timestamp from milliseconds since 1970.
fn timestamp(millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_spec_is_told_beside_what_was_refused() {
        let refused = || CallError::Denied("no".to_owned());
        let hindered = || CallError::Hindered("it is somebody else's".to_owned());
        for (name, error, fault, expected) in [
            ("refused", refused(), None, Some("the API server refuses: no")),
            (
                "refused, and at fault",
                refused(),
                Some("spec.run is not read"),
                Some("the API server refuses: no; spec.run is not read"),
            ),
            ("hindered", hindered(), Some("f"), Some("it is somebody else's; f")),
            ("overtaken", CallError::Conflict, Some("f"), None),
            ("no answer", CallError::NoAnswer("n".to_owned()), Some("f"), None),
        ] {
            assert_eq!(trouble(&error, fault).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_another_each_time_is_no_news() {
        let refused = |port: u32, id: &str| {
            format!(
                "failed calling webhook: read tcp 10.0.0.7:{port}->10.1.0.3:443: reset (request {id})"
            )
        };
        assert_eq!(gist(&refused(51234, "5f-aa01")), gist(&refused(40001, "77-bc92")));
        assert_ne!(gist(&refused(51234, "5f")), gist("exceeded quota: jobs, used: 1, limited: 1"));
        assert_ne!(gist("secret a is missing"), gist("secret b is missing"));
    }
}
