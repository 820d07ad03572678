use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::client::double::{Answer, Double, Seen};
use crate::client::{Auth, ClientSettings};

mod broker;
mod faults;
mod spoil;

use broker::Broker;
use spoil::{Spoil, answers, sees};

/// Which good broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AtOnce,
    Later,
}

struct Ran {
    report: Report,
    lines: Vec<(Method, String)>,
    /// How many instances and bindings the broker has in the end.
    left: usize,
}

fn object(value: &Value) -> Option<Sensitive<Object>> {
    value.as_object().cloned().map(Sensitive::new)
}

fn options() -> Options {
    Options {
        parameters: object(&json!({"size": 1, "password": "hunter2"})),
        invalid_parameters: object(&json!({"size": "hunter2"})),
        failing_update_parameters: object(&json!({"fail": true, "password": "hunter2"})),
        binding_parameters: object(&json!({"secret": "hunter2"})),
        allow_mutation: true,
        polling: Polling {
            first_interval: Duration::from_millis(1),
            max_interval: Duration::from_millis(1),
            deadline: Duration::from_secs(10),
            ..Polling::default()
        },
        ..Options::default()
    }
}

async fn ran(mode: Mode, options: Options, spoil: Spoil) -> Ran {
    let broker = Arc::new(Mutex::new(Broker::new(mode == Mode::Later)));
    let state = broker.clone();
    let double = Double::start(move |seen: &Seen| {
        let mut seen = seen.clone();
        if let Spoil::Seen(change) = &spoil {
            change(&mut seen);
        }
        let mut answer = state.lock().unwrap().answer(&seen);
        if let Spoil::Answer(change) = &spoil {
            change(&seen, &mut answer);
        }
        answer
    })
    .await;
    let settings = ClientSettings {
        auth: Auth::Basic { user: "u".to_owned(), password: "p".to_owned().into() },
        timeout: Duration::from_secs(10),
        ..ClientSettings::new(double.url())
    };
    let report = run(&Client::new(settings).unwrap(), options).await;
    let lines = double.seen().iter().map(|seen| (seen.method.clone(), seen.path.clone())).collect();
    let left = broker.lock().unwrap().things.len();
    Ran { report, lines, left }
}

fn of_plan(service: &str, plan: &str) -> Options {
    Options { service: Some(service.to_owned()), plan: Some(plan.to_owned()), ..options() }
}

#[tokio::test]
async fn a_good_broker_passes_every_check_that_it_gives_occasion_for() {
    let runs = [
        (Mode::AtOnce, options()),
        (Mode::Later, options()),
        (Mode::Later, of_plan("first", "large")),
        (Mode::AtOnce, of_plan("s2", "p3")),
        (Mode::Later, Options { update_plan: Some("next".to_owned()), ..of_plan("s2", "p3") }),
        (Mode::AtOnce, Options { update_plan: Some("medium".to_owned()), ..options() }),
        (Mode::Later, Options { update_plan: Some("medium".to_owned()), ..options() }),
    ];
    let mut passed = BTreeSet::new();
    for (mode, options) in runs {
        let (service, plan) = (options.service.clone(), options.plan.clone());
        let Ran { report, left, .. } = ran(mode, options, Spoil::Nothing).await;
        let failures: Vec<_> = report.failures().collect();
        assert!(failures.is_empty(), "{mode:?} {service:?} {plan:?}: {failures:#?}");
        assert!(report.conforms(Level::Recommended), "{report}");
        assert_eq!((left, report.leftovers.len()), (0, 0), "{mode:?} {service:?} {plan:?}");
        let passes = report.results.iter().filter(|result| result.verdict == Verdict::Pass);
        passed.extend(passes.map(|result| result.check.id));
    }
    let never: Vec<_> =
        CHECKS.iter().map(|check| check.id).filter(|id| !passed.contains(id)).collect();
    assert!(never.is_empty(), "no good broker passes {never:?}");
}

#[tokio::test]
async fn nothing_is_made_where_it_is_not_allowed() {
    let options = Options { allow_mutation: false, ..options() };
    let Ran { report, lines, .. } = ran(Mode::Later, options, Spoil::Nothing).await;
    assert!(lines.iter().all(|(method, _)| *method == Method::GET), "{lines:?}");
    assert!(report.conforms(Level::Recommended), "{report}");
    assert_eq!(report.verdict("catalog"), Some(&Verdict::Pass));
    let why = Verdict::Skip("instances may not be made".to_owned());
    assert_eq!(report.verdict("provision"), Some(&why));
}

