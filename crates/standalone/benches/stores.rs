//! SQLite and redb side by side, at the work that the embedded store has: which of the two to build on.
//!
//! Both keep records of 1 KiB under a key like an instance's id, and a set of those that are busy, in
//! a page cache of 4 MiB, and both sync before a commit returns. All figures of one run come from the
//! same minutes on the same disk: read the ratios. `docs/decisions/0001-embedded-store.md` holds the
//! conclusions.
//!
//! ```text
//! cargo bench -p standalone --bench stores
//! STORES_RECORDS=10000,100000 STORES_SINGLE=5000 STORES_BATCHES=2000 cargo bench …   # longer
//! STORES_DIR=/mnt/disk cargo bench …                                                 # another disk
//! ```
#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a benchmark")]

#[path = "stores/engines.rs"]
mod engines;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engines::{Engine, Item, RedbStore, SqliteStore};

/// Writes of one group commit.
const BATCH: usize = 64;
/// The child of the reopening measurement gets its orders here: `engine directory records`.
const CHILD: &str = "STORES_CHILD";

/// The candidates, in the order of the columns.
const ENGINES: [&str; 3] = ["sqlite", "redb", "redb-quick"];
/// Into so many slices is each measurement cut; the candidates take turns, slice by slice, so that a
/// disk which others use as well is unfair to all of them alike.
const ROUNDS: usize = 8;

