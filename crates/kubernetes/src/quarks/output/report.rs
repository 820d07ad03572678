//! The reports of the agents in a run's pods: found in what was seen of a pod, read from a log where they are large,
//! and opened.

use std::collections::BTreeMap;

use agent::{
    Content, Error, Gathered, KeySet, Logged, MAX_CONTAINERS, MAX_LOGGED_BYTES, MAX_MESSAGE_BYTES,
    Message, POD_MESSAGES_BYTES, Sealed,
};
use serde_json::Value;

use super::logs::Size;
use super::objects::MAX_SECRET_BYTES;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::output_map::{OutputMap, PRINTED};
use crate::quarks::api::pod::SIDECAR;
use crate::quarks::state::pod::{SeenEnd, SeenPod};

/// How many bytes of what a container has printed are read: more is too large, however much it is.
pub(crate) const PRINTED_BYTES: usize = 2 * MAX_SECRET_BYTES;

/// Where the report of a container is, as its message says.
#[derive(Debug)]
pub(crate) enum ContainerReport {
    /// In the message itself.
    Here(Sealed),
    /// In the log of this container, or in that from before its last restart.
    InLog { container: String, previous: bool, logged: Logged },
    /// There is none: what this container has printed is the output.
    Printed(String),
    /// There is none, for this reason.
    Missing(String),
}

/// How many bytes of a sealed report are in a line of a log, and how many bytes such a line takes with what stands
/// before it.
const CHUNK_BYTES: usize = 6 * 1024;
const LINE_BYTES: usize = CHUNK_BYTES / 3 * 4 + 128;
/// How many lines in a log may follow the beginning of a report, or precede it, that are none of its own.
const STRAY_LINES: usize = 512;
/// How many bytes a kubelet writes as one line at most.
const STRAY_BYTES: usize = 16 * 1024;

/// How many bytes of reports are not yet [`Size::Large`]: as much as one agent brings.
const LARGE_BYTES: usize = MAX_LOGGED_BYTES + (1 << 20);

/// The size of these reports together, as far as it is known before they are read.
pub(crate) fn size(all: &BTreeMap<String, ContainerReport>) -> Size {
    let most = |found: &ContainerReport| match found {
        ContainerReport::Printed(_) => PRINTED_BYTES,
        found => found.brings(),
    };
    match all.values().map(most).sum::<usize>() > LARGE_BYTES {
        true => Size::Large,
        false => Size::OfOne,
    }
}

impl ContainerReport {
    /// How many bytes the report brings at most, as far as that is known before it is read.
    pub(crate) fn brings(&self) -> usize {
        match self {
            Self::Here(_) => MAX_MESSAGE_BYTES,
            Self::InLog { logged, .. } => logged.lines_in_log() * CHUNK_BYTES,
            Self::Printed(_) | Self::Missing(_) => 0,
        }
    }
}

/// How much of the end of a log is read for a report in it: how many lines, and how many bytes.
pub(crate) fn limits(logged: &Logged) -> (Option<i64>, Option<i64>) {
    let lines = logged.lines_in_log();
    let bytes = lines * LINE_BYTES + STRAY_LINES * STRAY_BYTES;
    (i64::try_from(lines + STRAY_LINES).ok(), i64::try_from(bytes).ok())
}

/// The pod whose output counts: the last of those that ended as the run did, preferably by itself. What a failed try
/// left is no output of a run that succeeded, however late the pod is heard of that did. A pod that ended with 0
/// because it was told to has not done its work.
pub(crate) fn chosen<'p>(
    pods: impl Iterator<Item = &'p SeenPod>,
    failed: bool,
) -> Option<&'p SeenPod> {
    let ended_so = |pod: &&SeenPod| {
        pod.is_over() && if failed { !pod.did_its_work() } else { pod.has_succeeded() }
    };
    let by_itself = |pod: &SeenPod| pod.deletion.is_none();
    pods.filter(ended_so).max_by_key(|pod| (by_itself(pod), pod.ended, pod.uid.clone()))
}

/// The pod whose output counts if none is over: the last of those that Kubernetes deleted while a container was to be
/// started again.
pub(crate) fn left<'p>(pods: impl Iterator<Item = &'p SeenPod>) -> Option<&'p SeenPod> {
    let tried = pods.filter(|pod| !pod.containers.is_empty() || !pod.before.is_empty());
    tried.max_by_key(|pod| (pod.ended, pod.uid.clone()))
}

