//! `manciple template`: what people know of `oc process --local`, and beyond it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::clock;

/// What it says, given this on standard input.
fn said(args: &[&str], input: &str) -> Output {
    said_with(&[], args, input)
}

/// The same, with these variables.
fn said_with(variables: &[(&str, &OsStr)], args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
    command.arg("template").args(args).env_clear().envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have ended before it reads.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints; it has to end well.
fn printed(args: &[&str], input: &str) -> String {
    let said = said(args, input);
    assert_eq!(said.status.code(), Some(0), "{args:?}: {}", text(&said.stderr));
    text(&said.stdout)
}

/// Why it ends with 2.
fn refused(args: &[&str], input: &str) -> String {
    let said = said(args, input);
    assert_eq!(said.status.code(), Some(2), "{args:?}: {}", text(&said.stdout));
    assert_eq!(text(&said.stdout), "", "{args:?}");
    text(&said.stderr)
}

fn process(args: &[&str], input: &str) -> String {
    printed(&[&["process", "-f", "-"], args].concat(), input)
}

const TEMPLATE: &str = r#"
apiVersion: template.openshift.io/v1
kind: Template
metadata: {name: t}
parameters:
  - {name: NAME, value: web, description: What it is named}
  - {name: COUNT, value: "2"}
  - {name: PASSWORD, generate: expression, from: "[a-z]{8}", required: true}
objects:
  - apiVersion: v1
    kind: Secret
    metadata: {name: "${NAME}"}
    stringData: {password: "${PASSWORD}", tricky: "yes", number: "0123", colon: "a: b"}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: "${NAME}", namespace: fixed}
    spec: {replicas: "${{COUNT}}"}
"#;

fn example(name: &str) -> String {
    format!("{}/../../examples/templates/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn objects_are_printed_as_a_list() {
    let list = process(&["-p", "PASSWORD=p"], TEMPLATE);
    assert!(list.starts_with(
        "{\n    \"kind\": \"List\",\n    \"apiVersion\": \"v1\",\n    \"metadata\": {},"
    ));
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"][0]["stringData"]["password"], "p");
    assert_eq!(
        list["items"][1],
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"}, "spec": {"replicas": 2},
        })
    );
}

#[test]
fn yaml_says_the_same() {
    let json = process(&["-p", "PASSWORD=p"], TEMPLATE);
    let json: Value = serde_json::from_str(&json).unwrap();
    let yaml = process(&["-p", "PASSWORD=p", "-o", "yaml"], TEMPLATE);
    assert!(yaml.starts_with("apiVersion: v1\nitems:\n"), "{yaml}");
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), json, "{yaml}");
    let raw = process(&["-p", "PASSWORD=p", "-o", "yaml", "--raw"], TEMPLATE);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&raw).unwrap();
    assert_eq!(Value::from(objects), json["items"]);
}

#[test]
fn names_and_paths_are_printed() {
    assert_eq!(process(&["-o", "name"], TEMPLATE), "secret/web\ndeployment.apps/web\n");
    let kinds = "-o=jsonpath={range .items[*]}{.kind}/{.metadata.name}{\"\\n\"}{end}";
    assert_eq!(process(&[kinds], TEMPLATE), "Secret/web\nDeployment/web\n");
    let args = ["-o", "jsonpath", "--template", "{.items[1].spec.replicas}"];
    assert_eq!(process(&args, TEMPLATE), "2");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path");
    std::fs::write(&file, "{.kind} ").unwrap();
    let args = [&format!("-o=jsonpath-file={}", file.display()), "--raw"];
    assert_eq!(process(&args, TEMPLATE), "Secret Deployment ");
    // A file may be empty; nothing else may.
    assert_eq!(process(&["-o=jsonpath-file=/dev/null"], TEMPLATE), "");
    let said = refused(&["process", "-f", "-", "-o", "jsonpath="], TEMPLATE);
    assert!(said.contains("template format specified but no template given"), "{said}");
    let said = refused(&["process", "-f", "-", "-o", "jsonpath={.a"], TEMPLATE);
    assert!(said.contains("error parsing jsonpath {.a, unclosed action"), "{said}");
    let said = refused(&["process", "-f", "-", "-o", "go-template={{.}}"], TEMPLATE);
    assert!(said.contains("jsonpath=TEMPLATE"), "{said}");
}

