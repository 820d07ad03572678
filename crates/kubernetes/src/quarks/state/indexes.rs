//! Jobs whose pods have a number each (`completionMode: Indexed`): what ends such a Job before all of its completions
//! are done.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus, SuccessPolicyRule};

/// The annotation of a pod with its number.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What a Job says of the numbers of its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Indexes {
    /// The rules of its `successPolicy`, of which any is enough, from Kubernetes 1.31 on.
    rules: Vec<Rule>,
    /// How many numbers have failed for good, by `backoffLimitPerIndex`, from Kubernetes 1.29 on.
    pub(crate) failed: u32,
}

/// A rule: of the numbers `of`, or of all, `count` have to succeed, or all of them if there is no `count`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    of: Option<Ranges>,
    count: Option<u64>,
}

/// Ranges of numbers: the first and the last of each.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ranges(Vec<(u32, u32)>);

impl Indexes {
    pub(crate) fn of(spec: &JobSpec, status: Option<&JobStatus>) -> Self {
        let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
        let failed = status.and_then(|status| Ranges::read(status.failed_indexes.as_deref()?));
        let failed = failed.map_or(0, |failed| failed.count());
        Self {
            rules: rules.filter_map(Rule::of).collect(),
            failed: u32::try_from(failed).unwrap_or(u32::MAX),
        }
    }

    /// Whether it is enough for the Job that the pods of these numbers have succeeded.
    pub(crate) fn are_enough(&self, done: &BTreeSet<u32>) -> bool {
        self.rules.iter().any(|rule| rule.is_met(done))
    }
}

impl Rule {
    /// Reads a rule; `None` for one that no API server accepts.
    fn of(rule: &SuccessPolicyRule) -> Option<Self> {
        let of = match rule.succeeded_indexes.as_deref() {
            Some(text) => Some(Ranges::read(text)?),
            None => None,
        };
        let count = rule.succeeded_count.and_then(|count| u64::try_from(count).ok());
        (of.is_some() || count.is_some()).then_some(Self { of, count })
    }

    fn is_met(&self, done: &BTreeSet<u32>) -> bool {
        let counts = |index: &&u32| self.of.as_ref().is_none_or(|of| of.has(**index));
        let wanted = self.count.or_else(|| self.of.as_ref().map(Ranges::count));
        wanted.is_some_and(|wanted| done.iter().filter(counts).count() as u64 >= wanted)
    }
}

impl Ranges {
    /// Reads ranges, such as `0,2-4`.
    fn read(text: &str) -> Option<Self> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let ranges = parts.map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        ranges.collect::<Option<_>>().map(Self)
    }

    fn count(&self) -> u64 {
        let counts = self.0.iter().map(|(first, last)| match last.checked_sub(*first) {
            Some(further) => u64::from(further) + 1,
            None => 0,
        });
        counts.sum()
    }

    fn has(&self, index: u32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&index))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_enough_is_as_a_rule_of_the_success_policy_has_it() {
        for (name, rules, done, is_enough) in [
            ("no policy", json!([]), vec![0, 1, 2], false),
            ("the leader", json!([{"succeededIndexes": "0"}]), vec![0], true),
            ("another than the leader", json!([{"succeededIndexes": "0"}]), vec![1, 2], false),
            ("all of several", json!([{"succeededIndexes": "0,2-3"}]), vec![0, 2, 3], true),
            ("one of them is missing", json!([{"succeededIndexes": "0,2-3"}]), vec![0, 2], false),
            ("any two", json!([{"succeededCount": 2}]), vec![1, 4], true),
            ("one of any two", json!([{"succeededCount": 2}]), vec![4], false),
            (
                "two of these",
                json!([{"succeededIndexes": "1-3", "succeededCount": 2}]),
                vec![1, 3],
                true,
            ),
            (
                "others do not count",
                json!([{"succeededIndexes": "1-3", "succeededCount": 2}]),
                vec![1, 5, 6],
                false,
            ),
            (
                "the second rule",
                json!([{"succeededIndexes": "0"}, {"succeededCount": 1}]),
                vec![7],
                true,
            ),
            ("nonsense", json!([{"succeededIndexes": "x"}, {}]), vec![0], false),
        ] {
            let spec = json!({"template": {}, "successPolicy": {"rules": rules}});
            let indexes = Indexes::of(&serde_json::from_value(spec).unwrap(), None);
            assert_eq!(indexes.are_enough(&done.into_iter().collect()), is_enough, "{name}");
        }
    }

    #[test]
    fn those_that_are_given_up_are_counted() {
        for (said, failed) in [("", 0), ("3", 1), ("0,2-4", 4), ("4-2", 0), ("x", 0)] {
            let spec = serde_json::from_value(json!({"template": {}})).unwrap();
            let status = serde_json::from_value(json!({"failedIndexes": said})).unwrap();
            assert_eq!(Indexes::of(&spec, Some(&status)).failed, failed, "{said}");
        }
    }
}
