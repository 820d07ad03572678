//! The jobs contract: what a `/bin/broker` is given, and what its output means, the same on a machine
//! and on a cluster. Pure.
//!
//! ```text
//! Work ── arguments, environment ──▶ /bin/broker ── exit status, stdout, log, state ──▶ interpret
//! ```
//!
//! Version 1 is the contract as its first brokers were written for it (seed "Jobs Mode"): a
//! subcommand, its flags, JSON on stdout, 0 or not 0. It knows no asynchrony: `operation` in an output
//! means nothing, for the first sample broker prints it when it is done. Everything else is an
//! extension that a broker has to declare, one [`Capability`] each; nothing of it is given to, or read
//! from, a broker that does not.
//!
//! Version 1 was strict about everything but `unbind`, whose output nobody read. So anything at all is
//! a good output of `unbind`, and nothing is a good one of `deprovision` too.
//!
//! No description made here repeats what stood on stdout, for it may be a credential. What a broker says
//! to people, in a structured error, a progress file, a `description` or the name of a member, is redacted
//! of what the caller knows to be secret: see [`secrets`].

mod failure;
mod given;
mod offer;
mod said;
pub mod secrets;
mod shape;
#[cfg(test)]
mod tests;

use osb::jobs::contract::{
    CATALOG, Capability, LAST_OPERATION, MAX_STATE_BYTES, variable::STATE_OUT_FILE,
};
use osb::{Action, INTEGER_BITS, Output, is_past_reading, is_too_deep, rounded_integers};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::failure::{Meaning, Reported, fail, fail_with_log};
pub(crate) use self::failure::{SAYS_NOTHING, reason};
pub use self::given::{Paths, RESERVED_PREFIX, arguments, declared, paths, variable, variables};
pub use self::offer::{of_file, offer};
pub use self::said::with_log;
pub(crate) use self::said::{MAX_DESCRIPTION_BYTES, said};
use self::shape::At;
use crate::ports::RunFailure;
use crate::record::Reason;
use crate::redact::Redactor;

/// The longest progress that is shown, in bytes.
pub(crate) const MAX_PROGRESS_BYTES: usize = 500;

/// The longest name of external work, in characters (the specification's limit for `operation`).
const MAX_EXTERNAL_NAME: usize = 10_000;

const TOO_DEEP: &str = "nested more than 64 levels deep, which cannot be kept";

const JSON_ONLY: &str = "stdout must carry JSON only, everything else belongs on stderr";

/// The question that a run was to answer.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The action; `None` asks for the catalog.
    pub action: Option<Action>,
    /// The name of the external work, if the run asked how that stands.
    pub external: Option<&'a str>,
    /// The extensions that the broker declared when the run began.
    pub capabilities: &'a [Capability],
}

/// The end of a run, as it was observed.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// How the broker's process ended.
    pub exit: Exit,
    /// The broker's stdout.
    pub stdout: &'a [u8],
    /// The broker's stderr, or the end of it: redacted, for it was cut.
    pub log: &'a str,
    /// The state that the broker left in [`STATE_OUT_FILE`]; if that is too large, the first
    /// [`MAX_STATE_BYTES`] + 1 bytes.
    pub state: Option<&'a [u8]>,
    /// The redactor of what nobody may be told: the secrets that the broker was given, and those that it gave.
    pub redactor: &'a Redactor,
}

/// The way in which a broker's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// The process exited with this status.
    Status(i32),
    /// The process was ended by a signal that this program did not send.
    Signal(i32),
    /// The process was ended after its time, of as many seconds.
    TimedOut(u64),
    /// The process was ended because somebody asked for it.
    Halted,
    /// The process was ended because its supervisor was told to end: the machine goes down.
    Stopped,
    /// The process was ended because it printed more than the limit, as many bytes, on stdout.
    TooMuchOutput(u64),
}

impl Ended<'_> {
    /// The text on stdout, without what may stand around JSON. Some tools write a byte order mark before
    /// everything, which a parser may pass over (RFC 8259, section 8.1).
    fn text(&self) -> &[u8] {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        self.stdout.strip_prefix(MARK).unwrap_or(self.stdout).trim_ascii()
    }
}

