//! What expressions say, and that none does harm.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

fn object() -> Value {
    json!({
        "metadata": {"name": "a", "generation": 2, "labels": {"a.b/c": "d"}},
        "spec": {"replicas": 3, "none": null, "ratio": 0.5, "ports": [{"port": 80}, {"port": 443}]},
        "status": {
            "phase": "Running", "ready": 3, "big": 18_446_744_073_709_551_615_u64,
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Synced", "status": "False", "reason": "Wait"},
            ],
        },
        "data": {"password": "c2VjcmV0", "key": "password", "number": "42"},
    })
}

#[test]
fn expressions_are_true() {
    let object = object();
    for expression in [
        "1 + 1.0 == 2.0",
        "3 / 2.0 > 1",
        "true",
        " self.status.phase == 'Running' // the phase\n",
        r#"self.status.conditions.exists(c, c.type == "Ready" && c.status == "True")"#,
        "self.status.ready == self.spec.replicas",
        "self.status.ready >= self.spec.replicas - 1 && self.status.ready + 1 == 4",
        "has(self.status.phase) && !has(self.status.nothing) && !has(self.spec.nothing)",
        "has(self.spec.none) && self.spec.none == null",
        "has(self.status.nothing) ? self.status.nothing == 1 : true",
        "self.metadata.labels['a.b/c'] == 'd' && 'a.b/c' in self.metadata.labels",
        "self.spec.ports.map(p, p.port) == [80, 443]",
        "self.spec.ports.map(p, p.port > 80, p.port * 2) == [886]",
        "self.spec.ports.filter(p, p.port < 100).size() == 1",
        "self.spec.ports.exists_one(p, p.port == 443) && self.spec.ports.all(p, p.port > 0)",
        "size(self.spec.ports) == 2 && self.spec.ports[1].port == 443",
        "self.metadata.labels.all(k, k.startsWith('a') && k.endsWith('c') && k.contains('/'))",
        "[1, 2] + [3] == [1, 2, 3] && 'a' + \"b\" == 'ab' && {'a': 1, 'b': [2,],} == {'b': [2.0], 'a': 1u}",
        "1 == 1.0 && 1u == 1 && 2.5 > 2 && -1 < 0u && self.status.big > 1 && 0x10 == 16",
        "9007199254740993 != 9007199254740992.0 && 1.5e3 == 1500.0 && .5 == self.spec.ratio",
        "-9223372036854775808 < 0 && - 5 == 0 - 5 && --5 == 5 && !!true && !(1 == 2)",
        "7 / 2 == 3 && 7 % 4 == 3 && 2 + 3 * 4 == 14 && (2 + 3) * 4 == 20 && 10 - 3 - 2 == 5",
        "int('42') == 42 && int(2.9) == 2 && uint(3) == 3u && double('0.5') == 0.5",
        "string(42) == '42' && string(true) == 'true' && int(self.data.number) == 42",
        "'\\n\\x41\\u00e9\\101' == '\\nA\u{e9}A' && r'\\n' == '\\\\n' && '''a'b''' == \"a'b\"",
        "size('h\u{e9}') == 2 && 1 in [1, 2] && !(3 in [1, 2]) && 'x' < 'y' && 'x' != 1",
        // Another operand makes up for an error.
        "self.nothing.there == 1 || true",
        "!(self.nothing.there == 1 && false)",
        "[1, 0].exists(x, 1 / x == 1) && !([0, 1].all(x, 1 / x == 2))",
        "[[1], [2]].exists(x, x.exists(y, y == 2)) && [1].all(self, self == 1)",
    ] {
        assert_eq!(holds(expression, &object), Ok(true), "{expression}");
    }
    assert_eq!(holds("self.status.ready > 3", &object), Ok(false));
    let many = vec!["self.status.ready == 3"; 150].join(" && ");
    assert_eq!(holds(&many, &object), Ok(true), "a long row of conditions");
}

