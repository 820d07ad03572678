use osb::PlanId;
use osb::catalog::{CompiledCatalog, SchemaUse, parse};
use serde_json::{Value, json};

use crate::{compiled, id, lint_faults, merge, with_schema};

#[test]
fn item_15_schemas_break_no_rule_of_the_specification() {
    let path = "services[0].plans[0].schemas.service_instance.create.parameters";
    let cases = [
        (json!("string"), "", "must be a JSON Schema"),
        (json!([]), "", "must be a JSON Schema"),
        (json!({}), ".$schema", "must name the draft"),
        (json!({"$schema": 4}), ".$schema", "must name a draft"),
        (
            json!({"$schema": "http://json-schema.org/draft-03/schema#"}),
            ".$schema",
            "must name a draft",
        ),
        (json!({"$schema": "https://example.com/mine"}), ".$schema", "must name a draft"),
        (schema(json!({"type": "strin"})), "", "is not a valid JSON Schema at /type"),
        (schema(json!({"pattern": "("})), "", "is not a valid JSON Schema at /pattern"),
        (schema(json!({"$ref": "#/definitions/none"})), "", "is not a valid JSON Schema"),
        (schema(json!({"$ref": "https://example.com/a"})), ".$ref", "must not be external"),
        (schema(json!({"items": {"$ref": "other.json"}})), ".items.$ref", "must not be external"),
        (
            schema(json!({"properties": {"default": {"$ref": "file:///etc/passwd"}}})),
            ".properties.default.$ref",
            "must not be external",
        ),
        (schema(json!({"anyOf": [true, {"$ref": "x"}]})), ".anyOf[1].$ref", "must not be external"),
        (schema(json!({"description": "x".repeat(65_536)})), "", "must not be larger than 64 kB"),
    ];
    for (case, member, message) in cases {
        let faults = lint_faults(&with_schema(case.clone()));
        let [fault] = faults.as_slice() else { panic!("{case}: {faults:?}") };
        assert!(fault.starts_with(&format!("{path}{member}: {message}")), "{case}: {fault}");
    }
}

fn schema(rest: Value) -> Value {
    let mut whole = json!({"$schema": "http://json-schema.org/draft-07/schema#"});
    merge(&mut whole, rest);
    whole
}

#[test]
fn item_15_schemas_of_every_draft_from_04_and_booleans_are_accepted() {
    let drafts = [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ];
    for draft in drafts {
        let schema = json!({"$schema": draft, "type": "object", "properties": {
            "$ref": {"type": "string"}, "again": {"$ref": "#/properties/size"},
            "size": {"type": "integer", "enum": [1, 2], "default": {"$ref": "data"}}}});
        let catalog = compiled(&with_schema(schema));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let check = |value: Value| entry.check(SchemaUse::Provision, value.as_object().unwrap());
        assert_eq!(check(json!({"size": 1, "again": 2, "$ref": "x"})), Ok(()), "{draft}");
        assert_eq!(check(json!({"again": 3, "$ref": 1})).unwrap_err().len(), 2, "{draft}");
    }
    compiled(&with_schema(json!(true)));
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let looping = [
        schema(json!({"$ref": "#"})),
        schema(json!({"allOf": [{"$ref": "#"}]})),
        schema(
            json!({"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
                      "properties": {"x": {"$ref": "#/definitions/a"}}}),
        ),
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [{"$dynamicRef": "#"}]}),
    ];
    for case in looping {
        let Ok(catalog) = CompiledCatalog::compile(parse(&with_schema(case)).unwrap()) else {
            continue;
        };
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let parameters = json!({"x": {"x": 1}});
        let _ = entry.check(SchemaUse::Provision, parameters.as_object().unwrap());
    }
}

/// So many definitions, each of which refers to the next one so many times, as `refer` writes it.
fn levels(levels: usize, times: usize, refer: impl Fn(usize) -> Value) -> Value {
    let anchor = |level: usize| format!("d{level}");
    let of =
        |level: usize| json!({"allOf": vec![refer(level + 1); times], "$anchor": anchor(level)});
    let mut definitions: Value = (0..levels).map(|level| (anchor(level), of(level))).collect();
    definitions[anchor(levels)] = json!({"type": "string", "$anchor": anchor(levels)});
    definitions
}

