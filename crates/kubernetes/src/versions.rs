//! What a server's version tells about its kubelets: they are older by three minor versions at most, and by two before
//! 1.28 (<https://kubernetes.io/releases/version-skew-policy>).

use k8s_openapi::apimachinery::pkg::version::Info;

/// The first minor version of Kubernetes 1 all of whose kubelets end sidecars by themselves: those of 1.29 do. An older
/// one would never end a sidecar, or not take its pod.
const NATIVE_SIDECARS: u32 = 29 + 3;
/// The first minor version all of whose Job controllers replace a pod only when it has ended (`podReplacementPolicy`):
/// those of 1.29 do, and they may be older by one minor version.
const WAITS_FOR_PODS: u32 = 29 + 1;
/// The first minor version all of whose kubelets end a pod that is deleted while it is made: those of 1.22 do.
const SEEN_TO_THEIR_END: u32 = 22 + 2;

/// Whether every kubelet of this server supports native sidecars.
pub(crate) fn has_native_sidecars(version: &Info) -> bool {
    minor(version).is_some_and(|minor| minor >= NATIVE_SIDECARS)
}

/// Whether a kubelet of this server may ignore for ever a pod that was deleted while it was made.
pub(crate) fn forgets_pods(version: &Info) -> bool {
    minor(version).is_some_and(|minor| minor < SEEN_TO_THEIR_END)
}

/// Whether this server may make a second pod for a Job while the first one is only being deleted.
pub(crate) fn makes_second_pods(version: &Info) -> bool {
    minor(version).is_none_or(|minor| minor < WAITS_FOR_PODS)
}

/// The minor version of Kubernetes 1; a later major version counts as later than all of them. Providers write `29+`.
fn minor(version: &Info) -> Option<u32> {
    let number = |text: &str| -> Option<u32> {
        text.trim_end_matches(|character: char| !character.is_ascii_digit()).parse().ok()
    };
    match (number(&version.major)?, number(&version.minor)?) {
        (0, _) => None,
        (1, minor) => Some(minor),
        _ => Some(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::version::Info;

    use super::{forgets_pods, has_native_sidecars, makes_second_pods};

    #[test]
    fn what_a_version_tells() {
        for (major, minor, forgets, seconds, native) in [
            ("1", "20", true, true, false),
            ("1", "23+", true, true, false),
            ("1", "24", false, true, false),
            ("1", "29", false, true, false),
            ("1", "30", false, false, false),
            ("1", "31+", false, false, false),
            ("1", "32", false, false, true),
            ("1", "33+", false, false, true),
            ("2", "0", false, false, true),
            // Of which nothing is known, nothing is taken for granted.
            ("", "", false, true, false),
            ("0", "9", false, true, false),
        ] {
            let version = Info { major: major.into(), minor: minor.into(), ..Info::default() };
            assert_eq!(forgets_pods(&version), forgets, "{major}.{minor}");
            assert_eq!(makes_second_pods(&version), seconds, "{major}.{minor}");
            assert_eq!(has_native_sidecars(&version), native, "{major}.{minor}");
        }
    }
}