#[test]
fn what_is_not_there_may_come() {
    let object = object();
    for (expression, said) in [
        ("self.status.nothing.there == 1", "self.status.nothing is not there"),
        ("has(self.nothing.there)", "self.nothing is not there"),
        ("self.spec.none.there", "self.spec.none.there is not there"),
        ("self.spec.none", "it is null"),
        ("self.spec.none > 3", "`>` meets null"),
        ("self.status.conditions[7].type == 'x'", "an element is not there"),
        ("self.status.conditions[-1].type == 'x'", "an element is not there"),
        ("self.data[self.data.password] == 'x'", "a key is not there"),
        ("self.status.conditions.all(c, c.reason == 'Wait')", "reason is not there"),
        ("1 / (self.spec.replicas - 3) == 1", "`/` gives no number that can be held"),
        ("9223372036854775807 + 1 > 0", "`+` gives no number that can be held"),
        ("int(self.data.password) == 1", "int() meets what is no such number"),
    ] {
        assert_eq!(holds(expression, &object), Err(Fault::NotYet(said.to_owned())), "{expression}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let object = object();
    for (expression, said) in [
        ("", "at the end: something is missing"),
        ("self.status.phase", "it gives a string: it must be true or false"),
        ("self", "it gives a map: it must be true or false"),
        ("self.status.phase = 'x'", "at character 19: an operator or the end is expected"),
        ("self.a ==", "at the end: something is missing"),
        ("(self.a", "at the end: `)` is expected"),
        ("other.a == 1", "at character 1: there is no such name; the object is `self`"),
        ("[1].all(x, true) && x == 1", "at character 21: there is no such name"),
        ("self.name.matches('a+')", "there is no such function"),
        ("duration('1s') == 1", "at character 1: there is no such function"),
        ("has(self)", "has() takes a field"),
        ("size()", "another number of arguments"),
        ("'a", "at character 1: the text that begins here does not end"),
        ("'\\q'", "at character 1: an escape in this text is none"),
        ("b'a' == b'a'", "bytes are not supported"),
        ("1 @ 2", "at character 3: this character means nothing here"),
        ("99999999999999999999 > 1", "it is no number that can be held"),
        ("1 % 1.0 == 0", "`%` does not go with int and double"),
        ("self.status.ready && true", "`&&` does not go with int"),
        ("self.status.phase.inner == 1", "self.status.phase.inner is asked of a string"),
        ("{'a': 1, 'a': 2} == {}", "a map has a key twice"),
        ("1.all(x, true)", "`a macro` does not go with int"),
        ("[1].all(x)", "`,` is expected"),
        ("1 < 2 < 3", "`<` does not go with bool and int"),
    ] {
        match holds(expression, &object) {
            Err(Fault::Wrong(wrong)) if wrong.contains(said) => {}
            other => assert_eq!(other, Err(Fault::Wrong(said.to_owned())), "{expression}"),
        }
    }
}

#[test]
fn nothing_that_an_object_holds_is_said() {
    let object = object();
    for expression in [
        "self.data.password",
        "self.data.password > 1",
        "self.data[self.data.password]",
        "self.data.password.there",
        "int(self.data.password) == 1",
        "self.data[self.data.key] + 1 == 2",
        "{self.data.password: 1, self.data.password: 2} == {}",
        "self.data.map(k, self.data[k])",
        "-self.data.password",
    ] {
        let said = format!("{:?}", holds(expression, &object).unwrap_err());
        assert!(!said.contains("c2Vj") && !said.contains("42"), "{expression}: {said}");
    }
}

fn nested(before: &str, within: &str, after: &str, times: usize) -> String {
    format!("{}{within}{}", before.repeat(times), after.repeat(times))
}

#[test]
fn what_nests_too_deep_is_refused() {
    // Half of what a thread has: whoever asks has used some.
    let small = std::thread::Builder::new().stack_size(1 << 20);
    small.spawn(refuse_what_nests_too_deep).unwrap().join().unwrap();
}

fn refuse_what_nests_too_deep() {
    let object = object();
    for (before, within, after) in [
        ("(", "true", ")"),
        ("[", "1", "]"),
        ("{1: ", "1", "}"),
        ("size(", "1", ")"),
        ("1 + (", "1", ")"),
        ("true ? 1 : (", "1", ")"),
        ("true ? ", "1", " : 1"),
        ("true ? 1 : ", "1", ""),
        ("[1].map(x, ", "1", ")"),
        ("", "self", ".a"),
        ("", "self", "[0]"),
        ("", "self", ".size()"),
        ("", "self", ".map(x, x)"),
        ("", "1", " + 1"),
        ("", "1", " == 1"),
        ("", "1", " * 1"),
        ("-(", "1", ")"),
    ] {
        for times in [14, 300, 10_000] {
            let expression = nested(before, within, after, times);
            let outcome = holds(&expression, &object);
            let refused = matches!(&outcome, Err(Fault::Wrong(said))
                if said.contains("deeper than") || said.contains("longer than"));
            let odd = before == "true ? " && times == 300;
            assert!(times == 14 || refused || odd, "{before}{within}{after}: {outcome:?}");
        }
    }
    let signs = ["!".repeat(4000) + "true", "-".repeat(4000) + "1 == 1"];
    for expression in &signs {
        assert_eq!(holds(expression, &object), Ok(true));
    }
    assert!(holds(&"!".repeat(4000), &object).is_err());
}

#[test]
fn no_expression_goes_on_and_on() {
    let numbers: Vec<u32> = (0..20_000).collect();
    let words: Vec<String> = (0..200).map(|word| format!("{word}").repeat(500)).collect();
    let object = json!({"l": numbers, "w": words, "s": "a".repeat(1_000_000)});
    let doubled = nested("[", "self.l", "].map(x, x + x)[0]", 10);
    for expression in [
        "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))",
        "self.l.map(a, self.l + self.l).map(b, b + b).size() > 0",
        "self.l.filter(a, a in self.l).size() > 0",
        "self.l.all(a, self.l == self.l)",
        "self.l.all(a, self.s.contains('b') || self.s + self.s != self.s)",
        "self.w.all(a, self.w.all(b, self.w.all(c, a + b + c != c)))",
        "self.l.map(a, {'k': self.l}).all(m, m == {'k': self.l})",
        "self.l.map(a, self.s + self.s).size() > 0",
        &doubled,
    ] {
        let begun = Instant::now();
        let outcome = holds(expression, &object);
        let spent = Err(Fault::Wrong("it takes too many steps".to_owned()));
        assert_eq!(outcome, spent, "{expression}");
        // Far more than it takes, for a machine that is busy.
        assert!(begun.elapsed() < Duration::from_secs(30), "{expression}: {:?}", begun.elapsed());
    }
    assert_eq!(holds("self.l.all(a, a >= 0 && a < 20000)", &object), Ok(true));
}

#[test]
fn what_is_no_expression_is_refused() {
    let object = object();
    let pieces = [
        "self",
        ".",
        "a",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "'''",
        "\\",
        "r'",
        "b\"",
        "1",
        "0x",
        "1e",
        "1.",
        "u",
        "!",
        "-",
        "+",
        "?",
        ":",
        ",",
        "in",
        "has(",
        ".all(",
        "x",
        "&&",
        "|",
        "==",
        " ",
        "//",
        "\n",
        "\u{e9}",
        "\u{1f600}",
        "\0",
        "99999999999999999999",
        "e+",
        "\\u",
        "\\U0010ffff",
    ];
    // A generator of its own, so that each run is the same.
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut expression = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = usize::try_from(state >> 40).unwrap() % pieces.len();
            expression.push_str(pieces[place]);
        }
        let _ = holds(&expression, &object);
    }
}

