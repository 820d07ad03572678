//! The reads and writes of one TemplateInstance of a cluster, for one command.

use std::collections::BTreeMap;
use std::ops::Deref;

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Request;
use kubernetes::templates::names::Kind;
use kubernetes::templates::record::{self, Revision, Values};
use serde_json::{Value, json};

use crate::cli::cluster::{self, ClusterArgs};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::{Ongoing, RemoteArgs};

/// A cluster, and the instance that a command is about.
pub(super) struct Cluster {
    asked: cluster::Cluster,
    /// The name of the TemplateInstance.
    pub(super) name: String,
    words: String,
}

impl Deref for Cluster {
    type Target = cluster::Cluster;

    fn deref(&self) -> &cluster::Cluster {
        &self.asked
    }
}

/// The result of a write.
pub(super) enum Written {
    /// The write took effect; the object as the API server has it.
    Done(Box<DynamicObject>),
    /// The API server refused, or somebody wrote first: the status does not say which.
    Refused(kube::Error),
}

impl Cluster {
    /// Opens a cluster: reads the kubeconfig, and sends nothing yet.
    pub(super) async fn open(
        name: String,
        args: &ClusterArgs,
        remote: &RemoteArgs,
        ongoing: Ongoing,
    ) -> Result<Self, Failure> {
        let asked = cluster::Cluster::open(args, remote, ongoing).await?;
        Ok(Self { asked, name, words: args.words() })
    }

    /// A command about the instance, for a person to copy.
    pub(super) fn command(&self, verb: &str) -> String {
        format!("manciple template instance {verb} {}{}", self.name, self.words)
    }

    /// The instance in words: "TemplateInstance shop".
    pub(super) fn subject(&self) -> String {
        format!("{} {}", Kind::TemplateInstance.name(), self.name)
    }

    /// Reads the instance, as it is now.
    pub(super) async fn instance(&self) -> Result<DynamicObject, Failure> {
        let what = format!("read {}", self.subject());
        let found = self.call(&what, &self.right("get"), self.instances().get(&self.name)).await;
        let object = found.map_err(|failure| match failure.exit {
            Exit::Missing => {
                let hint = format!("it was looked for in namespace {}", self.namespace);
                failure.or_hint(format!("{hint}; -n names another"))
            }
            _ => failure,
        })?;
        // Whatever else is there is no instance.
        match object.metadata.uid.as_deref().is_some_and(|uid| !uid.is_empty()) {
            true => Ok(object),
            false => Err(Failure::misunderstood(&what)),
        }
    }

    /// Reads the revisions that are kept of the instance, the newest first; none before it is begun.
    pub(super) async fn revisions(
        &self,
        instance: &DynamicObject,
    ) -> Result<Vec<Revision>, Failure> {
        let name = record::name(instance.metadata.uid.as_deref().unwrap_or_default());
        let what = format!("read what is recorded of {}: Secret {name}", self.subject());
        let right = self.right_to("get", "secrets");
        let secret = self.call(&what, &right, self.secrets().get_opt(&name)).await?;
        Ok(secret.as_ref().map(record::revisions).unwrap_or_default())
    }

    /// Reads the values that the instance was ordered with.
    pub(super) async fn values(&self, instance: &DynamicObject) -> Result<Values, Failure> {
        let Some(name) = instance.data["spec"]["secret"]["name"].as_str() else {
            return Ok(Values::new());
        };
        let what = format!("read the parameters of {}: Secret {name}", self.subject());
        let right = self.right_to("get", "secrets");
        let secret = self.call(&what, &right, self.secrets().get(name)).await;
        let secret = secret.map_err(|failure| match failure.exit {
            Exit::Missing => {
                let hint = "a rollback takes the values that are recorded, and writes them anew";
                failure.or_hint(format!("{hint}: {} --to-revision N", self.command("rollback")))
            }
            _ => failure,
        })?;
        let text = |(key, ByteString(value)): (String, ByteString)| match String::from_utf8(value) {
            Ok(value) => Ok((key, value)),
            Err(_) => Err(Failure::usage(format!("Secret {name}: {key} is no text"))),
        };
        secret.data.unwrap_or_default().into_iter().map(text).collect()
    }

    /// Writes values into a Secret of their own, which is deleted with the instance. Returns its name.
    pub(super) async fn write_values(
        &self,
        instance: &DynamicObject,
        values: &Values,
    ) -> Result<String, Failure> {
        let what = format!("write the parameters of {}", self.subject());
        let encode = |(name, value): (&String, &String)| {
            (name.clone(), ByteString(value.clone().into_bytes()))
        };
        let data: BTreeMap<String, ByteString> = values.iter().map(encode).collect();
        let owner = instance.owner_ref(&Kind::TemplateInstance.resource());
        let secret = Secret {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", self.name)),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..Secret::default()
        };
        let (right, params) = (self.right_to("create", "secrets"), PostParams::default());
        let made = self.call(&what, &right, self.secrets().create(&params, &secret)).await?;
        made.metadata.name.ok_or_else(|| Failure::misunderstood(&what))
    }

    /// Removes a Secret that no order refers to. If that fails, it is deleted with the instance.
    pub(super) async fn forget_values(&self, name: &str) {
        let (right, params) = (self.right_to("delete", "secrets"), DeleteParams::default());
        let what = format!("remove Secret {name}");
        let _ = self.call(&what, &right, self.secrets().delete(name, &params)).await;
    }

    /// Changes the order of the instance, if that is still as it was read.
    pub(super) async fn patch(
        &self,
        instance: &DynamicObject,
        changes: &[(&str, &Value)],
    ) -> Result<Written, Failure> {
        let version = &instance.metadata.resource_version;
        let mut patch =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
        let adds =
            changes.iter().map(|(path, value)| json!({"op": "add", "path": path, "value": value}));
        patch.extend(adds);
        let what = format!("change {}", self.subject());
        let resource = Kind::TemplateInstance.resource();
        let path = DynamicObject::url_path(&resource, Some(&self.namespace));
        let request =
            Request::new(path).patch(&self.name, &PatchParams::default(), &Patch::Merge(patch));
        let mut request = request.map_err(|_| Failure::misunderstood(&what))?;
        let json_patch = HeaderValue::from_static("application/json-patch+json");
        request.headers_mut().insert(CONTENT_TYPE, json_patch);
        let patched = async {
            match self.client.request::<DynamicObject>(request).await {
                Ok(object) => Ok(Written::Done(Box::new(object))),
                Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {
                    Ok(Written::Refused(kube::Error::Api(status)))
                }
                Err(error) => Err(error),
            }
        };
        self.call(&what, &self.right("patch"), patched).await
    }

    fn instances(&self) -> Api<DynamicObject> {
        let resource = Kind::TemplateInstance.resource();
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn right(&self, verb: &'static str) -> cluster::Right<'_> {
        let kind = Kind::TemplateInstance.resource();
        self.right_to(verb, &format!("{}.{}", kind.plural, kind.group))
    }
}
