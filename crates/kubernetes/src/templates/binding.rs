//! The binding of an instance for workloads: a Provisioned Service (servicebinding.io, "Provisioned Service").
//!
//! Where its template names a binding type, a ready instance names a Secret in `status.binding.name`: the values that
//! its objects expose, with the type and, if it is given, the provider. The Secret is made in the requester's name,
//! owned by the instance, and gets another name when its content changes: the content of one Secret never changes.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use ring::hmac;
use serde_json::{Value, json};

use super::Controller;
use super::exposed::{Unexposed, exposed};
use super::names::{BINDING_OF, BINDING_PROVIDER, BINDING_TYPE};
use super::ours::{Ours, is_owned};
use super::plan::{Planned, owner};
use super::record::Values;
use super::record_store::removed;
use super::requester::Requester;
use super::resource::{Instance, Key};
use super::status::Made;
use super::trouble::Trouble;
use crate::calls::{CallError, call, find, only};
use crate::names::MANAGED_BY;

/// How many characters of the instance's name its Secret's name has: `-binding-` and 16 digits follow.
const NAME: usize = 228;

/// An annotation of the instance's template, if it is not empty.
fn said<'a>(instance: &'a Instance, name: &str) -> Option<&'a str> {
    let annotations = &instance.spec()["template"]["metadata"]["annotations"];
    annotations[name].as_str().filter(|text| !text.is_empty())
}

impl Controller {
    /// The binding Secret that will be made, for the review whether the requester may make it.
    pub(super) async fn binding(&self, instance: &Instance) -> Result<Option<Planned>, Trouble> {
        if said(instance, BINDING_TYPE).is_none() {
            return Ok(None);
        }
        let served = self.kinds.find("v1", "Secret").await?;
        Ok(served.map(|served| Planned {
            served,
            namespace: Some(instance.key.namespace.to_string()),
            name: format!("{}-binding", instance.key.name),
            rank: 0,
            object: Value::Null,
        }))
    }

