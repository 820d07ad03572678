//! Generates `deploy/` and further files from one source: the chart, and the program's definitions.
//!
//! ```text
//! charts/manciple/values.yaml ─────────────────────────────▶ charts/manciple/values.schema.json
//! charts/manciple/templates ──┬─ values.yaml ───────────────▶ deploy/base
//!                             ├─ values of an overlay ──────▶ its further objects, or all of them
//!                             └─ values of templates ───────▶ deploy/overlays/templates, and in deploy/templates what
//!                                                             people may do with them
//! manciple crds ───────────────────────────────────────────▶ deploy/crds, charts/manciple/crds
//! manciple crds --templates ───────────────────────────────▶ deploy/templates, and a template of the chart
//! ```
//!
//! Helm renders the chart where people use it; here a library does, which knows Go's templates and of Helm's functions
//! those that are given below. So the templates use nothing else. The tests have Helm itself say the same.

mod schema;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use gtmpl::{FuncError, Value as Term};
use serde_json::{Value, json};

pub(crate) const CHART: &str = "charts/manciple";
const SCHEMA: &str = "values.schema.json";
const BASE: &str = "deploy/base";
/// The name of the base, and its namespace unless an overlay names another.
pub(crate) const RELEASE: &str = "manciple";

/// The overlays with objects that the base does not have, each with the values with which the chart renders them.
const FURTHER: [(&str, &str, &str); 4] = [
    ("controller", "controller.yaml", "controller"),
    ("controller", "controller-role.yaml", "controller"),
    ("ha", "poddisruptionbudget.yaml", "podDisruptionBudget"),
    ("monitoring", "servicemonitor.yaml", "serviceMonitor"),
];

/// The folders of the overlay of templates, which has all of its objects, and of those that are apart, for users who
/// run Manciple elsewhere.
const TEMPLATES: (&str, &str) = ("deploy/overlays/templates", "deploy/templates");
/// The file of the chart with the definitions of templates: it is not in `crds`, which Helm installs everywhere.
const DEFINITIONS: &str = "templates-definitions.yaml";
const USERS: &str = "templates-users.yaml";

/// The values with which the chart renders the overlay of templates.
pub(crate) fn of_templates() -> Value {
    json!({"broker": {"image": ""}, "templates": {"enabled": true}})
}

/// Writes all generated files.
pub(crate) fn write() -> anyhow::Result<()> {
    crate::run(crate::cargo().args(["build", "-p", "manciple"]))?;
    let output = Command::new(crate::built("manciple")?).arg("crds").output()?;
    ensure!(output.status.success(), "manciple crds: {}", output.status);
    for folder in ["deploy/crds", "charts/manciple/crds"] {
        std::fs::write(format!("{folder}/manciple.yaml"), &output.stdout)?;
    }
    let output = Command::new(crate::built("manciple")?).args(["crds", "--templates"]).output()?;
    ensure!(output.status.success(), "manciple crds --templates: {}", output.status);
    std::fs::write("deploy/templates/crds.yaml", &output.stdout)?;
    let definitions = definitions(&String::from_utf8(output.stdout)?);
    std::fs::write(format!("{CHART}/templates/{DEFINITIONS}"), definitions)?;
    for (path, text) in rendered()? {
        let folder = Path::new(&path).parent().context("a file is in a folder")?;
        std::fs::create_dir_all(folder)?;
        std::fs::write(&path, text)?;
        eprintln!("{path}");
    }
    Ok(())
}

/// Checks that the files that are checked in are those that would be written.
pub(crate) fn check() -> anyhow::Result<()> {
    for (path, text) in rendered()? {
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        ensure!(there == text, "{path} is not what the chart says: run `cargo xtask manifests`");
    }
    Ok(())
}

/// The definitions as a template of the chart. They stay when the release goes, for all instances would go with them.
fn definitions(printed: &str) -> String {
    let kept = printed.replace("{{", "{{ \"{{\" }}").replace(
        "\nmetadata:\n",
        "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n",
    );
    format!(
        "{{{{- $templates := default dict .Values.templates -}}}}\n\
         {{{{- if and $templates.enabled $templates.definitions -}}}}\n{kept}{{{{- end }}}}\n"
    )
}

/// Every file that is generated from the chart, by its path.
fn rendered() -> anyhow::Result<BTreeMap<String, String>> {
    let schema = serde_json::to_string_pretty(&schema::of(&values()?))?;
    let mut files = BTreeMap::from([(format!("{CHART}/{SCHEMA}"), schema + "\n")]);
    for (template, text) in chart(&json!({}))? {
        files.insert(format!("{BASE}/{template}"), plain(&text));
    }
    for (overlay, template, member) in FURTHER {
        let mut chart = chart(&json!({member: {"enabled": true}}))?;
        let text = chart.remove(template).with_context(|| format!("{template} is empty"))?;
        files.insert(format!("deploy/overlays/{overlay}/{template}"), plain(&text));
    }
    let (overlay, apart) = TEMPLATES;
    for (template, text) in chart(&of_templates())? {
        match template.as_str() {
            DEFINITIONS => {}
            USERS => drop(files.insert(format!("{apart}/users.yaml"), plain(&text))),
            _ => drop(files.insert(format!("{overlay}/{template}"), plain(&text))),
        }
    }
    Ok(files)
}

