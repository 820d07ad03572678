//! The parts as processes: started apart from this one, known by id and start time, ended by id.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::Place;
use super::configuration;

/// The parts that are started first: they wait for what they need by themselves, or need nothing. Of the others a
/// kubelet ends if its runtime does not listen yet, and a controller manager ten seconds after it began.
pub(super) const FIRST: [&str; 3] = ["etcd", "containerd", "kube-apiserver"];

/// Starts the parts that `is_meant` selects, and waits for none.
pub(super) fn start(place: &Place, is_meant: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = vec![place.programs.join("bin")];
    folders.extend(std::env::split_paths(&path));
    let path = std::env::join_paths(folders)?;
    for (name, arguments) in configuration::parts(place) {
        if !is_meant(name) {
            continue;
        }
        let log = File::create(place.state.join(format!("{name}.log")))?;
        let mut command = Command::new(place.program(name));
        command
            .args(&arguments)
            .env("PATH", &path)
            // As for the control planes of tests: half of what they do would be to collect garbage.
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        // Not waited for: it outlives this program.
        let id = command.spawn().with_context(|| format!("{name} cannot be started"))?.id();
        let since = started(id).with_context(|| format!("{name} ended at once"))?;
        fs::write(place.state.join(format!("{name}.pid")), format!("{id} {since}"))?;
    }
    Ok(())
}

/// Waits until the runtime of the node listens.
pub(super) fn until_runtime(place: &Place, patience: Duration) -> anyhow::Result<()> {
    let (socket, begun) = (configuration::containerd_socket(place), Instant::now());
    while let Err(error) = UnixStream::connect(&socket) {
        check(place)?;
        if begun.elapsed() > patience {
            bail!("containerd does not listen after {patience:?}: {error}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether the cluster's API server runs, however busy it is.
pub(super) fn serves(place: &Place) -> bool {
    alive(place, "kube-apiserver").is_some()
}

/// Fails, and names the part, if one that was started has ended.
pub(super) fn check(place: &Place) -> anyhow::Result<()> {
    for (name, _) in configuration::parts(place) {
        let was_started = place.state.join(format!("{name}.pid")).is_file();
        if was_started && alive(place, name).is_none() {
            let log =
                fs::read_to_string(place.state.join(format!("{name}.log"))).unwrap_or_default();
            let from = log.char_indices().rev().nth(1500).map_or(0, |(at, _)| at);
            bail!("{name} has ended:\n{}", &log[from..]);
        }
    }
    Ok(())
}

/// Ends every part that was started here, pods included. It is no error if none is there.
pub(super) fn stop(place: &Place) -> anyhow::Result<()> {
    let mut parts: Vec<&str> = configuration::parts(place).iter().map(|(name, _)| *name).collect();
    parts.reverse();
    // The kubelet first, which would start again what is ended.
    for name in &parts {
        if *name == "containerd" {
            end_pods(place);
        }
        if let Some(id) = alive(place, name) {
            end(id)?;
        }
    }
    Ok(())
}

/// Unmounts whatever is mounted below a folder, the innermost first.
pub(super) fn unmount(folder: &Path) {
    for path in mounted_below(&[folder]).iter().rev() {
        let _ = Command::new("umount").args(["-l", path]).output();
    }
}

/// The mounts below folders, in the order in which they were made.
pub(super) fn mounted_below(folders: &[&Path]) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let is_below = |path: &&str| folders.iter().any(|folder| Path::new(path).starts_with(folder));
    paths.filter(is_below).map(str::to_owned).collect()
}

/// The processes whose command lines name one of these folders, but for those that only look at a cluster.
pub(super) fn naming(folders: &[&Path]) -> Vec<String> {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let part = |line: &str| {
        folders.iter().any(|folder| line.contains(folder)) && !line.contains("kubectl")
    };
    processes(part).into_iter().map(|id| format!("process {id}")).collect()
}

/// Ends containers and their shims, which outlive containerd, and removes the pods' networks.
fn end_pods(place: &Place) {
    let socket = configuration::containerd_socket(place).display().to_string();
    let mut networks = Vec::new();
    for shim in processes(|line| line.contains("containerd-shim") && line.contains(&socket)) {
        for container in children(shim) {
            let network = fs::metadata(format!("/proc/{container}/ns/net"));
            networks.extend(network.map(|namespace| namespace.ino()));
            let _ = end(container);
        }
        let _ = end(shim);
    }
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with("cni-")
            && entry.metadata().is_ok_and(|namespace| networks.contains(&namespace.ino()));
        if ours {
            let _ = Command::new("umount").arg(entry.path()).output();
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes what the kubelet and the network plugins keep in places of their own, whatever they are told.
pub(super) fn sweep() {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    for log in entries("/var/log/containers").filter(|log| fs::metadata(log.path()).is_err()) {
        let _ = fs::remove_file(log.path());
    }
    for result in entries("/var/lib/cni/results") {
        if result.file_name().to_string_lossy().starts_with(configuration::NETWORK) {
            let _ = fs::remove_file(result.path());
        }
    }
    for controller in entries("/sys/fs/cgroup") {
        remove_groups(&controller.path().join("kubepods"));
    }
    remove_groups(Path::new("/sys/fs/cgroup/kubepods"));
}

/// Removes control groups, the innermost first; one with a process in it stays.
fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The id of a part, if it is the process that was started here and not one that has its id now.
fn alive(place: &Place, name: &str) -> Option<u32> {
    let kept = fs::read_to_string(place.state.join(format!("{name}.pid"))).ok()?;
    let (id, since) = kept.split_once(' ')?;
    let id = id.parse().ok()?;
    (started(id)? == since).then_some(id)
}

/// The start of a process, in clock ticks since boot; `None` if there is no such process, or it is dead.
fn started(id: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19).map(|&field| field.to_owned()))?
}

fn processes(wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        wanted(&String::from_utf8_lossy(&line).replace('\0', " "))
    })
    .collect()
}

fn children(id: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Ends a process: by SIGTERM, and by SIGKILL after ten seconds.
fn end(id: u32) -> anyhow::Result<()> {
    for (signal, patience) in [("-TERM", 10), ("-KILL", 10)] {
        let _ = Command::new("kill").args([signal, &id.to_string()]).output();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(patience) {
            if started(id).is_none() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    bail!("process {id} does not end")
}
