//! What people are told of what a broker said: no secret, not even half of one.

use serde_json::json;

use super::*;
use crate::redact::{MASK, Secrets};

const SECRET: &str = "hunter22-of-the-vault";

fn redactor() -> Redactor {
    let mut secrets = Secrets::default();
    secrets.add(SECRET.as_bytes());
    secrets.add(b"first\nsecond line");
    Redactor::new(&secrets)
}

/// Everything that is said in one place or another.
fn told(text: &str) -> Vec<String> {
    let redacted = |case: Case| Case { redactor: redactor(), ..case };
    let report = |member: &str| json!({member: text});
    let failed = |case: Case| redacted(case).read().unwrap_err().failure.description;
    let log: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let done = redacted(Case::of(Action::Provision, report("description")).with(V2)).good();
    let labels = json!({"metadata": {"labels": {text: 5}}});
    vec![
        failed(Case::of(Action::Bind, report("description")).exit(1).with(V2)),
        failed(Case::of(Action::Bind, report("error")).exit(13).with(V2)),
        failed(Case { log, ..Case::of(Action::Bind, "").exit(1) }),
        failed(Case::of(Action::Provision, labels)),
        failed(poll(json!({"state": "failed", "description": text}))),
        done.description.unwrap(),
        progress(&json!({"description": text}).to_string(), &redactor()).unwrap(),
    ]
}

#[test]
fn a_secret_that_a_limit_cuts_in_two_leaves_no_half() {
    for limit in [500, 1000, 4000] {
        for into in 1..SECRET.len() {
            let filler = "x".repeat(limit - into);
            let beside = [format!("{filler}{SECRET}{filler}"), format!("{SECRET}{filler}")];
            for said in beside.iter().flat_map(|text| told(text)) {
                assert!(said.len() < 4200, "{}", said.len());
                for half in ["hunter22", "vault", "-of-the-"] {
                    assert!(!said.contains(half), "{limit}, {into}: {half} in {said}");
                }
            }
        }
    }
}

#[test]
fn a_control_character_does_not_hide_a_secret() {
    for text in [
        "hunter22\u{7}-of-the-vault",
        "hunter22-of\u{1b}\u{0}-the-vault",
        "first\u{7}\nsecond line",
    ] {
        for said in told(&format!("it is {text}.")) {
            let shown = said.replace(char::REPLACEMENT_CHARACTER, "");
            let hidden = said == shown && !said.contains(SECRET) && !said.contains("second line");
            assert!(hidden || said != shown, "{said}");
            assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        }
    }
    let said = told("a\u{7}b\r\nc").remove(0);
    assert_eq!(said, "a\u{fffd}b\nc", "what was apart stays apart, and lines end as lines do");
}

#[test]
fn what_is_read_with_space_around_it_is_redacted_as_what_is_not() {
    // Form feed is a space to some, and no JSON.
    let stdout = format!("\u{c}{}", json!({"description": SECRET}));
    let case = Case { redactor: redactor(), ..Case::of(Action::Bind, &stdout).with(V2) };
    assert_eq!(case.good().description.as_deref(), Some(MASK));
    assert_eq!(case.exit(1).fails(Reason::Reported).description, MASK);
}

#[test]
fn nothing_that_can_be_seen_is_nothing_said() {
    let report = json!({"description": "\u{7}", "error": " \u{0}\n"});
    let case = Case::of(Action::Bind, &report).with(V2);
    assert_eq!(case.good().description, None);
    case.exit(4).fails_saying(Reason::ExitStatus, "status 4");
    assert_eq!(progress("\u{7}\u{1b}", &Redactor::default()), None);
}

#[test]
fn a_name_of_external_work_can_be_an_argument() {
    let started = json!({"async": true, "operation": "a\u{0}b"});
    let case = Case::of(Action::Bind, started).with(V2);
    case.fails_saying(Reason::WrongShape, "none of them a control character");
}
