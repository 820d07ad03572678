//! Shortens and redacts what a broker in this process says to people, as the other runners do: without the secrets that
//! it was given and those that it gave.

use osb::{Action, Failure, FailureKind, Output};

use crate::contract::{self, secrets};
use crate::ports::{Run, RunFailure};
use crate::redact::{Redactor, Secrets};

/// The redaction of what one run says.
pub(super) struct Teller {
    /// The secrets that the run was given.
    given: Secrets,
    redactor: Redactor,
    /// Whether the run removes something: an unbind or a deprovision.
    removes: bool,
}

impl Teller {
    pub(super) fn of(run: &Run) -> Self {
        let removed = run.removes.as_deref().map(serde_json::to_value).and_then(Result::ok);
        let given = secrets::of_given(Some(&run.work), None, removed.as_ref());
        let removes = matches!(run.work.action, Action::Unbind | Action::Deprovision);
        Self { redactor: Redactor::new(&given), given, removes }
    }

    /// A progress report, as people may see it; `None` if nothing of it is left.
    pub(super) fn progress(&self, words: &str) -> Option<String> {
        contract::said(words, &self.redactor, contract::MAX_PROGRESS_BYTES)
    }

    /// The result of the run, as people may see it. [`FailureKind::Gone`] of a removal is a success.
    pub(super) fn ended(&self, ended: Result<Output, Failure>) -> Result<Output, RunFailure> {
        match ended {
            Ok(output) => Ok(self.output(output)),
            Err(failure) if failure.kind == FailureKind::Gone && self.removes => {
                Ok(Output::default())
            }
            Err(failure) => Err(self.failure(&failure)),
        }
    }

    fn output(&self, output: Output) -> Output {
        let Some(words) = output.description.as_deref() else { return output };
        let binding = output.binding.as_ref().map(serde_json::to_value).and_then(Result::ok);
        let mut all = binding.as_ref().map(secrets::of_binding).unwrap_or_default();
        all.extend(self.given.clone());
        output.state.iter().for_each(|state| all.add_json(state.expose()));
        let words = contract::said(words, &Redactor::new(&all), contract::MAX_DESCRIPTION_BYTES);
        Output { description: words, ..output }
    }

    fn failure(&self, failure: &Failure) -> RunFailure {
        let most = contract::MAX_DESCRIPTION_BYTES;
        let words = contract::said(&failure.description, &self.redactor, most);
        let description = words.unwrap_or_else(|| contract::SAYS_NOTHING.to_owned());
        RunFailure::new(contract::reason(failure.kind), Failure { description, ..*failure })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osb::{BindingBody, Work};
    use serde_json::{Value, json};

    use super::*;
    use crate::names::RunName;
    use crate::record::Reason;

    fn work(action: &str) -> Work {
        serde_json::from_value(json!({
            "action": action, "service_id": "s", "plan_id": "p", "instance_id": "i",
            "operation_id": "o", "attempt": 1, "parameters": {"password": "planted-parameter"},
            "context": {"token": "planted-context"}, "state": {"key": "planted-state"},
        }))
        .unwrap()
    }

    fn binding() -> BindingBody {
        serde_json::from_value(json!({"credentials": {"uri": "planted-credential"}})).unwrap()
    }

    fn teller(action: &str) -> Teller {
        Teller::of(&Run {
            name: RunName::attempt("o", 1),
            work: work(action),
            timeout: Duration::from_secs(1),
            capabilities: Vec::new(),
            removes: (action == "unbind").then(|| Box::new(binding())),
        })
    }

    /// All that is planted, and a bell.
    const WORDS: &str =
        "\u{7}no: planted-parameter planted-context planted-state planted-credential";

    #[test]
    fn nothing_that_was_given_or_is_removed_is_told() {
        let unbind = teller("unbind");
        let told = [
            unbind.progress(WORDS).unwrap(),
            unbind.ended(Err(Failure::failed(WORDS))).unwrap_err().failure.description,
            {
                let output = Output { description: Some(WORDS.to_owned()), ..Output::default() };
                unbind.ended(Ok(output)).unwrap().description.unwrap()
            },
        ];
        for told in told {
            assert!(told.starts_with("no: "), "{told}");
            assert!(!told.contains("planted"), "{told}");
        }
    }

    #[test]
    fn nor_is_what_is_made() {
        let made = json!({"key": "planted-made"});
        let output = Output {
            description: Some(format!("{WORDS} planted-made")),
            binding: Some(binding()),
            state: Some(Value::into(made)),
            ..Output::default()
        };
        let kept = teller("bind").ended(Ok(output.clone())).unwrap();
        assert!(!kept.description.clone().unwrap().contains("planted"), "{kept:?}");
        assert_eq!((kept.binding, kept.state), (output.binding, output.state));
    }

    #[test]
    fn what_is_said_is_no_longer_than_of_any_broker() {
        let (long, provision) = ("x".repeat(10_000), teller("provision"));
        assert_eq!(provision.progress(&long).unwrap().len(), contract::MAX_PROGRESS_BYTES);
        let failure = provision.ended(Err(Failure::failed(long))).unwrap_err().failure;
        assert_eq!(failure.description.len(), contract::MAX_DESCRIPTION_BYTES);
        let silent = provision.ended(Err(Failure::failed(" "))).unwrap_err().failure;
        assert!(silent.description.contains("does not say which"), "{silent:?}");
        assert_eq!(provision.progress("\u{1b}\n"), None);
    }

    #[test]
    fn what_is_gone_is_as_good_as_removed_and_nothing_else_is() {
        let gone = || Err(Failure::new(FailureKind::Gone, "no such database"));
        for (action, ends_well) in [
            ("provision", false),
            ("update", false),
            ("bind", false),
            ("unbind", true),
            ("deprovision", true),
        ] {
            assert_eq!(teller(action).ended(gone()).is_ok(), ends_well, "{action}");
        }
    }

    #[test]
    fn a_kind_of_failure_has_the_reason_that_its_exit_status_has() {
        for (kind, reason) in [
            (FailureKind::Failed, Reason::Reported),
            (FailureKind::Transient, Reason::Reported),
            (FailureKind::Unsupported, Reason::Unsupported),
            (FailureKind::Invalid, Reason::Invalid),
            (FailureKind::Conflict, Reason::Conflict),
            (FailureKind::Gone, Reason::Reported),
            (FailureKind::Busy, Reason::Busy),
        ] {
            let failure = teller("update").ended(Err(Failure::new(kind, "no"))).unwrap_err();
            assert_eq!((failure.reason, failure.failure.kind), (reason, kind));
        }
    }
}
