//! A Deployment of two replicas is given another pod template while operations go on, and while a platform goes on
//! asking: each request is answered, each operation ends well by its first attempt and in one Job. Whom it asks, the
//! Endpoints of the Service say just before; what a replica that they name no more leaves unanswered is asked again.
//!
//! ```text
//! config-map:      ▐▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀▀ runs that were begun before, and end in the midst of it or after it
//! requests:        · · · · · · · · · · · · · · each at a replica that the Endpoints name just then
//! replicas:        old old ─▶ new old ─▶ new new
//! init-container:              ▐▀▀▀▀▀▀▀▀▀▀▀▀▀▀ runs of the new ones, with the agent of their own image
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::killed::{holders, is_of};
use super::place::{Forward, Place, ask, manciple};

const BROKER: &str = r#"#!/bin/sh
plans='[{"id": "manciple-files-plain", "name": "plain", "description": "d"}]'
case "$*" in
catalog*) echo "{\"services\": [{\"id\": \"manciple-files\", \"name\": \"manciple-files\", \"description\": \"d\",
    \"bindable\": false, \"plans\": $plans}]}"; exit ;;
provision*rolling-0*) sleep 4 ;;
provision*rolling-1*) sleep 8 ;;
provision*rolling-2*) sleep 12 ;;
provision*rolling-3*) sleep 16 ;;
provision*rolling-4*) sleep 20 ;;
provision*rolling-5*) sleep 24 ;;
esac
echo '{}'
"#;
/// How many of the orders take their time.
const LONG: usize = 6;
/// How many instances are ordered meanwhile, at most.
const MEANWHILE: usize = 6;

/// Deploys the overlay with a broker that takes its time, and the agent delivered by a ConfigMap.
pub(super) fn deploy(place: &Place<'_>) -> anyhow::Result<()> {
    let script = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"},
        "data": {"broker": BROKER},
    });
    place.deploy_with(&settings("config-map"), &[script])
}

fn settings(delivery: &str) -> Value {
    let pod = json!({
        "volumes": [{"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}}],
        "volumeMounts": [{"name": "script", "mountPath": "/bin/broker", "subPath": "broker"}],
    });
    json!({"kubernetes": {"agent_delivery": delivery, "pod": pod}})
}

/// Runs the test, where [`deploy`] has deployed.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
    let old = place.run_out(2)?;
    let former: BTreeSet<_> = jobs(place)?.into_keys().collect();
    let watched = Watched::start(place)?;
    let mut orders: Vec<String> = (0..LONG).map(|number| format!("rolling-{number}")).collect();
    begin(place, &old[0], &orders, &former)?;
    let (meanwhile, asked) = roll(place, &orders)?;
    orders.extend(meanwhile);
    // Whoever led gives the Lease back as it ends, which may be after Kubernetes says that it was replaced.
    place.until("one of the new replicas leads", |place| {
        let holders = holders(place)?;
        let is_old = |holder: &String| old.iter().any(|pod| is_of(holder, pod));
        Ok(!holders.is_empty() && !holders.iter().any(is_old))
    })?;
    orders.push(by_the_settings_given_last(place)?);
    let new = place.run_out(2)?;
    ensure!(new.iter().all(|pod| !old.contains(pod)), "{old:?} are still there: {new:?}");
    println!(
        "{asked} requests while replicas were replaced, {} of them orders",
        orders.len() - LONG
    );
    let after = place.forward(&new[0])?;
    for name in &orders {
        ends_well(place, &after, name)?;
    }
    by_one_job_each(&watched.end()?, &former, orders.len())?;
    manciple(&after.url, &["provision", "manciple-files", "plain", "by-image"])?;
    let age = |job: &Value| job["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    let last = jobs(place)?.into_values().max_by_key(age).context("there is no Job")?;
    brought_by_the_image(place, &last)?;
    for name in orders.iter().map(String::as_str).chain(["by-image"]) {
        manciple(&after.url, &["deprovision", name])?;
    }
    Ok(())
}

/// Orders these, and waits until a pod works for each.
fn begin(
    place: &Place<'_>,
    replica: &str,
    orders: &[String],
    former: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let forward = place.forward(replica)?;
    for name in orders {
        manciple(&forward.url, &["provision", "manciple-files", "plain", name, "--no-wait"])?;
    }
    place.until("a pod works for each order", |place| {
        let pods = place.get("pods")?;
        let job = |pod: &Value| pod["metadata"]["labels"]["job-name"].as_str().map(str::to_owned);
        let pods = pods["items"].as_array().into_iter().flatten();
        // One may be over already.
        let begun = pods.filter(|pod| pod["status"]["phase"] != "Pending").filter_map(job);
        let begun = begun.filter(|job| job.starts_with("provision-") && !former.contains(job));
        Ok(begun.count() >= orders.len())
    })?;
    let mut going = 0;
    for name in orders {
        let operation = operation(&forward, name)?;
        going += usize::from(operation["state"] != "succeeded");
    }
    println!("{going} operations go on when replicas are replaced");
    ensure!(going > 0, "all of them are over");
    Ok(())
}

/// Replaces the replicas, and sends requests until they are replaced; returns what was ordered meanwhile, and how many
/// requests were answered.
fn roll(place: &Place<'_>, orders: &[String]) -> anyhow::Result<(Vec<String>, usize)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| platform(place, orders, &over));
        let rolled = place.change(&settings("init-container")).and_then(|()| place.is_rolled_out());
        over.store(true, Ordering::Relaxed);
        let asked = asking.join().map_err(|_| anyhow::anyhow!("the platform panicked"))?;
        rolled.and(asked)
    })
}