#[test]
fn what_is_generated_is_other_each_time() {
    let folder = tempfile::tempdir().unwrap();
    // The original seeds by the clock.
    let shim = clock::shim(folder.path());
    let stands = [("LD_PRELOAD", shim.as_os_str()), ("CLOCK_STANDS_S", OsStr::new("1700000000"))];
    let args = ["process", "-f", "-", "-o", "jsonpath={.items[0].stringData.password}"];
    for (case, variables) in [("the clock stands", &stands[..]), ("it goes", &[])] {
        let password = || {
            let said = said_with(variables, &args, TEMPLATE);
            let warned = text(&said.stderr);
            assert_eq!(said.status.code(), Some(0), "{case}: {warned}");
            assert!(!warned.contains("LD_PRELOAD"), "{case}: {warned}");
            text(&said.stdout)
        };
        let (one, other) = (password(), password());
        let is_lowercase = one.bytes().all(|byte| byte.is_ascii_lowercase());
        assert_eq!((one.len(), is_lowercase), (8, true), "{case}: {one}");
        assert_ne!(one, other, "{case}");
    }
}

#[test]
fn values_come_from_arguments_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.env");
    std::fs::write(&file, "# all\nNAME=of-file\nexport COUNT: 5\nPASSWORD='a # b'\n").unwrap();
    let path = file.display().to_string();
    let args = ["process", "-f", "-", "NAME=of-argument", "--param-file", &path];
    let said = said(&args, TEMPLATE);
    let list: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(list["items"][0]["stringData"]["password"], "a # b");
    assert_eq!(list["items"][1]["spec"]["replicas"], 5);
    assert_eq!(list["items"][1]["metadata"]["name"], "of-argument");
    let warned = text(&said.stderr);
    assert!(warned.contains("warning: Template parameter \"NAME\" already defined"), "{warned}");
}

#[test]
fn a_value_is_in_no_error() {
    for (args, words) in [
        (&["-p", "NAME=hunter2", "NAME=hunter3"][..], "provided more than once: NAME"),
        (&["-p", "OTHER=hunter2"], "unknown parameter name \"OTHER\""),
        (&["-p", "a b=hunter2"], "invalid parameter assignment in \"a b\""),
        (&["-p", "PASSWORD hunter2"], "invalid parameter assignment: there is no ="),
        (
            &["-p", "NAME=hunter2", "-o", "jsonpath={.items[0].metadata.name[?(@.a>1)]}"],
            "cannot be filtered",
        ),
        (&["-p", "NAME=${NAME}", "-l", "hunter"], "unexpected label spec: hunter"),
        (&["-p", "PASSWORD="], "parameter PASSWORD is required and must be specified"),
    ] {
        let said = refused(&[&["process", "-f", "-"], args].concat(), TEMPLATE);
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("hunter2") && !said.contains("hunter3"), "{said}");
    }
    assert!(!process(&["-p", "OTHER=x", "--ignore-unknown-parameters"], TEMPLATE).is_empty());
}

#[test]
fn no_syntax_error_shows_what_is_around_it() {
    for text in [
        "kind: Template\nparameters:\n- name: PW\n  value: hunter2\n bad: indent\n",
        "kind: Template\nparameters: [{name: PW, value: hunter2, value: x}]\n",
        "{\"kind\": \"Template\", \"parameters\": [{\"value\": \"hunter2\"",
        "PW: @hunter2",
        "kind: Template\napiVersion: v1\nparameters: [hunter2]\n",
    ] {
        for args in [&["process", "-f", "-"][..], &["lint", "-"]] {
            let said = said(args, text);
            assert_eq!(said.status.code(), Some(2), "{text}");
            let all = text_of(&said);
            assert!(
                !all.contains("hunter2") && all.contains("-:") | all.contains("template."),
                "{all}"
            );
        }
    }
}

fn text_of(said: &Output) -> String {
    format!("{}{}", text(&said.stdout), text(&said.stderr))
}

#[test]
fn yaml_is_read_back_whatever_a_text_begins_with() {
    for held in [
        "\tx\ny\n",
        "\n\tx\n",
        "\t\n",
        "a\n\tb\n",
        " x\ny",
        "#!/bin/sh\necho\n",
        "yes",
        "a: b",
        "\u{85}x",
    ] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": held}});
        let document = json!({"apiVersion": "v1", "kind": "Template", "objects": [object]});
        let yaml = process(&["-o", "yaml"], &document.to_string());
        assert!(
            !yaml.contains("|\n")
                || !yaml.lines().any(|it| it.trim_start_matches(' ').starts_with('\t')),
            "{yaml}"
        );
        let list: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(list["items"][0]["data"]["k"], held, "{yaml}");
    }
}

