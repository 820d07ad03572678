//! A snapshot of etcd is restored, as `docs/kubernetes.md` has it: Manciple is scaled to none, everything else is begun
//! anew, and Manciple again; and as it is not to be done, under a Manciple that goes on. What the snapshot knows ends
//! truthfully, what it does not know is forgotten.
//!
//! ```text
//!             snapshot                          restored
//! stays    ready ┆ unbound, removed                ┆ ready, with its binding; removed once more
//! removed  being removed ┆ gone                    ┆ removed by the Job that is there: gone
//! slow-…   being made, by a pod ┆ made             ┆ made by the Job that is there
//! waits    being made, without a Job ┆ made        ┆ made, by a Job of its own
//! late              ┆ made, bound                  ┆ nobody knows of it
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};
use osb::Action;
use rustix::process::Signal;
use serde_json::{Map, Value, json};
use testkit::kubelet::{Act, Kubelet, Ledger, Script};

use super::support::{Served, http, order, within};
use super::{Town, catalog, plane, runtime};

/// Long enough for a snapshot meanwhile; and the same on a busy machine, where that was not.
const LONG: [u64; 2] = [12_000, 60_000];
const SHORT: u64 = 3_000;
const IDS: &str = "service_id=s&plan_id=p&accepts_incomplete=true";
/// As many as may go on at once: what is ordered beside them has no Job yet.
const LAST: [&str; 3] = ["provision of slow-0", "provision of slow-1", "deprovision of removed"];

/// What `LAST` says takes so long, in milliseconds.
fn script(last: u64) -> Script {
    Arc::new(move |order| {
        let asked = asked(order.action, &order.work);
        let lasts = if LAST.contains(&asked.as_str()) { last } else { 50 };
        Act::well(Duration::from_millis(20), Duration::from_millis(lasts))
    })
}

/// What a broker is asked.
fn asked(action: Option<Action>, work: &Map<String, Value>) -> String {
    let action = action.map(|action| format!("{action:?}").to_lowercase());
    let of = work.get("instance_id").and_then(Value::as_str).unwrap_or_default();
    format!("{} of {of}", action.unwrap_or_default())
}

/// How often brokers were begun, by what they were asked.
fn begun(ledger: &Ledger) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for entry in ledger.values() {
        if let Some(order) = entry.order.as_ref().filter(|order| order.action.is_some()) {
            *begun.entry(asked(order.action, &order.work)).or_default() += entry.begun.len();
        }
    }
    begun
}

/// The uids of Jobs, by their names.
fn jobs(town: &Town) -> BTreeMap<String, String> {
    let jobs: Api<Job> = Api::namespaced(town.client.clone(), &town.namespace);
    let jobs = town.runtime.block_on(jobs.list(&ListParams::default())).unwrap();
    let jobs = jobs.into_iter().map(|job| job.metadata);
    jobs.map(|it| (it.name.unwrap_or_default(), it.uid.unwrap_or_default())).collect()
}

fn delete(server: &Served, path: &str) -> http::Answer {
    http::send(&server.address, "DELETE", &format!("{path}?{IDS}"), None).expect("an answer")
}

fn get(server: &Served, path: &str) -> http::Answer {
    http::get(&server.address, path).expect("an answer")
}

/// Waits until one is gone, and asks for it until then.
fn gone(server: &Served, path: &str) {
    let gone = || (delete(server, path).status == 410).then_some(());
    assert!(within(90, gone).is_some(), "{path} stays:\n{}", server.log());
}

/// How an operation stands, by the token of its 202.
fn stands(server: &Served, (instance, operation): &(String, String)) -> http::Answer {
    get(server, &format!("{}/last_operation?operation={operation}", order::path(instance)))
}

fn ends_well(server: &Served, accepted: &(String, String)) {
    let ended = || {
        let answer = stands(server, accepted);
        (answer.status == 410 || answer.body["state"] != "in progress").then_some(answer)
    };
    let answer = within(90, ended).unwrap_or_else(|| panic!("{accepted:?}:\n{}", server.log()));
    let well = answer.status == 410 || answer.body["state"] == "succeeded";
    assert!(well, "{accepted:?}: {answer:?}\n{}", server.log());
}

/// What a platform was told.
struct Told {
    /// Operations that go on when the snapshot is made: of which instance, and the token.
    accepted: Vec<(String, String)>,
    /// What `stays` was bound with.
    credentials: Value,
}

/// Orders what the snapshot is to know of, and waits until all that may go on does.
fn before(town: &Town, server: &Served) -> Told {
    for instance in ["stays", "removed"] {
        let made = order::provisioned(server, instance, &order::body("p"));
        assert_eq!(made["state"], "succeeded", "{made}");
    }
    let ids = json!({"service_id": "s", "plan_id": "p"});
    let credentials = order::bind(server, "stays", "b", &ids).body["credentials"].clone();
    assert!(credentials["password"].is_string(), "{credentials}");
    let mut accepted = Vec::new();
    let mut ordered = |instance: &str, answer: http::Answer| {
        assert_eq!(answer.status, 202, "{answer:?}");
        let operation = answer.body["operation"].as_str().unwrap().to_owned();
        accepted.push((instance.to_owned(), operation));
    };
    for instance in ["slow-0", "slow-1"] {
        ordered(instance, order::provision(server, instance, &order::body("p")));
    }
    ordered("removed", delete(server, &order::path("removed")));
    let go_on = || {
        let begun = begun(&town.kubelet.ledger());
        LAST.iter().all(|it| begun.contains_key(*it)).then_some(())
    };
    assert!(within(60, go_on).is_some(), "{:?}\n{}", town.kubelet.ledger(), server.log());
    ordered("waits", order::provision(server, "waits", &order::body("p")));
    Told { accepted, credentials }
}

