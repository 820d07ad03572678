//! What the chart makes of values.

mod before;
mod clients;
mod monitors;
mod pods;
mod refused;
mod schema;
mod templates;

use super::*;

/// The one that the base is.
const HOME: Release<'_> = Release { name: RELEASE, namespace: RELEASE };

/// What the chart makes of values: what Helm does, too.
fn chart(values: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    chart_of(HOME, values)
}

/// The same of another release.
fn chart_of(release: Release<'_>, over: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let given = given(over);
    let faults = schema::faults(&given);
    let made = match &faults[..] {
        [] => of_values(release, as_helm(&given)),
        faults => Err(anyhow::anyhow!("{faults:?}")),
    };
    if let Some(helm) = clients::helm(release, over) {
        match &made {
            Ok(made) => assert_eq!(
                clients::sorted([&helm.unwrap()]),
                clients::sorted(made.values()),
                "{over}"
            ),
            Err(error) => assert!(helm.is_err(), "Helm takes {over}: {error:#}"),
        }
    }
    made
}

/// What Helm holds to the schema and renders: the chart's own values with these over them, which take away whatever they
/// say is null.
fn given(over: &Value) -> Value {
    fn put(values: &mut Value, over: &Value) {
        let (Value::Object(values), Value::Object(over)) = (&mut *values, over) else {
            return values.clone_from(over);
        };
        for (name, over) in over {
            match values.get_mut(name) {
                Some(_) if over.is_null() => drop(values.remove(name)),
                Some(value) => put(value, over),
                None => drop(values.insert(name.clone(), over.clone())),
            }
        }
    }
    let mut values = values().unwrap();
    put(&mut values, over);
    values
}

fn made(values: &Value) -> BTreeMap<String, Value> {
    let texts = chart(values).unwrap().into_iter();
    texts.map(|(name, text)| (name, objects(&text).unwrap().remove(0))).collect()
}

/// What the configuration that a chart makes says.
fn configuration(values: &Value) -> Value {
    let made = made(values);
    let text = made["configmap.yaml"]["data"]["manciple.yaml"].as_str().unwrap();
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_defaults_leave_out_what_not_every_cluster_has() {
    let made = made(&json!({}));
    assert!(!made.contains_key("poddisruptionbudget.yaml"));
    assert!(!made.contains_key("servicemonitor.yaml"));
    assert!(made.contains_key("networkpolicy.yaml"));
    let without = chart(&json!({"networkPolicy": {"enabled": false}})).unwrap();
    assert!(!without.contains_key("networkpolicy.yaml"));
}

#[test]
fn nobody_reaches_runs_in_any_namespace_that_has_them() {
    let values = json!({"brokers": "apart", "jobNamespaces": ["jobs-a", "jobs-b"]});
    let policies = of_kind(&values, "NetworkPolicy");
    let of_runs = |policy: &&Value| policy["spec"]["ingress"] == json!([]);
    let of_runs: Vec<_> = policies.iter().filter(of_runs).collect();
    let namespaces: Vec<_> = of_runs.iter().map(|it| &it["metadata"]["namespace"]).collect();
    assert_eq!(namespaces, ["manciple", "jobs-a", "jobs-b"]);
    for policy in of_runs {
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "{policy}");
        let marked = &policy["spec"]["podSelector"]["matchExpressions"];
        assert_eq!(marked, &json!([{"key": "manciple.dev/run", "operator": "Exists"}]));
    }
}

#[test]
fn pods_run_as_nobody_or_as_whom_the_cluster_chooses() {
    for (values, expected) in [(json!({}), json!(65532)), (json!({"runAs": 0}), json!(null))] {
        let mut values = values;
        values["templates"] = json!({"enabled": true});
        for deployment in of_kind(&values, "Deployment") {
            let context = &deployment["spec"]["template"]["spec"]["securityContext"];
            for member in ["runAsUser", "runAsGroup", "fsGroup"] {
                assert_eq!(context[member], expected, "{member}: {deployment}");
            }
            assert_eq!(context["runAsNonRoot"], true);
        }
    }
}

#[test]
fn tls_is_served_and_probed() {
    let values = json!({"tls": {"secretName": "certificate"}});
    let made = made(&values);
    let pod = &made["deployment.yaml"]["spec"]["template"]["spec"];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(pod["containers"][0][probe]["httpGet"]["scheme"], "HTTPS", "{probe}");
    }
    assert_eq!(pod["volumes"][2]["secret"]["secretName"], "certificate");
    assert_eq!(made["service.yaml"]["spec"]["ports"][0]["port"], 443);
    assert_eq!(configuration(&values)["tls"]["key"], "/etc/manciple/tls/tls.key");
}

