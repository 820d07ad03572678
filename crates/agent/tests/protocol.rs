//! What comes home is read whatever stands in it: hostile messages and logs are errors, never panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::path::Path;

use agent::{
    Answer, Content, Error, Gathered, Gathering, KeyPair, KeySet, Line, Logged, MAX_CONTAINERS,
    MAX_LOGGED_BYTES, MAX_MESSAGE_BYTES, Message, Outputs, POD_MESSAGES_BYTES, PublicKey, Purpose,
    Report, Sealed, escape,
};
use engine::ports::Offer;
use osb::{Output, Sensitive};
use proptest::prelude::*;
use serde_json::json;

fn keys() -> (KeyPair, KeySet) {
    let pair = KeyPair::generate();
    (pair.clone(), KeySet::from_iter([KeyPair::generate(), pair]))
}

fn report(output_bytes: usize, log: &str) -> Report {
    let state = Sensitive::new(json!("x".repeat(output_bytes)));
    let output = Output { state: Some(state), ..Output::default() };
    Report {
        run: "provision-a-1".to_owned(),
        answer: Answer::Work(Ok(output)),
        log: log.to_owned(),
        notes: Vec::new(),
    }
}

/// A sealed report that goes into a log, and the lines.
fn logged(pair: &KeyPair, bytes: usize) -> (Logged, Vec<String>) {
    let sealed = report(bytes, "").seal(pair.public()).unwrap();
    let Message::Logged(logged) = Message::of(&sealed) else { panic!() };
    (logged, Logged::lines(&sealed).map(|line| line.to_string()).collect())
}

#[test]
fn every_size_comes_home_in_a_message_that_fits() {
    let (pair, keys) = keys();
    for bytes in (2700..3100).chain([0, 1, 100_000]) {
        let sent = report(bytes, "\"the\nlog\"\n");
        let sealed = sent.clone().seal(pair.public()).unwrap();
        let message = Message::of(&sealed).to_string();
        assert!(message.len() <= MAX_MESSAGE_BYTES, "{bytes}: {}", message.len());
        let read = match Message::parse(&message).unwrap() {
            Message::Sealed(sealed) => sealed.report(&keys, &sent.run).unwrap(),
            Message::Logged(logged) => {
                let log: Vec<_> = Logged::lines(&sealed).map(|line| line.to_string()).collect();
                logged.report(&log.join("\n"), &keys, &sent.run).unwrap()
            }
            Message::Broken(why) => panic!("{why}"),
        };
        assert_eq!(read.answer, sent.answer);
        assert!(sent.log.ends_with(&read.log));
    }
}

#[test]
fn a_log_is_cut_to_keep_a_report_in_the_message() {
    let (pair, keys) = keys();
    for log in ["plain text\n".repeat(900), "\"\\\n\u{1}".repeat(2000), "äöü€🦀".repeat(999)]
    {
        let sealed = report(0, &log).seal(pair.public()).unwrap();
        assert!(matches!(Message::of(&sealed), Message::Sealed(_)));
        let read = sealed.report(&keys, "provision-a-1").unwrap();
        assert!(log.ends_with(&read.log) && read.log.len() > 300, "{}", read.log.len());
    }
}

#[test]
fn an_offer_comes_home() {
    let (pair, keys) = keys();
    let offer = Offer { catalog: json!({"services": []}), ..Offer::default() };
    let sent = Report { answer: Answer::Offer(Ok(offer)), ..report(0, "") };
    let sealed = sent.clone().seal(pair.public()).unwrap();
    assert_eq!(sealed.report(&keys, &sent.run), Ok(sent));
}

