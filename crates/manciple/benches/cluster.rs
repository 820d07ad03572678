//! What a server costs on a cluster: with thousands of settled instances, and for each order.
//!
//! `cargo bench -p manciple --bench cluster`, with a cluster (`KUBECONFIG`, or `cargo xtask cluster up`) that
//! nobody else uses, and `cargo xtask images dev`. `CLUSTER_SETTLED` (10,000) instances, `CLUSTER_IDLE` (60)
//! seconds without work, `CLUSTER_ORDERS` (20) orders, one after the other, each beside a bare Job. `SERVE_BINARY` is measured instead of the one built.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

#[path = "cluster/town.rs"]
mod town;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use town::{Server, Town, bare, calls, fill};

/// Between one and the next: what is left of a pod is taken away by then.
const APART: Duration = Duration::from_secs(2);

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let settled = number("CLUSTER_SETTLED", 10_000);
    let idle = Duration::from_secs(number("CLUSTER_IDLE", 60) as u64);
    // First: what the API server does about thousands that were deleted counts too.
    orders(number("CLUSTER_ORDERS", 20));
    for count in [0, settled] {
        settle(count, idle);
    }
}

/// Memory, time to start and calls of a server that has nothing to do. It is not the first: where instances are
/// settled, a catalog was kept.
fn settle(count: usize, idle: Duration) {
    let town = Town::new();
    let begun = Instant::now();
    fill(&town.namespace, count);
    let filled = begun.elapsed();
    Server::start(&town).ready();
    let at_first = calls();
    let begun = Instant::now();
    let server = Server::start(&town);
    server.ready();
    let ready = begun.elapsed();
    // It takes the Lease that the one before did not give back, and looks at what there is.
    std::thread::sleep(Duration::from_secs(25));
    let before = calls();
    println!("{count:>6} settled: calls from the start on {:?}", difference(&at_first, &before));
    std::thread::sleep(idle);
    let made = difference(&before, &calls());
    println!(
        "{count:>6} settled (written in {filled:.0?}): ready after {ready:.2?}, resident {:.1} MB, at most \
         {:.1} MB",
        server.memory("VmRSS"),
        server.memory("VmHWM"),
    );
    println!("{:>6} calls but for the Lease in {idle:?}: {made:?}", made.values().sum::<u64>());
}

/// The calls of an order, as the API server counts them.
fn orders(count: usize) {
    let town = Town::new();
    let server = Server::start(&town);
    server.ready();
    let body = json!({
        "service_id": "s", "plan_id": "p", "organization_guid": "o", "space_guid": "s",
        "parameters": {"size": 3},
    });
    server.order("warm", &body);
    std::thread::sleep(Duration::from_secs(6));
    let before = calls();
    for n in 0..count {
        server.order(&format!("i-{n}"), &body);
    }
    // The last Job goes a moment after its outcome is visible.
    std::thread::sleep(Duration::from_secs(3));
    println!("{count} provisions, calls by each as the API server counts them:");
    let mut all = 0.0;
    for (call, made) in difference(&before, &calls()) {
        let each = made as f64 / count as f64;
        all += each;
        println!("  {each:>6.2}  {call}");
    }
    println!("  {all:>6.2}  in all (the Lease is renewed each 5 s)");
    beside_bare(&town, &server, &body, count);
}

/// From a PUT to `succeeded`, as a platform sees it, in turns with a bare Job that runs the same command.
fn beside_bare(town: &Town, server: &Server, body: &Value, turns: usize) {
    bare(&town.namespace, "bare-warm");
    let (mut jobs, mut orders) = (Vec::new(), Vec::new());
    for n in 0..turns {
        jobs.push(bare(&town.namespace, &format!("bare-{n}")));
        std::thread::sleep(APART);
        let begun = Instant::now();
        server.order(&format!("turn-{n}"), body);
        orders.push(begun.elapsed());
        std::thread::sleep(APART);
    }
    let [job, order] = [jobs, orders].map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "{turns} in turns, medians: a bare Job {job:.2?}, PUT to succeeded {order:.2?}, ratio {:.2}; load {}",
        order.as_secs_f64() / job.as_secs_f64(),
        load.split_whitespace().next().unwrap_or_default(),
    );
}

fn difference(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let more = |(call, count): (&String, &u64)| {
        let made = count - before.get(call).copied().unwrap_or_default();
        (made > 0).then(|| (call.clone(), made))
    };
    after.iter().filter_map(more).collect()
}