#[test]
fn what_is_passed_over_is_said() {
    let beside = format!("{TEMPLATE}---\nkind: ConfigMap\n");
    let said = said(&["process", "-f", "-", "-o", "name"], &beside);
    assert!(text(&said.stderr).contains("1 documents that are no templates are passed over"));
    let outer = format!("{TEMPLATE}items: []\n");
    assert_eq!(process(&["-o", "name"], &outer), "secret/web\ndeployment.apps/web\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values");
    std::fs::write(&file, "PASSWORD=ab#cd\n").unwrap();
    let said =
        self::said(&["process", "-f", "-", "--param-file", &file.display().to_string()], TEMPLATE);
    assert!(text(&said.stderr).contains("line 1: what follows the # is a comment"));
}

#[test]
fn standard_input_is_read_once() {
    for args in
        [&["process", "-f", "-", "--param-file", "-"][..], &["diff", "-", "-"], &["lint", "-", "-"]]
    {
        assert!(
            refused(args, TEMPLATE).contains("standard input can be read only once"),
            "{args:?}"
        );
    }
}

#[test]
fn flags_are_those_that_scripts_have() {
    let args = ["--local=true", "--raw=true", "--ignore-unknown-parameters=true", "-l", ""];
    let found = process(&[&args[..], &["-o", "json", "-o", "name", "X=y"]].concat(), TEMPLATE);
    assert_eq!(found, "secret/web\ndeployment.apps/web\n");
    assert!(
        refused(&["process", "-f", "-", "--template", "{.kind}"], TEMPLATE).contains("-o jsonpath")
    );
    let said = refused(&["process", "-f", "https://127.0.0.1/t.yaml"], "");
    assert!(said.contains("an address is not fetched"), "{said}");
}

#[test]
fn labels_win_over_those_of_the_template() {
    let labelled = format!("{TEMPLATE}labels: {{app: t, tier: x}}\n");
    let list = process(&["-l", "app=mine,new=", "--raw"], &labelled);
    let first = serde_json::Deserializer::from_str(&list).into_iter::<Value>().next().unwrap();
    let labels = &first.unwrap()["metadata"]["labels"];
    assert_eq!(labels, &json!({"app": "mine", "tier": "x", "new": ""}));
}

#[test]
fn parameters_are_printed_in_columns() {
    let found = process(&["--parameters"], TEMPLATE);
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            "NAME                DESCRIPTION         GENERATOR           VALUE",
            "NAME                What it is named                        web",
            "COUNT                                                       2",
            "PASSWORD                                expression          [a-z]{8}",
        ]
    );
    for other in [&["-p", "NAME=x"][..], &["-o", "yaml"], &["-l", "a=b"], &["--raw"], &["NAME=x"]] {
        let args = [&["process", "-f", "-", "--parameters"], other].concat();
        assert!(refused(&args, TEMPLATE).contains("cannot be used with"), "{other:?}");
    }
}

#[test]
fn every_fault_is_named() {
    let wrong = TEMPLATE.replace("kind: Secret", "kind: \"\"").replace("apps/v1", "a/b/c");
    let said = refused(&["process", "-f", "-"], &wrong);
    assert!(said.contains("The Template \"t\" is invalid: \n* template.objects[0]: "), "{said}");
    assert!(said.contains("\n* template.objects[1].apiVersion: "), "{said}");
    let said = refused(&["process", "-f", "-"], &TEMPLATE.replace("value: \"2\"", "value: 2"));
    assert!(
        said.contains("template.parameters[1].value: Invalid value: a number: has to be"),
        "{said}"
    );
}

#[test]
fn what_is_no_template_is_said() {
    for (args, input, words) in [
        (&["process"][..], "", "--filename"),
        (&["process", "-f", "-"], "kind: Service", "not a valid Template but a Service"),
        (&["process", "-f", "-"], "", "there is no Template in it"),
        (&["process", "-f", "-"], "a: [", "-: "),
        (&["process", "-f", "/no/such"], "", "cannot read /no/such"),
        (&["process", "-f", "-", "web"], TEMPLATE, "-f names the template"),
        (&["lint", "-"], "kind: Service", "not a valid Template"),
    ] {
        assert!(refused(args, input).contains(words), "{args:?}: {}", refused(args, input));
    }
}

#[test]
fn of_several_templates_the_first_is_processed() {
    let two = format!("{TEMPLATE}---{}", TEMPLATE.replace("{name: t}", "{name: u}"));
    let said = said(&["process", "-f", "-", "-o", "name"], &two);
    assert_eq!(text(&said.stdout), "secret/web\ndeployment.apps/web\n");
    assert!(text(&said.stderr).contains("2 input templates found, but only the first"));
}

