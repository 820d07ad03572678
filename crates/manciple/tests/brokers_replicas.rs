//! Two replicas that serve `Broker` resources, on a real cluster: either answers, either may die, and both come
//! to sell the same.

mod support;

use serde_json::Value;
use support::brokers::{Brokers, delete, order_of, prefix, script};
use support::town::Town;
use support::{Served, for_seconds, http, order, within};
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;

/// How long a Job for a catalog may take, in seconds, on a cluster with other tests' pods.
const ASKED: u64 = 20;
/// How long after the one that leads the other sells the same: it looks every 10 s.
const FOLLOWED: u64 = 12;

fn instance(how: &str, broker: &str, id: &str) -> String {
    format!("{}{}", prefix(how, broker), order::path(id))
}

fn provision(server: &Served, path: &str, body: &Value) -> u16 {
    let path = format!("{path}?accepts_incomplete=true");
    http::send(&server.address, "PUT", &path, Some(body)).expect("an answer").status
}

fn state(server: &Served, path: &str) -> Value {
    let last = http::get(&server.address, &format!("{path}/last_operation")).expect("an answer");
    last.body["state"].clone()
}

/// Waits for the end of an operation, and says how it ended.
fn settled(server: &Served, path: &str) -> Value {
    let ended = || Some(state(server, path)).filter(|state| state != "in progress");
    within(30, ended).unwrap_or_else(|| panic!("{path} never ends:\n{}", server.log()))
}

/// The catalogs of brokers: the one that they are together, or that of each.
fn catalogs(server: &Served, how: &str, brokers: &[&str]) -> Vec<Value> {
    let mut paths: Vec<_> =
        brokers.iter().map(|broker| format!("{}/v2/catalog", prefix(how, broker))).collect();
    paths.dedup();
    paths.iter().map(|path| http::get(&server.address, path).expect("an answer").body).collect()
}

/// The ids of all plans that are sold.
fn plans(server: &Served, how: &str, brokers: &[&str]) -> Vec<String> {
    let all = catalogs(server, how, brokers);
    let services = all.iter().filter_map(|catalog| catalog["services"].as_array()).flatten();
    let plans = services.filter_map(|service| service["plans"].as_array()).flatten();
    plans.map(|plan| plan["id"].as_str().unwrap().to_owned()).collect()
}

/// Waits until these plans are sold, and no others.
fn sells(server: &Served, how: &str, brokers: &[&str], expected: &[&str], seconds: u64) {
    let as_expected = || (plans(server, how, brokers) == expected).then_some(());
    assert!(
        within(seconds, as_expected).is_some(),
        "{how}: {:?}, not {expected:?}, after {seconds} s\n{}",
        plans(server, how, brokers),
        server.log()
    );
}

/// The one that leads, and the other; both sell these plans.
fn replicas(town: &Town, how: &str, brokers: &[&str], sold: &[&str]) -> (Served, Served) {
    let leader = town.serve();
    leader.says("leading");
    sells(&leader, how, brokers, sold, ASKED);
    let other = town.serve();
    sells(&other, how, brokers, sold, FOLLOWED);
    (leader, other)
}

