//! The manifest of a run: its Job and its Secret.
//!
//! ```text
//! agent, given ──▶ broker's container, the broker's image
//!                      agent run ──▶ /bin/broker
//! ```
//!
//! The pod has no token and needs no network connection to us. Everything confidential comes by a Secret. How it and
//! the agent get into the pod is decided by [`delivery`](super::delivery).

use std::path::PathBuf;
use std::time::Duration;

use agent::{ORDER_VARIABLE, Order, TARGET_VARIABLE};
use engine::ports::{Run, StartError};
use engine::record::Key;
use osb::jobs::contract::Capability;
use serde_json::{Map, Value, json};

use super::agents::AGENT;
use super::delivery::{PackedAgent, Parts, installed, restricted};
use super::labels::{
    BINDING_ID, BROKER_CONTAINER, GIVEN, INSTANCE_ID, KEPT, PROGRESS, RESOURCE, RUN,
};
use super::seen::Periods;
use super::settings::{JobSettings, PodPolicy};
use crate::names;

const CONFIG: &str = "/config";
const SECRET: &str = "/secret";
/// The Secrets Store CSI driver, whose volumes hold only secrets.
const SECRETS_DRIVER: &str = "secrets-store.csi.k8s.io";
/// The time for the report, between the end of the broker's grace period and that of the pod.
const REPORT: Duration = Duration::from_secs(5);

/// A Job to be made, and the confidential files for it.
pub(super) struct Manifest {
    pub(super) job: Value,
    /// Contents of the Secret of the same name, by key; empty if none is needed.
    pub(super) given: Vec<(&'static str, Vec<u8>)>,
}

impl Manifest {
    /// Keeps the pods of the Job from being on nodes at the same time: servers before 1.29 make a second pod as soon as
    /// the first is asked to go, and it waits unscheduled until the Job is fenced off.
    pub(super) fn keep_alone(&mut self) {
        let run = self.job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let pod = &mut self.job["spec"]["template"]["spec"];
        pod["affinity"] = alone(&run, Some(pod["affinity"].take()));
    }

    /// Labels the Job and its pod with the home of their group: another group of the same name may have its own in the
    /// same namespace.
    pub(super) fn belong_to(&mut self, home: &str) {
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(labels) = self.job.pointer_mut(labels).and_then(Value::as_object_mut) {
                labels.insert(names::HOME.to_owned(), json!(home));
            }
        }
    }
}

/// The manifest of a run.
pub(super) fn of_run(
    settings: &JobSettings,
    key: &agent::PublicKey,
    run: &Run,
) -> Result<Manifest, StartError> {
    let (order, given) = Order::of(run, key.clone())?;
    let record = Key::of(run.work.instance_id.clone(), run.work.binding_id.clone());
    let mut annotations = Map::new();
    annotations.insert(INSTANCE_ID.to_owned(), json!(record.instance()));
    annotations.extend(record.binding().map(|id| (BINDING_ID.to_owned(), json!(id))));
    if order.can(Capability::Progress) {
        annotations.insert(PROGRESS.to_owned(), json!("true"));
    }
    manifest(settings, order, annotations, given.files().collect())
}

/// How long a failed question for a catalog is kept at most: it is repeated each minute.
const UNANSWERED: Duration = Duration::from_secs(10 * 60);

/// The manifest of a question for the catalog.
pub(super) fn of_catalog(
    settings: &JobSettings,
    key: &agent::PublicKey,
    name: &str,
) -> Result<Manifest, StartError> {
    let order = Order::catalog(name, settings.catalog_timeout, key.clone());
    let keep_failed = settings.keep_failed.min(UNANSWERED);
    let settings = JobSettings { keep_failed, ..settings.clone() };
    manifest(&settings, order, Map::new(), Vec::new())
}

/// Annotations that ask cluster programs, unless the operator says otherwise, not to evict a run's pod for the sake of
/// others, because the run would be lost; and not to make its Job anew when a ConfigMap has changed, because the broker
/// would run again.
const HANDS_OFF: [(&str, &str); 3] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
    names::RELOADER,
];

