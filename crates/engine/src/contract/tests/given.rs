use osb::{InstanceId, PlanId, ServiceId, Work};
use serde_json::json;

use super::*;
use crate::ports::Offer;

fn catalog(stdout: &str) -> Result<Offer, RunFailure> {
    ended_offer(Exit::Status(0), stdout)
}

fn ended_offer(exit: Exit, stdout: &str) -> Result<Offer, RunFailure> {
    let (stdout, redactor) = (stdout.as_bytes(), &Redactor::default());
    offer(&Ended { exit, stdout, log: "", state: None, redactor })
}

#[test]
fn a_catalog_declares_capabilities_and_is_served_without_them() {
    let offer = catalog(
        r#"{"services": [], "jobs": {"version": 2, "more": 1,
            "capabilities": ["update", "exit-codes", "update"]}}"#,
    )
    .unwrap();
    assert_eq!(offer.catalog, json!({"services": []}));
    assert_eq!(offer.capabilities, [Update, ExitCodes]);
}

#[test]
fn a_catalog_that_declares_nothing_is_of_version_1() {
    for stdout in [
        r#"{"services": []}"#,
        r#"{"services": [], "jobs": null}"#,
        r#"{"services": [], "jobs": {}}"#,
    ] {
        let expected = Offer { catalog: json!({"services": []}), ..Offer::default() };
        assert_eq!(catalog(stdout).unwrap(), expected);
    }
}

