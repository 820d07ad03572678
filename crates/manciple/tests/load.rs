//! More at once than the server takes: each request has an answer, what was accepted reaches its
//! end, and memory stays bounded.

mod support;

use std::collections::BTreeMap;

use support::{Site, http, order, within};

const REQUESTS: usize = 1000;
const MOST_IN_PROGRESS: usize = 200;
/// One operation for each thread may be between its record and its task.
const THREADS: usize = 64;
/// In a debug build.
const MOST_RESIDENT_KIB: u64 = 60 * 1024;

const BROKER: &str = r#"#!/bin/sh
[ "$1" = catalog ] || { sleep 0.05; echo '{}'; exit; }
echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}'
"#;

fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_thousand_provisions_at_once_are_each_answered_and_every_202_reaches_its_end() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\nlog: {level: \"warn,manciple=info\"}\n\
                     operations: {max_in_progress: MOST, max_runs: 4}\n"
        .replace("MOST", &MOST_IN_PROGRESS.to_string());
    let server = site.serve();
    order::ready(&server);
    let together = std::sync::Barrier::new(REQUESTS);
    let answers: Vec<(String, http::Answer)> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let (together, server) = (&together, &server);
            std::thread::Builder::new()
                .stack_size(128 * 1024)
                .spawn_scoped(scope, move || {
                    let name = format!("i{number}");
                    together.wait();
                    let answer = order::provision(server, &name, &order::body("p"));
                    (name, answer)
                })
                .unwrap()
        };
        let asked: Vec<_> = (0..REQUESTS).map(ask).collect();
        asked.into_iter().map(|thread| thread.join().expect("a lost reply")).collect()
    });
    let page = http::get(&server.address, "/admin/v1/instances?state=busy&limit=500").unwrap();
    let in_progress = page.body["items"].as_array().unwrap().len();
    assert!(in_progress <= MOST_IN_PROGRESS + THREADS, "{in_progress} are in progress");
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    for (name, answer) in &answers {
        *statuses.entry(answer.status).or_default() += 1;
        let known = match answer.status {
            202 => answer.body["operation"].is_string(),
            429 => answer.head.to_lowercase().contains("retry-after:"),
            _ => false,
        };
        assert!(known, "{name}: {answer:?}");
    }
    assert!(statuses[&202] >= MOST_IN_PROGRESS, "{statuses:?}");
    assert!(statuses.contains_key(&429), "nothing was held back: {statuses:?}");

    let busy = || {
        let page = http::get(&server.address, "/admin/v1/instances?state=busy&limit=1")?;
        page.body["items"].as_array()?.is_empty().then_some(())
    };
    assert!(within(120, busy).is_some(), "stuck:\n{}", server.log());
    for (name, answer) in &answers {
        let last = order::last_operation(&server, name);
        match answer.status {
            202 => assert_eq!(last["state"], "succeeded", "{name}: {last}"),
            _ => assert!(last.get("state").is_none(), "{name} was refused and is recorded: {last}"),
        }
    }
    let peak = peak_kib(server.id());
    println!("answers: {statuses:?}; peak resident: {peak} KiB");
    assert!(peak < MOST_RESIDENT_KIB, "{peak} KiB");
}