#[test]
fn hostile_messages_are_errors() {
    let pair = KeyPair::generate();
    let id = pair.public().id();
    let digest = "0".repeat(64);
    let malformed = [
        "MANCIPLE1 sealed".to_owned() + " ",
        format!("MANCIPLE1 sealed {id}"),
        format!("MANCIPLE1 sealed {id} "),
        format!("MANCIPLE1 sealed {id} not base64!"),
        format!("MANCIPLE1 sealed {id} AAA"),
        format!("MANCIPLE1 sealed {id} AAAA AAAA"),
        "MANCIPLE1 sealed ../../etc AAAA".to_owned(),
        format!("MANCIPLE1 logged {id} {digest} 0"),
        format!("MANCIPLE1 logged {id} {digest} -1"),
        format!("MANCIPLE1 logged {id} {digest} 99999999999999999999999999"),
        format!("MANCIPLE1 logged {id} {digest} 18446744073709551615"),
        format!("MANCIPLE1 logged {id} {} 5000", &digest[1..]),
        format!("MANCIPLE1 logged short {digest} 5000"),
        format!("MANCIPLE1 other {id}"),
        "MANCIPLE1 broken \0\0".to_owned(),
        format!("MANCIPLE1 sealed {id} {}", "A".repeat(5000)),
    ];
    for text in malformed {
        let found = Message::parse(&text);
        assert!(matches!(found, Err(Error::Malformed(_) | Error::NotOurs)), "{text}: {found:?}");
    }
    for text in ["", "\n", "panic: out of memory", "MANCIPLE1", "MANCIPLE2 sealed a b", "MANCIPLE"]
    {
        assert_eq!(Message::parse(text), Err(Error::NotOurs), "{text:?}");
    }
    // Whole by its form, and shorter than anything that was sealed.
    let Ok(Message::Sealed(short)) = Message::parse(&format!("MANCIPLE1 sealed {id} AAAA")) else {
        panic!("it is read as something else");
    };
    assert_eq!(short.report(&KeySet::from_iter([pair]), "a"), Err(Error::NotOpened));
}

#[test]
fn a_message_that_was_cut_or_changed_does_not_open() {
    let (pair, keys) = keys();
    let sealed = report(10, "").seal(pair.public()).unwrap();
    let message = Message::of(&sealed).to_string();
    for end in 0..message.len() {
        if let Ok(Message::Sealed(cut)) = Message::parse(&message[..end]) {
            assert_eq!(cut.report(&keys, "provision-a-1"), Err(Error::NotOpened), "{end}");
        }
    }
    for at in 34..message.len() {
        let mut changed = message.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        if let Ok(Message::Sealed(sealed)) = Message::parse(str::from_utf8(&changed).unwrap()) {
            assert_eq!(sealed.report(&keys, "provision-a-1"), Err(Error::NotOpened), "{at}");
        }
    }
}

#[test]
fn what_cannot_be_run_is_told_whole_or_cut() {
    for why in ["no order", "two\nlines\u{1b}[1m", &"ä".repeat(5000)] {
        let message = Message::Broken(why.to_owned()).to_string();
        assert!(message.len() <= MAX_MESSAGE_BYTES && !message.contains(char::is_control));
        assert!(matches!(Message::parse(&message), Ok(Message::Broken(_))));
    }
}

#[test]
fn a_report_is_found_among_anything() {
    let (pair, keys) = keys();
    let (logged, lines) = logged(&pair, 40_000);
    let forged = lines[0].replace(" 0 ", " 1 ").replace("AAAA", "BBBB");
    let other = forged.replacen("report ", "report 0000000000000000", 1);
    let mut log = vec!["a broker's line".to_owned(), escape(&lines[1]).into_owned(), other];
    log.extend(["#MANCIPLE1 report".to_owned(), "#MANCIPLE1".to_owned(), "\u{fffd}".repeat(9)]);
    for line in lines.iter().rev() {
        log.extend([line.clone(), "between".to_owned()]);
    }
    // Read twice, as after a reconnection, with the line ends of Windows.
    log.extend(lines.clone());
    for end in ["\n", "\r\n"] {
        let read = logged.report(&log.join(end), &keys, "provision-a-1");
        assert_eq!(read, Ok(report(40_000, "")));
    }
}

#[test]
fn a_log_without_all_of_the_report_says_what_is_missing() {
    let (pair, keys) = keys();
    let (logged, lines) = logged(&pair, 40_000);
    let total = lines.len();
    for kept in 0..total {
        let found = logged.read(&lines[..kept].join("\n"));
        assert_eq!(found, Err(Error::Incomplete { missing: total - kept, total }));
    }
    // The last line is cut: it is not base64 any more, or too short.
    let log = lines.join("\n");
    for cut in 1..50 {
        let found = logged.report(&log[..log.len() - cut], &keys, "provision-a-1");
        assert!(matches!(found, Err(Error::Incomplete { .. } | Error::OtherDigest)), "{found:?}");
    }
    let huge = log.replacen(" 0 ", " 99999999999999999999999999999 ", 1);
    assert_eq!(logged.read(&huge), Err(Error::Incomplete { missing: 1, total }));
    // Only who knows the digest could write it, and by then nobody is left to.
    let (head, text) = lines[0].rsplit_once(' ').unwrap();
    let forged = format!("{head} {}\n{log}", text.replace('A', "B"));
    assert_eq!(logged.read(&forged), Err(Error::OtherDigest));
}

