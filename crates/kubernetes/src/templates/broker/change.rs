//! Changes a service instance: other parameters, or a newer revision of its template.
//!
//! ```text
//! a Secret with the parameters ──▶ spec and seal of the TemplateInstance, in one write ──▶ awaited
//!   ──▶ the claim names the Secret ──▶ Secrets before it are removed
//! ```
//!
//! The Secret's name is derived from the operation: a spec that names it is what the operation has written, in this
//! attempt or in an earlier one, whatever has happened to the template since. The user who changes the instance is its
//! requester from then on.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::{DynamicObject, PostParams};
use osb::{Failure, FailureKind, MaintenanceInfo, Output, Work};
use serde_json::{Value, json};

use super::await_end::{self, Awaited};
use super::claim::Claim;
use super::life::name;
use super::stock::OfferedTemplate;
use super::{TemplateBroker, asked, failed, parameters, requester, transient};
use crate::calls::{CallError, call};
use crate::templates::names::VERIFIED;
use crate::templates::record::Values;
use crate::templates::requester::Requester;
use crate::templates::verified;

/// How often the write of an instance is tried that others write at the same time.
const ROUNDS: usize = 5;

impl TemplateBroker {
    /// Changes an instance in the requester's name, and waits for the result.
    pub(super) async fn change(&self, work: Work) -> Result<Output, Failure> {
        let (name, requester) = (name(&work), requester(&work)?);
        let claim = self.claimed(&name).await?.ok_or_else(|| {
            is_gone("there is no BrokerTemplateInstance of this instance".to_owned())
        })?;
        let client = requester.client(&self.client, claim.namespace());
        let secret = parameters::name_of_change(&name, &work.operation_id);
        let written = self.write_change(&work, &claim, &requester, &client, &secret).await;
        let written = written.map_err(unchanged)?;
        let ended = Awaited {
            namespace: claim.namespace(),
            name: &name,
            generation: written.metadata.generation.unwrap_or_default(),
            timeout: await_end::timeout(&written),
        };
        self.await_end(&ended, &work.progress).await.map_err(|failure| Failure {
            // The next update can repair it.
            update_repeatable: Some(true),
            ..failure
        })?;
        let order = self.order_digest(&work.service_id, &work.plan_id, work.parameters.expose());
        self.note_secret(&name, &secret, &order).await?;
        parameters::forget(&client, &claim, &BTreeSet::from([secret.as_str()])).await;
        Ok(Output::default())
    }

    /// Writes the change, unless it was written already; returns the instance after that.
    async fn write_change(
        &self,
        work: &Work,
        claim: &Claim,
        requester: &Requester,
        client: &Client,
        secret: &str,
    ) -> Result<DynamicObject, Failure> {
        let name = claim.name();
        let what = format!("TemplateInstance {name}");
        let instances = self.instances(client, claim.namespace());
        for _ in 0..ROUNDS {
            let instance = call(instances.get(name)).await;
            let instance = instance.map_err(|error| match error {
                CallError::NotFound => is_gone(format!("{what}: it is not there any more")),
                error => failed(&what, error),
            })?;
            claim.check("TemplateInstance", &instance.metadata)?;
            if instance.data["spec"]["secret"]["name"] == secret {
                return Ok(instance);
            }
            let current = self.templates.get(work.service_id.as_str());
            let template = template(&instance, asked::revision_of(work), current.as_deref())?;
            let values = parameters::of_order(template, work.parameters.expose())?;
            // The Secret is this operation's: an attempt before has kept what the template took then.
            if !parameters::keep(client, claim, secret, &values).await? {
                parameters::keep_anew(client, claim, secret, &values).await?;
            }
            let next = changed(&instance, template, (secret, &values), requester, &self.seal);
            match call(instances.replace(name, &PostParams::default(), &next)).await {
                Ok(written) => return Ok(written),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(failed(&what, error)),
            }
        }
        Err(transient(format!("{what}: many write it at once")))
    }
}

/// The failure for an instance that is gone and cannot be changed.
fn is_gone(why: String) -> Failure {
    let gone = Failure::failed(why);
    Failure { instance_usable: Some(false), update_repeatable: Some(false), ..gone }
}

/// A failure before anything was changed.
fn unchanged(failure: Failure) -> Failure {
    let is_passing = matches!(failure.kind, FailureKind::Transient | FailureKind::Busy);
    let is_there = failure.instance_usable.or(Some(true));
    match is_passing {
        true => failure,
        false => Failure { instance_usable: is_there, ..failure },
    }
}

/// The template for the change: the one that the instance has, or the revision that is asked for.
fn template<'t>(
    instance: &'t DynamicObject,
    asked: Option<&MaintenanceInfo>,
    current: Option<&'t OfferedTemplate>,
) -> Result<&'t Value, Failure> {
    let Some(asked) = asked else { return Ok(&instance.data["spec"]["template"]) };
    let invalid = |why: String| Failure::new(FailureKind::Invalid, why);
    let current = current.ok_or_else(|| {
        invalid("maintenance_info: the template is not there any more".to_owned())
    })?;
    match current.revision.version == asked.version {
        true => Ok(&current.document),
        false => Err(invalid(format!(
            "maintenance_info.version: the template was changed in the meantime, and is {} now: ask for that",
            current.revision.version
        ))),
    }
}

/// The changed instance. Its other members stay, and a newer version is not overwritten.
fn changed(
    instance: &DynamicObject,
    template: &Value,
    (secret, values): (&str, &Values),
    requester: &Requester,
    seal: &ring::hmac::Key,
) -> DynamicObject {
    let metadata = &instance.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let spec = json!({
        "template": template, "secret": {"name": secret}, "requester": requester.spec(),
    });
    // Sealed for the moment of creation: the seal is not valid for another instance of the same name.
    let made_at = metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
    let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
    let moment = (made_at, metadata.generation.unwrap_or_default() + 1);
    let sealed = verified::seal_order(&namespace, &name, &spec, values, moment, seal);
    let mut next = instance.clone();
    next.data["spec"] = spec;
    next.metadata.annotations.get_or_insert_default().insert(VERIFIED.to_owned(), sealed);
    next
}

