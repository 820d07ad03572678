//! Calls to the API server, bounded in time, with their failures as the engine needs them.

use std::future::Future;
use std::time::Duration;

use engine::ports::{RunnerError, StoreError};
use futures_util::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    Api, DeleteParams, ListMeta, ListParams, LogParams, Preconditions, PropagationPolicy,
};
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use tokio::time::Instant;

/// After this time a call has failed; whether it took effect is unknown. The client itself would wait for ever.
const PATIENCE: Duration = Duration::from_secs(20);

/// The message for an answer that does not come from Kubernetes.
pub const NO_API_SERVER: &str =
    "what answers is no API server, or something before it answers in its place";

/// The words after which a decoder's message quotes the document.
const EXCERPTS: [&str; 2] = ["error found in #", "bigger context ..."];

/// Why a call failed, as far as callers distinguish it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// 404: there is no such object, or no such namespace.
    #[error("not found")]
    NotFound,
    /// 404, and not for an object: the API server does not serve such a kind in this version. For a moment that holds
    /// for every custom resource after the API server has started, so it does not mean that there is none.
    #[error("the API server does not serve its kind in this version, or not yet")]
    Unserved,
    /// 409 with the reason `AlreadyExists`.
    #[error("it exists already")]
    Exists,
    /// 409: somebody else wrote first, or a precondition does not hold.
    #[error("it was written by somebody else in the meantime")]
    Conflict,
    /// 429: the server has too much to do.
    #[error("the API server has too much to do: {0}")]
    Overloaded(String),
    /// 403: the caller lacks the right, or a quota is exceeded.
    #[error("the API server forbids it: {0}")]
    Forbidden(String),
    /// An admission webhook or a ValidatingAdmissionPolicy refuses it, which may be mended.
    #[error("the API server forbids it: {0}")]
    Denied(String),
    /// 400 or 422: the server will never accept it.
    #[error("the API server refused it as invalid: {0}")]
    Invalid(String),
    /// Anything else that the server said.
    #[error("the API server refused: {0}")]
    Failed(String),
    /// The request was not sent, because it could not be built.
    #[error("cannot be sent: {0}")]
    Unsent(String),
    /// No answer.
    #[error("no answer from the API server: {0}")]
    NoAnswer(String),
    /// Another obstacle than the server's answer, in words.
    #[error("{0}")]
    Hindered(String),
    /// An object that was deleted stays; with the reason.
    #[error("{0}")]
    Stays(String),
}

impl CallError {
    /// Whether the call certainly had no effect: the API server refused it, or was not asked.
    pub(crate) fn had_no_effect(&self) -> bool {
        matches!(
            self,
            Self::Forbidden(_)
                | Self::Denied(_)
                | Self::Invalid(_)
                | Self::Overloaded(_)
                | Self::Unsent(_)
        )
    }

    /// The error of a call about a Secret, without the parts that may quote its content, because messages are shown in
    /// progress texts, Events and logs.
    pub(crate) fn of_a_secret(self) -> Self {
        match self {
            Self::Forbidden(why) => Self::Forbidden(secretless(&why)),
            Self::Denied(why) => Self::Denied(secretless(&why)),
            Self::Invalid(why) => Self::Invalid(secretless(&why)),
            Self::Failed(why) => Self::Failed(secretless(&why)),
            Self::Unsent(why) => Self::Unsent(secretless(&why)),
            error => error,
        }
    }
}

/// The words with which the API server reports a webhook's refusal.
const DENIED: &str = "denied the request";

/// The words before which quota it is, and by how much, where the API server refuses an object for one.
const EXCEEDED: &str = " is forbidden: exceeded quota";

/// Shortens a message about a Secret to the place of the fault, because the rest may quote the content. What a webhook
/// says may be anything.
pub(crate) fn secretless(why: &str) -> String {
    let why = why.find(DENIED).and_then(|at| why.get(..at + DENIED.len())).unwrap_or(why);
    let mut fields = why.splitn(3, ": ");
    let place = fields.by_ref().take(2).collect::<Vec<_>>().join(": ");
    // A quota counts objects, and quotes nothing of them.
    let counts = fields.next().filter(|_| place.ends_with(EXCEEDED));
    let said = counts.map_or(place.clone(), |counts| format!("{place}: {counts}"));
    said.chars().take(300).collect()
}