/// The chart quotes the names that Helm gives it, for these may be digits. That of the base is none, and whoever reads
/// or edits it finds it as people write names.
fn plain(text: &str) -> String {
    text.replace(&format!(": \"{RELEASE}\"\n"), &format!(": {RELEASE}\n"))
}

/// Renders the chart with its values and these over them, in the namespace of the base.
pub(crate) fn chart(over: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    chart_in(RELEASE, over)
}

/// Does as [`chart`] in another namespace; returns the text by template, without those that are empty.
pub(crate) fn chart_in(namespace: &str, over: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let mut values = values()?;
    merge(&mut values, over);
    of_values(Release { name: RELEASE, namespace }, term(&values))
}

/// What Helm calls an installation.
#[derive(Clone, Copy)]
struct Release<'n> {
    name: &'n str,
    namespace: &'n str,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(CHART)
}

/// The values of the chart.
fn values() -> anyhow::Result<Value> {
    Ok(serde_saphyr::from_str(&std::fs::read_to_string(root().join("values.yaml"))?)?)
}

/// Renders the chart with these values alone.
fn of_values(release: Release<'_>, values: Term) -> anyhow::Result<BTreeMap<String, String>> {
    let release = term(&json!({"Name": release.name, "Namespace": release.namespace}));
    let given = [("Values".to_owned(), values), ("Release".to_owned(), release)];
    let given = Term::Object(given.into_iter().collect());
    let mut made = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("templates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let path = root().join("templates").join(&name);
        let text = render(&std::fs::read_to_string(path)?, &given)
            .with_context(|| format!("the template {name}"))?;
        if name.ends_with(".yaml") && !text.trim().is_empty() {
            made.insert(name, text);
        }
    }
    Ok(made)
}

/// The objects of a text of YAML.
pub(crate) fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(text)?)
}

/// Sorts lists of named things by the names: each patch has a place of its own for what it adds.
pub(crate) fn in_order(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(in_order),
        Value::Array(items) => {
            items.iter_mut().for_each(in_order);
            items.sort_by_key(|item| item["name"].as_str().map(str::to_owned));
        }
        _ => {}
    }
}

/// A List of objects, for kubectl.
pub(crate) fn list(objects: impl Iterator<Item = Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()})
}

fn render(template: &str, given: &Term) -> anyhow::Result<String> {
    let mut parsed = gtmpl::Template::default();
    parsed.add_func("quote", quote);
    parsed.add_func("toJson", to_json);
    parsed.add_func("indent", indent);
    parsed.add_func("int64", int64);
    parsed.add_func("default", default);
    parsed.add_func("dict", dict);
    parsed.add_func("contains", contains);
    parsed.add_func("join", join);
    parsed.add_func("list", |_| Ok(Term::Array(Vec::new())));
    parsed.add_func("hasKey", has_key);
    parsed.add_func("kindIs", kind_is);
    parsed.add_func("ternary", ternary);
    parsed.add_func("required", required);
    parsed.add_func("fail", fail);
    parsed.parse(template).map_err(|error| anyhow::anyhow!("{error}"))?;
    let context = gtmpl::Context::from(given.clone());
    parsed.render(&context).map_err(|error| anyhow::anyhow!("{error}"))
}

