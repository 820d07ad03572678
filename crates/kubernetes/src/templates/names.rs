//! Names in manifests: those of OpenShift's template kinds, and our own beyond them.

use kube::discovery::ApiResource;

/// The API group of the template kinds.
pub const GROUP: &str = "template.openshift.io";
/// The version of the group.
pub const VERSION: &str = "v1";
/// The label of each object that an instance has made; its value is the uid of the instance.
pub const OWNER: &str = "template.openshift.io/template-instance-owner";
/// The finalizer that holds a TemplateInstance until its objects are gone.
pub const FINALIZER: &str = "template.openshift.io/finalizer";
/// The finalizer that holds the record of an instance until the objects are gone.
pub(super) const HOLDS_RECORD: &str = "template.manciple.dev/record";
/// The annotation, sealed, by which an object without an owner reference belongs to an instance.
pub(super) const MARK: &str = "template.manciple.dev/made";
/// The annotation that proves who ordered an instance, written by whoever verified it.
pub const VERIFIED: &str = "template.manciple.dev/requester-verified";
/// The annotation of an object that says what happens where the object cannot be changed as ordered; `replace`: it is
/// deleted and made anew.
pub(super) const ON_CHANGE: &str = "template.manciple.dev/on-change";
/// The annotation that says whether an object is removed when it leaves the template; `false`: it stays until its
/// instance is deleted.
pub(super) const KEEPS: &str = "template.manciple.dev/prune";
/// The annotation that says what happens to drifted objects: on an instance `ignore`, `report` or `repair`, on an
/// object `ignore`.
pub(super) const DRIFT: &str = "template.manciple.dev/drift";
/// The annotation of a template that names the earlier revision it repeats, as a rollback writes it.
pub const REVISION: &str = "template.manciple.dev/revision";
/// The annotation of a template that names the service type of its binding (servicebinding.io).
pub(super) const BINDING_TYPE: &str = "template.manciple.dev/binding-type";
/// The annotation of a template that names the provider of its binding.
pub(super) const BINDING_PROVIDER: &str = "template.manciple.dev/binding-provider";
/// The label of a binding Secret; its value is the uid of the instance.
pub(super) const BINDING_OF: &str = "template.manciple.dev/binding-of";
/// The field manager under which the controller writes, in `metadata.managedFields`.
pub(super) const MANAGER: &str = "manciple-templates";

/// A kind of the template group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A Template, which can be instantiated.
    Template,
    /// A template instantiated in its requester's name.
    TemplateInstance,
    /// What OpenShift's template service broker keeps of a service instance that was ordered from it.
    BrokerTemplateInstance,
}

impl Kind {
    /// All kinds of the group.
    pub const ALL: [Self; 3] =
        [Self::Template, Self::TemplateInstance, Self::BrokerTemplateInstance];

    /// The kind, as manifests name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "Template",
            Self::TemplateInstance => "TemplateInstance",
            Self::BrokerTemplateInstance => "BrokerTemplateInstance",
        }
    }

    /// The plural, as URL paths have it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Template => "templates",
            Self::TemplateInstance => "templateinstances",
            Self::BrokerTemplateInstance => "brokertemplateinstances",
        }
    }

    /// The resource, as the client needs it.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: self.name().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}
