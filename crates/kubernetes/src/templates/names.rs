//! Names that users of the original know, and those beyond it.

use kube::discovery::ApiResource;

/// The group of templates.
pub const GROUP: &str = "template.openshift.io";
/// Its version.
pub const VERSION: &str = "v1";
/// Each object that an instance has made: a label, whose value is the uid of the instance.
pub const OWNER: &str = "template.openshift.io/template-instance-owner";
/// Holds an instance until its objects are gone.
pub const FINALIZER: &str = "template.openshift.io/finalizer";
/// Holds what an instance was begun with until its objects are gone.
pub(super) const HOLDS_RECORD: &str = "template.manciple.dev/record";
/// That an object which nothing owns is of an instance: an annotation, sealed.
pub(super) const MARK: &str = "template.manciple.dev/made";
/// That it was verified who ordered an instance: an annotation, made by who did.
pub const VERIFIED: &str = "template.manciple.dev/requester-verified";
/// What becomes of an object that cannot be changed to what it is to be: an annotation; `replace`: it is made anew.
pub(super) const ON_CHANGE: &str = "template.manciple.dev/on-change";
/// Whether an object goes when it leaves the template: an annotation; `false`: it stays until its instance goes.
pub(super) const KEEPS: &str = "template.manciple.dev/prune";
/// What becomes of objects that are not what was made: an annotation of an instance (`ignore`, `report`, `repair`), or
/// of an object (`ignore`).
pub(super) const DRIFT: &str = "template.manciple.dev/drift";
/// Of which earlier revision a template is again: an annotation of it, as a rollback writes it.
pub const REVISION: &str = "template.manciple.dev/revision";
/// Of which type an instance is that workloads are bound to (servicebinding.io): an annotation of its template.
pub(super) const BINDING_TYPE: &str = "template.manciple.dev/binding-type";
/// Who provides it: the same.
pub(super) const BINDING_PROVIDER: &str = "template.manciple.dev/binding-provider";
/// Of which instance the Secret of a binding is, by its uid: a label.
pub(super) const BINDING_OF: &str = "template.manciple.dev/binding-of";
/// Who writes, in `metadata.managedFields`.
pub(super) const MANAGER: &str = "manciple-templates";

/// The kinds of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What can be instantiated.
    Template,
    /// One that is, in the name of its requester.
    TemplateInstance,
    /// What the broker of the original keeps of an instance that was ordered from it.
    BrokerTemplateInstance,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 3] =
        [Self::Template, Self::TemplateInstance, Self::BrokerTemplateInstance];

    /// As in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Template => "Template",
            Self::TemplateInstance => "TemplateInstance",
            Self::BrokerTemplateInstance => "BrokerTemplateInstance",
        }
    }

    /// As in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Template => "templates",
            Self::TemplateInstance => "templateinstances",
            Self::BrokerTemplateInstance => "brokertemplateinstances",
        }
    }

    /// For the client.
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