fn manifest(
    settings: &JobSettings,
    mut order: Order,
    mut annotations: Map<String, Value>,
    given: Vec<(&'static str, Vec<u8>)>,
) -> Result<Manifest, StartError> {
    order.grace = settings.grace;
    order.output_limit = settings.output_limit.unwrap_or(order.output_limit);
    order.log_limit = settings.log_limit.unwrap_or(order.log_limit);
    order.config_dir = settings.config_map.as_ref().map(|_| CONFIG.into());
    order.secret_dir = settings.secret.as_ref().map(|_| SECRET.into());
    (order.secret_variables, order.secret_paths) = confidential(&settings.pod);
    settings.delivery.tell(&mut order);
    let variable = order.to_variable().map_err(|error| StartError::Permanent(error.to_string()))?;
    if !given.is_empty() {
        annotations.insert(GIVEN.to_owned(), json!("true"));
    }
    let lifetime = settings.lifetime(order.timeout);
    settings.opens_after(lifetime)?;
    let mut labels = settings.pod.labels.clone();
    labels.extend(labels_of(settings, &order.run));
    let agent = settings.delivery.config_map().map(PackedAgent::name);
    labels.extend(agent.map(|name| (AGENT.to_owned(), json!(name))));
    let mut metadata = json!({"labels": labels});
    let periods = serde_json::to_string(&Periods::of(settings));
    annotations.extend(periods.ok().map(|periods| (KEPT.to_owned(), json!(periods))));
    annotations.extend(settings.resource.iter().map(|it| (RESOURCE.to_owned(), json!(it))));
    annotations.extend(HANDS_OFF.map(|(name, value)| (name.to_owned(), json!(value))));
    annotations.extend(settings.pod.annotations.clone());
    metadata["annotations"] = Value::Object(annotations);
    let pod = json!({
        "metadata": metadata,
        "spec": pod(settings, &order, &variable, !given.is_empty()),
    });
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "parallelism": 1,
            "completions": 1,
            "activeDeadlineSeconds": lifetime.as_secs(),
            "ttlSecondsAfterFinished": NEVER,
            // A deleted pod counts as failed, so that nothing is started a second time. Servers before 1.29 do not know
            // this; see `fence`.
            "podReplacementPolicy": "Failed",
            "template": pod,
        },
    });
    job["metadata"]["name"] = json!(order.run);
    Ok(Manifest { job, given })
}

/// After how many seconds Kubernetes removes a Job that has ended: practically never. The outcome of a run is in its
/// Job until it was read, however long nobody leads, and policies set a time on Jobs that have none.
const NEVER: i32 = i32::MAX;

