use super::*;

fn config() -> Value {
    json!({
        "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig",
        "metadata": {"name": "web", "annotations": {"a": "b"}},
        "spec": {
            "replicas": 2, "selector": {"name": "web"}, "triggers": [{"type": "ConfigChange"}],
            "template": {
                "metadata": {"labels": {"name": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            },
        },
        "status": {},
    })
}

#[test]
fn a_deployment_config_becomes_a_deployment() {
    let (found, said) = one(config());
    assert_eq!(
        found,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {"a": "b"}},
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"name": "web"}},
                "strategy": {"type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": {"name": "web", "deploymentconfig": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
                },
            },
        })
    );
    assert_eq!(said, [""; 0]);
    let mut whole = config();
    for (key, value) in
        [("minReadySeconds", json!(5)), ("revisionHistoryLimit", json!(0)), ("paused", json!(true))]
    {
        whole["spec"][key] = value.clone();
        assert_eq!(one(whole.clone()).0["spec"][key], value);
    }
}

#[test]
fn strategies_have_their_own_defaults() {
    let of = |strategy: Value| with(config(), "/spec/strategy", strategy);
    let rolling = |params: Value| of(json!({"type": "Rolling", "rollingParams": params}));
    let update = |surge: Value, unavailable: Value| {
        json!({
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        })
    };
    let paces = json!({"updatePeriodSeconds": 1, "intervalSeconds": 1, "timeoutSeconds": 600});
    let deployer = json!({
        "resources": {"limits": {}}, "labels": {"a": "b"}, "annotations": {}, "activeDeadlineSeconds": 21600,
        "rollingParams": {}, "recreateParams": {"pre": {"failurePolicy": "Abort"}, "timeoutSeconds": 5},
    });
    let recreate = json!({"type": "Recreate", "recreateParams": {"timeoutSeconds": 60}});
    for (name, config, strategy, deadline) in [
        ("paces", rolling(paces), json!({"type": "RollingUpdate"}), json!(600)),
        ("the deployer's", of(deployer), json!({"type": "RollingUpdate"}), json!(null)),
        (
            "both",
            rolling(json!({"maxSurge": "50%", "maxUnavailable": 1})),
            update(json!("50%"), json!(1)),
            json!(null),
        ),
        ("surge", rolling(json!({"maxSurge": 1})), update(json!(1), json!(0)), json!(null)),
        (
            "no surge",
            rolling(json!({"maxSurge": "0%"})),
            update(json!("0%"), json!("25%")),
            json!(null),
        ),
        (
            "unavailable",
            rolling(json!({"maxUnavailable": 1})),
            update(json!(0), json!(1)),
            json!(null),
        ),
        (
            "all available",
            rolling(json!({"maxUnavailable": 0})),
            update(json!("25%"), json!(0)),
            json!(null),
        ),
        ("at once", of(recreate), json!({"type": "Recreate"}), json!(60)),
    ] {
        let (found, said) = one(config);
        let spec = &found["spec"];
        assert_eq!(
            (&spec["strategy"], &spec["progressDeadlineSeconds"]),
            (&strategy, &deadline),
            "{name}"
        );
        assert_eq!(said, [""; 0], "{name}");
    }
}

