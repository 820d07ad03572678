//! More at once than the server takes: each request has an answer, what was accepted reaches its
//! end, and memory stays bounded.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{Served, Site, http, order, slow, within};

const REQUESTS: usize = 1000;
const MOST_IN_PROGRESS: usize = 200;
/// One operation for each thread may be between its record and its task.
const THREADS: usize = 64;
/// In a debug build, with all of them in progress: some 30 KiB each, beside the 30 MiB that it has before.
const MOST_RESIDENT_KIB: u64 = 80 * 1024;

const BROKER: &str = r#"#!/bin/sh
[ "$1" = catalog ] || { sleep 0.05; echo '{}'; exit; }
echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}'
"#;

/// How a thousand at once were answered.
struct Rush {
    answers: Vec<(String, http::Answer)>,
    statuses: BTreeMap<u16, usize>,
}

/// Asks for a thousand instances at once. Each answer is a 202 with an operation, or a refusal that
/// says when to come again.
fn rush(server: &Served) -> Rush {
    let together = std::sync::Barrier::new(REQUESTS);
    let answers: Vec<(String, http::Answer)> = std::thread::scope(|scope| {
        let ask = |number: usize| {
            let together = &together;
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
    Rush { answers, statuses }
}

/// Waits for the end of all that was accepted, and finds it, and nothing else, recorded.
fn each_reaches_its_end(server: &Served, rush: &Rush) {
    let busy = || {
        let page = http::get(&server.address, "/admin/v1/instances?state=busy&limit=1")?;
        page.body["items"].as_array()?.is_empty().then_some(())
    };
    assert!(within(120, busy).is_some(), "stuck:\n{}", server.log());
    for (name, answer) in &rush.answers {
        let last = order::last_operation(server, name);
        match answer.status {
            202 => assert_eq!(last["state"], "succeeded", "{name}: {last}"),
            _ => assert!(last.get("state").is_none(), "{name} was refused and is recorded: {last}"),
        }
    }
    let peak = server.peak_kib();
    println!("answers: {:?}; peak resident: {peak} KiB", rush.statuses);
    assert!(peak < MOST_RESIDENT_KIB, "{peak} KiB");
}

fn settings(site: &mut Site, operations: &str) {
    site.settings = "auth: {disabled: true}\nlog: {level: \"warn,manciple=info\"}\n\
                     operations: {OPERATIONS}\n"
        .replace("OPERATIONS", operations);
}

#[test]
fn a_thousand_provisions_at_once_are_each_answered_and_every_202_reaches_its_end() {
    let mut site = Site::new(BROKER);
    settings(&mut site, &format!("max_in_progress: {MOST_IN_PROGRESS}, max_runs: 4"));
    let server = site.serve();
    order::ready(&server);
    let rush = rush(&server);
    let page = http::get(&server.address, "/admin/v1/instances?state=busy&limit=500").unwrap();
    let in_progress = page.body["items"].as_array().unwrap().len();
    assert!(in_progress <= MOST_IN_PROGRESS + THREADS, "{in_progress} are in progress");
    assert!(rush.statuses[&202] >= MOST_IN_PROGRESS, "{:?}", rush.statuses);
    assert!(rush.statuses.contains_key(&429), "nothing was held back: {:?}", rush.statuses);
    each_reaches_its_end(&server, &rush);
}

/// Each sync of the server takes this long, on a disk however quick.
const SLOW_SYNC: Duration = Duration::from_millis(300);

#[test]
fn on_a_slow_disk_a_thousand_provisions_wait_and_reads_do_not() {
    let mut site = Site::new(BROKER);
    // What its limits are when nobody sets them.
    settings(&mut site, "max_runs: 64");
    let shim = slow::shim(site.path());
    let mut command = site.command();
    command.env("LD_PRELOAD", shim).env("SLOW_SYNC_MS", SLOW_SYNC.as_millis().to_string());
    let server = Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}"));
    order::ready(&server);
    let begun = Instant::now();
    assert_eq!(order::provision(&server, "first", &order::body("p")).status, 202);
    assert!(begun.elapsed() >= SLOW_SYNC, "the disk is not slow: {:?}", begun.elapsed());

    let over = AtomicBool::new(false);
    let (rush, mut reads) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut reads = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let last = order::last_operation(&server, "first");
                assert!(last["state"].is_string(), "{last}");
                reads.push(begun.elapsed());
            }
            reads
        });
        let rush = rush(&server);
        over.store(true, Ordering::Relaxed);
        (rush, reading.join().unwrap())
    });
    reads.sort_unstable();
    let half = reads[reads.len() / 2];
    let most = reads[reads.len() * 9 / 10];
    println!("{} reads beside it, half within {half:?}, nine of ten within {most:?}", reads.len());
    assert!(half < SLOW_SYNC / 2, "reads wait for the disk: {half:?}");
    assert!(most < SLOW_SYNC, "one read in ten waits for the disk: {most:?}");
    each_reaches_its_end(&server, &rush);
}
