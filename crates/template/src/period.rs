//! Parses periods of time, as people write them in configurations, annotations and resources.

use std::time::Duration;

/// Reads a period: numbers with units from days to milliseconds, such as `90s`, `1h30m`, `7d` or `1d12h`, and the forms
/// of ISO 8601 and Go, such as `PT15M` or `1.5h`. `None` if the text is none, or is negative.
pub fn period(text: &str) -> Option<Duration> {
    in_units(text).or_else(|| {
        let period: jiff::SignedDuration = text.parse().ok()?;
        Duration::try_from(period).ok()
    })
}

/// Parses numbers with units, because the library supports neither days nor units after them.
fn in_units(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let (digits, more) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let more = more.trim_start();
        let (unit, more) =
            more.split_at(more.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(more.len()));
        let each = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        millis = millis.checked_add(digits.parse::<u64>().ok()?.checked_mul(each)?)?;
        rest = more.trim_start();
    }
    (!text.trim().is_empty()).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_read_in_each_of_its_spellings() {
        for (text, seconds) in [
            ("30s", 30),
            ("15m", 15 * 60),
            ("1h30m", 90 * 60),
            ("1h 30m", 90 * 60),
            ("1.5h", 90 * 60),
            ("PT15M", 15 * 60),
            ("7d", 7 * 86_400),
            ("7 d", 7 * 86_400),
            ("1d12h", 36 * 3_600),
            ("0s", 0),
            ("2000ms", 2),
        ] {
            assert_eq!(period(text), Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_period_is_none() {
        for text in [
            "",
            " ",
            "5",
            "s",
            "-5s",
            "5 parsecs",
            "99999999999999999999s",
            "213503982334602d",
            "1d-",
        ] {
            assert_eq!(period(text), None, "{text:?}");
        }
    }
}
