//! What was decided, in words.

use engine::trigger::{Action, Decision, Wait};

use super::api::resource::{RUNS, Resource};

/// What a trigger waits for, for people, and maybe for long; `None`: for a moment, and of that nobody need be told.
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

/// All of it, for the log. Of inputs and of what references hold nothing.
pub(super) fn said(decision: &Decision) -> String {
    let actions = decision.actions.iter().map(|action| match action {
        Action::Reopen => "say that a run comes".to_owned(),
        Action::Close => "say that none comes".to_owned(),
        Action::Record { record, passed_over: Some(trigger), .. } => {
            format!("pass {} over, after run {}", trigger.word(), record.last)
        }
        Action::Record { record, .. } => {
            let open: Vec<_> = record.open.iter().map(|run| run.id.to_string()).collect();
            format!("record that these go on: [{}]", open.join(", "))
        }
        Action::Start(run) => format!("start run {} ({})", run.id, run.trigger.word()),
        Action::Keep(run) => format!("keep what run {} left", run.id),
        Action::Settle(run, outcome) => format!("settle run {}: {}", run.id, outcome.reason),
        Action::Remove(run) => format!("remove the Job of run {run}"),
    });
    let wait = decision.wait.as_ref().map(|wait| match wait {
        Wait::References(missing) => format!("wait for {}", missing.join(", ")),
        Wait::Changes => "wait until changes have settled".to_owned(),
        Wait::Run => "wait for the end of a run".to_owned(),
        Wait::Pods => "wait for the end of pods of a run that is over".to_owned(),
        Wait::Numbers => "wait: no number is left".to_owned(),
    });
    let all: Vec<String> = actions.chain(wait).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use engine::trigger::{Outcome, Record, Run, Trigger};
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_follows_is_said_and_nothing_that_is_confidential() {
        let inputs = vec![json!({"name": "A", "value": "planted-8qZ"})];
        let run = Run { id: 3, trigger: Trigger::Now, at: String::new(), inputs, pod: None };
        let record = Record { last: 3, open: vec![run.clone()], ..Record::default() };
        let recorded = |passed_over| Action::Record {
            record: record.clone(),
            strategy: engine::trigger::Strategy::Manual,
            passed_over,
        };
        for (actions, wait, expected) in [
            (vec![], None, "nothing"),
            (
                vec![Action::Reopen, recorded(None), Action::Start(run.clone())],
                None,
                "say that a run comes; record that these go on: [3]; start run 3 (now)",
            ),
            (vec![recorded(Some(Trigger::Schedule))], None, "pass schedule over, after run 3"),
            (
                vec![
                    Action::Keep(run.clone()),
                    Action::Settle(run.clone(), Outcome::failed("Lost", "planted-8qZ")),
                    Action::Remove(3),
                    Action::Close,
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
            let decision = Decision { actions, wait };
            assert_eq!(said(&decision), expected);
        }
    }
}
