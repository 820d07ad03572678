//! Who has which service, as `Broker`s come, answer, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::ports::{Offer, RunFailure};
use engine::record::Reason;
use osb::catalog::CompiledCatalog;
use osb::{Failure, PlanId, ServiceId};
use serde_json::{Value, json};

use super::super::registry::Resources;
use super::super::resource::{Edition, Resource};
use super::super::seen::SeenBroker;
use super::super::table::{Brokers, Nobody};
use super::merging::part;
use crate::runner::JobSettings;

const NOW: &str = "2026-11-21T18:00:00Z";

fn brokers() -> Arc<Brokers> {
    Brokers::new(JobSettings::new("home", "group", "", "agent:1"), vec!["jobs".to_owned()])
}

fn resource(name: &str, generation: i64, spec: &Value, status: &Value) -> Arc<Resource> {
    let object = json!({
        "apiVersion": "manciple.dev/v1alpha1", "kind": "Broker",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "generation": generation,
            "creationTimestamp": format!("2026-11-21T18:00:0{}Z", name.len() % 10),
        },
        "spec": spec, "status": status,
    });
    let seen: SeenBroker = serde_json::from_str(&object.to_string()).unwrap();
    Arc::new(Resource::of(&seen).unwrap())
}

fn plain(name: &str) -> Arc<Resource> {
    resource(name, 1, &json!({"image": format!("{name}:1")}), &json!({}))
}

fn all(resources: &[Arc<Resource>]) -> Resources {
    resources.iter().map(|it| (it.name().to_owned(), Arc::clone(it))).collect()
}

fn offer(text: &str) -> Result<Offer, RunFailure> {
    let catalog = serde_json::to_value(part(text).catalog).unwrap();
    Ok(Offer { catalog, ..Offer::default() })
}

fn failed() -> Result<Offer, RunFailure> {
    Err(RunFailure::new(Reason::NotStarted, Failure::failed("no such image")))
}

/// The one that [`resource`] makes.
fn edition(name: &str, generation: i64) -> Edition {
    Edition { uid: format!("uid-{name}"), generation }
}

fn answered(brokers: &Brokers, name: &str, answer: Result<Offer, RunFailure>) {
    brokers.answered(name, &edition(name, 1), answer);
}

fn image(brokers: &Brokers, service: &str) -> String {
    let (service, plan) = (ServiceId::new(service).unwrap(), PlanId::new("p").unwrap());
    match brokers.settings(&service, &plan) {
        Ok(settings) => settings.image,
        Err(Nobody::Has(why) | Nobody::Unread(why)) => why,
    }
}

fn is_unread(brokers: &Brokers, service: &str) -> bool {
    let (service, plan) = (ServiceId::new(service).unwrap(), PlanId::new("p").unwrap());
    matches!(brokers.settings(&service, &plan), Err(Nobody::Unread(_)))
}

/// The conditions as they are to be written: reason and message, by name.
fn said(brokers: &Brokers) -> BTreeMap<String, (String, String)> {
    let told = brokers.told(NOW).into_iter().map(|told| {
        let ready = &told.status["conditions"][0];
        let word = |member: &str| ready[member].as_str().unwrap().to_owned();
        (told.name, (word("reason"), word("message")))
    });
    told.collect()
}

fn put_in_force(brokers: &Brokers) {
    brokers.settle(&compiled(&brokers.merged()));
}

fn compiled(offer: &Offer) -> CompiledCatalog {
    CompiledCatalog::compile(osb::catalog::parse(&offer.catalog).unwrap()).unwrap()
}

#[test]
fn a_run_is_of_the_broker_that_sells_its_service_or_sold_it_last() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a"), plain("bb")]), true);
    assert!(!brokers.is_ready(), "nobody has answered");
    answered(&brokers, "a", offer("s:s p, t:t q"));
    answered(&brokers, "bb", offer("u:u r"));
    let _ = brokers.merged();
    assert_eq!([image(&brokers, "s"), image(&brokers, "u")], ["a:1", "bb:1"]);
    // Left out of a catalog, its instances are still served; offered by another, they are that one's.
    answered(&brokers, "a", offer("t:t q"));
    let _ = brokers.merged();
    assert_eq!(image(&brokers, "s"), "a:1");
    answered(&brokers, "bb", offer("u:u r, s:s p"));
    let _ = brokers.merged();
    assert_eq!(image(&brokers, "s"), "bb:1");
    // Gone, and created again.
    assert!(brokers.learn(&all(&[plain("a")]), true), "one is gone");
    assert!(!is_unread(&brokers, "u"), "nobody has it, that is known");
    // Whoever has just begun to lead does not know that before it has read the catalogs.
    brokers.stand_down();
    answered(&brokers, "a", offer("t:t q"));
    assert!(is_unread(&brokers, "u"), "{}", image(&brokers, "u"));
    let _ = brokers.merged();
    assert!(image(&brokers, "u").contains("create the Broker again"), "{}", image(&brokers, "u"));
    brokers.learn(&all(&[plain("a"), plain("bb")]), true);
    answered(&brokers, "bb", offer("u:u r"));
    let _ = brokers.merged();
    assert_eq!(image(&brokers, "u"), "bb:1");
}

