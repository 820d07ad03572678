//! What is asked in the original's words, and what is answered.

use std::time::Duration;

use engine::in_process::InProcess;
use engine::testing::MemoryStore;
use engine::{Policy, Ports, SystemClock};
use osb::{Broker, Catalog, Failure, OriginatingIdentity, Output, Work};
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "instance";
const BINDING: &str = "binding";

/// A broker all of whose work is done at once, but for instances named `slow`.
struct Fake;

impl Broker for Fake {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        let catalog = json!({"services": [{
            "id": "s", "name": "s", "description": "d", "bindable": true,
            "plans": [{"id": "p", "name": "p", "description": "d"}],
        }]});
        Ok(serde_json::from_value(catalog).unwrap())
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        if work.instance_id.as_str() == "slow" {
            std::future::pending::<()>().await;
        }
        Ok(Output::default())
    }

    async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }

    async fn bind(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }

    async fn unbind(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }
}

struct Claimed;

#[async_trait]
impl Claims for Claimed {
    async fn has(&self, instance: &InstanceId) -> Result<bool, Error> {
        Ok(instance.as_str() == "claimed")
    }
}

async fn strict() -> Strict<Engine> {
    let ports = Ports {
        store: Arc::new(MemoryStore::default()),
        runner: Arc::new(InProcess::new(Fake)),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let engine = Engine::new(Policy::default(), ports);
    engine.refresh_catalog().await.unwrap();
    Strict::new(engine.clone(), engine, Arc::new(Claimed))
}

fn call() -> Call {
    let value = json!({"username": "alice"}).as_object().unwrap().clone();
    let identity = OriginatingIdentity { platform: "kubernetes".to_owned(), value: value.into() };
    Call { accepts_incomplete: true, originating_identity: Some(identity), ..Call::default() }
}

/// In a word what is answered: the status of a refusal, or what is said instead.
fn word<T>(answer: Result<Reply<T>, Error>) -> String {
    match answer {
        Ok(Reply::Accepted { operation, .. }) => operation,
        Ok(Reply::Created(_)) => "201".to_owned(),
        Ok(Reply::Done(_)) => "200".to_owned(),
        Err(error) => error.kind.status().to_string(),
    }
}

/// Does something in the original's words.
async fn does(of: &Strict<Engine>, what: &str, instance: &str) -> String {
    fn body<T: serde::de::DeserializeOwned>(body: Value) -> T {
        serde_json::from_value(body).unwrap()
    }
    let mut call = call();
    let (id, binding) = (InstanceId::new(instance).unwrap(), BindingId::new(BINDING).unwrap());
    let plan = || json!({"service_id": "s", "plan_id": "p"});
    let mut order = plan();
    order["organization_guid"] = json!("o");
    order["space_guid"] = json!("s");
    match what {
        "provision" => word(of.provision(&call, &id, body(order)).await),
        "update" => word(of.update(&call, &id, body(plan())).await),
        "deprovision" => word(of.deprovision(&call, &id, body(plan())).await),
        "bind" | "unbind" => {
            call.accepts_incomplete = false;
            match what {
                "bind" => word(of.bind(&call, &id, &binding, body(plan())).await),
                _ => word(of.unbind(&call, &id, &binding, body(plan())).await),
            }
        }
        "get" => word(of.instance(&call, &id).await.map(Reply::Done)),
        "get binding" => word(of.binding(&call, &id, &binding).await.map(Reply::Done)),
        "last of binding" => {
            let query = LastOperationQuery::default();
            let last = of.binding_last_operation(&call, &id, &binding, query).await;
            word(last.map(Reply::Done))
        }
        operation => {
            let operation = Some(operation.to_owned()).filter(|it| it != "last");
            let query = LastOperationQuery { operation, ..LastOperationQuery::default() };
            match of.instance_last_operation(&call, &id, query).await {
                Ok(last) => json!(last.state).as_str().unwrap().to_owned(),
                Err(error) => error.kind.status().to_string(),
            }
        }
    }
}

async fn until(of: &Strict<Engine>, operation: &str, state: &str) {
    for _ in 0..500 {
        if does(of, operation, INSTANCE).await == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{operation} is never {state}");
}

#[tokio::test]
async fn what_is_answered_is_what_the_original_answers() {
    let of = strict().await;
    assert!(of.requires_async(Action::Provision, None), "422 AsyncRequired");
    assert!(of.requires_async(Action::Deprovision, None), "422 AsyncRequired");
    assert!(!of.requires_async(Action::Bind, None));
    let all = async |cases: &[(&str, &str, &str)]| {
        for (case, what, expected) in cases {
            assert_eq!(does(&of, what, INSTANCE).await, *expected, "{case}");
        }
    };
    all(&[
        ("bind of what is not there", "bind", "400"),
        ("unbind of what is not there", "unbind", "400"),
        ("deprovision of what is not there", "deprovision", "410"),
        ("an order of what is not there", "provisioning", "400"),
        ("a removal of what is not there", "deprovisioning", "succeeded"),
        ("a change", "update", "405"),
        ("a change is never asked after", "updating", "400"),
        ("an operation has to be said", "last", "400"),
        ("an order", "provision", "provisioning"),
    ])
    .await;
    until(&of, "provisioning", "succeeded").await;
    all(&[
        ("an identical order", "provision", "200"),
        ("no operation", "last", "400"),
        ("another's", "update-1", "400"),
        ("nothing is being removed", "deprovisioning", "in progress"),
        ("no GET", "get", "405"),
        ("no PATCH", "update", "405"),
        ("unbind of a binding that is not there", "unbind", "410"),
        ("a binding", "bind", "201"),
        ("the same", "bind", "200"),
        ("no GET of it", "get binding", "405"),
        ("nor of its operations", "last of binding", "404"),
        ("unbind", "unbind", "200"),
        ("again", "unbind", "410"),
        ("a removal", "deprovision", "deprovisioning"),
    ])
    .await;
    until(&of, "deprovisioning", "succeeded").await;
    all(&[
        ("again", "deprovision", "410"),
        ("what was ordered is gone", "provisioning", "400"),
        ("what was bound, too", "unbind", "400"),
        ("ordered anew", "provision", "provisioning"),
    ])
    .await;
    until(&of, "provisioning", "succeeded").await;
    all(&[("a removal before is not this one's", "deprovisioning", "in progress")]).await;
    assert_eq!(does(&of, "provision", "slow").await, "provisioning");
    assert_eq!(does(&of, "provisioning", "slow").await, "in progress");
    assert_eq!(does(&of, "provision", "slow").await, "provisioning", "asked for again");
}

/// As T4.92 has it. The engine, which adopts nothing here, says of a binding that it is gone.
#[tokio::test]
async fn what_is_claimed_without_its_instance_is_unbound_and_has_not_gone() {
    let of = strict().await;
    for (case, what, expected, of_none) in [
        ("unbind", "unbind", "410", "400"),
        ("a binding of it", "bind", "400", "400"),
        ("how its removal stands", "deprovisioning", "in progress", "succeeded"),
        ("how its order stands", "provisioning", "400", "400"),
        ("an operation that there is not", "updating", "400", "400"),
    ] {
        assert_eq!(does(&of, what, "claimed").await, expected, "{case}");
        assert_eq!(does(&of, what, "nowhere").await, of_none, "{case}, of none");
    }
}

#[tokio::test]
async fn whoever_asks_has_to_say_who_asks() {
    let (of, nobody) = (strict().await, Call::default());
    let id = InstanceId::new(INSTANCE).unwrap();
    let query = LastOperationQuery {
        operation: Some(DEPROVISIONING.to_owned()),
        ..LastOperationQuery::default()
    };
    let refused = of.instance_last_operation(&nobody, &id, query).await.unwrap_err();
    assert!(refused.description.starts_with("couldn't parse"), "{refused}");
}
