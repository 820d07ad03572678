//! Times at which something runs by itself: five fields of cron, in a time zone.

use cronexpr::{FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

/// What CronJobs take instead of five fields.
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The longest schedule, in bytes: it stands in the record of each run.
const LONGEST: usize = 1024;
const FIVE: &str = "five are expected: minute, hour, day of the month, month, day of the week";
/// The least of `startingDeadlineSeconds`: with less, a time could be over before anybody looks.
const LEAST_LATE: i64 = 10;

/// When one runs, as its spec has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Times {
    /// The fields and the zone, as one text.
    pub(super) of: Box<str>,
    schedule: Box<str>,
    zone: Box<str>,
    /// How late a run may begin, in seconds.
    late: Option<i64>,
}

impl Times {
    /// Of `spec.trigger`; `None`: it has no schedule.
    pub(super) fn of(trigger: &Value) -> Option<Self> {
        let schedule = trigger["schedule"].as_str()?.trim();
        let zone = trigger["timeZone"].as_str().unwrap_or_default().trim();
        Some(Self {
            of: format!("{schedule} {zone}").trim_end().into(),
            schedule: schedule.into(),
            zone: zone.into(),
            late: trigger["startingDeadlineSeconds"].as_i64(),
        })
    }

    /// The first of them after `since` that is not too late `now`: due if it is not after that.
    ///
    /// # Errors
    /// With the member of the spec, if it says no time.
    pub(super) fn next(&self, since: Timestamp, now: Timestamp) -> Result<Timestamp, String> {
        if self.late.is_some_and(|late| late < LEAST_LATE) {
            let least = "has to be 10 or more: with less a time may be over before anybody looks";
            return Err(format!("spec.trigger.startingDeadlineSeconds: {least}"));
        }
        let earliest = self.late.and_then(|late| now.as_second().checked_sub(late));
        let earliest = earliest.and_then(|second| Timestamp::from_second(second).ok());
        let since = earliest.map_or(since, |earliest| since.max(earliest));
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let at = "spec.trigger.schedule: ";
        let parsed = parse_crontab_with(&self.expanded()?, options)
            .map_err(|error| format!("{at}{}", sentence(&error.to_string())))?;
        let next = parsed.find_next(MakeTimestamp(since));
        let never = |_| format!("{at}{:?} is no time of the next four years", &*self.schedule);
        Ok(next.map_err(never)?.timestamp())
    }

    /// With five fields, and a zone that there is.
    fn expanded(&self) -> Result<String, String> {
        let mut fields: Vec<&str> = self.schedule.split_whitespace().collect();
        if let &[word] = fields.as_slice()
            && word.starts_with('@')
        {
            let known = MACROS.iter().find(|(name, _)| *name == word);
            let words: Vec<&str> = MACROS.iter().map(|(name, _)| *name).collect();
            let (_, five) = known.ok_or_else(|| {
                format!("spec.trigger.schedule: {word} is none of {}", words.join(", "))
            })?;
            fields = five.split(' ').collect();
        }
        if fields.len() != 5 || self.schedule.len() > LONGEST {
            let found = fields.len();
            return Err(format!("spec.trigger.schedule: has {found} fields; {FIVE}"));
        }
        let zone = &*self.zone;
        let is_zone = !zone.contains(char::is_whitespace) && TimeZone::get(zone).is_ok();
        if !zone.is_empty() && !is_zone {
            return Err(format!(
                "spec.trigger.timeZone: {zone} is no zone of the IANA time zone database, as Europe/Vienna is"
            ));
        }
        let fields: Vec<String> =
            fields.into_iter().enumerate().map(as_a_cron_job).collect::<Result<_, _>>()?;
        Ok(format!("{} {zone}", fields.join(" ")).trim_end().to_owned())
    }
}

/// A field, by its place, as a CronJob has it, in the words of the library. Of the days that a month and a week say, either
/// counts, unless one of the two says any; a step of two days or more does not, with a CronJob, and does with the
/// library. What only the library has (`L`, `W`, `#`, and what is drawn) is refused.
fn as_a_cron_job((place, field): (usize, &str)) -> Result<String, String> {
    let all = match place {
        2 => Some("1-31"),
        4 => Some("0-6"),
        _ => None,
    };
    let items = field.split(',').map(|item| {
        // Of no use to a CronJob but as the other.
        let item = item.replace('?', "*");
        let mut parts = item.split(['-', '/']);
        let is_known = |part: &str| {
            let letters = part.chars().filter(char::is_ascii_alphabetic).count();
            let is_name = place >= 3 && letters == 3 && part.len() == 3;
            letters == 0 || is_name
        };
        if let Some(part) = parts.find(|part| !is_known(part) || part.contains('#')) {
            return Err(format!(
                "spec.trigger.schedule: {part} is nothing that a CronJob knows; {FIVE}"
            ));
        }
        Ok(match (all, item.split_once('/')) {
            (Some(_), Some(("*", "1"))) => "*".to_owned(),
            (Some(all), Some(("*", step))) => format!("{all}/{step}"),
            // The week of a CronJob ends on Saturday, that of the library on Sunday.
            (Some(_), Some((from, step))) if place == 4 && !from.contains('-') => {
                format!("{from}-6/{step}")
            }
            _ => item,
        })
    });
    let items = items.collect::<Result<Vec<String>, String>>()?;
    // Any day is any, whatever stands beside it.
    let any = all.is_some() && items.iter().any(|item| item == "*");
    Ok(if any { "*".to_owned() } else { items.join(",") })
}

