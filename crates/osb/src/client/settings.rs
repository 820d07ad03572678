//! The settings of a client: where the broker is, in whose name to ask, and whom to trust (sections "API
//! Version Header" and "Platform to Service Broker Authentication").

use std::time::Duration;

use data_encoding::BASE64;
use http::HeaderValue;
use ring::rand::SecureRandom as _;

use super::error::SettingsError;
use crate::model::{OriginatingIdentity, Sensitive};

/// The settings by which a client reaches its broker.
#[derive(Clone)]
pub struct ClientSettings {
    /// The broker's URL: `http://` or `https://`; may have a path, which precedes `/v2`.
    pub base_url: String,
    /// How to authenticate.
    pub auth: Auth,
    /// PEM certificates of the authorities to trust, instead of the system's.
    pub ca_certificates: Option<Vec<u8>>,
    /// The value of `X-Broker-API-Version`; by default [`crate::API_VERSION`].
    pub api_version: String,
    /// The user in whose name the client asks.
    pub originating_identity: Option<OriginatingIdentity>,
    /// The time limit for one request with its answer; by default 60 s, as for platforms.
    pub timeout: Duration,
    /// The value of `User-Agent`.
    pub user_agent: String,
}

impl ClientSettings {
    /// The default settings for a broker without authentication.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            auth: Auth::None,
            ca_certificates: None,
            api_version: crate::API_VERSION.to_owned(),
            originating_identity: None,
            timeout: Duration::from_secs(60),
            user_agent: concat!("manciple/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The base URL is left out: until `Client::new` has refused it, it may hold a password.
        f.debug_struct("ClientSettings")
            .field("auth", &self.auth)
            .field("api_version", &self.api_version)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// How a client authenticates (section "Platform to Service Broker Authentication").
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Without authentication.
    #[default]
    None,
    /// With a name and a password.
    Basic {
        /// The name; without a colon.
        user: String,
        /// The password.
        password: Sensitive<String>,
    },
    /// With a token.
    Bearer(Sensitive<String>),
}

impl Auth {
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, SettingsError> {
        let text = match self {
            Self::None => return Ok(None),
            Self::Basic { user, .. } if user.contains(':') => return Err(SettingsError::Colon),
            Self::Basic { user, password } => {
                format!(
                    "Basic {}",
                    BASE64.encode(format!("{user}:{}", password.expose()).as_bytes())
                )
            }
            Self::Bearer(token) if token.expose().is_empty() => {
                return Err(SettingsError::Header("the token"));
            }
            Self::Bearer(token) => format!("Bearer {}", token.expose()),
        };
        let mut value = header_value(&text, "the token")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Makes a header's value of a text. `what` names the setting in the error if it cannot be one.
pub(super) fn header_value(text: &str, what: &'static str) -> Result<HeaderValue, SettingsError> {
    if text.is_empty() {
        return Err(SettingsError::Header(what));
    }
    HeaderValue::from_str(text).map_err(|_| SettingsError::Header(what))
}

/// The header's value for an identity: `<platform> <base64 of the JSON object>` (section "Originating Identity").
pub(super) fn identity_header(
    identity: &OriginatingIdentity,
) -> Result<HeaderValue, SettingsError> {
    const WHAT: &str = "the originating identity's platform";
    if identity.platform.is_empty() || identity.platform.contains(char::is_whitespace) {
        return Err(SettingsError::Header(WHAT));
    }
    let json = serde_json::to_vec(identity.value.expose())
        .map_err(|_| SettingsError::Header("the originating identity"))?;
    let mut value = header_value(&format!("{} {}", identity.platform, BASE64.encode(&json)), WHAT)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A fresh value for `X-Broker-API-Request-Identity`.
pub(super) fn new_request_identity() -> HeaderValue {
    HeaderValue::from_str(&random_uuid())
        .unwrap_or_else(|_| HeaderValue::from_static("00000000-0000-4000-8000-000000000000"))
}

/// A random UUID (version 4).
pub(crate) fn random_uuid() -> String {
    let mut bytes = [0_u8; 16];
    // Should the system have no randomness, the nil-like id is good enough to trace and to test with.
    let _ = ring::rand::SystemRandom::new().fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(auth: &Auth) -> String {
        auth.header().unwrap().unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn credentials_become_the_authorization_header() {
        let basic =
            Auth::Basic { user: "user".to_owned(), password: "pässwörd".to_owned().into() };
        assert_eq!(text(&basic), "Basic dXNlcjpww6Rzc3fDtnJk");
        assert_eq!(text(&Auth::Bearer("abc".to_owned().into())), "Bearer abc");
        assert!(Auth::None.header().unwrap().is_none());
    }

    #[test]
    fn credentials_that_no_header_can_carry_are_refused() {
        for auth in [
            Auth::Bearer(String::new().into()),
            Auth::Bearer("hunter2\n".to_owned().into()),
            Auth::Basic { user: "a:b".to_owned(), password: "hunter2".to_owned().into() },
        ] {
            let error = auth.header().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn nothing_shows_a_secret() {
        let mut settings = ClientSettings::new("http://user:hunter2@broker");
        settings.auth = Auth::Bearer("hunter2".to_owned().into());
        assert!(!format!("{settings:?}").contains("hunter2"));
        let header = settings.auth.header().unwrap().unwrap();
        assert!(!format!("{header:?}").contains("hunter2"));
    }

    #[test]
    fn an_originating_identity_is_its_platform_and_base64() {
        let value = json!({"user_id": "u"}).as_object().cloned().unwrap();
        let mut identity =
            OriginatingIdentity { platform: "cloudfoundry".to_owned(), value: value.into() };
        let header = identity_header(&identity).unwrap();
        assert_eq!(header.to_str().unwrap(), "cloudfoundry eyJ1c2VyX2lkIjoidSJ9");
        for platform in ["", "a b", "a\n"] {
            identity.platform = platform.to_owned();
            assert!(identity_header(&identity).is_err(), "{platform:?}");
        }
    }

    #[test]
    fn request_identities_are_uuids_and_differ() {
        let (one, other) = (new_request_identity(), new_request_identity());
        assert_ne!(one, other);
        let one = one.to_str().unwrap();
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&one.as_bytes()[19]));
    }
}