#[test]
fn one_that_is_too_heavy_says_so_and_is_in_the_way_of_none() {
    let pod = |count: usize| {
        let tolerations = vec![json!({"key": "k", "operator": "Exists"}); count];
        json!({"image": "b:1", "pod": {"tolerations": tolerations}})
    };
    let levels = (0..200).fold(json!({}), |within, _| json!({"a": within}));
    let deep = json!({"image": "b:1", "pod": {"resources": levels}});
    for (name, spec, words) in [
        ("as large as any", pod(20), None),
        ("too heavy", pod(10_000), Some("spec: would take more than 4 MiB of memory")),
        ("too deep", deep, Some("spec: is nested more than 127 levels deep")),
    ] {
        let brokers = brokers();
        let services = json!([{"id": "t", "name": "t", "sold": false}]);
        let heavy = resource("heavy", 1, &spec, &json!({"services": services}));
        brokers.learn(&all(&[heavy, plain("a")]), true);
        answered(&brokers, "a", offer("s:s p"));
        let _ = brokers.merged();
        assert_eq!(image(&brokers, "s"), "a:1", "{name}");
        let said = said(&brokers).remove("heavy");
        match words {
            None => assert_eq!((said, &*image(&brokers, "t")), (None, "b:1"), "{name}"),
            Some(words) => {
                let (reason, message) = said.unwrap();
                assert_eq!(reason, "SpecInvalid", "{name}");
                assert!(message.contains(words), "{name}: {message}");
                assert!(image(&brokers, "t").contains(words), "{name}: {}", image(&brokers, "t"));
            }
        }
    }
}

#[test]
fn what_one_is_asked_that_was_deleted_is_not_answered_for_the_one_that_was_created_in_its_place() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a")]), true);
    let former = Edition { uid: "of another".to_owned(), generation: 1 };
    assert!(!brokers.waits("a", &former, None), "nobody wants to know");
    brokers.answered("a", &former, offer("s:s p"));
    assert!(!brokers.is_ready(), "it was not asked");
    answered(&brokers, "a", offer("t:t q"));
    let _ = brokers.merged();
    assert!(image(&brokers, "s").contains("no Broker has"), "{}", image(&brokers, "s"));
    assert_eq!(image(&brokers, "t"), "a:1");
}

#[test]
fn what_nobody_has_any_more_is_forgotten() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a")]), true);
    answered(&brokers, "a", offer("s:s p"));
    let _ = brokers.merged();
    answered(&brokers, "a", offer("t:t q"));
    let _ = brokers.merged();
    assert_eq!(image(&brokers, "s"), "a:1");
    put_in_force(&brokers);
    assert!(image(&brokers, "s").contains("no Broker has"), "{}", image(&brokers, "s"));
}

#[test]
fn a_restart_knows_whose_services_are_whose() {
    let status = json!({"services": [{"id": "s", "name": "s", "sold": true}, {"id": "old", "name": "old", "sold": false}]});
    let fresh = brokers();
    fresh.learn(&all(&[resource("a", 1, &json!({"image": "a:1"}), &status)]), false);
    assert_eq!([image(&fresh, "s"), image(&fresh, "old")], ["a:1", "a:1"]);
    // The part of one that does not answer is what is in force of it.
    assert!(!fresh.is_ready());
    fresh.seed(&offer("s:s p, old:old q").unwrap(), true);
    assert!(fresh.is_ready());
    assert_eq!(fresh.merged().catalog, offer("s:s p").unwrap().catalog);
}