/// An order taken by one is answered by the other; and when the one that leads is killed while runs of two
/// brokers go on, the other ends both, and neither is run again.
fn either_answers_and_either_may_die(how: &str) {
    let brokers = ["one", "two"];
    let town = Town::brokers(how);
    for name in brokers {
        let waits = format!("[ $5 != {name}-slow ] || until [ -e /ledger/go ]; do sleep 1; done");
        town.script(name, &script(name, &["small", "slow"], &waits));
        town.make(&town.broker(name));
    }
    let sold = ["one-small", "one-slow", "two-small", "two-slow"];
    let (mut leader, other) = replicas(&town, how, &brokers, &sold);

    for (name, asked, answers) in [("one", &other, &leader), ("two", &leader, &other)] {
        let path = instance(how, name, name);
        assert_eq!(provision(asked, &path, &order_of(name, "small")), 202, "{}", asked.log());
        assert_eq!(settled(answers, &path), "succeeded", "{}", leader.log());
        assert_eq!(state(asked, &path), "succeeded");
        let told = [asked, answers].map(|server| http::get(&server.address, &path).unwrap());
        assert_eq!(told[0].status, 200, "{:?}", told[0]);
        assert_eq!(told[0].body["plan_id"], format!("{name}-small"));
        assert_eq!(told[0].body, told[1].body);
        assert_eq!(town.effects(&format!("{name}: provision of {name}")), 1);
    }

    for (name, asked) in [("one", &leader), ("two", &other)] {
        let path = instance(how, name, &format!("late-{name}"));
        assert_eq!(provision(asked, &path, &order_of(name, "slow")), 202, "{}", asked.log());
    }
    let begun = |name: &str| town.effects(&format!("{name}: provision of late-{name}"));
    let both = || (begun("one") + begun("two") == 2).then_some(());
    assert!(within(ASKED, both).is_some(), "a run does not begin:\n{}", leader.log());
    leader.kill();
    for name in brokers {
        assert_eq!(state(&other, &instance(how, name, &format!("late-{name}"))), "in progress");
    }
    assert!(!other.log().contains("leading"), "it led before:\n{}", other.log());
    std::fs::write(town.ledger.join("go"), "").unwrap();
    for name in brokers {
        let path = instance(how, name, &format!("late-{name}"));
        assert_eq!(settled(&other, &path), "succeeded", "{}", other.log());
        assert_eq!(begun(name), 1, "{name}");
    }
    other.says("leading");
    for name in brokers {
        for id in [name, &format!("late-{name}")] {
            let plan = if id == name { "small" } else { "slow" };
            assert_eq!(delete(&other, &prefix(how, name), id, name, plan), 202);
            assert_eq!(settled(&other, &instance(how, name, id)), "succeeded", "{}", other.log());
            assert_eq!(town.effects(&format!("{name}: deprovision of {id}")), 1);
        }
    }
}

#[test]
fn together_either_replica_answers_and_either_may_die() {
    either_answers_and_either_may_die("together");
}

#[test]
fn apart_either_replica_answers_and_either_may_die() {
    either_answers_and_either_may_die("apart");
}

/// What becomes of a `Broker` is sold by the one that leads at once, and soon by the other.
fn both_come_to_sell_the_same(how: &str) {
    let brokers = ["stays", "two"];
    let town = Town::brokers(how);
    town.script("stays", &script("stays", &["small"], ""));
    town.make(&town.broker("stays"));
    let (leader, other) = replicas(&town, how, &brokers, &["stays-small"]);
    let both = |expected: &[&str]| {
        sells(&leader, how, &brokers, expected, ASKED);
        sells(&other, how, &brokers, expected, FOLLOWED);
        assert_eq!(catalogs(&leader, how, &brokers), catalogs(&other, how, &brokers));
    };

    town.script("two", &script("two", &["small"], ""));
    town.make(&town.broker("two"));
    both(&["stays-small", "two-small"]);

    // Another executable, by the Broker.
    town.script("edited", &script("two", &["small", "large"], ""));
    let mut edited = town.broker("two");
    edited["spec"]["pod"] = town.pod("edited");
    town.make(&edited);
    both(&["stays-small", "two-small", "two-large"]);

    // Another executable, by the ConfigMap alone: read when it is asked for.
    town.script("edited", &script("two", &["large", "huge"], ""));
    let url = format!("{}{}", leader.url(), prefix(how, "two"));
    let refreshed = town.site.client(&url, &["catalog", "--refresh"]).output().unwrap();
    assert!(refreshed.status.success(), "{refreshed:?}");
    both(&["stays-small", "two-large", "two-huge"]);

    // What either sells, either takes orders for.
    for (id, asked, answers) in [("a", &other, &leader), ("b", &leader, &other)] {
        let path = instance(how, "two", id);
        assert_eq!(provision(asked, &path, &order_of("two", "huge")), 202, "{}", asked.log());
        assert_eq!(settled(answers, &path), "succeeded", "{}", leader.log());
        assert_eq!(delete(asked, &prefix(how, "two"), id, "two", "huge"), 202);
        assert_eq!(settled(answers, &path), "succeeded", "{}", leader.log());
    }

    town.kubectl(&["delete", "broker", "two"]);
    both(&["stays-small"]);
    for server in [&leader, &other] {
        let path = instance(how, "two", "late");
        let refused = || {
            let status = provision(server, &path, &order_of("two", "huge"));
            [400, 404].contains(&status).then_some(())
        };
        assert!(within(FOLLOWED, refused).is_some(), "still sold:\n{}", server.log());
    }
}