/// Of an OpenShift of old.
const LEGACY: &str = r#"
apiVersion: v1
kind: Template
metadata: {name: old}
parameters:
  - {name: HOST, value: ""}
  - {name: IMAGE, value: "registry.example.com/web:1"}
objects:
  - apiVersion: v1
    kind: Service
    metadata: {name: web}
    spec: {selector: {deploymentconfig: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
  - apiVersion: v1
    kind: Route
    metadata: {name: web, annotations: {template.openshift.io/expose-uri: "http://{.spec.host}{.spec.path}"}}
    spec: {host: "${HOST}", to: {kind: Service, name: web}, port: {targetPort: 8080}}
  - apiVersion: v1
    kind: DeploymentConfig
    metadata: {name: web}
    spec:
      replicas: 1
      triggers: [{type: ConfigChange}]
      template:
        metadata: {labels: {name: web}}
        spec: {containers: [{name: web, image: "${IMAGE}"}]}
  - apiVersion: v1
    kind: RoleBinding
    metadata: {name: view}
    roleRef: {name: view}
    subjects: [{kind: ServiceAccount, name: default}]
"#;

const PLACE: [&str; 3] = ["--translate", "--route-domain=apps.example.com", "--namespace=shop"];

#[test]
fn plain_kubernetes_takes_what_is_translated() {
    let names = process(&[&PLACE[..], &["-o", "name"]].concat(), LEGACY);
    assert_eq!(
        names,
        "service/web\ningress.networking.k8s.io/web\ndeployment.apps/web\n\
         rolebinding.rbac.authorization.k8s.io/view\n"
    );
    let list = process(&[&PLACE[..], &["--ingress-class", "nginx"]].concat(), LEGACY);
    let list: Value = serde_json::from_str(&list).unwrap();
    let [_, ingress, deployment, binding] = list["items"].as_array().unwrap().as_slice() else {
        panic!("{list}")
    };
    assert_eq!(ingress["spec"]["ingressClassName"], "nginx");
    let rule = &ingress["spec"]["rules"][0];
    assert_eq!(rule["host"], "web-shop.apps.example.com");
    let port = json!({"name": "http"});
    assert_eq!(rule["http"]["paths"][0]["backend"]["service"]["port"], port);
    assert_eq!(
        ingress["metadata"]["annotations"]["template.openshift.io/expose-uri"],
        "http://{.spec.rules[0].host}"
    );
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], json!({"name": "web"}));
    assert_eq!(binding["subjects"][0]["namespace"], "shop");
}

#[test]
fn nothing_is_translated_unasked() {
    let names = process(&["-o", "name"], LEGACY);
    assert!(names.contains("\nroute.route.openshift.io/web\n"), "{names}");
    for alone in [&["--route-domain=x"][..], &["--ingress-class=x"], &["-n", "x"]] {
        let said = refused(&[&["process", "-f", "-"], alone].concat(), LEGACY);
        assert!(said.contains("--translate"), "{said}");
    }
}