fn labels_of(settings: &JobSettings, run: &str) -> [(String, Value); 3] {
    [
        (names::MANAGED_BY.0, json!(names::MANAGED_BY.1)),
        (names::BROKER, json!(names::broker_label(&settings.broker))),
        (RUN, json!(run)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Whether the broker reads or writes files beside its configuration.
fn exchanges(order: &Order) -> bool {
    [Capability::RequestFile, Capability::Progress, Capability::State]
        .into_iter()
        .any(|capability| order.can(capability))
}

fn pod(settings: &JobSettings, order: &Order, variable: &str, given: bool) -> Value {
    let policy = &settings.pod;
    let context = policy.container_security_context.clone().unwrap_or_else(restricted);
    let Parts { program, unpacks, mut mounts, init_containers, mut volumes } =
        settings.delivery.parts(given.then_some(&order.run), exchanges(order), &context);
    for (name, path, source) in [
        (
            "config",
            CONFIG,
            settings.config_map.as_ref().map(|name| json!({"configMap": {"name": name}})),
        ),
        (
            "secret",
            SECRET,
            settings.secret.as_ref().map(|name| json!({"secret": {"secretName": name}})),
        ),
    ] {
        let Some(mut volume) = source else { continue };
        volume["name"] = json!(name);
        volumes.push(volume);
        mounts.push(json!({"name": name, "mountPath": path, "readOnly": true}));
    }
    let mut environment = policy.env.clone();
    if unpacks {
        environment.push(json!({"name": TARGET_VARIABLE, "value": installed()}));
    }
    environment.push(json!({"name": ORDER_VARIABLE, "value": variable}));
    mounts.extend(policy.volume_mounts.clone());
    volumes.extend(policy.volumes.clone());
    let mut broker = json!({
        "name": BROKER_CONTAINER,
        "image": settings.image,
        "command": [program, "run"],
        "env": environment,
        "securityContext": context,
        "volumeMounts": mounts,
    });
    set(&mut broker, "imagePullPolicy", policy.image_pull_policy.as_ref().map(|it| json!(it)));
    set(&mut broker, "resources", policy.resources.clone());
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": policy.automount_service_account_token.unwrap_or(false),
        "enableServiceLinks": policy.enable_service_links.unwrap_or(false),
        "terminationGracePeriodSeconds": (settings.grace + REPORT).as_secs(),
        "securityContext": policy.security_context.clone().unwrap_or_else(nobody),
        "containers": [broker],
        "volumes": volumes,
    });
    let first = (!init_containers.is_empty()).then(|| json!(init_containers));
    set(&mut pod, "initContainers", first);
    choose(&mut pod, policy);
    set(&mut pod, "affinity", policy.affinity.clone().filter(Value::is_object));
    settings.delivery.choose_nodes(&mut pod);
    pod
}

/// The secret parts of an operator's pod settings: the variables, and the mount paths.
fn confidential(policy: &PodPolicy) -> (Vec<String>, Vec<PathBuf>) {
    let is_secret = |source: &Value| {
        ["secret", "serviceAccountToken", "podCertificate"]
            .iter()
            .any(|kind| source[*kind].is_object())
    };
    let holds = |volume: &&Value| {
        let projected = volume["projected"]["sources"].as_array();
        is_secret(volume)
            || projected.into_iter().flatten().any(is_secret)
            || volume["csi"]["driver"] == SECRETS_DRIVER
    };
    let volumes: Vec<&Value> =
        policy.volumes.iter().filter(holds).map(|volume| &volume["name"]).collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let variables = policy.env.iter().filter(|it| it["valueFrom"]["secretKeyRef"].is_object());
    let mounts = policy.volume_mounts.iter().filter(|mount| volumes.contains(&&mount["name"]));
    let paths = mounts.filter_map(|mount| text(&mount["mountPath"]).map(PathBuf::from));
    (variables.filter_map(|variable| text(&variable["name"])).collect(), paths.collect())
}

/// The affinity `chosen` by the operator, and never beside another pod of the run: by this topology label, which each
/// kubelet sets itself, all nodes that can run it are one place.
pub(super) fn alone(run: &str, chosen: Option<Value>) -> Value {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let others = json!({
        "labelSelector": {"matchLabels": {RUN: run}}, "topologyKey": "kubernetes.io/os",
    });
    let mut affinity = chosen.filter(Value::is_object).unwrap_or_else(|| json!({}));
    if !affinity["podAntiAffinity"].is_object() {
        affinity["podAntiAffinity"] = json!({});
    }
    let required = &mut affinity["podAntiAffinity"][REQUIRED];
    match required {
        Value::Array(terms) => terms.push(others),
        none => *none = json!([others]),
    }
    affinity
}

fn choose(pod: &mut Value, policy: &PodPolicy) {
    let secrets: Vec<_> =
        policy.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let some = |values: &[Value]| (!values.is_empty()).then(|| json!(values));
    for (name, value) in [
        ("serviceAccountName", policy.service_account_name.as_ref().map(|it| json!(it))),
        ("imagePullSecrets", some(&secrets)),
        ("nodeSelector", policy.node_selector.clone()),
        ("tolerations", some(&policy.tolerations)),
        ("priorityClassName", policy.priority_class_name.as_ref().map(|it| json!(it))),
    ] {
        set(pod, name, value);
    }
}

fn set(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[name] = value;
    }
}

/// A pod security context with an unprivileged user: any image can run as it, except one that needs root, which needs
/// another setting.
fn nobody() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}
