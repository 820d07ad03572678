//! `spec.trigger.schedule`: times at which a QuarksJob runs by itself, as five fields of cron in a time zone.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
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

/// The least and the greatest number of each field, as the library has them.
const LEAST: [u32; 5] = [0, 0, 1, 1, 0];
const GREATEST: [u32; 5] = [59, 23, 31, 12, 7];

/// The longest schedule, in bytes: it is part of the record.
const LONGEST: usize = 1024;
const FIVE: &str = "five are expected: minute, hour, day of the month, month, day of the week";
/// The least value of `startingDeadlineSeconds`: with less, a time could be over before anybody looks.
const LEAST_LATE: i64 = 10;
/// How far ahead a time is looked for: four years, one of which is a leap year.
const MOST_AHEAD: SignedDuration = SignedDuration::from_hours(24 * 366 * 4);

/// The schedule of a QuarksJob, as its spec has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Times {
    /// The fields and the zone, as one text.
    pub(crate) of: Box<str>,
    schedule: Box<str>,
    zone: Box<str>,
    /// How late a run may begin, in seconds.
    late: Option<i64>,
}

impl Times {
    /// Reads `spec.trigger`; `None`: it has no schedule.
    pub(crate) fn of(trigger: &Value) -> Option<Self> {
        let schedule = trigger["schedule"].as_str()?.trim();
        let zone = trigger["timeZone"].as_str().unwrap_or_default().trim();
        Some(Self {
            of: format!("{schedule} {zone}").trim_end().into(),
            schedule: schedule.into(),
            zone: zone.into(),
            late: trigger["startingDeadlineSeconds"].as_i64(),
        })
    }

    /// The first time after `since` that is not too late `now`. It is due if it is not after `now`.
    ///
    /// # Errors
    /// The fault, with the path of the member, if the schedule has no such time.
    pub(crate) fn next(&self, since: Timestamp, now: Timestamp) -> Result<Timestamp, String> {
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
        let fields = self.expanded()?;
        let zone = self.zone()?;
        let parsed = parse_crontab_with(&fields, options)
            .map_err(|error| format!("{at}{}", sentence(&error.to_string())))?;
        let never = || format!("{at}{:?} is no time of the next four years", &*self.schedule);
        shown(&parsed, &zone, since).ok_or_else(never)
    }

    /// The time zone of the schedule, if there is such a zone.
    fn zone(&self) -> Result<TimeZone, String> {
        let zone = &*self.zone;
        match TimeZone::get(zone) {
            _ if zone.is_empty() => Ok(TimeZone::UTC),
            Ok(found) if !zone.contains(char::is_whitespace) => Ok(found),
            _ => Err(format!(
                "spec.trigger.timeZone: {zone} is no zone of the IANA time zone database, as Europe/Vienna is"
            )),
        }
    }

    /// The schedule as five fields in the syntax of the library.
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
        let fields: Vec<String> =
            fields.into_iter().enumerate().map(as_a_cron_job).collect::<Result<_, _>>()?;
        Ok(fields.join(" "))
    }
}

/// The first time after `since` at which the clocks of a zone show a time of the schedule; `None`: not in the next four
/// years.
///
/// The library counts in UTC, which only goes on: in zones whose clocks are put by half an hour, as that of Lord Howe,
/// it would step back to where it was, for ever. Between two changes of a zone its clocks go on as those of UTC do.
fn shown(parsed: &Crontab, zone: &TimeZone, since: Timestamp) -> Option<Timestamp> {
    let end = since.checked_add(MOST_AHEAD).ok()?;
    let (mut from, mut least) = (since, 1);
    while from <= end {
        let ahead = i64::from(zone.to_offset(from).seconds());
        let clock = Timestamp::from_second(from.as_second() + ahead + least - 1).ok()?;
        let found = parsed.find_next(MakeTimestamp(clock)).ok()?.timestamp();
        let found = Timestamp::from_second(found.as_second() - ahead).ok()?;
        match zone.following(from).next() {
            // Clocks are put before they show it. What they show just then is the first that counts.
            Some(change) if change.timestamp() <= found => (from, least) = (change.timestamp(), 0),
            _ => return Some(found),
        }
    }
    None
}