/// The reports of a pod, by the container that left them: each mapped container, or the sidecar.
pub(crate) fn find(
    dialect: Dialect,
    pod: &SeenPod,
    spec: &Value,
) -> BTreeMap<String, ContainerReport> {
    let map = OutputMap::of(dialect, spec);
    let of = |container: &str| {
        let last = pod.containers.get(container).map(|end| (end, false));
        // A container that was ended while it was tried again may have left nothing: then the try before counts. So
        // does that of a sidecar that its kubelet has started again.
        let counts = !pod.has_succeeded() || container == SIDECAR;
        let before = pod.before.get(container).filter(|_| counts).map(|end| (end, true));
        let mut reports = last.into_iter().chain(before).filter_map(|(end, previous)| {
            match Message::parse(&end.message).ok()? {
                Message::Sealed(sealed) => Some(ContainerReport::Here(sealed)),
                Message::Logged(logged) => Some(ContainerReport::InLog {
                    container: container.to_owned(),
                    previous,
                    logged,
                }),
                Message::Broken(_) => Some(ContainerReport::Missing(
                    "the agent could not read what it was told".to_owned(),
                )),
            }
        });
        reports.next().unwrap_or_else(|| {
            let not = || match last.or(before) {
                Some((end, _)) => {
                    format!("no report was left (it ended with {}, {})", end.code, end.reason)
                }
                None if pod.unmade.iter().any(|it| **it == *container) => {
                    "the container never began".to_owned()
                }
                None => "the container has not ended".to_owned(),
            };
            ContainerReport::Missing(cut(pod, container).unwrap_or_else(not))
        })
    };
    if pod.sidecar {
        return BTreeMap::from([(SIDECAR.to_owned(), of(SIDECAR))]);
    }
    let found = |name: &str| match dialect {
        Dialect::ExtendedJob if pod.wrapped.iter().all(|wrapped| **wrapped != *name) => {
            ContainerReport::Printed(name.to_owned())
        }
        _ => of(name),
    };
    map.containers().map(|name| (name.to_owned(), found(name))).collect()
}

/// Why a container's message does not say where its report is, if its kubelet may have cut it: if there are more than
/// [`MAX_CONTAINERS`] containers there is no room for that.
fn cut(pod: &SeenPod, container: &str) -> Option<String> {
    let share = POD_MESSAGES_BYTES.checked_div(pod.sharers)?;
    let is_cut = |end: &SeenEnd| {
        let is_ours = Message::parse(&end.message) != Err(Error::NotOurs);
        is_ours && end.message.len() >= share
    };
    let mut ends = [&pod.containers, &pod.before].into_iter().filter_map(|all| all.get(container));
    (pod.sharers > MAX_CONTAINERS && ends.any(is_cut)).then(|| {
        format!(
            "its message was cut: a kubelet has room for those of {MAX_CONTAINERS} containers, and its pod has {}; let it \
             have fewer",
            pod.sharers
        )
    })
}

/// Why a report that was found cannot be opened. If digits of its length were cut off, the message names no report that
/// is in the log.
pub(crate) fn unreadable(pod: &SeenPod, reporter: &str, error: &Error) -> String {
    let is_of_log = matches!(error, Error::Incomplete { .. } | Error::OtherDigest);
    let cut = cut(pod, reporter).filter(|_| is_of_log);
    cut.map_or_else(|| error.to_string(), |cut| format!("{error}; {cut}"))
}

/// Opens a report that was found; `log` has the text of one that is in a log.
pub(crate) fn open(
    found: &ContainerReport,
    log: Option<&[u8]>,
    keys: &KeySet,
    run: &str,
) -> Result<Gathered, Error> {
    match found {
        ContainerReport::Here(sealed) => sealed.gathered(keys, run),
        // The lines of a report are text, whatever stands around them.
        ContainerReport::InLog { logged, .. } => {
            logged.gathered(&String::from_utf8_lossy(log.unwrap_or_default()), keys, run)
        }
        ContainerReport::Printed(container) => Ok(printed(container, log.unwrap_or_default())),
        ContainerReport::Missing(_) => Err(Error::NotOurs),
    }
}