/// What a decoder expected, without what it found: the library quotes that, and statuses, events and logs are read by
/// many.
pub(crate) fn valueless(error: &serde_json::Error) -> String {
    let said = error.to_string();
    match said.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected is {expected}"),
        None => "is not as the API has it".to_owned(),
    }
}

/// The parameters for the next page of a list; `None` after the last one.
pub(crate) fn next_page(of: ListParams, page: ListMeta) -> Option<ListParams> {
    let token = page.continue_.filter(|token| !token.is_empty())?;
    Some(of.continue_token(&token))
}

/// The number of a resource version, which is a growing revision of etcd (KEP-5504 promises it from 1.35 on); 0 if it
/// is none.
pub(crate) fn version_of(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// When an object was made, in seconds since 1970, by the API server's clock; 0 if it does not say.
pub(crate) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

impl From<CallError> for RunnerError {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Conflict | CallError::Exists => Self::Conflict,
            CallError::Overloaded(_) => Self::Overloaded,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// Waits for a call, for [`PATIENCE`] at most.
pub(crate) async fn call<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(result) => result.map_err(|error| failed(&error)),
        Err(_) => Err(CallError::NoAnswer(format!("waited for {} s", PATIENCE.as_secs()))),
    }
}

/// Like [`call`], for a read: `None` if the object does not exist. That is only known where its kind is served.
pub(crate) async fn find<T>(
    made: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Option<T>, CallError> {
    there(call(made).await)
}

/// The object that was read; `None` if it does not exist.
pub(crate) fn there<T>(read: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(CallError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parameters for deleting an object only if it has this uid, and this version, if they are given.
pub(crate) fn only(uid: Option<String>, version: Option<String>) -> DeleteParams {
    let this = Preconditions { uid, resource_version: version };
    DeleteParams::default().preconditions(this)
}

/// Like [`only`]; dependents are deleted after it. Without this policy some kinds leave theirs behind.
pub(crate) fn in_background(uid: Option<String>, version: Option<String>) -> DeleteParams {
    DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..only(uid, version) }
}

/// Deletes an object. The answer is not parsed: it may be the object, and take more memory than there is.
pub(crate) async fn delete<K: kube::Resource + Clone>(
    of: &Api<K>,
    name: &str,
    params: &DeleteParams,
) -> Result<(), CallError> {
    let request = kube::core::Request::new(of.resource_url()).delete(name, params);
    let client = of.clone().into_client();
    let deleted = async {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("delete");
        client.request_text(request).await
    };
    call(deleted).await.map(drop)
}

/// The log of a container, up to `limit_bytes`. It may be no valid text, and may end inside a character. `None` if its
/// node is gone, and the log with it. Any other "not found" is an error: a kubelet answers so for every pod when it has
/// just started, and for a pod that is gone.
pub(crate) async fn log(
    pods: &Api<Pod>,
    pod: &str,
    params: &LogParams,
) -> Result<Option<Vec<u8>>, CallError> {
    let read = call(async {
        let log = match pods.log_stream(pod, params).await {
            Err(kube::Error::Api(status)) if is_of_its_node(&status, pod) => return Ok(None),
            begun => Box::pin(begun?),
        };
        // A proxy before the API server may ignore the limit.
        let most = params.limit_bytes.and_then(|most| u64::try_from(most).ok()).unwrap_or(u64::MAX);
        let mut written = Vec::new();
        log.take(most).read_to_end(&mut written).await.map_err(kube::Error::ReadEvents)?;
        Ok(Some(written))
    });
    read.await
}

/// Whether the object that was not found is the node of a pod: the API server looks for that before it asks the
/// kubelet, and names it, though as a pod, too.
fn is_of_its_node(status: &Status, pod: &str) -> bool {
    let names = |name: &str| !name.is_empty() && name != pod;
    status.code == 404 && status.details.as_ref().is_some_and(|details| names(&details.name))
}

/// The configuration of a watch, to be narrowed down. A watch with a dead connection says nothing, so each ends after a
/// minute, and is begun anew where it was, which costs a request.
pub(crate) fn watching() -> watcher::Config {
    const QUIET: u32 = 60;
    watcher::Config::default().timeout(QUIET)
}

/// Whether a call was forbidden because its namespace is being deleted: nothing new can be created there.
pub(crate) fn is_of_a_namespace_that_goes(why: &str) -> bool {
    why.contains("because it is being terminated")
}

/// Whether a watch could not begin because a right is missing.
pub(crate) fn is_forbidden(error: &watcher::Error) -> bool {
    matches!(not_begun(error), Some(CallError::Forbidden(_)))
}

/// Whether a watch could not begin because its kind is not served.
pub(crate) fn is_unserved(error: &watcher::Error) -> bool {
    matches!(not_begun(error), Some(CallError::Unserved))
}

/// Why a watch could not begin.
fn not_begun(error: &watcher::Error) -> Option<CallError> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            Some(failed(error))
        }
        _ => None,
    }
}

