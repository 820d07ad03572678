//! How the agent comes into a pod whose image we did not make.
//!
//! ```text
//! config map       ConfigMap agent-… ──mount──▶ /manciple-agent/agent ──unpacks──▶ /manciple/agent
//! init container   our image ──manciple-agent install──▶ /manciple/agent
//! ```
//!
//! A kubelet notices the end of an init container when it looks at all containers again, which it does once a
//! second; a ConfigMap is there before the first container begins. What is given to a run comes in the same
//! way: mounted, or copied. A server with image volumes could mount our image itself: another variant here.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::{AGENT_FILE, GIVEN_VARIABLE, Order};
use serde_json::{Value, json};

use super::architecture;
use crate::names;

/// The init container.
pub(super) const AGENT_CONTAINER: &str = "agent";
/// The key of the ConfigMap.
pub(super) const AGENT_KEY: &str = "agent";
/// Where the agent is, and what it and its broker exchange: the pod's own volume, in memory if what is confidential
/// is among it. One in memory is mounted for itself, which is a tenth of the CPU that a pod costs.
pub(crate) const DIRECTORY: &str = "/manciple";
/// What the keys of a ConfigMap hold together, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

pub(crate) const VOLUME: &str = "manciple";
pub(crate) const PACKED_VOLUME: &str = "manciple-agent";
const PACKED: &str = "/manciple-agent";
const GIVEN: &str = "/manciple-given";
const GIVEN_VOLUME: &str = "given";

/// The volumes that pods of runs have, and where, beside what their settings say.
pub(crate) const OUR_VOLUMES: [&str; 3] = [VOLUME, PACKED_VOLUME, GIVEN_VOLUME];
pub(crate) const OUR_MOUNTS: [&str; 3] = [DIRECTORY, PACKED, GIVEN];

/// How the agent comes into pods.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Mounted from a ConfigMap, which the runner makes: nothing has to run before the broker's container.
    ConfigMap(PackedAgent),
    /// Copied by an init container: a second or more for each run, for clusters on which nothing may be
    /// executed from a ConfigMap.
    InitContainer {
        /// The image that has the agent: Manciple's own.
        image: String,
        /// Where it is in that image.
        path: String,
        /// Its requests and limits, as in a container, instead of ours.
        resources: Option<Value>,
    },
}

/// The agent in a file that fits into a ConfigMap. Cheap to clone.
#[derive(Clone)]
pub struct PackedAgent {
    name: Arc<str>,
    content: Arc<[u8]>,
    /// Of which processors it is, as nodes say it; `None`: of some that nothing is known of.
    architecture: Option<&'static str>,
}

/// Why a file is no packed agent.
#[derive(Debug, thiserror::Error)]
pub enum PackedError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// It does not fit.
    #[error("{0} has {1} bytes, of which a ConfigMap holds 1048576: it is not the packed agent")]
    TooLarge(PathBuf, u64),
    /// It is something else.
    #[error("{0} is not a program")]
    NoProgram(PathBuf),
}

impl PackedAgent {
    /// Reads what `cargo xtask agent` leaves as `manciple-agent.packed`.
    ///
    /// # Errors
    /// If it cannot be read, is no program, or has more than 1 MiB.
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

    /// The ConfigMap's: the same content has the same name.
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

/// What a way asks of a pod.
pub(crate) struct Parts {
    /// The agent, as a container starts it.
    pub(crate) program: String,
    /// Whether it has to be told where to unpack itself to.
    pub(crate) unpacks: bool,
    pub(crate) mounts: Vec<Value>,
    pub(crate) init_containers: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
}

impl Parts {
    /// The mounts of one of several containers, none of which can change what another executes: where the agent
    /// unpacks itself, it does so into this volume, which nobody else has; where it was copied, nobody writes.
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

/// An init container of this image, with the agent where our images have it.
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
    /// Where our images have the agent.
    pub const PATH: &'static str = "/manciple-agent";

    /// The ConfigMap that pods mount.
    pub(crate) fn config_map(&self) -> Option<&PackedAgent> {
        match self {
            Self::ConfigMap(agent) => Some(agent),
            Self::InitContainer { .. } => None,
        }
    }

    /// Has a pod be on a node where the agent can run. An image may be of several architectures, and the file of a
    /// ConfigMap is not.
    pub(crate) fn choose_nodes(&self, pod: &mut Value) {
        if let Self::ConfigMap(agent) = self {
            architecture::choose(pod, agent.architecture);
        }
    }

    /// Says in the order where things are.
    pub(super) fn tell(&self, order: &mut Order) {
        let mounted = self.config_map().is_some() && !order.given.is_empty();
        order.given_dir = mounted.then(|| GIVEN.into());
    }

    /// `given` names the Secret of what is given to the run, if anything is; `exchanges`, whether something
    /// confidential is exchanged in files.
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

/// What a container of the agent's own asks for, and what its memory is limited to, unless an operator says it all.
pub(crate) fn resources_of_agent(given: Option<&Value>, memory: &str) -> Value {
    let ours =
        || json!({"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": memory}});
    given.cloned().unwrap_or_else(ours)
}

/// Where the agent is that was copied, or has unpacked itself.
pub(crate) fn installed() -> String {
    format!("{DIRECTORY}/{AGENT_FILE}")
}

/// As the pod security standard "restricted" asks.
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