impl Asked<'_> {
    fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }

    fn subcommand(&self) -> &'static str {
        match (self.action, self.external) {
            (None, _) => CATALOG,
            (Some(_), Some(_)) => LAST_OPERATION,
            (Some(action), None) => action.as_str(),
        }
    }
}

/// Interprets the end of a run: its output, or how it failed.
///
/// # Errors
/// Each way of failing has a [`Reason`] of its own; a member of a wrong type is named by its path. The failure holds
/// the state that the run left for later ones, if that can be read: it may be all that says what is to be removed.
pub fn interpret(asked: &Asked<'_>, ended: &Ended<'_>) -> Result<Output, RunFailure> {
    let failed = |failure| RunFailure { state: state(asked, ended).ok().flatten(), ..failure };
    outcome(asked, ended).map_err(failed)
}

fn outcome(asked: &Asked<'_>, ended: &Ended<'_>) -> Result<Output, RunFailure> {
    let exists = match completed(asked, ended)? {
        Completed::Well => false,
        Completed::Exists => true,
        Completed::Gone => return Ok(Output::default()),
    };
    let removes = matches!(asked.action, Some(Action::Unbind | Action::Deprovision));
    let may_be_empty = exists || (removes && asked.external.is_none());
    let unread = asked.action == Some(Action::Unbind) && asked.external.is_none();
    let document = match document(asked, ended) {
        Ok(None) if may_be_empty => Value::Object(osb::Object::new()),
        Ok(None) => {
            let what =
                format!("{} printed nothing on stdout, where JSON is expected", asked.subcommand());
            return Err(fail_with_log(Reason::NotJson, &what, ended));
        }
        Ok(Some(document)) if !unread || document.is_object() => document,
        Err(failure) if !unread => return Err(failure),
        Ok(Some(_)) | Err(_) => Value::Object(osb::Object::new()),
    };
    let mut output = read(asked, ended, &document)?;
    output.state = state(asked, ended)?;
    Ok(output)
}

/// Reads the progress of a run from its progress file: a JSON object with `description` and `percent`, or
/// a line of text. At most 500 bytes, redacted.
pub fn progress(text: &str, redactor: &Redactor) -> Option<String> {
    let text = text.trim();
    let line = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(members)) => {
            let description = members.get("description").and_then(Value::as_str).map(str::trim);
            let percent = members.get("percent").and_then(Value::as_f64);
            let percent = percent.map(|percent| format!("{:.0}%", percent.clamp(0.0, 100.0)));
            match (description.filter(|said| !said.is_empty()), percent) {
                (Some(description), Some(percent)) => format!("{description} ({percent})"),
                (Some(description), None) => description.to_owned(),
                (None, Some(percent)) => percent,
                (None, None) => return None,
            }
        }
        Ok(_) => return None,
        // A file that is being written: half an object is no text.
        Err(_) if text.starts_with('{') => return None,
        Err(_) => text.lines().next()?.to_owned(),
    };
    said(&line, redactor, MAX_PROGRESS_BYTES)
}

enum Completed {
    Well,
    Exists,
    Gone,
}

/// Judges the end of the process itself, before its output is read.
fn completed(asked: &Asked<'_>, ended: &Ended<'_>) -> Result<Completed, RunFailure> {
    let (reason, what) = match ended.exit {
        Exit::Status(0) => return Ok(Completed::Well),
        Exit::Status(status) => {
            return match failure::of_status(status, asked, ended) {
                Meaning::Exists => Ok(Completed::Exists),
                Meaning::Gone => Ok(Completed::Gone),
                Meaning::Failed(failure) => Err(failure),
            };
        }
        Exit::Signal(number) => {
            (Reason::Killed, format!("the broker was ended by {}", failure::signal(number)))
        }
        Exit::TimedOut(seconds) => {
            let subcommand = asked.subcommand();
            (Reason::Timeout, format!("{subcommand} took more than {seconds} s and was ended"))
        }
        Exit::Halted => (Reason::Halted, format!("{} was halted", asked.subcommand())),
        Exit::Stopped => {
            let what = "the broker was ended because its supervisor was told to end (SIGTERM): the \
                        machine or the service is being stopped";
            (Reason::Killed, what.to_owned())
        }
        Exit::TooMuchOutput(limit) => {
            let subcommand = asked.subcommand();
            let what = format!(
                "{subcommand} printed more than {limit} bytes on stdout and was ended; {JSON_ONLY}"
            );
            (Reason::OutputTooLarge, what)
        }
    };
    Err(fail_with_log(reason, &what, ended))
}

