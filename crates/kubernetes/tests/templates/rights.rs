//! Who may do what, granted and taken away; both are waited for until the API server goes by it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubernetes::templates::names::GROUP;
use serde_json::{Value, json};

use super::harness::Town;
use super::support::wait;

/// How long the API server may take to hear of a right.
const PATIENCE: Duration = Duration::from_secs(120);

/// A rule of a role.
pub(crate) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// All that an order takes, but for what the template makes.
pub(crate) fn of_orders() -> Vec<Value> {
    let verbs = ["get", "create", "update", "delete"];
    vec![
        rule(GROUP, &["templates"], &["get"]),
        rule(GROUP, &["templateinstances"], &verbs),
        rule("", &["secrets"], &["get", "list", "create", "delete"]),
    ]
}

impl Town {
    /// Lets a user do this in the namespace, and waits until they may. Once for each user.
    pub(crate) async fn grant(&self, user: &str, rules: Vec<Value>) {
        self.grant_in(&self.cluster.namespace, user, rules).await;
    }

    /// The same in another namespace.
    pub(crate) async fn grant_in(&self, namespace: &str, user: &str, rules: Vec<Value>) {
        let name = format!("rights-of-{user}");
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let role: Role = serde_json::from_value(role).unwrap();
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))
        .unwrap();
        let roles: Api<Role> = Api::namespaced(self.cluster.client.clone(), namespace);
        let bindings: Api<RoleBinding> = Api::namespaced(self.cluster.client.clone(), namespace);
        roles.create(&PostParams::default(), &role).await.unwrap();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
        for rule in &rules {
            self.until_may(namespace, user, rule, true).await;
        }
    }

    /// What somebody was granted in a namespace becomes this; waits until all of `about`, a rule, is had, or none of it.
    pub(crate) async fn regrant_in(
        &self,
        namespace: &str,
        user: &str,
        rules: Vec<Value>,
        (about, expected): (&Value, bool),
    ) {
        let roles: Api<Role> = Api::namespaced(self.cluster.client.clone(), namespace);
        let patch = Patch::Merge(json!({"rules": rules}));
        let name = format!("rights-of-{user}");
        roles.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        self.until_may(namespace, user, about, expected).await;
    }

    /// Waits until a user may do all of a rule, or nothing of it.
    async fn until_may(&self, namespace: &str, user: &str, rule: &Value, expected: bool) {
        let all = |of: &str| rule[of].as_array().unwrap().clone();
        for (resource, verb) in all("resources")
            .iter()
            .flat_map(|it| all("verbs").into_iter().map(move |verb| (it.clone(), verb)))
        {
            let attributes = json!({
                "namespace": namespace, "group": rule["apiGroups"][0],
                "resource": resource, "verb": verb,
            });
            let what = format!("{user}: {attributes}: it is never {expected}");
            wait::until(&what, PATIENCE, async || {
                let may = self.may(user, &attributes).await;
                if may == expected { Ok(()) } else { Err(may) }
            })
            .await;
        }
    }

    async fn may(&self, user: &str, attributes: &Value) -> bool {
        let reviews: Api<SubjectAccessReview> = Api::all(self.cluster.client.clone());
        let spec = json!({"user": user, "resourceAttributes": attributes});
        let review = serde_json::from_value(json!({"spec": spec})).unwrap();
        let answered = reviews.create(&PostParams::default(), &review).await.unwrap();
        answered.status.is_some_and(|status| status.allowed)
    }
}
