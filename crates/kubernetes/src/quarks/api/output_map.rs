//! `spec.output`: which files of which containers are kept, and as which Secrets and ConfigMaps.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::dialect::Dialect;
use super::naming::{fanned_beginning, sanitize_subdomain};
use super::reference::{Kind, To, base};
use crate::calls::valueless;

/// The name of the file that stands for what an ExtendedJob's container prints.
pub(crate) const PRINTED: &str = "stdout";
/// The file of an ExtendedJob's container that is kept instead, where there is one, as in its last releases; and that
/// of a QuarksJob's container where there is a prefix instead of a map, as in its first releases.
pub(crate) const LEFT: &str = "output.json";

/// The options of each file, by container and file.
pub(crate) type Files = BTreeMap<String, BTreeMap<String, SecretOptions>>;

/// The files that are kept, by `outputMap` or by `namePrefix`.
#[derive(Debug, Default)]
pub(crate) struct OutputMap {
    pub(crate) files: Files,
    /// Whether a file is versioned whose options do not say.
    pub(crate) versioned: bool,
    /// Whether `namePrefix` is used instead of `outputMap`.
    pub(crate) is_by_prefix: bool,
}

/// The options of a file in `outputMap`: what becomes of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecretOptions {
    /// Why the options cannot be read.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
    pub(crate) name: String,
    pub(crate) secret_labels: BTreeMap<String, String>,
    pub(crate) secret_annotations: BTreeMap<String, String>,
    /// `None`: as `spec.output.versioned` says.
    pub(crate) versioned: Option<bool>,
    /// `ConfigMap`; anything else is a Secret.
    pub(crate) kind: String,
    /// `fan-out`; anything else is one Secret.
    #[serde(rename = "persistencemethod")]
    persistence_method: String,
}

impl SecretOptions {
    /// Reads the options of a file. What cannot be read is a fault of the run, not of the whole spec.
    fn of(options: &Value) -> Self {
        let Value::Object(members) = without_nulls(options) else {
            let fault = "its entry in outputMap has to be an object with a name".to_owned();
            return Self { fault: Some(fault), ..Self::default() };
        };
        serde_path_to_error::deserialize(Value::Object(members)).unwrap_or_else(|error| {
            let (path, expected) = (error.path().to_string(), valueless(error.inner()));
            let fault = Some(format!("its entry in outputMap, {path}: {expected}"));
            Self { fault, ..Self::default() }
        })
    }

    pub(crate) fn fans_out(&self) -> bool {
        self.persistence_method == "fan-out"
    }

    pub(crate) fn kind(&self) -> Kind {
        if self.kind == "ConfigMap" { Kind::ConfigMap } else { Kind::Secret }
    }

    /// Whether the file becomes versions; a ConfigMap has none. `general` is what the whole output says.
    pub(crate) fn is_versioned(&self, general: bool) -> bool {
        self.versioned.unwrap_or(general) && self.kind() == Kind::Secret
    }
}

/// A value without its nulls: charts write null where they have nothing to say, and the originals ignored it.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let said = members.iter().filter(|(_, member)| !member.is_null());
            said.map(|(name, member)| (name.clone(), without_nulls(member))).collect()
        }
        Value::Array(all) => all.iter().filter(|it| !it.is_null()).map(without_nulls).collect(),
        other => other.clone(),
    }
}

impl OutputMap {
    /// Reads a spec's output, with a dash after a prefix. What is no map is ignored, as the originals did.
    pub(crate) fn of(dialect: Dialect, spec: &Value) -> Self {
        Self::named(dialect, spec, false)
    }

    /// As [`Self::of`], with prefixes as they are written if they are `verbatim`, else with one dash after them.
    pub(crate) fn named(dialect: Dialect, spec: &Value, verbatim: bool) -> Self {
        let output = &spec["output"];
        // The first releases of QuarksJobs had a prefix, too, and one file.
        let is_by_prefix = dialect == Dialect::ExtendedJob || output["outputMap"].is_null();
        let files = match dialect {
            _ if !is_by_prefix => Self::of_files(output),
            Dialect::QuarksJob => Self::of_prefix(dialect, spec, LEFT, verbatim),
            Dialect::ExtendedJob => Self::of_prefix(dialect, spec, PRINTED, verbatim),
        };
        Self { files, versioned: output["versioned"] == true, is_by_prefix }
    }

