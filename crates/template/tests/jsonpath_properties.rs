//! Whatever a template says and a document has: an answer comes, or an error, and soon.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::borrow::Cow;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use template::jsonpath::{Found, JsonPath, MAX_BYTES, MAX_STEPS};

const KEYS: [&str; 8] = ["a", "b", "items", "name", "a.b", "", "*", "é"];

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_i64..9).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec!["", "a", "x(y)", "it's", "\u{2028}<&>\u{8}"]).prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let key = select(KEYS.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(key, inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Of what templates are made of, in any order: most are wrong, many are not.
fn template() -> impl Strategy<Value = String> {
    let pieces = vec![
        "{",
        "}",
        "{",
        "}",
        "{range ",
        "{end}",
        "end",
        "range",
        ".a",
        ".b",
        ".items",
        ".name",
        ".é",
        "..",
        ".*",
        "[*]",
        "[0]",
        "[-1]",
        "[1:3]",
        "[::2]",
        "[0,1]",
        "['a','b']",
        "[\"a\"]",
        "['a.b']",
        "[?(",
        ")]",
        "==",
        "!=",
        "<",
        ">=",
        "@",
        "$",
        "'x'",
        "\"y\"",
        "\\",
        "'",
        "\"",
        "(",
        ")",
        "[",
        "]",
        "?",
        ",",
        ":",
        " ",
        "\n",
        "true",
        "1",
        "-2.5",
        "99999999999999999999",
        "[9223372036854775807:-9223372036854775808]",
        "text",
        "漢",
    ];
    vec(select(pieces), 0..24).prop_map(|pieces| pieces.concat())
}

/// Ones that are good, but may ask for too much.
fn good_template() -> impl Strategy<Value = String> {
    let step = select(vec![
        ".a",
        ".b",
        ".items",
        ".*",
        "[*]",
        "[0]",
        "[-1:]",
        "..",
        "..a",
        "['a','b']",
        "[?(@.a)]",
        "[?(@.a>1)]",
        "[?(@..b!='x')]",
        "[*,*,*]",
    ]);
    // One descent cannot follow another.
    let path = vec(step, 0..4).prop_map(|mut steps| {
        steps.dedup_by(|next, before| next.starts_with("..") && *before == "..");
        steps.concat()
    });
    let node = prop_oneof![
        path.clone().prop_map(|path| format!("{{@{path}}}")),
        path.prop_map(|path| format!("{{range @{path}}}")),
        select(vec!["{end}", "text", "{\"\\n\"}", "{5}"]).prop_map(str::to_owned),
    ];
    vec(node, 0..16).prop_map(|nodes| nodes.concat())
}

/// All nodes, by address.
fn nodes(value: &Value, into: &mut Vec<*const Value>) {
    into.push(std::ptr::from_ref(value));
    match value {
        Value::Array(list) => list.iter().for_each(|value| nodes(value, into)),
        Value::Object(object) => object.values().for_each(|value| nodes(value, into)),
        _ => {}
    }
}

fn check(template: &str, document: &Value, allow: bool) {
    let Ok(path) = JsonPath::parse(template) else { return };
    let path = path.allow_missing_keys(allow);
    let (found, printed) = (path.find(document), path.print(document));
    if let Ok(printed) = &printed {
        assert!(printed.len() <= MAX_BYTES);
        assert!(found.is_ok(), "{template}: {found:?}");
    }
    let Ok(found) = found else { return };
    assert!(found.iter().map(|values| values.len() + 1).sum::<usize>() <= MAX_STEPS);
    let mut known = Vec::new();
    nodes(document, &mut known);
    let is_known = |value: &Found<'_>| match value {
        Cow::Borrowed(value) => known.contains(&std::ptr::from_ref(*value)),
        Cow::Owned(made) => !made.is_array() && !made.is_object(),
    };
    assert!(found.iter().flatten().take(100).all(is_known), "{template}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_a_template_or_an_error(text in any::<String>(), document in document()) {
        check(&text, &document, true);
        check(&format!("{{{text}}}"), &document, false);
    }

    #[test]
    fn any_bytes_are_too(bytes in vec(any::<u8>(), 0..64), document in document()) {
        check(&String::from_utf8_lossy(&bytes), &document, true);
    }

    #[test]
    fn pieces_in_any_order_are_too(template in template(), document in document(), allow: bool) {
        check(&template, &document, allow);
    }

    #[test]
    fn good_templates_end_within_their_budget(template in good_template(), document in document()) {
        prop_assert!(JsonPath::parse(&template).is_ok(), "{}", template);
        check(&template, &document, true);
    }

    #[test]
    fn numbers_are_printed_as_they_are(integer: i64, unsigned: u64, float: f64) {
        let print = |value: Value| JsonPath::parse("{@}").unwrap().print(&value).unwrap();
        prop_assert_eq!(print(integer.into()), integer.to_string());
        prop_assert_eq!(print(unsigned.into()), unsigned.to_string());
        prop_assume!(float.is_finite());
        prop_assert_eq!(print(float.into()).parse::<f64>().unwrap(), float);
    }
}
