//! Secrets travel only in Secrets: what is given and what is made is nowhere else to be read.

mod support;

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use engine::names::RunName;
use engine::ports::{Run, RunState};
use engine::testing::runner_contract::{Behaviour, run, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::api::{Api, ListParams, LogParams, PostParams};
use kubernetes::Delivery;
use osb::jobs::contract::Capability;
use osb::{Action, BindingBody, BindingId, OriginatingIdentity};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use support::jobs::Jobs;

/// Prints everything that it is given, and what it makes.
const BROKER: &str = r#"#!/bin/sh
[ "$1" = catalog ] && { echo '{"services": []}'; exit; }
echo "$TOKEN" >"$OSB_PROGRESS_FILE"
cat "$OSB_REQUEST_FILE" "$OSB_STATE_FILE" >&2
echo >&2
base64 -w0 "$OSB_REQUEST_FILE" >&2
echo "token $TOKEN" >&2
[ "$1" = unbind ] && { echo "removed planted-removed-8c1d" >&2; echo planted-removed-8c1d; exit 3; }
echo "made planted-made-5b0e, for https://u:planted-made-5b0e@db.example/" >&2
echo '{"left": "planted-left-1f7a"}' >"$OSB_STATE_OUT_FILE"
until [ -e "$LEDGER/told" ]; do sleep 0.1; done
echo '{"credentials": {"password": "planted-made-5b0e"}}'
"#;

const PLANTED: [&str; 8] = [
    "planted-parameter-3e9b&+",
    "planted-context-77d2",
    "planted-identity-9a41",
    "planted-state-c0de",
    "planted-token-64f3",
    "planted-made-5b0e",
    "planted-removed-8c1d",
    "planted-left-1f7a",
];

#[tokio::test]
async fn no_secret_is_in_anything_but_a_secret() {
    Box::pin(nothing_is_shown(Jobs::new("secrets", BROKER).await)).await;
}

/// That container has the Secret of the run, and a log of its own.
#[tokio::test]
async fn no_secret_is_in_anything_where_an_init_container_brings_the_agent() {
    let mut jobs = Jobs::new("secrets-init", BROKER).await;
    jobs.settings.delivery = Delivery::from(testkit::cluster::AGENT_IMAGE);
    Box::pin(nothing_is_shown(jobs)).await;
}

async fn nothing_is_shown(mut jobs: Jobs) {
    jobs.settings.secret = Some("broker".to_owned());
    jobs.settings.keep_succeeded = Duration::from_secs(600);
    let secret = json!({"metadata": {"name": "broker"}, "stringData": {"TOKEN": PLANTED[4]}});
    let secrets: Api<Secret> = jobs.cluster.api();
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let runner = jobs.open().await;
    let runs = [bind("bind-1"), unbind("unbind-1")];
    // Whether there was any progress in which something could have been shown.
    let told = Cell::new(false);
    for run in &runs {
        runner.start(run).await.unwrap();
        let over = |state: &RunState| {
            let said = progress(state);
            assert_shown(&format!("{} says", run.name), &said);
            if said.contains("[redacted]") {
                told.set(true);
                jobs.put("told");
            }
            !matches!(state, RunState::Running { .. })
        };
        let state = until(&*runner, &run.name, over).await;
        match (run.work.action, state) {
            (Action::Bind, RunState::Finished(Ok(output))) => {
                let binding = output.binding.unwrap();
                let made = serde_json::to_string(&binding).unwrap();
                assert!(made.contains("planted-made-5b0e"), "the output is not what was printed");
                assert!(output.state.is_some());
            }
            (Action::Unbind, RunState::Finished(Err(failure))) => {
                assert_shown("the failure", &format!("{failure:?}"));
            }
            (_, state) => panic!("{state:?}"),
        }
        let log = runner.log(&run.name).await.unwrap().unwrap();
        assert!(log.contains("token [redacted]"), "{log}");
        assert_shown("the log", &log);
    }
    assert!(told.get(), "no progress was told");
    for released in [false, true] {
        assert_nothing_is_shown(&jobs).await;
        let given = secrets.list(&ListParams::default()).await.unwrap();
        let given: Vec<_> = given.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        for run in &runs {
            assert_eq!(given.contains(&run.name.as_str()), !released, "{given:?}");
            if !released {
                runner.release(&run.name).await.unwrap();
            }
        }
    }
}

fn bind(name: &str) -> Run {
    let mut run = run(Behaviour::Succeeds, name);
    run.name = RunName::parse(name).unwrap();
    run.capabilities = vec![Capability::RequestFile, Capability::State, Capability::Progress];
    let work = &mut run.work;
    work.action = Action::Bind;
    work.binding_id = Some(BindingId::new("binding").unwrap());
    let object = |value: serde_json::Value| value.as_object().cloned().unwrap();
    work.parameters = object(json!({"password": PLANTED[0], "deep": [{"it": PLANTED[0]}]})).into();
    work.context = object(json!({"platform": "kubernetes", "key": PLANTED[1]})).into();
    work.originating_identity = Some(identity());
    work.state = Some(json!({"root": PLANTED[3]}).into());
    run
}

fn unbind(name: &str) -> Run {
    let mut run = bind(name);
    run.work.action = Action::Unbind;
    let binding = json!({"credentials": {"password": PLANTED[6]}});
    run.removes = Some(Box::new(serde_json::from_value::<BindingBody>(binding).unwrap()));
    run
}

fn identity() -> OriginatingIdentity {
    serde_json::from_value(json!({"platform": "kubernetes", "value": {"username": PLANTED[2]}}))
        .unwrap()
}

fn progress(state: &RunState) -> String {
    match state {
        RunState::Running { progress } => progress.clone().unwrap_or_default(),
        _ => String::new(),
    }
}

async fn assert_nothing_is_shown(jobs: &Jobs) {
    assert_hidden::<Pod>(jobs).await;
    assert_hidden::<Job>(jobs).await;
    assert_hidden::<Event>(jobs).await;
    assert_hidden::<ConfigMap>(jobs).await;
    for pod in jobs.pods().list(&ListParams::default()).await.unwrap() {
        let (name, spec) = (pod.metadata.name.unwrap(), pod.spec.unwrap());
        for container in spec.init_containers.into_iter().flatten().chain(spec.containers) {
            let container = container.name;
            let of = LogParams { container: Some(container.clone()), ..LogParams::default() };
            let log = jobs.pods().logs(&name, &of).await.unwrap();
            assert_shown(&format!("the log of {name}/{container}"), &log);
        }
    }
}

async fn assert_hidden<K>(jobs: &Jobs)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let found = jobs.cluster.api::<K>().list(&ListParams::default()).await.unwrap();
    for object in found {
        let name = format!("{} {}", K::kind(&()), object.meta().name.as_deref().unwrap_or(""));
        // The script itself has to name what it makes.
        if name != "ConfigMap script" {
            assert_shown(&name, &serde_json::to_string(&object).unwrap());
        }
    }
}

/// Asserts that nothing that was planted is in a text that is shown, in any spelling.
#[track_caller]
fn assert_shown(what: &str, text: &str) {
    let lower = text.to_ascii_lowercase();
    for planted in PLANTED {
        for spelling in spellings(planted) {
            assert!(!text.contains(&spelling), "{what} shows {planted} as {spelling}: {text}");
        }
        let hexadecimal = HEXLOWER.encode(planted.as_bytes());
        assert!(!lower.contains(&hexadecimal), "{what} shows {planted} in hexadecimal: {text}");
    }
}

/// As it is, as in a URL, and as base64 at each of the three places where it can begin in one.
fn spellings(planted: &str) -> Vec<String> {
    let url: String = planted
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let mut spellings = vec![planted.to_owned(), url];
    for before in 0..3 {
        let text = [vec![b' '; before], planted.as_bytes().to_vec()].concat();
        let encoded = BASE64.encode(&text);
        // Its first and last characters depend on what stands around it.
        let from = (before * 8).div_ceil(6);
        let to = text.len() * 8 / 6;
        spellings.push(encoded[from..to].to_owned());
    }
    spellings
}
