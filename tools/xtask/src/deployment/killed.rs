//! The replica that carries operations out is ended by SIGKILL while one goes on: the other answers and takes over, the
//! operation ends well by its first attempt and in one Job, and the container is begun again.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::place::{Place, manciple};
use super::roll::{Watched, by_one_job_each, ends_well, jobs};

/// An order of the broker that [`deploy`](super::roll::deploy) deploys: it takes 24 s.
const ORDER: &str = "rolling-5-killed";

/// Runs the test, where two replicas are deployed.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
    let pods = place.run_out(2)?;
    let former: BTreeSet<_> = jobs(place)?.into_keys().collect();
    let watched = Watched::start(place)?;
    let leads = leader(place, &pods)?;
    let other = pods.iter().find(|pod| **pod != leads).context("there are two")?;
    let forward = place.forward(other)?;
    manciple(&forward.url, &["provision", "manciple-files", "plain", ORDER, "--no-wait"])?;
    place.until("a pod works for the order", |place| {
        let pods = place.get("pods")?;
        let pods = pods["items"].as_array().into_iter().flatten();
        let mut works = pods.filter(|pod| pod["status"]["phase"] == "Running");
        Ok(works.any(|pod| {
            let job = pod["metadata"]["labels"]["job-name"].as_str().unwrap_or_default();
            job.starts_with("provision-") && !former.contains(job)
        }))
    })?;
    kill(place, &leads)?;
    ends_well(place, &forward, ORDER)?;
    by_one_job_each(&watched.end()?, &former, 1)?;
    place.run_out(2)?;
    manciple(&forward.url, &["deprovision", ORDER])?;
    Ok(())
}

/// The replica that holds the Lease, once one of these does.
fn leader(place: &Place<'_>, pods: &[String]) -> anyhow::Result<String> {
    place.awaited("one of the replicas leads", |place| {
        let holders = holders(place)?;
        let holds = |pod: &&String| holders.iter().any(|holder| is_of(holder, pod));
        Ok(pods.iter().find(holds).cloned())
    })
}

/// The holders of Leases, as the Leases name them.
pub(super) fn holders(place: &Place<'_>) -> anyhow::Result<Vec<String>> {
    let leases = place.get("leases")?;
    let leases = leases["items"].as_array().into_iter().flatten();
    let holders = leases.filter_map(|lease| lease["spec"]["holderIdentity"].as_str());
    Ok(holders.filter(|holder| !holder.is_empty()).map(str::to_owned).collect())
}

/// Whether a holder of a Lease is this pod.
pub(super) fn is_of(holder: &str, pod: &str) -> bool {
    holder.starts_with(pod.trim_start_matches("pod/"))
}

/// Kills the process of a replica; if its node is another machine, deletes the pod without any time to end by itself.
fn kill(place: &Place<'_>, pod: &str) -> anyhow::Result<()> {
    let uid = place.get(pod)?["metadata"]["uid"].as_str().context("a pod has a uid")?.to_owned();
    let Some(process) = process_of(&uid)? else {
        println!("{pod} is not on this machine: it is removed");
        return place.run(&["delete", pod, "--grace-period=0", "--force"]).map(drop);
    };
    kill_process(process, Signal::KILL)?;
    place.until(&format!("{pod} was begun again"), |place| {
        let status = &place.get(pod)?["status"]["containerStatuses"][0];
        Ok(status["restartCount"].as_u64().unwrap_or_default() >= 1)
    })
}

/// The process `manciple` in a control group of a pod of this uid.
fn process_of(uid: &str) -> anyhow::Result<Option<Pid>> {
    let names = [uid.to_owned(), uid.replace('-', "_")];
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One may be gone by now.
        let read = |file: &str| -> String {
            let path: PathBuf = entry.path().join(file);
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let groups = read("cgroup");
        if read("comm").trim() == "manciple" && names.iter().any(|name| groups.contains(name)) {
            return Ok(Pid::from_raw(number));
        }
    }
    Ok(None)
}
