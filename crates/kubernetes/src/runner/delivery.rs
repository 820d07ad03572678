//! The delivery of the agent into a pod whose image is not ours.
//!
//! ```text
//! config map       ConfigMap agent-… ──mount──▶ /manciple-agent/agent ──unpacks──▶ /manciple/agent
//! init container   our image ──manciple-agent install──▶ /manciple/agent
//! ```
//!
//! A kubelet notices the end of an init container when it checks all containers again, once a second; a ConfigMap is
//! there before the first container begins. The files given to a run come in the same way: mounted, or copied. A server
//! with image volumes could mount our image itself: that would be another variant here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::{AGENT_FILE, GIVEN_VARIABLE, Order};
use serde_json::{Value, json};

use super::architecture;
use crate::names;

/// The name of the init container.
pub(super) const AGENT_CONTAINER: &str = "agent";
/// The key of the ConfigMap with the agent.
pub(super) const AGENT_KEY: &str = "agent";
/// The mount path of the pod's own volume: for the agent, and for the files that it exchanges with the broker. The
/// volume is in memory if confidential files are among them: mounting one in memory takes a tenth of the CPU time that
/// a pod costs.
pub(crate) const DIRECTORY: &str = "/manciple";
/// How many bytes a ConfigMap holds.
const MAX_BYTES: u64 = 1024 * 1024;

pub(crate) const VOLUME: &str = "manciple";
pub(crate) const PACKED_VOLUME: &str = "manciple-agent";
const PACKED: &str = "/manciple-agent";
const GIVEN: &str = "/manciple-given";
const GIVEN_VOLUME: &str = "given";

/// Our volumes and mount paths in the pods of runs, beside those of the settings.
pub(crate) const OUR_VOLUMES: [&str; 3] = [VOLUME, PACKED_VOLUME, GIVEN_VOLUME];
pub(crate) const OUR_MOUNTS: [&str; 3] = [DIRECTORY, PACKED, GIVEN];

/// How the agent gets into pods.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// The agent is mounted from a ConfigMap, which the runner makes: nothing has to run before the broker's container.
    ConfigMap(PackedAgent),
    /// An init container copies the agent: that takes a second or more for each run, for clusters on which nothing may
    /// be executed from a ConfigMap.
    InitContainer {
        /// The image that has the agent: Manciple's own.
        image: String,
        /// The path of the agent in that image.
        path: String,
        /// The init container's requests and limits, as in a container, instead of ours.
        resources: Option<Value>,
    },
}

/// The agent, packed so that it fits into a ConfigMap. Cheap to clone.
#[derive(Clone)]
pub struct PackedAgent {
    name: Arc<str>,
    content: Arc<[u8]>,
    /// The processor architecture, as node labels name it; `None` if it is an unknown one.
    architecture: Option<&'static str>,
}

/// Why a file is no packed agent.
#[derive(Debug, thiserror::Error)]
pub enum PackedError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The file is too large for a ConfigMap.
    #[error("{0} has {1} bytes, of which a ConfigMap holds 1048576: it is not the packed agent")]
    TooLarge(PathBuf, u64),
    /// The file is no ELF program.
    #[error("{0} is not a program")]
    NoProgram(PathBuf),
}

impl PackedAgent {
    /// Reads the packed agent, which `cargo xtask agent` leaves as `manciple-agent.packed`.
    ///
    /// # Errors
    /// If the file cannot be read, is no program, or has more than 1 MiB.
    pub fn read(path: &Path) -> Result<Self, PackedError> {
        let unreadable = |error| PackedError::Unreadable(path.to_owned(), error);
        let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if bytes > MAX_BYTES {
            return Err(PackedError::TooLarge(path.to_owned(), bytes));
        }
        let content = std::fs::read(path).map_err(unreadable)?;
        if !content.starts_with(b"\x7FELF") {
            return Err(PackedError::NoProgram(path.to_owned()));
        }
        let architecture = architecture::of(&content);
        Ok(Self { name: names::agent(&content).into(), content: content.into(), architecture })
    }

    /// The name of the ConfigMap: the same content has the same name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }
}

