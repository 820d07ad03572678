//! What a broker is given, and what is gone by then.

use std::fs;

use agent::{Answer, GIVEN_DIRECTORY, ORDER_VARIABLE, OUR_VARIABLES, Order};
use osb::Action;
use osb::jobs::contract::{Capability, variable};
use serde_json::json;

use crate::harness::{Pod, run, run_with};

#[test]
fn the_arguments_are_those_of_the_contract() {
    let pod = Pod::new(r#"echo "$@" >&2; echo '{}'"#);
    let ended = pod.run_of(&run(Action::Unbind, &[]));
    ended.output();
    let expected = "unbind --service-id the-service --plan-id the-plan --instance-id the-instance \
                    --binding-id the-binding\n";
    assert_eq!(ended.log, expected);
}

#[test]
fn keys_become_variables_and_the_secret_wins() {
    let pod = Pod::new(r#"echo "$AWS_REGION $BOTH $MADE ${OSB_X-none}" >&2; echo '{}'"#);
    pod.key_file("config", "aws.region", "eu");
    pod.key_file("config", "both", "from config");
    pod.key_file("secret", "both", "is");
    pod.key_file("config", "osb.x", "reserved");
    let order = pod.order();
    let agent = pod.command(&order).env("MADE", "by the image").env("OSB_X", "too").spawn();
    let ended = pod.ended(agent.unwrap(), &order);
    let notes = ended.report().notes;
    assert!(ended.log.contains("eu is by the image too\n"), "{}", ended.log);
    assert!(notes.len() == 1 && notes[0].contains("osb.x is offered as a file only"), "{notes:?}");
}

#[test]
fn variables_are_the_images_but_for_those_of_the_agent_and_of_the_contract() {
    let pod = Pod::new("env >&2; ls -l /proc/self/fd >&2; echo '{}'");
    let order = pod.order();
    let taken = || OUR_VARIABLES.into_iter().chain(variable::ALL);
    let others = taken().filter(|name| *name != ORDER_VARIABLE).map(|name| (name, "of the image"));
    let mut agent = pod.command(&order);
    agent.envs(others).envs([("MANCIPLE_OTHER", "stays"), ("OSB_OTHER", "stays")]);
    let ended = pod.ended(agent.spawn().unwrap(), &order);
    ended.output();
    for name in taken() {
        assert!(!ended.log.contains(&format!("{name}=")), "{name}: {}", ended.log);
    }
    for stays in ["MANCIPLE_OTHER=stays\n", "OSB_OTHER=stays\n"] {
        assert!(ended.log.contains(stays), "{}", ended.log);
    }
    assert!(!ended.log.contains("socket:"), "no file of the agent's is open: {}", ended.log);
}

#[test]
fn the_working_directory_is_the_images() {
    let pod = Pod::new("pwd -P >&2; echo '{}'");
    let order = pod.order();
    let agent = pod.command(&order).current_dir(pod.path("image")).spawn();
    let ended = pod.ended(agent.unwrap(), &order);
    ended.output();
    let expected = fs::canonicalize(pod.path("image")).unwrap();
    assert_eq!(ended.log, format!("{}\n", expected.display()));
}

#[test]
fn declared_extensions_have_their_files_and_variables() {
    let pod = Pod::new(
        r#"echo "id $OSB_OPERATION_ID attempt $OSB_ATTEMPT" >&2
           [ "$OSB_DEADLINE" -gt 1700000000 ] || exit 1
           cmp "$OSB_CONFIG_DIR/seen" "$OSB_SECRET_DIR/seen" >&2 || exit 1
           cp "$OSB_REQUEST_FILE" "$SEEN/request"; cp "$OSB_STATE_FILE" "$SEEN/state"
           ls "$(dirname "$OSB_REQUEST_FILE")/.." >"$SEEN/volume"
           ls "$(dirname "$OSB_REQUEST_FILE")" >"$SEEN/exchange"
           echo '{"port": 5433}' >"$OSB_STATE_OUT_FILE"; echo '{}'"#,
    );
    let seen = pod.path("seen");
    fs::create_dir(&seen).unwrap();
    pod.key_file("config", "seen", seen.to_str().unwrap());
    pod.key_file("secret", "seen", seen.to_str().unwrap());
    let capabilities = [Capability::RequestFile, Capability::State];
    let request = json!({"parameters": {"size": "large"}, "state": {"port": 5432}});
    let mut run = run_with(Action::Provision, &capabilities, &request);
    run.removes = Some(Box::default());
    let output = pod.run_of(&run).output();
    assert_eq!(output.state.unwrap().expose(), &json!({"port": 5433}));
    let read = |name| fs::read_to_string(seen.join(name)).unwrap();
    let given: serde_json::Value = serde_json::from_str(&read("request")).unwrap();
    assert_eq!(given["parameters"], json!({"size": "large"}));
    assert_eq!(given["action"], "provision");
    assert_eq!(given.get("state"), None, "it has a file of its own");
    assert!(given["deadline"].is_u64());
    assert_eq!(read("state"), r#"{"port":5432}"#);
    assert_eq!(read("volume"), "agent\nexchange\n", "what was given is gone");
    assert_eq!(read("exchange"), "request.json\nstate.json\n");
}

#[test]
fn a_broker_that_declares_nothing_is_given_nothing_more() {
    let pod = Pod::new(r#"env | grep -c OSB_ >&2; ls "$(dirname "$0")" >&2; echo '{}'"#);
    let request = json!({"parameters": {"size": "large"}, "state": {"port": 5432}});
    let (order, given) = pod.order_of(&run_with(Action::Provision, &[], &request));
    assert_eq!(given.files().count(), 0, "no Secret needed");
    let ended = pod.run(&order);
    ended.output();
    assert_eq!(ended.log, "0\nbroker\n");
}

#[test]
fn nothing_confidential_is_in_an_order() {
    let capabilities = Capability::ALL;
    let request = json!({
        "parameters": {"password": "hunter22"},
        "context": {"platform": "cloud-hunter22"},
        "previous_values": {"plan_id": "plan-hunter22"},
        "originating_identity": {"platform": "kubernetes", "value": {"user": "hunter22"}},
        "state": {"key": "hunter22"},
        "deadline": 17,
    });
    let mut run = run_with(Action::Update, &capabilities, &request);
    let binding = json!({"credentials": {"password": "hunter22"}});
    run.removes = Some(serde_json::from_value(binding).unwrap());
    let pod = Pod::new("");
    let (order, given) = pod.order_of(&run);
    let variable = order.to_variable().unwrap();
    assert!(!variable.contains("hunter22"), "{variable}");
    assert!(!format!("{given:?} {order:?}").contains("hunter22"));
    let names: Vec<_> = given.files().map(|(name, _)| name).collect();
    assert_eq!(names, ["work.json", "state.json", "removes.json"]);
    assert_eq!(serde_json::from_str::<Order>(&variable).unwrap(), order);
}

#[test]
fn kubernetes_finds_no_reference_in_an_order() {
    let pod = Pod::new(r#"for last; do :; done; echo "$last" >&2; echo '{"state": "succeeded"}'"#);
    let capabilities = [Capability::LastOperation, Capability::RequestFile];
    let request = json!({"external_operation": "$(HOME) $$ \"x\""});
    let (order, _) = pod.order_of(&run_with(Action::Provision, &capabilities, &request));
    assert!(!order.to_variable().unwrap().contains('$'));
    let ended = pod.run(&order);
    ended.output();
    assert_eq!(ended.log, "$(HOME) $$ \"x\"\n");
}

#[test]
fn what_is_given_is_gone_even_if_the_broker_is_not_started() {
    let pod = Pod::new("");
    fs::remove_file(pod.path("image/broker")).unwrap();
    let request = json!({"parameters": {"size": "large"}});
    let ended = pod.run_of(&run_with(Action::Provision, &[Capability::RequestFile], &request));
    ended.failure();
    assert!(!pod.path("volume").join(GIVEN_DIRECTORY).exists());
}

#[test]
fn a_catalog_is_an_offer() {
    let pod = Pod::new(
        r#"echo "$@" >&2
           echo '{"services": [], "jobs": {"version": 2, "capabilities": ["progress"]}}'"#,
    );
    let order =
        Order::catalog("catalog-1", std::time::Duration::from_secs(60), pod.keys.public().clone());
    let ended = pod.run(&pod.of_this_pod(order));
    let Answer::Offer(Ok(offer)) = ended.report().answer else { panic!("{:?}", ended.report()) };
    assert_eq!(offer.catalog, json!({"services": []}));
    assert_eq!(offer.capabilities, [Capability::Progress]);
    assert_eq!(ended.log, "catalog\n");
}

#[test]
fn installing_twice_is_installing_once() {
    let pod = Pod::new("echo '{}'");
    let request = json!({"parameters": {"size": "large"}});
    let (order, given) =
        pod.order_of(&run_with(Action::Provision, &[Capability::RequestFile], &request));
    pod.install(&given);
    pod.install(&given);
    pod.run(&order).output();
}
