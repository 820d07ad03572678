//! What a user's job is like, by the seed: its kind, what happens to triggers that meet a run, and how its output
//! comes home and is kept.

use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use testkit::random::Random;

/// What becomes of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Versions,
    /// Written over, and going with its QuarksJob or not.
    Secret {
        owned: bool,
    },
    ConfigMap {
        owned: bool,
    },
    /// Each key a Secret of its own, written over or versions of it.
    FannedOut {
        versioned: bool,
    },
}

impl Kept {
    pub(crate) fn is_owned(self) -> bool {
        match self {
            Self::Versions => true,
            Self::Secret { owned } | Self::ConfigMap { owned } => owned,
            Self::FannedOut { versioned } => versioned,
        }
    }

    pub(crate) fn is_versioned(self) -> bool {
        matches!(self, Self::Versions | Self::FannedOut { versioned: true })
    }
}

/// The strategy of one that runs for pods, and the label that these have.
pub(crate) const PODSTATE: &str = "podstate";
pub(crate) const FOLLOWED: &str = "followed-by";

/// The keys that fan out.
const KEYS: [&str; 2] = ["a", "b"];
/// What those are named by whose output fans out.
pub(crate) const FANNED: &str = "fanned";

/// `concurrencyPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Allow,
    Forbid,
    Queue,
    Replace,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) dialect: Dialect,
    pub(crate) policy: Policy,
    pub(crate) kept: Kept,
    /// A sidecar reads the output: no command is known that could be wrapped.
    pub(crate) sidecar: bool,
    /// Another container, with output of its own.
    pub(crate) two: bool,
    /// A prefix is written with a dash at its end, as one had to for the original.
    pub(crate) dash: bool,
    /// So many versions are kept, and so many Jobs of either kind.
    pub(crate) limit: Option<u64>,
    /// What those leave that fail is kept, too.
    pub(crate) on_failure: bool,
    /// So many pods of a run are to end well, one after another.
    pub(crate) completions: usize,
}

/// What it refers to, of its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refers {
    ConfigMap,
    /// Of a Secret.
    Versions,
}

/// What it runs for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Causes {
    pub(crate) strategy: &'static str,
    pub(crate) follows: bool,
    pub(crate) refers: Option<Refers>,
    pub(crate) depends_on: Option<String>,
    pub(crate) schedule: Option<&'static str>,
}

impl Shape {
    /// A plain QuarksJob, whose command is wrapped.
    pub(crate) const fn usual() -> Self {
        Self {
            dialect: Dialect::QuarksJob,
            policy: Policy::Allow,
            kept: Kept::Versions,
            sidecar: false,
            two: false,
            dash: false,
            limit: None,
            on_failure: false,
            completions: 1,
        }
    }

    /// Any.
    pub(crate) fn any(random: &mut Random) -> Self {
        let dialect = match random.below(4) {
            0 => Dialect::ExtendedJob,
            _ => Dialect::QuarksJob,
        };
        Self::of(dialect, random)
    }

    /// Any of this kind.
    pub(crate) fn of(dialect: Dialect, random: &mut Random) -> Self {
        let policy = match random.below(4) {
            0 => Policy::Allow,
            1 => Policy::Forbid,
            2 => Policy::Queue,
            _ => Policy::Replace,
        };
        let (kept, owned) = (random.below(3), random.below(2) == 0);
        let is_extended = dialect == Dialect::ExtendedJob;
        let kept = match kept {
            0 => Kept::Versions,
            // What an ExtendedJob prints is a Secret.
            1 if !is_extended => Kept::ConfigMap { owned },
            _ => Kept::Secret { owned },
        };
        // Without a command its log would be read, and who plays the kubelet has none.
        let sidecar = random.below(2) == 0 && !is_extended;
        let fans_out = random.below(3) == 0 && !is_extended;
        let kept = match kept {
            Kept::Versions if fans_out => Kept::FannedOut { versioned: true },
            Kept::Secret { owned: false } if fans_out => Kept::FannedOut { versioned: false },
            kept => kept,
        };
        let (two, dash) = (random.below(3) == 0, random.below(2) == 0);
        // Where runs go on beside each other, or end by others' hands, the last to be kept may be any.
        let is_in_turn = matches!(policy, Policy::Forbid | Policy::Queue);
        let limit = (random.below(2) == 0 && is_in_turn).then(|| 1 + random.below(2));
        // ExtendedJobs do not fail, and have one pod.
        let on_failure = random.below(2) == 0 && !is_extended;
        let completions = if random.below(4) == 0 && !is_extended { 2 } else { 1 };
        Self { dialect, policy, kept, sidecar, two, dash, limit, on_failure, completions }
    }

    /// Of one whose Jobs and pods are taken away. The Job controller may leave a Job alone for five minutes then, for
    /// which nobody is to queue; and what one left that failed may be taken before it is read.
    pub(crate) fn of_one_robbed(random: &mut Random) -> Self {
        let shape = Self::of(Dialect::QuarksJob, random);
        let policy = if shape.policy == Policy::Queue { Policy::Allow } else { shape.policy };
        Self { policy, limit: None, on_failure: false, completions: 1, ..shape }
    }