impl std::fmt::Debug for PackedAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PackedAgent").field(&self.name).finish()
    }
}

/// The parts of a pod that a delivery needs.
pub(crate) struct Parts {
    /// The path of the agent that the container starts.
    pub(crate) program: String,
    /// Whether the agent has to be told where to unpack itself.
    pub(crate) unpacks: bool,
    pub(crate) mounts: Vec<Value>,
    pub(crate) init_containers: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
}

impl Parts {
    /// The mounts for one of several containers, so that none can change what another executes: where the agent unpacks
    /// itself, it does so into this volume, which no other container has; where it was copied, the mount is read-only.
    pub(crate) fn mounts_apart(&mut self, volume: &str) -> Vec<Value> {
        let mut mounts = self.mounts.clone();
        for mount in mounts.iter_mut().filter(|mount| mount["name"] == VOLUME) {
            match self.unpacks {
                true => mount["name"] = json!(volume),
                false => mount["readOnly"] = json!(true),
            }
        }
        if self.unpacks {
            self.volumes.retain(|shared| shared["name"] != VOLUME);
            self.volumes.push(json!({"name": volume, "emptyDir": {}}));
        }
        mounts
    }
}

/// Delivery by an init container of this image, with the agent where our images have it.
impl From<&str> for Delivery {
    fn from(image: &str) -> Self {
        Self::InitContainer {
            image: image.to_owned(),
            path: Self::PATH.to_owned(),
            resources: None,
        }
    }
}

impl From<PackedAgent> for Delivery {
    fn from(agent: PackedAgent) -> Self {
        Self::ConfigMap(agent)
    }
}

impl Delivery {
    /// The path of the agent in our images.
    pub const PATH: &'static str = "/manciple-agent";

    /// The packed agent for the ConfigMap that pods mount, if the delivery uses one.
    pub(crate) fn config_map(&self) -> Option<&PackedAgent> {
        match self {
            Self::ConfigMap(agent) => Some(agent),
            Self::InitContainer { .. } => None,
        }
    }

    /// Has a pod scheduled on a node where the agent can run. An image may be for several architectures; the file of a
    /// ConfigMap is for one.
    pub(crate) fn choose_nodes(&self, pod: &mut Value) {
        if let Self::ConfigMap(agent) = self {
            architecture::choose(pod, agent.architecture);
        }
    }

    /// Notes in the order where the given files are mounted.
    pub(super) fn tell(&self, order: &mut Order) {
        let mounted = self.config_map().is_some() && !order.given.is_empty();
        order.given_dir = mounted.then(|| GIVEN.into());
    }

    /// The parts of a pod for this delivery. `given` names the Secret with the files given to the run, if there are
    /// any; `exchanges`: whether confidential files are exchanged.
    pub(crate) fn parts(&self, given: Option<&str>, exchanges: bool, context: &Value) -> Parts {
        let ours = json!({"name": VOLUME, "mountPath": DIRECTORY});
        let is_copied = given.is_some() && self.config_map().is_none();
        let medium = if exchanges || is_copied { json!({"medium": "Memory"}) } else { json!({}) };
        let mut parts = Parts {
            program: installed(),
            unpacks: false,
            mounts: vec![ours.clone()],
            init_containers: Vec::new(),
            volumes: vec![json!({"name": VOLUME, "emptyDir": medium})],
        };
        let secret =
            given.map(|name| json!({"name": GIVEN_VOLUME, "secret": {"secretName": name}}));
        let mount = json!({"name": GIVEN_VOLUME, "mountPath": GIVEN, "readOnly": true});
        let given = given.map(|_| mount);
        parts.volumes.extend(secret);
        match self {
            Self::ConfigMap(agent) => {
                parts.program = format!("{PACKED}/{AGENT_KEY}");
                parts.unpacks = true;
                let source = json!({"name": agent.name(), "defaultMode": 0o555});
                parts.volumes.push(json!({"name": PACKED_VOLUME, "configMap": source}));
                let mount = json!({"name": PACKED_VOLUME, "mountPath": PACKED, "readOnly": true});
                parts.mounts.push(mount);
                parts.mounts.extend(given);
            }
            Self::InitContainer { image, path, resources } => {
                let mut container = json!({
                    "name": AGENT_CONTAINER,
                    "image": image,
                    "command": [path, "install", DIRECTORY],
                    "securityContext": context,
                    "volumeMounts": [ours],
                    "resources": resources_of_agent(resources.as_ref(), "32Mi"),
                });
                if let Some(given) = given {
                    container["env"] = json!([{"name": GIVEN_VARIABLE, "value": GIVEN}]);
                    container["volumeMounts"] = json!([ours, given]);
                }
                parts.init_containers.push(container);
            }
        }
        parts
    }
}

