//! Names that derive from what users wrote, as the original derived them; where it made names that no API server
//! accepts, we have our own.

use data_encoding::HEXLOWER;
use engine::trigger::Run;

use crate::names;
use crate::syntax::is_label_value;

/// The longest value of a label, and the longest name of a container or a volume.
const LABEL: usize = 63;
/// The longest name of most objects.
const SUBDOMAIN: usize = 253;
/// The suffix of the name of a first version, and that of one with a large number. A name that has room for the first
/// is kept as the original had it.
const FIRST_VERSION: usize = "-v1".len();
const VERSION: usize = "-v999999".len();
/// The longest name of a versioned object that has room for a million versions.
pub(crate) const LONGEST_VERSIONED: usize = SUBDOMAIN - VERSION;
/// How many bytes of a QuarksJob's name the names of its Jobs begin with.
const STEM: usize = 39;
/// How many bytes of each of two names the name of a Job begins with, for a run that is for a pod.
const HALF_STEM: usize = 19;

/// The name of the Job of a run. A run that is for a pod has the first characters of both names in it.
pub(crate) fn of_run(name: &str, uid: &str, run: &Run) -> String {
    let Some(pod) = &run.pod else { return job(name, uid, run.id) };
    let (stem, of_pod) = (host_stem(name, HALF_STEM), host_stem(&pod.name, HALF_STEM));
    format!("{stem}-{of_pod}-{}", hash([uid, &run.id.to_string()]))
}

/// The name of the Job of run number `run`: the first 39 bytes of the QuarksJob's name, and 16 hexadecimal digits that
/// only this run has.
pub(crate) fn job(name: &str, uid: &str, run: u64) -> String {
    format!("{}-{}", host_stem(name, STEM), hash([uid, &run.to_string()]))
}

/// As [`stem`], with dashes for dots: the pods of a Job are named after it, and their hosts after them. Of an Indexed Job,
/// whose pods' hosts have just its name and their index, Kubernetes takes no dot. It is so for any Job: the name of a run's
/// Job has to be the same whatever becomes of the spec.
fn host_stem(name: &str, most: usize) -> String {
    stem(name, most).replace('.', "-")
}

/// The first `most` bytes of a name, without what cannot stand before a dash.
fn stem(name: &str, most: usize) -> &str {
    name[..name.floor_char_boundary(most)].trim_end_matches(['.', '-'])
}

/// The name of an Event: one for each QuarksJob, reason and occurrence.
pub(crate) fn event(name: &str, uid: &str, reason: &str, of: &str) -> String {
    format!("{}.{}", stem(name, SUBDOMAIN - 17), hash([uid, reason, of]))
}

/// A name as the value of a label: a long one is cut.
pub(crate) fn label(name: &str) -> String {
    bounded(name, LABEL)
}

/// A text reduced to lower case letters, digits and dashes: the name of a volume, or the value of a label.
pub(crate) fn sanitize(text: &str) -> String {
    bounded(&kept(text, |character| character == '-'), LABEL)
}

/// A text as the value of a label: as it is written if it can be one, else [`sanitize`]d.
pub(crate) fn label_as_written(text: &str) -> String {
    if is_label_value(text) { text.to_owned() } else { sanitize(text) }
}

/// The name of a version.
pub(crate) fn version(base: &str, number: u64) -> String {
    format!("{base}-v{number}")
}

/// Why there can be no version of this number; `None`: its name has room for it.
pub(crate) fn without_room(base: &str, number: u64) -> Option<String> {
    (version(base, number).len() > SUBDOMAIN).then(|| {
        format!(
            "the versioned Secret {base} has no room in its name for version {number}, of {SUBDOMAIN} letters in all: \
             give it another in spec.output, of no more than {LONGEST_VERSIONED}"
        )
    })
}

/// As [`sanitize`], with dots: the name of a Secret or ConfigMap. For a versioned one it is the name that all versions
/// have in common, which leaves room for their numbers.
pub(crate) fn sanitize_subdomain(text: &str, versioned: bool) -> String {
    let text = kept(text, |character| matches!(character, '-' | '.'));
    match versioned {
        true if text.len() > SUBDOMAIN - FIRST_VERSION => bounded(&text, LONGEST_VERSIONED),
        _ => bounded(&text, SUBDOMAIN),
    }
}

/// The name of the object that a key fans out into. The whole name is sanitized at once, as in the original.
pub(crate) fn fanned(name: &str, key: &str, versioned: bool) -> String {
    sanitize_subdomain(&format!("{name}-{key}"), versioned)
}