#[test]
fn keys_survive_a_secret_and_show_nothing() {
    let pair = KeyPair::generate();
    let text = pair.to_base64();
    let read = KeyPair::from_base64(&format!("{}\n", text.as_str())).unwrap();
    assert_eq!(read.public(), pair.public());
    let keys = KeySet::from_iter([read]);
    let sealed = Sealed::seal(pair.public(), Purpose::Progress, "a", b"half way").unwrap();
    assert_eq!(sealed.progress(&keys, "a").unwrap(), "half way");
    assert!(!format!("{pair:?} {keys:?}").contains(text.as_str()));
    for text in ["", "AAAA", "not base64", &"A".repeat(400)] {
        let error = KeyPair::from_base64(text).unwrap_err();
        assert!(matches!(error, Error::NotAKey(_)));
    }
}

#[test]
fn a_public_key_and_its_id_belong_together() {
    let written = serde_json::to_value(KeyPair::generate().public()).unwrap();
    assert!(serde_json::from_value::<PublicKey>(written.clone()).is_ok());
    let other = KeyPair::generate().public().id();
    for changed in [json!({"id": other, "key": written["key"]}), json!({"id": "", "key": "AAAA"})] {
        assert!(serde_json::from_value::<PublicKey>(changed).is_err());
    }
}

#[test]
fn only_what_looks_like_the_agents_is_escaped() {
    for line in ["", "text", "# MANCIPLE1", " #MANCIPLE1 report", "a #MANCIPLE1 report"] {
        assert_eq!(escape(line), line);
    }
    for line in ["#MANCIPLE1 report x", "#MANCIPLE1", "#MANCIPLE", "#MANCIPLE7\u{fffd}"] {
        assert!(Line::parse(&escape(line)).is_none(), "{line}");
        assert!(escape(line).ends_with(line));
    }
}

/// Files of one container.
fn gathered(files: impl IntoIterator<Item = (String, Content)>) -> Gathered {
    let files: Vec<_> = files.into_iter().collect();
    let found = files.iter().map(|(file, content)| ("app", file.as_str(), content.clone()));
    Gathered::of("job-a-1", found)
}

#[test]
fn what_was_gathered_comes_home_as_what_it_is_and_as_nothing_else() {
    let (pair, keys) = keys();
    let contents = [
        Content::Text("{\"password\": \"planted\"}".to_owned()),
        Content::Missing,
        Content::TooLarge(u64::MAX),
        Content::NotText,
        Content::Unreadable("it is no regular file".to_owned()),
    ];
    let sent = gathered(contents.into_iter().enumerate().map(|(at, it)| (at.to_string(), it)));
    assert!(!format!("{sent:?}").contains("planted"), "{sent:?}");
    let sealed = sent.seal(pair.public()).unwrap();
    assert_eq!(sealed.gathered(&keys, "job-a-1"), Ok(sent));
    assert_eq!(sealed.gathered(&keys, "job-a-2"), Err(Error::NotOpened));
    assert_eq!(sealed.report(&keys, "job-a-1"), Err(Error::NotOpened));
    let other = report(0, "").seal(pair.public()).unwrap();
    assert_eq!(other.gathered(&keys, "provision-a-1"), Err(Error::NotOpened));
    // Sealed rightly, and of another run by its own word, or not what it should be.
    for plain in [r#"{"run": "job-a-2", "outputs": {}}"#, r#"{"run": "job-a-1"}"#, "planted"] {
        let sealed =
            Sealed::seal(pair.public(), Purpose::Outputs, "job-a-1", plain.as_bytes()).unwrap();
        assert_eq!(sealed.gathered(&keys, "job-a-1"), Err(Error::NotAReport), "{plain}");
    }
}

