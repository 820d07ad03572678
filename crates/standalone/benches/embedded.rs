//! The embedded store through its port: what encryption, checks and answering each writer leave of
//! SQLite's own rate, how long a read takes beside all that, and how quickly it opens.
//!
//! ```text
//! cargo bench -p standalone --bench embedded
//! EMBEDDED_RECORDS=100000 EMBEDDED_ROUNDS=20 EMBEDDED_WRITERS=64 cargo bench …
//! ```
//!
//! The rates take turns with plain SQLite committing the same number of bytes in batches of 64 and of
//! 256, so that a disk which others use as well is unfair to all alike.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]

#[path = "stores/engines.rs"]
#[expect(dead_code, reason = "the other benchmark uses all of it")]
mod engines;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::ports::{Filter, Kind, Query, Store};
use engine::record::{Key, Phase, Record};
use engine::testing::store_contract::{Lists as _, sample};
use engines::{Engine, Item, SqliteStore};
use osb::InstanceId;
use serde_json::{Value, json};
use standalone::seal::KeySource;
use standalone::store::{EmbeddedStore, Options};

/// How long each measurement of one round runs.
const SLICE: Duration = Duration::from_millis(400);

fn main() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |n| n.parse::<usize>().unwrap());
    let records = number("EMBEDDED_RECORDS", 10_000);
    let rounds = number("EMBEDDED_ROUNDS", 6);
    let base = std::env::var_os("STORES_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = tempfile::tempdir_in(base).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let options = options(dir.path());

    row("resident before opening, MiB", resident());
    let store = EmbeddedStore::open(&options).unwrap();
    runtime.block_on(write_from(&store, 256, Until::Count(records), 0));
    drop(store);
    opening(&runtime, &options, records);

    let store = Arc::new(EmbeddedStore::open(&options).unwrap());
    let raw = dir.path().join("raw");
    std::fs::create_dir(&raw).unwrap();
    let raw = SqliteStore::open(&raw);
    rates(&runtime, &store, &raw, rounds, records);
    row(&format!("resident after all that, {records} records and more, MiB"), resident());
    reads(&runtime, &store, records);
    rotation(&runtime, &store);
}

fn row(name: &str, figure: f64) {
    println!("{name:<72}{figure:>12.3}");
}

