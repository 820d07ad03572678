//! Input that nobody should send: each is refused as 4xx JSON that names what is wrong, none reaches
//! the backend, and no value of it is repeated.

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Answer, Ask, BINDING, Heard, INSTANCE, Rig, bind_with, provision_with, put};

/// A value that an id or a name of the platform's may not be, and one that is well.
fn not_a_name() -> Vec<Value> {
    vec![
        json!(0),
        json!(-1.5),
        json!(true),
        json!([]),
        json!(["db"]),
        json!({}),
        json!({"a": "b"}),
        json!(""),
        json!("x".repeat(10_000)),
        json!("nul\u{0}"),
        json!("line\nbreak"),
        json!("\u{7f}"),
        json!("\u{85}"),
    ]
}

fn not_a_string() -> Vec<Value> {
    vec![json!(1), json!([]), json!({}), json!(false)]
}

fn not_an_object() -> Vec<Value> {
    vec![json!(0), json!(true), json!([]), json!([{}]), json!("{}"), json!("")]
}

struct Field {
    method: Method,
    path: &'static str,
    body: Value,
    /// A JSON pointer.
    field: &'static str,
    required: bool,
    wrong: Vec<Value>,
}

fn fields() -> Vec<Field> {
    let mut fields = Vec::new();
    let provision = provision_with(json!({"maintenance_info": {"version": "1.0.0"}}));
    let update = json!({"service_id": "db", "plan_id": "small", "maintenance_info": {"version": "1.0.0"},
                        "previous_values": {"maintenance_info": {"version": "1"}}});
    let bind = bind_with(json!({"bind_resource": {}}));
    let rotation = json!({"predecessor_binding_id": "old"});
    let mut add = |method: &Method, path, body: &Value, field, required, wrong| {
        fields.push(Field {
            method: method.clone(),
            path,
            body: body.clone(),
            field,
            required,
            wrong,
        });
    };
    for field in [
        "/service_id",
        "/plan_id",
        "/organization_guid",
        "/space_guid",
        "/maintenance_info/version",
    ] {
        add(&Method::PUT, INSTANCE, &provision, field, true, not_a_name());
    }
    for field in ["/context", "/parameters", "/maintenance_info"] {
        add(&Method::PUT, INSTANCE, &provision, field, false, not_an_object());
    }
    add(&Method::PATCH, INSTANCE, &update, "/service_id", true, not_a_name());
    add(&Method::PATCH, INSTANCE, &update, "/plan_id", false, not_a_name());
    for field in ["/maintenance_info/version", "/previous_values/maintenance_info/version"] {
        add(&Method::PATCH, INSTANCE, &update, field, true, not_a_name());
    }
    for field in [
        "/context",
        "/parameters",
        "/maintenance_info",
        "/previous_values",
        "/previous_values/maintenance_info",
    ] {
        add(&Method::PATCH, INSTANCE, &update, field, false, not_an_object());
    }
    for field in [
        "/previous_values/service_id",
        "/previous_values/plan_id",
        "/previous_values/organization_id",
        "/previous_values/space_id",
    ] {
        add(&Method::PATCH, INSTANCE, &update, field, false, not_a_string());
    }
    for field in ["/service_id", "/plan_id"] {
        add(&Method::PUT, BINDING, &bind, field, true, not_a_name());
    }
    for field in ["/app_guid", "/bind_resource/app_guid", "/bind_resource/route"] {
        // An empty one is none.
        let wrong = not_a_name().into_iter().filter(|it| *it != "").collect();
        add(&Method::PUT, BINDING, &bind, field, false, wrong);
    }
    for field in ["/bind_resource/space_guid", "/predecessor_binding_id"] {
        add(&Method::PUT, BINDING, &bind, field, false, not_a_name());
    }
    let client = "/bind_resource/credential_client_id";
    add(&Method::PUT, BINDING, &bind, client, false, not_a_string());
    for field in ["/context", "/parameters", "/bind_resource", "/bind_resource/app_annotations"] {
        add(&Method::PUT, BINDING, &bind, field, false, not_an_object());
    }
    for field in ["/service_id", "/plan_id"] {
        add(&Method::PUT, BINDING, &rotation, field, false, not_a_name());
    }
    fields
}

fn set(body: &mut Value, pointer: &str, value: Option<Value>) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(parent.insert(name.to_owned(), value)),
        None => drop(parent.remove(name)),
    }
}