#[tokio::test]
async fn a_broker_without_authentication_is_not_asked_for_it() {
    let double = Double::start(|seen: &Seen| {
        let mut seen = seen.clone();
        seen.headers.insert("authorization", "Basic dTpw".parse().unwrap());
        Broker::new(false).answer(&seen)
    })
    .await;
    let client = Client::new(ClientSettings::new(double.url())).unwrap();
    let report = run(&client, Options::default()).await;
    assert!(matches!(report.verdict("auth-required"), Some(Verdict::Skip(_))));
    assert!(report.conforms(Level::Recommended), "{report}");
}

#[tokio::test]
async fn a_suite_that_cannot_go_on_says_so_and_does_not_conform() {
    let unknown = Options { plan: Some("huge".to_owned()), ..options() };
    let no_catalog = answers(|seen, answer| {
        if seen.path.ends_with("catalog") {
            answer.status = 500;
        }
    });
    let no_instance = answers(|seen, answer| {
        if seen.method == Method::PUT && answer.status < 300 {
            *answer = Answer::json(422, &json!({"description": "no room"}));
        }
    });
    let cases = [
        (unknown, Spoil::Nothing, "there is no plan \"huge\""),
        (options(), no_catalog, "there is no catalog to order from"),
        (
            options(),
            no_instance,
            "no instance could be provisioned: PUT instance was answered 422 no room; expected 201 or 202",
        ),
    ];
    for (options, spoil, why) in cases {
        let Ran { report, .. } = ran(Mode::AtOnce, options, spoil).await;
        assert_eq!(report.blocked.as_deref(), Some(why));
        assert!(!report.conforms(Level::Must));
        assert!(report.to_string().contains(why));
        assert_eq!(report.verdict("unbind"), Some(&Verdict::Skip(why.to_owned())));
    }
}