/// The pauses before an interrupted watch is begun again: short at first, because watches report the ends of runs, and
/// never long, because an API server that was away may be back at once.
#[derive(Debug)]
pub(crate) struct Again {
    next: Duration,
    last: Option<Instant>,
}

impl Again {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(5);
    /// A watch that has lived for this long does not count as failed.
    const WELL: Duration = Duration::from_secs(1);
}

impl Default for Again {
    fn default() -> Self {
        Self { next: Self::FIRST, last: None }
    }
}

impl Iterator for Again {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // The watch that began after the last pause went well for a while.
        let paused = (self.next / 2).max(Self::FIRST);
        if self.last.is_some_and(|last| last.elapsed() > paused + Self::WELL) {
            self.next = Self::FIRST;
        }
        self.last = Some(Instant::now());
        let pause = self.next;
        self.next = (pause * 2).min(Self::LONGEST);
        Some(pause)
    }
}

impl Backoff for Again {
    /// Also called at the beginning of each try, which may fail: only time shows that it went well.
    fn reset(&mut self) {}
}

fn failed(error: &kube::Error) -> CallError {
    let kube::Error::Api(status) = error else { return CallError::NoAnswer(error.to_string()) };
    let said = without_excerpts(&status.message).to_owned();
    match status.code {
        // JSON, but no `Status` of Kubernetes: a gateway has answered.
        0 => CallError::NoAnswer(NO_API_SERVER.to_owned()),
        404 if names_no_object(status) => CallError::Unserved,
        404 => CallError::NotFound,
        409 if status.reason == "AlreadyExists" => CallError::Exists,
        409 => CallError::Conflict,
        code if is_of_a_policy(code, &said) => CallError::Denied(said),
        400 | 422 => CallError::Invalid(said),
        403 => CallError::Forbidden(said),
        429 => CallError::Overloaded(said),
        _ => CallError::Failed(said),
    }
}

/// Whether an answer is the refusal of a webhook or policy. For a webhook that gives no code the API server answers
/// 400; with 422 the webhook itself calls the object invalid. A ValidatingAdmissionPolicy answers 422, unless
/// configured otherwise.
fn is_of_a_policy(code: u16, said: &str) -> bool {
    match code {
        400 | 403 => said.contains(DENIED) || said.contains("denied request"),
        422 => said.contains("denied request"),
        _ => false,
    }
}

/// The API server's messages for a path that it does not serve, which differ from those for a missing object.
const NOTHING_THERE: [&str; 2] =
    ["404 page not found", "the server could not find the requested resource"];

fn names_no_object(status: &Status) -> bool {
    let names = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    !names && NOTHING_THERE.contains(&status.message.trim())
}