/// What nobody knows of any more when the snapshot is restored.
fn after(town: &Town, server: &Served, told: &Told) {
    told.accepted.iter().for_each(|accepted| ends_well(server, accepted));
    gone(server, &format!("{}/service_bindings/b", order::path("stays")));
    gone(server, &order::path("stays"));
    let made = order::provisioned(server, "late", &order::body("p"));
    assert_eq!(made["state"], "succeeded", "{made}");
    let ids = json!({"service_id": "s", "plan_id": "p"});
    assert_eq!(order::bind(server, "late", "b", &ids).status, 201);
    let begun = begun(&town.kubelet.ledger());
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
}

/// Whether one of those has ended that were to go on.
fn any_ended(ledger: &Ledger) -> bool {
    let ended = ledger.values().filter(|entry| entry.end.is_some());
    let mut orders = ended.filter_map(|entry| entry.order.as_ref());
    orders.any(|it| LAST.contains(&asked(it.action, &it.work).as_str()))
}

#[test]
fn a_snapshot_that_is_restored_ends_what_it_knows_of_and_has_forgotten_the_rest() {
    restored("restored", Meanwhile::Ended);
}

/// It knows of later versions of all there is, so nothing that it is told counts.
#[test]
fn a_server_that_runs_through_a_restoration_begins_nothing_and_ends_to_be_begun_anew() {
    restored("through", Meanwhile::RunsOn);
}

/// What the server does while the snapshot is restored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Ended,
    RunsOn,
}

fn restored(name: &str, meanwhile: Meanwhile) {
    let is_tried = LONG.into_iter().any(|long| restored_while_all_go_on(name, meanwhile, long));
    assert!(is_tried, "there is no snapshot of all that was to go on");
}

/// What is to go on takes so long; whether it did until there was a snapshot.
fn restored_while_all_go_on(name: &str, meanwhile: Meanwhile, long: u64) -> bool {
    let (mut plane, runtime) = (plane(), runtime());
    let mut town = Town::of(&plane, &runtime, name, script(long));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["operations"]["max_runs"] = json!(LAST.len());
    town.site.settings = settings.to_string();
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let mut first = Served::start(&mut town.command(&kubeconfig)).unwrap();
    order::ready(&first);
    let told = before(&town, &first);
    let snapshot = plane.snapshot().unwrap();
    if any_ended(&town.kubelet.ledger()) {
        return false;
    }
    let known = jobs(&town);
    after(&town, &first, &told);
    let end = |server: &mut Served| {
        server.signal(Signal::TERM);
        assert!(server.wait().is_some_and(|status| status.success()), "{}", server.log());
    };
    if meanwhile == Meanwhile::Ended {
        end(&mut first);
    }

    // No node is to have pods of what is forgotten; that of the test begins those anew that are said to go on.
    town.kubelet.stop();
    plane.restore(&snapshot).unwrap();
    let _entered = runtime.enter();
    let (client, namespace) = (town.client.clone(), &town.namespace);
    town.kubelet = Kubelet::start(client, namespace, catalog(), script(SHORT));
    if meanwhile == Meanwhile::RunsOn {
        // It looks at its Lease each five seconds.
        let status = within(90, || first.has_ended().then(|| first.wait()));
        let failed = status.flatten().is_some_and(|status| !status.success());
        assert!(failed && first.log().contains("went back to an earlier time"), "{}", first.log());
        let run = begun(&town.kubelet.ledger());
        assert!(run.keys().all(|it| LAST.contains(&it.as_str())), "{run:?}\n{}", first.log());
    }
    // The snapshot has it held by one that is gone.
    town.free_lease();
    let server = Served::start(&mut town.command(&kubeconfig)).unwrap();
    order::ready(&server);

    told.accepted.iter().for_each(|accepted| ends_well(&server, accepted));
    // The first three by the Jobs that the snapshot knows, which are kept under their names for a minute.
    let now = jobs(&town);
    for (name, uid) in known.iter().filter(|(name, _)| !name.starts_with("catalog-")) {
        assert!(
            now.get(name).is_none_or(|it| it == uid),
            "{name} was made anew: {known:?}, {now:?}"
        );
    }
    let stays = order::path("stays");
    let bound = get(&server, &format!("{stays}/service_bindings/b"));
    assert_eq!(bound.body["credentials"], told.credentials, "{bound:?}");
    let late = order::path("late");
    for path in [late.clone(), format!("{late}/service_bindings/b")] {
        assert_eq!(get(&server, &path).status, 404, "{path}");
        assert_eq!(delete(&server, &path).status, 410, "{path}");
    }
    let run = begun(&town.kubelet.ledger());
    let again: Vec<_> =
        LAST.iter().chain(&["provision of waits"]).map(|it| (*it).to_owned()).collect();
    assert_eq!(run, again.into_iter().map(|it| (it, 1)).collect(), "{}", server.log());

    let made = order::provisioned(&server, "late", &order::body("p"));
    assert_eq!(made["state"], "succeeded", "it is ordered again: {made}");
    gone(&server, &format!("{stays}/service_bindings/b"));
    for instance in ["stays", "slow-0", "slow-1", "waits", "late"] {
        gone(&server, &order::path(instance));
    }
    let ledger = town.kubelet.ledger();
    for (run, entry) in &ledger {
        assert_eq!(entry.begun.len(), 1, "{run}: {entry:?}");
    }
    let clean = within(90, || town.kept().is_empty().then_some(()));
    assert!(clean.is_some(), "left behind: {:?}\n{}", town.kept(), server.log());
    true
}
