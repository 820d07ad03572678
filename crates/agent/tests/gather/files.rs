//! What is found of files, whatever is in their place.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use agent::{Content, Gathering, Outputs};

use crate::harness::{Ended, Pod, signal, text, wait_until_it_waits};
use rustix::process::Signal;

const PLANTED: &str = "planted-value-9kQ";

/// Gathers beside, where anything else there is belongs to the agent's own container.
fn gather(pod: &Pod, gathering: &Gathering) -> Ended {
    let mut agent = pod.agent(gathering, &["gather"]).spawn().unwrap();
    wait_until_it_waits(&agent);
    signal(&agent, Signal::TERM);
    pod.ended(&mut agent)
}

fn why(content: &Content) -> &str {
    let Content::Unreadable(why) = content else { panic!("{content:?}") };
    why
}

#[test]
fn files_are_gathered_as_they_are() {
    let pod = Pod::new();
    let ended = pod.wrap(
        &["a.json", "empty", "sub/b.json"],
        r#"printf '{"a": "ä"}\n' >a.json; : >empty; mkdir sub; echo b >sub/b.json; echo >not-asked-for"#,
    );
    assert_eq!(ended.code, Some(0));
    let report = ended.report();
    assert_eq!(report.run, crate::harness::RUN);
    assert_eq!(report.outputs.len(), 1);
    let files = &report.outputs["app"];
    assert_eq!(files.len(), 3);
    assert_eq!(files["a.json"], text("{\"a\": \"ä\"}\n"));
    assert_eq!(files["empty"], text(""));
    assert_eq!(files["sub/b.json"], text("b\n"));
}

#[test]
fn each_container_has_its_own_directory() {
    let pod = Pod::new();
    fs::create_dir(pod.path("other")).unwrap();
    fs::write(pod.path("out/output.json"), "of app").unwrap();
    fs::write(pod.path("other/output.json"), "of other").unwrap();
    let mut gathering = pod.gathering(&["output.json"]);
    let files = vec!["output.json".to_owned()];
    let nowhere = Outputs { directory: pod.path("nowhere"), files: files.clone(), stdout: None };
    let no_directory =
        Outputs { directory: pod.path("message"), files: files.clone(), stdout: None };
    let other = Outputs { directory: pod.path("other"), files, stdout: None };
    gathering.outputs.insert("other".to_owned(), other);
    gathering.outputs.insert("nowhere".to_owned(), nowhere);
    gathering.outputs.insert("no-directory".to_owned(), no_directory);
    let report = gather(&pod, &gathering).report();
    assert_eq!(report.outputs["app"]["output.json"], text("of app"));
    assert_eq!(report.outputs["other"]["output.json"], text("of other"));
    assert_eq!(report.outputs["nowhere"]["output.json"], Content::Missing);
    assert!(why(&report.outputs["no-directory"]["output.json"]).contains("directory"));
}

#[test]
fn a_report_is_left_even_if_all_is_missing() {
    let pod = Pod::new();
    let ended = pod.wrap(&["a", "sub/b"], "exit 3");
    assert_eq!(ended.code, Some(3));
    assert_eq!(ended.content("a"), Content::Missing);
    assert_eq!(ended.content("sub/b"), Content::Missing);
    let ended = gather(&pod, &pod.gathering(&["a"]));
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.content("a"), Content::Missing);
}

