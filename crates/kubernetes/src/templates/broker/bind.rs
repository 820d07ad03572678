//! Bindings: the credentials are the values that the objects of an instance expose; binding changes no object.

use kube::Client;
use osb::{BindingBody, Failure, FailureKind, Output, Work};
use serde_json::{Map, Value, json};

use super::claim::Claim;
use super::life::name;
use super::{TemplateBroker, failed, requester};
use crate::calls::call;
use crate::templates::exposed::{Unexposed, exposed};
use crate::templates::ours::Ours;
use crate::templates::resource::Key;
use crate::templates::status::Made;

impl TemplateBroker {
    /// Binds: reads the exposed values, in the requester's name, and notes the binding in the claim.
    pub(super) async fn expose(&self, work: Work) -> Result<Output, Failure> {
        let (name, requester) = (name(&work), requester(&work)?);
        let missing = || {
            let why = "there is no BrokerTemplateInstance of this instance";
            Failure::new(FailureKind::Invalid, why)
        };
        let claim = self.claimed(&name).await?.ok_or_else(missing)?;
        let client = requester.client(&self.client, claim.namespace());
        let credentials = self.credentials(&client, &claim).await.map_err(nothing_was_made)?;
        if let Some(binding) = &work.binding_id {
            self.note(&name, binding.as_str(), true).await?;
        }
        let binding =
            BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
        Ok(Output { binding: Some(binding), ..Output::default() })
    }

    /// The values that the objects of a claimed instance expose, read in the name of whoever the client acts for.
    pub(super) async fn credentials(
        &self,
        client: &Client,
        claim: &Claim,
    ) -> Result<Map<String, Value>, Failure> {
        let name = claim.name();
        let instance = call(self.instances(client, claim.namespace()).get(name)).await;
        let instance =
            instance.map_err(|error| failed(&format!("TemplateInstance {name}"), error))?;
        let objects = instance.data["status"]["objects"].as_array().cloned().unwrap_or_default();
        let made = objects.iter().filter_map(Made::of);
        let of = Key {
            namespace: claim.namespace().into(),
            name: name.into(),
            uid: instance.metadata.uid.as_deref().unwrap_or_default().into(),
        };
        let ours = Ours::to_read(&of, &self.seal);
        let credentials = exposed(client, &self.kinds, ours, made).await.map_err(unbound)?;
        Ok(credentials.into_iter().map(|(key, value)| (key, json!(value))).collect())
    }

    /// Unbinds: removes the binding from the claim.
    pub(super) async fn forget(&self, work: Work) -> Result<Output, Failure> {
        if let Some(binding) = &work.binding_id {
            self.note(&name(&work), binding.as_str(), false).await?;
        }
        Ok(Output::default())
    }
}

fn unbound(why: Unexposed) -> Failure {
    match why {
        Unexposed::Unread(what, error) => failed(&what, error),
        Unexposed::Gone(what) => Failure::failed(format!("{what}: it is not there any more")),
        Unexposed::Foreign(what) => Failure::failed(format!("{what}: it is not of this instance")),
        Unexposed::Wrong(why) => Failure::failed(why),
    }
}

/// The failure of a binding, which has made nothing: the platform has nothing to clean up, as it would after a 500.
fn nothing_was_made(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Failed => Failure { kind: FailureKind::Invalid, ..failure },
        _ => failure,
    }
}
