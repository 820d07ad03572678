//! Authentication by a cluster: with the cluster's own tokens, and with Secrets that hold users and tokens.

use std::sync::Arc;

use http::HeaderValue;
use kubernetes::access::{Followed, Identity, Reviews, SecretData};
use osb::server::{Credentials, Presented, Principal};
use osb::{Error, ErrorKind};
use serde::Deserialize;

use crate::role::Role;

/// The member `auth.kubernetes`: the cluster's own tokens are good, for those who are granted a role or
/// whom the cluster allows what they ask for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClusterTokens {
    /// The audiences of which a token must have one; none: the API server.
    pub(crate) audiences: Vec<String>,
    /// Whether the cluster is asked if a user may send a request (SubjectAccessReview): the verb is
    /// the method, the path that of the request up to where ids begin.
    pub(crate) access_review: bool,
    /// The roles that are granted to users and groups.
    pub(crate) grants: Vec<Grant>,
}

/// A role for a user or a group.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    /// The user: `system:serviceaccount:NAMESPACE:NAME`, or another user of the cluster.
    pub(crate) user: Option<String>,
    /// The group: `system:serviceaccounts:NAMESPACE`, or another group.
    pub(crate) group: Option<String>,
    #[serde(default)]
    pub(crate) role: Role,
}

impl ClusterTokens {
    /// The faults in these settings, by member.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let member = "auth.kubernetes";
        match (self.access_review, self.grants.is_empty()) {
            (true, false) => faults.push(format!(
                "{member}: access_review and grants cannot both be given; leave one out"
            )),
            (false, true) => faults.push(format!(
                "{member}: give access_review: true, or grants; as it is, nobody may do anything"
            )),
            _ => {}
        }
        for (index, grant) in self.grants.iter().enumerate() {
            if grant.user.is_some() == grant.group.is_some() {
                faults.push(format!("{member}.grants[{index}]: give either user or group"));
            }
        }
        faults
    }

    /// The highest role that a user was granted.
    fn granted(&self, who: &Identity) -> Option<Role> {
        let meant = |grant: &&Grant| {
            grant.user.as_ref().is_some_and(|user| *user == who.user)
                || grant.group.as_ref().is_some_and(|group| who.groups.contains(group))
        };
        let mut roles = self.grants.iter().filter(meant).map(|grant| grant.role);
        let first = roles.next()?;
        Some(if roles.any(|role| role == Role::Operator) { Role::Operator } else { first })
    }
}

/// The member `auth.secrets[]`: a Secret with `username` and `password`, or `token`, or both.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSecret {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) role: Role,
}

impl NamedSecret {
    /// Adds the user and the token of the Secret, if it is there, to the credentials; logs what is wrong with it.
    pub(crate) fn add(
        &self,
        credentials: Credentials,
        followed: &Followed,
    ) -> (Credentials, Option<String>) {
        let Some(data) = followed.get(&self.name) else { return (credentials, None) };
        let read = Held::read(&data);
        let name = &self.name;
        let fault = |why: &str| Some(format!("Secret {name}: {why}"));
        let held = match read {
            Ok(held) => held,
            Err(why) => return (credentials, fault(&why)),
        };
        let role = self.role.as_str();
        let credentials = match held.user {
            Some((user, password)) => credentials.user(user, password, role),
            None => credentials,
        };
        match held.token {
            Some(token) => (credentials.token(name, token, role), None),
            None => (credentials, None),
        }
    }
}

/// The user and the token that a Secret holds.
struct Held<'s> {
    user: Option<(&'s str, &'s str)>,
    token: Option<&'s str>,
}

impl<'s> Held<'s> {
    /// Reads the keys of a Secret: those of `kubernetes.io/basic-auth`, and `token`. One trailing newline is not part
    /// of a value.
    fn read(data: &'s SecretData) -> Result<Self, String> {
        let text = |key: &str| {
            let Some(bytes) = data.get(key) else { return Ok(None) };
            let text = std::str::from_utf8(bytes).map_err(|_| format!("{key}: is not text"))?;
            let text = text.strip_suffix('\n').unwrap_or(text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            if text.is_empty() { Err(format!("{key}: is empty")) } else { Ok(Some(text)) }
        };
        let (user, password, token) = (text("username")?, text("password")?, text("token")?);
        let user = match (user, password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => return Err("password: is missing beside username".to_owned()),
            (None, Some(_)) => return Err("username: is missing beside password".to_owned()),
        };
        if user.is_none() && token.is_none() {
            return Err("give it the keys username and password, or token".to_owned());
        }
        Ok(Self { user, token })
    }
}

/// The access to a cluster for authenticating requests.
#[derive(Default)]
pub(crate) struct Access {
    pub(crate) followed: Option<Arc<Followed>>,
    pub(crate) tokens: Option<(Reviews, ClusterTokens)>,
}

impl Access {
    /// The sender of a request with a token of the cluster; `None` if the token is nobody's.
    pub(crate) async fn principal(
        &self,
        request: Presented<'_>,
    ) -> Result<Option<Principal>, Error> {
        let Some((reviews, settings)) = &self.tokens else { return Ok(None) };
        let Some(token) = bearer(request.authorization) else { return Ok(None) };
        let unavailable = |error: kubernetes::access::AccessError| {
            tracing::warn!("cannot ask the cluster whose a token is, or what they may do: {error}");
            Error::new(
                ErrorKind::Unavailable,
                "the cluster does not say now whose token it is, or what they may do; come again",
            )
        };
        let Some(who) = reviews.identify(token).await.map_err(unavailable)? else {
            return Ok(None);
        };
        let role = if settings.access_review {
            let (verb, path) = (request.method.as_str().to_ascii_lowercase(), asked(request.path));
            if !reviews.may(&who, &verb, path).await.map_err(unavailable)? {
                return Err(refused(format!(
                    "{} may not {verb} {path}: bind it a ClusterRole with this verb and path \
                     (nonResourceURLs)",
                    who.user
                )));
            }
            if is_admin(request.path) { Role::Operator } else { Role::Platform }
        } else {
            settings.granted(&who).ok_or_else(|| {
                refused(format!("{} has no role here: name it in auth.kubernetes.grants", who.user))
            })?
        };
        Ok(Some(Principal::new(&who.user, role.as_str())))
    }
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::Forbidden, why)
}