/// Each of so many definitions refers to all.
fn clique(definitions: usize) -> Value {
    let all: Vec<_> =
        (0..definitions).map(|to| json!({"$ref": format!("#/definitions/d{to}")})).collect();
    (0..definitions).map(|from| (format!("d{from}"), json!({"allOf": all}))).collect()
}

/// A schema with these definitions, one of which a property is of.
fn from(draft: &str, definitions: Value, first: &str) -> Value {
    let properties = json!({"x": {"$ref": first}});
    json!({"$schema": draft, "definitions": definitions, "properties": properties})
}

#[test]
fn a_schema_whose_references_lead_to_too_much_is_refused_and_one_that_is_recursive_is_not() {
    let pointer = |level: usize| json!({"$ref": format!("#/definitions/d{level}")});
    let encoded = |level: usize| json!({"$ref": format!("#/definitions/%64{level}")});
    let anchor = |level: usize| json!({"$ref": format!("#d{level}")});
    let dynamic = |level: usize| json!({"$dynamicRef": format!("#d{level}")});
    let (seven, newest) =
        ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema");
    let first = "#/definitions/d0";
    let embedded = json!({"properties": {"y": {
        "$id": "http://example.com/y", "definitions": levels(7, 100, pointer), "$ref": first}}});
    let tree = json!({"definitions": {"node": {"type": "object", "properties": {
        "value": {"type": "string"}, "left": {"$ref": "#/definitions/node"},
        "right": {"$ref": "#/definitions/node"},
        "all": {"type": "array", "items": {"$ref": "#/definitions/node"}}}}},
        "properties": {"x": {"$ref": "#/definitions/node"}}});
    let many: Value =
        (0..200).map(|at| (format!("p{at}"), json!({"$ref": "#/definitions/size"}))).collect();
    let repeated = json!({"properties": many, "definitions": {"size": {"type": "object",
        "properties": {"cpu": {"type": "integer"}, "memory": {"$ref": "#/definitions/bytes"}}},
        "bytes": {"type": "string", "pattern": "^[0-9]+Mi$"}}});
    let often = Some("must lead to at most 10000 schemas");
    let deep = Some("must have at most 50 references one within another");
    for (name, schema, refused) in [
        ("by pointers", from(seven, levels(7, 100, pointer), first), often),
        ("encoded", from(seven, levels(7, 100, encoded), "#/definitions/%64%30"), often),
        ("by anchors", from(newest, levels(7, 100, anchor), "#d0"), often),
        ("dynamic", from(newest, levels(7, 100, dynamic), "#d0"), often),
        ("in a resource of its own", schema(embedded), often),
        ("twice at each level", from(seven, levels(40, 2, pointer), first), often),
        ("each to all", from(seven, clique(15), first), often),
        ("one after the other", from(seven, levels(60, 1, pointer), first), deep),
        ("not so many", from(seven, levels(40, 1, pointer), first), None),
        ("some at each level", from(seven, levels(3, 10, pointer), first), None),
        ("a few to all", from(seven, clique(4), first), None),
        ("a tree", schema(tree), None),
        ("itself", schema(json!({"properties": {"x": {"$ref": "#"}, "y": {"$ref": "#"}}})), None),
        ("the same repeatedly", schema(repeated), None),
    ] {
        let faults = lint_faults(&with_schema(schema));
        let path = "services[0].plans[0].schemas.service_instance.create.parameters: ";
        match (refused, faults.as_slice()) {
            (None, []) => {}
            (Some(why), [fault]) => {
                assert!(fault.starts_with(&format!("{path}{why}")), "{name}: {fault}");
            }
            _ => panic!("{name}: {faults:?}"),
        }
    }
}

