//! The files, as far as anything here depends on them.

use serde_json::{Value, json};

const INSTANCES: &str = include_str!("../../../../../../../deploy/templates/policy/instances.yaml");
const OTHERS: &str = include_str!("../../../../../../../deploy/templates/policy/others.yaml");
const CHANGES: &str = include_str!("../../../../../../../deploy/templates/policy-changes/own.yaml");
const REQUESTER: &str =
    include_str!("../../../../../../../deploy/templates/policy-requester/requester.yaml");

/// A policy: its parts are lists of maps of texts, each by the name of the list.
#[derive(Debug)]
pub(super) struct Policy(Value);

impl Policy {
    /// By its name. `changes`: with what `policy-changes` replaces.
    pub(super) fn of(name: &str, changes: bool) -> Self {
        let documents = [INSTANCES, OTHERS, REQUESTER].into_iter().flat_map(documents);
        let mut found = documents.filter(|it| {
            it["metadata"] == name
                && it["kind"].as_str().is_some_and(|kind| kind.ends_with("Policy"))
        });
        let mut policy = found.next().unwrap_or_else(|| panic!("there is no policy {name}"));
        for patch in if changes { patches() } else { Vec::new() } {
            let place =
                policy.pointer_mut(patch["path"].as_str().unwrap().strip_prefix("/spec").unwrap());
            let place = place.unwrap_or_else(|| panic!("{patch} is of no place"));
            match patch["op"].as_str().unwrap() {
                "test" => assert_eq!(*place, patch["value"]),
                "replace" => *place = patch["value"].clone(),
                other => panic!("{other}"),
            }
        }
        Self(policy)
    }

    /// The members of one of its lists.
    pub(super) fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The values of a list in brackets, as in `operations: [CREATE]`.
    pub(super) fn names(&self, name: &str) -> Vec<&str> {
        self.0[name].as_str().unwrap().trim_matches(['[', ']']).split(", ").collect()
    }

    /// The expression of the mutation.
    pub(super) fn mutation(&self) -> &str {
        self.0["mutation"].as_str().unwrap()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }
}

/// What is bound, as (policy, actions).
pub(super) fn bindings() -> Vec<(String, String)> {
    let documents = [INSTANCES, OTHERS, REQUESTER].into_iter().flat_map(documents);
    let bindings = documents.filter(|it| it["policyName"].is_string());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    bindings.map(|it| (text(&it["policyName"]), text(&it["validationActions"]))).collect()
}

fn patches() -> Vec<Value> {
    let mut lines = Lines::of(CHANGES);
    lines.items(0)
}

fn documents(file: &str) -> Vec<Value> {
    file.split("\n---\n").map(document).collect()
}

/// No more of YAML than the files have: maps of texts, and lists of them.
fn document(text: &str) -> Value {
    let mut lines = Lines::of(text);
    let mut found = json!({});
    while let Some((indent, line)) = lines.next() {
        let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("no member: {line}"));
        let key = key.trim_start_matches("- ");
        match (key, value.trim()) {
            ("matchConditions" | "variables" | "validations", "") => {
                found[key] = lines.items(indent + 2).into();
            }
            ("name", name) => found["metadata"] = name.into(),
            // The only expression outside of lists is the mutation's.
            ("expression", value) => found["mutation"] = lines.scalar(indent, value).into(),
            (_, "") => {}
            (key, value) => found[key] = lines.scalar(indent, value).into(),
        }
    }
    found
}

/// The lines that say something, each with its indent.
struct Lines<'a> {
    left: Vec<(usize, &'a str)>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let says = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let line = |line: &'a str| (line.len() - line.trim_start().len(), line.trim());
        let mut left: Vec<_> = text.lines().filter(says).map(line).collect();
        left.reverse();
        Self { left }
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.left.pop()
    }

    fn next_if(&mut self, is: impl Fn(usize, &str) -> bool) -> Option<&'a str> {
        let (indent, line) = *self.left.last()?;
        is(indent, line).then(|| self.left.pop())?.map(|(_, line)| line)
    }

    /// The maps of a list that stands there.
    fn items(&mut self, at: usize) -> Vec<Value> {
        let mut items = Vec::new();
        while let Some(first) = self.next_if(|indent, line| indent == at && line.starts_with("- "))
        {
            let mut item = json!({});
            let mut line = first.strip_prefix("- ");
            while let Some((key, value)) = line.and_then(|line| line.split_once(':')) {
                item[key] = self.scalar(at + 2, value.trim()).into();
                line = self.next_if(|indent, _| indent == at + 2);
            }
            items.push(item);
        }
        items
    }

    /// A text: as it is, in quotes, or in the lines below.
    fn scalar(&mut self, of: usize, value: &str) -> String {
        if value != ">-" {
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            return quoted.unwrap_or(value).to_owned();
        }
        let mut lines = Vec::new();
        while let Some(line) = self.next_if(|indent, _| indent > of) {
            lines.push(line);
        }
        lines.join(" ")
    }
}