#[test]
fn expressions_of_others_are_tried_with_their_names_and_functions() {
    let (object, none) = (object(), json!(null));
    let values = [("object", &object), ("oldObject", &none)];
    let functions = |name: &str, arguments: &[Value]| match (name, arguments) {
        ("dyn", [value]) => Some(value.clone()),
        ("join", [Value::Array(list), Value::String(between)]) => {
            let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            Some(texts.join(between).into())
        }
        _ => None,
    };
    for (expression, expected) in [
        ("oldObject == null ? object.metadata.name : ''", Ok(json!("a"))),
        ("dyn({'a': [1, 2.5, null]})", Ok(json!({"a": [1, 2.5, null]}))),
        ("object.status.conditions.map(c, c.type).join(', ')", Ok(json!("Ready, Synced"))),
        ("dyn(object.metadata).labels", Ok(json!({"a.b/c": "d"}))),
        ("[1].join(', ', 'x')", Err("join cannot be asked of this")),
        ("object.metadata.namespace", Err("self.metadata.namespace is not there")),
    ] {
        let found = evaluate(expression, &values, &functions);
        assert_eq!(found, expected.map_err(str::to_owned), "{expression}");
    }
    assert!(evaluate("other", &values, &functions).unwrap_err().contains("no such name"));
    assert!(
        matches!(holds("dyn(self) == 1", &object), Err(Fault::Wrong(_))),
        "nobody has it there"
    );
}
