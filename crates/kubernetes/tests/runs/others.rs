//! What those do whose QuarksJobs run for what is somebody else's: versions of a Secret, and pods.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::objects::{record, sure, until};
use crate::shape::{Causes, FOLLOWED, PODSTATE};
use crate::users::User;

impl User {
    /// Makes a version of a Secret; each second one is none before it is labelled.
    pub(crate) async fn version(&self, number: u64) {
        let secrets: Api<Secret> = self.api();
        let name = format!("{}-v{number}", self.name);
        let labels = json!({"quarks.cloudfoundry.org/secret-kind": "versionedSecret"});
        let mut secret =
            json!({"metadata": {"name": name}, "stringData": {"k": number.to_string()}});
        if !number.is_multiple_of(2) {
            secret["metadata"]["labels"] = labels.clone();
        }
        let secret: Secret = serde_json::from_value(secret).unwrap();
        made(&secrets, &secret).await;
        let (params, label) = (PatchParams::default(), json!({"metadata": {"labels": labels}}));
        let label = Patch::Merge(label);
        sure(|| secrets.patch(&name, &params, &label)).await;
    }

    /// Makes pods, one after another, which come to be ready.
    pub(crate) async fn of_pods(&mut self) {
        self.create_for(&Causes { strategy: PODSTATE, ..Causes::default() }).await;
        // Those that are there when it is first looked at count for nothing.
        let looked_at = || async { record(&self.get().await)["pods"].is_object().then_some(()) };
        until("looked at", looked_at).await;
        let pods: Api<Pod> = self.api();
        let names: Vec<String> =
            (0..self.rounds).map(|round| format!("{}-followed-{round}", self.name)).collect();
        for name in &names {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {FOLLOWED: self.name}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            }))
            .unwrap();
            made(&pods, &pod).await;
            let conditions = json!([{"type": "Ready", "status": "True"}]);
            let status = json!({"status": {"phase": "Running", "conditions": conditions}});
            let (params, status) = (PatchParams::default(), Patch::Merge(status));
            sure(|| pods.patch_status(name, &params, &status)).await;
            self.triggers += 1;
            self.until_it_has_run().await;
        }
        let now = DeleteParams::default().grace_period(0);
        for name in &names {
            sure(|| async {
                match pods.delete(name, &now).await {
                    Err(kube::Error::Api(said)) if said.code == 404 => Ok(()),
                    deleted => deleted.map(drop),
                }
            })
            .await;
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.town.client.clone(), &self.town.namespace)
    }
}

/// It is there, be it by an answer that was lost.
async fn made<K>(api: &Api<K>, object: &K)
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let params = PostParams::default();
    sure(|| async {
        match api.create(&params, object).await {
            Err(kube::Error::Api(said)) if said.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    })
    .await;
}
