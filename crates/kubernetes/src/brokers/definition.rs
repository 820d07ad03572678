//! The CustomResourceDefinition of `Broker`.

use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::definition::{
    Schema, age, column, condition_list, custom_resource, described, document, flag, object, text,
};
use crate::names::{GROUP, VERSION};
use crate::resources::api_version;

pub(super) const KIND: &str = "Broker";
/// The plural, as URL paths have it.
pub(super) const PLURAL: &str = "brokers";
const PERIOD: &str = "^([0-9]{1,9}(ms|s|m|h|d))+$";
const NAME: &str = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The resource `Broker`, as the client needs it.
pub fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: api_version(),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// The CustomResourceDefinition of `Broker`, for any API server from Kubernetes 1.16 on.
pub(crate) fn definition() -> Value {
    let ready = |member: &str| format!(r#".status.conditions[?(@.type=="Ready")].{member}"#);
    let column = |name, path: &str, priority| column(name, "string", path, priority);
    let columns = vec![
        column("Ready", &ready("status"), 0),
        column("Reason", &ready("reason"), 0),
        column("Services", ".status.serviceNames", 0),
        column("Image", ".spec.image", 1),
        column("Message", &ready("message"), 1),
        age(),
    ];
    let mut definition = custom_resource(&resource(), &schema(), &columns);
    definition["spec"]["names"]["categories"] = json!(["manciple"]);
    definition
}

fn schema() -> Value {
    // The name becomes a part of paths.
    let metadata = object("", [("name", matching("", LABEL, 63))]);
    document(
        "A broker: an image with /bin/broker, its configuration, and how its runs are made.",
        [("metadata", metadata), ("spec", spec()), ("status", status())],
    )
    .requires(&["spec"])
}

fn spec() -> Value {
    let mut members = vec![
        ("image", text("The image that has /bin/broker.").with("minLength", 1)),
        ("configMap", matching("A ConfigMap, at /config in runs.", NAME, 253)),
        ("secret", matching("A Secret, at /secret in runs.", NAME, 253)),
    ];
    members.extend(policy());
    let mut plan = vec![("planID", text("The plan, by its id in the catalog."))];
    plan.extend(policy());
    let plan = object("", plan).requires(&["planID"]);
    let says = "What is different for some plans: a member that is given replaces that of the broker, \
                whole; those of pod one by one.";
    let plans = json!({
        "type": "array",
        "items": plan,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["planID"],
    });
    members.push(("plans", described(plans, says)));
    object("What it is.", members).requires(&["image"])
}

/// The schema of the policy, which a broker sets, and a plan may override.
fn policy() -> Vec<(&'static str, Value)> {
    let actions = ["provision", "update", "bind", "unbind", "deprovision"];
    let deadlines = actions.map(|action| (action, period("")));
    let namespace = "Where Jobs are made: the resource's own, or one of kubernetes.job_namespaces. configMap, \
                     secret and what pod names are looked for there.";
    vec![
        ("namespace", matching(namespace, LABEL, 63)),
        ("pod", pod()),
        (
            "startTimeout",
            period("How long a pod may take to begin. Default: kubernetes.start_timeout."),
        ),
        ("grace", period("Between SIGTERM and SIGKILL. Default: broker.grace.")),
        ("deadline", period("How long a run may take. Default: operations.timeout.")),
        ("deadlines", object("The same for single actions, over deadline.", deadlines)),
        (
            "keepSucceeded",
            period(
                "How long a Job is kept whose run succeeded. Default: kubernetes.keep_succeeded.",
            ),
        ),
        ("keepFailed", period("The same of one that did not. Default: kubernetes.keep_failed.")),
    ]
}

fn pod() -> Value {
    let open = |says: &str| described(json!({"type": "object"}), says).open();
    let list = |says: &str, items: Value| described(json!({"type": "array", "items": items}), says);
    let opens = |says: &str, required: &[&str]| list(says, open("").requires(required));
    let texts = |says: &str| {
        described(json!({"type": "object", "additionalProperties": {"type": "string"}}), says)
    };
    let pulls = json!({"type": "string", "enum": ["Always", "IfNotPresent", "Never"]});
    object(
        "The pods of its runs: fragments, spelled as in a pod.",
        [
            (
                "serviceAccountName",
                matching(
                    "Its token is not mounted, unless automountServiceAccountToken says so.",
                    NAME,
                    253,
                ),
            ),
            ("automountServiceAccountToken", flag("Whether its token is mounted.")),
            ("enableServiceLinks", flag("Whether Services are in variables.")),
            (
                "imagePullSecrets",
                list("Secrets for the image's registry, by name.", matching("", NAME, 253)),
            ),
            ("imagePullPolicy", described(pulls, "When the image is pulled.")),
            ("resources", open("Requests and limits of the broker's container.")),
            ("securityContext", open("The pod's security context, instead of the restricted one.")),
            ("containerSecurityContext", open("The containers', instead of the restricted one.")),
            ("nodeSelector", texts("On which nodes.")),
            ("affinity", open("On which nodes, at more length.")),
            ("tolerations", list("Which taints do not matter.", open(""))),
            ("priorityClassName", matching("How important it is.", NAME, 253)),
            ("env", opens("Further variables of the broker's container.", &["name"])),
            ("volumes", opens("Further volumes.", &["name"])),
            ("volumeMounts", opens("Where the container has them.", &["name", "mountPath"])),
            ("labels", texts("Further labels of Jobs and pods.")),
            ("annotations", texts("Further annotations of Jobs and pods.")),
        ],
    )
}

fn status() -> Value {
    let service = object(
        "",
        [
            ("id", text("Its id in the catalog.")),
            ("name", text("Its name.")),
            (
                "sold",
                flag("Whether it can be ordered; otherwise there are instances that have it."),
            ),
        ],
    );
    let generation = || json!({"type": "integer", "format": "int64"});
    object(
        "How it stands.",
        [
            ("observedGeneration", generation()),
            ("serviceNames", text("What can be ordered, for people.")),
            (
                "services",
                json!({"type": "array", "items": service, "description": "The services whose instances it serves."}),
            ),
            ("conditions", condition_list("Ready.", [("observedGeneration", generation())])),
        ],
    )
}

fn matching(says: &str, pattern: &str, longest: usize) -> Value {
    described(json!({"type": "string", "pattern": pattern, "maxLength": longest}), says)
}

fn period(says: &str) -> Value {
    let says =
        format!("{says}{}A period: 30s, 15m, 1h30m, 7d.", if says.is_empty() { "" } else { " " });
    matching(&says, PERIOD, 32)
}
