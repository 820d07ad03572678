//! The words of the brokers and agents that the kubelet plays: reports and progress, and values to compare them with.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use agent::{
    Answer, Content, GATHERING_VARIABLE, Gathered, Gathering, Line, Message, ORDER_VARIABLE, Order,
    Report,
};
use engine::ports::{Offer, RunFailure};
use engine::record::Reason;
use k8s_openapi::api::core::v1::{Container, Pod};
use osb::jobs::contract::Capability;
use osb::{Action, BindingBody, Failure, FailureKind, Output};
use serde_json::{Value, json};

use super::{CONTAINER, End, JobAct};

/// The progress that a broker with that capability reports while its run goes on.
pub fn progress(run: &str) -> String {
    format!("{run} is on its way")
}

/// The broker's name for external work.
pub fn elsewhere(run: &str) -> String {
    format!("the work of {run}")
}

/// The state that a broker leaves, if it has that capability and does not fail.
pub fn left(run: &str) -> Value {
    json!({"left by": run})
}

/// The logs of brokers' pods.
#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<HashMap<String, String>>>);

impl Logs {
    /// The log of a pod, by its name.
    pub fn of(&self, pod: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(pod).cloned()
    }

    pub(super) fn write(&self, pod: &str, line: &Line) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.insert(pod.to_owned(), format!("{line}\n"));
    }
}

/// The termination message of an agent that has found this content in every file; if it takes stdout, the content was
/// printed, and no file written.
fn gathered(gathering: &Gathering, output: &str) -> Option<String> {
    let text = || Content::Text(output.to_owned());
    let found = |outputs: &agent::Outputs| match &outputs.stdout {
        Some(printed) => BTreeMap::from([(printed.clone(), text())]),
        None => outputs.files.iter().map(|file| (file.clone(), text())).collect(),
    };
    let outputs = gathering.outputs.iter();
    let outputs = outputs.map(|(container, outputs)| (container.clone(), found(outputs)));
    let gathered = Gathered { run: gathering.run.clone(), outputs: outputs.collect() };
    Some(Message::of(&gathered.seal(&gathering.key).ok()?).to_string())
}

/// The termination message of a run; `None` if there is none. Without an end, somebody ended it. `again`: the seconds
/// after which it asks to be tried or polled again.
pub(super) fn report(
    order: &Order,
    end: Option<&End>,
    again: Option<u64>,
    offer: &Offer,
) -> Option<String> {
    let failed = |reason, kind, words: &str| {
        let failure = Failure { retry_after: again, ..Failure::new(kind, words.to_owned()) };
        Err(RunFailure::new(reason, failure))
    };
    let answer = match end {
        Some(End::Killed) => return None,
        Some(End::Well) => Ok(None),
        Some(End::Elsewhere(far)) => Ok(Some(far)),
        Some(End::Fails(words)) => failed(Reason::ExitStatus, FailureKind::Failed, words),
        Some(End::Transient(words)) => failed(Reason::Reported, FailureKind::Transient, words),
        None => failed(Reason::Halted, FailureKind::Failed, "it was told to end"),
    };
    let answer = match order.action {
        None => Answer::Offer(answer.map(|_| offer.clone())),
        Some(action) => Answer::Work(answer.map(|far| {
            let output = output(order, action, far);
            Output { retry_after: again.filter(|_| output.external_operation.is_some()), ..output }
        })),
    };
    let report = Report { run: order.run.clone(), answer, log: String::new(), notes: Vec::new() };
    Some(Message::of(&report.seal(&order.key).ok()?).to_string())
}

/// The output of a broker: what it has made, or the progress of its external work.
fn output(order: &Order, action: Action, far: Option<&String>) -> Output {
    let mut output = Output::default();
    if order.can(Capability::State) {
        output.state = Some(left(&order.run).into());
    }
    if let Some(far) = far {
        output.description = Some(far.clone());
        let name = order.external.clone().unwrap_or_else(|| elsewhere(&order.run));
        output.external_operation = Some(name);
    } else if action == Action::Bind {
        let operation = order.work.get("operation_id").and_then(Value::as_str).unwrap_or_default();
        let credentials = json!({"password": format!("secret-of-{operation}")});
        let credentials = credentials.as_object().cloned().map(Into::into);
        output.binding = Some(BindingBody { credentials, ..BindingBody::default() });
    }
    output
}

pub(super) fn image(pod: &Pod) -> Option<&str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    containers.find(|container| container.name == CONTAINER)?.image.as_deref()
}

pub(super) fn order(pod: &Pod) -> Option<Order> {
    serde_json::from_str(variable(&pod.spec.as_ref()?.containers, ORDER_VARIABLE)?).ok()
}

/// The message of the agent in a container that gathers files; empty if there is no such agent.
pub(super) fn report_of(container: &Container, act: &JobAct) -> String {
    let gathering = || -> Option<Gathering> {
        serde_json::from_str(variable([container], GATHERING_VARIABLE)?).ok()
    };
    gathering().and_then(|it| gathered(&it, &act.output)).unwrap_or_default()
}

pub(super) fn variable<'c>(
    containers: impl IntoIterator<Item = &'c Container>,
    name: &str,
) -> Option<&'c str> {
    let mut variables = containers.into_iter().flat_map(|it| it.env.iter().flatten());
    variables.find(|variable| variable.name == name)?.value.as_deref()
}

/// The state of a container that ended; an empty message is left out.
pub(super) fn terminated(code: i32, message: &str, pod: &Pod) -> Value {
    json!({"terminated": {
        "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
        "message": Some(message).filter(|message| !message.is_empty()),
        "finishedAt": pod.metadata.creation_timestamp,
    }})
}
