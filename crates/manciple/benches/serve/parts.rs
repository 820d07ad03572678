//! The parts of the bench.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use engine::record::{Phase, Record};
use engine::testing::store_contract::sample;

use crate::load::{Load, Seen, request};
use crate::process::{Server, Site, cpu};
use crate::row;

pub(crate) const BODY: &str = r#"{"service_id":"service","plan_id":"plan-3",
 "organization_guid":"6d3b8f3e-0a4b-4e0a-9d44-0a1b2c3d4e5f","space_guid":"76a9d4a2-5f1c-4e6a-8c55-1b2c3d4e5f60",
 "context":{"platform":"cloudfoundry","organization_name":"org","space_name":"dev"},
 "parameters":{"size":3}}"#;

/// How much.
pub(crate) struct Plan {
    pub(crate) slice: Duration,
    pub(crate) connections: usize,
}

impl Plan {
    fn load(&self, server: &Server) -> Load {
        Load { address: server.address.clone(), connections: self.connections, period: self.slice }
    }
}

/// A settled instance as the server would have written it.
fn settled(n: u64) -> Record {
    let mut record = sample(&format!("settled-{n}"));
    record.operation.phase = Phase::Succeeded;
    record.lifecycle = engine::record::Lifecycle::Ready;
    record.ordered.service_id = osb::ServiceId::new("service").unwrap();
    record.ordered.plan_id = osb::PlanId::new("plan-3").unwrap();
    record
}