#[test]
fn pods_have_the_labels_that_openshift_gives_them() {
    let bare = with(config(), "/spec/selector", json!(null));
    assert_eq!(one(bare.clone()).0["spec"]["selector"]["matchLabels"], json!({"name": "web"}));
    let own = json!({"deploymentconfig": "other", "name": "web"});
    let mut relabelled = with(bare, "/spec/template/metadata/labels", own);
    let (found, _) = one(relabelled.clone());
    let labels = json!({"deploymentconfig": "web", "name": "web"});
    assert_eq!(found["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(found["spec"]["template"]["metadata"]["labels"], labels);
    // A name that no label can have is left alone.
    relabelled["metadata"]["name"] = json!("a".repeat(64));
    let (found, _) = one(relabelled);
    assert_eq!(found["spec"]["selector"]["matchLabels"]["deploymentconfig"], "other");
}

#[test]
fn images_are_named() {
    let of = |image: Value| with(config(), "/spec/template/spec/containers/0/image", image);
    let (found, _) = one(of(json!(" i:1 ")));
    assert_eq!(found["spec"]["template"]["spec"]["containers"][0]["image"], "i:1");
    for image in [json!(null), json!(""), json!(" ")] {
        assert_eq!(
            refused(json!([of(image)]), &means()),
            [
                "spec.template.spec.containers[0].image: Required value: is filled in from an image stream on OpenShift: \
              name the image"
            ]
        );
    }
    let init = with(config(), "/spec/template/spec/initContainers", json!([{"name": "i"}]));
    let said = refused(json!([init]), &means());
    assert!(
        said[0].starts_with("spec.template.spec.initContainers[0].image: Required"),
        "{said:?}"
    );
}

#[test]
fn what_triggers_would_do_is_said() {
    let image = json!({"type": "ImageChange", "imageChangeParams": {"automatic": true}});
    let follows = "spec.triggers[0]: Questionable: a Deployment follows no image stream: its images are what the \
                   containers say";
    let each = "spec.triggers: Questionable: there is no ConfigChange, and a Deployment rolls out each change";
    for (triggers, expected) in [
        (json!(null), vec![]),
        (json!([{"type": "ConfigChange"}]), vec![]),
        (json!([image, {"type": "ConfigChange"}]), vec![follows]),
        (json!([image]), vec![follows, each]),
        (json!([]), vec![each]),
    ] {
        assert_eq!(
            one(with(config(), "/spec/triggers", triggers.clone())).1,
            expected,
            "{triggers}"
        );
    }
    let (found, said) = one(with(config(), "/spec/replicas", json!(null)));
    assert_eq!(found["spec"]["replicas"], 0);
    assert_eq!(
        said,
        ["spec.replicas: Questionable: is missing, which is 0 for a DeploymentConfig: no pods"]
    );
}

#[test]
fn what_a_deployment_does_not_do_is_refused() {
    let hook = json!({"failurePolicy": "Abort", "execNewPod": {"command": ["x"]}});
    let rolling = |hook: &str, value: &Value| json!({"rollingParams": {hook: value}});
    let recreate =
        |hook: &str, value: &Value| json!({"type": "Recreate", "recreateParams": {hook: value}});
    for (pointer, value, said) in [
        ("/spec/test", json!(true), "spec.test: Invalid value: a boolean: a Deployment keeps its"),
        ("/spec/strategy", json!({"type": "Custom"}), "spec.strategy.type: Invalid value"),
        ("/spec/strategy", json!({"customParams": {"image": "x"}}), "spec.strategy.customParams: "),
        ("/spec/strategy", json!("Rolling"), "spec.strategy: Invalid value: a string: has to be a"),
        (
            "/spec/strategy",
            rolling("pre", &hook),
            "spec.strategy.rollingParams.pre: Invalid value: a",
        ),
        ("/spec/strategy", rolling("post", &hook), "spec.strategy.rollingParams.post: Invalid"),
        ("/spec/strategy", recreate("pre", &hook), "spec.strategy.recreateParams.pre: Invalid"),
        ("/spec/strategy", recreate("mid", &hook), "spec.strategy.recreateParams.mid: Invalid"),
        ("/spec/strategy", recreate("post", &hook), "spec.strategy.recreateParams.post: Invalid"),
        (
            "/spec/triggers",
            json!([{"type": "Odd"}]),
            "spec.triggers[0].type: Invalid value: a string",
        ),
        ("/spec/triggers", json!({}), "spec.triggers: Invalid value: a map: has to be a list"),
        ("/spec/template", json!(null), "spec.template: Required value"),
        ("/spec/template", json!([]), "spec.template: Invalid value: a list"),
        ("/spec/template/metadata", json!("x"), "spec.template.metadata: Invalid value: a string"),
        (
            "/spec/template/metadata/labels",
            json!(1),
            "spec.template.metadata.labels: Invalid value",
        ),
        ("/spec/selector", json!("name=web"), "spec.selector: Invalid value: a string"),
    ] {
        let found = refused(json!([with(config(), pointer, value)]), &means());
        assert!(found[0].starts_with(said), "{pointer}: {found:?}");
    }
    let mut unlabelled = with(config(), "/spec/selector", json!({}));
    unlabelled["spec"]["template"]["metadata"] = json!(null);
    let said = refused(json!([unlabelled]), &means());
    assert!(said[0].starts_with("spec.selector: Required value"), "{said:?}");
}
