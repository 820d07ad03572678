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
}

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
}

/// What it runs for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Causes {
    pub(crate) strategy: &'static str,
    pub(crate) follows: bool,
    /// It refers to the ConfigMap of its own name.
    pub(crate) refers: bool,
    pub(crate) depends_on: Option<String>,
    pub(crate) schedule: Option<&'static str>,
}

impl Shape {
    /// A plain QuarksJob, whose command is wrapped.
    pub(crate) fn usual() -> Self {
        Self {
            dialect: Dialect::QuarksJob,
            policy: Policy::Allow,
            kept: Kept::Versions,
            sidecar: false,
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
        Self { dialect, policy, kept, sidecar }
    }

    /// Of one whose Jobs and pods are taken away. The Job controller may leave a Job alone for five minutes then, for
    /// which nobody is to queue.
    pub(crate) fn of_one_robbed(random: &mut Random) -> Self {
        let shape = Self::of(Dialect::QuarksJob, random);
        let policy = if shape.policy == Policy::Queue { Policy::Allow } else { shape.policy };
        Self { policy, ..shape }
    }

    /// Of one that is deleted and made anew, and with which all goes that it has left.
    pub(crate) fn of_one_deleted(random: &mut Random) -> Self {
        let shape = Self::any(random);
        let kept = match shape.kept {
            Kept::Versions => Kept::Versions,
            Kept::Secret { .. } => Kept::Secret { owned: true },
            Kept::ConfigMap { .. } => Kept::ConfigMap { owned: true },
        };
        Self { kept, ..shape }
    }

    pub(crate) fn manifest(&self, name: &str, causes: &Causes) -> Value {
        let mut container = json!({"name": "c", "image": "none"});
        if !self.sidecar {
            container["command"] = json!(["none"]);
        }
        if causes.refers {
            container["envFrom"] = json!([{"configMapRef": {"name": name}}]);
        }
        let pod = json!({"restartPolicy": "Never", "containers": [container]});
        let template = match self.dialect {
            Dialect::QuarksJob => json!({"spec": {"backoffLimit": 0, "template": {"spec": pod}}}),
            Dialect::ExtendedJob => json!({"spec": pod}),
        };
        let mut trigger = json!({"strategy": causes.strategy});
        if let Some(schedule) = causes.schedule {
            trigger["schedule"] = json!(schedule);
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
        json!({
            "apiVersion": self.dialect.api_version(), "kind": self.dialect.kind(),
            "metadata": {"name": name}, "spec": spec,
        })
    }

    fn output(&self, name: &str) -> Value {
        let owned = match self.kept {
            Kept::Versions => false,
            Kept::Secret { owned } | Kept::ConfigMap { owned } => owned,
        };
        let mut output = json!({
            "versioned": self.kept == Kept::Versions, "setOwnerReference": owned,
        });
        match self.dialect {
            Dialect::QuarksJob => {
                let kind = match self.kept {
                    Kept::ConfigMap { .. } => "ConfigMap",
                    _ => "Secret",
                };
                let options = json!({"name": self.kept_as(name), "kind": kind});
                output["outputMap"] = json!({"c": {"o.json": options}});
            }
            Dialect::ExtendedJob => output["namePrefix"] = json!(format!("out-{name}")),
        }
        output
    }

    /// The name of what its output is kept in, without a version.
    pub(crate) fn kept_as(&self, name: &str) -> String {
        match self.dialect {
            Dialect::QuarksJob => format!("out-{name}"),
            Dialect::ExtendedJob => format!("out-{name}-c"),
        }
    }
}