#[tokio::test]
async fn item_05_19_31_36_each_field_of_each_body_is_judged_and_named() {
    let rig = Rig::new();
    for Field { method, path, body, field, required, wrong } in fields() {
        let name = field[1..].replace('/', ".");
        let mut cases: Vec<_> = wrong.into_iter().map(Some).collect();
        if required {
            cases.extend([None, Some(Value::Null)]);
        }
        for case in cases {
            let mut body = body.clone();
            set(&mut body, field, case.clone());
            let answer = rig.send(Ask::new(method.clone(), path).json(&body)).await;
            let description = answer.names(&[&name]);
            assert!(description.len() < 500, "{field}: {description}");
            assert_eq!(rig.heard(), [], "{field}: {case:?}");
        }
        if !required {
            let mut body = body.clone();
            set(&mut body, field, Some(Value::Null));
            let answer = rig.send(Ask::new(method.clone(), path).json(&body)).await;
            assert!(answer.status < 300, "{field}: null is absent: {}", answer.json());
            assert_eq!(rig.heard().len(), 1);
        }
    }
}

#[tokio::test]
async fn names_in_any_script_are_names() {
    let rig = Rig::new();
    for name in ["a/b", "ü", "🐘", " ", "../..", "%00", "'; DROP TABLE", "{{x}}", "$(id)"] {
        let body = provision_with(json!({"organization_guid": name, "space_guid": name}));
        assert_eq!(rig.send(Ask::new(Method::PUT, INSTANCE).json(&body)).await.status, 201);
        let [Heard::Provision(_, request)] = &rig.heard()[..] else { panic!("one provision") };
        assert_eq!((request.organization_guid.as_str(), request.space_guid.as_str()), (name, name));
    }
}

async fn send_raw(rig: &Rig, body: impl Into<Vec<u8>>) -> Vec<Answer> {
    let body = body.into();
    let mut answers = Vec::new();
    for (method, path) in
        [(Method::PUT, INSTANCE), (Method::PATCH, INSTANCE), (Method::PUT, BINDING)]
    {
        let ask =
            Ask::new(method, path).header("content-type", "application/json").body(body.clone());
        answers.push(rig.send(ask).await);
    }
    assert_eq!(rig.heard(), []);
    answers
}

