use std::collections::BTreeSet;

use agent::{GATHERING_VARIABLE, Gathering, KeyPair};
use serde_json::{Value, json};

use crate::quarks::Dialect;
use crate::quarks::api::output_map::OutputMap;
use crate::quarks::output::capture::{CaptureContext, capture_files, capture_prints};
use crate::quarks::view;
use crate::runner::{Delivery, PackedAgent};

/// Three containers, of which two have output.
fn pod() -> Value {
    json!({
        "initContainers": [{"name": "first", "image": "f"}],
        "containers": [
            {"name": "c", "image": "i", "command": ["sh", "-c"], "args": ["true"]},
            {"name": "d", "image": "j", "command": ["true"], "securityContext": {"runAsUser": 7}},
            {"name": "other", "image": "k"},
        ],
    })
}

fn captured(mut pod: Value, native_sidecars: bool) -> Value {
    let spec = json!({"output": {"outputMap": {
        "c": {"b.json": {"name": "b"}, "a.json": {"name": "a"}}, "d": {"d.json": {"name": "d"}},
    }}});
    let delivery = Delivery::from("agent");
    let means = CaptureContext { native_sidecars, ..means(&delivery) };
    capture_files(&mut pod, "run", &OutputMap::of(Dialect::QuarksJob, &spec), &means);
    pod
}

/// A context in which commands are wrapped, and sidecars are classic.
fn means(delivery: &Delivery) -> CaptureContext<'_> {
    let key = KeyPair::generate().public().clone();
    CaptureContext { delivery, key, native_sidecars: false, wraps: true, resources: None }
}

fn packed(content: &[u8]) -> Delivery {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    PackedAgent::read(file.path()).unwrap().into()
}

fn named<'p>(pod: &'p Value, member: &str, name: &str) -> Option<&'p Value> {
    pod[member].as_array()?.iter().find(|container| container["name"] == name)
}

fn gathering(container: &Value) -> Option<Gathering> {
    let mut env = container["env"].as_array()?.iter();
    let variable = env.find(|variable| variable["name"] == GATHERING_VARIABLE)?;
    serde_json::from_str(variable["value"].as_str()?).ok()
}

#[test]
fn commands_that_are_known_are_wrapped_and_nothing_is_beside_them() {
    let pod = captured(pod(), true);
    assert_eq!(pod["containers"].as_array().unwrap().len(), 3);
    let c = named(&pod, "containers", "c").unwrap();
    assert_eq!(c["command"], json!(["/manciple/agent", "wrap", "--", "sh", "-c"]));
    assert_eq!(c["args"], json!(["true"]));
    let told = gathering(c).unwrap();
    assert_eq!(told.run, "run");
    assert_eq!(told.outputs["c"].files, ["a.json", "b.json"]);
    assert_eq!(told.outputs["c"].directory, std::path::Path::new("/mnt/quarks/"));
    assert_eq!(told.message_limit, 12 * 1024 / 9, "what the kubelet takes is shared");
    let other = named(&pod, "containers", "other").unwrap();
    assert_eq!((&other["command"], gathering(other)), (&Value::Null, None));
    let mounts = |container: &Value| container["volumeMounts"][0].clone();
    assert_eq!(mounts(other), json!({"name": "output-other", "mountPath": "/mnt/quarks/"}));
}

/// How the agent's volume is mounted in a wrapped container, and which volumes there are that can be written.
fn place_of_agent(delivery: &Delivery, container: &str) -> (Value, Vec<String>) {
    let mut pod = pod();
    let map = json!({"output": {"outputMap": {
        "c": {"o.json": {"name": "s"}}, "d": {"o.json": {"name": "t"}},
    }}});
    let means = means(delivery);
    capture_files(&mut pod, "run", &OutputMap::of(Dialect::QuarksJob, &map), &means);
    let container = named(&pod, "containers", container).unwrap();
    let mut mounts = container["volumeMounts"].as_array().unwrap().iter();
    let place = mounts.find(|mount| mount["mountPath"] == "/manciple").unwrap().clone();
    let volumes = pod["volumes"].as_array().unwrap().iter();
    let written = volumes.filter(|volume| volume.get("emptyDir").is_some());
    let named = written.map(|volume| volume["name"].as_str().unwrap().to_owned());
    (place, named.filter(|name| !name.starts_with("output-")).collect())
}

#[test]
fn no_wrapped_container_can_write_where_another_executes() {
    let copied = json!({"name": "manciple", "mountPath": "/manciple", "readOnly": true});
    let unpacked = |volume: &str| json!({"name": volume, "mountPath": "/manciple"});
    let by_config_map = packed(b"\x7FELF");
    let (shared, own) = (vec!["manciple"], vec!["manciple-agent-c", "manciple-agent-d"]);
    for (name, delivery, container, mount, volumes) in [
        ("it is copied before", &Delivery::from("image"), "c", &copied, &shared),
        ("it is copied before", &Delivery::from("image"), "d", &copied, &shared),
        ("it unpacks itself", &by_config_map, "c", &unpacked("manciple-agent-c"), &own),
        ("it unpacks itself", &by_config_map, "d", &unpacked("manciple-agent-d"), &own),
    ] {
        let (mounted, there) = place_of_agent(delivery, container);
        assert_eq!(mounted, *mount, "{name}, {container}");
        assert_eq!(there, *volumes, "{name}, {container}");
    }
}