#[test]
fn further_configuration_is_part_of_the_file() {
    let text = "operations:\n  max_runs: 4\nkubernetes: {keep_failed: 2h}";
    let configuration = configuration(&json!({"config": text}));
    assert_eq!(configuration["operations"]["max_runs"], 4);
    assert_eq!(configuration["kubernetes"]["keep_failed"], "2h");
    assert_eq!(configuration["listen"], "[::]:8080");
}

#[test]
fn what_the_chart_writes_of_the_file_has_values_too() {
    let broker = json!({"name": "b", "settings": "grace: 5s\ncapabilities: [request-file]"});
    let expected = json!({"name": "b", "grace": "5s", "capabilities": ["request-file"]});
    for (log, level) in [
        ("{format: json, level: debug}", json!("debug")),
        ("format: json\nlevel: debug\n", json!("debug")),
        ("", json!(null)),
    ] {
        let file = configuration(&json!({"broker": broker, "log": log}));
        assert_eq!((&file["broker"], &file["log"]["level"]), (&expected, &level), "{log}");
        assert_eq!(file["log"]["format"], "json", "{log}");
    }
}

#[test]
fn who_may_ask_is_said_by_secrets_and_by_the_cluster() {
    let values = json!({"credentials": {"secretName": ""}, "auth": {
        "secrets": [{"name": "cf", "role": "platform"}, {"name": "ops", "role": "operator"}],
        "kubernetes": "access_review: true\naudiences: [manciple]",
    }});
    let auth = configuration(&values)["auth"].clone();
    assert_eq!(auth["secrets"], values["auth"]["secrets"]);
    assert_eq!(auth["kubernetes"]["audiences"][0], "manciple");
    assert_eq!(auth.get("users"), None);
    let pod = made(&values)["deployment.yaml"]["spec"]["template"]["spec"].clone();
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 1, "{pod}");
    let access = objects(&chart(&values).unwrap()["access.yaml"]).unwrap();
    let kinds: Vec<_> = access.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]);
    assert_eq!(access[0]["rules"][0]["resourceNames"], json!(["cf", "ops"]));
    assert!(!chart(&json!({})).unwrap().contains_key("access.yaml"), "by choice only");
    let one = json!({"auth": {"kubernetes": "access_review: true"}});
    assert_eq!(objects(&chart(&one).unwrap()["access.yaml"]).unwrap().len(), 2);
}