#[test]
fn what_cannot_be_translated_is_named_with_what_to_do() {
    let said = refused(&["process", "-f", "-", "--translate", "-p", "IMAGE= "], LEGACY);
    for words in [
        "The Template \"old\" cannot be translated: \n* template.objects[1].spec.host: Required value: ",
        "\n* template.objects[2].spec.template.spec.containers[0].image: Required value: ",
        "\n* template.objects[3].subjects[0].namespace: Required value: ",
        "--route-domain says the domain of Routes",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let hooked = LEGACY.replace("replicas: 1", "strategy: {type: Custom}");
    let said = refused(&[&["process", "-f", "-"], &PLACE[..]].concat(), &hooked);
    assert!(said.contains("objects[2].spec.strategy.type: Invalid value: a string: "), "{said}");
    assert!(!said.contains("--route-domain"), "{said}");
}

#[test]
fn what_is_only_left_out_is_a_warning() {
    let streamed =
        LEGACY.replace("[{type: ConfigChange}]", "[{type: ConfigChange}, {type: ImageChange}]");
    let args = [&["process", "-f", "-", "-o", "name"], &PLACE[..]].concat();
    let said = said(&args, &streamed);
    assert_eq!(said.status.code(), Some(0));
    let warned = text(&said.stderr);
    assert!(
        warned
            .contains("warning: template.objects[2].spec.triggers[1]: Questionable: a Deployment"),
        "{warned}"
    );
}

#[test]
fn the_examples_have_no_faults_and_are_processed() {
    for name in ["web.yaml", "database.yaml"] {
        let said = said(&["lint", &example(name)], "");
        assert_eq!(said.status.code(), Some(0), "{}{}", text(&said.stdout), text(&said.stderr));
        assert_eq!(text(&said.stdout), "", "{name}");
        let names = printed(&["process", "-f", &example(name), "-p", "NAME=x", "-o", "name"], "");
        assert!(names.starts_with("secret/x\n"), "{names}");
    }
}

#[test]
fn the_pods_of_the_examples_are_as_restricted_as_kubernetes_asks() {
    for name in ["web.yaml", "database.yaml"] {
        let list = printed(&["process", "-f", &example(name), "-o", "json"], "");
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let objects = list["items"].as_array().unwrap().iter();
        let pods: Vec<_> =
            objects.filter_map(|object| object.pointer("/spec/template/spec")).collect();
        assert!(!pods.is_empty(), "{name}");
        for pod in pods {
            // What a container does not say its pod says.
            let (of_pod, container) = (&pod["securityContext"], &pod["containers"][0]);
            let own = &container["securityContext"];
            let said = |key: &str| own.get(key).unwrap_or(&of_pod[key]);
            assert_eq!(pod["containers"].as_array().unwrap().len(), 1, "{name}");
            assert_eq!(said("runAsNonRoot"), true, "{name}");
            assert!(said("runAsUser").as_u64().is_some_and(|user| user > 0), "{name}");
            assert_eq!(said("seccompProfile")["type"], "RuntimeDefault", "{name}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(own["capabilities"], serde_json::json!({"drop": ["ALL"]}), "{name}");
            for refused in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod.get(refused).is_none(), "{name}: {refused}");
            }
        }
    }
}

#[test]
fn faults_are_a_line_each_and_questions_are_no_failure() {
    let questionable = said(&["lint", "-"], TEMPLATE);
    assert_eq!(questionable.status.code(), Some(0), "{}", text(&questionable.stderr));
    assert_eq!(
        text(&questionable.stdout),
        "-: t: template.objects[1].metadata.namespace: Questionable: is removed: objects are where the instance is\n"
    );
    let wrong = said(&["lint", "-f", "-"], &TEMPLATE.replace("[a-z]{8}", "[z-a]{8}"));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stdout).contains("invalid range specified: z-a"),
        "{}",
        text(&wrong.stdout)
    );
    assert!(text(&wrong.stderr).contains("1 fault, 1 questionable, 1 looked at"));
}

#[test]
fn a_program_is_told_what_lint_finds_as_a_document() {
    let json: [(&str, &OsStr); 1] = [("MANCIPLE_OUTPUT", "json".as_ref())];
    for (variables, place) in [(&[][..], &["lint", "-o", "json", "-"][..]), (&json, &["lint", "-"])]
    {
        let said = said_with(variables, place, TEMPLATE);
        assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
        assert_eq!(text(&said.stderr), "", "{place:?}");
        let document: Value = serde_json::from_slice(&said.stdout).unwrap();
        let fault = json!({
            "file": "-",
            "object": "t",
            "path": "template.objects[1].metadata.namespace",
            "message": "Questionable: is removed: objects are where the instance is",
            "questionable": true,
        });
        assert_eq!(document, json!({"looked_at": 1, "faults": [fault]}), "{place:?}");
    }
}

#[test]
fn what_changes_is_shown_and_no_secret_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let old = file("old.yaml", TEMPLATE);
    let new = TEMPLATE
        .replace("tricky: \"yes\"", "tricky: \"no\"")
        .replace("value: \"2\"", "value: \"3\"");
    let new = file("new.yaml", &new);
    assert_eq!(
        printed(&["diff", &old, &new], ""),
        "~ deployment.apps/web\n    spec.replicas: 2 → 3\n\
         ~ secret/web\n    stringData.tricky: (not shown) → (not shown)\n"
    );
    assert_eq!(printed(&["diff", &old, &old], ""), "", "a password that is made is no difference");
    assert_eq!(printed(&["diff", &old, &new, "-p", "COUNT=1"], "").lines().count(), 2);
    assert!(
        refused(&["diff", &old, &new, "-p", "X=1"], "").contains("unknown parameter name \"X\"")
    );
}

#[test]
fn the_schema_is_that_of_the_parameters() {
    let schema: Value = serde_json::from_str(&printed(&["schema", "-f", "-"], TEMPLATE)).unwrap();
    assert_eq!(schema["properties"]["NAME"]["description"], "What it is named");
    assert_eq!(schema["properties"].as_object().unwrap().len(), 3);
    assert_eq!(schema.get("required"), None);
}