/// The resources of a container of the agent's own, with this memory limit, unless the operator gives others.
pub(crate) fn resources_of_agent(given: Option<&Value>, memory: &str) -> Value {
    let ours =
        || json!({"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": memory}});
    given.cloned().unwrap_or_else(ours)
}

/// The path of the agent once it is copied, or has unpacked itself.
pub(crate) fn installed() -> String {
    format!("{DIRECTORY}/{AGENT_FILE}")
}

/// A container's security context that satisfies the pod security standard "restricted".
pub(crate) fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &[u8]) -> Result<PackedAgent, PackedError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        PackedAgent::read(file.path())
    }

    #[test]
    fn what_is_no_packed_agent_is_refused() {
        assert!(matches!(read(b"#!/bin/sh"), Err(PackedError::NoProgram(_))));
        assert!(matches!(read(b""), Err(PackedError::NoProgram(_))));
        let mut large = b"\x7FELF".to_vec();
        large.resize(1024 * 1024, 0);
        read(&large).unwrap();
        large.push(0);
        assert!(matches!(read(&large), Err(PackedError::TooLarge(_, 1_048_577))));
        let nowhere = PackedAgent::read(Path::new("/nowhere"));
        assert!(matches!(nowhere, Err(PackedError::Unreadable(..))));
    }

    #[test]
    fn the_name_is_that_of_the_content() {
        let name = |content: &[u8]| read(content).unwrap().name().to_owned();
        assert_eq!(name(b"\x7FELF1"), name(b"\x7FELF1"));
        assert_ne!(name(b"\x7FELF1"), name(b"\x7FELF2"));
    }

    #[test]
    fn what_is_confidential_is_in_memory_and_nothing_else_is() {
        let packed = read(b"\x7FELF").unwrap();
        let (mounts, copies) = (Delivery::from(packed), Delivery::from("image"));
        for (delivery, given, exchanges, in_memory) in [
            (&mounts, None, false, false),
            (&mounts, Some("run"), false, false),
            (&mounts, Some("run"), true, true),
            (&copies, None, false, false),
            (&copies, Some("run"), false, true),
            (&copies, None, true, true),
        ] {
            let parts = delivery.parts(given, exchanges, &restricted());
            let volume = parts.volumes.iter().find(|volume| volume["name"] == VOLUME).unwrap();
            let medium = &volume["emptyDir"]["medium"];
            assert_eq!(medium == "Memory", in_memory, "{delivery:?}, {given:?}, {exchanges}");
        }
    }

    #[test]
    fn what_brings_the_agent_asks_for_what_an_operator_says() {
        let given = json!({"limits": {"cpu": "50m", "memory": "64Mi"}});
        let ours =
            json!({"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}});
        for (resources, expected) in [(None, &ours), (Some(given.clone()), &given)] {
            let (image, path) = ("image".to_owned(), Delivery::PATH.to_owned());
            let delivery = Delivery::InitContainer { image, path, resources };
            let parts = delivery.parts(None, false, &restricted());
            assert_eq!(parts.init_containers[0]["resources"], *expected);
        }
    }

    #[test]
    fn the_loader_is_told_where_by_the_variable_that_it_looks_for() {
        assert_eq!(agent::TARGET_VARIABLE, loader::TARGET_VARIABLE);
    }

    #[test]
    fn the_packed_agent_that_was_built_fits() {
        let path = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
        PackedAgent::read(&path).unwrap();
        assert_eq!(MAX_BYTES, testkit::cluster::CONFIG_MAP_BYTES as u64);
    }
}
