//! What a run left, as the Secrets that it is to become: pure.

use std::collections::{BTreeMap, BTreeSet};

use agent::{Content, Gathered};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::naming::{sanitize, sanitize_subdomain};

/// What an ExtendedJob's container prints, as if it was a file.
pub(super) const PRINTED: &str = "stdout";
/// What the keys of a Secret hold together, in bytes.
pub(super) const MAX_SECRET_BYTES: usize = 1024 * 1024;
/// The longest key of a Secret.
const MAX_KEY_BYTES: usize = 253;

/// `spec.output.outputMap`: by container and file.
#[derive(Debug, Default)]
pub(super) struct OutputMap(BTreeMap<String, BTreeMap<String, SecretOptions>>);

/// What becomes of a file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SecretOptions {
    name: String,
    secret_labels: BTreeMap<String, String>,
    secret_annotations: BTreeMap<String, String>,
    versioned: bool,
    /// `fan-out`; anything else is one Secret.
    #[serde(rename = "persistencemethod")]
    persistence_method: String,
}

impl OutputMap {
    /// Of a spec. What is no map is passed over, as the originals did.
    pub(super) fn of(dialect: Dialect, spec: &Value) -> Self {
        match dialect {
            Dialect::QuarksJob => Self::of_files(&spec["output"]),
            Dialect::ExtendedJob => Self::of_prints(dialect, spec),
        }
    }

    fn of_files(output: &Value) -> Self {
        let of_container = |files: &Value| -> BTreeMap<String, SecretOptions> {
            let files = files.as_object().into_iter().flatten();
            let read = files.map(|(file, options)| {
                (file.clone(), SecretOptions::deserialize(options).unwrap_or_default())
            });
            read.collect()
        };
        let containers = output["outputMap"].as_object().into_iter().flatten();
        let read = containers.map(|(name, files)| (name.clone(), of_container(files)));
        Self(read.filter(|(_, files)| !files.is_empty()).collect())
    }

    /// What each container prints becomes `<namePrefix>-<container>`. The original made no dash, so those who
    /// knew wrote one at the end of the prefix: there is one in any case.
    fn of_prints(dialect: Dialect, spec: &Value) -> Self {
        let output = &spec["output"];
        let Some(prefix) = output["namePrefix"].as_str() else { return Self::default() };
        let prefix = prefix.trim_end_matches('-');
        let containers = dialect.pod_spec(spec)["containers"].as_array().into_iter().flatten();
        let names = containers.filter_map(|container| container["name"].as_str());
        let options = |name: &str| SecretOptions {
            name: if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") },
            versioned: output["versioned"] == true,
            ..SecretOptions::default()
        };
        let of =
            |name: &str| (name.to_owned(), BTreeMap::from([(PRINTED.to_owned(), options(name))]));
        Self(names.map(of).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The containers of which something is kept.
    pub(super) fn containers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The files of a container, if any of it are kept.
    pub(super) fn files(&self, container: &str) -> Option<impl Iterator<Item = &str>> {
        Some(self.0.get(container)?.keys().map(String::as_str))
    }
}

/// A Secret that is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// Of a versioned one, what all versions have in common.
    pub(super) name: String,
    pub(super) data: BTreeMap<String, Vec<u8>>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) versioned: bool,
}

/// What is to be kept of a run.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) wanted: Vec<Wanted>,
    /// Why something is not, for people: the reason in one word, and the words. Nothing of what is in files.
    pub(super) faults: Vec<(&'static str, String)>,
    /// What somebody should know, though nothing is lost by it.
    pub(super) notes: Vec<String>,
}

/// Of a spec and of what its containers left. Whatever is good is kept, though something else is not.
pub(super) fn kept(
    dialect: Dialect,
    spec: &Value,
    gathered: &BTreeMap<String, BTreeMap<String, Content>>,
) -> Kept {
    let output = &spec["output"];
    let general: BTreeMap<String, String> =
        Deserialize::deserialize(&output["secretLabels"]).unwrap_or_default();
    let containers = dialect.pod_spec(spec)["containers"].as_array();
    let mut kept = Kept::default();
    for (container, files) in &OutputMap::of(dialect, spec).0 {
        let spec = containers.into_iter().flatten().find(|it| it["name"] == **container);
        let Some(spec) = spec else {
            kept.notes.push(format!("outputMap names a container {container}, which there is not"));
            continue;
        };
        for (file, options) in files {
            let found = gathered.get(container).and_then(|files| files.get(file));
            match read(options, found.unwrap_or(&Content::Missing)) {
                Ok(secrets) => kept.wanted.extend(secrets.into_iter().map(|(name, data)| Wanted {
                    name,
                    data,
                    labels: labels(dialect, &general, options, container, spec),
                    annotations: options.secret_annotations.clone(),
                    versioned: options.versioned,
                })),
                Err((reason, why)) => {
                    kept.faults.push((reason, format!("container {container}: {file}: {why}")));
                }
            }
        }
    }
    let mut names = BTreeSet::new();
    for wanted in &kept.wanted {
        if !names.insert(&wanted.name) {
            let why = format!("several files go into the Secret {}: the last is kept", wanted.name);
            kept.faults.push(("OutputInvalid", why));
        }
    }
    kept
}

