//! Decisions of `engine::trigger::decide` in words: for the status, and for the log.

use engine::trigger::{Decision, Step, Wait};

use super::api::record::RUNS;
use super::api::resource::Resource;

/// What a trigger waits for, for people. `None` where the wait is short and nobody need be told; for pods, that is
/// until `is_long`.
pub(super) fn waits(wait: &Wait, resource: &Resource, is_long: bool) -> Option<String> {
    match wait {
        Wait::References(missing) => Some(format!("it waits for {}", missing.join(", "))),
        Wait::Numbers => Some(format!(
            "no number is left for another run: somebody has written that of the last; remove the annotation {RUNS}, and \
             status.history and status.record with it"
        )),
        Wait::Run => {
            let going = resource.record.open.iter().rfind(|run| resource.is_open(run.id))?;
            Some(format!("it waits for the end of run {}", going.id))
        }
        Wait::Pods => is_long.then(|| {
            "it waits for the end of pods of a run that is over; to wait no longer, delete them"
                .to_owned()
        }),
        Wait::Changes => None,
    }
}

/// A whole decision in words, for the log. It shows neither inputs nor what ConfigMaps and Secrets hold.
pub(super) fn said(decision: &Decision) -> String {
    let steps = decision.steps.iter().map(|step| match step {
        Step::Reopen => "say that a run comes".to_owned(),
        Step::Close => "say that none comes".to_owned(),
        Step::Record { record, passed_over: Some(trigger), .. } => {
            format!("pass {} over, after run {}", trigger.word(), record.last)
        }
        Step::Record { record, .. } => {
            let open: Vec<_> = record.open.iter().map(|run| run.id.to_string()).collect();
            format!("record that these go on: [{}]", open.join(", "))
        }
        Step::Start(run) => format!("start run {} ({})", run.id, run.trigger.word()),
        Step::Keep(run) => format!("keep what run {} left", run.id),
        Step::Settle(run, outcome) => format!("settle run {}: {}", run.id, outcome.reason),
        Step::Remove(run) => format!("remove the Job of run {run}"),
    });
    let wait = decision.wait.as_ref().map(|wait| match wait {
        Wait::References(missing) => format!("wait for {}", missing.join(", ")),
        Wait::Changes => "wait until changes have settled".to_owned(),
        Wait::Run => "wait for the end of a run".to_owned(),
        Wait::Pods => "wait for the end of pods of a run that is over".to_owned(),
        Wait::Numbers => "wait: no number is left".to_owned(),
    });
    let all: Vec<String> = steps.chain(wait).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use engine::trigger::{JobRecord, Outcome, Run, Trigger};
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_follows_is_said_and_nothing_that_is_confidential() {
        let inputs = vec![json!({"name": "A", "value": "planted-8qZ"})];
        let run = Run { id: 3, trigger: Trigger::Now, at: String::new(), inputs, pod: None };
        let record = JobRecord { last: 3, open: vec![run.clone()], ..JobRecord::default() };
        let recorded = |passed_over| Step::Record {
            record: record.clone(),
            strategy: engine::trigger::Strategy::Manual,
            passed_over,
        };
        for (steps, wait, expected) in [
            (vec![], None, "nothing"),
            (
                vec![Step::Reopen, recorded(None), Step::Start(run.clone())],
                None,
                "say that a run comes; record that these go on: [3]; start run 3 (now)",
            ),
            (vec![recorded(Some(Trigger::Schedule))], None, "pass schedule over, after run 3"),
            (
                vec![
                    Step::Keep(run.clone()),
                    Step::Settle(run.clone(), Outcome::failed("Lost", "planted-8qZ")),
                    Step::Remove(3),
                    Step::Close,
                ],
                None,
                "keep what run 3 left; settle run 3: Lost; remove the Job of run 3; say that none comes",
            ),
            (
                vec![],
                Some(Wait::References(vec!["secret/a".to_owned(), "configmap/b".to_owned()])),
                "wait for secret/a, configmap/b",
            ),
            (vec![], Some(Wait::Changes), "wait until changes have settled"),
            (vec![], Some(Wait::Run), "wait for the end of a run"),
            (vec![], Some(Wait::Pods), "wait for the end of pods of a run that is over"),
            (vec![], Some(Wait::Numbers), "wait: no number is left"),
        ] {
            let decision = Decision { steps, wait };
            assert_eq!(said(&decision), expected);
        }
    }
}
