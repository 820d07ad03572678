//! The Secrets and ConfigMaps that the output of a run becomes: pure.

use std::collections::{BTreeMap, BTreeSet};

use agent::{Content, Gathered};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounds::{Beyond, Taken};
use super::shown::{MAX_KEY_BYTES, is_key, not_text, shown};
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::naming::{
    fanned, label_as_written, leaves_something, sanitize, sanitize_subdomain,
};
use crate::quarks::api::output_map::{LEFT, OutputMap, SecretOptions};
use crate::quarks::api::reference::Kind;

/// How many bytes the values of a Secret may have together.
pub(crate) const MAX_SECRET_BYTES: usize = 1024 * 1024;
/// How many objects a file may fan out into: their names are in the status, and they are written one after the other.
const MAX_FANNED: usize = 1000;

/// A Secret or ConfigMap that is to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    /// Its name; for a versioned Secret, what the names of all versions have in common.
    pub(crate) name: String,
    pub(crate) data: BTreeMap<String, Vec<u8>>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) versioned: bool,
    /// How many versions are kept; `None`: all.
    pub(crate) versions: Option<usize>,
    /// Whether the QuarksJob owns it, and it is deleted with that; a version is in any case.
    pub(crate) owned: bool,
}

impl Wanted {
    /// How many bytes the object takes: its data, labels and annotations, which each object has that a file becomes.
    pub(crate) fn bytes(&self) -> usize {
        let data: usize = self.data.iter().map(|(key, value)| key.len() + value.len()).sum();
        let marks = self.labels.iter().chain(&self.annotations);
        data + marks.map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// What a spec says of all its outputs.
struct General {
    labels: BTreeMap<String, String>,
    /// The names of labels whose values are no strings.
    no_labels: Vec<String>,
    /// Whether values that are no strings are written as JSON.
    stringifies: bool,
    versions: Option<usize>,
    owned: bool,
}

impl General {
    fn of(output: &Value) -> Self {
        let versions = output["versionHistoryLimit"].as_u64();
        let all = output["secretLabels"].as_object().into_iter().flatten();
        let labels = all.clone();
        Self {
            labels: labels
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            no_labels: all
                .filter(|(_, value)| !value.is_string())
                .map(|(name, _)| name.clone())
                .collect(),
            stringifies: output["stringifyValues"] == true,
            versions: versions.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
            owned: output["setOwnerReference"] == true,
        }
    }
}

/// The output of a run that is to be written.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) wanted: Vec<Wanted>,
    /// Why some of it is not written, for people: a reason in one word, and a message. Nothing of what the files hold
    /// is in it.
    pub(crate) faults: Vec<(&'static str, String)>,
    /// What somebody should know, though nothing is lost by it.
    pub(crate) notes: Vec<String>,
}

impl From<Beyond> for Kept {
    fn from(beyond: Beyond) -> Self {
        Self { faults: vec![("OutputTooLarge", beyond.to_string())], ..Self::default() }
    }
}

/// Makes the objects from a spec and from what its containers left. What is good is kept even if something else is not;
/// if a limit of a run is exceeded, nothing is. Prefixes have one dash after them, or are verbatim.
pub(crate) fn kept(
    dialect: Dialect,
    spec: &Value,
    verbatim_prefixes: bool,
    gathered: &BTreeMap<String, BTreeMap<String, Content>>,
) -> Kept {
    within(dialect, spec, verbatim_prefixes, gathered).unwrap_or_else(Kept::from)
}

fn within(
    dialect: Dialect,
    spec: &Value,
    verbatim_prefixes: bool,
    gathered: &BTreeMap<String, BTreeMap<String, Content>>,
) -> Result<Kept, Beyond> {
    let general = General::of(&spec["output"]);
    let containers = dialect.pod_spec(spec)["containers"].as_array();
    let (mut kept, mut taken) = (Kept::default(), Taken::default());
    for name in &general.no_labels {
        kept.notes.push(format!("secretLabels, {name}: it is no string, and left out; quote it"));
    }
    let map = OutputMap::named(dialect, spec, verbatim_prefixes);
    for (container, files) in &map.files {
        let spec = containers.into_iter().flatten().find(|it| it["name"] == **container);
        let Some(spec) = spec else {
            kept.notes.push(format!("outputMap names a container {container}, which there is not"));
            continue;
        };
        for (file, options) in files {
            let (file, found) = found(dialect, file, gathered.get(container));
            let versioned = options.is_versioned(map.versioned);
            match read(options, versioned, &general, found) {
                Ok(read) => {
                    taken.objects(read.len())?;
                    // Labels of one file take precedence over those of all.
                    let users: Vec<_> =
                        general.labels.iter().chain(&options.secret_labels).collect();
                    for (name, data) in read {
                        let wanted = Wanted {
                            kind: options.kind(),
                            name,
                            data,
                            labels: labels(dialect, map.is_by_prefix, &users, container, spec),
                            annotations: options.secret_annotations.clone(),
                            versioned,
                            versions: general.versions,
                            owned: general.owned,
                        };
                        taken.bytes(wanted.bytes())?;
                        kept.wanted.push(wanted);
                    }
                }
                Err((reason, why)) => {
                    kept.faults.push((reason, format!("container {container}: {file}: {why}")));
                }
            }
        }
    }
    kept.notes.extend(keep_the_last(&mut kept.wanted));
    Ok(kept)
}

/// Keeps the last of the files that go into the same object, as the original did. Returns notes on the others.
fn keep_the_last(wanted: &mut Vec<Wanted>) -> Vec<String> {
    let mut notes = Vec::new();
    let mut names = BTreeSet::new();
    wanted.reverse();
    wanted.retain(|it| {
        let is_last = names.insert((it.kind, it.name.clone(), it.versioned));
        if !is_last {
            let place = format!("{}/{}", it.kind.word(), it.name);
            notes.push(format!("several files go into {place}: the last is kept"));
        }
        is_last
    });
    wanted.reverse();
    notes
}

/// The content of a file, or of the one that is kept instead, with its name.
fn found<'f>(
    dialect: Dialect,
    file: &'f str,
    files: Option<&'f BTreeMap<String, Content>>,
) -> (&'f str, &'f Content) {
    let get = |file: &str| files.and_then(|files| files.get(file)).unwrap_or(&Content::Missing);
    match (dialect, get(LEFT)) {
        (Dialect::QuarksJob, _) | (Dialect::ExtendedJob, Content::Missing) => (file, get(file)),
        (Dialect::ExtendedJob, left) => (LEFT, left),
    }
}

/// The labels of an object. Of two labels of the user with the same name the later counts. With a prefix values are as
/// they are written, as in the releases that had one.
fn labels(
    dialect: Dialect,
    is_by_prefix: bool,
    users: &[(&String, &String)],
    container: &str,
    spec: &Value,
) -> BTreeMap<String, String> {
    let written = if is_by_prefix { label_as_written } else { sanitize };
    let mut labels: BTreeMap<String, String> =
        users.iter().map(|(name, value)| ((*name).clone(), written(value))).collect();
    labels.insert(dialect.label("container-name"), sanitize(container));
    for (variable, label) in dialect.marked_by(is_by_prefix) {
        let env = spec["env"].as_array().into_iter().flatten();
        let value = env.filter(|it| it["name"] == *variable).find_map(|it| it["value"].as_str());
        labels.extend(value.map(|value| (dialect.label(label), value.to_owned())));
    }
    labels
}

type Fault = (&'static str, String);
type Data = BTreeMap<String, Vec<u8>>;

/// The objects that a file becomes: names and data.
fn read(
    options: &SecretOptions,
    versioned: bool,
    general: &General,
    content: &Content,
) -> Result<Vec<(String, Data)>, Fault> {
    let invalid = |why: String| ("OutputInvalid", why);
    let text = match content {
        Content::Text(text) => text,
        Content::Missing => {
            return Err(("OutputMissing", "it was not there when the container ended".to_owned()));
        }
        Content::TooLarge(bytes) => {
            let held = MAX_SECRET_BYTES;
            let why = match *bytes > held as u64 {
                true => format!("it has {bytes} bytes or more, of which a Secret holds {held}"),
                false => {
                    format!("it has {bytes} bytes, and with the other output there is no room")
                }
            };
            return Err(("OutputTooLarge", why));
        }
        Content::NotText => return Err(invalid("it is not UTF-8".to_owned())),
        Content::Unreadable(why) => return Err(("OutputUnreadable", why.clone())),
    };
    if let Some(fault) = &options.fault {
        return Err(invalid(fault.clone()));
    }
    let name = sanitize_subdomain(&options.name, versioned);
    if name.is_empty() {
        let why = format!("outputMap names no Secret for it: {:?} leaves no name", options.name);
        return Err(invalid(why));
    }
    if !matches!(options.kind.as_str(), "" | "Secret" | "ConfigMap") {
        return Err(invalid(format!(
            "its kind in outputMap is {:?}: say Secret or ConfigMap",
            options.kind
        )));
    }
    if options.versioned == Some(true) && options.kind() == Kind::ConfigMap {
        let why = "a ConfigMap has no versions: remove versioned, or kind".to_owned();
        return Err(invalid(why));
    }
    let flat = object(text).map_err(invalid)?;
    if !options.fans_out() {
        return Ok(vec![(name, data(flat, general).map_err(invalid)?)]);
    }
    if flat.len() > MAX_FANNED {
        let why = format!("it has {} keys, of which {MAX_FANNED} can fan out", flat.len());
        return Err(("OutputTooLarge", why));
    }
    let fanned = flat.into_iter().map(|(key, value)| {
        let within = |why: String| invalid(format!("{}: {why}", shown(&key)));
        if !leaves_something(&key) {
            let why = "it leaves nothing that can be in a name: the Secret would be that of all"
                .to_owned();
            return Err(within(why));
        }
        let text = value_of(&value, general).map_err(within)?;
        let data = object(&text).and_then(|flat| data(flat, general)).map_err(within)?;
        Ok((fanned(&options.name, &key, versioned), data))
    });
    fanned.collect()
}

/// The members of a JSON object: keys, and values as they are written.
type Flat = BTreeMap<String, Box<RawValue>>;

/// Reads a text as a JSON object. The error names places, never what is there.
fn object(text: &str) -> Result<Flat, String> {
    serde_json::from_str(text).map_err(|error| match error.is_data() {
        true => "it is JSON, and has to be one object".to_owned(),
        false => format!("it is not JSON (line {}, column {})", error.line(), error.column()),
    })
}

fn data(flat: Flat, general: &General) -> Result<Data, String> {
    let mut data = Data::new();
    let mut bytes = 0;
    for (key, value) in flat {
        if !is_key(&key) {
            return Err(format!(
                "{} cannot be one of a Secret: up to {MAX_KEY_BYTES} letters, digits, '-', '_' and '.'",
                shown(&key)
            ));
        }
        let text = value_of(&value, general).map_err(|why| format!("{}: {why}", shown(&key)))?;
        bytes += text.len();
        data.insert(key, text.into_bytes());
    }
    if bytes > MAX_SECRET_BYTES {
        return Err(format!("it has {bytes} bytes, of which a Secret holds {MAX_SECRET_BYTES}"));
    }
    Ok(data)
}

/// A value as the text that a Secret holds. Numbers stay as they are written, however many digits they have. The type
/// of a value that is no string is known by its first character: parsed, a megabyte of maps would take a hundred of
/// memory.
fn value_of(value: &RawValue, general: &General) -> Result<String, String> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str(text).map_err(|_| "the value is no string of Unicode".to_owned())
        }
        // `null` is an empty text, as in the original.
        Some(b'n') => Ok(String::new()),
        _ if general.stringifies => Ok(text.to_owned()),
        first => Err(not_text(first)),
    }
}

/// The outputs of several reports together.
pub(crate) fn merged(reports: Vec<Gathered>) -> BTreeMap<String, BTreeMap<String, Content>> {
    reports.into_iter().flat_map(|report| report.outputs).collect()
}