/// Plays a platform that sends one request after the other.
fn platform(
    place: &Place<'_>,
    orders: &[String],
    over: &AtomicBool,
) -> anyhow::Result<(Vec<String>, usize)> {
    let mut service = Service::of(place);
    let mut ordered = Vec::new();
    while !over.load(Ordering::Relaxed) {
        service.ask("GET", "catalog", "", 200)?;
        for name in orders {
            service.ask("GET", &format!("service_instances/{name}/last_operation"), "", 200)?;
        }
        if ordered.len() < MEANWHILE {
            ordered.push(service.order(&format!("meanwhile-{}", ordered.len()))?);
        }
    }
    ensure!(!ordered.is_empty(), "nothing was ordered while replicas were replaced");
    Ok((ordered, service.asked))
}

/// A stand-in for a Service: each connection goes to one of the replicas that are ready just then.
struct Service<'p> {
    place: &'p Place<'p>,
    forwards: BTreeMap<String, Forward>,
    asked: usize,
}

impl<'p> Service<'p> {
    fn of(place: &'p Place<'p>) -> Self {
        Self { place, forwards: BTreeMap::new(), asked: 0 }
    }

    fn order(&mut self, name: &str) -> anyhow::Result<String> {
        let path = format!("service_instances/{name}?accepts_incomplete=true");
        let body = json!({
            "service_id": "manciple-files", "plan_id": "manciple-files-plain",
            "organization_guid": "o", "space_guid": "s",
        });
        self.ask("PUT", &path, &body.to_string(), 202)?;
        Ok(name.to_owned())
    }

    /// Sends a request, and checks the status of its answer. It may stay unanswered only if the Service does not lead
    /// to that replica any more, or kubectl, which forwards the port, has ended: it is then sent again.
    fn ask(&mut self, method: &str, path: &str, body: &str, wanted: u16) -> anyhow::Result<()> {
        loop {
            let ready = self.ready()?;
            let pod = &ready[self.asked % ready.len()];
            if !self.forwards.contains_key(pod) {
                match self.place.forward(&format!("pod/{pod}")) {
                    Ok(forward) => drop(self.forwards.insert(pod.clone(), forward)),
                    Err(_) if !self.ready()?.contains(pod) => continue,
                    Err(error) => return Err(error),
                }
            }
            let forward = self.forwards.get_mut(pod).context("it was just made")?;
            self.asked += 1;
            match ask(&forward.url, method, path, body)? {
                Some(status) => {
                    ensure!(status == wanted, "{method} {path}: {status}, not {wanted}, by {pod}");
                    return Ok(());
                }
                None if forward.has_ended()? => drop(self.forwards.remove(pod)),
                None => {
                    ensure!(!self.ready()?.contains(pod), "{method} {path}: {pod} does not answer");
                    println!("{pod} was asked after the Service led to it");
                }
            }
        }
    }

    /// The replicas that the Service leads to, of which there is always one.
    fn ready(&mut self) -> anyhow::Result<Vec<String>> {
        let endpoints = self.place.get("endpoints/manciple")?;
        let subsets = endpoints["subsets"].as_array().into_iter().flatten();
        let addresses =
            subsets.flat_map(|subset| subset["addresses"].as_array().into_iter().flatten());
        let names = addresses.filter_map(|address| address["targetRef"]["name"].as_str());
        let ready: Vec<String> = names.map(str::to_owned).collect();
        ensure!(!ready.is_empty(), "the Service leads to nobody");
        self.forwards.retain(|pod, _| ready.contains(pod));
        Ok(ready)
    }
}

