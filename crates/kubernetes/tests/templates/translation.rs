//! What only OpenShift has, on a cluster without it.

use kube::api::{Patch, PatchParams};
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use template::translate::Translation;
use tokio::time::Duration;

use super::harness::{PATIENCE, Town, template};
use super::support::wait;

fn openshift() -> Value {
    let labels = json!({"app": "web"});
    let container = json!({
        "name": "c", "image": "registry.example.com/web:1", "ports": [{"containerPort": 8080}],
    });
    let objects = json!([
        {
            "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 0, "selector": labels, "strategy": {"type": "Rolling"},
                "triggers": [{"type": "ConfigChange"}],
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {
                "ports": [{"name": "web", "port": 80, "targetPort": 8080}],
                "selector": {"app": "web"},
            },
        },
        {
            "apiVersion": "v1", "kind": "Route",
            "metadata": {
                "name": "web",
                "annotations": {
                    "template.openshift.io/expose-uri": "http://{.spec.host}{.spec.path}",
                    "template.alpha.openshift.io/wait-for-ready": "true",
                },
            },
            "spec": {"to": {"kind": "Service", "name": "web"}, "port": {"targetPort": 8080}},
        },
        {
            "apiVersion": "v1", "kind": "RoleBinding", "metadata": {"name": "web"},
            "roleRef": {"name": "view"}, "subjects": [{"kind": "ServiceAccount", "name": "default"}],
        },
    ]);
    template(objects, json!([]))
}

/// A town where an administrator has ordered that, and has it.
async fn translated(test: &str) -> (Town, Value) {
    let mut town = Town::still(test).await;
    let domain = Some("apps.example.com".to_owned());
    town.settings.translation = Some(Translation { domain, ..Translation::default() });
    town.start().await;
    town.bind("boss", "admin").await;
    town.order("i", "boss", openshift()).await;
    let instance = town.ready("i").await;
    (town, instance)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_openshift_has_becomes_what_any_kubernetes_has() {
    let (town, instance) = translated("template-translated").await;
    let namespace = &town.cluster.namespace;
    let ingress = town.object("networking.k8s.io/v1", "Ingresse", "web").await.unwrap();
    let rule = &ingress["spec"]["rules"][0];
    assert_eq!(rule["host"], format!("web-{namespace}.apps.example.com"));
    assert_eq!(rule["http"]["paths"][0]["backend"]["service"]["port"]["name"], "web");
    let deployment = town.object("apps/v1", "Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], json!({"app": "web"}));
    let binding = town.object("rbac.authorization.k8s.io/v1", "RoleBinding", "web").await.unwrap();
    assert_eq!(binding["roleRef"]["kind"], "ClusterRole");
    assert_eq!(binding["subjects"][0]["namespace"], **namespace);
    assert_eq!(instance["status"]["objects"].as_array().unwrap().len(), 4);
    // It is changed, and goes, as any other.
    let mut changed = openshift();
    changed["objects"][0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    changed["objects"].as_array_mut().unwrap().remove(2);
    town.change("i", "boss", changed).await;
    town.ready_again("i").await;
    let deployment = town.object("apps/v1", "Deployment", "web").await.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "other");
    assert_eq!(town.object("networking.k8s.io/v1", "Ingresse", "web").await, None);
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("apps/v1", "Deployment", "web").await, None);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_translated_stays_so_when_translation_is_turned_off() {
    let (mut town, _) = translated("template-translated-once").await;
    town.kill();
    town.settings.translation = None;
    town.settings.drift = Drift::Repair;
    town.settings.drift_interval = Duration::from_secs(1);
    let ingresses = town.objects("networking.k8s.io/v1", "Ingresse");
    let patch = Patch::Merge(json!({"spec": {"rules": null, "defaultBackend": {
        "service": {"name": "web", "port": {"number": 80}},
    }}}));
    ingresses.patch("web", &PatchParams::default(), &patch).await.unwrap();
    town.start().await;
    let host = format!("web-{}.apps.example.com", town.cluster.namespace);
    wait::until("its host is not put back", PATIENCE, async || {
        let ingress = town.object("networking.k8s.io/v1", "Ingresse", "web").await.unwrap();
        if ingress["spec"]["rules"][0]["host"] == *host { Ok(()) } else { Err(ingress) }
    })
    .await;
    // What is ordered from now on is as the operator has it now.
    let mut changed = openshift();
    changed["objects"][1]["spec"]["ports"][0]["port"] = json!(81);
    town.change("i", "boss", changed).await;
    let why = town.failed_again("i").await;
    assert!(why.contains("apps.openshift.io/v1"), "{why}");
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("networking.k8s.io/v1", "Ingresse", "web").await, None);
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_translated_fails_with_its_path() {
    let mut town = Town::still("template-untranslated").await;
    town.settings.translation = Some(Translation::default());
    town.start().await;
    town.order("i", "editor", openshift()).await;
    let why = town.failed("i").await;
    assert!(why.contains("template.objects[2].spec.host"), "{why}");
    assert_eq!(town.object("v1", "Service", "web").await, None, "nothing is made");
    town.remove().await;
}