    fn of_files(output: &Value) -> Files {
        let of_container = |files: &Value| -> BTreeMap<String, SecretOptions> {
            let files = files.as_object().into_iter().flatten();
            let read = files.map(|(file, options)| (file.clone(), SecretOptions::of(options)));
            read.collect()
        };
        let containers = output["outputMap"].as_object().into_iter().flatten();
        let read = containers.map(|(name, files)| (name.clone(), of_container(files)));
        read.filter(|(_, files)| !files.is_empty()).collect()
    }

    /// The output of each container goes into `<namePrefix>-<container>`, as the documentation said. The original made
    /// no dash, so those who knew wrote one at the end of the prefix: there is one in any case, unless prefixes are
    /// `verbatim`, as in the original.
    fn of_prefix(dialect: Dialect, spec: &Value, file: &str, verbatim: bool) -> Files {
        let output = &spec["output"];
        let Some(prefix) = output["namePrefix"].as_str() else { return Files::default() };
        let prefix = match prefix.trim_end_matches('-') {
            _ if verbatim => prefix.to_owned(),
            "" => String::new(),
            prefix => format!("{prefix}-"),
        };
        let containers = dialect.pod_spec(spec)["containers"].as_array().into_iter().flatten();
        let names = containers.filter_map(|container| container["name"].as_str());
        let options = |name: &str| SecretOptions {
            name: format!("{prefix}{name}"),
            ..SecretOptions::default()
        };
        let of = |name: &str| (name.to_owned(), BTreeMap::from([(file.to_owned(), options(name))]));
        names.map(of).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The containers of which something is kept.
    pub(crate) fn containers(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The Secrets and ConfigMaps that the files become.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let all = self.files.values().flat_map(BTreeMap::values);
        all.filter_map(|options| {
            let versioned = options.is_versioned(self.versioned);
            let name: Box<str> = sanitize_subdomain(&options.name, versioned).into();
            // Where sanitizing leaves no name, nothing is made.
            (!name.is_empty()).then(|| Target {
                kind: options.kind(),
                name,
                each: options.fans_out().then(|| fanned_beginning(&options.name).into()),
                versioned,
            })
        })
    }

    /// The files of a container that are kept; `None`: none are.
    pub(crate) fn files(&self, container: &str) -> Option<impl Iterator<Item = &str>> {
        Some(self.files.get(container)?.keys().map(String::as_str))
    }
}

/// The Secret or ConfigMap that a file becomes, as far as the spec says.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// The name; for versions, what all their names have in common.
    pub(crate) name: Box<str>,
    /// For a file that fans out: what the names of its objects begin with.
    each: Option<Box<str>>,
    /// Whether the file becomes versions of that name, and never an object of the name itself.
    versioned: bool,
}

/// The [`Target`]s of a spec, by kind and by whether they are versioned: thousands of files may be kept, and each look
/// at a QuarksJob asks of each reference whether it is one of them.
#[derive(Debug, Default)]
pub(crate) struct Targets(HashMap<(Kind, bool), Names>);

/// The names of the targets of a kind that are versioned, or that are not.
#[derive(Debug, Default)]
struct Names {
    whole: HashSet<Box<str>>,
    /// What the names begin with of files that fan out.
    beginnings: HashSet<Box<str>>,
}

impl FromIterator<Target> for Targets {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> Self {
        let mut all = Self::default();
        for target in targets {
            let names = all.0.entry((target.kind, target.versioned)).or_default();
            match target.each {
                Some(beginning) => names.beginnings.insert(beginning),
                None => names.whole.insert(target.name),
            };
        }
        all
    }
}

impl Targets {
    /// Whether an object may be one of the targets, by its name. `made` says whether a run of this QuarksJob may have
    /// made it, if the object is there.
    pub(crate) fn have(&self, to: To, name: &str, made: Option<bool>) -> bool {
        let To::Object(kind) = to else { return false };
        let is_of = |versioned: bool, name: &str| {
            let names = self.0.get(&(kind, versioned));
            names.is_some_and(|names| names.have(name, made))
        };
        is_of(false, name) || base(name).is_some_and(|name| is_of(true, name))
    }

    /// The names of the Secrets that have versions, but for what fans out.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &str> {
        let names = self.0.get(&(Kind::Secret, true)).into_iter();
        names.flat_map(|names| &names.whole).map(|name| &**name)
    }
}

impl Names {
    fn have(&self, name: &str, made: Option<bool>) -> bool {
        // The beginning alone is no name of an object: a key follows it.
        let mut beginnings = name.char_indices().map(|(length, _)| &name[..length]);
        self.whole.contains(name)
            || (made != Some(false) && beginnings.any(|it| self.beginnings.contains(it)))
    }
}