    /// Makes the binding Secret of an instance whose objects are ready; its name, if the template wants one.
    pub(super) async fn bind(
        &self,
        instance: &Instance,
        made: &[Made],
    ) -> Result<Option<String>, Trouble> {
        let Some(of_type) = said(instance, BINDING_TYPE) else { return Ok(None) };
        let client = self.of_requester(&instance.key).await?;
        let (ours, made) = (Ours::to_read(&instance.key, &self.seal), made.iter().cloned());
        let mut entries: Values =
            exposed(&client, &self.kinds, ours, made).await.map_err(unbound)?;
        let of = [("type", Some(of_type)), ("provider", said(instance, BINDING_PROVIDER))];
        for (entry, value) in of.into_iter().filter_map(|(entry, value)| Some((entry, value?))) {
            entries.insert(entry.to_owned(), value.to_owned());
        }
        let secret = secret(&instance.key, of_type, &entries, &self.seal);
        let name = secret["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let unable =
            |trouble: Trouble| trouble.of(&format!("unable to create secrets, Name={name}"));
        let secrets: Api<Secret> = Api::namespaced(client, &instance.key.namespace);
        let secret = serde_json::from_value(secret);
        let secret: Secret = secret.map_err(|error| Trouble::Final(error.to_string()))?;
        match call(secrets.create(&PostParams::default(), &secret)).await {
            Ok(_) => {}
            Err(CallError::Exists) => {
                let found = find(secrets.get_metadata(&name)).await;
                let found = found.map_err(|error| unable(error.into()))?;
                let found = found.filter(|found| found.metadata.deletion_timestamp.is_none());
                let Some(found) = found else {
                    return Err(unable(Trouble::Passing("it existed, and goes".to_owned())));
                };
                if !is_owned(&instance.key, &json!({"metadata": found.metadata})) {
                    let why = "it exists, and is not of this instance: it is left as it is";
                    return Err(unable(Trouble::Final(why.to_owned())));
                }
            }
            Err(error) => return Err(unable(Trouble::from(error).of_a_secret())),
        }
        Ok(Some(name))
    }

    /// Renews the binding of a ready instance: exposed values may change, and the Secret may have been removed.
    pub(super) async fn bind_again(&self, instance: &Instance) -> Result<(), Trouble> {
        let made: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        let binding = self.bind(instance, &made).await?;
        if binding.as_deref() != instance.status()["binding"]["name"].as_str() {
            let said = json!({"binding": binding.as_ref().map(|name| json!({"name": name}))});
            self.write_status(instance, &said).await?;
        }
        self.unbind(instance, binding.as_deref()).await;
        Ok(())
    }

    /// Removes the former binding Secrets of an instance, which its status does not name any more. Those that cannot be
    /// removed are collected with the instance.
    pub(super) async fn unbind(&self, instance: &Instance, now: Option<&str>) {
        let had = instance.status()["binding"]["name"].is_string();
        if !had && now.is_none() {
            return;
        }
        let Ok(client) = self.of_requester(&instance.key).await else { return };
        let secrets: Api<Secret> = Api::namespaced(client, &instance.key.namespace);
        let of_it = ListParams::default().labels(&format!("{BINDING_OF}={}", instance.key.uid));
        let listed = call(secrets.list_metadata(&of_it)).await;
        for found in listed.map(|listed| listed.items).unwrap_or_default() {
            let name = found.name_any();
            if now == Some(&*name) || !is_owned(&instance.key, &json!({"metadata": found.metadata}))
            {
                continue;
            }
            if let Err(error) = find(secrets.delete(&name, &only(found.uid(), None))).await {
                tracing::debug!(name, %error, "a Secret of a binding stays until its instance goes");
            }
        }
    }

    async fn of_requester(&self, key: &Key) -> Result<Client, Trouble> {
        let known = self.with(key, |work| work.record.clone()).flatten();
        let kept = match known {
            Some(kept) => Some(kept),
            None => self.read_record(key).await?,
        };
        let kept = kept.ok_or_else(|| removed(key))?;
        let requester = Requester::of(&kept.record.requester);
        Ok(requester.map_err(Trouble::Final)?.client(&self.client, &key.namespace))
    }
}

fn unbound(why: Unexposed) -> Trouble {
    match why {
        Unexposed::Unread(what, error) => Trouble::from(error).of(&what),
        Unexposed::Gone(what) => Trouble::Doubtful(format!("{what}: it is not there any more")),
        Unexposed::Foreign(what) => Trouble::Final(format!("{what}: it is not of this instance")),
        Unexposed::Wrong(why) => Trouble::Final(why),
    }
}

/// The binding Secret. Its name has a digest of its content, made with our key, so that nobody can guess the content by
/// trying.
fn secret(of: &Key, of_type: &str, entries: &BTreeMap<String, String>, key: &hmac::Key) -> Value {
    let content = json!([&*of.uid, of_type, entries]).to_string();
    let content = hmac::sign(key, content.as_bytes());
    let content = HEXLOWER.encode(content.as_ref().get(..8).unwrap_or_default());
    let name: String = of.name.chars().take(NAME).collect();
    let name = name.trim_end_matches(['.', '-']);
    json!({
        "metadata": {
            "name": format!("{name}-binding-{content}"),
            "labels": {MANAGED_BY.0: MANAGED_BY.1, BINDING_OF: &*of.uid},
            "ownerReferences": [owner(of)],
        },
        "type": format!("servicebinding.io/{of_type}"),
        "immutable": true,
        "stringData": entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_has_another_name() {
        let of = Key { namespace: "n".into(), name: "db".into(), uid: "u".into() };
        let made = |of: &Key, password: &str, key: &[u8]| {
            let entries = Values::from([("password".to_owned(), password.to_owned())]);
            secret(of, "postgresql", &entries, &hmac::Key::new(hmac::HMAC_SHA256, key))
        };
        let name = |of: &Key, password: &str, key: &[u8]| {
            made(of, password, key)["metadata"]["name"].as_str().unwrap().to_owned()
        };
        assert_eq!(made(&of, "1", b"ours")["type"], "servicebinding.io/postgresql");
        assert_eq!(name(&of, "1", b"ours"), name(&of, "1", b"ours"));
        assert_ne!(name(&of, "1", b"ours"), name(&of, "2", b"ours"));
        assert_ne!(name(&of, "1", b"ours"), name(&of, "1", b"another"), "nobody can try contents");
        let long = Key { name: "x".repeat(253).into(), ..of.clone() };
        assert!(name(&long, "1", b"ours").len() <= 253);
        let dotted = Key { name: format!("{}.{}", "x".repeat(227), "y".repeat(25)).into(), ..of };
        assert!(name(&dotted, "1", b"ours").starts_with(&format!("{}-binding-", "x".repeat(227))));
    }
}
