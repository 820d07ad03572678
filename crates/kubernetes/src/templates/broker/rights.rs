//! Access checks: the API server is asked in the requester's name, and its answers are remembered for a while.

use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use osb::{Error, ErrorKind};
use quick_cache::sync::Cache;
use ring::digest::{SHA256, digest};

use crate::access::Identity;
use crate::calls::CallError;
use crate::templates::names::GROUP;
use crate::templates::requester::Requester;
use crate::templates::review::has_right;

/// How long a granted right is remembered.
const HOLDS: Duration = Duration::from_secs(30);
/// How long a refusal is remembered.
const REFUSAL_HOLDS: Duration = Duration::from_secs(2);
/// How many answers are remembered at most.
const REMEMBERED: usize = 4096;

/// A right in a namespace.
#[derive(Debug)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: String,
    /// Empty: any name.
    name: String,
}

/// The cache of the API server's answers about rights.
pub(super) struct Rights {
    client: Client,
    /// The answers, each with its end, by the digest of identity and right: an identity may be as long as a header.
    allowed: Cache<[u8; 32], (Instant, bool)>,
}

impl Rights {
    pub(super) fn new(client: Client) -> Self {
        Self { client, allowed: Cache::new(REMEMBERED) }
    }

    /// Checks that a requester has a right, by a remembered answer if there is one; 403 if not.
    pub(super) async fn check(&self, requester: &Requester, right: Right) -> Result<(), Error> {
        let key = of(&requester.identity, &right);
        let known = self.allowed.get(&key).filter(|(until, _)| *until > Instant::now());
        let is_allowed = match known {
            Some((_, is_allowed)) => is_allowed,
            None => {
                let is_allowed = self.ask(requester, &right).await?;
                let holds = if is_allowed { HOLDS } else { REFUSAL_HOLDS };
                self.allowed.insert(key, (Instant::now() + holds, is_allowed));
                is_allowed
            }
        };
        allowed(requester, &right, is_allowed)
    }

    /// Like [`Rights::check`], for confidential data: asks the API server now, whatever is remembered.
    pub(super) async fn check_now(&self, requester: &Requester, right: Right) -> Result<(), Error> {
        let is_allowed = self.ask(requester, &right).await?;
        allowed(requester, &right, is_allowed)
    }

    async fn ask(&self, requester: &Requester, right: &Right) -> Result<bool, Error> {
        let attributes = ResourceAttributes {
            verb: Some(right.verb.to_owned()),
            group: Some(right.group.to_owned()),
            resource: Some(right.resource.to_owned()),
            namespace: Some(right.namespace.clone()),
            name: Some(right.name.clone()).filter(|name| !name.is_empty()),
            ..ResourceAttributes::default()
        };
        let client = requester.client(&self.client, &right.namespace);
        has_right(&client, attributes).await.map_err(|error| {
            if let CallError::Forbidden(said) = &error {
                tracing::warn!(said, "the broker cannot act for a requester");
                let words = "the broker cannot act for this requester: the broker's rights do not reach so far, or \
                             the cluster does not let such a requester ask what it may do";
                return Error::new(ErrorKind::Forbidden, words);
            }
            tracing::warn!(%error, "whether a requester may is not known");
            let words = "whether the requester may is not known now; come again";
            Error::new(ErrorKind::Unavailable, words).retry_after(Duration::from_secs(2))
        })
    }
}

/// The digest of identity and right. As they are printed each text is delimited.
fn of(identity: &Identity, right: &Right) -> [u8; 32] {
    let mut key = [0; 32];
    let whole = format!("{identity:?} {right:?}");
    key.copy_from_slice(digest(&SHA256, whole.as_bytes()).as_ref());
    key
}

/// The result of a check: 403 if the requester does not have the right.
fn allowed(requester: &Requester, right: &Right, is_allowed: bool) -> Result<(), Error> {
    let Right { verb, group, resource, namespace, .. } = right;
    let dot = if group.is_empty() { "" } else { "." };
    match is_allowed {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "{:?} may not {verb} {resource}{dot}{group} in namespace {namespace:?}",
                requester.identity.user
            ),
        )),
    }
}

/// A right to a resource of the template group.
pub(super) fn of_group(
    verb: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
) -> Right {
    Right { verb, group: GROUP, resource, namespace, name }
}

pub(super) fn creation_of_secrets(namespace: String) -> Right {
    Right { verb: "create", group: "", resource: "secrets", namespace, name: String::new() }
}

/// The right to read a Secret.
pub(super) fn reading_of_secret(namespace: String, name: String) -> Right {
    Right { verb: "get", group: "", resource: "secrets", namespace, name }
}