/// The one JSON document on stdout; `None` if there is nothing.
fn document(asked: &Asked<'_>, ended: &Ended<'_>) -> Result<Option<Value>, RunFailure> {
    let stdout = ended.text();
    if stdout.is_empty() {
        return Ok(None);
    }
    let not_json = |what: String| {
        let what = format!("{} printed {what}; {JSON_ONLY}", asked.subcommand());
        Err(fail_with_log(Reason::NotJson, &what, ended))
    };
    let too_deep = || {
        let what = format!("{} printed JSON {TOO_DEEP}", asked.subcommand());
        Err(fail(Reason::WrongShape, what))
    };
    let mut documents = serde_json::Deserializer::from_slice(stdout).into_iter::<Value>();
    match documents.next() {
        Some(Ok(document)) => match documents.byte_offset() {
            end if end < stdout.len() => not_json("text after the JSON on stdout".to_owned()),
            _ if is_too_deep(&document) => too_deep(),
            _ => Ok(Some(document)),
        },
        Some(Err(error)) if is_past_reading(&error) => too_deep(),
        // Line and column only: the rest of the message may quote.
        Some(Err(error)) if error.is_eof() => not_json("JSON that ends too early".to_owned()),
        Some(Err(error)) => not_json(format!(
            "something on stdout that is not JSON (line {}, column {})",
            error.line(),
            error.column()
        )),
        None => Ok(None),
    }
}

/// Reads the output of a success.
fn read(asked: &Asked<'_>, ended: &Ended<'_>, document: &Value) -> Result<Output, RunFailure> {
    let wrong = |what: String| {
        let what = format!("the output of {}: {what}", asked.subcommand());
        // It names members, and a broker chooses the names of some.
        let what = said(&what, ended.redactor, MAX_DESCRIPTION_BYTES).unwrap_or_default();
        fail(Reason::WrongShape, what)
    };
    let root = At::root(document).map_err(wrong)?;
    if let Some(external) = asked.external {
        return poll(asked, ended, &root, external).unwrap_or_else(|what| Err(wrong(what)));
    }
    let mut output = members(asked, ended, &root).map_err(wrong)?;
    output.external_operation = external_operation(asked, &root).map_err(wrong)?;
    if output.external_operation.is_some() {
        output.retry_after = retry_after(&root);
    }
    Ok(output)
}

