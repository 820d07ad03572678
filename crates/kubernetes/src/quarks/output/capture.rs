//! How the output of containers, which they write to `/mnt/quarks` or print, reaches the controller.
//!
//! ```text
//! wrapped   container: agent wrap ──▶ the user's command ──▶ /mnt/quarks/*.json │ stdout ──▶ its own message
//! sidecar   container: as it is ──▶ volume output-… ──▶ output-persist: agent gather ──▶ its message
//! log       container: as it is ──▶ stdout and stderr, as the runtime has them in one
//! ```
//!
//! A container whose command the template names is wrapped: that costs no second container, and its exit status and its
//! output arrive together. Where an image's own entrypoint runs, which is not known here, a sidecar reads the files: a
//! native one, which the kubelet ends, where the API server has them, else one that is told by an annotation that the
//! others have ended; and what such a container prints is read from its log. None of them has a token or needs a
//! network.
//!
//! The last releases of ExtendedJob's operator read a file of one name instead of what is printed, and its examples
//! write that: so there is a directory for it too, and the file is kept where there is one.

use std::collections::HashSet;

use agent::{
    GATHERING_VARIABLE, Gathering, MAX_MESSAGE_BYTES, Outputs, POD_MESSAGES_BYTES, PublicKey,
    TARGET_VARIABLE,
};
use serde_json::{Value, json};

use crate::quarks::api::naming::sanitize;
use crate::quarks::api::output_map::{LEFT, OutputMap, PRINTED};
use crate::quarks::api::pod::{SIDECAR, TOLD, TOLD_ENDED, TOLD_VOLUME};
use crate::runner::delivery::{
    DIRECTORY, Delivery, Parts, installed, resources_of_agent, restricted,
};

/// Where users write their output.
const OUTPUT: &str = "/mnt/quarks/";
/// The longest variable that a process can begin with, in bytes, including its name: with the byte that ends it Linux
/// takes 128 KiB (`MAX_ARG_STRLEN`, execve(2)).
pub(crate) const MAX_VARIABLE_BYTES: usize = 128 * 1024 - 1;
/// How many containers others may put into a pod, as init containers, as sidecars or to debug it, before reports are
/// cut.
const OTHERS: usize = 3;

/// What is needed to add the agent to a Job.
pub(crate) struct CaptureContext<'m> {
    pub(crate) delivery: &'m Delivery,
    pub(crate) key: PublicKey,
    /// Whether the API server knows native sidecars, which the kubelet ends (all do from Kubernetes 1.32 on).
    pub(crate) native_sidecars: bool,
    /// Whether containers may be wrapped.
    pub(crate) wraps: bool,
    /// Requests and limits of our sidecar, instead of the default ones.
    pub(crate) resources: Option<&'m Value>,
}

/// The output that is gathered, and for which run.
struct Capture<'c> {
    run: &'c str,
    map: &'c OutputMap,
    means: &'c CaptureContext<'c>,
    /// How many containers share what the kubelet keeps of termination messages.
    sharers: usize,
}

/// Gives each container a directory for its output, and has the agent read the files that are mapped.
pub(crate) fn capture_files(
    pod: &mut Value,
    run: &str,
    map: &OutputMap,
    means: &CaptureContext<'_>,
) {
    let containers = list(pod, "containers");
    let mut volumes: Vec<Value> = containers.iter_mut().map(place).collect();
    let mapped: Vec<&Value> =
        containers.iter().filter(|it| map.files(name(it)).is_some()).collect();
    if !mapped.is_empty() {
        let wraps = means.wraps && mapped.iter().all(|container| can_be_wrapped(container));
        let mut parts = means.delivery.parts(None, false, &context(&mapped));
        let capture = Capture { run, map, means, sharers: sharers(pod) };
        match wraps {
            true => capture.wrap(pod, &mut parts, |name, files| {
                (name.to_owned(), Outputs { directory: OUTPUT.into(), files, stdout: None })
            }),
            false => volumes.extend(capture.watch(pod, &parts)),
        }
        means.delivery.choose_nodes(pod);
        begin_with(pod, parts.init_containers);
        volumes.extend(parts.volumes);
    }
    list(pod, "volumes").extend(volumes);
}

/// Has the agent take what the containers print whose command is known, or the one file that they leave. What the
/// others print is read from their logs.
pub(crate) fn capture_prints(
    pod: &mut Value,
    run: &str,
    map: &OutputMap,
    means: &CaptureContext<'_>,
) {
    let without = list(pod, "containers").iter_mut().filter(|container| !has_place(container));
    let volumes: Vec<Value> = without.map(place).collect();
    list(pod, "volumes").extend(volumes);
    let is_taken =
        |container: &Value| map.files(name(container)).is_some() && can_be_wrapped(container);
    if !means.wraps || !list(pod, "containers").iter().any(is_taken) {
        return;
    }
    let taken = list(pod, "containers").iter().filter(|it| is_taken(it)).collect::<Vec<_>>();
    let context = context(&taken);
    let capture = Capture { run, map, means, sharers: sharers(pod) };
    let mut parts = means.delivery.parts(None, false, &context);
    capture.wrap(pod, &mut parts, |name, _| {
        let (files, stdout) = (vec![LEFT.to_owned()], Some(PRINTED.to_owned()));
        (name.to_owned(), Outputs { directory: OUTPUT.into(), files, stdout })
    });
    means.delivery.choose_nodes(pod);
    begin_with(pod, parts.init_containers);
    list(pod, "volumes").extend(parts.volumes);
}