/// Whether a key that fans out leaves anything in the name that it becomes: `{name}-` would be the name itself.
pub(crate) fn leaves_something(key: &str) -> bool {
    !kept(key, |_| false).is_empty()
}

/// What all names that `name` fans out into begin with, however long the keys are.
pub(crate) fn fanned_beginning(name: &str) -> String {
    let mut one = kept(&format!("{name}-x"), |character| matches!(character, '-' | '.'));
    one.pop();
    one.truncate(SUBDOMAIN / 2);
    one
}

fn kept(text: &str, also: impl Fn(char) -> bool) -> String {
    let text = text.replace('_', "-").to_lowercase();
    let good = |character: &char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || also(*character)
    };
    let text: String = text.chars().filter(good).collect();
    text.trim_matches(['-', '.']).to_owned()
}

/// Cuts a text that is too long: its beginning, and a hash of the whole.
fn bounded(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}-{}", stem(text, most - 17), hash([text])),
    }
}

pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    HEXLOWER.encode(&names::digest(parts).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_under_which_there_is_something() {
        let of_pod = json!({
            "id": 1, "trigger": "pod-state", "at": "", "pod": {"name": "web-0", "uid": "p"},
        });
        let of_pod: Run = serde_json::from_value(of_pod).unwrap();
        let long = format!("{}-40dc849865f2b3e9", "a".repeat(46));
        for (name, expected) in [
            (job("errand", "uid", 1), "errand-3658ab2b45bfd6ae"),
            (of_run("errand", "uid", &of_pod), "errand-web-0-3658ab2b45bfd6ae"),
            (event("errand", "uid", "Failed", "1"), "errand.5ad5aa1689699a6e"),
            (label(&"a".repeat(80)), long.as_str()),
        ] {
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn a_job_has_a_name_of_its_own_for_each_run() {
        let first = job("errand", "uid", 1);
        let digits = first.strip_prefix("errand-").unwrap();
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(digits.len() == 16 && digits.bytes().all(is_digit), "{first}");
        assert_eq!(first, job("errand", "uid", 1));
        assert_ne!(first, job("errand", "uid", 2));
        assert_ne!(first, job("errand", "other", 1));
    }

    /// Kubernetes checks the host name of the last pod: the Job's name, and the highest index, of a hundred thousand.
    #[test]
    fn a_job_of_any_name_may_be_indexed() {
        let of_pod = json!({
            "id": 1, "trigger": "pod-state", "at": "", "pod": {"name": "web.0", "uid": "p"},
        });
        let of_pod: Run = serde_json::from_value(of_pod).unwrap();
        let long = format!("{}.{}", "a".repeat(30), "b".repeat(30));
        for name in ["a.b", "a.b.c", "a.b-c.d", long.as_str()] {
            for job in [job(name, "uid", 1), of_run(name, "uid", &of_pod)] {
                let host = format!("{job}-99999");
                assert!(is_label_value(&host) && !host.contains(['.', '_']), "{host}");
                assert!(host.len() <= LABEL, "{host}");
            }
        }
    }

    #[test]
    fn d17_a_cut_name_does_not_end_in_a_dot() {
        let name = format!("{}.{}", "a".repeat(38), "b".repeat(30));
        let job = job(&name, "uid", 1);
        assert!(job.starts_with(&format!("{}-", "a".repeat(38))), "{job}");
        assert!(job.len() <= 56);
    }

    #[test]
    fn d17_a_long_name_is_a_label() {
        let (one, other) = ("a".repeat(80), format!("{}b", "a".repeat(79)));
        assert_eq!(label(&one).len(), 63);
        assert_ne!(label(&one), label(&other));
        assert_eq!(label("short"), "short");
    }

    #[test]
    fn what_becomes_a_name_is_sanitized_as_before() {
        for (text, expected) in [("1.0", "10"), ("Value_A", "value-a"), ("-x-", "x"), ("ü", "")] {
            assert_eq!(sanitize(text), expected, "{text}");
        }
        assert_eq!(sanitize_subdomain("Foo_bar.baz", false), "foo-bar.baz");
        assert_eq!(sanitize_subdomain(&"x".repeat(300), false).len(), 253);
    }

    #[test]
    fn the_longest_name_of_a_versioned_one_has_room_for_its_number() {
        let (longest, another) = ("x".repeat(250), format!("{}y", "x".repeat(250)));
        assert_eq!(sanitize_subdomain(&longest, true), longest);
        assert_ne!(sanitize_subdomain(&another, true), another);
        assert!(format!("{}-v999999", sanitize_subdomain(&another, true)).len() <= SUBDOMAIN);
    }
}