fn operation(forward: &Forward, name: &str) -> anyhow::Result<Value> {
    let said = manciple(&forward.url, &["status", name, "-o", "json"])?;
    Ok(serde_json::from_str::<Value>(&said)?["operation"].take())
}

/// Checks that an operation ends well, by its first attempt.
pub(super) fn ends_well(place: &Place<'_>, forward: &Forward, name: &str) -> anyhow::Result<()> {
    place.until(&format!("{name} is ready"), |_| {
        let operation = operation(forward, name)?;
        let first = operation["attempt"] == 1 && operation["state"] != "failed";
        ensure!(first, "{name}: {operation}");
        Ok(operation["state"] == "succeeded")
    })
}

/// The Jobs of provisions, by name.
pub(super) fn jobs(place: &Place<'_>) -> anyhow::Result<BTreeMap<String, Value>> {
    let jobs = place.get("jobs")?;
    let jobs = jobs["items"].as_array().into_iter().flatten();
    let named = jobs.filter_map(|job| Some((job["metadata"]["name"].as_str()?, job)));
    let named = named.filter(|(name, _)| name.starts_with("provision-"));
    Ok(named.map(|(name, job)| (name.to_owned(), job.clone())).collect())
}

/// Checks that each order has had one Job, by its uid.
pub(super) fn by_one_job_each(
    uids: &BTreeMap<String, BTreeSet<String>>,
    former: &BTreeSet<String>,
    orders: usize,
) -> anyhow::Result<()> {
    let of_these: Vec<_> = uids
        .iter()
        .filter(|(name, _)| name.starts_with("provision-") && !former.contains(*name))
        .collect();
    let once = of_these.iter().all(|(_, uids)| uids.len() == 1);
    ensure!(once && of_these.len() == orders, "of {orders} orders these were Jobs: {of_these:?}");
    Ok(())
}

/// Checks that an order after the replacement of the replicas is run with the settings of the new ones: an old one may
/// go on answering, but does not lead any more.
fn by_the_settings_given_last(place: &Place<'_>) -> anyhow::Result<String> {
    let former = jobs(place)?;
    let name = Service::of(place).order("afterwards")?;
    place.until("its run is begun", |place| {
        let jobs = jobs(place)?;
        let job = jobs.iter().find(|(name, _)| !former.contains_key(*name));
        job.map_or(Ok(false), |(_, job)| brought_by_the_image(place, job).map(|()| true))
    })?;
    Ok(name)
}

/// Checks that a run has the agent from the image of the replicas, which no setting named.
fn brought_by_the_image(place: &Place<'_>, job: &Value) -> anyhow::Result<()> {
    let deployment = place.get("deployment/manciple")?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    let pod = &job["spec"]["template"]["spec"];
    let brings = pod["initContainers"].as_array().into_iter().flatten();
    let brings = brings.filter(|container| container["image"] == *image).count();
    ensure!(brings == 1, "the agent is to come from {image}: {pod}");
    let agents = |volume: &Value| {
        volume["configMap"]["name"].as_str().is_some_and(|name| name.starts_with("agent-"))
    };
    let mounted = pod["volumes"].as_array().into_iter().flatten().any(agents);
    ensure!(!mounted, "and from no ConfigMap: {pod}");
    Ok(())
}

/// A watch that collects the names and uids of all Jobs from now on.
pub(super) struct Watched(Child);

impl Watched {
    pub(super) fn start(place: &Place<'_>) -> anyhow::Result<Self> {
        let columns = "custom-columns=NAME:.metadata.name,UID:.metadata.uid";
        let mut kubectl = place.command(&["get", "jobs", "--watch", "--no-headers", "-o", columns]);
        Ok(Self(kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
    }

    /// Ends the watch, and returns the Jobs that were seen.
    pub(super) fn end(mut self) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
        let mut output = self.0.stdout.take().context("kubectl prints nothing")?;
        self.0.kill()?;
        let said = std::io::read_to_string(&mut output)?;
        let mut uids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in said.lines() {
            if let Some((name, uid)) = line.split_once(char::is_whitespace) {
                uids.entry(name.to_owned()).or_default().insert(uid.trim().to_owned());
            }
        }
        Ok(uids)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