#[tokio::test]
async fn item_05_malformed_body_is_400() {
    let rig = Rig::new();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deep_in_parameters = format!(r#"{{"service_id":"db","parameters":{{"a":{}}}}}"#, deep(200));
    let bodies: Vec<Vec<u8>> = vec![
        b"{".to_vec(),
        b"}".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"5".to_vec(),
        b"\"secret-value\"".to_vec(),
        b"{} {}".to_vec(),
        b"{\"a\":1,}".to_vec(),
        b"{'service_id':'db'}".to_vec(),
        b"service_id=db".to_vec(),
        b"\xff\xfe{}".to_vec(),
        b"\xef\xbb\xbf{}".to_vec(),
        b"{\"a\":\"\xff\"}".to_vec(),
        b"{\"a\":\"\\ud800\"}".to_vec(),
        b"{\"a\":1e999}".to_vec(),
        b"{\"a\":NaN}".to_vec(),
        b"\0".to_vec(),
        b" ".to_vec(),
        b"{\"secret-value\": tru}".to_vec(),
        deep(50_000).into_bytes(),
        deep_in_parameters.into_bytes(),
        format!("{{\"a\":{}", "[".repeat(50_000)).into_bytes(),
    ];
    for body in bodies {
        for answer in send_raw(&rig, body.clone()).await {
            let description = answer.names(&["body"]);
            assert!(!description.contains("secret-value"), "{description}");
        }
    }
    for answer in send_raw(&rig, "").await {
        answer.names(&["service_id"]);
    }
}

#[tokio::test]
async fn nothing_of_a_body_is_repeated_in_its_refusal() {
    let rig = Rig::new();
    let secret = "hunter2-SECRET";
    let bodies = [
        json!({"service_id": secret, "plan_id": secret, "organization_guid": [secret], "space_guid": {"x": secret}}),
        provision_with(
            json!({"parameters": secret, "context": [secret], "maintenance_info": {"version": [secret]}}),
        ),
        provision_with(
            json!({"parameters": {"size": secret, "password": secret}, "space_guid": ""}),
        ),
        json!({"service_id": "db", "plan_id": secret, "previous_values": {"plan_id": [secret]}, "bind_resource": secret}),
        json!({"service_id": "db", "plan_id": "small", "maintenance_info": {"version": secret}, "app_guid": []}),
    ];
    for body in bodies {
        for answer in send_raw(&rig, body.to_string()).await {
            assert!((400..500).contains(&answer.status), "{}", answer.status);
            assert!(!answer.json().to_string().contains("hunter2"), "{}", answer.json());
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        prop::sample::select(vec!["db", "log", "small", "logs", "old"]).prop_map(str::to_owned)
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "service_id",
            "plan_id",
            "organization_guid",
            "space_guid",
            "context",
            "parameters",
            "maintenance_info",
            "version",
            "previous_values",
            "bind_resource",
            "app_guid",
            "app_annotations",
            "credential_client_id",
            "predecessor_binding_id",
            "size",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..10)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[tokio::test]
async fn what_is_nested_too_deep_to_be_kept_is_400() {
    let rig = Rig::new();
    let nested = |levels| (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let parameters =
        |levels| provision_with(json!({"plan_id": "large", "parameters": nested(levels)}));
    // The body itself is a level.
    let deepest = put(INSTANCE, &parameters(osb::MAX_DEPTH - 1));
    assert_eq!(rig.send(deepest).await.status, 201);
    for levels in [osb::MAX_DEPTH, 100, 126] {
        rig.heard();
        let answer = rig.send(put(INSTANCE, &parameters(levels))).await;
        assert!(answer.names(&["body"]).contains("64 levels"));
        assert_eq!(rig.heard(), []);
    }
    for (levels, status) in [(osb::MAX_DEPTH, 201), (osb::MAX_DEPTH + 1, 400)] {
        let identity = data_encoding::BASE64.encode(nested(levels).to_string().as_bytes());
        let identity = format!("cloudfoundry {identity}");
        let ask = put(INSTANCE, &provision_with(json!({})))
            .header("x-broker-api-originating-identity", identity);
        assert_eq!(rig.send(ask).await.status, status, "{levels}");
    }
}

#[tokio::test]
async fn an_integer_that_would_be_rounded_is_400_by_its_path() {
    let rig = Rig::new();
    let body = |size: &str| {
        let body =
            provision_with(json!({"plan_id": "large", "parameters": {"a": ["SIZE", 1e300]}}));
        body.to_string().replace("\"SIZE\"", size)
    };
    for (size, status) in [
        ("18446744073709551615", 201),
        ("18446744073709551616", 400),
        ("-9223372036854775809", 400),
    ] {
        rig.heard();
        let ask = Ask::new(Method::PUT, INSTANCE).body(body(size));
        let answer = rig.send(ask).await;
        assert_eq!(answer.status, status, "{size}");
        if status == 400 {
            let description = answer.names(&["parameters.a[0]"]);
            assert!(description.contains("send a larger one as a string"), "{description}");
            assert!(!answer.json().to_string().contains(&size[1..]));
            assert_eq!(rig.heard(), []);
        }
    }
    let identity = data_encoding::BASE64.encode(b"{\"user\": 18446744073709551616}");
    let ask = put(INSTANCE, &provision_with(json!({})))
        .header("x-broker-api-originating-identity", format!("kubernetes {identity}"));
    let told = rig.send(ask).await.names(&["X-Broker-API-Originating-Identity"]);
    assert!(told.contains("64 bits"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_request_has_an_answer_that_is_json(
        method in prop::sample::select(vec![Method::GET, Method::PUT, Method::PATCH, Method::DELETE, Method::POST]),
        path in "/(v2|openapi.json|[a-z%/.]{0,4})(/(catalog|service_instances|[ -~&&[^?#\"<>`{}\\\\^|]]{0,6})){0,2}(/[a-z%0-9./]{0,9}){0,4}",
        query in "(\\?[a-z_=&%0-9+]{0,40})?",
        body in prop_oneof![any_json().prop_map(|body| body.to_string().into_bytes()), any::<Vec<u8>>()],
    ) {
        let Ok(uri) = format!("{path}{query}").parse::<http::Uri>() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new();
            let mut ask = Ask::new(method, "/").body(body);
            *ask.0.uri_mut() = uri;
            let answer = rig.send(ask).await;
            if answer.status >= 400 {
                let body = answer.json();
                assert!(!body["error"].as_str().unwrap().is_empty() && !body["description"].as_str().unwrap().is_empty());
                assert_ne!(answer.status, 500);
            }
        });
    }

    #[test]
    fn any_body_has_an_answer_that_is_json(body in any_json(), which in 0..3) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new();
            let (method, path) = [(Method::PUT, INSTANCE), (Method::PATCH, INSTANCE), (Method::PUT, BINDING)][which as usize].clone();
            let answer = rig.send(Ask::new(method, path).json(&body)).await;
            answer.json();
            assert_eq!(answer.status < 300, rig.heard().len() == 1);
        });
    }
}
