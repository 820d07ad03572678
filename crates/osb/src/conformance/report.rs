//! The report of the suite, for people and for programs: it says whether a broker conforms at a level.

use std::fmt;

/// How strongly the specification asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// MUST.
    Must,
    /// SHOULD.
    Should,
    /// MAY or RECOMMENDED, or what platforms and other checkers count on.
    Recommended,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::Recommended => "recommended",
        })
    }
}

/// A check of the suite.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, which never changes.
    pub id: &'static str,
    /// The number of its item in the project's acceptance list of the specification.
    pub item: u8,
    /// How strongly it is asked for.
    pub level: Level,
    /// The rule that is checked.
    pub words: &'static str,
}

/// The verdict of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The broker keeps the rule.
    Pass,
    /// The broker breaks the rule: what was seen, and what was expected.
    Fail(String),
    /// The check could not be made, for this reason.
    Skip(String),
}

impl Verdict {
    /// The verdict of a condition: a failure, unless it `holds`.
    pub(super) fn of(holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if holds { Self::Pass } else { Self::Fail(otherwise()) }
    }

    /// The first of two that is not a pass.
    pub(super) fn and(self, next: impl FnOnce() -> Self) -> Self {
        if self == Self::Pass { next() } else { self }
    }

    pub(super) fn failed(&self) -> bool {
        matches!(self, Self::Fail(_))
    }
}

/// A check and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The check that was made.
    pub check: &'static Check,
    /// The verdict of the check.
    pub verdict: Verdict,
}

/// The results of all checks, in the order of the acceptance list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every check, skipped ones included.
    pub results: Vec<CheckResult>,
    /// The reason why most of the suite could not run: no catalog, no such plan, no instance.
    pub blocked: Option<String>,
    /// Whether the suite was blocked because the broker did not answer any more for as long as
    /// [`Polling::silence`](crate::client::Polling::silence), or until the deadline.
    pub is_silent: bool,
    /// The instances and bindings that the suite has made and could not delete.
    pub leftovers: Vec<String>,
}

impl Report {
    /// Whether nothing failed that the specification asks for at `level` or more strongly, and the suite
    /// was not kept from running.
    pub fn conforms(&self, level: Level) -> bool {
        let fails = |result: &CheckResult| result.check.level <= level && result.verdict.failed();
        self.blocked.is_none() && !self.results.iter().any(fails)
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &CheckResult> {
        self.results.iter().filter(|result| result.verdict.failed())
    }

    /// How a check ended, by its name.
    pub fn verdict(&self, id: &str) -> Option<&Verdict> {
        self.results.iter().find(|result| result.check.id == id).map(|result| &result.verdict)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for CheckResult { check, verdict } in &self.results {
            let (mark, note) = match verdict {
                Verdict::Pass => ("pass", None),
                Verdict::Fail(why) => ("FAIL", Some(why)),
                Verdict::Skip(why) => ("skip", Some(why)),
            };
            let Check { id, item, level, words } = check;
            writeln!(f, "{mark} {item:>2} {level:<11} {id}: {words}")?;
            if let Some(note) = note {
                writeln!(f, "        {note}")?;
            }
            match verdict {
                Verdict::Pass => passed += 1,
                Verdict::Fail(_) => failed += 1,
                Verdict::Skip(_) => skipped += 1,
            }
        }
        for leftover in &self.leftovers {
            writeln!(f, "left behind: {leftover}")?;
        }
        if let Some(blocked) = &self.blocked {
            writeln!(f, "the suite could not go on: {blocked}")?;
        }
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