#[test]
fn one_that_is_not_good_keeps_what_it_had() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a")]), true);
    assert!(said(&brokers).is_empty(), "nothing is known");
    assert!(brokers.waits("a", &edition("a", 1), Some("the image cannot be pulled")));
    assert!(!brokers.waits("a", &edition("a", 2), None), "of another generation");
    assert_eq!(said(&brokers)["a"].0, "CatalogPending");
    answered(&brokers, "a", failed());
    let expected = ("NotStarted", "its catalog cannot be had: no such image");
    assert_eq!(said(&brokers)["a"], (expected.0.to_owned(), expected.1.to_owned()));
    assert!(!brokers.is_ready());
    answered(&brokers, "a", offer("s:s p"));
    put_in_force(&brokers);
    assert_eq!(said(&brokers)["a"].0, "Serving");
    answered(&brokers, "a", failed());
    assert!(said(&brokers)["a"].1.ends_with("The catalog from before stays in force"));
    let faulty = json!({"services": [{"id": "s", "name": "s", "description": "d", "bindable": true, "plans": []}]});
    answered(&brokers, "a", Ok(Offer { catalog: faulty, ..Offer::default() }));
    let (reason, message) = said(&brokers)["a"].clone();
    assert!(reason == "CatalogInvalid" && message.contains("services[0].plans"), "{message}");
    assert_eq!(brokers.merged().catalog, offer("s:s p").unwrap().catalog);
    // An answer that was asked for before it was changed is no answer.
    let changed = resource("a", 2, &json!({"image": "a:2"}), &json!({}));
    brokers.learn(&all(&[changed]), true);
    answered(&brokers, "a", offer("x:x p"));
    assert_eq!(brokers.merged().catalog, offer("s:s p").unwrap().catalog);
    assert_eq!(image(&brokers, "s"), "a:2");
}

/// Otherwise an operation would fail for good, of a service whose `Broker` is there.
#[test]
fn nobody_is_said_to_have_a_service_before_it_is_known_who_has_what() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a")]), true);
    assert!(!brokers.are_known(), "nobody was asked");
    assert!(is_unread(&brokers, "s"), "{}", image(&brokers, "s"));
    let _ = brokers.merged();
    assert!(is_unread(&brokers, "s"), "catalogs of others tell nothing of its own");
    assert!(image(&brokers, "s").contains("the catalog of a is being read"));
    answered(&brokers, "a", failed());
    let _ = brokers.merged();
    assert!(!brokers.are_known(), "it did not answer, and no status says what it has");
    assert!(image(&brokers, "s").contains("no catalog yet of a: its status says why"));
    answered(&brokers, "a", offer("s:s p"));
    put_in_force(&brokers);
    assert!(brokers.are_known());
    answered(&brokers, "a", failed());
    assert!(brokers.are_known(), "it has what it had");
    // Another led: its statuses are read, and these were never written. What was asked before is not answered.
    brokers.stand_down();
    brokers.learn(&all(&[plain("a")]), false);
    answered(&brokers, "a", failed());
    assert!(image(&brokers, "s").contains("it is not known yet which Broker has"));
    assert!(!brokers.are_known(), "statuses are behind");
    put_in_force(&brokers);
    assert_eq!(image(&brokers, "s"), "a:1");
    assert!(brokers.are_known());
    let status = json!({"services": [{"id": "t", "name": "t", "sold": true}]});
    brokers.learn(&all(&[resource("b", 1, &json!({"image": "b:1"}), &status)]), false);
    answered(&brokers, "b", failed());
    let _ = brokers.merged();
    assert!(brokers.are_known(), "its status says what it has");
    brokers.learn(&all(&[]), true);
    assert!(brokers.are_known(), "nobody is there");
    assert!(image(&brokers, "t").contains("create the Broker again"));
    brokers.stand_down();
    assert!(image(&brokers, "t").contains("it is not known yet which Broker has"));
}