/// Reads the members that have a meaning for the action.
fn members(asked: &Asked<'_>, ended: &Ended<'_>, root: &At<'_>) -> Result<Output, shape::Wrong> {
    let kept: &[&str] = match asked.action {
        Some(Action::Provision | Action::Update) => &["metadata"],
        Some(Action::Bind) => &["credentials", "metadata", "volume_mounts"],
        Some(Action::Unbind | Action::Deprovision) | None => &[],
    };
    // What is passed over may hold what it likes.
    let kept: Vec<&str> =
        kept.iter().filter_map(|name| Some(shape::spelt(root.value(), name)?.0)).collect();
    let within = |path: &str, member: &str| {
        path.strip_prefix(member)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let kept = |path: &String| kept.iter().any(|member| within(path, member));
    if let Some(path) = rounded_integers(ended.text(), root.value()).find(kept) {
        return Err(format!("{path} {INTEGER_BITS}"));
    }
    let mut output = Output::default();
    match asked.action {
        Some(Action::Provision | Action::Update) => {
            output.dashboard_url = root.filled("dashboard_url")?;
            output.metadata = root.optional("metadata", shape::instance_metadata)?;
        }
        Some(Action::Bind) => output.binding = Some(shape::binding(root)?),
        Some(Action::Unbind | Action::Deprovision) | None => {}
    }
    if !asked.capabilities.is_empty() {
        output.description = description(ended, root)?;
    }
    Ok(output)
}

fn description(ended: &Ended<'_>, root: &At<'_>) -> Result<Option<String>, shape::Wrong> {
    let text = root.optional("description", At::text)?;
    Ok(text.and_then(|text| said(text, ended.redactor, MAX_DESCRIPTION_BYTES)))
}

/// The pause that the broker asks for, in seconds. One that is no whole number is passed over: the work itself is worth
/// more.
fn retry_after(root: &At<'_>) -> Option<u64> {
    root.get("retry_after")?.whole_number()
}

/// The name of external work, as in `{"operation": "…", "async": true}`.
fn external_operation(asked: &Asked<'_>, root: &At<'_>) -> Result<Option<String>, shape::Wrong> {
    if !asked.can(Capability::LastOperation) {
        return Ok(None);
    }
    // Whatever else it says could mean that the work goes on: nobody would ask after it.
    if root.optional("async", At::truth)? != Some(true) {
        return Ok(None);
    }
    let Some(operation) = root.get("operation") else {
        return Err("with \"async\": true, operation must name the work".to_owned());
    };
    let name = operation.text()?;
    // It is to become an argument, and no argument holds a NUL.
    let fits = (1..=MAX_EXTERNAL_NAME).contains(&name.chars().count());
    if !fits || name.contains(char::is_control) {
        let limit = MAX_EXTERNAL_NAME;
        return Err(format!(
            "operation must have from 1 to {limit} characters, none of them a control character"
        ));
    }
    Ok(Some(name.to_owned()))
}

/// Reads the answer of `last-operation`.
fn poll(
    asked: &Asked<'_>,
    ended: &Ended<'_>,
    root: &At<'_>,
    external: &str,
) -> Result<Result<Output, RunFailure>, shape::Wrong> {
    let states = "state must be \"in progress\", \"succeeded\" or \"failed\"";
    let state = root.get("state").ok_or(states)?;
    match state.text()? {
        "in progress" => Ok(Ok(Output {
            external_operation: Some(external.to_owned()),
            description: description(ended, root)?,
            retry_after: retry_after(root),
            ..Output::default()
        })),
        "succeeded" => members(asked, ended, root).map(Ok),
        "failed" => {
            let said = Reported::read(root.value(), ended.redactor);
            Ok(Err(said.into_failure(Reason::Reported, osb::FailureKind::Failed)))
        }
        _ => Err(states.to_owned()),
    }
}

/// The state that the broker left for later operations.
fn state(
    asked: &Asked<'_>,
    ended: &Ended<'_>,
) -> Result<Option<osb::Sensitive<Value>>, RunFailure> {
    let left = ended.state.filter(|_| asked.can(Capability::State)).unwrap_or_default();
    if left.trim_ascii().is_empty() {
        return Ok(None);
    }
    if left.len() > MAX_STATE_BYTES {
        let limit = MAX_STATE_BYTES;
        let what = format!("the state in {} is over {limit} bytes", STATE_OUT_FILE);
        return Err(fail(Reason::OutputTooLarge, what));
    }
    let state: Value = serde_json::from_slice(left).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let file = STATE_OUT_FILE;
        let what = format!("the state in {file} is not JSON (line {line}, column {column})");
        fail(Reason::NotJson, what)
    })?;
    // Of which there is nothing to give back.
    if state.is_null() || state.as_str() == Some("") {
        return Ok(None);
    }
    if is_too_deep(&state) {
        let what = format!("the state in {STATE_OUT_FILE} is JSON {TOO_DEEP}");
        return Err(fail(Reason::WrongShape, what));
    }
    if let Some(path) = rounded_integers(left, &state).next() {
        let what = format!("the state in {STATE_OUT_FILE}: {path} {INTEGER_BITS}");
        let what = said(&what, ended.redactor, MAX_DESCRIPTION_BYTES).unwrap_or_default();
        return Err(fail(Reason::WrongShape, what));
    }
    Ok(Some(osb::Sensitive::new(state)))
}