#[test]
fn what_would_take_too_much_memory_is_not_read() {
    let (pair, keys) = keys();
    let outcome = |is_read: bool| if is_read { Ok(()) } else { Err(Error::TooHeavy) };
    // Of 7 bytes each, and 672 of memory.
    for (maps, is_read) in [(1, true), (20_000, true), (22_000, false), (700_000, false)] {
        let plain = format!(
            r#"{{"run":"a","answer":{{"work":{{"Ok":{{"state":[{}0]}}}}}}}}"#,
            r#"{"":0},"#.repeat(maps)
        );
        let sealed = Sealed::seal(pair.public(), Purpose::Report, "a", plain.as_bytes()).unwrap();
        assert_eq!(sealed.report(&keys, "a").map(drop), outcome(is_read), "{maps} maps");
    }
    let empty = |at: usize| (at.to_string(), Content::Text(String::new()));
    let of = |files: usize| gathered((0..files).map(empty));
    let large = gathered([("a".to_owned(), Content::Text("{,[".repeat(MAX_LOGGED_BYTES / 4)))]);
    for (name, sent, is_read) in
        [("few", of(1000), true), ("many", of(30_000), false), ("large", large, true)]
    {
        let sealed = sent.seal(pair.public()).unwrap();
        assert_eq!(sealed.gathered(&keys, "job-a-1").map(drop), outcome(is_read), "{name}");
    }
    assert!(Error::TooHeavy.to_string().contains("more than 16 MiB of memory"));
}

#[test]
fn a_message_is_within_any_limit_that_has_room_for_where_the_report_is() {
    let (pair, _) = keys();
    for bytes in (0..50).chain(2990..3010).chain([600, 2_000_000]) {
        let plain = vec![b'x'; bytes];
        let sealed = Sealed::seal(pair.public(), Purpose::Outputs, "a", &plain).unwrap();
        let whole = Message::Sealed(sealed.clone()).to_string().len();
        for limit in (106..150).chain([1000, 4093, 4094, 4095, 4096, 4097, usize::MAX]) {
            let message = Message::within(&sealed, limit);
            let taken = limit.min(MAX_MESSAGE_BYTES);
            assert_eq!(matches!(message, Message::Sealed(_)), whole <= taken, "{limit}, {bytes}");
            assert!(message.to_string().len() <= taken, "{limit}, {bytes}");
        }
    }
}

#[test]
fn of_so_many_containers_each_has_room_for_where_its_report_is() {
    let (key, digest) = ("0".repeat(16), "0".repeat(64));
    let largest = format!("MANCIPLE1 logged {key} {digest} {MAX_LOGGED_BYTES}");
    assert!(matches!(Message::parse(&largest), Ok(Message::Logged(_))));
    for (name, containers, has_room) in
        [("as many as may be", MAX_CONTAINERS, true), ("one more", MAX_CONTAINERS + 1, false)]
    {
        let share = POD_MESSAGES_BYTES / containers;
        assert_eq!(largest.len() <= share, has_room, "{name}: {share}");
    }
}

#[test]
fn no_more_is_left_out_of_a_report_than_must_be() {
    let (pair, keys) = keys();
    let most = MAX_LOGGED_BYTES;
    // What takes most in JSON goes first, and not what is longest: each zero takes six bytes.
    let cases = [
        ("fits", vec!["x".repeat(most - 200), "y".to_owned()], vec![]),
        ("does not", vec!["x".repeat(most), "y".repeat(1000)], vec![0]),
        ("comes last", vec!["y".repeat(1000), "x".repeat(most)], vec![1]),
        ("the largest", vec!["x".repeat(most / 2), "y".repeat(most / 2 + 1)], vec![1]),
        ("both", vec!["x".repeat(most), "y".repeat(most + 1), "z".to_owned()], vec![0, 1]),
        ("in JSON", vec!["\0".repeat(most / 6), "y".repeat(most / 5)], vec![0]),
    ];
    for (case, texts, out) in cases {
        let text = |(at, text): (usize, &String)| (at.to_string(), Content::Text(text.clone()));
        let sent = gathered(texts.iter().enumerate().map(text));
        let sealed = sent.seal(pair.public()).unwrap();
        assert!(sealed.len() <= most, "{case}");
        assert_eq!(sealed.gathered(&keys, "job-a-1").unwrap(), sent, "{case}");
        for (at, text) in texts.into_iter().enumerate() {
            let expected = match out.contains(&at) {
                true => Content::TooLarge(text.len() as u64),
                false => Content::Text(text),
            };
            assert_eq!(sent.outputs["app"][&at.to_string()], expected, "{case}, {at}");
        }
    }
}

