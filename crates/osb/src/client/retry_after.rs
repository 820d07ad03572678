//! Reads the header `Retry-After`, by which a broker says when it wants to be asked again (section "Polling Last
//! Operation for Service Instances"), in the forms that HTTP allows.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Reads `Retry-After`: a number of seconds, or a date (RFC 9110, section 10.2.3). A date that has passed is
/// no wait; anything else counts as no header.
pub(super) fn read(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn is_seconds_or_a_date() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        let cases = [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("0", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sun, 06 Nov 1994 08:49:07 GMT", Some(0)),
            ("-7", None),
            ("7.5", None),
            ("soon", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            assert_eq!(read(&headers, now), seconds.map(Duration::from_secs), "{text:?}");
        }
        assert_eq!(read(&HeaderMap::new(), now), None);
    }
}