/// One question over one connection; the whole answer.
fn ask(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(request.replacen("host", "connection: close\r\nhost", 1).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn provision(server: &Server, instance: &str) {
    let path = format!("/v2/service_instances/{instance}?accepts_incomplete=true");
    let answer = ask(server, &request("PUT", &path, BODY));
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    let path = format!("/v2/service_instances/{instance}/last_operation");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ask(server, &request("GET", &path, "")).contains("succeeded") {
        assert!(Instant::now() < deadline, "{instance} was not made");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// CPU by request in µs, with the load's view.
fn measured(
    plan: &Plan,
    server: &Server,
    status: u16,
    make: impl Fn(u64) -> String + Send + Sync + 'static,
) -> (f64, Seen) {
    let before = server.cpu();
    let seen = plan.load(server).run(status, make);
    assert_eq!(seen.others, 0, "answers of another status than {status}");
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let cpu = (server.cpu() - before).as_secs_f64() * 1e6 / seen.count as f64;
    (cpu, seen)
}

/// What each kind of request costs.
pub(crate) fn requests(plan: &Plan) {
    let site = Site::new();
    let server = site.serve();
    wait_ready(&server);
    provision(&server, "one");
    let instance = "/v2/service_instances/one";
    let kinds = [
        ("GET catalog", "GET", "/v2/catalog".to_owned(), ""),
        ("repeated identical PUT", "PUT", format!("{instance}?accepts_incomplete=true"), BODY),
        ("GET last_operation", "GET", format!("{instance}/last_operation"), ""),
        ("GET instance", "GET", instance.to_owned(), ""),
    ];
    row("resident, after one order", server.memory("VmRSS"), "MB");
    for (name, method, path, body) in kinds {
        let request = request(method, &path, body);
        let answer = ask(&server, &request);
        let bare = Server::bare(answer.split_once("\r\n\r\n").unwrap().1);
        let again = request.clone();
        let (base, _) = measured(plan, &bare, 200, move |_| again.clone());
        drop(bare);
        let (cpu, seen) = measured(plan, &server, 200, move |_| request.clone());
        row(&format!("{name}: CPU of the server"), cpu, "µs");
        row(&format!("{name}: CPU of a bare handler"), base, "µs");
        row(&format!("{name}: rate, the load on the same cores"), seen.rate(), "/s");
        row(&format!("{name}: p50"), seen.latency(0.5), "µs");
        row(&format!("{name}: p99"), seen.latency(0.99), "µs");
    }
    row("resident, after all that", server.memory("VmRSS"), "MB");
}

/// From the start of the process to the first 200 of `/readyz`.
pub(crate) fn start() {
    for records in [0, 10_000] {
        let site = Site::new();
        site.fill((0..records).map(settled));
        // The first start asks the broker for its catalog.
        let server = site.serve();
        wait_ready(&server);
        server.end();
        let mut times: Vec<f64> = (0..11)
            .map(|_| {
                let begun = Instant::now();
                let server = site.serve();
                wait_ready(&server);
                let took = begun.elapsed().as_secs_f64() * 1e3;
                server.end();
                took
            })
            .collect();
        times.sort_by(f64::total_cmp);
        row(&format!("start to ready, {records} instances: median"), times[5], "ms");
        row(&format!("start to ready, {records} instances: worst of 11"), times[10], "ms");
    }
}

fn wait_ready(server: &Server) {
    while !ask(server, &request("GET", "/readyz", "")).starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Resident memory against the number of settled operations.
pub(crate) fn memory(plan: &Plan) {
    for records in [0, 1_000, 10_000, 50_000] {
        let site = Site::new();
        site.fill((0..records).map(settled));
        let server = site.serve();
        wait_ready(&server);
        row(&format!("resident, started with {records} settled"), server.memory("VmRSS"), "MB");
        if records > 0 {
            let get = move |n| {
                // Each of them, in an order that is not theirs.
                let instance = n * 7919 % records;
                request("GET", &format!("/v2/service_instances/settled-{instance}"), "")
            };
            let (_, seen) = measured(plan, &server, 200, get);
            let name = format!("resident, after {} reads all over {records}", seen.count);
            row(&name, server.memory("VmRSS"), "MB");
        }
    }
    let site = Site::new();
    let server = site.serve();
    wait_ready(&server);
    let mut ordered = 0;
    for count in [100, 400, 1_000, 2_000] {
        let orders: Vec<_> = (ordered..count).collect();
        std::thread::scope(|scope| {
            for some in orders.chunks(orders.len().div_ceil(8)) {
                let server = &server;
                scope.spawn(move || some.iter().for_each(|n| provision(server, &format!("i-{n}"))));
            }
        });
        ordered = count;
        row(&format!("resident, after {count} orders carried out"), server.memory("VmRSS"), "MB");
    }
}

/// The id of the n-th order: as platforms make them, so that neighbours in time are none in the store.
pub(crate) fn id(n: u64) -> String {
    let part = |salt: u64| {
        let mixed = (n ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    };
    let (high, low) = (part(0), part(1 << 63));
    let (first, second, third) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (fourth, fifth) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{first:08x}-{second:04x}-4{third:03x}-{fourth:04x}-{fifth:012x}")
}

/// Durable provisions beside the store's own commits, in turns: on the disk as it is, and on one whose
/// syncs take longer, as those of most machines do; with as many clients as fill a transaction of the
/// store twice, too. And reads beside them.
pub(crate) fn provisions(plan: &Plan) {
    let asking = asking(plan);
    row("CPU of a bare handler and of who asks it, for each request", asking, "µs");
    for connections in [plan.connections, 512] {
        for sync in [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(10)] {
            let plan = Plan { connections, ..*plan };
            let mut rounds: Vec<(f64, f64)> =
                (0..3).map(|_| provisions_beside_commits(&plan, sync, asking)).collect();
            rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
            let name = format!("provisions, {connections} clients, {sync:?} more by sync");
            row(&format!("{name}: of the store's own rate, median"), rounds[1].0, "%");
            row("  the most that the cores leave for it", rounds[1].1, "%");
        }
    }
    reads_beside_writes(plan);
}

/// What a request costs on both sides before anything is done for it, in microseconds of CPU.
fn asking(plan: &Plan) -> f64 {
    let bare = Server::bare("{}");
    let before = cpu("self");
    let order = |n: u64| request("PUT", &format!("/v2/service_instances/i-{n}"), BODY);
    let (handled, seen) = measured(plan, &bare, 200, order);
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let asked = (cpu("self") - before).as_secs_f64() * 1e6 / seen.count as f64;
    handled + asked
}

/// Of the store's own rate in percent: how many were answered, and how many could be if an order cost
/// what a bare handler, who asks it, and the store cost, on as many cores as there are.
fn provisions_beside_commits(plan: &Plan, sync: Duration, asking: f64) -> (f64, f64) {
    let site = Site::new().with_sync(sync);
    let commits = site.commits(plan.connections, plan.slice);
    site.write("hold", "", 0o600);
    let server = site.serve();
    wait_ready(&server);
    let order = |n: u64| {
        let path = format!("/v2/service_instances/{}?accepts_incomplete=true", id(n));
        request("PUT", &path, BODY)
    };
    let (cpu, seen) = measured(plan, &server, 202, order);
    let name = format!("provisions, {} clients, {sync:?} more by sync", plan.connections);
    row(&format!("{name}: 202 by second"), seen.rate(), "/s");
    row("  CPU of the server for each", cpu, "µs");
    row("  p50", seen.latency(0.5), "µs");
    row("  p99", seen.latency(0.99), "µs");
    row("  resident, all of them in progress", server.memory("VmRSS"), "MB");
    row("  the store's own commits by second, as many writers", commits.rate, "/s");
    row("  CPU of the store for each", commits.cpu, "µs");
    #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    let most = cores * 1e6 / (asking + commits.cpu);
    (seen.rate() / commits.rate * 100.0, (most / commits.rate * 100.0).min(100.0))
}

/// The latency of a few readers, alone and beside many that order.
fn reads_beside_writes(plan: &Plan) {
    let site = Site::new();
    let server = site.serve();
    wait_ready(&server);
    provision(&server, "one");
    site.write("hold", "", 0o600);
    let few = Load { address: server.address.clone(), connections: 2, period: plan.slice };
    let get = |_| request("GET", "/v2/service_instances/one/last_operation", "");
    let alone = few.run(200, get);
    let beside = |path: fn(u64) -> String, method: &'static str, body: &'static str, status| {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let load = Load { connections: 16, period: plan.slice, ..plan.load(&server) };
                load.run(status, move |n| request(method, &path(n), body))
            });
            let read = few.run(200, get);
            (read, writing.join().unwrap())
        })
    };
    let (with_reads, _) = beside(|_| "/v2/service_instances/one".to_owned(), "GET", "", 200);
    let (with_writes, writes) = beside(
        |n| format!("/v2/service_instances/w-{n}?accepts_incomplete=true"),
        "PUT",
        BODY,
        202,
    );
    for (name, seen) in [
        ("alone", alone),
        ("beside 16 that read", with_reads),
        ("beside 16 that order", with_writes),
    ] {
        row(&format!("last_operation {name}: p50"), seen.latency(0.5), "µs");
        row(&format!("last_operation {name}: p99"), seen.latency(0.99), "µs");
    }
    row("the orders beside it: p50", writes.latency(0.5), "µs");
}
