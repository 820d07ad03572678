//! Formats and parses times and durations, for people.

use std::time::Duration;

use jiff::Timestamp;

/// How long ago an RFC 3339 time was; the text itself if it is no such time.
pub(crate) fn ago(time: &str, now: Timestamp) -> String {
    let Ok(then) = time.parse::<Timestamp>() else {
        return time.to_owned();
    };
    let seconds = now.as_second().saturating_sub(then.as_second());
    match u64::try_from(seconds) {
        // A clock that is a little ahead of ours.
        Err(_) | Ok(0..2) => "just now".to_owned(),
        Ok(seconds) => format!("{} ago", coarse(seconds)),
    }
}

/// How long something took, between two RFC 3339 times.
pub(crate) fn between(start: &str, end: &str) -> Option<Duration> {
    let (start, end) = (start.parse::<Timestamp>().ok()?, end.parse::<Timestamp>().ok()?);
    let millis = end.as_millisecond().checked_sub(start.as_millisecond())?;
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// A duration as `850ms`, `12s`, `3m 5s` or `2h 10m`.
pub(crate) fn span(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{}ms", duration.as_millis()),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds @ 60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        seconds if seconds % 3600 < 60 => format!("{}h", seconds / 3600),
        seconds => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Parses a duration: `90`, `90s`, `15m`, `2h`; a bare number is seconds.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("expected a duration such as 90s, 15m or 2h".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a duration such as 90s, 15m or 2h")?;
    let seconds = number.checked_mul(factor).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| "out of range".to_owned())
}

fn coarse(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_one_unit() {
        let now: Timestamp = "2026-05-04T12:00:00Z".parse().unwrap();
        let cases = [
            ("2026-05-04T12:00:00Z", "just now"),
            ("2026-05-04T12:00:30Z", "just now"),
            ("2026-05-04T11:59:20.5Z", "40s ago"),
            ("2026-05-04T11:57:00Z", "3m ago"),
            ("2026-05-04T07:00:00Z", "5h ago"),
            ("2026-04-30T07:00:00Z", "4d ago"),
            ("whenever", "whenever"),
        ];
        for (time, expected) in cases {
            assert_eq!(ago(time, now), expected, "{time}");
        }
    }

    #[test]
    fn spans_read_as_they_are_written() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200)] {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "s", "1d", "1.5h", "99999999999999999999", "9999999999999999h"]
        {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let cases =
            [(0, "0ms"), (59, "59s"), (60, "1m"), (185, "3m 5s"), (7200, "2h"), (7800, "2h 10m")];
        for (seconds, expected) in cases {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_span_between_times_is_never_negative() {
        assert_eq!(
            between("2026-05-04T12:00:00Z", "2026-05-04T12:00:01.5Z"),
            Some(Duration::from_millis(1500))
        );
        assert_eq!(between("2026-05-04T12:00:01Z", "2026-05-04T12:00:00Z"), None);
    }
}