/// A replica whose watches are behind sells what the one that leads knows to be withdrawn: what it takes is ended all the
/// same, so the group is there to end it.
#[test]
fn apart_what_a_replica_takes_that_is_behind_is_ended_by_the_other() {
    let town = Town::brokers("apart");
    let leader = town.serve();
    leader.says("leadership");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // How far behind a watch is, is up to the seed.
    let was_taken = (0..5).any(|seed| {
        let name = format!("late-{seed}");
        let sold = format!("{name}-small");
        town.script(&name, &script(&name, &["small"], ""));
        town.make(&town.broker(&name));
        sells(&leader, "apart", &[&name], &[&sold], ASKED);
        let proxy = runtime.block_on(async {
            let kubeconfig = testkit::cluster::kubeconfig().unwrap();
            let cluster = kubernetes::client(Some(&kubeconfig)).await.unwrap();
            let behind = Plan { random: Random::new(seed), lag: 40_000, ..Plan::calm() };
            Proxy::start(cluster, behind).await.unwrap()
        });
        let kubeconfig = town.site.write("behind", &proxy.kubeconfig());
        let other = Served::start(town.command().env("KUBECONFIG", kubeconfig)).unwrap();
        sells(&other, "apart", &[&name], &[&sold], FOLLOWED);

        town.kubectl(&["delete", "broker", &name]);
        // The one that leads looks each five.
        let _ = for_seconds(8, || None::<()>);
        let path = instance("apart", &name, "i");
        let was_taken = provision(&other, &path, &order_of(&name, "small")) == 202;
        if was_taken {
            assert_eq!(settled(&leader, &path), "failed", "{}", leader.log());
        }
        was_taken
    });
    assert!(was_taken, "no replica was behind");
}

#[test]
fn together_both_replicas_come_to_sell_what_a_broker_became() {
    both_come_to_sell_the_same("together");
}

#[test]
fn apart_both_replicas_come_to_sell_what_a_broker_became() {
    both_come_to_sell_the_same("apart");
}

#[test]
fn a_catalog_that_was_read_anew_by_the_one_that_does_not_lead_is_sold_by_both() {
    let brokers = ["stays", "two"];
    let town = Town::brokers("together");
    for name in brokers {
        town.script(name, &script(name, &["small"], ""));
        town.make(&town.broker(name));
    }
    let (mut leader, other) = replicas(&town, "together", &brokers, &["stays-small", "two-small"]);
    town.script("two", &script("new", &["small"], ""));
    let refreshed = town.site.client(&other.url(), &["catalog", "--refresh"]).output().unwrap();
    assert!(refreshed.status.success(), "{refreshed:?}");
    let sold = ["stays-small", "new-small"];
    sells(&leader, "together", &brokers, &sold, ASKED + FOLLOWED);
    sells(&other, "together", &brokers, &sold, FOLLOWED);
    let path = order::path("a");
    assert_eq!(provision(&leader, &path, &order_of("new", "small")), 202);
    assert_eq!(settled(&other, &path), "succeeded", "{}", leader.log());

    // What it heard then is older than what is sold when it comes to lead.
    town.script("newer", &script("stays", &["small", "large"], ""));
    let mut newer = town.broker("stays");
    newer["spec"]["pod"] = town.pod("newer");
    town.make(&newer);
    let sold = ["stays-small", "stays-large", "new-small"];
    sells(&leader, "together", &brokers, &sold, ASKED);
    sells(&other, "together", &brokers, &sold, FOLLOWED);
    leader.kill();
    let leads = || {
        assert_eq!(plans(&other, "together", &brokers), sold, "{}", other.log());
        other.log().contains("leading").then_some(())
    };
    assert!(within(30, leads).is_some(), "it never leads:\n{}", other.log());
    let falls_back = || (plans(&other, "together", &brokers) != sold).then_some(());
    assert!(for_seconds(3, falls_back).is_none(), "sold as it was before:\n{}", other.log());
}