#[test]
fn what_a_broker_may_not_say_is_said_to_it() {
    let brokers = brokers();
    let of = |name: &str, spec: Value| resource(name, 1, &spec, &json!({}));
    let long = "x".repeat(64);
    brokers.learn(
        &all(&[
            of("elsewhere", json!({"image": "i", "namespace": "kube-system"})),
            of("further", json!({"image": "i", "namespace": "jobs"})),
            of("plans", json!({"image": "i", "plans": [
                {"planID": "p", "namespace": "kube-system"}, {"planID": "q", "namespace": "jobs"},
                {"planID": "r", "namespace": "default"},
            ]})),
            of("home", json!({"image": "i", "namespace": "home"})),
            of("nothing", json!({})),
            of("dotted.name", json!({"image": "i"})),
            of(&long, json!({"image": "i"})),
        ]),
        true,
    );
    let said = said(&brokers);
    let names: Vec<_> = said.keys().map(String::as_str).collect();
    assert_eq!(names, ["dotted.name", "elsewhere", "nothing", "plans", &long]);
    assert!(said.values().all(|(reason, _)| reason == "SpecInvalid"), "{said:?}");
    assert!(said["elsewhere"].1.contains("kubernetes.job_namespaces"));
    for path in ["spec.plans[\"p\"].namespace", "spec.plans[\"r\"].namespace"] {
        assert!(said["plans"].1.contains(path), "{said:?}");
    }
    assert!(!said["plans"].1.contains("\"q\""), "{said:?}");
    assert!(said["nothing"].1.contains("spec.image"));
    assert!(said["dotted.name"].1.contains("metadata.name"));
    let asked: Vec<_> = brokers.all().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(asked, ["further", "home"], "the others are not asked");
    let wanted = brokers.those(|name, edition| {
        assert_eq!(edition.uid, format!("uid-{name}"));
        ["further", "nothing"].contains(&name)
    });
    let wanted: Vec<_> = wanted.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(wanted, ["further"], "what is not wanted, or cannot be asked");
    assert!(!brokers.is_nobody_asked());
    brokers.learn(&all(&[resource("nothing", 1, &json!({}), &json!({}))]), true);
    assert!(brokers.is_nobody_asked(), "the only one cannot be");
}

#[test]
fn a_catalog_that_is_not_in_force_is_not_said_to_be_served() {
    let brokers = brokers();
    let faulty = resource("faulty", 1, &json!({}), &json!({}));
    brokers.learn(&all(&[plain("a"), plain("bb"), faulty]), true);
    answered(&brokers, "a", offer("s:s p"));
    answered(&brokers, "bb", failed());
    let reasons = || -> Vec<(String, String)> {
        said(&brokers).into_iter().map(|(name, (reason, _))| (name, reason)).collect()
    };
    let with = |reason: &str| {
        [("a", reason), ("bb", "NotStarted"), ("faulty", "SpecInvalid")]
            .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
    };
    put_in_force(&brokers);
    assert_eq!(reasons(), with("Serving"));
    answered(&brokers, "a", offer("s:s p q"));
    let _ = brokers.merged();
    brokers.keep_out("it is too large".to_owned());
    assert_eq!(reasons(), with("CatalogNotInForce"));
    assert!(
        said(&brokers)["a"].1.contains("not in force: it is too large"),
        "{:?}",
        said(&brokers)
    );
    put_in_force(&brokers);
    assert_eq!(reasons(), with("Serving"));
}

#[test]
fn one_that_cannot_be_put_in_force_leaves_the_others_serving() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a"), plain("bb")]), true);
    let reasons =
        || -> Vec<String> { said(&brokers).into_values().map(|(reason, _)| reason).collect() };
    answered(&brokers, "a", offer("s:s p"));
    put_in_force(&brokers);
    answered(&brokers, "bb", offer("large:large r"));
    answered(&brokers, "a", offer("s:s p"));
    let _ = brokers.merged();
    brokers.keep_out("it is too large".to_owned());
    assert_eq!(reasons(), ["Serving", "CatalogNotInForce"]);
    answered(&brokers, "a", offer("s:s p q"));
    assert_eq!(reasons(), ["CatalogNotInForce"; 2], "a has another, which is not in force either");
    answered(&brokers, "a", offer("s:s p"));
    assert_eq!(reasons(), ["Serving", "CatalogNotInForce"], "it offers what is in force again");
    put_in_force(&brokers);
    assert_eq!(reasons(), ["Serving"; 2]);
}

#[test]
fn one_whose_service_is_anothers_serves_what_it_sells_though_others_are_kept_out() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a"), plain("bb"), plain("ccc")]), true);
    let reasons =
        || -> Vec<String> { said(&brokers).into_values().map(|(reason, _)| reason).collect() };
    answered(&brokers, "a", offer("s:s p"));
    answered(&brokers, "bb", offer("s:s p, t:t q"));
    put_in_force(&brokers);
    answered(&brokers, "ccc", offer("large:large r"));
    let _ = brokers.merged();
    brokers.keep_out("it is too large".to_owned());
    assert_eq!(reasons(), ["Serving", "ServiceTaken", "CatalogNotInForce"]);
    answered(&brokers, "a", offer("u:u o"));
    let _ = brokers.merged();
    brokers.keep_out("it is too large".to_owned());
    assert_eq!(reasons(), ["CatalogNotInForce"; 3], "what is free now is not sold by another yet");
}