#[test]
fn a_pod_is_where_the_agent_of_its_config_map_can_run_and_one_without_the_agent_anywhere() {
    let mut program = b"\x7FELF".to_vec();
    program.resize(18, 0);
    program.extend(183_u16.to_le_bytes());
    let by_config_map = packed(&program);
    let means = means(&by_config_map);
    let files = json!({"output": {"outputMap": {"c": {"o.json": {"name": "s"}}}}});
    let prints = json!({"template": {"spec": pod()}, "output": {"namePrefix": "out"}});
    let nodes = json!({"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"});
    for (name, dialect, spec, expected) in [
        ("files", Dialect::QuarksJob, files, &nodes),
        ("no files", Dialect::QuarksJob, json!({}), &Value::Null),
        ("prints", Dialect::ExtendedJob, prints, &nodes),
        ("prints nothing", Dialect::ExtendedJob, json!({}), &Value::Null),
    ] {
        let mut pod = pod();
        let map = OutputMap::of(dialect, &spec);
        match dialect {
            Dialect::QuarksJob => capture_files(&mut pod, "run", &map, &means),
            Dialect::ExtendedJob => capture_prints(&mut pod, "run", &map, &means),
        }
        assert_eq!(pod["nodeSelector"], *expected, "{name}");
    }
}

#[test]
fn an_entrypoint_that_nobody_knows_has_the_sidecar_that_the_server_knows() {
    let mut unknown = pod();
    unknown["containers"][1].as_object_mut().unwrap().remove("command");
    for native in [true, false] {
        let pod = captured(unknown.clone(), native);
        let c = named(&pod, "containers", "c").unwrap();
        assert_eq!(
            c["command"],
            json!(["sh", "-c"]),
            "what is not read by the sidecar is as it was"
        );
        let (place, elsewhere, gathers) = match native {
            true => {
                ("initContainers", "containers", &["gather", "--once", "/manciple/gathered"][..])
            }
            false => ("containers", "initContainers", &["gather"][..]),
        };
        assert_eq!(named(&pod, elsewhere, "output-persist"), None);
        let sidecar = named(&pod, place, "output-persist").unwrap();
        let until = ["--until", "/manciple-told/ended"];
        let command = [&["/manciple/agent"][..], gathers, &until].concat();
        assert_eq!(sidecar["command"], json!(command));
        assert_eq!(sidecar["restartPolicy"], if native { json!("Always") } else { Value::Null });
        assert_eq!(sidecar["image"], "i", "one that the node has");
        let told = gathering(sidecar).unwrap();
        let directories: Vec<_> = told.outputs.values().map(|it| it.directory.clone()).collect();
        assert_eq!(directories, ["/mnt/quarks/c", "/mnt/quarks/d"].map(std::path::PathBuf::from));
        let annotation = "metadata.annotations['manciple.dev/ended']";
        assert!(pod["volumes"].to_string().contains(annotation));
        assert!(!sidecar.to_string().contains("serviceaccount"), "it has no token");
    }
}