/// Translates a field, by its place, from the syntax of a CronJob to that of the library. If both a day of the month
/// and a day of the week are given, either counts, unless one of them is `*`. For a CronJob a step of two days or more
/// is a given day, too; for the library it is not. What only the library has (`L`, `W`, `#`, `H`) is refused.
fn as_a_cron_job((place, field): (usize, &str)) -> Result<String, String> {
    let all = match place {
        2 => Some("1-31"),
        4 => Some("0-6"),
        _ => None,
    };
    let items = field.split(',').map(|item| {
        // To a CronJob `?` is the same as `*`.
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
        if let Some((from, step)) = item.split_once('/')
            && step.parse::<u32>().is_ok_and(|step| step > GREATEST[place])
        {
            return Ok(first_alone(from, place));
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

/// Replaces a step that is greater than any number of its field: to a CronJob such an item means its first number
/// alone; the library refuses it.
fn first_alone(from: &str, place: usize) -> String {
    let (least, greatest) = (LEAST[place], GREATEST[place]);
    if from == "*" || from == format!("{least}-{greatest}") {
        return least.to_string();
    }
    match from.contains('-') {
        // The library checks the range; only the whole range would have a second number with this step.
        true => format!("{from}/{greatest}"),
        false => from.to_owned(),
    }
}

/// The last line of the library's error as one sentence: the lines before it draw where the fault is.
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
            // Steps beyond the field, which a CronJob takes.
            ("0 */24 * * *", "", "2026-03-29T00:00:00Z"),
            ("*/60 * * * *", "", "2026-03-28T01:00:00Z"),
            ("0-59/99 0-23/24 * * *", "", "2026-03-29T00:00:00Z"),
            ("20-40/60 * * * *", "", "2026-03-28T00:20:00Z"),
            ("5/60 * * * *", "", "2026-03-28T00:05:00Z"),
            ("0 0 */32 * *", "", "2026-04-01T00:00:00Z"),
            ("0 0 * */13 *", "", "2027-01-01T00:00:00Z"),
            ("0 0 * * MON-FRI/9", "", "2026-03-30T00:00:00Z"),
            ("0 0 * * */8", "", "2026-03-29T00:00:00Z"),
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

    /// There the library never came to an end.
    #[test]
    fn clocks_that_are_put_by_half_an_hour_or_at_midnight_show_the_next_time_too() {
        let table = [
            // Put back from two to half past one.
            ("0 3 * 4 SUN", "Australia/Lord_Howe", "2027-01-01T00:00:00Z", "2027-04-03T16:30:00Z"),
            ("0 3 * * *", "Australia/Lord_Howe", "2027-04-02T20:00:00Z", "2027-04-03T16:30:00Z"),
            ("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T10:00:00Z", "2027-04-03T14:45:00Z"),
            ("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T14:45:00Z", "2027-04-03T15:15:00Z"),
            ("30 1 * * *", "Australia/Lord_Howe", "2027-04-03T14:30:00Z", "2027-04-03T15:00:00Z"),
            ("0 2 * * *", "Australia/Lord_Howe", "2027-04-03T14:00:00Z", "2027-04-03T15:30:00Z"),
            // Put on from two to half past two.
            ("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", "2027-10-03T15:15:00Z"),
            // Put on from midnight to one.
            ("0 0 * * *", "Asia/Beirut", "2027-03-27T12:00:00Z", "2027-03-28T21:00:00Z"),
            ("0 1 * * *", "Asia/Beirut", "2027-03-27T12:00:00Z", "2027-03-27T22:00:00Z"),
            // Put back from midnight to eleven.
            ("30 23 * * *", "Asia/Beirut", "2027-10-30T20:30:00Z", "2027-10-30T21:30:00Z"),
            ("45 2 * * *", "Pacific/Chatham", "2027-04-03T13:00:00Z", "2027-04-03T14:00:00Z"),
            ("0 0 29 2 *", "Antarctica/Troll", "2025-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ];
        for (schedule, zone, since, expected) in table {
            let trigger = json!({"schedule": schedule, "timeZone": zone});
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || tell.send(next(&trigger, since, since)));
            let found = told.recv_timeout(std::time::Duration::from_secs(20));
            let found = found.unwrap_or_else(|_| panic!("{schedule} {zone}: for ever"));
            assert_eq!(found.as_deref(), Ok(expected), "{schedule} {zone} after {since}");
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
            ("5-99/60 * * * *", "", "spec.trigger.schedule: "),
            ("99/60 * * * *", "", "spec.trigger.schedule: "),
            ("*/0 * * * *", "", "spec.trigger.schedule: "),
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