fn options(dir: &Path) -> Options {
    let key = dir.join("key");
    std::fs::write(&key, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
        .unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    Options::new(dir.join("store"), KeySource::File(key))
}

/// Resident memory of this process, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// A record as large, sealed, as an [`Item`].
fn record(id: &str, busy: bool) -> Record {
    let mut record = sample(id);
    let Value::Object(parameters) = json!({"text": "x".repeat(580)}) else { unreachable!() };
    record.ordered.parameters = parameters.into();
    if busy {
        record.operation.phase = Phase::Pending { not_before: None };
    }
    record
}

fn key(n: usize) -> String {
    format!("{:016x}-0000-0000-{n:08}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

enum Until {
    Count(usize),
    Stopped(Arc<AtomicBool>),
}

/// Writes from so many tasks at once, each an instance that is created and then settled, as a
/// provision does; returns the number of writes.
async fn write_from(store: &EmbeddedStore, tasks: usize, until: Until, first: usize) -> usize {
    let next = std::sync::atomic::AtomicUsize::new(first);
    let (limit, stop) = match until {
        Until::Count(count) => (first + count, Arc::default()),
        Until::Stopped(stop) => (usize::MAX, stop),
    };
    let work = (0..tasks).map(|_| async {
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= limit {
                break;
            }
            let id = key(n);
            let version = store.write(Arc::new(record(&id, true)), None).await.unwrap();
            store.write(Arc::new(record(&id, false)), Some(&version)).await.unwrap();
            written += 2;
        }
        written
    });
    join_all(work).await.into_iter().sum()
}

/// Polls each of them when it is woken, on this task.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut set = Vec::new();
    let mut futures: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    std::future::poll_fn(|context| {
        for future in &mut futures {
            if let Some(running) = future
                && let std::task::Poll::Ready(value) = running.as_mut().poll(context)
            {
                set.push(value);
                *future = None;
            }
        }
        if set.len() == futures.len() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    set
}

fn opening(runtime: &tokio::runtime::Runtime, options: &Options, records: usize) {
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            let store = EmbeddedStore::open(options).unwrap();
            runtime.block_on(async {
                assert!(store.busy().await.unwrap().is_empty());
                assert_eq!(store.plans_in_use().await.unwrap().len(), 1);
            });
            begun.elapsed()
        })
        .collect();
    took.sort();
    row(&format!("open, busy and plans, {records} records: p50, ms"), millis(took[10]));
    row("the same, slowest of 20, ms", millis(took[19]));
    let store = EmbeddedStore::open(options).unwrap();
    row(&format!("resident after opening with {records} records, MiB"), resident());
    drop(store);
}

fn rates(
    runtime: &tokio::runtime::Runtime,
    store: &Arc<EmbeddedStore>,
    raw: &SqliteStore,
    rounds: usize,
    records: usize,
) {
    let writers = std::env::var("EMBEDDED_WRITERS").unwrap_or_else(|_| "1,64,256,1000".to_owned());
    let writers: Vec<usize> = writers.split(',').map(|n| n.trim().parse().unwrap()).collect();
    let mut raw_written = [(0, Duration::ZERO); 2];
    let mut written = vec![(0, Duration::ZERO); writers.len()];
    let mut transactions = vec![0; writers.len()];
    let mut first = records;
    let mut raw_first = 0;
    for _ in 0..rounds {
        for (batch, (count, took)) in [64, 256].into_iter().zip(&mut raw_written) {
            let begun = Instant::now();
            while begun.elapsed() < SLICE {
                for busy in [true, false] {
                    let items: Vec<_> =
                        (raw_first..raw_first + batch).map(|n| Item::new(n, busy)).collect();
                    raw.commit(&items);
                    *count += batch;
                }
                raw_first += batch;
            }
            *took += begun.elapsed();
        }
        for (n, tasks) in writers.iter().copied().enumerate() {
            let before = store.stats().transactions;
            let begun = Instant::now();
            let count = runtime.block_on(spawned(store, tasks, first));
            written[n].0 += count;
            written[n].1 += begun.elapsed();
            transactions[n] += store.stats().transactions - before;
            first += 10_000_000;
        }
    }
    let rate = |(count, took): (usize, Duration)| count as f64 / took.as_secs_f64();
    row("plain SQLite, batches of 64: writes/s", rate(raw_written[0]));
    row("plain SQLite, batches of 256: writes/s", rate(raw_written[1]));
    for (n, tasks) in writers.iter().copied().enumerate() {
        row(&format!("{tasks} concurrent writers: writes/s"), rate(written[n]));
        row("    to a transaction", written[n].0 as f64 / transactions[n] as f64);
        row("    of plain SQLite at 64, %", 100.0 * rate(written[n]) / rate(raw_written[0]));
    }
}

/// As [`write_from`], over as many tasks of the runtime as there are writers, for one slice of time.
async fn spawned(store: &Arc<EmbeddedStore>, tasks: usize, first: usize) -> usize {
    let stop = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, stop) = (Arc::clone(store), Arc::clone(&stop));
            tokio::spawn(async move {
                write_from(&store, 1, Until::Stopped(stop), first + task * 10_000).await
            })
        })
        .collect();
    tokio::time::sleep(SLICE).await;
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for handle in handles {
        written += handle.await.unwrap();
    }
    written
}

fn reads(runtime: &tokio::runtime::Runtime, store: &Arc<EmbeddedStore>, records: usize) {
    let keys: Vec<_> =
        (0..records).map(|n| Key::Instance(InstanceId::new(key(n)).unwrap())).collect();
    let measure = |name: &str| {
        let mut took = Vec::new();
        let begun = Instant::now();
        let mut n = 0;
        while begun.elapsed() < 3 * SLICE {
            n = (n + 7919) % records;
            let one = Instant::now();
            assert!(runtime.block_on(store.read(&keys[n])).unwrap().is_some());
            took.push(one.elapsed());
        }
        took.sort();
        for (percentile, per_mille) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
            let figure = millis(took[took.len() * per_mille / 1000]) * 1e3;
            row(&format!("read of one record, {name}: {percentile}, µs"), figure);
        }
    };
    measure("alone");
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, stop) = (Arc::clone(store), Arc::clone(&stop));
        runtime
            .spawn(async move { write_from(&store, 64, Until::Stopped(stop), 9_000_000_000).await })
    };
    measure("beside 64 writers");
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(writer).unwrap();

    let query = Query {
        kind: Kind::Instances,
        instance: None,
        filter: Filter::Live,
        after: None,
        limit: 100,
    };
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(runtime.block_on(store.list(&query)).unwrap().len(), 100);
    }
    row("list of 100 records, ms", millis(begun.elapsed()) / 20.0);
}

fn rotation(runtime: &tokio::runtime::Runtime, store: &Arc<EmbeddedStore>) {
    let begun = Instant::now();
    runtime.block_on(async {
        store.rotate_data_key().await.unwrap();
        while store.rotation().retiring_keys > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let rows = store.rotation().of;
    row(
        &format!("re-encrypting {rows} records, nothing else to do: s"),
        millis(begun.elapsed()) / 1e3,
    );
    row("resident at the end, MiB", resident());
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}