fn printed(container: &str, log: &[u8]) -> Gathered {
    let content = match std::str::from_utf8(log).map(str::trim) {
        // It may have been cut within a character.
        _ if log.len() >= PRINTED_BYTES => Content::TooLarge(log.len() as u64),
        Err(_) => Content::NotText,
        Ok("") => Content::Missing,
        Ok(text) if text.len() > MAX_SECRET_BYTES => Content::TooLarge(text.len() as u64),
        Ok(text) => Content::Text(text.to_owned()),
    };
    let files = BTreeMap::from([(PRINTED.to_owned(), content)]);
    Gathered { run: String::new(), outputs: BTreeMap::from([(container.to_owned(), files)]) }
}

/// Drops from a report what its reporter cannot know: the sidecar reports on all containers, any other only on itself.
pub(crate) fn only_of(reporter: &str, report: &mut Gathered) {
    report.outputs.retain(|container, _| reporter == SIDECAR || container == reporter);
}

/// A report that says of each file of a reporter why it cannot be read.
pub(crate) fn lost(dialect: Dialect, spec: &Value, reporter: &str, why: &str) -> Gathered {
    let map = OutputMap::of(dialect, spec);
    let concerns = |container: &&str| reporter == SIDECAR || *container == reporter;
    let files = |container: &str| -> BTreeMap<String, Content> {
        let files = map.files(container).into_iter().flatten();
        files.map(|file| (file.to_owned(), Content::Unreadable(why.to_owned()))).collect()
    };
    let outputs = map.containers().filter(concerns).map(|it| (it.to_owned(), files(it))).collect();
    Gathered { run: String::new(), outputs }
}

/// How many bytes of a container runtime's message are shown.
const MAX_SAID: usize = 512;

/// What shells and the agent mean by these statuses: the command is named in the log alone.
fn no_command(status: i32) -> &'static str {
    match status {
        126 => ", as where a command cannot be executed: its log says which",
        127 => ", as where a command is not found: its log says which",
        _ => "",
    }
}

