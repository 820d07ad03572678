use std::borrow::Cow;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

fn print(template: &str, document: &Value) -> Result<String, String> {
    let template = JsonPath::parse(template).map_err(|error| error.to_string())?;
    template.print(document).map_err(|error| error.to_string())
}

fn document() -> Value {
    json!({
        "kind": "List",
        "items": [
            {"name": "one", "port": 80, "ready": true, "hosts": ["a", "b"]},
            {"name": "two", "port": 8080.5, "ready": false, "hosts": []},
            {"name": "three", "port": 9_007_199_254_740_993_u64, "ready": true, "hosts": ["c"]},
        ],
        "labels": {"example.com/zone": "z", "b": "<&>", "a": null},
    })
}

#[test]
fn templates_print_what_kubectl_prints() {
    let cases = [
        ("text", "a {.kind}!", "a List!"),
        ("actions follow each other", "{.kind}{.kind}", "ListList"),
        ("several values have spaces between", "{.items[*].name}", "one two three"),
        ("names with dots", r"{.labels.example\.com/zone}", "z"),
        ("quoted names with dots", r"{.labels['example\.com/zone']}", "z"),
        ("names in double quotes", r#"{["kind"]}"#, "List"),
        ("unions of names", "{.items[0]['name','port']}", "one 80"),
        ("unions of elements", "{.items[0,1:3].name}", "one two three"),
        ("from the end", "{.items[-1].name} {.items[-2:].name}", "three two three"),
        ("steps", "{.items[::2].name}", "one three"),
        ("filters", "{.items[?(@.name==\"two\")].port}", "8080.5"),
        ("filters of booleans", "{.items[?(@.ready==true)].name}", "one three"),
        ("filters that something is there", "{.items[?(@.hosts[0])].name}", "one two three"),
        (
            "ranges",
            "{range .items[*]}{.name}={.ready}{\"\\n\"}{end}.",
            "one=true\ntwo=false\nthree=true\n.",
        ),
        ("ranges in ranges", "{range .items[*]}{range .hosts[*]}{@},{end};{end}", "a,b,;;c,;"),
        ("descent", "{..name}", "one two three"),
        ("objects", "{.labels}", r#"{"a":null,"b":"\u003c\u0026\u003e","example.com/zone":"z"}"#),
        ("null", "{.labels.a}", "<nil>"),
        ("exact integers", "{.items[2].port}", "9007199254740993"),
        ("an empty list among others", "{.items[*].hosts[*]}", "a b c"),
    ];
    for (name, template, expected) in cases {
        assert_eq!(print(template, &document()).as_deref(), Ok(expected), "{name}");
    }
}

#[test]
fn errors_are_those_of_client_go() {
    let cases = [
        ("{.kind", "unclosed action"),
        ("{(}", "unrecognized character in action: U+0028 '('"),
        ("{\t}", "unrecognized character in action: U+0009"),
        ("{....a}", "invalid multiple recursive descent"),
        ("{1.2.3}", "cannot parse number 1.2.3"),
        ("{[0}", "unterminated array"),
        ("{[a]}", "invalid array index a"),
        ("{[-]}", "array index - is not a number"),
        ("{[?(@.a}", "unterminated filter"),
        ("{[?(@.a)}", "unclosed array expect ]"),
        ("{'a}", "unterminated quoted string"),
        (r#"{"\q"}"#, r#"unquote string "\q" error invalid syntax"#),
        ("{.missing}", "missing is not found"),
        ("{.labels[0]}", "map[string]interface {} is not array or slice"),
        ("{.kind[?(@.a)]}", "List is not array or slice and cannot be filtered"),
        ("{.items[3]}", "array index out of bounds: index 3, length 3"),
        ("{.items[2:1]}", "starting index 2 is greater than ending index 1"),
        ("{.items[::0]}", "step must be > 0"),
        ("{.items[?(@.*==1)]}", "can only compare one element at a time"),
        ("{.items[?(@.name<>1)]}", "unrecognized filter operator <>"),
        ("{.items[?(@.hosts==1)]}", "invalid type for comparison"),
        ("{.items[?(@.name==1)]}", "incompatible types for comparison"),
        ("{hello}", "unrecognized identifier hello"),
        ("{end}", "not in range, nothing to end"),
    ];
    for (template, expected) in cases {
        assert_eq!(print(template, &document()), Err(expected.to_owned()), "{template}");
    }
}

#[test]
fn filters_that_compare_integers_of_any_size_are_exact() {
    let document =
        json!([9_007_199_254_740_992_u64, 9_007_199_254_740_993_u64, u64::MAX, i64::MIN]);
    let cases = [
        ("{[?(@==9007199254740993)]}", "9007199254740993"),
        ("{[?(@>9007199254740993)]}", "18446744073709551615"),
        ("{[?(@<=-9223372036854775808)]}", "-9223372036854775808"),
    ];
    for (template, expected) in cases {
        assert_eq!(print(template, &document).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn nodes_of_the_document_are_found_at_their_place() {
    let secret = json!({"data": {"password": "cGFzcw=="}, "list": [1]});
    let template = JsonPath::parse("{.data['password']}{'cGFzcw=='}{.list[*]}{5}").unwrap();
    let found = template.find(&secret).unwrap();
    let [password, text, list, five] = found.as_slice() else { panic!("{found:?}") };
    assert!(std::ptr::eq(&raw const *password[0], &raw const secret["data"]["password"]));
    assert!(matches!(&text[..], [Cow::Owned(Value::String(text))] if text == "cGFzcw=="));
    assert!(std::ptr::eq(&raw const *list[0], &raw const secret["list"][0]));
    assert_eq!(five[..], [Found::Owned(json!(5))]);
}

#[test]
fn what_is_missing_is_nothing_where_it_is_allowed() {
    let template = JsonPath::parse("{.a.b[0].c}{.kind}").unwrap();
    assert_eq!(template.find(&document()), Err(FindError::NotFound("a".to_owned())));
    let template = template.allow_missing_keys(true);
    let document = document();
    let found = template.find(&document).unwrap();
    assert_eq!(found, [vec![], vec![Found::Owned(json!("List"))]]);
}

#[test]
fn a_template_serves_any_number_of_documents() {
    let template = JsonPath::parse("{range [*]}{.a}").unwrap();
    for _ in 0..2 {
        assert_eq!(
            template.clone().allow_missing_keys(true).print(&json!([{"a": 1}])).unwrap(),
            "1"
        );
    }
}

/// Runs as long as its budget lets it, which is not long.
fn limited(template: &str, document: &Value) -> FindError {
    let template = JsonPath::parse(template).unwrap().allow_missing_keys(true);
    let start = Instant::now();
    let error = template.print(document).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(20), "{error}");
    error
}

#[test]
fn ranges_unions_and_descents_have_a_budget() {
    let list = json!(vec![vec!["x"; 10]; 100]);
    let nested = (0..40).fold(json!(1), |inner, _| json!({"a": inner}));
    let many = json!(vec![vec![0; 1000]; 1000]);
    let cases = [
        ("each range twice", "{range ['a','a']}".repeat(40), &nested),
        ("ranges of nothing, without an end", "{range .missing}".repeat(40), &nested),
        ("ranges of one, without an end", "{range @}".repeat(40), &nested),
        ("ranges of many", "{range .*}".repeat(40), &list),
        ("unions", format!("{{{}}}", "['a','a']".repeat(40)), &nested),
        ("descents", format!("{{{}}}", "..a".repeat(20)), &nested),
        ("many values, several times", "{.*.*}".repeat(3), &many),
    ];
    for (name, template, document) in cases {
        assert_eq!(limited(&template, document), FindError::TooManySteps, "{name}");
    }
}

#[test]
fn filters_do_not_take_the_end_of_the_budget_for_an_answer() {
    let list = json!(vec![vec![0; 1000]; 1200]);
    assert_eq!(limited("{[?(@..)]}", &list), FindError::TooManySteps);
}

#[test]
fn comparing_long_strings_counts() {
    let text = "x".repeat(1 << 20);
    let list = json!([[text], [text]]);
    let template =
        format!("{{range [*{}]}}{{[?(@=='{}')]}}{{end}}", ",*".repeat(99), "x".repeat(1 << 20));
    assert_eq!(limited(&template, &list), FindError::TooManySteps);
}

#[test]
fn output_has_an_end() {
    let long = json!(vec!["x".repeat(1 << 16); 100]);
    assert_eq!(limited("{[*]}", &long), FindError::TooLong);
    assert_eq!(limited("{@}", &long), FindError::TooLong);
    let text = format!("{{range [*]}}{}{{end}}", "x".repeat(1 << 16));
    assert_eq!(limited(&text, &long), FindError::TooLong);
    let template = JsonPath::parse(&text).unwrap();
    assert_eq!(template.find(&long), Err(FindError::TooLong));
    let borrowed = JsonPath::parse("{[*]}").unwrap().find(&long).unwrap();
    assert_eq!(borrowed[0].len(), 100);
}

#[test]
fn messages_have_only_the_beginning_of_a_value() {
    let message = print("{[?(@.a)]}", &json!({"a": "é".repeat(1 << 20)})).unwrap_err();
    assert!(message.starts_with("map[a:é") && message.len() < 5000, "{}", message.len());
    assert!(message.ends_with("... is not array or slice and cannot be filtered"));
}

#[test]
fn ranges_in_ranges_have_a_limit() {
    let nested = |count: usize| "{range @}".repeat(count) + "x" + &"{end}".repeat(count);
    assert_eq!(print(&nested(MAX_RANGES), &json!({})).as_deref(), Ok("x"));
    assert_eq!(limited(&nested(MAX_RANGES + 1), &json!({})), FindError::TooManyRanges);
    assert_eq!(limited(&nested(100_000), &json!({})), FindError::TooManyRanges);
}

/// On a thread with as little stack as any has.
#[test]
fn deep_documents_are_gone_through() {
    let run = || {
        let deep =
            |levels| (0..levels).fold(json!({"name": 1}), |inner, _| Value::from(vec![inner]));
        let printed = "[".repeat(250) + "{\"name\":1}" + &"]".repeat(250);
        assert_eq!(print("{@}", &deep(250)), Ok(printed));
        assert_eq!(print("{..name}", &deep(1000)).as_deref(), Ok("1"));
        assert_eq!(limited("{@}", &deep(1000)), FindError::TooDeep);
        let message = limited("{[?(@.a)]}", &Value::from_iter([("a", deep(1000))]));
        assert!(matches!(message, FindError::NotFilterable(value) if value.ends_with("[...")));
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_templates_are_read() {
    let run = || {
        for piece in
            ["[?(", "[?(\"", "[?(a'[?(b\"", "{", "[", "[0,", "['", ".a[?(@", "[?(@==\"\\\"[?("]
        {
            let _ = JsonPath::parse(&format!("{{{}", piece.repeat(100_000)));
            let closed = piece.repeat(1000) + &")]".repeat(1000);
            let _ = JsonPath::parse(&format!("{{{closed}}}"));
        }
        let actions = JsonPath::parse(&"{.a}".repeat(100_000)).unwrap();
        assert_eq!(actions.allow_missing_keys(true).print(&json!({})).as_deref(), Ok(""));
        assert!(JsonPath::parse(&format!("{{{}}}", ".a".repeat(100_000))).is_ok());
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn filters_may_be_in_quotes_of_filters() {
    let template = JsonPath::parse("{[?(.a\"[?(.b'[?(.c)].d')].e\")]}");
    assert_eq!(template.unwrap().print(&json!([1])).as_deref(), Ok(""));
}
