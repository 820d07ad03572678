//! The probe: sends requests to the broker, notes verdicts, and remembers what has to be deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use super::checks::CHECKS;
use super::chosen::Chosen;
use super::message::{Answer, Ask, Kind};
use super::report::{CheckResult, Report, Verdict};
use super::{Options, observe};
use crate::broker::Action;
use crate::client::{
    Client, ClientError, FollowOptions, OrderFailure, RawResponse, Retries, WaitError, Watch,
    random_uuid,
};
use crate::model::{BindingId, DeprovisionRequest, InstanceId, Object, Sensitive, UnbindRequest};

/// How long a broker may be busy with something that has to be removed before the suite leaves it and reports it.
const BUSY: Duration = Duration::from_secs(120);

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    /// The operation ended well. For a deletion, 410 is as good.
    Well,
    /// The operation failed, or its end is not known.
    Badly(String),
}

/// The flags of a run of the suite: whether it has to end, and whether a request is under way, whose answer has to be
/// waited for.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    stopped: AtomicBool,
    asks: AtomicBool,
}

impl Turn {
    pub(super) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_stopped() && !self.0.asks.load(Ordering::Relaxed)
    }
}

/// The state of a run of the suite.
pub(super) struct Probe<'a> {
    pub(super) client: &'a Client,
    pub(super) options: Options,
    pub(super) chosen: Option<Chosen>,
    /// The reason why the checks that come next cannot be made.
    pub(super) reason: String,
    turn: Turn,
    blocked: Option<String>,
    /// Whether the broker does not answer any more.
    is_silent: bool,
    verdicts: HashMap<&'static str, Verdict>,
    made: Vec<(String, String)>,
    leftovers: Vec<String>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(client: &'a Client, options: Options) -> Self {
        Self {
            client,
            options,
            chosen: None,
            reason: "nothing led to it".to_owned(),
            turn: Turn::default(),
            blocked: None,
            is_silent: false,
            verdicts: HashMap::new(),
            made: Vec::new(),
            leftovers: Vec::new(),
        }
    }

    pub(super) fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// A valid request, of the service and plan under test, for a new id.
    pub(super) fn ask(&self, kind: Kind) -> Ask {
        let instance = format!("conformance-{}", random_uuid());
        self.ask_of(kind, &instance, &format!("conformance-{}", random_uuid()))
    }

    /// A valid request for these ids.
    pub(super) fn ask_of(&self, kind: Kind, instance: &str, binding: &str) -> Ask {
        let incomplete = ("accepts_incomplete", "true".to_owned());
        let names = self.names();
        let query = match kind {
            Kind::Provision | Kind::Update | Kind::Bind => vec![incomplete],
            Kind::Deprovision | Kind::Unbind => {
                vec![("service_id", names.0), ("plan_id", names.1), incomplete]
            }
            _ => Vec::new(),
        };
        let mut headers = self.client.headers();
        let body = self.body(kind);
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let (instance, binding) = (instance.to_owned(), binding.to_owned());
        Ask { kind, instance, binding, query, headers, body, raw: None }
    }

    fn body(&self, kind: Kind) -> Option<Value> {
        let (service, plan) = self.names();
        let mut body = match kind {
            Kind::Provision => json!({
                "service_id": service, "plan_id": plan, "organization_guid": "conformance",
                "space_guid": "conformance", "context": kubernetes_context(),
            }),
            Kind::Update => json!({"service_id": service}),
            Kind::Bind => json!({
                "service_id": service, "plan_id": plan, "context": kubernetes_context(),
                "bind_resource": {"app_guid": "conformance"},
            }),
            _ => return None,
        };
        let parameters = match kind {
            Kind::Provision => &self.options.parameters,
            Kind::Bind => &self.options.binding_parameters,
            _ => &None,
        };
        if let Some(parameters) = parameters {
            body["parameters"] = Value::Object(parameters.expose().clone());
        }
        Some(body)
    }

    /// The ids of the service and plan under test.
    pub(super) fn names(&self) -> (String, String) {
        let id = |value: Option<&Value>| {
            value.and_then(|value| value["id"].as_str()).unwrap_or("conformance").to_owned()
        };
        let chosen = self.chosen.as_ref();
        (id(chosen.map(|chosen| &chosen.service)), id(chosen.map(|chosen| &chosen.plan)))
    }

    pub(super) async fn send(&mut self, ask: Ask) -> Answer {
        self.exchange(ask).await.0
    }

    /// Sends a request, and returns the answer as the checks see it and as it came.
    async fn exchange(&mut self, ask: Ask) -> (Answer, Result<RawResponse, ClientError>) {
        let body = match (&ask.raw, &ask.body) {
            (Some(raw), _) => Bytes::from_static(raw),
            (None, Some(body)) => Bytes::from(body.to_string()),
            (None, None) => Bytes::new(),
        };
        if self.turn.is_stopped() {
            // Whoever polls this lets go of it now.
            std::future::pending::<()>().await;
        }
        let is_new = self.expect(&ask);
        self.turn.0.asks.store(true, Ordering::Relaxed);
        let started = Instant::now();
        let sent =
            self.client.send(ask.kind.method(), &ask.path(), ask.headers.clone(), body).await;
        let elapsed = started.elapsed();
        let trouble = sent.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let (status, headers, json) = match &sent {
            Ok(RawResponse { status, headers, body, .. }) => {
                (*status, headers.clone(), serde_json::from_slice(body).unwrap_or_default())
            }
            Err(_) => Default::default(),
        };
        let answer = Answer { ask, status, headers, json, elapsed, trouble };
        self.remember(&answer, is_new);
        self.turn.0.asks.store(false, Ordering::Relaxed);
        for (id, verdict) in observe::look(&answer, self.chosen.as_ref()) {
            self.note(id, verdict);
        }
        (answer, sent)
    }

    /// Sends a request, and notes the verdict on its answer.
    pub(super) async fn check(
        &mut self,
        id: &'static str,
        ask: Ask,
        judge: impl FnOnce(&Answer) -> Verdict,
    ) -> Answer {
        let answer = self.send(ask).await;
        self.note(id, judge(&answer));
        answer
    }

    /// Notes a verdict. A failure stays, whatever comes after it.
    pub(super) fn note(&mut self, id: &'static str, verdict: Verdict) {
        match (self.verdicts.get(id), &verdict) {
            (Some(Verdict::Fail(_)), _) | (Some(_), Verdict::Skip(_)) => {}
            _ => drop(self.verdicts.insert(id, verdict)),
        }
    }

    /// Notes that a check cannot be made.
    pub(super) fn skip(&mut self, id: &'static str, why: &str) {
        self.note(id, Verdict::Skip(why.to_owned()));
    }

    /// Notes that the checks whose names have one of these beginnings cannot be made, but for those that were made.
    pub(super) fn skip_all(&mut self, beginnings: &[&str], why: &str) {
        for check in CHECKS {
            if beginnings.iter().any(|beginning| check.id.starts_with(beginning)) {
                self.skip(check.id, why);
            }
        }
    }

    /// Notes that most of the suite cannot be run.
    pub(super) fn block(&mut self, why: &str) {
        self.reason = why.to_owned();
        self.blocked = Some(why.to_owned());
    }

    /// Notes a verdict that only counts while the operation of `accepted` goes on.
    pub(super) async fn note_early(
        &mut self,
        id: &'static str,
        accepted: &Answer,
        verdict: Verdict,
    ) {
        let counts = !verdict.failed() || self.in_progress(accepted).await;
        let too_late = || Verdict::Skip("the operation ended too soon".to_owned());
        self.note(id, if counts { verdict } else { too_late() });
    }

    async fn in_progress(&mut self, accepted: &Answer) -> bool {
        self.poll(accepted).await.json["state"] == "in progress"
    }

    /// Polls once the operation that a 202 has accepted.
    pub(super) async fn poll(&mut self, accepted: &Answer) -> Answer {
        self.send(self.ask_after(accepted)).await
    }

    fn ask_after(&self, accepted: &Answer) -> Ask {
        let Ask { kind, instance, binding, .. } = &accepted.ask;
        let mut ask = self.ask_of(kind.last_operation(), instance, binding);
        let (service, plan) = self.names();
        ask.query = vec![("service_id", service), ("plan_id", plan)];
        if let Some(operation) = accepted.json["operation"].as_str() {
            ask.query.push(("operation", operation.to_owned()));
        }
        ask
    }

    /// Follows an accepted operation to its end; anything but a 202 has ended already. If the broker does not answer
    /// any more, the suite ends.
    pub(super) async fn settle(&mut self, accepted: &Answer) -> Settled {
        if accepted.status != 202 {
            return Settled::Well;
        }
        let (action, polling) = (accepted.ask.kind.action(), self.options.polling.clone());
        let mut watch = Watch::new(action, &polling);
        loop {
            tokio::time::sleep(watch.pause()).await;
            let asked = tokio::time::Instant::now();
            let (answer, raw) = self.exchange(self.ask_after(accepted)).await;
            let why = match watch.heard(asked, raw.and_then(RawResponse::last_operation)) {
                None => continue,
                Some(Ok(_)) => {
                    if matches!(action, Action::Deprovision | Action::Unbind) {
                        self.forget(&accepted.ask);
                    }
                    return Settled::Well;
                }
                Some(Err(WaitError::Silent { after, .. })) => {
                    let after = after.as_secs();
                    self.give_up(&format!("no answer for {after} s: {}", answer.seen())).await
                }
                Some(Err(WaitError::Unclear { .. })) => answer.seen(),
                Some(Err(error @ (WaitError::Failed(_) | WaitError::Deadline { .. }))) => {
                    error.to_string()
                }
            };
            return Settled::Badly(why);
        }
    }

    /// Ends the suite because the broker does not answer any more.
    async fn give_up(&mut self, why: &str) -> String {
        self.is_silent = true;
        self.block(why);
        self.turn.stop();
        // Whoever polls this lets go of it now.
        std::future::pending().await
    }

    /// Notes that the suite has ended early. The clean-up that follows cannot be stopped.
    pub(super) fn stopped(&mut self) {
        self.turn = Turn::default();
        if !self.is_silent {
            self.block("it was stopped");
        }
    }

    /// Notes what a request may make before it is sent, so that it is removed even if the suite is stopped in between.
    /// Returns whether it is new.
    fn expect(&mut self, ask: &Ask) -> bool {
        let made = made_by(ask);
        let is_new = matches!(ask.kind, Kind::Provision | Kind::Bind) && !self.made.contains(&made);
        if is_new {
            self.made.push(made);
        }
        is_new
    }

    /// Notes what an answer says of the things made: whatever was not refused may have been made.
    fn remember(&mut self, answer: &Answer, is_new: bool) {
        match (answer.ask.kind, answer.status) {
            (Kind::Provision | Kind::Bind, 0 | 200..300 | 500..) => {}
            (Kind::Provision | Kind::Bind, _) if is_new => self.forget(&answer.ask),
            (Kind::Deprovision | Kind::Unbind, 200 | 410) => self.forget(&answer.ask),
            _ => {}
        }
    }

    fn forget(&mut self, ask: &Ask) {
        let gone = made_by(ask);
        self.made.retain(|made| *made != gone);
    }

    /// Deletes the bindings that may be there still.
    pub(super) async fn remove_bindings(&mut self) {
        self.remove_all(|binding| !binding.is_empty()).await;
    }

    /// Deletes whatever may be there still, bindings first.
    pub(super) async fn clean_up(&mut self) {
        self.remove_bindings().await;
        self.remove_all(|_| true).await;
    }

    /// Removes the matching things one after the other, so that it is known what is left if the suite is stopped in
    /// between.
    async fn remove_all(&mut self, is_such: impl Fn(&str) -> bool) {
        let pause = self.options.polling.first_interval;
        // Of whoever is silent it is asked once more, in case that was all.
        let attempts = if self.is_silent { 1 } else { 4 };
        let retries = Retries { attempts, first_pause: pause, max_pause: pause * 8 };
        let order =
            FollowOptions { polling: self.options.polling.clone(), mitigation: Some(retries) };
        while let Some(at) = self.made.iter().position(|(_, binding)| is_such(binding)) {
            let (instance, binding) = self.made[at].clone();
            // An answer is waited for, as of any request.
            self.turn.0.asks.store(true, Ordering::Relaxed);
            let removed = self.remove(&instance, &binding, &order).await;
            self.turn.0.asks.store(false, Ordering::Relaxed);
            self.made.remove(at);
            if let Err(why) = removed {
                let name =
                    if binding.is_empty() { instance } else { format!("{instance}/{binding}") };
                self.leftovers.push(format!("{name}: {why}"));
            }
        }
    }

    async fn remove(
        &self,
        instance: &str,
        binding: &str,
        order: &FollowOptions,
    ) -> Result<(), String> {
        let (service, plan) = self.names();
        let unusable = |why: crate::IdError| why.to_string();
        let instance = InstanceId::new(instance).map_err(unusable)?;
        let service_id = crate::ServiceId::new(service).map_err(unusable)?;
        let plan_id = crate::PlanId::new(plan).map_err(unusable)?;
        let binding = match binding {
            "" => None,
            id => Some(BindingId::new(id).map_err(unusable)?),
        };
        let end = Instant::now() + BUSY.min(order.polling.deadline);
        let mut interval = order.polling.first_interval;
        loop {
            let (service_id, plan_id) = (service_id.clone(), plan_id.clone());
            let removed = match &binding {
                None => {
                    let request = DeprovisionRequest { service_id, plan_id };
                    self.client.deprovision_and_wait(&instance, &request, order).await
                }
                Some(binding) => {
                    let request = UnbindRequest { service_id, plan_id };
                    self.client.unbind_and_wait(&instance, binding, &request, order).await
                }
            };
            let Err(error) = removed else { return Ok(()) };
            // It goes on being made, of which nobody waits for the end where the run was stopped.
            let is_busy = matches!(&error.cause, OrderFailure::Request(ClientError::Refused(refusal)) if refusal.is("ConcurrencyError"));
            if !is_busy || Instant::now() >= end {
                return Err(error.to_string());
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(order.polling.max_interval);
        }
    }

    pub(super) fn into_report(mut self) -> Report {
        let reason = self.reason;
        let results = CHECKS.iter().map(|check| {
            let verdict = self.verdicts.remove(check.id);
            CheckResult { check, verdict: verdict.unwrap_or_else(|| Verdict::Skip(reason.clone())) }
        });
        let results = results.collect();
        #[cfg(test)]
        assert!(self.verdicts.is_empty(), "checks in no list: {:?}", self.verdicts);
        let (blocked, is_silent) = (self.blocked, self.is_silent);
        Report { results, blocked, is_silent, leftovers: self.leftovers }
    }
}

/// The instance of a request, and its binding if it is of one; else nothing.
fn made_by(ask: &Ask) -> (String, String) {
    let is_of_binding = matches!(ask.kind, Kind::Bind | Kind::Unbind);
    let binding = if is_of_binding { ask.binding.clone() } else { String::new() };
    (ask.instance.clone(), binding)
}

/// Parameters as a value, or an empty object.
pub(super) fn parameters(parameters: Option<&Sensitive<Object>>) -> Value {
    parameters
        .map_or_else(|| Value::Object(Map::new()), |some| Value::Object(some.expose().clone()))
}

fn kubernetes_context() -> Value {
    json!({
        "platform": "kubernetes", "namespace": "conformance", "clusterid": "conformance",
        "instance_name": "conformance",
    })
}
