//! Input: how a run of a broker ended, in sections that a line `%%` parts; what is left out is empty:
//!
//! ```text
//! bind status:13 exit-codes structured-errors poll    (action or catalog, how it ended, what is declared)
//! {"description": "too small"}                        (stdout)
//! %%
//! reading the parameters                              (log)
//! %%
//! {"node": 3}                                         (state)
//! %%
//! half way                                            (progress file)
//! ```

use std::sync::LazyLock;

use engine::Policy;
use engine::contract::{Asked, Ended, Exit, interpret, offer, progress, secrets};
use engine::decide::{Around, State};
use engine::ports::{RunFailure, RunState};
use engine::record::{Reason, Record};
use engine::redact::Redactor;
use osb::jobs::contract::{Capability, EXTENSION_KEY};
use osb::{Action, Output, is_too_deep, rounded_integers};
use serde_json::{Value, json};

use crate::records::assert_next;
use crate::{PLANTED, assert_kept, plants};

/// The longest description, in bytes: what a broker says, or the engine's sentence and the end of a log.
const MAX_DESCRIPTION: usize = 4000 + 1000;
/// The longest progress, in bytes.
const MAX_PROGRESS: usize = 500;

/// The two ends of the planted secret: each is more than half of it.
const HALVES: [&str; 2] = ["pl4nted-", "ted-s3cret"];

/// The property that whatever a broker leaves is either a success that can be kept or a failure that can be told; no
/// message is too long, holds what a terminal would obey, or a credential.
///
/// # Panics
/// If that does not hold.
pub fn broker_output(input: &[u8]) {
    let run = Run::read(input);
    let redactor = Redactor::new(&secrets::of_output(run.stdout));
    let log = redactor.redact(&run.log);
    let ended = Ended {
        exit: run.exit,
        stdout: run.stdout,
        log: &log,
        state: (!run.state.is_empty()).then_some(run.state),
        redactor: &redactor,
    };
    let secret = match is_credential(run.stdout) {
        false => &[][..],
        true if comes_whole(input) => &HALVES,
        true => &[PLANTED],
    };
    let asked = Asked {
        action: Some(run.action),
        external: run.poll.then_some("task"),
        capabilities: &run.capabilities,
    };
    let result = interpret(&asked, &ended);
    assert_eq!(interpret(&asked, &ended), result);
    match &result {
        Ok(output) => assert_output(&asked, output, run.state, secret),
        Err(failure) => assert_failure(run.exit, failure, secret),
    }
    let run_state = RunState::Finished(result);
    let state = State {
        record: &BUSY,
        run: run_state,
        begun: false,
        halted: None,
        around: Around::Nothing,
        refused_start: None,
        queued: None,
    };
    assert_next(&POLICY, &state, BUSY.updated_at);

    match offer(&ended) {
        Ok(offer) => {
            assert!(offer.catalog.is_object() && offer.catalog.get(EXTENSION_KEY).is_none());
            let mut capabilities = offer.capabilities.clone();
            capabilities.sort_unstable();
            capabilities.dedup();
            assert_eq!(capabilities.len(), offer.capabilities.len());
        }
        Err(failure) => assert_failure(run.exit, &failure, secret),
    }
    if let Some(said) = progress(&run.progress, &redactor) {
        assert_said(&said, MAX_PROGRESS, secret);
    }
}

fn assert_output(asked: &Asked<'_>, output: &Output, state: &[u8], secret: &[&str]) {
    assert_kept(output);
    assert!(!is_too_deep(&json!(output.state)));
    assert!(output.state.is_none() || !is_rounded(state));
    if let Some(said) = &output.description {
        assert_said(said, MAX_DESCRIPTION, secret);
    }
    match &output.external_operation {
        Some(name) => {
            assert!(
                asked.capabilities.contains(&Capability::LastOperation) || asked.external.is_some()
            );
            assert!((1..=10_000).contains(&name.chars().count()), "{}", name.len());
            assert!(!name.contains(char::is_control));
        }
        None => assert_eq!(output.retry_after, None),
    }
}

/// Whether what a broker left holds a number that is another once it is read.
fn is_rounded(state: &[u8]) -> bool {
    let value = serde_json::from_slice(state).unwrap_or_default();
    rounded_integers(state, &value).next().is_some()
}

