//! `kill -9` at random moments, while records are written and keys are changed.
//!
//! A child process (this test binary again) works on the store and says on a pipe what was
//! acknowledged; the parent kills it, opens the store and compares. `MANCIPLE_CRASH_ROUNDS` sets how
//! often (20), `MANCIPLE_CRASH_SEED` when.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

const CHILD: &str = "MANCIPLE_CRASH_CHILD";
const KEYS: u64 = 24;
/// Every so many operations on a record, it is removed.
const REMOVAL: u64 = 5;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// What is known of a record: the number of its last operation, and its version if it exists.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    operation: u64,
    version: Option<u64>,
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let home = Home::new();
    let rounds = number("MANCIPLE_CRASH_ROUNDS", 20);
    let mut random = number("MANCIPLE_CRASH_SEED", 1);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let mut acknowledged = 0;
    let mut rotations = 0;
    for round in 1..=rounds {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let lines = run_and_kill(&home, round, Duration::from_millis((random >> 33) % 400));
        let mut acks: BTreeMap<u64, Known> = BTreeMap::new();
        for line in &lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["ack", record, operation, version] = words[..] {
                let known =
                    Known { operation: operation.parse().unwrap(), version: version.parse().ok() };
                acks.insert(record.parse().unwrap(), known);
                acknowledged += 1;
            }
        }

        let store = open(home.dir.path(), round);
        rotations += u64::from(store.rotation().retiring_keys > 0);
        let mut highest = 0;
        for record in 0..KEYS {
            let last = acks.get(&record).or(known.get(&record)).cloned();
            let found = observe(&store, record).await;
            assert!(
                explains(round, acks.contains_key(&record), last.as_ref(), &found),
                "round {round}, record {record}: acknowledged {last:?}, found {found:?}"
            );
            highest = highest.max(acks.get(&record).and_then(|ack| ack.version).unwrap_or(0));
            highest = highest.max(found.version.unwrap_or(0));
            known.insert(record, found);
        }
        let version = put(&store, sample(&format!("round-{round}"))).await;
        assert!(version.0.parse::<u64>().unwrap() > highest, "{version:?} after {highest}");
        let report = store.verify().await.unwrap();
        assert!(report.is_good(), "round {round}: {report:?}");
    }
    println!("{rounds} kills, {acknowledged} acknowledged, {rotations} rotations interrupted");
    assert!(acknowledged > rounds, "the child hardly worked");
    // The key before the last one opens nothing.
    let former = Options::new(home.store(), home.key(key_of(rounds + 1)));
    assert!(matches!(EmbeddedStore::open(&former), Err(OpenError::WrongKey { .. })));
}

/// Whether what is found can follow from what was acknowledged last: just that, or the one operation
/// that was in progress after it.
fn explains(round: u64, acked_now: bool, last: Option<&Known>, found: &Known) -> bool {
    let next = if acked_now { last.map_or(0, |last| last.operation) + 1 } else { first_of(round) };
    match (last, found.version) {
        (Some(last), _) if last == found => true,
        (None, None) => true,
        (Some(last), None) => last.version.is_none() || next.is_multiple_of(REMOVAL),
        (_, Some(_)) => found.operation == next,
    }
}

async fn observe(store: &EmbeddedStore, record: u64) -> Known {
    let stored = store.read(&key(&format!("record-{record}"))).await.unwrap();
    Known {
        operation: stored.as_ref().map_or(0, |stored| stored.record.sequence),
        version: stored.map(|stored| stored.version.0.parse().unwrap()),
    }
}

fn first_of(round: u64) -> u64 {
    round * 1_000_000 + 1
}

/// The operator's key of a round; the other one is the previous.
fn key_of(round: u64) -> u8 {
    if round.is_multiple_of(2) { 2 } else { 1 }
}

fn open(home: &Path, round: u64) -> EmbeddedStore {
    let mut options = Options::new(home.join("store"), key_in(home, key_of(round)));
    options.previous_key = Some(key_in(home, key_of(round + 1)));
    options.tuning.rotation_slice = 3;
    EmbeddedStore::open(&options).unwrap()
}

fn run_and_kill(home: &Home, round: u64, after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["store::tests::crash::child", "--exact", "--ignored", "--nocapture"])
        .env(CHILD, format!("{round} {}", home.dir.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("ack "));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut all = vec![first.expect("the child works")];
    all.extend(lines.map_while(Result::ok));
    killer.join().unwrap();
    // What a kill cut in two was not said.
    if all.last().is_some_and(|line| !line.ends_with('.')) {
        all.pop();
    }
    all.iter().map(|line| line.trim_end_matches(" .").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that kill_9_loses_nothing_that_was_acknowledged starts and kills"]
async fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let (round, dir) = order.split_once(' ').unwrap();
    let round: u64 = round.parse().unwrap();
    let store = Arc::new(open(Path::new(dir), round));
    let tasks: Vec<_> =
        (0..KEYS).map(|record| tokio::spawn(work(Arc::clone(&store), round, record))).collect();
    loop {
        store.rotate_data_key().await.unwrap();
        rotated(&store).await;
        if tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            return;
        }
    }
}

async fn work(store: Arc<EmbeddedStore>, round: u64, record: u64) {
    let id = format!("record-{record}");
    let mut version = store.read(&key(&id)).await.unwrap().map(|stored| stored.version);
    for operation in first_of(round)..first_of(round + 1) {
        let removed = version.take_if(|_| operation.is_multiple_of(REMOVAL));
        if let Some(removed) = removed {
            store.remove(&key(&id), &removed).await.unwrap();
        } else {
            let record = Record { sequence: operation, ..with_parameter(&id, &"x".repeat(700)) };
            version = Some(store.write(Arc::new(record), version.as_ref()).await.unwrap());
        }
        let state = version.as_ref().map_or("removed", |version| version.0.as_str());
        let line = format!("ack {record} {operation} {state} .\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