fn bearer(authorization: &HeaderValue) -> Option<&str> {
    let (scheme, token) = authorization.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a path belongs to the operator's API, of a single broker or of the whole server.
fn is_admin(path: &str) -> bool {
    let below = path.strip_prefix("/brokers/").and_then(|rest| rest.split_once('/'));
    below.map_or(path.trim_start_matches('/'), |(_, below)| below).starts_with("admin/")
}

/// A path up to where ids begin, so that an RBAC rule can name it.
fn asked(path: &str) -> &str {
    const IDS: &str = "/v2/service_instances";
    match path.find(IDS) {
        Some(at) => &path[..at + IDS.len()],
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_paths_without_ids() {
        for (path, expected) in [
            ("/v2/catalog", "/v2/catalog"),
            ("/v2/service_instances/i", "/v2/service_instances"),
            ("/v2/service_instances/i/service_bindings/b", "/v2/service_instances"),
            (
                "/brokers/b/v2/service_instances/v2/service_instances",
                "/brokers/b/v2/service_instances",
            ),
            ("/admin/v1/retry", "/admin/v1/retry"),
        ] {
            assert_eq!(asked(path), expected, "{path}");
        }
    }

    #[test]
    fn the_operators_api_is_known_below_a_broker_too() {
        for (path, expected) in [
            ("/admin/v1/retry", true),
            ("/brokers/b/admin/v1/retry", true),
            ("/brokers/admin/v2/catalog", false),
            ("/v2/service_instances/admin/v1", false),
        ] {
            assert_eq!(is_admin(path), expected, "{path}");
        }
    }

    #[test]
    fn the_highest_role_is_granted() {
        let settings: ClusterTokens = serde_saphyr::from_str(
            "grants: [{group: g, role: platform}, {user: u, role: operator}, {user: v}]",
        )
        .unwrap();
        let who = |user: &str, groups: &[&str]| Identity {
            user: user.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            extra: Default::default(),
        };
        for (user, groups, role) in [
            ("u", &["g"][..], Some(Role::Operator)),
            ("v", &["g"], Some(Role::Platform)),
            ("w", &["h", "g"], Some(Role::Platform)),
            ("g", &["u"], None),
        ] {
            assert_eq!(settings.granted(&who(user, groups)), role, "{user} {groups:?}");
        }
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        for (yaml, words) in [
            ("{}", "nobody may do anything"),
            ("{access_review: true, grants: [{user: u}]}", "leave one out"),
            ("{grants: [{role: operator}]}", "grants[0]: give either user or group"),
            ("{grants: [{user: u}, {user: u, group: g}]}", "grants[1]: give either user or group"),
        ] {
            let settings: ClusterTokens = serde_saphyr::from_str(yaml).unwrap();
            let faults = settings.faults();
            assert!(faults.len() == 1 && faults[0].contains(words), "{yaml}: {faults:?}");
        }
    }

    #[test]
    fn a_secret_holds_a_user_a_token_or_both() {
        let data = |pairs: &[(&str, &str)]| -> SecretData {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
                .collect()
        };
        let user = [("username", "u"), ("password", "p\n")];
        let both = [("username", "u"), ("password", "p"), ("token", "t")];
        for (pairs, expected) in [
            (&user[..], (Some(("u", "p")), None)),
            (&both[..], (Some(("u", "p")), Some("t"))),
            (&both[2..], (None, Some("t"))),
        ] {
            let data = data(pairs);
            let held = Held::read(&data).unwrap();
            assert_eq!((held.user, held.token), expected);
        }
        for (pairs, words) in [
            (&[][..], "give it the keys"),
            (&[("username", "u")], "password: is missing"),
            (&[("password", "planted")], "username: is missing"),
            (&[("token", "\n")], "token: is empty"),
        ] {
            let data = data(pairs);
            let error = Held::read(&data).err().unwrap();
            assert!(error.contains(words) && !error.contains("planted"), "{error}");
        }
    }
}
