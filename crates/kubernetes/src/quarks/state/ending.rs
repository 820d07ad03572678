//! Pods of a failed Job: they are told to end, and have a while for it, in which they may still write output that is to
//! be kept.

use super::pod::SeenPod;

/// How many seconds after its time a pod is still waited for: its kubelet has to say that it has ended.
pub(crate) const SLACK: i64 = 15;

/// Until when the pods of a Job that failed at `failed_at` are waited for; both in seconds since 1970. `None`: what is
/// kept of them is there already, or will never be.
pub(crate) fn awaited<'p>(
    failed_at: i64,
    pods: impl Iterator<Item = &'p SeenPod> + Clone,
) -> Option<i64> {
    if pods.clone().any(|pod| pod.is_over() && !pod.has_succeeded()) {
        return None;
    }
    let ending = pods.filter(|pod| !pod.is_over() && !pod.gone);
    let until = |pod: &SeenPod| pod.deletion.unwrap_or(failed_at.saturating_add(pod.grace));
    ending.map(|pod| until(pod).saturating_add(SLACK)).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quarks::tests::pod;

    const FAILED_AT: i64 = 100;

    fn with(code: Option<i32>, deletion: Option<i64>, gone: bool) -> SeenPod {
        SeenPod { deletion, gone, grace: 5, ..pod(&[("c", code)], None) }
    }

    #[test]
    fn what_is_told_to_end_is_waited_for_until_its_time_is_up() {
        for (name, pods, until) in [
            ("none is known", vec![], None),
            ("one has ended", vec![with(Some(1), None, false)], None),
            ("one is told to", vec![with(None, Some(130), false)], Some(145)),
            ("one is to be told", vec![with(None, None, false)], Some(120)),
            ("it is gone", vec![with(None, Some(130), true)], None),
            (
                "one has failed by itself, and the other is told to end",
                vec![with(Some(1), None, false), with(None, Some(130), false)],
                None,
            ),
            (
                "one has ended well, and the other is told to end",
                vec![with(Some(0), None, false), with(None, Some(130), false)],
                Some(145),
            ),
        ] {
            assert_eq!(awaited(FAILED_AT, pods.iter()), until, "{name}");
        }
    }
}
