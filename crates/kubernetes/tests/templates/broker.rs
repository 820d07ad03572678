//! An instance of the broker's is changed; the test plays the controller.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use osb::{Broker, FailureKind};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::harness::{PATIENCE, template};
use super::shop::Shop;
use super::support::wait;
use super::webhook::{Hook, User, refusal};

/// Far longer than a change takes that waits for nothing.
const WHILE: Duration = Duration::from_secs(3);

fn sample() -> Value {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${NAME}"}});
    let parameters = json!([{"name": "NAME", "required": true}, {"name": "SIZE", "value": "1"}]);
    template(json!([map]), parameters)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_written_in_the_name_of_whoever_asks_and_awaited() {
    let shop = Shop::new("broker-change", sample()).await;
    let first = shop.ordered(json!({"NAME": "a"})).await;
    assert_eq!(shop.secrets().await, *std::slice::from_ref(&shop.id));
    let other = json!({
        "parameters": {"NAME": "a", "SIZE": "2"},
        "originating_identity": {"platform": "kubernetes", "value": {"username": "other"}},
    });
    let work = shop.work("update", "u-1", other.clone());
    let waits = timeout(WHILE, shop.broker.update(work)).await;
    assert!(waits.is_err(), "what is said of the spec before says nothing: {waits:?}");
    let (changed, second) = shop.changed("u-1", other, first, None).await;
    changed.unwrap();
    let instance = shop.town.get(&shop.id).await;
    let secret = instance["spec"]["secret"]["name"].as_str().unwrap();
    assert_eq!(instance["spec"]["requester"], json!({"username": "other"}));
    assert_eq!(instance["metadata"]["generation"], json!(second));
    assert_eq!(second, first + 1, "it was written once");
    assert_eq!(shop.town.secret(secret, "SIZE").await.as_deref(), Some("2"));
    assert_eq!(shop.secrets().await, [secret], "that of the order is gone");
    assert_eq!(shop.claimed().await, secret);
    let gone = shop.work("deprovision", "d", json!({}));
    shop.broker.deprovision(gone).await.unwrap();
    assert_eq!(shop.secrets().await, [""; 0]);
    shop.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_template_is_had_by_who_asks_for_it() {
    let shop = Shop::new("broker-revision", sample()).await;
    let first = shop.ordered(json!({"NAME": "a"})).await;
    let before = shop.offered(|_| true).await;
    let gone = template(json!([]), json!([{"name": "NAME"}]));
    shop.revise(json!({"objects": gone["objects"], "parameters": gone["parameters"]})).await;
    let version = shop.offered(|it| it != before).await;
    let objects = async || shop.town.get(&shop.id).await["spec"]["template"]["objects"].clone();

    let parameters = json!({"parameters": {"NAME": "b"}});
    let (changed, second) = shop.changed("u-1", parameters, first, None).await;
    changed.unwrap();
    assert_eq!(objects().await, sample()["objects"], "it was not asked for");
    let of = |version: &str| json!({"parameters": {"NAME": "b"}, "maintenance_info": {"version": version}});
    let stale = shop.broker.update(shop.work("update", "u-2", of(&before))).await.unwrap_err();
    assert_eq!((stale.kind, stale.instance_usable), (FailureKind::Invalid, Some(true)));
    let (changed, _) = shop.changed("u-3", of(&version), second, None).await;
    changed.unwrap();
    assert_eq!(objects().await, json!([]));
    shop.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_says_why_and_is_put_right_by_the_next() {
    let shop = Shop::new("broker-failure", sample()).await;
    let first = shop.ordered(json!({"NAME": "a"})).await;
    let wrong = json!({"parameters": {"NAME": "b"}});
    let (failed, second) = shop.changed("u-1", wrong, first, Some("no such quota")).await;
    let failed = failed.unwrap_err();
    assert_eq!((&*failed.description, failed.update_repeatable), ("no such quota", Some(true)));
    assert_eq!(shop.secrets().await.len(), 2, "nothing is thrown away yet");
    let viewer = json!({
        "parameters": {"NAME": "c"},
        "originating_identity": {"platform": "kubernetes", "value": {"username": "viewer"}},
    });
    let refused = shop.broker.update(shop.work("update", "u-2", viewer)).await.unwrap_err();
    assert_eq!((refused.kind, refused.instance_usable), (FailureKind::Failed, Some(true)));
    let (changed, third) =
        shop.changed("u-3", json!({"parameters": {"NAME": "c"}}), second, None).await;
    changed.unwrap();
    assert_eq!(third, second + 1, "nobody else has written it");
    assert_eq!(shop.secrets().await.len(), 1);
    shop.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_killed_after_any_call_is_carried_out_once() {
    let shop = Shop::new("broker-killed", sample()).await;
    let mut generation = shop.ordered(json!({"NAME": "a"})).await;
    let mut died = 0;
    for writes in 0.. {
        let operation = format!("u-{writes}");
        let change = json!({"parameters": {"NAME": format!("b{writes}")}});
        shop.dies_after(writes);
        let killed = async {
            let work = shop.work("update", &operation, change.clone());
            timeout(WHILE, shop.broker.update(work)).await.is_err()
        };
        let (was_killed, ended) =
            tokio::join!(killed, timeout(WHILE + WHILE, shop.end(generation, None)),);
        shop.lives();
        if !was_killed {
            break;
        }
        died += 1;
        let later = ended.ok();
        let again = shop.work("update", &operation, change);
        match later {
            // It had been written: it ends as it has ended.
            Some(ended) => {
                shop.broker.update(again).await.unwrap();
                generation = ended;
            }
            None => {
                let (changed, ended) =
                    shop.ended(shop.broker.update(again), generation, None).await;
                changed.unwrap();
                generation = ended;
            }
        }
        let instance = shop.town.get(&shop.id).await;
        assert_eq!(instance["metadata"]["generation"], json!(generation), "{writes}: written once");
        let secret = instance["spec"]["secret"]["name"].as_str().unwrap();
        assert_eq!(shop.secrets().await, [secret], "{writes}");
        assert_eq!(shop.claimed().await, secret, "{writes}");
        let name = shop.town.secret(secret, "NAME").await;
        assert_eq!(name, Some(format!("b{writes}")), "{writes}");
    }
    assert!(died >= 4, "it has died only {died} times");
    shop.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_lets_in_what_the_broker_has_verified_and_nobody_brings_back_an_older_one() {
    let town = super::harness::Town::still("broker-webhook").await;
    let hook = Hook::new(&town).await;
    let shop = Shop::of(town, sample()).await;
    let first = shop.ordered(json!({"NAME": "a"})).await;
    let ordered = shop.town.get(&shop.id).await;
    let change = json!({"parameters": {"NAME": "b"}});
    let (changed, second) = shop.changed("u-1", change, first, None).await;
    changed.unwrap();
    let kept = shop.town.get(&shop.id).await;
    assert_ne!(
        kept["metadata"]["annotations"][Hook::SEAL],
        ordered["metadata"]["annotations"][Hook::SEAL]
    );
    let mallory = User::of(&shop.town, "mallory", &[]);
    mallory.may_edit(&shop.town).await;
    let back = json!({
        "metadata": {"annotations": {Hook::SEAL: ordered["metadata"]["annotations"][Hook::SEAL]}},
        "spec": ordered["spec"],
    });
    let (code, message) = refusal(mallory.merge(&shop.id, &back).await);
    assert_eq!(code, 422, "{message}");
    assert_eq!(shop.town.get(&shop.id).await["metadata"]["generation"], json!(second));
    hook.remove().await;
    shop.remove().await;
}

/// A template that takes one parameter less.
fn shorter() -> Value {
    json!({"parameters": [{"name": "NAME", "required": true}]})
}

/// Waits until what is offered takes one parameter less.
async fn until_shorter(shop: &Shop) {
    wait::until("it is never offered", PATIENCE, async || {
        let catalog = serde_json::to_string(&shop.broker.catalog().await.unwrap()).unwrap();
        if catalog.contains("SIZE") { Err(catalog) } else { Ok(()) }
    })
    .await;
}

/// A try before has kept what the template took then; whoever comes after it finds another template.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_goes_on_though_its_template_changes_between_two_tries() {
    // The Secret is made and the claim before it; then the instance, which is what it is.
    for (writes, kind, kept) in [(1, "Secret", None), (2, "TemplateInstance", Some("2"))] {
        let shop = Shop::new(&format!("broker-tries-{writes}"), sample()).await;
        let order =
            || shop.work("provision", "p", json!({"parameters": {"NAME": "a", "SIZE": "2"}}));
        let version = if kind == "Secret" { "v1" } else { "template.openshift.io/v1" };
        shop.dies_after(writes);
        tokio::select! {
            made = shop.broker.provision(order()) => panic!("it is killed: {made:?}"),
            () = shop.town.until_there(version, kind, &shop.id) => {}
        }
        shop.lives();
        let secrets = shop.town.objects("v1", "Secret");
        let immutable = Patch::Merge(json!({"immutable": true}));
        secrets.patch(&shop.id, &PatchParams::default(), &immutable).await.unwrap();
        shop.revise(shorter()).await;
        until_shorter(&shop).await;
        let (made, _) = shop.ended(shop.broker.provision(order()), 0, None).await;
        made.unwrap();
        assert_eq!(shop.town.secret(&shop.id, "NAME").await.as_deref(), Some("a"), "{kind}");
        assert_eq!(shop.town.secret(&shop.id, "SIZE").await.as_deref(), kept, "{kind}");
        shop.remove().await;
    }
}

/// The author gives the template another content, and the same version.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_goes_on_though_its_template_changes_between_two_tries() {
    let shop = Shop::new("broker-tries-change", sample()).await;
    let first = shop.ordered(json!({"NAME": "a"})).await;
    let before = shop.secrets().await.len();
    let version = json!({"template.manciple.dev/version": "2.0.0"});
    shop.revise(json!({"metadata": {"annotations": version}})).await;
    shop.offered(|it| it == "2.0.0").await;
    let change = json!({
        "parameters": {"NAME": "a", "SIZE": "2"}, "maintenance_info": {"version": "2.0.0"},
    });
    shop.dies_after(0);
    let is_kept = wait::until("nothing is kept", PATIENCE, async || {
        let secrets = shop.secrets().await;
        if secrets.len() > before { Ok(()) } else { Err(secrets) }
    });
    tokio::select! {
        made = shop.broker.update(shop.work("update", "u", change.clone())) => panic!("{made:?}"),
        () = is_kept => {}
    }
    shop.lives();
    shop.revise(shorter()).await;
    until_shorter(&shop).await;
    let (changed, _) = shop.changed("u", change, first, None).await;
    changed.unwrap();
    let claimed = shop.claimed().await;
    let size = shop.town.secret(claimed.as_str().unwrap(), "SIZE").await;
    assert_eq!(size, None, "the template takes none");
    shop.remove().await;
}