/// A message without the quotation of a document by a decoder: that may be a piece of something confidential.
fn without_excerpts(message: &str) -> &str {
    let end = EXCERPTS.iter().filter_map(|words| message.find(words)).min();
    message.get(..end.unwrap_or(message.len())).unwrap_or_default().trim_end_matches([' ', ','])
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_of_documents_are_left_out() {
        let said = "v1.ConfigMap.Data: ReadString: expects \" or n, but found 1, error found in #10 byte of \
                    ...|\"data\":{\"b\":1,\"c\":\"y|..., bigger context ...|PLANTED-7f3a-x9Q|...";
        let expected = "v1.ConfigMap.Data: ReadString: expects \" or n, but found 1";
        assert_eq!(without_excerpts(said), expected);
        assert_eq!(without_excerpts("pods \"a\" is forbidden"), "pods \"a\" is forbidden");
    }

    #[tokio::test]
    async fn an_object_that_is_gone_is_told_from_a_kind_that_is() {
        let details =
            |name: &str| serde_json::from_value::<StatusDetails>(json!({"name": name})).ok();
        for (said, details, is_unserved) in [
            ("404 page not found\n", None, true),
            ("the server could not find the requested resource", details(""), true),
            ("maps.example.com \"a\" not found", details("a"), false),
            ("the server could not find the requested resource", details("a"), false),
            ("nothing here", None, false),
        ] {
            let mut status = Status::failure(said, "NotFound").with_code(404);
            status.details = details;
            let failed = async { Err::<(), _>(kube::Error::Api(status.clone().boxed())) };
            let found = find(failed).await;
            assert_eq!(matches!(found, Err(CallError::Unserved)), is_unserved, "{status:?}");
            assert_eq!(matches!(found, Ok(None)), !is_unserved, "{status:?}");
        }
    }

    #[test]
    fn what_a_policy_does_not_let_in_is_told_from_what_is_at_fault_itself() {
        let webhook = "admission webhook \"w.example\" denied the request: not now";
        let policy = "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (code, said, is_denied) in [
            (400, webhook, true),
            (403, webhook, true),
            (422, webhook, false),
            (422, policy, true),
            (403, "secrets \"s\" is forbidden: exceeded quota: q", false),
            (
                422,
                "Secret \"s\" is invalid: data: Too long: must have at most 1048576 bytes",
                false,
            ),
            (400, "admission webhook \"w.example\" does not support dry run", false),
        ] {
            let status = Status::failure(said, "").with_code(code).boxed();
            let error = failed(&kube::Error::Api(status));
            assert_eq!(matches!(error, CallError::Denied(_)), is_denied, "{code}: {said}");
        }
    }

    #[test]
    fn a_node_that_is_gone_is_told_from_a_pod_that_is() {
        for (code, said, name, is_node) in [
            (404, "pods \"of-a-test\" not found", Some("of-a-test"), true),
            (404, "nodes \"of-a-test\" not found", Some("of-a-test"), true),
            (404, "pods \"p\" not found", Some("p"), false),
            (
                404,
                "the server could not find the requested resource ( pods/log p)",
                Some("p"),
                false,
            ),
            (404, "not found", Some(""), false),
            (404, "not found", None, false),
            (500, "Get \"https://10.0.0.1:10250/\": connection refused", Some("of-a-test"), false),
        ] {
            let mut status = Status::failure(said, "").with_code(code);
            status.details = name.and_then(|it| serde_json::from_value(json!({"name": it})).ok());
            assert_eq!(is_of_its_node(&status, "p"), is_node, "{status:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_begin_anew_when_it_went_well() {
        let mut again = Again::default();
        let pauses: Vec<_> = again.by_ref().take(7).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 5000, 5000]);
        again.last = again.last.and_then(|last| last.checked_sub(Duration::from_secs(11)));
        assert_eq!(again.next(), Some(Duration::from_millis(200)));
    }

    #[test]
    fn what_is_said_of_a_secret_that_was_refused_does_not_show_what_is_in_it() {
        for (why, said) in [
            (
                "Secret \"s\" is invalid: data[k]: Invalid value: \"PLANTED\"",
                "Secret \"s\" is invalid: data[k]",
            ),
            (
                "admission webhook \"w.example\" denied the request: no PLANTED: here",
                "admission webhook \"w.example\" denied the request",
            ),
            (
                "secrets \"s\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=3, limited: secrets=3",
                "secrets \"s\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=3, limited: secrets=3",
            ),
            (
                "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: PLANTED",
                "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request",
            ),
        ] {
            assert_eq!(secretless(why), said);
            for error in
                [CallError::Forbidden, CallError::Invalid, CallError::Failed, CallError::Unsent]
            {
                let words = error(why.to_owned()).of_a_secret().to_string();
                assert!(words.ends_with(said), "{words}");
            }
        }
    }
}
