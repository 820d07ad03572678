//! The two kinds, of which one is the other's ancestor: what differs between them, and nothing else.

use kube::discovery::ApiResource;
use serde_json::Value;

/// Both have the same version.
pub const VERSION: &str = "v1alpha1";
/// The kind that a Job or a pod was made for, by its name: a label.
pub(crate) const TRIGGERED: &str = "manciple.dev/triggered";

/// A kind of Jobs that are triggered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `quarks.cloudfoundry.org`: a Job's template, and files that become Secrets.
    QuarksJob,
    /// `fissile.cloudfoundry.org`: a pod's template, and what containers print that becomes Secrets.
    ExtendedJob,
}

impl Dialect {
    /// Both.
    pub const ALL: [Self; 2] = [Self::QuarksJob, Self::ExtendedJob];

    /// Its API group, and the prefix of its labels and annotations.
    pub fn group(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarks.cloudfoundry.org",
            Self::ExtendedJob => "fissile.cloudfoundry.org",
        }
    }

    /// As in manifests.
    pub fn kind(self) -> &'static str {
        match self {
            Self::QuarksJob => "QuarksJob",
            Self::ExtendedJob => "ExtendedJob",
        }
    }

    /// As in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarksjobs",
            Self::ExtendedJob => "extendedjobs",
        }
    }

    /// For `kubectl get`.
    pub(crate) fn short_names(self) -> [&'static str; 2] {
        match self {
            Self::QuarksJob => ["qjob", "qjobs"],
            Self::ExtendedJob => ["ejob", "ejobs"],
        }
    }

    /// The group and the version.
    pub fn api_version(self) -> String {
        format!("{}/{VERSION}", self.group())
    }

    /// A label or an annotation of its group.
    pub(crate) fn label(self, name: &str) -> String {
        format!("{}/{name}", self.group())
    }

    /// The label of the pods of one, whose value is its name.
    pub(crate) fn names_pods(self) -> String {
        self.label(match self {
            Self::QuarksJob => "qjob-name",
            Self::ExtendedJob => "ejob-name",
        })
    }

    /// For the client.
    pub fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group().to_owned(),
            version: VERSION.to_owned(),
            api_version: self.api_version(),
            kind: self.kind().to_owned(),
            plural: self.plural().to_owned(),
        }
    }

    /// In places and words.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::QuarksJob => "quarksjob",
            Self::ExtendedJob => "extendedjob",
        }
    }

    /// One of this kind, by its name.
    pub(crate) fn named(self, name: &str) -> String {
        format!("{}/{name}", self.word())
    }

    /// Which one an owner reference names.
    pub(crate) fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split('/').next();
        Self::ALL.into_iter().find(|it| it.kind() == kind && group == Some(it.group()))
    }

    /// Whether a spec's template is a Job's, and not a pod's: that of ExtendedJobs was one in the last releases
    /// that had them, under the same version, and no pod has a template.
    pub(crate) fn is_of_job(self, spec: &Value) -> bool {
        let template = &spec["template"]["spec"];
        self == Self::QuarksJob
            || template["template"].is_object() && template["containers"].is_null()
    }

    /// The pod that a spec describes.
    pub(crate) fn pod_spec(self, spec: &Value) -> &Value {
        let template = &spec["template"]["spec"];
        if self.is_of_job(spec) { &template["template"]["spec"] } else { template }
    }

    /// Where that stands, for people.
    pub(crate) fn pod_path(self, spec: &Value) -> &'static str {
        if self.is_of_job(spec) { "spec.template.spec.template.spec" } else { "spec.template.spec" }
    }

    /// What an annotation says of where a version comes from, as the originals said it.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::QuarksJob => "created by quarksJob",
            Self::ExtendedJob => "created by extendedJob",
        }
    }

    /// The variables of a container whose values its Secrets carry as labels, and those labels. The first releases, which
    /// had a prefix instead of a map, had another than the last.
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