#[test]
fn the_sidecar_asks_for_what_an_operator_says() {
    let given = json!({"limits": {"cpu": "50m", "memory": "64Mi"}});
    let ours = json!({"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}});
    let spec = json!({"output": {"outputMap": {"other": {"o.json": {"name": "s"}}}}});
    let delivery = Delivery::from("agent");
    let (nothing, of_pod) = (json!({}), json!({"requests": {"cpu": "1"}}));
    for (resources, of_pod, expected) in [
        (None, None, &ours),
        (Some(&given), None, &given),
        // All of its containers share it, and it may be no more than theirs.
        (None, Some(of_pod.clone()), &nothing),
        (Some(&given), Some(of_pod), &nothing),
    ] {
        let mut pod = pod();
        if let Some(of_pod) = of_pod {
            pod["resources"] = of_pod;
        }
        let means = CaptureContext { resources, ..means(&delivery) };
        capture_files(&mut pod, "run", &OutputMap::of(Dialect::QuarksJob, &spec), &means);
        let sidecar = named(&pod, "containers", "output-persist").unwrap();
        assert_eq!(sidecar["resources"], *expected);
        let brings = named(&pod, "initContainers", "agent").unwrap();
        assert_eq!(brings["resources"] == nothing, *expected == nothing, "{brings}");
    }
}

#[test]
fn whoever_writes_a_message_of_its_own_is_not_wrapped() {
    let mut own = pod();
    own["containers"][0]["terminationMessagePath"] = json!("/their/own");
    let pod = captured(own, false);
    assert!(named(&pod, "containers", "output-persist").is_some());
}

#[test]
fn without_output_nothing_is_put_in() {
    let mut plain = pod();
    let delivery = Delivery::from("agent");
    let means = means(&delivery);
    capture_files(&mut plain, "run", &OutputMap::default(), &means);
    assert_eq!(plain["containers"].as_array().unwrap().len(), 3);
    assert_eq!(plain["containers"][0]["command"], json!(["sh", "-c"]));
    assert_eq!(plain["initContainers"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_printed_is_taken_where_the_command_is_known_and_else_there_is_the_log() {
    let spec = json!({"template": {"spec": pod()}, "output": {"namePrefix": "out"}});
    let map = OutputMap::of(Dialect::ExtendedJob, &spec);
    let delivery = Delivery::from("agent");
    let mut means = means(&delivery);
    let mut taken = pod();
    capture_prints(&mut taken, "run", &map, &means);
    let c = named(&taken, "containers", "c").unwrap();
    assert_eq!(c["command"], json!(["/manciple/agent", "wrap", "--", "sh", "-c"]));
    let told = gathering(c).unwrap();
    let (of, outputs) = told.outputs.first_key_value().unwrap();
    assert_eq!((of.as_str(), outputs.stdout.as_deref()), ("c", Some("stdout")));
    assert_eq!(
        (outputs.directory.to_str(), &*outputs.files),
        (Some("/mnt/quarks/"), &["output.json".to_owned()][..])
    );
    let other = named(&taken, "containers", "other").unwrap();
    let place = json!([{"name": "output-other", "mountPath": "/mnt/quarks/"}]);
    assert_eq!((&other["command"], &other["volumeMounts"]), (&Value::Null, &place));
    assert_eq!(taken["containers"].as_array().unwrap().len(), 3, "nothing is beside them");
    means.wraps = false;
    let mut left = pod();
    // A place of its own stays.
    let own = json!([{"name": "mine", "mountPath": "/mnt/quarks"}]);
    left["containers"][0]["volumeMounts"] = own.clone();
    capture_prints(&mut left, "run", &map, &means);
    let c = named(&left, "containers", "c").unwrap();
    assert_eq!((&c["command"], &c["volumeMounts"]), (&json!(["sh", "-c"]), &own));
    let names: Vec<_> =
        left["volumes"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["output-d", "output-other"]);
}

#[test]
fn what_brings_the_agent_has_a_name_that_no_other_container_has() {
    let delivery = Delivery::from("image");
    let means = CaptureContext { native_sidecars: true, ..means(&delivery) };
    let files = json!({"output": {"outputMap": {"c": {"o.json": {"name": "s"}}}}});
    let prints = json!({"template": {"spec": pod()}, "output": {"namePrefix": "out"}});
    for (first, beside, name) in [
        (vec!["first"], vec![], "agent"),
        (vec!["agent"], vec![], "manciple-agent"),
        (vec![], vec!["agent"], "manciple-agent"),
        (vec!["manciple-agent"], vec![], "agent"),
        (vec!["agent"], vec!["manciple-agent"], "manciple-agent-2"),
        (vec!["agent", "manciple-agent-2"], vec!["manciple-agent"], "manciple-agent-3"),
    ] {
        for (dialect, spec) in [(Dialect::QuarksJob, &files), (Dialect::ExtendedJob, &prints)] {
            let mut pod = pod();
            let named = |name: &str| json!({"name": name, "image": "i"});
            pod["initContainers"] = first.iter().copied().map(named).collect();
            let containers = pod["containers"].as_array_mut().unwrap();
            containers.extend(beside.iter().copied().map(named));
            let map = OutputMap::of(dialect, spec);
            match dialect {
                Dialect::QuarksJob => capture_files(&mut pod, "run", &map, &means),
                Dialect::ExtendedJob => capture_prints(&mut pod, "run", &map, &means),
            }
            assert_eq!(pod["initContainers"][0]["name"], name, "{first:?}, {beside:?}");
            let all = ["initContainers", "containers"].map(|it| pod[it].as_array().unwrap());
            let names: Vec<&str> =
                all.into_iter().flatten().map(|it| it["name"].as_str().unwrap()).collect();
            let once: BTreeSet<&str> = names.iter().copied().collect();
            assert_eq!(once.len(), names.len(), "{names:?}");
            let shown = serde_json::from_value(json!({"spec": pod})).unwrap();
            assert!(!view::containers(&shown).contains(&name), "it is no one's log");
        }
    }
}

#[test]
fn what_brings_the_agent_is_let_in_where_the_container_that_it_is_for_is() {
    let delivery = Delivery::from("image");
    let means = means(&delivery);
    let map = json!({"output": {"outputMap": {"c": {"o.json": {"name": "s"}}}}});
    let map = OutputMap::of(Dialect::QuarksJob, &map);
    let of = |context: Value| {
        let mut pod = json!({"containers": [
            {"name": "c", "image": "i", "command": ["x"], "securityContext": context},
        ]});
        capture_files(&mut pod, "run", &map, &means);
        pod["initContainers"][0]["securityContext"].clone()
    };
    let least = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(of(json!({"privileged": true})), least);
    let restricted = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(of(restricted.clone()), restricted);
}