#[test]
fn a_broker_is_named_in_the_seeds_words() {
    let broker = json!({"image": "b:1", "configMap": "settings", "secret": "1"});
    let made = made(&json!({"broker": broker}));
    let container = &made["deployment.yaml"]["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let given: BTreeMap<_, _> =
        variables.map(|it| (it["name"].as_str().unwrap(), it["value"].clone())).collect();
    assert_eq!(given["STEWARD_MODE"], "jobs");
    assert_eq!(given["JOBS_IMAGE"], "b:1");
    assert_eq!(given["JOBS_CONFIG_MAP"], "settings");
    assert_eq!(given["JOBS_SECRET"], "1");
}

fn variables(values: &Value) -> BTreeMap<String, Value> {
    let deployments = of_kind(values, "Deployment");
    let controller = "manciple-controller";
    let found = deployments.iter().find(|it| it["metadata"]["name"] == controller).unwrap();
    let container = &found["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let mut given = BTreeMap::new();
    for it in variables {
        let name = it["name"].as_str().unwrap();
        let before = given.insert(name.to_owned(), it["value"].clone());
        assert_eq!(before, None, "{name} is there twice, which server-side apply refuses");
    }
    given
}

/// What the chart makes of values, of a kind.
fn of_kind(values: &Value, kind: &str) -> Vec<Value> {
    let texts = chart(values).unwrap().into_values();
    let all = texts.flat_map(|text| objects(&text).unwrap());
    all.filter(|object| object["kind"] == kind).collect()
}

#[test]
fn brokers_that_are_resources_take_the_place_of_the_image() {
    let several = json!({"brokers": "apart", "jobNamespaces": ["jobs-a", "jobs-b"]});
    for (values, there, not_there) in
        [(json!({}), "JOBS_IMAGE", "MANCIPLE_BROKERS"), (several, "MANCIPLE_BROKERS", "JOBS_IMAGE")]
    {
        let deployment = of_kind(&values, "Deployment")[0].to_string();
        assert!(deployment.contains(there) && !deployment.contains(not_there), "{deployment}");
    }
}

/// The names of what the chart makes of values, of a kind, with their namespaces.
fn places(values: &Value, kind: &str) -> Vec<String> {
    let found = of_kind(values, kind).into_iter();
    let place = |object: Value| {
        let word = |name: &str| object["metadata"][name].as_str().unwrap_or("*").to_owned();
        format!("{}/{}", word("namespace"), word("name"))
    };
    found.map(place).collect()
}

/// The kinds of things that the rules of an object are about.
fn resources(object: &Value) -> String {
    let rules = object["rules"].as_array().unwrap().iter();
    rules.map(|rule| rule["resources"][0].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_controller_is_there_by_choice_and_may_be_alone() {
    assert_eq!(places(&json!({}), "Deployment"), ["manciple/manciple"]);
    let both = json!({"controller": {"enabled": true}});
    let deployments = places(&both, "Deployment");
    assert_eq!(deployments, ["manciple/manciple-controller", "manciple/manciple"]);
    let alone = json!({"broker": {"enabled": false}, "controller": {"enabled": true},
        "auth": access(), "serviceMonitor": {"enabled": true},
        "podDisruptionBudget": {"enabled": true}});
    let made: Vec<_> = chart(&alone).unwrap().into_keys().collect();
    let further = ["controller-poddisruptionbudget.yaml", "controller-podmonitor.yaml"];
    assert_eq!(made, [further, ["controller-role.yaml", "controller.yaml"]].concat());
    let pod = &of_kind(&alone, "Deployment")[0]["spec"]["template"]["metadata"]["labels"];
    for kind in ["PodDisruptionBudget", "PodMonitor"] {
        let found = of_kind(&alone, kind);
        assert_eq!(found[0]["spec"]["selector"]["matchLabels"], *pod, "{kind}");
        assert!(of_kind(&both, kind).is_empty(), "by choice only: {kind}");
    }
    // The Service is the broker's, and so is nothing of the controller.
    let pod = &of_kind(&alone, "Deployment")[0]["spec"]["template"];
    let selected = &of_kind(&both, "Service")[0]["spec"]["selector"];
    assert_ne!(
        pod["metadata"]["labels"]["app.kubernetes.io/name"],
        selected["app.kubernetes.io/name"]
    );
}

fn access() -> Value {
    json!({"secrets": [{"name": "cf", "role": "platform"}], "kubernetes": "access_review: true"})
}

#[test]
fn the_controllers_rights_are_everywhere_or_in_named_namespaces() {
    let everywhere = json!({"broker": {"enabled": false}, "controller": {"enabled": true}});
    let rules = resources(&of_kind(&everywhere, "ClusterRole")[0]);
    let jobs = "quarksjobs quarksjobs/status extendedjobs extendedjobs/status \
                quarksjobs/finalizers extendedjobs/finalizers jobs pods pods/log configmaps secrets events";
    assert_eq!(rules, format!("namespaces {jobs}"));
    assert_eq!(places(&everywhere, "Role"), ["manciple/manciple-controller"]);

    let named = json!({"broker": {"enabled": false},
        "controller": {"enabled": true, "namespaces": ["a", "b"]}});
    assert_eq!(resources(&of_kind(&named, "ClusterRole")[0]), "namespaces");
    let all = [
        "manciple/manciple-controller",
        "a/manciple-manciple-controller",
        "b/manciple-manciple-controller",
    ];
    assert_eq!(places(&named, "Role"), all);
    assert_eq!(places(&named, "RoleBinding"), all);
    let roles = of_kind(&named, "Role");
    assert_eq!(resources(&roles[0]), "leases secrets");
    assert_eq!((resources(&roles[1]), resources(&roles[2])), (jobs.to_owned(), jobs.to_owned()));
    for binding in of_kind(&named, "RoleBinding") {
        assert_eq!(binding["subjects"][0]["namespace"], "manciple", "{binding}");
    }
}

#[test]
fn the_controllers_settings_are_variables() {
    let values = json!({"controller": {"enabled": true, "monitoredID": "1",
        "monitored": "marked", "env": [{"name": "MANCIPLE_SETTLE", "value": "5s"}]}});
    let deployment = of_kind(&values, "Deployment").remove(0);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let given: BTreeMap<_, _> =
        variables.map(|it| (it["name"].as_str().unwrap(), it["value"].clone())).collect();
    assert_eq!(given["MONITORED_ID"], "1");
    assert_eq!(given["MANCIPLE_MONITORED"], "marked");
    assert_eq!(given["MANCIPLE_SETTLE"], "5s");
}

/// Whatever the chart says of the controller's variables.
#[test]
fn whoever_gives_a_variable_of_the_charts_own_takes_its_place() {
    let all = |env: &Value| {
        json!({
            "controller": {"enabled": true, "env": env,
                "agentResources": {"limits": {"memory": "64Mi"}}},
            "templates": {
                "enabled": true, "instanceNamespaces": ["a"], "allowChanges": true,
                "translate": {"enabled": true, "routeDomain": "a.example", "ingressClass": "a"},
            },
        })
    };
    let own = variables(&all(&json!([])));
    assert_eq!(own.len(), 19, "{own:?}");
    for name in own.keys() {
        let given = variables(&all(&json!([{"name": name, "value": "mine"}])));
        assert_eq!(given[name], "mine");
        assert!(given.keys().eq(own.keys()), "{name}: {given:?}");
    }
    let elsewhere = json!({"secretKeyRef": {"name": "pod-name", "key": "POD_NAME"}});
    let further = json!([
        {"name": "A", "value": "\"name\":\"POD_NAME\""}, {"name": "B", "valueFrom": elsewhere},
    ]);
    assert!(variables(&all(&further)).contains_key("POD_NAME"));
}

#[test]
fn the_controllers_log_has_a_format() {
    for format in ["json", "text"] {
        let values = json!({"controller": {"enabled": true, "logFormat": format}});
        assert_eq!(variables(&values)["MANCIPLE_LOG_FORMAT"], format);
    }
}

#[test]
fn each_namespace_with_jobs_has_a_role_and_its_binding() {
    let values = json!({"brokers": "together", "jobNamespaces": ["jobs-a", "jobs-b"]});
    for kind in ["Role", "RoleBinding"] {
        let found = of_kind(&values, kind);
        let places: Vec<_> = found.iter().map(|it| &it["metadata"]["namespace"]).collect();
        assert_eq!(places, ["manciple", "jobs-a", "jobs-b"], "{kind}");
    }
    for binding in of_kind(&values, "RoleBinding") {
        assert_eq!(binding["subjects"][0]["namespace"], "manciple", "{binding}");
    }
    let namespaces = json!("jobs-a,jobs-b,");
    assert!(of_kind(&values, "Deployment")[0].to_string().contains(&namespaces.to_string()));
}

#[test]
fn no_two_objects_of_a_release_have_one_name() {
    for values in [
        json!({"controller": {"enabled": true, "namespaces": [RELEASE, "a"]}}),
        json!({"brokers": "together", "jobNamespaces": [RELEASE, "a"]}),
        json!({"controller": {"enabled": true}, "templates": {"enabled": true}}),
    ] {
        let mut seen = std::collections::BTreeSet::new();
        for text in chart(&values).unwrap().into_values() {
            for object in objects(&text).unwrap() {
                let metadata = &object["metadata"];
                let of = (&object["kind"], &metadata["namespace"], &metadata["name"]);
                let of = format!("{} {}/{}", of.0, of.1, of.2);
                assert!(seen.insert(of.clone()), "{of} is there twice: {values}");
            }
        }
    }
}

/// The numbers in an object.
fn numbers(object: &Value) -> Vec<i64> {
    match object {
        Value::Number(number) => number.as_i64().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(members) => members.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_release_and_a_namespace_of_digits_are_names() {
    let values = json!({
        "controller": {"enabled": true, "namespaces": ["a"]}, "brokers": "apart",
        "jobNamespaces": ["b"], "auth": access(), "antiAffinity": true,
        "podDisruptionBudget": {"enabled": true}, "serviceMonitor": {"enabled": true},
        "tls": {"secretName": "certificate"},
        "templates": {"enabled": true, "webhook": {"certManager": {"enabled": true}}},
    });
    let made = chart_of(Release { name: "20240101", namespace: "20240102" }, &values).unwrap();
    for object in made.values().flat_map(|text| objects(text).unwrap()) {
        let names = [20_240_101, 20_240_102];
        assert!(!numbers(&object).iter().any(|it| names.contains(it)), "{object}");
    }
}

/// As Helm has values: of what is not there nothing is said, where the chart's own are all there.
fn as_helm(value: &Value) -> Term {
    match value {
        Value::Object(members) => {
            Term::Map(members.iter().map(|(name, value)| (name.clone(), as_helm(value))).collect())
        }
        value => term(value),
    }
}

#[test]
fn the_agent_asks_for_what_the_values_say() {
    const NAME: &str = "MANCIPLE_AGENT_RESOURCES";
    let enabled = json!({"controller": {"enabled": true}});
    assert_eq!(variables(&enabled).get(NAME), None);
    let given = json!({"limits": {"cpu": "50m", "memory": "64Mi"}});
    let mut over = enabled.clone();
    over["controller"]["agentResources"] = given.clone();
    let said = variables(&over)[NAME].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), given);
}
