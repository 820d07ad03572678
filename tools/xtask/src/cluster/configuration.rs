//! The files and command lines that the parts are started with.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::Place;
use super::{certificates, network};

pub(super) const API_PORT: u16 = 26443;
const ETCD: &str = "http://127.0.0.1:23790";
const ETCD_PEER: &str = "http://127.0.0.1:23800";
const KUBELET_PORT: u16 = 20250;
const SERVICES: &str = "10.245.0.0/16";
/// The first of [`SERVICES`], which is the API server's.
pub(super) const SERVICE_ADDRESS: &str = "10.245.0.1";
pub(super) const NETWORK: &str = "manciple-test-cluster";
pub(super) const SANDBOX_IMAGE: &str = "manciple.test/pause:1";

/// The file of the API server's audit log, in the folder of the cluster's state.
pub(super) const AUDIT_LOG: &str = "audit.log";

pub(super) fn containerd_socket(place: &Place) -> PathBuf {
    place.run.join("containerd.sock")
}

pub(super) fn write(place: &Place) -> anyhow::Result<()> {
    let networks = place.state.join("networks");
    fs::create_dir_all(&networks)?;
    let network = json!({
        "cniVersion": "0.4.0",
        "name": NETWORK,
        "plugins": [{
            "type": "bridge",
            "bridge": network::BRIDGE,
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "dataDir": place.state.join("addresses"),
                "ranges": [[{"subnet": network::PODS, "gateway": network::GATEWAY}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    fs::write(networks.join("10-pods.conflist"), network.to_string())?;
    fs::write(place.state.join("containerd.toml"), containerd(place))?;
    fs::write(place.state.join("audit.json"), audited().to_string())?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "x509": {"clientCAFile": certificates::folder(place).join("ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": certificates::folder(place).join("kubelet.crt"),
        "tlsPrivateKeyFile": certificates::folder(place).join("kubelet.key"),
        "cgroupDriver": "cgroupfs",
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        // Never for the disk: one that others share is full for a moment, and the node would take no pods for five
        // minutes.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "/etc/resolv.conf",
        "maxPods": 200,
        // No throttle between a decision and a container: tests wait for it.
        "registryPullQPS": 0,
        // Zero would be the client's five a second: an event would come a minute late where pods come and go.
        "eventRecordQPS": 200,
        "eventBurst": 400,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    });
    Ok(fs::write(place.state.join("kubelet.json"), kubelet.to_string())?)
}

/// The audit policy of the API server: it writes down what the service accounts of installations do, and so which of
/// their rights that takes.
fn audited() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // A watch says so when it begins.
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    })
}

fn containerd(place: &Place) -> String {
    let quoted = |path: PathBuf| json!(path).to_string();
    let root = quoted(place.state.join("containerd"));
    let state = quoted(place.run.join("containerd"));
    let socket = quoted(containerd_socket(place));
    let runc = quoted(place.program("runc"));
    let plugins = quoted(place.programs.join("plugins"));
    let networks = quoted(place.state.join("networks"));
    format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = {socket}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{SANDBOX_IMAGE}"
# Without CAP_SYS_RESOURCE, as in many virtual machines, runc cannot lower it.
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {networks}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
SystemdCgroup = false
"#
    )
}

/// The programs of the cluster, in the order in which they are begun, with their arguments.
pub(super) fn parts(place: &Place) -> Vec<(&'static str, Vec<String>)> {
    let state = |file: &str| place.state.join(file).display().to_string();
    let certificate = |file: &str| certificates::folder(place).join(file).display().to_string();
    let socket = format!("unix://{}", containerd_socket(place).display());
    let flag = |name: &str, value: &str| format!("--{name}={value}");
    vec![
        (
            "etcd",
            vec![
                flag("data-dir", &state("etcd")),
                flag("listen-client-urls", ETCD),
                flag("advertise-client-urls", ETCD),
                flag("listen-peer-urls", ETCD_PEER),
                flag("initial-advertise-peer-urls", ETCD_PEER),
                flag("initial-cluster", &format!("default={ETCD_PEER}")),
                // As for the control planes of tests: after a power cut a new one is brought up.
                "--unsafe-no-fsync".into(),
            ],
        ),
        ("containerd", vec![flag("config", &state("containerd.toml"))]),
        (
            "kube-apiserver",
            vec![
                flag("etcd-servers", ETCD),
                flag("secure-port", &API_PORT.to_string()),
                flag("advertise-address", network::GATEWAY),
                flag("service-cluster-ip-range", SERVICES),
                flag("authorization-mode", "Node,RBAC"),
                "--allow-privileged".into(),
                // A thirteenth of what the server does would be to put requests into queues that are never full.
                flag("enable-priority-and-fairness", "false"),
                // There is no proxy for services: webhooks are asked at the addresses of their pods.
                flag("enable-aggregator-routing", "true"),
                flag("client-ca-file", &certificate("ca.crt")),
                flag("tls-cert-file", &certificate("apiserver.crt")),
                flag("tls-private-key-file", &certificate("apiserver.key")),
                flag("kubelet-client-certificate", &certificate("to-kubelet.crt")),
                flag("kubelet-client-key", &certificate("to-kubelet.key")),
                flag("kubelet-certificate-authority", &certificate("ca.crt")),
                flag("service-account-key-file", &certificate("accounts.pub")),
                flag("service-account-signing-key-file", &certificate("accounts.key")),
                flag("service-account-issuer", "https://kubernetes.default.svc"),
                flag("event-ttl", "1h"),
                // As OpenShift has it: who owns what is a matter of rights, too.
                flag("enable-admission-plugins", "OwnerReferencesPermissionEnforcement"),
                flag("audit-policy-file", &state("audit.json")),
                flag("audit-log-path", &state(AUDIT_LOG)),
                // In MB: never begun anew, for that would be while it is read.
                flag("audit-log-maxsize", "1000000"),
            ],
        ),
        (
            "kube-controller-manager",
            vec![
                flag("kubeconfig", &state("controller-manager.kubeconfig")),
                flag("service-account-private-key-file", &certificate("accounts.key")),
                flag("root-ca-file", &certificate("ca.crt")),
                flag("use-service-account-credentials", "true"),
                flag("leader-elect", "false"),
                flag("secure-port", "0"),
                flag("port", "0"),
                flag("kube-api-qps", "200"),
                flag("kube-api-burst", "400"),
            ],
        ),
        (
            "kube-scheduler",
            vec![
                flag("kubeconfig", &state("scheduler.kubeconfig")),
                flag("leader-elect", "false"),
                flag("secure-port", "0"),
                flag("port", "0"),
                flag("kube-api-qps", "200"),
                flag("kube-api-burst", "400"),
            ],
        ),
        (
            "kubelet",
            vec![
                flag("config", &state("kubelet.json")),
                flag("kubeconfig", &state("kubelet.kubeconfig")),
                flag("root-dir", &state("kubelet")),
                flag("hostname-override", "localhost"),
                flag("container-runtime", "remote"),
                flag("container-runtime-endpoint", &socket),
                flag("cert-dir", &state("certificates")),
            ],
        ),
    ]
}