#[test]
fn a_file_over_the_limit_is_too_large_and_one_at_it_is_not() {
    let pod = Pod::new();
    fs::write(pod.path("out/at"), "x".repeat(1000)).unwrap();
    fs::write(pod.path("out/over"), "x".repeat(1001)).unwrap();
    let huge = fs::File::create(pod.path("out/huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let gathering = Gathering { file_limit: 1000, ..pod.gathering(&["at", "over", "huge"]) };
    let ended = gather(&pod, &gathering);
    assert_eq!(ended.content("at"), text(&"x".repeat(1000)));
    assert_eq!(ended.content("over"), Content::TooLarge(1001));
    assert_eq!(ended.content("huge"), Content::TooLarge(1 << 40));
}

#[test]
fn the_limit_is_a_mebibyte_if_nobody_says_otherwise() {
    let pod = Pod::new();
    fs::write(pod.path("out/at"), "x".repeat(1024 * 1024)).unwrap();
    fs::write(pod.path("out/over"), "x".repeat(1024 * 1024 + 1)).unwrap();
    let ended = gather(&pod, &pod.gathering(&["at", "over"]));
    assert_eq!(ended.content("at"), text(&"x".repeat(1024 * 1024)));
    assert_eq!(ended.content("over"), Content::TooLarge(1024 * 1024 + 1));
}

#[test]
fn what_is_not_utf8_is_not_text() {
    let pod = Pod::new();
    fs::write(pod.path("out/a"), b"\"\xff\"").unwrap();
    assert_eq!(gather(&pod, &pod.gathering(&["a"])).content("a"), Content::NotText);
}

#[test]
fn what_is_no_file_is_unreadable_and_waited_for_by_nobody() {
    let pod = Pod::new();
    let ended = pod.wrap(&["fifo", "directory", "a/b"], "mkfifo fifo; mkdir directory; echo >a");
    for name in ["fifo", "directory"] {
        assert_eq!(why(&ended.content(name)), "it is no regular file", "{name}");
    }
    assert!(why(&ended.content("a/b")).contains("cannot be opened"));
    let _listens = UnixListener::bind(pod.path("out/socket")).unwrap();
    let ended = gather(&pod, &pod.gathering(&["socket"]));
    assert_eq!(why(&ended.content("socket")), "it is no regular file");
}

#[test]
fn a_link_out_of_the_directory_is_not_followed() {
    let pod = Pod::new();
    fs::create_dir(pod.path("own")).unwrap();
    fs::write(pod.path("own/token"), PLANTED).unwrap();
    let links = [
        ("absolute", pod.path("own/token")),
        ("relative", "../own/token".into()),
        ("directory", "../own".into()),
        ("process", "/proc/self/environ".into()),
    ];
    for (name, target) in links {
        symlink(target, pod.path("out").join(name)).unwrap();
    }
    let names = ["absolute", "relative", "directory", "directory/token", "process"];
    let ended = gather(&pod, &pod.gathering(&names));
    for name in names {
        assert!(why(&ended.content(name)).contains("a link that is not followed"), "{name}");
    }
}

#[test]
fn a_link_within_the_directory_is_followed() {
    let pod = Pod::new();
    fs::write(pod.path("out/output-2.json"), "second").unwrap();
    symlink("output-2.json", pod.path("out/output.json")).unwrap();
    symlink("nothing", pod.path("out/dangling")).unwrap();
    let ended = gather(&pod, &pod.gathering(&["output.json", "dangling"]));
    assert_eq!(ended.content("output.json"), text("second"));
    assert_eq!(ended.content("dangling"), Content::Missing);
}

#[test]
fn a_name_that_leads_out_of_the_directory_is_refused() {
    let pod = Pod::new();
    fs::write(pod.path("token"), PLANTED).unwrap();
    fs::create_dir(pod.path("out/sub")).unwrap();
    fs::write(pod.path("out/a"), PLANTED).unwrap();
    let names = ["", "/", ".", "..", "../token", "/../token", "sub/../../token", "sub/../a"];
    let ended = gather(&pod, &pod.gathering(&names));
    for name in names {
        assert!(why(&ended.content(name)).contains("no path within the directory"), "{name}");
    }
}

/// The original joined both, and cleaned what came of it.
#[test]
fn a_name_is_looked_for_within_the_directory_however_it_begins() {
    let pod = Pod::new();
    fs::write(pod.path("token"), PLANTED).unwrap();
    fs::create_dir(pod.path("out/sub")).unwrap();
    fs::write(pod.path("out/sub/a"), "a").unwrap();
    let names = ["sub/a", "./sub/a", "/sub/a", "//sub/./a"];
    let elsewhere = pod.path("token");
    let elsewhere = elsewhere.to_str().unwrap();
    let ended = gather(&pod, &pod.gathering(&[&names[..], &[elsewhere]].concat()));
    for name in names {
        assert_eq!(ended.content(name), text("a"), "{name}");
    }
    assert_eq!(ended.content(elsewhere), Content::Missing);
}

#[test]
fn what_is_written_in_pieces_or_renamed_into_place_is_whole() {
    let pod = Pod::new();
    let ended = pod.wrap(
        &["pieces", "renamed"],
        r#"echo earlier >renamed
           for i in 1 2 3; do printf "$i" >>pieces; sleep 0.05; done
           echo later >renamed.new; mv renamed.new renamed"#,
    );
    assert_eq!(ended.content("pieces"), text("123"));
    assert_eq!(ended.content("renamed"), text("later\n"));
}

#[test]
fn no_content_is_seen_by_others() {
    let small = format!("echo {PLANTED} >a");
    let large = format!("i=0; while [ $i -lt 2000 ]; do echo {PLANTED}; i=$((i+1)); done >a");
    let refused = format!("printf '\\377{PLANTED}' >a");
    for script in [small, large, refused] {
        let pod = Pod::new();
        let ended = pod.wrap(&["a"], &script);
        for (place, shown) in [
            ("message", &ended.message),
            ("stdout", &ended.stdout),
            ("stderr", &ended.stderr),
            ("Debug", &format!("{:?}", ended.report())),
        ] {
            assert!(!shown.contains(PLANTED), "{place}: {shown}");
            for shift in 0..3 {
                let encoded = data_encoding::BASE64.encode(&PLANTED.as_bytes()[shift..]);
                assert!(!shown.contains(&encoded[..16]), "{place}: {shown}");
            }
        }
        let found = ended.content("a");
        let expected = matches!(&found, Content::Text(text) if text.contains(PLANTED));
        assert!(expected || found == Content::NotText, "{found:?}");
    }
}
