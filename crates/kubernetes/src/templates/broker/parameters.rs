//! The parameters of a service instance, kept in Secrets made in the requester's name: one for the order, and one for
//! each change.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::{BASE64, HEXLOWER};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use osb::{Failure, FailureKind};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use template::{Parameter, Template};

use super::claim::Claim;
use super::failed;
use crate::calls::{CallError, call, find, only};
use crate::templates::record::Values;

/// The label of a parameter Secret with the id of its instance.
const INSTANCE: &str = "template.manciple.dev/instance";
/// How many bytes of the digest of a change are in the name of its Secret.
const DIGEST: usize = 4;

/// The name of the Secret of a change: the same in each attempt, and different from that of any other change.
pub(super) fn name_of_change(instance: &str, operation: &str) -> String {
    let digest = digest(&SHA256, format!("{instance}\0{operation}").as_bytes());
    let digest = digest.as_ref().get(..DIGEST).unwrap_or_default();
    format!("{instance}-{}", HEXLOWER.encode(digest))
}

/// The parameter values of an order: only declared parameters, and no empty value where one is generated.
///
/// # Errors
/// If a value is no string, or the template requires a parameter that has no value.
pub(super) fn of_order(document: &Value, given: &Map<String, Value>) -> Result<Values, Failure> {
    let invalid = |why: String| Failure::new(FailureKind::Invalid, why);
    let read = Template::read(document.clone());
    let template = read.map_err(|_| invalid("the template cannot be read any more".to_owned()))?;
    let mut values = Values::new();
    for (key, value) in given {
        let Value::String(text) = value else {
            return Err(invalid(format!("parameters/{key}: has to be a string")));
        };
        let mut declared = template.parameters.iter().filter(|it| it.name == *key);
        let wanted = declared.any(|it| !text.is_empty() || it.generate.is_empty());
        if wanted {
            values.insert(key.clone(), text.clone());
        }
    }
    let has_none = |it: &&Parameter| {
        let given = given.get(&it.name).and_then(Value::as_str);
        given.map_or(it.value.is_empty(), str::is_empty)
    };
    let mut required =
        template.parameters.iter().filter(|it| it.required && it.generate.is_empty());
    match required.find(has_none) {
        Some(it) => Err(invalid(format!("parameters/{}: is required by the template", it.name))),
        None => Ok(values),
    }
}

/// Makes a parameter Secret that a claim owns, in the requester's name, unless it exists. Whether it has these values:
/// what is sealed with others than are there would be refused for somebody else's doing.
///
/// # Errors
/// If the requester may not, or if somebody else's Secret has that name.
pub(super) async fn keep(
    client: &Client,
    claim: &Claim,
    name: &str,
    values: &Values,
) -> Result<bool, Failure> {
    let (secrets, secret) = secret(client, claim, name, values)?;
    let what = format!("Secret {name}");
    match call(secrets.create(&PostParams::default(), &secret)).await {
        Ok(_) => Ok(true),
        Err(CallError::Exists) => {
            let found = call(secrets.get(name)).await.map_err(|error| failed(&what, error))?;
            claim.check("Secret", &found.metadata)?;
            let data = found.data.iter().flatten().map(|(name, value)| (name.as_str(), &*value.0));
            Ok(data.eq(values.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))))
        }
        Err(error) => Err(failed(&what, error.of_a_secret())),
    }
}

/// Makes a parameter Secret in the place of the one that a claim owns: it may be immutable.
///
/// # Errors
/// If the requester may not remove the one, or make the other.
pub(super) async fn keep_anew(
    client: &Client,
    claim: &Claim,
    name: &str,
    values: &Values,
) -> Result<(), Failure> {
    let (secrets, secret) = secret(client, claim, name, values)?;
    let unable = |error: CallError| failed(&format!("Secret {name}"), error.of_a_secret());
    if let Some(found) = find(secrets.get_metadata(name)).await.map_err(unable)? {
        claim.check("Secret", &found.metadata)?;
        find(secrets.delete(name, &only(found.metadata.uid, None))).await.map_err(unable)?;
    }
    call(secrets.create(&PostParams::default(), &secret)).await.map(drop).map_err(unable)
}

/// The failure of an order whose id has the parameters of another.
pub(super) fn others(name: &str) -> Failure {
    let why = format!(
        "Secret {name}: exists, with other parameters than are asked for: remove what was ordered, and order it anew"
    );
    Failure::new(FailureKind::Conflict, why)
}

