//! What client-go makes of the same templates and documents. `vectors.json` is what client-go 1.20, built with Go 1.19,
//! said, but that it took the values of an object in the order of their keys; `differences.json` is where another
//! answer is meant, and why.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use serde_json::Value;
use template::jsonpath::JsonPath;

/// A template, its document, and what is made of it.
#[derive(Debug, Deserialize)]
struct Vector {
    expression: String,
    document: String,
    /// Whether what is missing is an error.
    #[serde(default)]
    strict: bool,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Output(String),
    /// Of the template.
    Invalid(String),
    /// With this document.
    Error(String),
    /// Of client-go.
    Panic(String),
}

#[derive(Debug, Deserialize)]
struct Difference {
    name: String,
    reason: String,
    cases: Vec<Vector>,
}

impl Vector {
    fn key(&self) -> (&str, &str, bool) {
        (&self.expression, &self.document, self.strict)
    }

    fn ours(&self, documents: &BTreeMap<String, Value>) -> Answer {
        let template = match JsonPath::parse(&self.expression) {
            Ok(template) => template.allow_missing_keys(!self.strict),
            Err(error) => return Answer::Invalid(error.to_string()),
        };
        match template.print(&documents[&self.document]) {
            Ok(output) => Answer::Output(output),
            Err(error) => Answer::Error(error.to_string()),
        }
    }
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = format!("{}/tests/jsonpath/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn answers_are_those_of_client_go_but_where_another_is_meant() {
    let documents: BTreeMap<String, Value> = read("documents");
    let vectors: Vec<Vector> = read("vectors");
    let differences: Vec<Difference> = read("differences");
    let meant: BTreeMap<_, _> = differences
        .iter()
        .flat_map(|difference| {
            difference.cases.iter().map(move |case| (case.key(), (difference, case)))
        })
        .collect();
    assert!(vectors.len() > 800);
    for vector in &vectors {
        let (name, expected) = match meant.get(&vector.key()) {
            Some((difference, case)) => (difference.name.as_str(), &case.answer),
            None => ("client-go", &vector.answer),
        };
        assert_eq!(vector.ours(&documents), *expected, "{name}: {:?}", vector.key());
    }
}

#[test]
fn each_difference_has_a_reason_and_is_one() {
    let vectors: Vec<Vector> = read("vectors");
    let theirs: BTreeMap<_, _> =
        vectors.iter().map(|vector| (vector.key(), &vector.answer)).collect();
    let differences: Vec<Difference> = read("differences");
    let names: BTreeSet<&str> = differences.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), differences.len());
    for difference in &differences {
        assert!(
            !difference.reason.is_empty() && !difference.cases.is_empty(),
            "{}",
            difference.name
        );
        for case in &difference.cases {
            assert_ne!(theirs[&case.key()], &case.answer, "{}: {:?}", difference.name, case.key());
        }
    }
}