/// How the containers of a pod ended that did not end well, for people; for one that was to be started again, how it
/// last ended.
pub(crate) fn ends(pod: &SeenPod) -> String {
    let before = pod.before.iter().filter(|(name, _)| !pod.containers.contains_key(*name));
    let all = pod.containers.iter().chain(before);
    let bad = all.filter(|(name, end)| end.code != 0 && &***name != SIDECAR);
    let words = bad.map(|(name, end)| match end.reason.as_str() {
        "" | "Error" => {
            format!("container {name} exited with {}{}", end.code, no_command(end.code))
        }
        // It never ran: this is the message of its runtime.
        "StartError" | "ContainerCannotRun" if !end.message.is_empty() => {
            let most = end.message.floor_char_boundary(MAX_SAID);
            format!("container {name} cannot run: {}", end.message[..most].trim())
        }
        reason => format!("container {name} exited with {} ({reason})", end.code),
    });
    let unmade = pod.unmade.iter().filter(|name| &***name != SIDECAR);
    let words = words.chain(unmade.map(|name| format!("container {name} never began")));
    let words: Vec<String> = words.chain(pod.ended_for.clone()).collect();
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use agent::Purpose;

    use super::*;
    use crate::quarks::tests::pod;

    #[test]
    fn the_pod_whose_output_counts_has_ended_as_its_run_did() {
        let of = |uid: &str, code, ended, deletion| SeenPod {
            uid: uid.into(),
            ended,
            deletion,
            ..pod(&[("c", code)], None)
        };
        let failed = of("failed", Some(1), 1, None);
        let goes_on = of("goes-on", None, 0, None);
        let well = of("well", Some(0), 2, None);
        let later = of("later", Some(0), 3, None);
        let told = of("told", Some(1), 9, Some(9));
        let told_well = of("told-well", Some(0), 9, Some(9));
        // What counts where the run succeeded, and where it failed.
        for (name, pods, of_success, of_failure) in [
            ("it was tried again, and that is not heard yet", vec![&failed], None, Some("failed")),
            ("the same goes on, as was heard", vec![&failed, &goes_on], None, Some("failed")),
            ("it was tried again", vec![&failed, &well], Some("well"), Some("failed")),
            ("several succeeded", vec![&later, &well], Some("later"), None),
            ("one was told to end", vec![&told, &failed], None, Some("failed")),
            ("all were", vec![&told, &goes_on], None, Some("told")),
            (
                "all were, and it ended with 0",
                vec![&told_well],
                Some("told-well"),
                Some("told-well"),
            ),
            (
                "one was, and the other failed",
                vec![&told_well, &failed],
                Some("told-well"),
                Some("failed"),
            ),
            // As those that are not needed any more where the Job has a `successPolicy`.
            (
                "one did its work, and then the other was told to end",
                vec![&told_well, &well],
                Some("well"),
                Some("told-well"),
            ),
            ("none has ended", vec![&goes_on], None, None),
        ] {
            let counts = |failed| chosen(pods.iter().copied(), failed).map(|pod| &*pod.uid);
            assert_eq!((counts(false), counts(true)), (of_success, of_failure), "{name}");
        }
    }

    fn only(reporter: &str) -> Vec<String> {
        let files = BTreeMap::from([("o.json".to_owned(), Content::Missing)]);
        let outputs = ["a", "b"].map(|container| (container.to_owned(), files.clone()));
        let mut report = Gathered { run: String::new(), outputs: BTreeMap::from(outputs) };
        only_of(reporter, &mut report);
        report.outputs.into_keys().collect()
    }

    #[test]
    fn a_container_reports_of_itself_and_the_sidecar_of_all() {
        assert_eq!(only("a"), ["a"]);
        assert_eq!(only("c"), [""; 0]);
        assert_eq!(only(SIDECAR), ["a", "b"]);
    }

    /// What the sidecar says, if it ended like this, and like this before.
    fn of_sidecar(last: &str, before: Option<&str>) -> ContainerReport {
        let end = |message: &str| SeenEnd {
            code: 0,
            reason: "Completed".to_owned(),
            message: message.to_owned(),
        };
        let mut pod = SeenPod { sidecar: true, ..pod(&[("c", Some(0))], None) };
        pod.containers.insert(SIDECAR.into(), end(last));
        pod.before.extend(before.map(|before| (SIDECAR.into(), end(before))));
        let spec = serde_json::json!({"output": {"outputMap": {"c": {"o.json": {"name": "o"}}}}});
        find(Dialect::QuarksJob, &pod, &spec).remove(SIDECAR).unwrap()
    }

    #[test]
    fn a_sidecar_that_was_begun_again_and_ended_with_nothing_has_left_what_it_left_before() {
        let logged = agent::Message::Broken("no key".to_owned()).to_string();
        assert!(
            matches!(of_sidecar("", None), ContainerReport::Missing(why) if why.contains("no report"))
        );
        for (last, before) in [(&*logged, None), ("", Some(&*logged))] {
            let found = of_sidecar(last, before);
            assert!(
                matches!(&found, ContainerReport::Missing(why) if why.contains("the agent")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_message_that_a_kubelet_has_cut_is_told_from_others_that_cannot_be_read() {
        let logged =
            |bytes: &str| format!("MANCIPLE1 logged 0123456789abcdef {} {bytes}", "0".repeat(64));
        let (large, small) = (logged("5242880"), logged("210"));
        let others = "x".repeat(4096);
        let spec = serde_json::json!({"output": {"outputMap": {"c": {"o.json": {"name": "o"}}}}});
        let most = MAX_CONTAINERS;
        for (name, sharers, message, is_cut) in [
            ("as many as may be", most, &*large, false),
            ("one more: a digit of its length is cut off", most + 1, &*large, true),
            ("one more, of a length of few digits", most + 1, &*small, false),
            ("many more: all of its length is", most + 9, &*large, true),
            ("a part of the digest is, too", 2 * most, &*small, true),
            ("nothing was left", 2 * most, "", false),
            ("it is another's", 2 * most, &*others, false),
            ("it is not known how many there are", 0, &*large, false),
        ] {
            let kept = POD_MESSAGES_BYTES / sharers.max(1);
            let message = message[..message.len().min(kept)].to_owned();
            let end = SeenEnd { code: 0, reason: "Completed".to_owned(), message };
            let mut pod = SeenPod { sharers, ..pod(&[("c", Some(0))], None) };
            pod.containers.insert("c".into(), end);
            let why = match find(Dialect::QuarksJob, &pod, &spec).remove("c").unwrap() {
                ContainerReport::Missing(why) => why,
                _ => unreadable(&pod, "c", &Error::OtherDigest),
            };
            let words = format!("room for those of {most} containers, and its pod has {sharers}");
            assert_eq!(why.contains(&words), is_cut, "{name}: {why}");
            let other = unreadable(&pod, "c", &Error::NotOpened);
            assert_eq!(other, Error::NotOpened.to_string(), "{name}");
        }
    }

    #[test]
    fn what_would_take_too_much_memory_is_a_report_that_cannot_be_read() {
        let pair = agent::KeyPair::generate();
        let keys = KeySet::from_iter([pair.clone()]);
        for (name, plain, why) in [
            ("light", r#"{"run":"job","outputs":{}}"#.to_owned(), None),
            ("heavy", format!("[{}0]", r#"{"":0},"#.repeat(700_000)), Some("16 MiB of memory")),
        ] {
            let sealed = Sealed::seal(pair.public(), Purpose::Outputs, "job", plain.as_bytes());
            let opened = open(&ContainerReport::Here(sealed.unwrap()), None, &keys, "job");
            let told = opened.err().map(|error| error.to_string());
            assert_eq!(told.is_some(), why.is_some(), "{name}: {told:?}");
            assert!(told.unwrap_or_default().contains(why.unwrap_or_default()), "{name}");
        }
    }

    #[test]
    fn what_several_containers_bring_may_be_large() {
        let text = format!("MANCIPLE1 logged 0123456789abcdef {} 5242880", "0".repeat(64));
        let Ok(Message::Logged(logged)) = Message::parse(&text) else { panic!("{text}") };
        let container = || "c".to_owned();
        let in_log = || {
            let logged = logged.clone();
            ContainerReport::InLog { container: container(), previous: false, logged }
        };
        let printed = || ContainerReport::Printed(container());
        for (name, all, expected) in [
            ("one report", vec![in_log()], Size::OfOne),
            ("two reports", vec![in_log(), in_log()], Size::Large),
            ("three logs", vec![printed(), printed(), printed()], Size::OfOne),
            ("four logs", vec![printed(), printed(), printed(), printed()], Size::Large),
            ("nothing", vec![ContainerReport::Missing("why".to_owned())], Size::OfOne),
        ] {
            let all = all.into_iter().enumerate();
            let all = all.map(|(index, found)| (index.to_string(), found)).collect();
            assert_eq!(size(&all), expected, "{name}");
        }
    }

    #[test]
    fn a_log_is_read_as_far_as_a_report_and_what_stands_around_it_may_take() {
        let text = format!("MANCIPLE1 logged 0123456789abcdef {} 5242880", "0".repeat(64));
        let Ok(Message::Logged(logged)) = Message::parse(&text) else { panic!("{text}") };
        let (lines, bytes) = limits(&logged);
        assert_eq!((lines, bytes), (Some(854 + 512), Some(854 * 8320 + 512 * 16_384)));
        let found = ContainerReport::InLog { container: "c".to_owned(), previous: false, logged };
        assert_eq!(found.brings(), 854 * 6144);
        let line =
            agent::Line::Report { digest: "0".repeat(16), index: 853, bytes: vec![0; CHUNK_BYTES] };
        assert!(line.to_string().len() < LINE_BYTES);
    }

    #[test]
    fn what_is_printed_without_end_is_too_large() {
        let of = |log: &str| printed("c", log.as_bytes()).outputs["c"][PRINTED].clone();
        assert_eq!(of("{}\n"), Content::Text("{}".to_owned()));
        assert_eq!(of(" \n"), Content::Missing);
        let all = PRINTED_BYTES as u64;
        for log in ["x".repeat(PRINTED_BYTES), " ".repeat(PRINTED_BYTES)] {
            assert_eq!(of(&log), Content::TooLarge(all), "the rest of it was not read");
        }
    }

    #[test]
    fn what_is_printed_and_is_no_text_is_told_from_what_was_cut_within_a_letter() {
        let of = |log: &[u8]| printed("c", log).outputs["c"][PRINTED].clone();
        assert_eq!(of(b"{\"k\": \"\xff\"}\n"), Content::NotText);
        let letters = "\u{fc}".repeat(PRINTED_BYTES);
        let cut = [b"x", &letters.as_bytes()[..PRINTED_BYTES - 1]].concat();
        assert!(std::str::from_utf8(&cut).is_err());
        assert_eq!(of(&cut), Content::TooLarge(PRINTED_BYTES as u64));
    }
}
