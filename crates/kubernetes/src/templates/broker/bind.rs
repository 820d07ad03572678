//! A binding is what the objects of an instance expose; it changes none of them.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use osb::{BindingBody, Failure, Output, Work};
use serde_json::{Map, Value, json};
use template::{expose, may_expose};

use super::life::name;
use super::{TemplateBroker, failed, requester};
use crate::calls::{call, find};
use crate::templates::await_ready::of_place;
use crate::templates::make::AT_ONCE;
use crate::templates::status::Made;

impl TemplateBroker {
    /// Reads what is exposed, in the requester's name, and notes who is bound.
    pub(super) async fn expose(&self, work: Work) -> Result<Output, Failure> {
        let (name, requester) = (name(&work), requester(&work)?);
        let missing = || Failure::failed("there is no BrokerTemplateInstance of this instance");
        let claim = self.claimed(&name).await?.ok_or_else(missing)?;
        let namespace = claim.namespace();
        let client = requester.client(&self.client, namespace);
        let instance = call(self.instances(&client, namespace).get(&name)).await;
        let instance =
            instance.map_err(|error| failed(&format!("TemplateInstance {name}"), error))?;
        let objects = instance.data["status"]["objects"].as_array().cloned().unwrap_or_default();
        let made = objects.iter().filter_map(Made::of);
        let exposing: Vec<Made> =
            made.filter(|made| may_expose(&made.api_version, &made.kind)).collect();
        let read = exposing.iter().map(|made| self.read(&client, made));
        let read: Vec<_> = read.collect();
        let read: Vec<Value> = stream::iter(read).buffered(AT_ONCE).try_collect().await?;
        let mut credentials = BTreeMap::new();
        for object in &read {
            expose(object, &mut credentials).map_err(|why| Failure::failed(why.to_string()))?;
        }
        let credentials: Map<String, Value> =
            credentials.into_iter().map(|(key, value)| (key, json!(value))).collect();
        if let Some(binding) = &work.binding_id {
            self.note(&name, binding.as_str(), true).await?;
        }
        let binding =
            BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
        Ok(Output { binding: Some(binding), ..Output::default() })
    }

    /// An object that was made, if it is still that one.
    async fn read(&self, client: &Client, made: &Made) -> Result<Value, Failure> {
        let words = format!("{} {}", made.kind, made.name);
        let gone = || Failure::failed(format!("{words}: it is not there any more"));
        let place = self.kinds.find(&made.api_version, &made.kind).await;
        let place = place.map_err(|error| failed(&words, error))?.ok_or_else(gone)?;
        let found = find(of_place(client, &place, &made.namespace).get(&made.name)).await;
        let found = found.map_err(|error| failed(&words, error))?;
        let found = found.filter(|it| it.metadata.uid.as_deref() == Some(&made.uid));
        let mut found = serde_json::to_value(found.ok_or_else(gone)?).unwrap_or_default();
        // Of one that was read alone the server may leave it out.
        found["apiVersion"] = json!(made.api_version);
        found["kind"] = json!(made.kind);
        Ok(found)
    }

    /// Notes that somebody is not bound any longer.
    pub(super) async fn forget(&self, work: Work) -> Result<Output, Failure> {
        if let Some(binding) = &work.binding_id {
            self.note(&name(&work), binding.as_str(), false).await?;
        }
        Ok(Output::default())
    }
}
