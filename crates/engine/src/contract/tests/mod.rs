use super::*;
use osb::jobs::contract::Capability::{self, *};

mod extensions;
mod files;
mod given;
mod round_trip;
mod said;
mod version_1;

const V2: &[Capability] =
    &[RequestFile, Update, Progress, State, StructuredErrors, ExitCodes, LastOperation];

struct Case {
    action: Action,
    external: Option<&'static str>,
    capabilities: &'static [Capability],
    exit: Exit,
    stdout: String,
    log: &'static str,
    state: Option<Vec<u8>>,
    redactor: Redactor,
}

impl Case {
    #[expect(clippy::needless_pass_by_value, reason = "so that a table can write json!(…)")]
    fn of(action: Action, stdout: impl ToString) -> Self {
        let stdout = stdout.to_string();
        let exit = Exit::Status(0);
        let (capabilities, log, redactor) = (&[], "", Redactor::default());
        Self { action, external: None, capabilities, exit, stdout, log, state: None, redactor }
    }

    fn exit(self, status: i32) -> Self {
        Self { exit: Exit::Status(status), ..self }
    }

    fn with(self, capabilities: &'static [Capability]) -> Self {
        Self { capabilities, ..self }
    }

    fn read(&self) -> Result<Output, RunFailure> {
        let (action, external) = (Some(self.action), self.external);
        let asked = Asked { action, external, capabilities: self.capabilities };
        let stdout = self.stdout.as_bytes();
        let state = self.state.as_deref();
        let (exit, log, redactor) = (self.exit, self.log, &self.redactor);
        interpret(&asked, &Ended { exit, stdout, log, state, redactor })
    }

    #[track_caller]
    fn good(&self) -> Output {
        self.read().unwrap()
    }

    #[track_caller]
    fn fails(&self, reason: Reason) -> osb::Failure {
        let failure = self.read().unwrap_err();
        assert_eq!(failure.reason, reason, "{failure:?}");
        assert!(!failure.failure.description.is_empty());
        failure.failure
    }

    #[track_caller]
    fn fails_saying(&self, reason: Reason, text: &str) {
        let description = self.fails(reason).description;
        assert!(description.contains(text), "{text:?} is not in {description:?}");
    }
}

fn poll(stdout: impl ToString) -> Case {
    Case { external: Some("x-1"), ..Case::of(Action::Provision, stdout).with(V2) }
}