/// The library draws where the fault is, on several lines.
fn sentence(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    let said = last.trim_start().trim_start_matches('^').trim();
    format!(
        "{said}; five fields are expected: minute, hour, day of the month, month, day of the week"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn next(trigger: &Value, since: &str, now: &str) -> Result<String, String> {
        let times = Times::of(trigger).unwrap();
        let next = times.next(since.parse().unwrap(), now.parse().unwrap());
        next.map(|time| time.to_string())
    }

    #[test]
    fn the_next_time_is_after_the_last() {
        let (midnight, noon) = ("2026-03-28T00:00:00Z", "2026-03-28T12:00:00Z");
        for (schedule, zone, expected) in [
            ("0 3 * * *", "", "2026-03-28T03:00:00Z"),
            ("0 0 * * *", "", "2026-03-29T00:00:00Z"),
            ("*/15 * * * *", "", "2026-03-28T00:15:00Z"),
            ("30 8 * * MON-FRI", "", "2026-03-30T08:30:00Z"),
            ("0 3 * * *", "Europe/Vienna", "2026-03-28T02:00:00Z"),
            ("@hourly", "", "2026-03-28T01:00:00Z"),
            ("@daily", "America/New_York", "2026-03-28T04:00:00Z"),
            ("0 0 29 2 *", "Etc/UTC", "2028-02-29T00:00:00Z"),
            ("0 0 ? * *", "", "2026-03-29T00:00:00Z"),
            ("0 0 * JUL *", "", "2026-07-01T00:00:00Z"),
            ("0 0 * 7 wed", "", "2026-07-01T00:00:00Z"),
            ("5/20 * * * *", "", "2026-03-28T00:05:00Z"),
            // The 28th of March is a Saturday. Either of the days, where both are said.
            ("0 0 30 * MON", "", "2026-03-30T00:00:00Z"),
            ("0 0 */2 * SUN", "", "2026-03-29T00:00:00Z"),
            ("0 0 */2 * MON", "", "2026-03-29T00:00:00Z"),
            ("0 0 */2 * *", "", "2026-03-29T00:00:00Z"),
            ("0 0 31 * */2", "", "2026-03-29T00:00:00Z"),
            ("0 0 * * 1/2", "", "2026-03-30T00:00:00Z"),
            ("0 0 * * MON/3", "", "2026-03-30T00:00:00Z"),
            ("0 0 * * 6/1", "", "2026-04-04T00:00:00Z"),
            ("0 0 * * 5/2,WED", "", "2026-04-01T00:00:00Z"),
            ("0 0 * * 1-5/2", "", "2026-03-30T00:00:00Z"),
            // Any day is no day that is said.
            ("0 0 */1 * MON", "", "2026-03-30T00:00:00Z"),
            ("0 0 *,29 * MON", "", "2026-03-30T00:00:00Z"),
            ("0 0 31 * *", "", "2026-03-31T00:00:00Z"),
        ] {
            let trigger = json!({"schedule": schedule, "timeZone": zone});
            let found = next(&trigger, midnight, noon);
            assert_eq!(found.as_deref(), Ok(expected), "{schedule} {zone}");
        }
    }

    #[test]
    fn a_time_that_clocks_do_not_show_is_none_and_one_that_they_show_twice_is_two() {
        let vienna = json!({"schedule": "30 2 * * *", "timeZone": "Europe/Vienna"});
        for (since, expected) in [
            // There is no half past two on the 29th; with a CronJob there is no run either.
            ("2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
            // And two of them on the 25th of October.
            ("2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(next(&vienna, since, since).as_deref(), Ok(expected), "after {since}");
        }
    }

    #[test]
    fn what_is_too_late_is_no_time() {
        let (since, now) = ("2026-03-28T00:00:00Z", "2026-03-28T04:10:00Z");
        for (seconds, expected) in [(600, "2026-03-29T04:00:00Z"), (601, "2026-03-28T04:00:00Z")] {
            let trigger = json!({"schedule": "0 4 * * *", "startingDeadlineSeconds": seconds});
            assert_eq!(next(&trigger, since, now).as_deref(), Ok(expected), "{seconds} s");
        }
    }

    #[test]
    fn what_says_no_time_is_refused_by_its_member() {
        let since = "2026-03-28T00:00:00Z";
        for (schedule, zone, words) in [
            ("", "", "spec.trigger.schedule: "),
            ("61 * * * *", "", "spec.trigger.schedule: "),
            ("* * * *", "", "has 4 fields; five are expected"),
            ("* * * *", "SUN", "has 4 fields"),
            ("* * * * * *", "", "has 6 fields"),
            ("* * * * * Europe/Vienna", "", "has 6 fields"),
            ("@daily Europe/Vienna", "", "has 2 fields"),
            ("0 3 * * *", "Europe/Vienna UTC", "spec.trigger.timeZone: "),
            ("0 0 30 2 *", "", "is no time of the next four years"),
            ("@reboot", "", "@reboot is none of @yearly"),
            ("0 0 L * *", "", "schedule: L is nothing that a CronJob knows"),
            ("0 0 1,LW * *", "", "LW is nothing"),
            ("0 0 15W * *", "", "15W is nothing"),
            ("0 0 * * 5L", "", "5L is nothing"),
            ("0 0 * * FRIL", "", "FRIL is nothing"),
            ("0 0 * * FRI#2", "", "FRI#2 is nothing"),
            ("H * * * *", "", "H is nothing"),
            ("0 3 * * *", "Vienna", "spec.trigger.timeZone: Vienna is no zone"),
            ("ü", "", "spec.trigger.schedule: "),
        ] {
            let trigger = json!({"schedule": schedule, "timeZone": zone});
            let error = next(&trigger, since, since).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{schedule}: {error}");
        }
    }

    #[test]
    fn what_has_no_schedule_has_no_times() {
        for trigger in [json!(null), json!({"strategy": "now"}), json!({"schedule": 7})] {
            assert_eq!(Times::of(&trigger), None, "{trigger}");
        }
    }
}