#[tokio::test]
async fn a_broker_that_accepts_too_much_is_cleaned_up_behind() {
    // Whatever is missing is made up: every request that should be refused makes something.
    let credulous = |seen: &mut Seen| {
        if seen.method == Method::PUT {
            let mut body = seen.json();
            if !body.is_object() {
                body = json!({});
            }
            for (name, value) in
                [("service_id", "s1"), ("organization_guid", "o"), ("space_guid", "s")]
            {
                body[name] = json!(value);
            }
            body["plan_id"] = json!("p1");
            body.as_object_mut().unwrap().retain(|name, _| name.ends_with("d"));
            seen.body = body.to_string().into();
        }
    };
    for mode in [Mode::AtOnce, Mode::Later] {
        let Ran { report, left, .. } = ran(mode, options(), sees(credulous)).await;
        assert!(matches!(report.verdict("provision-members"), Some(Verdict::Fail(_))), "{report}");
        assert_eq!((left, report.leftovers.len()), (0, 0), "{mode:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_deleted_is_told() {
    let sticky = answers(|seen, answer| {
        if seen.method == Method::DELETE && answer.status != 410 {
            *answer = Answer::raw(500, "");
        }
    });
    let Ran { report, .. } = ran(Mode::Later, options(), sticky).await;
    assert!(!report.leftovers.is_empty());
    assert!(report.leftovers.iter().all(|left| left.starts_with("conformance-")));
    assert!(report.to_string().contains("left behind: conformance-"));
}

/// Everything that comes would wait for it as long again.
#[tokio::test]
async fn a_broker_that_answers_no_more_ends_the_suite() {
    let told = Polling { silence: Duration::from_millis(300), ..options().polling };
    let hurried = Polling { deadline: Duration::from_millis(300), ..options().polling };
    for polling in [told, hurried] {
        let dead = answers(|seen, answer| {
            let is_asked = seen.path.ends_with("/last_operation");
            // All ids are made up but those of an instance that is on the way to be made.
            if is_asked && answer.status == 200 {
                *answer = Answer::hang_up();
            }
        });
        let Ran { report, .. } = ran(Mode::Later, Options { polling, ..options() }, dead).await;
        let why = report.blocked.clone().unwrap();
        assert!(why.starts_with("no answer for "), "{why}");
        assert!(why.contains(" s: GET instance's last_operation"), "{why}");
        assert!(report.is_silent && !report.conforms(Level::Must));
        assert_eq!(report.verdict("unbind"), Some(&Verdict::Skip(why)));
    }
}

#[tokio::test]
async fn a_report_shows_no_secret() {
    let spoils = [
        Spoil::Nothing,
        answers(|seen, answer| {
            if seen.path.contains("service_bindings") && seen.method == Method::GET {
                answer.body = r#"{"credentials": {"password": "hunter2", "more": 1}}"#.into();
            }
        }),
        answers(|_, answer| answer.body = r#"{"error": 1, "secret": "hunter2"}"#.into()),
    ];
    for spoil in spoils {
        let Ran { report, .. } = ran(Mode::AtOnce, options(), spoil).await;
        let shown = format!("{report} {report:?} {:?}", options());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn checks_have_names_of_their_own_in_the_order_of_the_list() {
    let names: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(names.len(), CHECKS.len());
    assert!(CHECKS.is_sorted_by_key(|check| check.item));
}

#[test]
fn a_report_is_read_line_by_line() {
    let result = |index: usize, verdict| CheckResult { check: &CHECKS[index], verdict };
    let report = Report {
        results: vec![
            result(0, Verdict::Skip("why not".to_owned())),
            result(3, Verdict::Pass),
            result(7, Verdict::Fail("it did not".to_owned())),
        ],
        blocked: None,
        is_silent: false,
        leftovers: vec!["i: stuck".to_owned()],
    };
    let expected = "\
skip  1 recommended version-unsupported: a version that is not spoken is refused with 412
        why not
pass  2 must        auth-required: no credentials are refused with 401 on every route
FAIL  3 should      identity-echo: the request identity comes back
        it did not
left behind: i: stuck
1 passed, 1 failed, 1 skipped";
    assert_eq!(report.to_string(), expected);
    assert!(report.conforms(Level::Must), "a SHOULD is no MUST");
    assert!(!report.conforms(Level::Should));
}

/// Only what stands in the documentation of the module is compiled.
#[test]
fn the_program_that_authors_are_shown_is_the_one_that_is_compiled() {
    let page = include_str!("../../../../docs/sdk.md");
    let compiled = include_str!("mod.rs").lines().skip_while(|line| *line != "//! ```no_run");
    let compiled = compiled.skip(1).take_while(|line| *line != "//! ```");
    let compiled = compiled.map(|line| line.strip_prefix("//! ").unwrap_or_default());
    let compiled = compiled.collect::<Vec<_>>().join("\n");
    assert!(compiled.contains("conformance::run("), "{compiled}");
    assert!(page.contains(&format!("```rust\n{compiled}\n```\n")), "not in the page:\n{compiled}");
}

/// Whatever it is that is made just then, and however busy the broker is with it.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_it_finds_nothing_of_it_at_the_broker() {
    for mode in [Mode::AtOnce, Mode::Later] {
        // So many orders come before it is stopped.
        for orders in [1, 2, 5, 9, 14] {
            let broker = Arc::new(Mutex::new(Broker::new(mode == Mode::Later)));
            let (state, busy) = (broker.clone(), Arc::new(Mutex::new((0, 0))));
            let stop = Arc::new(tokio::sync::Notify::new());
            let stops = stop.clone();
            let double = Double::start(move |seen: &Seen| {
                let (ordered, deleted) = {
                    let mut counts = busy.lock().unwrap();
                    counts.0 += i32::from(seen.method == Method::PUT);
                    counts.1 += i32::from(seen.method == Method::DELETE && counts.0 >= orders);
                    *counts
                };
                if ordered == orders && seen.method == Method::PUT {
                    stops.notify_one();
                    // It is made only after that: whoever does not wait for the answer removes nothing.
                    std::thread::sleep(Duration::from_millis(50));
                }
                if (1..3).contains(&deleted) && seen.method == Method::DELETE {
                    return Answer::json(422, &json!({"error": "ConcurrencyError"}));
                }
                state.lock().unwrap().answer(seen)
            })
            .await;
            let settings = ClientSettings {
                auth: Auth::Basic { user: "u".to_owned(), password: "p".to_owned().into() },
                timeout: Duration::from_secs(10),
                ..ClientSettings::new(double.url())
            };
            let client = Client::new(settings).unwrap();
            let report = run_until(&client, options(), stop.notified()).await;
            let left = broker.lock().unwrap().things.len();
            assert_eq!((left, &*report.leftovers), (0, &[][..]), "{mode:?} {orders}");
            assert_eq!(report.blocked.as_deref(), Some("it was stopped"), "{mode:?} {orders}");
            assert!(!report.conforms(Level::Must), "{mode:?} {orders}");
        }
    }
}