/// Puts the container that brings the agent before all others, under a name that none of them has. It is told from them
/// by what it mounts.
fn begin_with(pod: &mut Value, mut bringing: Vec<Value>) {
    let are_of_pod = has_resources(pod);
    for container in &mut bringing {
        container["name"] = json!(free(pod, name(container)));
        if are_of_pod {
            container["resources"] = json!({});
        }
    }
    list(pod, "initContainers").splice(..0, bringing);
}

/// Whether the pod as a whole has requests or limits, as it can from Kubernetes 1.34 on: what a container of ours asked
/// for would be more than all of it.
fn has_resources(pod: &Value) -> bool {
    ["requests", "limits"].iter().any(|member| pod["resources"][member].is_object())
}

/// The wanted name, or another like it that no container of the pod has.
fn free(pod: &Value, wanted: &str) -> String {
    let of = |member: &str| pod[member].as_array().into_iter().flatten().map(name);
    let taken: HashSet<&str> = of("initContainers").chain(of("containers")).collect();
    let ours = format!("manciple-{wanted}");
    let numbered = (2_u64..).map(|number| format!("{ours}-{number}"));
    let mut names = [wanted.to_owned(), ours.clone()].into_iter().chain(numbered);
    names.find(|name| !taken.contains(name.as_str())).unwrap_or_else(|| wanted.to_owned())
}

/// The security context of the container that brings the agent: it may do nothing, and has the user and the seccomp
/// profile of the first container whose output is read, if that sets them. A policy that lets that one in lets this one
/// in.
fn context(mapped: &[&Value]) -> Value {
    let mut context = restricted();
    for member in ["runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile"] {
        let said = mapped.first().map(|container| &container["securityContext"][member]);
        if let Some(said) = said.filter(|said| !said.is_null()) {
            context[member] = said.clone();
        }
    }
    context
}

/// Mounts a volume for the output of a container, and returns the volume.
fn place(container: &mut Value) -> Value {
    let volume = volume(container);
    list(container, "volumeMounts").push(json!({"name": volume, "mountPath": OUTPUT}));
    json!({"name": volume, "emptyDir": {}})
}

/// Whether the template mounts something at [`OUTPUT`].
fn has_place(container: &Value) -> bool {
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mut paths = mounts.filter_map(|mount| mount["mountPath"].as_str());
    paths.any(|path| path.trim_end_matches('/') == OUTPUT.trim_end_matches('/'))
}

/// How many containers the pod will have at most: those of the template, one that brings the agent, a sidecar, and
/// those of others.
fn sharers(pod: &mut Value) -> usize {
    list(pod, "containers").len() + list(pod, "initContainers").len() + 2 + OTHERS
}