/// Those of one file take precedence over those of all.
fn labels(
    dialect: Dialect,
    general: &BTreeMap<String, String>,
    options: &SecretOptions,
    container: &str,
    spec: &Value,
) -> BTreeMap<String, String> {
    let users = general.iter().chain(&options.secret_labels);
    let mut labels: BTreeMap<String, String> =
        users.map(|(name, value)| (name.clone(), sanitize(value))).collect();
    labels.insert(dialect.label("container-name"), sanitize(container));
    let env = spec["env"].as_array().into_iter().flatten();
    let (variable, label) = dialect.marked_by();
    let value = env.filter(|it| it["name"] == variable).find_map(|it| it["value"].as_str());
    labels.extend(value.map(|value| (dialect.label(label), value.to_owned())));
    labels
}

type Fault = (&'static str, String);
type Data = BTreeMap<String, Vec<u8>>;

/// The Secrets of a file, by name.
fn read(options: &SecretOptions, content: &Content) -> Result<Vec<(String, Data)>, Fault> {
    let invalid = |why: String| ("OutputInvalid", why);
    let text = match content {
        Content::Text(text) => text,
        Content::Missing => {
            return Err(("OutputMissing", "it was not there when the container ended".to_owned()));
        }
        Content::TooLarge(bytes) => {
            let why = format!("it has {bytes} bytes, of which a Secret holds {MAX_SECRET_BYTES}");
            return Err(("OutputTooLarge", why));
        }
        Content::NotText => return Err(invalid("it is not UTF-8".to_owned())),
        Content::Unreadable(why) => return Err(("OutputUnreadable", why.clone())),
    };
    let name = sanitize_subdomain(&options.name);
    if name.is_empty() {
        let why = format!("outputMap names no Secret for it: {:?} leaves no name", options.name);
        return Err(invalid(why));
    }
    let flat = object(text).map_err(invalid)?;
    if options.persistence_method != "fan-out" {
        return Ok(vec![(name, data(flat).map_err(invalid)?)]);
    }
    let fanned = flat.into_iter().map(|(key, value)| {
        let within = |why: String| invalid(format!("key {key:?}: {why}"));
        let text = value.as_str().ok_or_else(|| within(not_text(&value)))?;
        let data = object(text).and_then(data).map_err(within)?;
        Ok((sanitize_subdomain(&format!("{name}-{key}")), data))
    });
    fanned.collect()
}

/// Its words name places, never what stands there.
fn object(text: &str) -> Result<Map<String, Value>, String> {
    let parsed: Result<Value, _> = serde_json::from_str(text);
    match parsed {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is JSON, and has to be one object".to_owned()),
        Err(error) => {
            Err(format!("it is not JSON (line {}, column {})", error.line(), error.column()))
        }
    }
}

fn data(flat: Map<String, Value>) -> Result<Data, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let mut data = Data::new();
    let mut bytes = 0;
    for (key, value) in flat {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.bytes().all(good) {
            return Err(format!(
                "{key:?} cannot be a key of a Secret: up to {MAX_KEY_BYTES} letters, digits, '-', '_' and '.'"
            ));
        }
        let text = match value {
            Value::String(text) => text,
            // As the original read it.
            Value::Null => String::new(),
            other => return Err(format!("key {key:?}: {}", not_text(&other))),
        };
        bytes += text.len();
        data.insert(key, text.into_bytes());
    }
    if bytes > MAX_SECRET_BYTES {
        return Err(format!("it has {bytes} bytes, of which a Secret holds {MAX_SECRET_BYTES}"));
    }
    Ok(data)
}

fn not_text(value: &Value) -> String {
    let what = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("the value is {what}, and has to be a string: print it as one")
}

/// Of several reports, everything.
pub(super) fn merged(reports: Vec<Gathered>) -> BTreeMap<String, BTreeMap<String, Content>> {
    reports.into_iter().flat_map(|report| report.outputs).collect()
}