fn assert_failure(exit: Exit, failure: &RunFailure, secret: &[&str]) {
    assert!(!failure.reason.as_str().is_empty());
    assert_said(&failure.failure.description, MAX_DESCRIPTION, secret);
    match exit {
        Exit::Halted => assert_eq!(failure.reason, Reason::Halted),
        Exit::TimedOut(_) => assert_eq!(failure.reason, Reason::Timeout),
        Exit::Signal(_) | Exit::Stopped => assert_eq!(failure.reason, Reason::Killed),
        Exit::TooMuchOutput(_) => assert_eq!(failure.reason, Reason::OutputTooLarge),
        Exit::Status(_) => {}
    }
}

fn assert_said(said: &str, limit: usize, secret: &[&str]) {
    assert!(!said.trim().is_empty());
    assert!(said.len() <= limit, "{} bytes", said.len());
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    assert!(!said.contains(obeyed), "{said:?}");
    assert!(!secret.iter().any(|part| said.contains(part)), "{said:?}");
}

/// Whether no half of the planted secret is in the input but where all of it is: then none may be told.
/// An escape may spell one.
fn comes_whole(input: &[u8]) -> bool {
    let count = |part: &str| input.windows(part.len()).filter(|at| *at == part.as_bytes()).count();
    !input.contains(&b'\\') && HALVES.iter().all(|half| count(half) == count(PLANTED))
}

/// Whether the planted secret is a credential of a well-formed output.
fn is_credential(stdout: &[u8]) -> bool {
    match serde_json::from_slice(stdout.trim_ascii()) {
        Ok(Value::Object(output)) => output.get("credentials").is_some_and(plants),
        _ => false,
    }
}

struct Run<'i> {
    action: Action,
    exit: Exit,
    capabilities: Vec<Capability>,
    poll: bool,
    stdout: &'i [u8],
    log: String,
    state: &'i [u8],
    progress: String,
}

impl<'i> Run<'i> {
    /// Reads a case from an input: every input is one; words without a meaning are ignored.
    fn read(input: &'i [u8]) -> Self {
        let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
        let (head, rest) = input.split_at(line);
        let mut sections = Sections(Some(rest.get(1..).unwrap_or_default()));
        let mut section = || sections.next().unwrap_or_default();
        let stdout = section();
        let log = String::from_utf8_lossy(section()).into_owned();
        let state = section();
        let progress = String::from_utf8_lossy(section()).into_owned();
        let mut run = Self {
            action: Action::Bind,
            exit: Exit::Status(0),
            capabilities: Vec::new(),
            poll: false,
            stdout,
            log,
            state,
            progress,
        };
        String::from_utf8_lossy(head).split(' ').for_each(|word| run.word(word));
        run
    }

    fn word(&mut self, word: &str) {
        let name = Value::from(word);
        if let Ok(action) = serde_json::from_value(name.clone()) {
            self.action = action;
        } else if let Ok(capability) = serde_json::from_value(name) {
            self.capabilities.push(capability);
        } else if let Some(exit) = exit(word) {
            self.exit = exit;
        } else if word == "poll" {
            self.poll = true;
        }
    }
}

fn exit(word: &str) -> Option<Exit> {
    let (how, number) = word.split_once(':').unwrap_or((word, "0"));
    Some(match how {
        "status" => Exit::Status(number.parse().ok()?),
        "signal" => Exit::Signal(number.parse().ok()?),
        "timed-out" => Exit::TimedOut(number.parse().ok()?),
        "too-much-output" => Exit::TooMuchOutput(number.parse().ok()?),
        "halted" => Exit::Halted,
        "stopped" => Exit::Stopped,
        _ => return None,
    })
}

/// The parts of a text between lines `%%`.
struct Sections<'i>(Option<&'i [u8]>);

impl<'i> Iterator for Sections<'i> {
    type Item = &'i [u8];

    fn next(&mut self) -> Option<&'i [u8]> {
        const LINE: &[u8] = b"%%\n";
        let rest = self.0.take()?;
        let at = rest.windows(LINE.len()).position(|window| window == LINE);
        let Some(at) = at else { return Some(rest) };
        self.0 = rest.get(at + LINE.len()..);
        rest.get(..at)
    }
}

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);

/// A record whose bind is in progress.
static BUSY: LazyLock<Record> = LazyLock::new(|| {
    let record = json!({
        "key": {"binding": ["i", "b"]}, "lifecycle": "creating",
        "ordered": {"service_id": "s", "plan_id": "p"},
        "operation": {
            "id": "bind-x", "action": "bind", "request_hash": "h", "attempt": 1,
            "phase": {"phase": "started", "at": 1_700_000_000_000_u64},
            "created_at": 1_700_000_000_000_u64,
        },
        "sequence": 1, "created_at": 1_700_000_000_000_u64, "updated_at": 1_700_000_000_000_u64,
    });
    serde_json::from_value(record).unwrap()
});