impl Capture<'_> {
    /// Wraps the containers whose command is known and of which something is kept.
    fn wrap(
        &self,
        pod: &mut Value,
        parts: &mut Parts,
        outputs: impl Fn(&str, Vec<String>) -> (String, Outputs),
    ) {
        for container in list(pod, "containers") {
            let name = name(container).to_owned();
            let Some(files) = self.files(&name).filter(|_| can_be_wrapped(container)) else {
                continue;
            };
            let mut command = vec![json!(parts.program), json!("wrap"), json!("--")];
            command.append(list(container, "command"));
            container["command"] = Value::Array(command);
            let env = list(container, "env");
            env.extend(self.env(parts, [outputs(&name, files)]));
            let own = sanitize(&format!("manciple-agent-{name}"));
            list(container, "volumeMounts").extend(parts.mounts_apart(&own));
        }
    }

    /// Adds the sidecar, and returns the volume that it needs.
    fn watch(&self, pod: &mut Value, parts: &Parts) -> Option<Value> {
        let containers = list(pod, "containers");
        let mut mounts = parts.mounts.clone();
        let mut outputs = Vec::new();
        for container in containers.iter().filter(|it| self.map.files(name(it)).is_some()) {
            let (name, path) = (name(container), format!("{OUTPUT}{}", name(container)));
            mounts.push(json!({"name": volume(container), "mountPath": path}));
            let files = self.files(name).unwrap_or_default();
            let directory = path.into();
            outputs.push((name.to_owned(), Outputs { directory, files, stdout: None }));
        }
        // A container's image is on the node, and its user can read what it writes.
        let like = containers.iter().find(|it| self.map.files(name(it)).is_some())?.clone();
        let mut sidecar = json!({
            "name": SIDECAR,
            "image": like["image"],
            "env": self.env(parts, outputs),
            "resources": match has_resources(pod) {
                true => json!({}),
                false => resources_of_agent(self.means.resources, "64Mi"),
            },
        });
        for member in ["imagePullPolicy", "securityContext"] {
            if !like[member].is_null() {
                sidecar[member] = like[member].clone();
            }
        }
        let mut command = vec![json!(parts.program), json!("gather")];
        if self.means.native_sidecars {
            sidecar["restartPolicy"] = json!("Always");
            command.extend([json!("--once"), json!(format!("{DIRECTORY}/gathered"))]);
        }
        // A native sidecar is told, too: the kubelet ends it only after all containers, and a mesh's may never end.
        command.extend([json!("--until"), json!(format!("{TOLD}/ended"))]);
        sidecar["command"] = Value::Array(command);
        mounts.push(json!({"name": TOLD_VOLUME, "mountPath": TOLD, "readOnly": true}));
        let field = json!({"fieldPath": format!("metadata.annotations['{TOLD_ENDED}']")});
        let items = json!([{"path": "ended", "fieldRef": field}]);
        let told = json!({"name": TOLD_VOLUME, "downwardAPI": {"items": items}});
        sidecar["volumeMounts"] = Value::Array(mounts);
        let place = if self.means.native_sidecars { "initContainers" } else { "containers" };
        list(pod, place).push(sidecar);
        Some(told)
    }

    /// The files of a container that are kept.
    fn files(&self, container: &str) -> Option<Vec<String>> {
        Some(self.map.files(container)?.map(str::to_owned).collect())
    }

    fn env(
        &self,
        parts: &Parts,
        outputs: impl IntoIterator<Item = (String, Outputs)>,
    ) -> Vec<Value> {
        let outputs = outputs.into_iter().collect();
        let mut gathering = Gathering::new(self.run, outputs, self.means.key.clone());
        gathering.message_limit = MAX_MESSAGE_BYTES.min(POD_MESSAGES_BYTES / self.sharers);
        let mut env = vec![json!({
            "name": GATHERING_VARIABLE, "value": gathering.to_variable().unwrap_or_default(),
        })];
        if parts.unpacks {
            env.push(json!({"name": TARGET_VARIABLE, "value": installed()}));
        }
        env
    }
}

/// A container that could not begin because its agent is told of too many files: its name, and how many bytes that
/// variable has.
pub(crate) fn overtold(pod: &Value) -> Option<(&str, usize)> {
    let of = |member: &str| pod[member].as_array().into_iter().flatten();
    let told = |container: &Value| {
        let mut env = container["env"].as_array().into_iter().flatten();
        let ours = env.rfind(|variable| variable["name"] == GATHERING_VARIABLE)?;
        Some(GATHERING_VARIABLE.len() + "=".len() + ours["value"].as_str()?.len())
    };
    let all = of("initContainers").chain(of("containers"));
    let mut all = all.filter_map(|container| Some((name(container), told(container)?)));
    all.find(|(_, bytes)| *bytes > MAX_VARIABLE_BYTES)
}

/// The names of the containers after whose end a pod's work is done, for the annotation
/// [`CONTAINERS`](crate::quarks::api::pod::CONTAINERS): all of the template, unless its own annotation `says` which and
/// names at least one of them.
pub(crate) fn containers(pod: &Value, says: Option<&str>) -> String {
    let of = |member: &str| pod[member].as_array().into_iter().flatten();
    // Our sidecar too, wherever it is: what it has read is known once it has ended.
    let ours = of("initContainers").filter(|first| name(first) == SIDECAR);
    let is_said = |says: &str, name: &str| says.split(',').any(|said| said.trim() == name);
    // If an annotation that names none of them counted, the pod would be over before any has begun.
    let says = says.filter(|says| of("containers").any(|it| is_said(says, name(it))));
    let containers = of("containers").chain(ours);
    let counts = |name: &&str| says.is_none_or(|says| is_said(says, name)) || *name == SIDECAR;
    containers.map(name).filter(counts).collect::<Vec<_>>().join(",")
}

/// Whether a container can be wrapped: its command is known, and it does not use its termination message itself.
fn can_be_wrapped(container: &Value) -> bool {
    container["command"].as_array().is_some_and(|command| !command.is_empty())
        && container["terminationMessagePath"].is_null()
}

fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

fn volume(container: &Value) -> String {
    sanitize(&format!("output-{}", name(container)))
}

/// The list that is a member of an object; made if it is missing.
fn list<'v>(object: &'v mut Value, member: &str) -> &'v mut Vec<Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let list = &mut object[member];
    if !list.is_array() {
        *list = json!([]);
    }
    match list {
        Value::Array(list) => list,
        _ => unreachable!("it was just made one"),
    }
}