fn main() {
    if let Ok(order) = std::env::var(CHILD) {
        return child(&order);
    }
    let single = number("STORES_SINGLE", 480);
    let batches = number("STORES_BATCHES", 192);
    let records: Vec<usize> = std::env::var("STORES_RECORDS")
        .unwrap_or_else(|_| "10000".to_owned())
        .split(',')
        .map(|n| n.trim().parse().unwrap())
        .collect();
    let base = std::env::var_os("STORES_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dirs = ENGINES.map(|_| tempfile::tempdir_in(&base).unwrap());

    println!("{:<58}{:>12}{:>12}{:>9}{:>12}", "", "SQLite", "redb", "ratio", "redb quick");
    let mut candidates: Vec<_> = ENGINES
        .iter()
        .zip(&dirs)
        .map(|(engine, dir)| Candidate::new(open(engine, dir.path())))
        .collect();
    for round in 0..ROUNDS {
        for candidate in &mut candidates {
            candidate.commit_singly(single / ROUNDS);
        }
        for candidate in &mut candidates {
            candidate.commit_batches(round * (batches / ROUNDS), batches / ROUNDS);
        }
    }
    for round in 0..ROUNDS {
        for candidate in &mut candidates {
            candidate.read_beside_a_writer(round, single);
        }
    }
    let rows: Vec<_> = candidates.into_iter().map(Candidate::rows).collect();
    print(&rows);

    for &count in &records {
        let reopened = ENGINES.iter().zip(&dirs).map(|(engine, dir)| {
            reopen_after_kill(engine, &dir.path().join(format!("kill-{count}")), count)
        });
        print(&reopened.collect::<Vec<_>>());
    }
}

/// One line for each row: the candidates' figures and the ratio of the first two.
fn print(columns: &[Vec<(String, f64)>]) {
    let [first, second, third] = columns else { return };
    for (((name, sqlite), (_, redb)), (_, quick)) in first.iter().zip(second).zip(third) {
        println!("{name:<58}{sqlite:>12.3}{redb:>12.3}{:>9.2}{quick:>12.3}", sqlite / redb);
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

fn open(engine: &str, dir: &Path) -> Box<dyn Engine> {
    match engine {
        "sqlite" => Box::new(SqliteStore::open(dir)),
        "redb" => Box::new(RedbStore::open(dir, false)),
        "redb-quick" => Box::new(RedbStore::open(dir, true)),
        other => panic!("no engine {other}"),
    }
}

/// An open store and what was measured of it so far.
struct Candidate {
    store: Box<dyn Engine>,
    singles: Vec<Duration>,
    batches: Vec<Duration>,
    reads: Vec<Duration>,
    written_beside: usize,
    read_for: Duration,
}

impl Candidate {
    fn new(store: Box<dyn Engine>) -> Self {
        Self {
            store,
            singles: Vec::new(),
            batches: Vec::new(),
            reads: Vec::new(),
            written_beside: 0,
            read_for: Duration::ZERO,
        }
    }

    fn commit_singly(&mut self, count: usize) {
        for _ in 0..count {
            let item = [Item::new(self.singles.len(), true)];
            self.singles.push(timed(|| self.store.commit(&item)));
        }
    }

    /// Half of the commits create, half end the operations of what was created before.
    fn commit_batches(&mut self, from: usize, count: usize) {
        for batch in from..from + count {
            let first = 1_000_000 + (batch / 2) * BATCH;
            let items: Vec<_> =
                (first..first + BATCH).map(|n| Item::new(n, batch % 2 == 0)).collect();
            self.batches.push(timed(|| self.store.commit(&items)));
        }
    }

    fn read_beside_a_writer(&mut self, round: usize, known: usize) {
        let store = &*self.store;
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| {
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    let first = 10_000_000 * (round + 1) + written;
                    let items: Vec<_> =
                        (first..first + BATCH).map(|n| Item::new(n, true)).collect();
                    store.commit(&items);
                    written += BATCH;
                }
                written
            });
            let mut n = 0;
            while begun.elapsed() < Duration::from_millis(250) {
                n = (n + 7919) % known;
                self.reads.push(timed(|| assert!(store.read(n), "record {n} is there")));
            }
            stop.store(true, Ordering::Relaxed);
            self.written_beside += writer.join().unwrap();
        });
        self.read_for += begun.elapsed();
    }

    fn rows(mut self) -> Vec<(String, f64)> {
        let rate = |took: &[Duration], each: usize| {
            (took.len() * each) as f64 / took.iter().sum::<Duration>().as_secs_f64()
        };
        let beside = |count: usize| count as f64 / self.read_for.as_secs_f64();
        let mut rows = vec![
            ("single durable commits/s".to_owned(), rate(&self.singles, 1)),
            (format!("records/s, {BATCH} to a commit"), rate(&self.batches, BATCH)),
            ("reads/s by key beside a writer".to_owned(), beside(self.reads.len())),
            ("records/s written beside a reader".to_owned(), beside(self.written_beside)),
        ];
        for (name, took) in [
            ("of a single commit, ms", &mut self.singles),
            ("of a commit of 64, ms", &mut self.batches),
            ("of a read beside a writer, ms", &mut self.reads),
        ] {
            took.sort();
            for (percentile, per_mille) in [("p50", 500), ("p99", 990)] {
                rows.push((
                    format!("{percentile} {name}"),
                    millis(took[took.len() * per_mille / 1000]),
                ));
            }
        }
        rows
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// A child fills the store and goes on writing until it is killed; how long until the file answers?
fn reopen_after_kill(engine: &str, dir: &Path, records: usize) -> Vec<(String, f64)> {
    std::fs::create_dir(dir).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, format!("{engine} {records} {}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let resident: f64 = line.trim().parse().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    child.kill().unwrap();
    child.wait().unwrap();

    let bytes: u64 =
        std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    let begun = Instant::now();
    let store = open(engine, dir);
    assert!(store.read(records / 2));
    let took = begun.elapsed();
    vec![
        (format!("{records} records, killed: open and first read, ms"), millis(took)),
        (format!("{records} records: MiB on disk"), bytes as f64 / 1048576.0),
        (format!("{records} records: peak resident MiB of the writer"), resident / 1024.0),
    ]
}

fn child(order: &str) {
    let mut words = order.splitn(3, ' ');
    let engine = words.next().unwrap();
    let records: usize = words.next().unwrap().parse().unwrap();
    let store = open(engine, Path::new(words.next().unwrap()));
    for from in (0..records).step_by(BATCH) {
        let items: Vec<_> =
            (from..(from + BATCH).min(records)).map(|n| Item::new(n, false)).collect();
        store.commit(&items);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    println!("{}", peak.trim().trim_end_matches(" kB"));
    std::io::stdout().flush().unwrap();
    for from in (0..).step_by(BATCH) {
        let items: Vec<_> =
            (from..from + BATCH).map(|n| Item::new(n % records, from % 128 == 0)).collect();
        store.commit(&items);
    }
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