/// A parameter Secret, and where it goes.
fn secret(
    client: &Client,
    claim: &Claim,
    name: &str,
    values: &Values,
) -> Result<(Api<Secret>, Secret), Failure> {
    let data: BTreeMap<&String, String> =
        values.iter().map(|(key, text)| (key, BASE64.encode(text.as_bytes()))).collect();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {INSTANCE: claim.name()},
            "ownerReferences": [claim.owner()],
        },
        "data": data,
    }))
    // The error would quote a value.
    .map_err(|_| Failure::failed(format!("Secret {name}: cannot be written")))?;
    Ok((Api::namespaced(client.clone(), claim.namespace()), secret))
}

/// Removes the parameter Secrets of a claim except some, in the requester's name. Those that the requester may not
/// remove stay until their owner goes.
pub(super) async fn forget(client: &Client, claim: &Claim, but: &BTreeSet<&str>) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), claim.namespace());
    let of_it = ListParams::default().labels(&format!("{INSTANCE}={}", claim.name()));
    let listed = call(secrets.list_metadata(&of_it)).await.map(|list| list.items);
    let listed = listed.unwrap_or_default().into_iter().filter_map(|it| it.metadata.name);
    // These are known also where the requester may not list Secrets.
    let known = [claim.name().to_owned(), claim.secret().to_owned()];
    let names: BTreeSet<String> = listed.chain(known).filter(|name| !name.is_empty()).collect();
    for name in names.iter().filter(|name| !but.contains(name.as_str())) {
        let Ok(Some(found)) = find(secrets.get_metadata(name)).await else { continue };
        if !claim.owns(&found.metadata) {
            continue;
        }
        if let Err(error) = find(secrets.delete(name, &only(found.metadata.uid, None))).await {
            tracing::debug!(name, %error, "a Secret of parameters stays until its instance goes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        json!({
            "apiVersion": "template.openshift.io/v1", "kind": "Template",
            "metadata": {"name": "t"}, "objects": [],
            "parameters": [
                {"name": "NAME", "required": true},
                {"name": "SIZE", "required": true, "value": "1"},
                {"name": "PASSWORD", "required": true, "generate": "expression", "from": "[a-z]{8}"},
                {"name": "NOTE"},
            ],
        })
    }

    fn data(given: Value) -> Result<Value, String> {
        of_order(&template(), given.as_object().unwrap())
            .map(|values| json!(values))
            .map_err(|failure| failure.description)
    }

    #[test]
    fn what_is_kept_is_what_the_template_asks_for() {
        for (case, given, expected) in [
            ("a name", json!({"NAME": "a"}), Ok(json!({"NAME": "a"}))),
            ("nothing", json!({}), Err("parameters/NAME: is required by the template")),
            (
                "an empty name",
                json!({"NAME": ""}),
                Err("parameters/NAME: is required by the template"),
            ),
            (
                "a default that is emptied",
                json!({"NAME": "a", "SIZE": ""}),
                Err("parameters/SIZE: is required by the template"),
            ),
            (
                "one that is emptied to be generated",
                json!({"NAME": "a", "PASSWORD": ""}),
                Ok(json!({"NAME": "a"})),
            ),
            (
                "one that may be empty",
                json!({"NAME": "a", "NOTE": ""}),
                Ok(json!({"NAME": "a", "NOTE": ""})),
            ),
            (
                "one of a revision before",
                json!({"NAME": "a", "OLD": "b"}),
                Ok(json!({"NAME": "a"})),
            ),
            ("no text", json!({"NAME": 1}), Err("parameters/NAME: has to be a string")),
        ] {
            assert_eq!(data(given), expected.map_err(str::to_owned), "{case}");
        }
    }

    #[test]
    fn a_change_has_a_name_of_its_own_in_each_attempt() {
        let id = "11111111-2222-4333-8444-555555555555";
        let name = name_of_change(id, "update-1");
        assert_eq!(name, name_of_change(id, "update-1"));
        assert!(name.starts_with(id) && name.len() == id.len() + 9, "{name}");
        assert_ne!(name, name_of_change(id, "update-2"));
        assert_ne!(name[id.len()..], name_of_change(&id.replace('1', "0"), "update-1")[id.len()..]);
    }
}