#[test]
fn violations_name_the_place_and_the_rule_but_never_the_value() {
    let secret = "hunter2-SECRET";
    let whole = schema(json!({
        "type": "object", "additionalProperties": false, "required": ["size"],
        "dependencies": {"a": ["zz"]},
        "propertyNames": {"maxLength": 20},
        "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["x"]}, "c": {"const": 1},
            "d": {"pattern": "^x$"}, "e": {"format": "ipv4"}, "f": {"maxLength": 3},
            "g": {"not": {"type": "string"}}, "h": {"anyOf": [{"type": "null"}, {"maxLength": 1}]},
            "i": {"oneOf": [{"type": "string"}, {"minLength": 1}]}, "j": {"oneOf": [{"type": "null"}]},
            "k": false, "l": {"contains": {"type": "null"}}, "m": {"uniqueItems": true},
            "n": {"items": {"type": "integer"}}, "o": {"items": [true], "additionalItems": false},
            "p": {"if": {"type": "string"}, "then": {"const": 3}}, "q": {"contentEncoding": "base64"},
            "r": {"contentMediaType": "application/json"}, "s": {"minLength": 100},
            "t": {"type": ["integer", "null"]}}}));
    let catalog = compiled(&with_schema(whole));
    let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
    for name in "a b c d e f g h i j k l m n o p q r s t unknown".split(' ') {
        for value in
            [json!(secret), json!([secret, secret]), json!({"deep": secret}), json!(987_654_321)]
        {
            let parameters = json!({ name: value });
            let violations = entry.check(SchemaUse::Provision, parameters.as_object().unwrap());
            let told = format!("{:?}", violations.expect_err("size is required at least"));
            assert!(!told.contains("hunter2"), "{name}: {told}");
            assert!(!told.contains("987654321"), "{name}: {told}");
            assert!(!told.contains("aHVudGVyM"), "{name}: {told}");
        }
    }
    let parameters = json!({"a": "x", "n": [1, secret]});
    let violations =
        entry.check(SchemaUse::Provision, parameters.as_object().unwrap()).unwrap_err();
    let told: Vec<_> = violations.iter().map(|v| (v.path.as_str(), v.message.as_str())).collect();
    assert!(told.contains(&("/a", r#"value is not of type "integer""#)), "{told:?}");
    assert!(told.contains(&("/n/1", r#"value is not of type "integer""#)), "{told:?}");
    assert!(told.contains(&("", r#""size" is a required property"#)), "{told:?}");
}

#[test]
fn where_nothing_is_allowed_what_is_too_much_is_named() {
    let nothing = json!({"additionalProperties": false, "type": "object"});
    let within = json!({"properties": {"a": {"additionalProperties": false}, "b": false}});
    for (schema_is, parameters, path, message) in [
        (&nothing, json!({"x": 1, "y": 2}), "", r#"must have no members: leave out "x", "y""#),
        (&within, json!({"a": {"x": 1}}), "/a", r#"must have no members: leave out "x""#),
        (&within, json!({"b": {"x": 1}}), "/b", "must not be given: leave it out"),
    ] {
        let catalog = compiled(&with_schema(schema(schema_is.clone())));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let violations =
            entry.check(SchemaUse::Provision, parameters.as_object().unwrap()).unwrap_err();
        let told: Vec<_> =
            violations.iter().map(|it| (it.path.as_str(), it.message.as_str())).collect();
        assert_eq!(told, [(path, message)], "{parameters}");
    }
}

#[test]
fn many_or_long_violations_make_no_long_answer() {
    let catalog = compiled(&with_schema(schema(json!({
        "additionalProperties": false, "properties": {"n": {"items": {"type": "integer"}}}}))));
    let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
    let mut parameters = json!({"n": vec!["x"; 10_000]});
    parameters["ü".repeat(100_000)] = json!(1);
    let violations =
        entry.check(SchemaUse::Provision, parameters.as_object().unwrap()).unwrap_err();
    let length: usize = violations.iter().map(|v| v.path.len() + v.message.len()).sum();
    assert!(
        violations.len() <= 20 && length < 20_000,
        "{} violations, {length} bytes",
        violations.len()
    );
}

#[test]
fn a_pattern_that_explodes_is_a_violation_soon() {
    let catalog = compiled(&with_schema(schema(json!({
        "properties": {"x": {"pattern": "^(a|a)*(?!b)$"}}}))));
    let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
    let told = |length: usize| {
        let parameters = json!({"x": format!("{}c", "a".repeat(length))});
        let parameters = parameters.as_object().unwrap();
        entry.check(SchemaUse::Provision, parameters).unwrap_err().remove(0).message
    };
    assert!(told(3).contains("does not match"), "{}", told(3));
    // 2¹⁷ ways to read it, of which not all are tried.
    for length in [17, 400, 60_000] {
        assert!(told(length).contains("Max limit for backtracking"), "{}", told(length));
    }
}

#[test]
fn patterns_that_may_step_back_are_tried_with_as_many_texts_as_take_seconds() {
    let explodes = "^(a|a)*(?!b)$";
    let each = |pattern: &str| json!({"additionalProperties": {"pattern": pattern}});
    let thousand = |of: fn(String) -> Value| json!({"allOf": (0..1_000).map(|n| of(format!("^(a|a)*(?!b{n})$"))).collect::<Vec<_>>()});
    let of_each = thousand(|pattern| json!({"additionalProperties": {"pattern": pattern}}));
    let of_names = thousand(|pattern| json!({"propertyNames": {"pattern": pattern}}));
    let by_name = thousand(|pattern| json!({"patternProperties": {pattern: true}}));
    let texts = |count: usize, text: &str| {
        let texts = (0..count).map(|n| (format!("{}{n}", "a".repeat(20)), json!(text)));
        Value::Object(texts.collect())
    };
    let (unjudged, exploding) =
        (Some("takes too many steps to check"), format!("{}c", "a".repeat(30)));
    for (name, declared, given, expected) in [
        ("few texts that are fine", each(explodes), texts(1_000, "c"), Some("does not match")),
        ("a long one", each("^(?!.*--)[a-z-]+$"), texts(1, &"a".repeat(50_000)), None),
        ("many", each("^(?!.*--)[a-z-]+$"), texts(1_500, "a-b"), None),
        ("too many", each("^(?!.*--)[a-z-]+$"), texts(2_500, "a-b"), unjudged),
        ("too long", each("^(?!.*--)[a-z-]+$"), texts(1, &"a".repeat(100_000)), unjudged),
        (
            "a hundred thousand numbers beside it",
            json!({"properties": {"a": {"pattern": "^(?!x)"}, "n": {"items": {"type": "integer"}}}}),
            json!({"a": "y", "n": vec![1; 150_000]}),
            None,
        ),
        ("no pattern that may step back", each("^[a-z-]+$"), texts(20_000, &exploding[..9]), None),
        ("nor with a long text", each("^(a|a)*$"), texts(1, &"a".repeat(200_000)), None),
        ("a thousand patterns", of_each, texts(60, &exploding), unjudged),
        ("for names", of_names, texts(60, ""), unjudged),
        ("by name", by_name, texts(60, ""), unjudged),
        (
            "behind a reference",
            json!({"definitions": {"x": each(explodes)},
            "allOf": vec![json!({"$ref": "#/definitions/x"}); 1_000]}),
            texts(60, &exploding),
            unjudged,
        ),
    ] {
        let catalog = compiled(&with_schema(schema(declared)));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let came = entry.check(SchemaUse::Provision, given.as_object().unwrap());
        let told = came.err().map(|mut all| all.remove(0).message);
        let fits = match (expected, &told) {
            (Some(expected), Some(told)) => told.contains(expected),
            (expected, told) => expected.is_none() && told.is_none(),
        };
        assert!(fits, "{name}: {told:?}");
    }
}

/// A map in a map, and so on, so many of them, with this in the last one.
fn nested(levels: usize, innermost: Value) -> Value {
    (0..levels).fold(innermost, |within, _| json!({"a": within}))
}

#[test]
fn how_a_deep_value_violates_a_schema_that_refers_to_itself_is_told_where_that_can_be_found_out() {
    let node = json!({"$ref": "#/definitions/node"});
    let of = |member: &Value| {
        let node = json!({"type": "object", "properties": {"a": member}});
        schema(json!({"definitions": {"node": node}, "$ref": "#/definitions/node"}))
    };
    // How many ways double, or more, with each level of the value; and how deep one can be that all are gone.
    for (name, member, deepest) in [
        ("once", node.clone(), 60),
        ("in either of two members", json!({"properties": {"a": node, "b": node}}), 60),
        ("any of two", json!({"anyOf": [node, node]}), 8),
        ("one of three", json!({"oneOf": [node, node, node]}), 8),
        ("all of two", json!({"allOf": [node, node]}), 8),
        ("if", json!({"if": node, "then": node, "else": node}), 8),
        ("not", json!({"not": {"not": {"anyOf": [node, node]}}}), 8),
        ("elements", json!({"items": {"anyOf": [node, node]}, "additionalProperties": node}), 60),
    ] {
        let catalog = compiled(&with_schema(of(&member)));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        for deep in [2, 4, 6, 8, 20, 60] {
            let check = |parameters: Value| {
                entry.check(SchemaUse::Provision, parameters.as_object().unwrap())
            };
            let told = format!("{:?}", check(nested(deep, json!(1))).unwrap_err());
            let is_untold = told.contains("it takes too many steps to tell where");
            assert_eq!(is_untold, deep > deepest, "{name}, {deep}: {told}");
            if name != "one of three" {
                assert_eq!(check(nested(deep, json!({}))), Ok(()), "{name}, {deep}");
            }
        }
    }
}

#[test]
fn a_value_and_a_schema_that_are_as_deep_as_they_may_be_take_no_more_of_a_stack_than_there_is() {
    let wrapped = |levels: usize, schema: Value| {
        (0..levels).fold(schema, |within, _| json!({"allOf": [{"maxLength": 5}, within]}))
    };
    let first = json!({"$ref": "#/definitions/d0"});
    for (definitions, wraps) in [(48, 1), (18, 10), (6, 56)] {
        let next = |at: usize| json!({"$ref": format!("#/definitions/d{}", at + 1)});
        let mut all: Value =
            (0..definitions).map(|at| (format!("d{at}"), wrapped(wraps, next(at)))).collect();
        all[format!("d{definitions}")] = json!({"type": "object", "properties": {"a": first}});
        let whole = schema(json!({"definitions": all, "properties": {"a": first}}));
        let catalog = compiled(&with_schema(whole));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        for (innermost, is_valid) in [(json!({}), true), (json!(1), false)] {
            let parameters = nested(60, innermost);
            let checked = entry.check(SchemaUse::Provision, parameters.as_object().unwrap());
            assert_eq!(checked.is_ok(), is_valid, "{definitions}, {wraps}");
        }
    }
}

#[test]
fn after_a_catalog_before_only_what_has_changed_is_judged_anew() {
    let of = |kind: &str| with_schema(schema(json!({"properties": {"a": {"type": kind}}})));
    let before = compiled(&of("string"));
    let after = |value: &Value| {
        let catalog = parse(value).unwrap();
        CompiledCatalog::compile_after(catalog, &before)
    };
    let takes = |catalog: &CompiledCatalog, value: Value| {
        let (service, plan) =
            (&catalog.catalog().services[0].id, &catalog.catalog().services[0].plans[0].id);
        let plan = catalog.plan(service, plan).unwrap();
        plan.check(SchemaUse::Provision, json!({"a": value}).as_object().unwrap()).is_ok()
    };
    for (case, kind, text, number) in
        [("the same", "string", true, false), ("another", "number", false, true)]
    {
        let catalog = after(&of(kind)).unwrap();
        assert_eq!(takes(&catalog, json!("x")), text, "{case}");
        assert_eq!(takes(&catalog, json!(1)), number, "{case}");
        assert_eq!(catalog.body(), compiled(&of(kind)).body(), "{case}");
    }
    let faults = after(&of("none such")).unwrap_err();
    assert!(faults[0].message.starts_with("is not a valid JSON Schema"), "{faults:?}");
}