#[test]
fn of_many_large_files_no_more_is_held_than_a_log_holds() {
    const MIB: usize = 1024 * 1024;
    let (pair, keys) = keys();
    let names: Vec<String> = (0..100).map(|at| format!("{at:02}")).collect();
    // Each is a little smaller than the one before, and takes its place.
    let text = |name: &str| "x".repeat(MIB - name.parse::<usize>().unwrap());
    let found = names.iter().map(|name| ("app", name.as_str(), Content::Text(text(name))));
    let sent = Gathered::of("job-a-1", found);
    let kept = |content: &&Content| matches!(content, Content::Text(_));
    let kept: Vec<_> = sent.outputs["app"].iter().filter(|(_, content)| kept(content)).collect();
    assert!(kept.iter().map(|(name, _)| name.as_str()).eq(["96", "97", "98", "99"]), "{kept:?}");
    assert_eq!(sent.outputs["app"].len(), 100);
    assert_eq!(sent.seal(pair.public()).unwrap().gathered(&keys, "job-a-1"), Ok(sent));
}

#[test]
fn a_gathering_survives_its_variable_in_which_kubernetes_expands_nothing() {
    let files = vec!["$(HOME)/$$.json".to_owned()];
    let outputs = Outputs { directory: "/mnt/$dir".into(), files, stdout: None };
    let outputs = BTreeMap::from([("app".to_owned(), outputs)]);
    let gathering = Gathering::new("job-$a-1", outputs, KeyPair::generate().public().clone());
    let variable = gathering.to_variable().unwrap();
    assert!(!variable.contains('$'), "{variable}");
    assert_eq!(serde_json::from_str::<Gathering>(&variable).unwrap(), gathering);
    let mut least: serde_json::Value = serde_json::from_str(&variable).unwrap();
    for default in ["message", "message_limit", "file_limit"] {
        assert!(least.as_object_mut().unwrap().remove(default).is_some());
    }
    let read: Gathering = serde_json::from_value(least).unwrap();
    assert_eq!(read.message, Path::new("/dev/termination-log"));
    assert_eq!((read.message_limit, read.file_limit), (4096, 1024 * 1024));
}

#[test]
fn a_name_stands_for_a_path_within_the_directory_or_for_none() {
    for (name, path) in [
        ("output.json", Some("output.json")),
        ("sub/output.json", Some("sub/output.json")),
        ("./output.json", Some("output.json")),
        ("/output.json", Some("output.json")),
        ("//./sub/.//output.json", Some("sub/output.json")),
        (".output.json", Some(".output.json")),
        ("...", Some("...")),
        ("", None),
        ("/", None),
        ("./", None),
        ("..", None),
        ("../output.json", None),
        ("/../output.json", None),
        ("sub/../output.json", None),
        ("sub/..", None),
    ] {
        assert_eq!(Outputs::path_within(name).as_deref(), path.map(Path::new), "{name:?}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_reading_panic(text in "\\PC{0,200}", words in "[ A-Za-z0-9+/=#-]{0,120}") {
        let keys = KeySet::default();
        for text in [text.clone(), format!("MANCIPLE1 {words}"), format!("MANCIPLE1 sealed {words}"),
                     format!("MANCIPLE1 logged {words}")] {
            if let Ok(Message::Sealed(sealed)) = Message::parse(&text) {
                prop_assert!(sealed.report(&keys, "a").is_err());
            }
        }
        for line in [text, format!("#MANCIPLE1 {words}"), format!("#MANCIPLE1 report {words}")] {
            let _ = Line::parse(&line);
            prop_assert!(Line::parse(&escape(&line)).is_none());
        }
    }

    #[test]
    fn nothing_but_what_was_sealed_opens(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (pair, keys) = keys();
        let id = pair.public().id();
        bytes.truncate(bytes.len() / 3 * 3);
        let text = format!("MANCIPLE1 sealed {id} {}", data_encoding::BASE64.encode(&bytes));
        if let Ok(Message::Sealed(sealed)) = Message::parse(&text) {
            prop_assert_eq!(sealed.report(&keys, "a"), Err(Error::NotOpened));
        }
    }
}
