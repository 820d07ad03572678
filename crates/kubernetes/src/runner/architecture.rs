//! Chooses nodes on which a program can run: each kubelet labels its node with operating system and architecture.

use serde_json::{Value, json};

const ARCHITECTURE: &str = "kubernetes.io/arch";
const SYSTEM: &str = "kubernetes.io/os";

/// The architecture of an ELF program, as node labels name it, if it is one of those for which the agent is built.
pub(super) fn of(program: &[u8]) -> Option<&'static str> {
    // The field e_machine; both architectures are little-endian.
    match program.get(18..20)? {
        [62, 0] => Some("amd64"),
        [183, 0] => Some("arm64"),
        _ => None,
    }
}

/// Has a pod scheduled on a Linux node with this architecture. If the pod names one itself, that stays: the operator
/// may know of nodes that run programs of another architecture.
pub(super) fn choose(pod: &mut Value, architecture: Option<&str>) {
    for (label, value) in [(ARCHITECTURE, architecture), (SYSTEM, Some("linux"))] {
        let Some(value) = value.filter(|_| !says(pod, label)) else { continue };
        match &mut pod["nodeSelector"] {
            Value::Object(selector) => drop(selector.insert(label.to_owned(), json!(value))),
            none @ Value::Null => *none = json!({label: value}),
            // It is no valid selector: the API server refuses it.
            _ => {}
        }
    }
}

/// Whether a pod itself selects nodes by this label, by its present or by its former name.
fn says(pod: &Value, label: &str) -> bool {
    let names = [label.to_owned(), format!("beta.{label}")];
    let selects = names.iter().any(|name| pod["nodeSelector"].get(name).is_some());
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let terms = required.as_array().into_iter().flatten();
    let mut asked =
        terms.flat_map(|term| term["matchExpressions"].as_array().into_iter().flatten());
    selects || asked.any(|it| names.iter().any(|name| it["key"] == **name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_for_which_processors_it_is() {
        let program = |machine: u16| {
            let mut program = b"\x7FELF".to_vec();
            program.resize(18, 0);
            program.extend(machine.to_le_bytes());
            program
        };
        assert_eq!(of(&program(62)), Some("amd64"));
        assert_eq!(of(&program(183)), Some("arm64"));
        assert_eq!(of(&program(8)), None);
        assert_eq!(of(b"\x7FELF"), None);
        let this = of(&std::fs::read("/proc/self/exe").unwrap());
        let known = [("x86_64", "amd64"), ("aarch64", "arm64")];
        let expected = known.iter().find(|(name, _)| *name == std::env::consts::ARCH);
        assert_eq!(this, expected.map(|(_, name)| *name));
    }

    #[test]
    fn a_pod_is_where_the_agent_can_run_unless_it_says_where_itself() {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = |how: &str, key: &str| {
            let term = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
            json!({"nodeAffinity": {how: {"nodeSelectorTerms": [term]}}})
        };
        let (arch, os) = ("kubernetes.io/arch", "kubernetes.io/os");
        let both = json!({arch: "amd64", os: "linux"});
        for (name, pod, expected) in [
            ("nothing", json!({}), both.clone()),
            ("null", json!({"nodeSelector": null}), both.clone()),
            (
                "another label",
                json!({"nodeSelector": {"disk": "ssd"}}),
                json!({"disk": "ssd", arch: "amd64", os: "linux"}),
            ),
            (
                "another architecture",
                json!({"nodeSelector": {arch: "arm64"}}),
                json!({arch: "arm64", os: "linux"}),
            ),
            (
                "by the name of before",
                json!({"nodeSelector": {"beta.kubernetes.io/arch": "arm64"}}),
                json!({"beta.kubernetes.io/arch": "arm64", os: "linux"}),
            ),
            ("at more length", json!({"affinity": affinity(REQUIRED, arch)}), json!({os: "linux"})),
            ("the system", json!({"affinity": affinity(REQUIRED, os)}), json!({arch: "amd64"})),
            ("other pods", json!({"affinity": {"podAffinity": {REQUIRED: []}}}), both),
            ("no selector", json!({"nodeSelector": "fast"}), json!("fast")),
        ] {
            let mut chosen = pod;
            choose(&mut chosen, Some("amd64"));
            assert_eq!(chosen["nodeSelector"], expected, "{name}");
        }
        let mut chosen = json!({});
        choose(&mut chosen, None);
        assert_eq!(chosen["nodeSelector"], json!({os: "linux"}), "nothing is known of it");
    }
}