#[cfg(test)]
mod tests {
    use ring::hmac;

    use super::super::ids::Ids;
    use super::super::stock::Stock;
    use super::*;
    use crate::templates::resource::Instance;
    use crate::templates::seen::SeenInstance;

    const MADE_AT: &str = "2026-01-01T00:00:00Z";

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
    }

    fn document(version: &str) -> Value {
        json!({
            "apiVersion": "template.openshift.io/v1", "kind": "Template",
            "metadata": {
                "name": "t", "uid": "u-t", "resourceVersion": version,
                "annotations": {"template.manciple.dev/version": version},
            },
            "objects": [{"kind": "ConfigMap", "data": {"of": version}}],
        })
    }

    fn offered(version: &str) -> OfferedTemplate {
        let seen = serde_json::from_str(&document(version).to_string()).unwrap();
        Stock::read(Ids::Uid, "templates", &seen).unwrap()
    }

    fn instance() -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
            "metadata": {
                "namespace": "shop", "name": "i", "uid": "u-1", "resourceVersion": "5",
                "creationTimestamp": MADE_AT, "annotations": {"other": "1", VERIFIED: "broker.x"},
                "finalizers": ["f"],
            },
            "spec": {
                "template": document("1.0.0"), "secret": {"name": "i"},
                "requester": {"username": "alice", "groups": ["team"]},
            },
            "status": {"observedGeneration": 1},
        }))
        .unwrap()
    }

    fn work(asked: Option<&str>, before: Option<&str>) -> Work {
        let info = |version: Option<&str>| version.map(|version| json!({"version": version}));
        serde_json::from_value(json!({
            "action": "update", "service_id": "u-t", "plan_id": "u-t", "instance_id": "i",
            "operation_id": "o", "attempt": 1, "maintenance_info": info(asked),
            "previous_values": {"plan_id": "u-t", "maintenance_info": info(before)},
        }))
        .unwrap()
    }

    #[test]
    fn an_instance_keeps_its_template_unless_a_newer_one_is_asked_for() {
        let (older, newer) = (document("1.0.0"), document("2.0.0"));
        let gone = "maintenance_info: the template is not there any more";
        let changed = "maintenance_info.version: the template was changed in the meantime, and is 2.0.0 now: ask for that";
        for (case, asked_for, before, current, expected) in [
            ("parameters alone", None, None, Some("2.0.0"), Ok(&older)),
            (
                "of an instance that was updated",
                Some("1.0.0"),
                Some("1.0.0"),
                Some("2.0.0"),
                Ok(&older),
            ),
            ("of a template that is gone", None, None, None, Ok(&older)),
            ("the newer one", Some("2.0.0"), None, Some("2.0.0"), Ok(&newer)),
            (
                "the newer one after another",
                Some("2.0.0"),
                Some("1.0.0"),
                Some("2.0.0"),
                Ok(&newer),
            ),
            (
                "one that is not the newest any more",
                Some("1.5.0"),
                None,
                Some("2.0.0"),
                Err(changed),
            ),
            ("one that is gone", Some("2.0.0"), None, None, Err(gone)),
        ] {
            let (instance, current) = (instance(), current.map(offered));
            let work = work(asked_for, before);
            let found = template(&instance, asked::revision_of(&work), current.as_ref());
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert!(verified::same(&found["objects"], &expected["objects"]), "{case}");
                }
                (Err(failure), Err(expected)) => {
                    assert_eq!(failure.description, expected, "{case}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_is_written_is_sealed_for_this_instance_and_leaves_the_rest_alone() {
        let bob = Requester::of(&json!({"username": "bob"})).unwrap();
        let newer = document("2.0.0");
        let given = Values::from([("A".to_owned(), "1".to_owned())]);
        let next = changed(&instance(), &newer, ("i-0a0a0a0a", &given), &bob, &key());
        assert_eq!(
            next.data["spec"],
            json!({"template": newer, "secret": {"name": "i-0a0a0a0a"}, "requester": {"username": "bob"}}),
            "nothing of the template before, or of the requester before, is left"
        );
        let metadata = &next.metadata;
        assert_eq!(
            metadata.resource_version.as_deref(),
            Some("5"),
            "no other version is overwritten"
        );
        assert_eq!(metadata.finalizers, instance().metadata.finalizers);
        assert_eq!(metadata.annotations.as_ref().unwrap()["other"], "1");
        let seen: SeenInstance =
            serde_json::from_str(&serde_json::to_string(&next).unwrap()).unwrap();
        let seen = Instance::of(seen).unwrap();
        assert_eq!(verified::check(&seen, &key()), Ok(()));
        assert_eq!(verified::check_values(&seen, &given, &key()), Ok(()));
        for other in [Values::new(), Values::from([("A".to_owned(), "2".to_owned())])] {
            assert!(verified::check_values(&seen, &other, &key()).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_failure_before_anything_was_changed_leaves_the_instance_usable() {
        let usable = |failure| unchanged(failure).instance_usable;
        assert_eq!(usable(Failure::failed("no")), Some(true));
        assert_eq!(usable(Failure::new(FailureKind::Invalid, "no")), Some(true));
        assert_eq!(usable(transient("later")), None, "it may have been written");
        let gone = Failure { instance_usable: Some(false), ..Failure::failed("gone") };
        assert_eq!(usable(gone), Some(false));
    }
}
