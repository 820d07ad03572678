//! The two kinds, QuarksJob and its ancestor ExtendedJob: what differs between them, and nothing else.

use kube::discovery::ApiResource;
use serde_json::Value;

/// The API version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// The label of a Job or a pod that names the kind that it was made for: `QuarksJob` or `ExtendedJob`.
pub(crate) const TRIGGERED: &str = "manciple.dev/triggered";

/// One of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `quarks.cloudfoundry.org`: a Job's template, and files that become Secrets.
    QuarksJob,
    /// `fissile.cloudfoundry.org`: a pod's template, and what containers print that becomes Secrets.
    ExtendedJob,
}

impl Dialect {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::QuarksJob, Self::ExtendedJob];

    /// The kind's API group, which is also the prefix of its labels and annotations.
    pub fn group(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarks.cloudfoundry.org",
            Self::ExtendedJob => "fissile.cloudfoundry.org",
        }
    }

    /// The kind, as in manifests.
    pub fn kind(self) -> &'static str {
        match self {
            Self::QuarksJob => "QuarksJob",
            Self::ExtendedJob => "ExtendedJob",
        }
    }

    /// The plural of the kind, as in paths of the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarksjobs",
            Self::ExtendedJob => "extendedjobs",
        }
    }

    /// The short names of the kind for `kubectl get`.
    pub(crate) fn short_names(self) -> [&'static str; 2] {
        match self {
            Self::QuarksJob => ["qjob", "qjobs"],
            Self::ExtendedJob => ["ejob", "ejobs"],
        }
    }

    /// The kind's `apiVersion`: group and version.
    pub fn api_version(self) -> String {
        format!("{}/{VERSION}", self.group())
    }

    /// The full key of a label or an annotation in the kind's group.
    pub(crate) fn label(self, name: &str) -> String {
        format!("{}/{name}", self.group())
    }

    /// The label of the pods of a QuarksJob or ExtendedJob whose value is its name.
    pub(crate) fn names_pods(self) -> String {
        self.label(match self {
            Self::QuarksJob => "qjob-name",
            Self::ExtendedJob => "ejob-name",
        })
    }

    /// The kind, as the Kubernetes client takes it.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group().to_owned(),
            version: VERSION.to_owned(),
            api_version: self.api_version(),
            kind: self.kind().to_owned(),
            plural: self.plural().to_owned(),
        }
    }

    /// The kind in lower case, as in references and messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarksjob",
            Self::ExtendedJob => "extendedjob",
        }
    }

    /// A QuarksJob of this kind by its name, such as `quarksjob/NAME`.
    pub(crate) fn named(self, name: &str) -> String {
        format!("{}/{name}", self.word())
    }

    /// The kind that an owner reference names, if it is one of the two.
    pub(crate) fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split('/').next();
        Self::ALL.into_iter().find(|it| it.kind() == kind && group == Some(it.group()))
    }

    /// Whether a spec's template is a Job's, and not a pod's. In its last releases ExtendedJob had a Job's template
    /// under the same version; the two are told apart, as no pod has a template.
    pub(crate) fn is_of_job(self, spec: &Value) -> bool {
        let template = &spec["template"]["spec"];
        self == Self::QuarksJob
            || template["template"].is_object() && template["containers"].is_null()
    }

    /// The pod spec in a spec's template.
    pub(crate) fn pod_spec(self, spec: &Value) -> &Value {
        let template = &spec["template"]["spec"];
        if self.is_of_job(spec) { &template["template"]["spec"] } else { template }
    }

    /// The path of that pod spec, for people.
    pub(crate) fn pod_path(self, spec: &Value) -> &'static str {
        if self.is_of_job(spec) { "spec.template.spec.template.spec" } else { "spec.template.spec" }
    }

    /// The value of the annotation that says where a version comes from, as the originals wrote it.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::QuarksJob => "created by quarksJob",
            Self::ExtendedJob => "created by extendedJob",
        }
    }

    /// The variables of a container whose values its Secrets carry as labels, each with the name of the label. The
    /// first releases, which had a prefix instead of a map, had others than the last.
    pub(crate) fn marked_by(self, is_by_prefix: bool) -> &'static [(&'static str, &'static str)] {
        const FIRST: (&str, &str) = ("INSTANCE_GROUP_NAME", "instance-group");
        const LAST: (&str, &str) = ("REMOTE_ID", "remote-id");
        match (self, is_by_prefix) {
            (Self::QuarksJob, false) => &[LAST],
            (Self::QuarksJob, true) => &[FIRST, LAST],
            (Self::ExtendedJob, _) => &[FIRST],
        }
    }
}