fn merge(values: &mut Value, over: &Value) {
    match (values, over) {
        (Value::Object(values), Value::Object(over)) => {
            for (name, value) in over {
                merge(values.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (values, over) => values.clone_from(over),
    }
}

/// The function `toJson` of Helm, whose maps are in order too.
fn to_json(arguments: &[Term]) -> Result<Term, FuncError> {
    let [value] = arguments else { return Err(FuncError::ExactlyXArgs("toJson".into(), 1)) };
    Ok(Term::from(json(value).to_string()))
}

/// The function `quote` of Helm.
fn quote(arguments: &[Term]) -> Result<Term, FuncError> {
    let [value] = arguments else { return Err(FuncError::ExactlyXArgs("quote".into(), 1)) };
    let text = match json(value) {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Term::from(Value::from(text).to_string()))
}

/// The function `int64` of Helm, which reads every number of a values file as a floating-point one, and prints large
/// ones so.
fn int64(arguments: &[Term]) -> Result<Term, FuncError> {
    let [number] = arguments else { return Err(FuncError::ExactlyXArgs("int64".into(), 1)) };
    let whole = json(number).as_i64();
    whole
        .map(Term::from)
        .ok_or_else(|| FuncError::Generic("int64: a whole number is needed".into()))
}

/// The function `indent` of Helm: it indents every line, the first too.
fn indent(arguments: &[Term]) -> Result<Term, FuncError> {
    let [spaces, text] = arguments else { return Err(FuncError::ExactlyXArgs("indent".into(), 2)) };
    let (Some(spaces), Value::String(text)) = (json(spaces).as_u64(), json(text)) else {
        return Err(FuncError::Generic("indent: a number and a text are needed".into()));
    };
    let margin = " ".repeat(usize::try_from(spaces).unwrap_or_default());
    Ok(Term::from(format!("{margin}{}", text.replace('\n', &format!("\n{margin}")))))
}

/// The function `default` of Helm.
fn default(arguments: &[Term]) -> Result<Term, FuncError> {
    let [or, given] = arguments else { return Err(FuncError::ExactlyXArgs("default".into(), 2)) };
    Ok(if is_empty(given) { or.clone() } else { given.clone() })
}

/// The function `dict` of Helm.
fn dict(arguments: &[Term]) -> Result<Term, FuncError> {
    let (pairs, rest) = arguments.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(FuncError::Generic("dict: each name needs a value".into()));
    }
    let named = |[name, value]: &[Term; 2]| (name.to_string(), value.clone());
    Ok(Term::Map(pairs.iter().map(named).collect()))
}

/// The function `contains` of Helm: what is looked for comes first.
fn contains(arguments: &[Term]) -> Result<Term, FuncError> {
    let [Term::String(part), Term::String(text)] = arguments else {
        return Err(FuncError::Generic("contains: two texts are needed".into()));
    };
    Ok(Term::from(text.contains(part.as_str())))
}

/// The function `join` of Helm.
fn join(arguments: &[Term]) -> Result<Term, FuncError> {
    let [Term::String(between), Term::Array(items)] = arguments else {
        return Err(FuncError::Generic("join: a text and a list are needed".into()));
    };
    let items: Vec<String> = items.iter().map(Term::to_string).collect();
    Ok(Term::from(items.join(between)))
}

/// The function `required` of Helm.
fn required(arguments: &[Term]) -> Result<Term, FuncError> {
    let [why, given] = arguments else { return Err(FuncError::ExactlyXArgs("required".into(), 2)) };
    match json(given) {
        Value::Null => Err(FuncError::Generic(why.to_string())),
        Value::String(text) if text.is_empty() => Err(FuncError::Generic(why.to_string())),
        _ => Ok(given.clone()),
    }
}

/// The function `fail` of Helm.
fn fail(arguments: &[Term]) -> Result<Term, FuncError> {
    let [why] = arguments else { return Err(FuncError::ExactlyXArgs("fail".into(), 1)) };
    Err(FuncError::Generic(why.to_string()))
}

/// The function `hasKey` of Helm.
fn has_key(arguments: &[Term]) -> Result<Term, FuncError> {
    let [Term::Object(members) | Term::Map(members), Term::String(name)] = arguments else {
        return Err(FuncError::Generic("hasKey: a map and a text are needed".into()));
    };
    Ok(Term::from(members.contains_key(name)))
}

/// The function `kindIs` of Helm, of the kinds that values have.
fn kind_is(arguments: &[Term]) -> Result<Term, FuncError> {
    let [kind, term] = arguments else { return Err(FuncError::ExactlyXArgs("kindIs".into(), 2)) };
    let is = match json(term) {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    Ok(Term::from(json(kind) == is))
}

/// The function `ternary` of Helm: the condition is the last.
fn ternary(arguments: &[Term]) -> Result<Term, FuncError> {
    let [yes, no, which] = arguments else {
        return Err(FuncError::ExactlyXArgs("ternary".into(), 3));
    };
    Ok(if json(which) == true { yes.clone() } else { no.clone() })
}

fn is_empty(term: &Term) -> bool {
    match json(term) {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        value => value == Value::Null || value == false,
    }
}

fn term(value: &Value) -> Term {
    match value {
        Value::Null => Term::Nil,
        Value::Bool(it) => Term::Bool(*it),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Term::from(whole),
            (None, real) => Term::from(real.unwrap_or_default()),
        },
        Value::String(text) => Term::from(text.as_str()),
        Value::Array(values) => Term::Array(values.iter().map(term).collect()),
        Value::Object(members) => {
            Term::Object(members.iter().map(|(name, value)| (name.clone(), term(value))).collect())
        }
    }
}

fn json(term: &Term) -> Value {
    match term {
        Term::Bool(it) => json!(it),
        Term::String(text) => json!(text),
        Term::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => json!(whole),
            (None, real) => json!(real),
        },
        Term::Array(values) => values.iter().map(json).collect(),
        Term::Object(members) | Term::Map(members) => {
            let sorted: BTreeMap<_, _> = members.iter().collect();
            Value::Object(sorted.into_iter().map(|(k, v)| (k.clone(), json(v))).collect())
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