#[test]
fn a_later_version_adds_what_is_not_for_us() {
    let offer = catalog(r#"{"jobs": {"version": 3, "capabilities": ["update", "teleport"]}}"#);
    assert_eq!(offer.unwrap().capabilities, [Update]);
    let offer = catalog(r#"{"jobs": {"version": 1, "capabilities": ["update", "teleport"]}}"#);
    assert_eq!(offer.unwrap().capabilities, []);
}

#[test]
fn a_catalog_that_declares_nonsense_is_refused() {
    for (stdout, says) in [
        (r#"{"jobs": {"capabilities": ["updat"]}}"#, "jobs.capabilities[0]"),
        (r#"{"jobs": {"capabilities": ["updat"]}}"#, "known are request-file, update, progress"),
        (r#"{"jobs": {"capabilities": [1]}}"#, "jobs.capabilities[0]"),
        (r#"{"jobs": {"capabilities": "update"}}"#, "must be an array"),
        (r#"{"jobs": {"version": 0}}"#, "jobs.version must be"),
        (r#"{"jobs": {"version": "2"}}"#, "jobs.version must be"),
        (r#"{"jobs": []}"#, "jobs must be an object"),
        (r#"{"jobs": true}"#, "jobs must be an object"),
        ("[]", "a JSON object is expected"),
    ] {
        let failure = catalog(stdout).unwrap_err();
        assert_eq!(failure.reason, Reason::WrongShape);
        assert!(failure.failure.description.contains(says), "{failure:?}");
    }
    assert_eq!(catalog("").unwrap_err().reason, Reason::NotJson);
    assert_eq!(catalog("{} x").unwrap_err().reason, Reason::NotJson);
    assert_eq!(ended_offer(Exit::Status(10), "{}").unwrap_err().reason, Reason::ExitStatus);
}

#[test]
fn progress_is_an_object_or_a_line() {
    for (text, said) in [
        (r#"{"description": "copying", "percent": 41.7}"#, Some("copying (42%)")),
        (r#"{"description": "copying"}"#, Some("copying")),
        (r#"{"percent": 250}"#, Some("100%")),
        ("waiting for the disk\nmore", Some("waiting for the disk")),
        ("\u{1b}[1mbold", Some("[1mbold")),
        ("", None),
        ("  \n", None),
        ("{}", None),
        (r#"{"description": "hal"#, None),
        ("[1]", None),
        ("42", None),
    ] {
        assert_eq!(progress(text, &Redactor::default()).as_deref(), said, "{text}");
    }
    assert!(progress(&"é".repeat(5000), &Redactor::default()).unwrap().len() <= 500);
}

fn work(binding: bool, external: bool) -> Work {
    let json = json!({
        "action": "bind", "service_id": "s", "plan_id": "p", "instance_id": "i",
        "operation_id": "bind-abc", "attempt": 2,
    });
    let mut work: Work = serde_json::from_value(json).unwrap();
    work.binding_id = binding.then(|| osb::BindingId::new("b").unwrap());
    work.external_operation = external.then(|| "x-1".to_owned());
    work
}

#[test]
fn the_command_line_is_the_seeds() {
    assert_eq!(
        arguments(&work(true, false)).join(" "),
        "bind --service-id s --plan-id p --instance-id i --binding-id b"
    );
    let provision = Work { action: Action::Provision, ..work(false, false) };
    assert_eq!(
        arguments(&provision).join(" "),
        "provision --service-id s --plan-id p --instance-id i"
    );
    assert_eq!(
        arguments(&work(true, true)).join(" "),
        "last-operation --service-id s --plan-id p --instance-id i --binding-id b --operation x-1"
    );
}

#[test]
fn the_command_line_carries_ids_and_nothing_else() {
    let mut work = work(true, false);
    work.parameters = json!({"p": "hunter22"}).as_object().cloned().unwrap().into();
    work.context = work.parameters.clone();
    work.state = Some(json!("hunter22").into());
    (work.service_id, work.plan_id) = (ServiceId::new("s").unwrap(), PlanId::new("p").unwrap());
    work.instance_id = InstanceId::new("i").unwrap();
    assert!(!format!("{:?}", arguments(&work)).contains("hunter22"));
    assert!(!format!("{:?}", variables(&work, V2, 7)).contains("hunter22"));
}

#[test]
fn variables_are_for_those_who_declare_something() {
    assert_eq!(variables(&work(true, false), &[], 7), []);
    assert_eq!(
        variables(&work(true, false), &[Update], 7),
        [
            ("OSB_OPERATION_ID", "bind-abc".to_owned()),
            ("OSB_ATTEMPT", "2".to_owned()),
            ("OSB_DEADLINE", "7".to_owned())
        ]
    );
}

#[test]
fn a_path_is_told_to_those_who_declare_what_is_there() {
    let bind = Some(Action::Bind);
    for (action, capabilities, expected) in [
        (bind, &[][..], &[][..]),
        (bind, &[Update, ExitCodes], &[]),
        (bind, &[RequestFile], &["OSB_REQUEST_FILE", "OSB_CONFIG_DIR"]),
        (bind, &[Progress], &["OSB_PROGRESS_FILE"]),
        (bind, &[State], &["OSB_STATE_FILE", "OSB_STATE_OUT_FILE"]),
        (None, V2, &[]),
    ] {
        let at = Paths {
            request: Some("request".into()),
            progress: "progress".into(),
            state: "state".into(),
            state_out: "state-out".into(),
            config_dir: Some("config".into()),
            secret_dir: None,
        };
        let found = paths(&Asked { action, external: None, capabilities }, at);
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, expected, "{action:?} {capabilities:?}");
    }
}

#[test]
fn keys_become_variables_as_in_the_seed() {
    assert_eq!(variable("aws.key"), Ok("AWS_KEY".to_owned()));
    assert_eq!(variable("aws.secret-key"), Ok("AWS_SECRET-KEY".to_owned()));
    for key in ["", "a=b", "a\0b", "osb.request.file", "OSB_STATE_FILE"] {
        assert!(variable(key).is_err(), "{key:?}");
    }
}

#[test]
fn what_is_secret_in_a_request_is_what_the_user_gave() {
    let mut work = work(true, false);
    let object = |json: Value| json.as_object().cloned().unwrap().into();
    work.parameters = object(json!({"password": "parameter", "size": 3}));
    work.context = object(json!({"namespace": "namespace-1"}));
    work.state = Some(json!(["left-behind"]).into());
    work.originating_identity = Some(osb::OriginatingIdentity {
        platform: "k".into(),
        value: object(json!({"uid": "user"})),
    });
    let secrets = secrets::of_work(&work);
    let values: Vec<&[u8]> = secrets.iter().collect();
    assert_eq!(values, ["left-behind", "namespace-1", "parameter", "user"].map(str::as_bytes));
}

#[test]
fn what_is_secret_in_an_output_is_found_with_text_around_it() {
    let output = json!({
        "credentials": {"password": "hunter22"}, "syslog_drain_url": "syslog://drain",
        "volume_mounts": [{"driver": "driver", "device": {"mount_config": {"key": "mount-key"}}}],
        "dashboard_url": "https://dashboard"
    });
    for stdout in [output.to_string(), format!("made it\n{output}\nbye")] {
        let secrets = secrets::of_output(stdout.as_bytes());
        let values: Vec<&[u8]> = secrets.iter().collect();
        assert_eq!(values, ["hunter22", "mount-key", "syslog://drain"].map(str::as_bytes));
    }
    let object = output.to_string();
    for stdout in [
        format!("{{not}} JSON {{\"a\": 1}} {object}"),
        format!("{{\"progress\": 50}}\n{object}"),
        format!("[{object}]"),
        format!("{},}}", &object[..object.len() - 1]),
        format!("{{oops, \"nested\": {object}"),
    ] {
        let secrets = secrets::of_output(stdout.as_bytes());
        let values: Vec<&[u8]> = secrets.iter().collect();
        let expected = ["hunter22", "mount-key", "syslog://drain"].map(str::as_bytes);
        assert_eq!(values, expected, "{stdout}");
    }
    for stdout in [
        r#"{"credentials": {"password": "hunter22", "port": 54"#,
        r#"{"credentials": {"password": "hunter22""#,
        r#"{"credentials": {"port": "hunter22", "user" "#,
        "{\"credentials\": {'user': \"hunter22\"}}",
    ] {
        let secrets = secrets::of_output(stdout.as_bytes());
        assert!(secrets.iter().any(|value| value == b"hunter22"), "{stdout}");
    }
    for stdout in ["", "text", "{", "[]", "5", "\"credentials\"", "\"credentials\": {\"a"] {
        assert_eq!(secrets::of_output(stdout.as_bytes()).iter().count(), 0);
    }
}

#[test]
fn of_a_catalog_what_the_clients_of_dashboards_are_known_by_is_secret() {
    let client = json!({"id": "client", "secret": "hunter22", "redirect_uri": "https://there"});
    let catalog = json!({"services": [{"id": "s", "name": "db", "dashboard_client": client}]});
    let secrets = secrets::of_output(catalog.to_string().as_bytes());
    assert_eq!(secrets.iter().collect::<Vec<_>>(), [b"hunter22"]);
    let with_text = format!("made it\n{catalog}\nbye");
    assert!(secrets::of_output(with_text.as_bytes()).iter().any(|value| value == b"hunter22"));
}
