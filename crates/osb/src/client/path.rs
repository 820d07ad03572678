//! Builds the URLs of requests: a base with an optional prefix, and each id as one segment.

use http::Uri;

use super::error::SettingsError;

/// The base URL of a broker: scheme, authority and path prefix, without a trailing slash.
#[derive(Debug, Clone)]
pub(super) struct BaseUrl {
    text: String,
    https: bool,
}

impl BaseUrl {
    pub(super) fn parse(url: &str) -> Result<Self, SettingsError> {
        let uri: Uri = url.trim().parse().map_err(|_| SettingsError::BaseUrl("is not a URL"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(SettingsError::BaseUrl("must begin with http:// or https://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(SettingsError::BaseUrl(
                "must not hold credentials; set them as authentication instead",
            ));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(SettingsError::BaseUrl("has no host"));
        }
        let has_port = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest).contains(':');
        if has_port && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(SettingsError::BaseUrl("has no port from 1 to 65535 behind the colon"));
        }
        if uri.query().is_some() || url.contains('#') {
            return Err(SettingsError::BaseUrl("must not have a query or a fragment"));
        }
        let scheme = if https { "https" } else { "http" };
        let prefix = uri.path().trim_end_matches('/');
        Ok(Self { text: format!("{scheme}://{authority}{prefix}"), https })
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The URL of a path, which begins with `/` and may have a query.
    pub(super) fn join(&self, path: &str) -> Result<Uri, http::Error> {
        Ok(format!("{}{path}", self.text).parse::<Uri>()?)
    }
}

/// The path of an instance, followed by `rest`.
pub(crate) fn instance(instance: &str, rest: &str) -> String {
    format!("/v2/service_instances/{}{rest}", segment(instance))
}

/// The path of a binding, followed by `rest`.
pub(crate) fn binding(instance_id: &str, binding: &str, rest: &str) -> String {
    instance(instance_id, &format!("/service_bindings/{}{rest}", segment(binding)))
}

/// The query `?a=b&c=d` of the pairs that have a value; empty if none has.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            text.push(if text.is_empty() { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            encode(value, &mut text);
        }
    }
    text
}

/// Encodes any string as one segment of a path (section "URL Properties").
///
/// `.` and `..` are of unreserved characters, yet alone they would be resolved as "here" and "above".
fn segment(id: &str) -> String {
    if id == "." || id == ".." {
        return id.replace('.', "%2E");
    }
    let mut text = String::with_capacity(id.len());
    encode(id, &mut text);
    text
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn encode(value: &str, text: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment() {
        let cases = [
            ("plain-1_2~3.4", "plain-1_2~3.4"),
            ("a/b", "a%2Fb"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("a%2Fb", "a%252Fb"),
            ("ü €", "%C3%BC%20%E2%82%AC"),
            ("?#&+", "%3F%23%26%2B"),
        ];
        for (id, encoded) in cases {
            assert_eq!(segment(id), encoded, "{id}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_id_survives_and_stays_one_segment(id in "\\PC{1,40}") {
            let encoded = segment(&id);
            proptest::prop_assert!(!encoded.contains(['/', '?', '#', ' ']));
            proptest::prop_assert!(encoded != "." && encoded != "..");
            proptest::prop_assert_eq!(decoded(&encoded), id.into_bytes());
            let base = BaseUrl::parse("http://broker").unwrap();
            let path = format!("/v2/service_instances/{encoded}");
            let url = base.join(&path).unwrap();
            proptest::prop_assert_eq!(url.path(), path);
        }
    }

    fn decoded(text: &str) -> Vec<u8> {
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
            bytes.extend(part[2..].bytes());
        }
        bytes
    }

    #[test]
    fn a_query_has_what_is_known() {
        assert_eq!(query(&[("a", None), ("b", Some("x y")), ("c", Some("&"))]), "?b=x%20y&c=%26");
        assert_eq!(query(&[("a", None)]), "");
    }

    #[test]
    fn a_base_url_keeps_its_prefix() {
        let cases = [
            ("http://broker", "http://broker/v2/catalog"),
            ("http://broker:8080/", "http://broker:8080/v2/catalog"),
            ("https://broker/brokers/a%2Fb/", "https://broker/brokers/a%2Fb/v2/catalog"),
            ("http://[::1]:8080/x", "http://[::1]:8080/x/v2/catalog"),
        ];
        for (base, url) in cases {
            let base = BaseUrl::parse(base).unwrap();
            assert_eq!(base.join("/v2/catalog").unwrap().to_string(), url);
        }
    }

    #[test]
    fn a_base_url_that_cannot_work_is_refused_without_repeating_it() {
        for url in [
            "",
            "broker",
            "ftp://broker",
            "http://",
            "http://user:hunter2@broker",
            "http://broker/?token=hunter2",
            "http://broker/#hunter2",
            "http://broker:99999",
            "http://broker:0/prefix",
            "http://broker:",
            "http://[::1]:65536",
        ] {
            let error = BaseUrl::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}");
        }
    }
}