    /// Of one that is deleted and made anew, and with which all goes that it has left.
    pub(crate) fn of_one_deleted(random: &mut Random) -> Self {
        let shape = Self::any(random);
        let kept = match shape.kept {
            Kept::Versions | Kept::FannedOut { versioned: true } => Kept::Versions,
            Kept::ConfigMap { .. } => Kept::ConfigMap { owned: true },
            Kept::Secret { .. } | Kept::FannedOut { .. } => Kept::Secret { owned: true },
        };
        Self { kept, limit: None, completions: 1, ..shape }
    }

    pub(crate) fn manifest(&self, name: &str, causes: &Causes) -> Value {
        let container = |container: &&str| {
            let mut container = json!({"name": container, "image": "none"});
            if !self.sidecar {
                container["command"] = json!(["none"]);
            }
            match causes.refers {
                Some(Refers::ConfigMap) => {
                    container["envFrom"] = json!([{"configMapRef": {"name": name}}]);
                }
                Some(Refers::Versions) => {
                    let first = format!("{name}-v1");
                    container["envFrom"] = json!([{"secretRef": {"name": first}}]);
                }
                None => {}
            }
            container
        };
        let containers: Vec<Value> = self.containers().iter().map(container).collect();
        let pod = json!({"restartPolicy": "Never", "containers": containers});
        let template = match self.dialect {
            Dialect::QuarksJob => json!({"spec": {
                "backoffLimit": 0, "completions": self.completions, "template": {"spec": pod},
            }}),
            Dialect::ExtendedJob => json!({"spec": pod}),
        };
        let mut trigger = json!({"strategy": causes.strategy});
        if let Some(schedule) = causes.schedule {
            trigger["schedule"] = json!(schedule);
        }
        if causes.strategy == PODSTATE {
            let selector = json!({"matchLabels": {FOLLOWED: name}});
            trigger["podstate"] = json!({"when": "ready", "selector": selector});
        }
        let mut spec = json!({
            "trigger": trigger,
            "updateOnConfigChange": causes.follows,
            "concurrencyPolicy": format!("{:?}", self.policy),
            "template": template,
            "output": self.output(name),
        });
        if let Some(other) = &causes.depends_on {
            spec["dependsOn"] = json!([other]);
        }
        if let Some(limit) = self.limit {
            spec["successfulJobsHistoryLimit"] = json!(limit);
            spec["failedJobsHistoryLimit"] = json!(limit);
        }
        json!({
            "apiVersion": self.dialect.api_version(), "kind": self.dialect.kind(),
            "metadata": {"name": name}, "spec": spec,
        })
    }

    fn output(&self, name: &str) -> Value {
        let versioned = self.kept.is_versioned();
        let owned = self.kept.is_owned() && !versioned;
        let mut output = json!({
            "versioned": versioned, "setOwnerReference": owned, "versionHistoryLimit": self.limit,
            "writeOnFailure": self.on_failure,
        });
        match self.dialect {
            Dialect::QuarksJob => {
                for container in self.containers() {
                    output["outputMap"][container]["o.json"] = self.options(name, container);
                }
            }
            Dialect::ExtendedJob => {
                let dash = if self.dash { "-" } else { "" };
                output["namePrefix"] = json!(format!("out-{name}{dash}"));
            }
        }
        output
    }

    fn options(&self, name: &str, container: &str) -> Value {
        let (kind, method) = match self.kept {
            Kept::ConfigMap { .. } => ("ConfigMap", "one-to-one"),
            Kept::FannedOut { .. } => ("Secret", "fan-out"),
            Kept::Versions | Kept::Secret { .. } => ("Secret", "one-to-one"),
        };
        json!({"name": self.base(name, container), "kind": kind, "persistencemethod": method})
    }

    fn containers(&self) -> &'static [&'static str] {
        if self.two { &["c", "d"] } else { &["c"] }
    }

    fn base(&self, name: &str, container: &str) -> String {
        match (self.dialect, container) {
            (Dialect::QuarksJob, "c") => format!("out-{name}"),
            _ => format!("out-{name}-{container}"),
        }
    }

    /// The names of what its output is kept in, without a version.
    pub(crate) fn kept_as(&self, name: &str) -> Vec<String> {
        let bases = self.containers().iter().map(|container| self.base(name, container));
        match self.kept {
            Kept::FannedOut { .. } => {
                bases.flat_map(|base| KEYS.map(|key| format!("{base}-{key}"))).collect()
            }
            _ => bases.collect(),
        }
    }
}

/// What a container leaves in its file: the name of its Job, and in each key where that fans out.
pub(crate) fn output_of(job: &str) -> String {
    let named = json!({"job": job}).to_string();
    match job.contains(FANNED) {
        true => KEYS.iter().map(|key| (*key, named.as_str())).collect::<Value>().to_string(),
        false => named,
    }
}