#[test]
fn what_was_answered_while_another_was_put_in_force_is_not_taken_for_it() {
    let brokers = brokers();
    brokers.learn(&all(&[plain("a")]), true);
    answered(&brokers, "a", offer("s:s p"));
    let merged = compiled(&brokers.merged());
    answered(&brokers, "a", offer("s:s p q"));
    brokers.settle(&merged);
    brokers.keep_out("it is too large".to_owned());
    assert_eq!(said(&brokers)["a"].0, "CatalogNotInForce");
}

#[test]
fn a_status_that_says_the_same_is_not_written_again() {
    let brokers = brokers();
    let spec = json!({"image": "a:1", "plans": [{"planID": "none"}]});
    brokers.learn(&all(&[resource("a", 1, &spec, &json!({}))]), true);
    answered(&brokers, "a", offer("s:s p"));
    put_in_force(&brokers);
    let told = brokers.told(NOW);
    let [first] = &told[..] else { panic!("one status") };
    assert_eq!(first.status["serviceNames"], "s");
    assert!(first.status["conditions"][0]["message"].as_str().unwrap().contains("\"none\""));
    brokers.learn(&all(&[resource("a", 1, &spec, &first.status)]), true);
    assert!(brokers.told("2026-11-21T19:00:00Z").is_empty(), "only the time is another");
    // Who leads next knows of nothing that is not written there.
    brokers.stand_down();
    assert!(brokers.told(NOW).is_empty());
}

#[test]
fn what_nobody_sells_any_more_need_not_wait_for_one_that_never_sold() {
    let sold = json!({"services": [{"id": "b", "name": "b", "sold": true}]});
    let spec = |image: &str| json!({"image": image});
    let faulty = || resource("faulty", 1, &json!({"image": ""}), &json!({}));
    for (name, left, asked, expected) in [
        ("none is left", vec![], vec![], true),
        ("one that is being asked", vec![plain("b")], vec![], false),
        ("one that cannot answer", vec![plain("b")], vec![("b", failed())], true),
        ("one that answers", vec![plain("b")], vec![("b", offer("s:s p"))], false),
        ("one that cannot be asked", vec![faulty()], vec![], true),
        ("and one that is being asked", vec![faulty(), plain("b")], vec![], false),
        (
            "one that sold before",
            vec![resource("b", 1, &spec("b:1"), &sold)],
            vec![("b", failed())],
            false,
        ),
    ] {
        let brokers = brokers();
        brokers.learn(&all(&left), true);
        asked.into_iter().for_each(|(of, answer)| answered(&brokers, of, answer));
        assert_eq!(brokers.is_deserted(), expected, "{name}");
    }
    // One that is made anew may have what the one before had.
    let brokers = brokers();
    brokers.learn(&all(&[plain("b")]), true);
    answered(&brokers, "b", offer("s:s p"));
    brokers.learn(&all(&[]), true);
    assert!(brokers.is_deserted());
    brokers.learn(&all(&[plain("b")]), true);
    answered(&brokers, "b", failed());
    assert!(!brokers.is_deserted());
}

/// Whoever does not lead is asked to read the catalogs anew, too, and what it puts in force holds for all.
#[test]
fn what_a_broker_has_that_does_not_answer_is_what_was_put_in_force_last() {
    let status = |id: &str| json!({"services": [{"id": id, "name": id, "sold": true}], "observedGeneration": 1});
    let told = |id: &str| resource("a", 1, &json!({"image": "a:1"}), &status(id));
    let ids = |brokers: &Brokers| {
        let catalog = osb::catalog::parse(&brokers.merged().catalog).unwrap();
        let ids = catalog.services.iter().map(|service| service.id.as_str().to_owned());
        ids.collect::<Vec<_>>()
    };
    // The catalog is heard of before the status that says whose it is.
    let brokers = self::brokers();
    brokers.learn(&all(&[plain("a")]), false);
    brokers.seed(&offer("s:s p").unwrap(), false);
    brokers.learn(&all(&[told("s")]), false);
    brokers.seed(&offer("s:s p").unwrap(), false);
    answered(&brokers, "a", failed());
    assert_eq!(ids(&brokers), ["s"]);
    // What it answered here is older than what whoever leads has put in force since.
    answered(&brokers, "a", offer("s:s p"));
    brokers.learn(&all(&[told("t")]), false);
    brokers.seed(&offer("t:t p").unwrap(), false);
    answered(&brokers, "a", failed());
    assert_eq!(ids(&brokers), ["t"]);
    // Who leads knows better than what it has put in force.
    answered(&brokers, "a", offer("u:u p"));
    brokers.seed(&offer("t:t p").unwrap(), true);
    assert_eq!(ids(&brokers), ["u"]);
}
