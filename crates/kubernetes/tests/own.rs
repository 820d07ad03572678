//! What a replica asks for before it begins.

mod support;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, PostParams};
use kubernetes::own;
use serde_json::json;

#[tokio::test]
async fn replicas_share_the_password_that_the_first_one_made() {
    let cluster = support::Cluster::new("own-password").await;
    let ask = |broker: &'static str, fresh: &'static str| {
        let (client, namespace) = (cluster.client.clone(), cluster.namespace.clone());
        async move { own::shared_password(client, &namespace, broker, fresh).await.unwrap() }
    };
    // Both at once: one makes it, the other takes it over.
    let (one, two) = tokio::join!(ask("files", "planted-1"), ask("files", "planted-2"));
    assert_eq!(one, two);
    assert_eq!(ask("files", "planted-3").await, one);
    let other = ask("postgres", "planted-4").await;
    assert_eq!(other.1, "planted-4", "brokers have their own");
    assert_ne!(other.0, one.0);
    let secret = cluster.api::<Secret>().get(&one.0).await.unwrap();
    let writer = secret.metadata.managed_fields.unwrap().remove(0).manager;
    assert_eq!(writer.as_deref(), Some("manciple"), "what we write bears our name");
    cluster.abandon();
}

#[tokio::test]
async fn a_pod_knows_its_image_by_the_name_of_its_container() {
    let cluster = support::Cluster::new("own-image").await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    for (pod, containers) in [
        ("only", vec![("server", "manciple.test/any:1")]),
        ("several", vec![("proxy", "manciple.test/proxy:1"), ("manciple", "manciple.test/any:1")]),
        ("none", vec![("proxy", "manciple.test/proxy:1"), ("server", "manciple.test/any:1")]),
    ] {
        let containers: Vec<_> = containers
            .into_iter()
            .map(|(name, image)| json!({"name": name, "image": image, "imagePullPolicy": "Never"}))
            .collect();
        let object = json!({"metadata": {"name": pod}, "spec": {"containers": containers}});
        let object = serde_json::from_value(object).unwrap();
        // Not before the namespace has its service account.
        while pods.create(&PostParams::default(), &object).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    let image = |pod: &'static str| own::image(cluster.client.clone(), &cluster.namespace, pod);
    assert_eq!(image("only").await.unwrap(), "manciple.test/any:1");
    assert_eq!(image("several").await.unwrap(), "manciple.test/any:1");
    let error = image("none").await.unwrap_err().to_string();
    assert!(error.contains("Pod none") && error.contains("container manciple"), "{error}");
    let error = image("absent").await.unwrap_err().to_string();
    assert!(error.contains("Pod absent"), "{error}");
    cluster.abandon();
}
