//! Judges by an answer whether the API server, with the store behind it, is available; pure.
//!
//! ```text
//! below 500                               it is there
//! no answer, 500 and above                it is away, or its store is, or what stands before it does not reach it
//! the same of a log                       nothing: it is the node that did not answer
//! the same, where a webhook is why        nothing: the store was not asked
//! ```
//!
//! The failure of the store is reported in many ways, an internal error among them, so all other failures count as
//! that.

use http::StatusCode;

/// What an answer, or a missing one, says about the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    There,
    Away,
    Nothing,
}

/// The words with which the API server reports a failing or refusing webhook: of admission, and of conversion between
/// versions.
const WEBHOOKS: [&str; 3] = ["failed calling webhook", "admission webhook", "conversion webhook"];

/// Whether the answer for this path comes from a node, which the API server asks in turn: the log of a pod.
pub(crate) fn is_of_a_node(path: &str) -> bool {
    let mut names = path.rsplit('/');
    names.next() == Some("log")
        && names.nth(1) == Some("pods")
        && names.nth(1) == Some("namespaces")
}

/// What a missing answer says.
pub(crate) fn by_none(is_of_a_node: bool) -> Says {
    if is_of_a_node { Says::Nothing } else { Says::Away }
}

/// What an answer says; the body is only read of a failing one.
pub(crate) fn by(status: StatusCode, body: &[u8], is_of_a_node: bool) -> Says {
    if !status.is_server_error() {
        return Says::There;
    }
    let body = String::from_utf8_lossy(body);
    match WEBHOOKS.iter().any(|words| body.contains(words)) {
        true => Says::Nothing,
        false => by_none(is_of_a_node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_of_the_api_server_of_its_store_of_a_node_or_of_a_webhook() {
        let log = "/api/v1/namespaces/n/pods/p/log";
        let jobs = "/apis/batch/v1/namespaces/n/jobs";
        for (name, path, status, message, expected) in [
            ("an answer", jobs, 200, "", Says::There),
            ("not there", jobs, 404, "jobs.batch \"j\" not found", Says::There),
            ("too much to do", jobs, 429, "too many requests", Says::There),
            ("no leader of etcd", jobs, 500, "etcdserver: no leader", Says::Away),
            ("etcd is slow", jobs, 500, "etcdserver: request timed out", Says::Away),
            ("etcd stands", jobs, 500, "context deadline exceeded", Says::Away),
            (
                "etcd is gone",
                jobs,
                500,
                "rpc error: code = Unavailable desc = transport is closing",
                Says::Away,
            ),
            (
                "etcd, as an internal error",
                jobs,
                500,
                "Internal error occurred: resource quota evaluation timed out",
                Says::Away,
            ),
            ("what stands before it", jobs, 502, "Bad Gateway", Says::Away),
            ("it goes down", jobs, 503, "apiserver is shutting down", Says::Away),
            (
                "it took too long",
                jobs,
                504,
                "Timeout: request did not complete within requested timeout 34s",
                Says::Away,
            ),
            (
                "a webhook is away",
                jobs,
                500,
                "Internal error occurred: failed calling webhook \"a.b\": Post \"https://a.b.svc\": \
                 context deadline exceeded",
                Says::Nothing,
            ),
            (
                "a webhook refuses, in its own way",
                jobs,
                503,
                "admission webhook \"a.b\" denied the request: not now",
                Says::Nothing,
            ),
            (
                "a webhook of another version is away",
                jobs,
                500,
                "conversion webhook for a.b/v1, Kind=C failed: Post \"https://a.b.svc\": EOF",
                Says::Nothing,
            ),
            ("a log", log, 200, "", Says::There),
            ("no such pod", log, 404, "pods \"p\" not found", Says::There),
            (
                "a kubelet is out of reach",
                log,
                500,
                "Get \"https://10.0.0.1:10250/containerLogs/n/p/c\": dial tcp: i/o timeout",
                Says::Nothing,
            ),
            ("a kubelet has too much to do", log, 503, "", Says::Nothing),
            ("a kubelet is slow", log, 504, "", Says::Nothing),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let body = serde_json::json!({"kind": "Status", "message": message}).to_string();
            let said = by(status, body.as_bytes(), is_of_a_node(path));
            assert_eq!(said, expected, "{name}");
        }
    }

    #[test]
    fn silence_is_the_nodes_where_a_log_is_asked_for() {
        for (path, expected) in [
            ("/api/v1/namespaces/n/pods/p/log", Says::Nothing),
            ("/api/v1/namespaces/n/pods/log", Says::Away),
            ("/api/v1/namespaces/pods/pods/log", Says::Away),
            ("/api/v1/namespaces/n/pods/p", Says::Away),
            ("/api/v1/namespaces/n/pods", Says::Away),
        ] {
            assert_eq!(by_none(is_of_a_node(path)), expected, "{path}");
        }
    }
}
