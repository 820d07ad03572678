//! What brokers that go beyond the first contract rely on: that work which goes on elsewhere is asked after, one
//! question after the other, until it has ended; and that the state which they left comes back.

use std::collections::{BTreeMap, BTreeSet};

use agent::Order;
use osb::Action;
use osb::jobs::contract::Capability;
use serde_json::Value;
use testkit::kubelet::{End, Entry, Ledger, elsewhere, left};

use crate::script::question;
use crate::truth::belongs;

/// A run that began.
struct Ran<'l> {
    name: &'l str,
    order: &'l Order,
    entry: &'l Entry,
    action: Action,
}

/// Of what record: the instance, and the binding.
type Of<'l> = (&'l str, Option<&'l str>);

impl<'l> Ran<'l> {
    fn all(ledger: &'l Ledger) -> Vec<Self> {
        let of = |(name, entry): (&'l String, &'l Entry)| {
            let order = entry.order.as_ref()?;
            Some(Self { name, order, entry, action: order.action? })
        };
        ledger.iter().filter_map(of).collect()
    }

    fn word(&self, name: &str) -> Option<&'l str> {
        self.order.work.get(name)?.as_str()
    }

    fn record(&self) -> Of<'l> {
        (self.word("instance_id").unwrap_or_default(), self.word("binding_id"))
    }

    fn operation(&self) -> &'l str {
        self.word("operation_id").unwrap_or_default()
    }

    fn began(&self) -> usize {
        self.entry.times.0
    }

    /// Whether it ended before another began.
    fn before(&self, other: &Self) -> bool {
        self.entry.end.is_some() && self.entry.times.1 < other.began()
    }

    fn left_state(&self) -> bool {
        let well = matches!(self.entry.end, Some(End::Well | End::Elsewhere(_)));
        well && self.order.can(Capability::State)
    }

    fn makes(&self) -> bool {
        matches!(self.action, Action::Provision | Action::Bind)
    }

    fn removes(&self) -> bool {
        matches!(self.action, Action::Deprovision | Action::Unbind)
    }
}

/// Fails if work elsewhere was not asked after as is promised: by its name, a question at a time, and not any more when
/// it has ended. `jobs`: the names of all Jobs that there were. Says how many questions there were.
pub(crate) fn check_questions(
    ledger: &Ledger,
    jobs: &BTreeSet<String>,
    taken: &BTreeSet<String>,
) -> usize {
    let mut asked: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    for job in jobs {
        if let Some((attempt, number)) = question(job) {
            asked.entry(attempt).or_default().insert(number, job);
        }
    }
    for (attempt, questions) in &asked {
        let numbers: Vec<u64> = questions.keys().copied().collect();
        let expected: Vec<u64> = (1..=questions.len() as u64).collect();
        assert_eq!(numbers, expected, "questions after the work of {attempt}");
        let mut before = (*attempt, ledger.get(*attempt));
        assert!(before.1.is_some(), "{attempt} never began, and is asked after");
        for job in questions.values() {
            let Some(entry) = ledger.get(*job).filter(|entry| entry.order.is_some()) else {
                continue;
            };
            let named = entry.order.as_ref().and_then(|order| order.external.as_deref());
            assert_eq!(named, Some(elsewhere(attempt).as_str()), "{job}");
            if let (former, Some(then)) = before
                && !taken.contains(former)
            {
                // A question is halted that does not begin in time, which it may have just then: it is asked again.
                let unanswered = match &then.end {
                    Some(end) => matches!(end, End::Transient(_) | End::Killed),
                    None => then.halted,
                };
                let goes_on =
                    matches!(then.end, Some(End::Elsewhere(_))) || unanswered && former != *attempt;
                assert!(goes_on, "{job} asks after what is over: {former}: {then:?}");
                assert!(then.times.1 < entry.times.0, "{job} began while {former} went on");
            }
            before = (job, Some(entry));
        }
    }
    asked.values().map(BTreeMap::len).sum()
}

/// Fails if a run was given another state than the last that was left for it. `well`: the operations that are known to
/// have ended well. Says how many were given one.
pub(crate) fn check_states(
    ledger: &Ledger,
    taken: &BTreeSet<String>,
    well: &BTreeSet<String>,
) -> usize {
    let runs = Ran::all(ledger);
    let mut given = 0;
    for run in runs.iter().filter(|run| run.order.can(Capability::State)) {
        let (mut allowed, sure) = states_for(&runs, run, run.record(), taken, well);
        if !sure && run.record().1.is_some() {
            // A binding that has none has its instance's.
            let of = (run.record().0, None);
            let (of_instance, sure) = states_for(&runs, run, of, taken, well);
            allowed.extend(of_instance);
            allowed.extend((!sure).then_some(None));
        } else if !sure {
            allowed.push(None);
        }
        let state = run.entry.state.clone();
        assert!(
            allowed.contains(&state),
            "{} was given {state:?}, and not one of {allowed:?}",
            run.name
        );
        given += usize::from(state.is_some());
    }
    given
}

/// The states that a record may have had when a run began, and whether it had one for sure: the last that was kept for
/// sure, or one that was left since by a run whose end nobody may have looked at.
fn states_for(
    runs: &[Ran<'_>],
    run: &Ran<'_>,
    record: Of<'_>,
    taken: &BTreeSet<String>,
    well: &BTreeSet<String>,
) -> (Vec<Option<Value>>, bool) {
    let of_it = || runs.iter().filter(|it| it.record() == record);
    let making = of_it().filter(|it| it.makes() && it.began() <= run.began());
    let making = making.max_by_key(|it| it.began()).map_or("", Ran::operation);
    // What an instance was that had the same id before is nothing to it, though of its own provision nothing ever began.
    let born = of_it().filter(|it| it.operation() == making).map(Ran::began).min().unwrap_or(0);
    let is_other = |it: &&Ran<'_>| it.operation() != run.operation() && it.before(run);
    let gone = of_it().filter(|it| it.removes() && well.contains(it.operation()));
    let gone = gone.filter(is_other).map(|it| it.entry.times.1 + 1).max().unwrap_or(0);
    let born = born.max(gone);
    let left_before: Vec<_> =
        of_it().filter(|it| it.left_state() && it.began() >= born && it.before(run)).collect();
    let kept = |it: &&&Ran<'_>| {
        let asked_after = run.order.external.is_some() && belongs(run.name, it.operation());
        !taken.contains(it.name) && (well.contains(it.operation()) || asked_after)
    };
    let last = left_before.iter().filter(kept).map(|it| it.entry.times.1).max();
    let since = left_before.iter().filter(|it| it.entry.times.1 >= last.unwrap_or(0));
    (since.map(|it| Some(left(it.name))).collect(), last.is_some())
}
