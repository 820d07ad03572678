//! A small broker in memory that does everything as the specification has it, to be spoilt by tests.

use std::collections::{BTreeMap, HashMap};

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::client::double::{Answer, Seen};

/// How long an operation takes, in polls.
const POLLS: u32 = 6;

/// The instance's id, and the binding's or nothing.
type Key = (String, String);

pub(super) struct Broker {
    pub(super) asynchronous: bool,
    pub(super) things: BTreeMap<Key, Thing>,
    graves: BTreeMap<Key, String>,
    operations: u32,
}

/// An instance or a binding.
pub(super) struct Thing {
    service: String,
    plan: String,
    /// What a repeated request is compared with.
    request: Value,
    operation: Option<Operation>,
}

struct Operation {
    name: String,
    action: &'static str,
    left: u32,
    /// What an update makes of the plan.
    plan: Option<String>,
    fails: bool,
}

type Reply = Result<(u16, Value), (u16, &'static str)>;

impl Broker {
    pub(super) fn new(asynchronous: bool) -> Self {
        Self { asynchronous, things: BTreeMap::new(), graves: BTreeMap::new(), operations: 0 }
    }

    pub(super) fn answer(&mut self, seen: &Seen) -> Answer {
        let mut answer = match self.route(seen) {
            Ok((status, body)) => Answer::json(status, &body),
            Err((422, "Fixed")) => Answer::json(
                422,
                &json!({"error": "Fixed", "description": "no", "update_repeatable": false}),
            ),
            Err((status, word)) => {
                Answer::json(status, &json!({"error": word, "description": "no"}))
            }
        };
        if seen.path.ends_with("/catalog") && answer.status == 200 {
            answer = answer.header("etag", "\"1\"");
            if seen.header("if-none-match") == Some("\"1\"") {
                answer = Answer::raw(304, "");
            }
        }
        if seen.path.ends_with("/last_operation") {
            answer = answer.header("retry-after", "0");
        }
        match seen.header("x-broker-api-request-identity") {
            Some(identity) => answer.header("x-broker-api-request-identity", identity),
            None => answer,
        }
    }

    fn route(&mut self, seen: &Seen) -> Reply {
        if seen.header("authorization") != Some("Basic dTpw") {
            return Err((401, "Unauthorized"));
        }
        if !seen.header("x-broker-api-version").is_some_and(|version| version.starts_with("2.")) {
            return Err((412, "UnsupportedVersion"));
        }
        if let Some(identity) = seen.header("x-broker-api-originating-identity") {
            let value =
                identity.split_once(' ').and_then(|(_, text)| BASE64.decode(text.as_bytes()).ok());
            let value: Option<Value> = value.and_then(|value| serde_json::from_slice(&value).ok());
            value.filter(Value::is_object).ok_or((400, "BadRequest"))?;
        }
        let segments: Vec<String> = seen.path.split('/').skip(3).map(decoded).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let key = |instance: &str, binding: &str| (instance.to_owned(), binding.to_owned());
        match (seen.method.as_str(), segments.as_slice()) {
            ("GET", []) if seen.path == "/v2/catalog" => Ok((200, catalog())),
            ("PUT", [instance]) => self.provision(key(instance, ""), seen),
            ("PATCH", [instance]) => self.update(&key(instance, ""), seen),
            ("DELETE", [instance]) => self.delete(&key(instance, ""), seen),
            ("GET", [instance]) => self.fetch(&key(instance, "")),
            ("GET", [instance, "last_operation"]) => self.last_operation(&key(instance, "")),
            ("PUT", [instance, "service_bindings", binding]) => {
                self.bind(key(instance, binding), seen)
            }
            ("DELETE", [instance, "service_bindings", binding]) => {
                self.delete(&key(instance, binding), seen)
            }
            ("GET", [instance, "service_bindings", binding]) => self.fetch(&key(instance, binding)),
            ("GET", [instance, "service_bindings", binding, "last_operation"]) => {
                self.last_operation(&key(instance, binding))
            }
            _ => Err((404, "NotFound")),
        }
    }

    fn provision(&mut self, key: Key, seen: &Seen) -> Reply {
        let body = body(seen)?;
        for name in ["service_id", "plan_id", "organization_guid", "space_guid"] {
            text(&body, name)?;
        }
        let plan = plan(text(&body, "service_id")?, text(&body, "plan_id")?)?;
        let size = &body["parameters"]["size"];
        if !size.is_null() && !size.is_u64() {
            return Err((400, "BadRequest"));
        }
        self.may_be_slow(seen)?;
        maintained(&body, &plan)?;
        let names = ["service_id", "plan_id", "organization_guid", "space_guid", "parameters"];
        self.make(key, &body, &names, instance_body())
    }

    fn bind(&mut self, key: Key, seen: &Seen) -> Reply {
        let mut body = body(seen)?;
        if let Some(predecessor) = body["predecessor_binding_id"].as_str() {
            let predecessor = (key.0.clone(), predecessor.to_owned());
            let predecessor = self.things.get(&predecessor).ok_or((400, "BadRequest"))?;
            if plan(&predecessor.service, &predecessor.plan)?["binding_rotatable"] != true {
                return Err((400, "BadRequest"));
            }
            body["service_id"] = json!(predecessor.service);
            body["plan_id"] = json!(predecessor.plan);
        }
        let plan = plan(text(&body, "service_id")?, text(&body, "plan_id")?)?;
        if plan["bindable"] == false {
            return Err((400, "BadRequest"));
        }
        self.may_be_slow(seen)?;
        let instance = self.things.get(&(key.0.clone(), String::new()));
        let ordered = &instance.ok_or((404, "NotFound"))?.plan;
        if *ordered != body["plan_id"] {
            return Err((400, "BadRequest"));
        }
        let names = ["service_id", "plan_id", "parameters", "bind_resource"];
        self.make(key, &body, &names, binding_body())
    }

    fn make(&mut self, key: Key, body: &Value, names: &[&str], made: Value) -> Reply {
        let request = names.iter().map(|name| body[*name].clone()).collect();
        if let Some(thing) = self.things.get(&key) {
            if thing.request != request {
                return Err((409, "Conflict"));
            }
            return match &thing.operation {
                None => Ok((200, made)),
                Some(operation) => Ok((202, accepted(&key, operation))),
            };
        }
        let operation = self.asynchronous.then(|| self.operation("make", None));
        let reply = match &operation {
            None => (201, made),
            Some(operation) => (202, accepted(&key, operation)),
        };
        let id = |name: &str| body[name].as_str().unwrap().to_owned();
        let (service, plan) = (id("service_id"), id("plan_id"));
        self.things.insert(key, Thing { service, plan, request, operation });
        Ok(reply)
    }

    fn update(&mut self, key: &Key, seen: &Seen) -> Reply {
        let body = body(seen)?;
        let service = text(&body, "service_id")?;
        let plans = plans(service)?;
        let target = match body["plan_id"].as_str() {
            None => None,
            Some(id) => Some(plan(service, id)?),
        };
        self.may_be_slow(seen)?;
        maintained(&body, &plans[0])?;
        let thing = self.things.get(key).ok_or((404, "NotFound"))?;
        if let Some(target) = &target
            && target["id"] != thing.plan
            && target["plan_updateable"] != true
        {
            return Err((422, "Fixed"));
        }
        match &thing.operation {
            Some(operation) if operation.action == "update" => {
                return Ok((202, accepted(key, operation)));
            }
            Some(_) => return Err((422, "ConcurrencyError")),
            None => {}
        }
        let plan = target.map(|target| target["id"].as_str().unwrap().to_owned());
        let fails = body["parameters"]["fail"] == true;
        if !self.asynchronous && fails {
            return Err((500, "Failed"));
        }
        if !self.asynchronous {
            let thing = self.things.get_mut(key).unwrap();
            thing.plan = plan.unwrap_or(thing.plan.clone());
            return Ok((200, json!({})));
        }
        let operation = Operation { fails, ..self.operation("update", plan) };
        let reply = accepted(key, &operation);
        self.things.get_mut(key).unwrap().operation = Some(operation);
        Ok((202, reply))
    }

    fn delete(&mut self, key: &Key, seen: &Seen) -> Reply {
        let query = query(seen);
        for name in ["service_id", "plan_id"] {
            query.get(name).filter(|id| !id.is_empty()).ok_or((400, "BadRequest"))?;
        }
        self.may_be_slow(seen)?;
        let thing = self.things.get(key).ok_or((410, "Gone"))?;
        if thing.plan != query["plan_id"] {
            return Err((400, "BadRequest"));
        }
        if let Some(operation) = &thing.operation {
            match operation.action {
                "delete" => return Ok((202, accepted(key, operation))),
                "update" => return Err((422, "ConcurrencyError")),
                _ => {}
            }
        }
        // One way refuses to delete what is bound, the other takes the bindings along.
        let bound = |other: &Key| key.1.is_empty() && other.0 == key.0 && !other.1.is_empty();
        if !self.asynchronous {
            self.things.retain(|other, _| other != key && !bound(other));
            return Ok((200, json!({})));
        }
        if self.things.keys().any(bound) {
            return Err((422, "Bound"));
        }
        let operation = self.operation("delete", None);
        let reply = json!({"operation": operation.name});
        self.things.get_mut(key).unwrap().operation = Some(operation);
        Ok((202, reply))
    }

    fn fetch(&self, key: &Key) -> Reply {
        let thing = self.things.get(key).ok_or((404, "NotFound"))?;
        match thing.operation.as_ref().map(|operation| operation.action) {
            Some("update") => return Err((422, "ConcurrencyError")),
            Some(_) => return Err((404, "NotFound")),
            None => {}
        }
        if !key.1.is_empty() {
            return Ok((200, binding_body()));
        }
        let mut view = instance_body();
        view["service_id"] = json!(thing.service);
        view["plan_id"] = json!(thing.plan);
        Ok((200, view))
    }

    fn last_operation(&mut self, key: &Key) -> Reply {
        if self.graves.contains_key(key) && !self.things.contains_key(key) {
            return Ok((200, json!({"state": "succeeded"})));
        }
        let thing = self.things.get_mut(key).ok_or((404, "NotFound"))?;
        let Some(operation) = &mut thing.operation else {
            return Ok((200, json!({"state": "succeeded"})));
        };
        operation.left -= 1;
        if operation.left > 0 {
            return Ok((200, json!({"state": "in progress", "description": "at it"})));
        }
        let Operation { name, action, plan, fails, .. } = thing.operation.take().unwrap();
        if fails {
            return Ok((200, json!({"state": "failed", "description": "as asked"})));
        }
        thing.plan = plan.unwrap_or(thing.plan.clone());
        if action == "delete" {
            self.things.remove(key);
            self.graves.insert(key.clone(), name);
        }
        Ok((200, json!({"state": "succeeded"})))
    }

    fn may_be_slow(&self, seen: &Seen) -> Result<(), (u16, &'static str)> {
        let accepts = query(seen).get("accepts_incomplete").is_some_and(|value| value == "true");
        if self.asynchronous && !accepts { Err((422, "AsyncRequired")) } else { Ok(()) }
    }

    fn operation(&mut self, action: &'static str, plan: Option<String>) -> Operation {
        self.operations += 1;
        Operation {
            name: format!("{action}-{}", self.operations),
            action,
            left: POLLS,
            plan,
            fails: false,
        }
    }
}

fn accepted(key: &Key, operation: &Operation) -> Value {
    let mut reply = json!({"operation": operation.name});
    if key.1.is_empty() && operation.action != "delete" {
        reply["dashboard_url"] = json!("http://dashboard");
    }
    reply
}

fn body(seen: &Seen) -> Result<Value, (u16, &'static str)> {
    if seen.header("content-type").is_some_and(|declared| declared != "application/json") {
        return Err((400, "BadRequest"));
    }
    let body: Option<Value> = serde_json::from_slice(&seen.body).ok();
    let body = body.filter(Value::is_object).ok_or((400, "BadRequest"))?;
    let objects = ["parameters", "context"]
        .iter()
        .all(|name| body[*name].is_null() || body[*name].is_object());
    if objects { Ok(body) } else { Err((400, "BadRequest")) }
}

fn text<'a>(body: &'a Value, name: &str) -> Result<&'a str, (u16, &'static str)> {
    body[name].as_str().filter(|text| !text.is_empty()).ok_or((400, "BadRequest"))
}

fn plans(service: &str) -> Result<Vec<Value>, (u16, &'static str)> {
    let catalog = catalog();
    let services = catalog["services"].as_array().unwrap();
    let service = services.iter().find(|one| one["id"] == service).ok_or((400, "BadRequest"))?;
    Ok(service["plans"].as_array().unwrap().clone())
}

fn plan(service: &str, plan: &str) -> Result<Value, (u16, &'static str)> {
    let plans = plans(service)?;
    plans.into_iter().find(|one| one["id"] == plan).ok_or((400, "BadRequest"))
}

fn maintained(body: &Value, plan: &Value) -> Result<(), (u16, &'static str)> {
    let asked = &body["maintenance_info"]["version"];
    let agrees = asked.is_null() || *asked == plan["maintenance_info"]["version"];
    if agrees { Ok(()) } else { Err((422, "MaintenanceInfoConflict")) }
}

fn instance_body() -> Value {
    json!({"dashboard_url": "http://dashboard", "metadata": {"labels": {"a": "b"}}})
}

fn binding_body() -> Value {
    json!({
        "credentials": {"password": "hunter2"},
        "syslog_drain_url": "syslog://drain",
        "volume_mounts": [{
            "driver": "d", "container_dir": "/data", "mode": "rw", "device_type": "shared",
            "device": {"volume_id": "v"},
        }],
        "endpoints": [{"host": "h", "ports": ["443", "9000-9010"], "protocol": "tcp"}],
        "metadata": {
            "expires_at": "2031-02-01T00:00:00.0Z", "renew_before": "2031-01-01T00:00:00.000Z",
        },
    })
}

pub(super) fn catalog() -> Value {
    json!({"services": [
        {
            "id": "s1", "name": "first", "description": "d", "bindable": true,
            "instances_retrievable": true, "bindings_retrievable": true,
            "allow_context_updates": true, "requires": ["syslog_drain", "volume_mount"],
            "dashboard_client": {"id": "c", "secret": "hunter2"},
            "plans": [
                {
                    "id": "p1", "name": "small", "description": "d", "binding_rotatable": true,
                    "maximum_polling_duration": 60, "maintenance_info": {"version": "1.0.0"},
                    "schemas": {"service_instance": {"create": {"parameters": {
                        "$schema": "http://json-schema.org/draft-07/schema#",
                        "properties": {"size": {"$ref": "#/definitions/size"}},
                    }}}},
                },
                {"id": "p2", "name": "large", "description": "d", "free": false},
                {"id": "p5", "name": "medium", "description": "d", "plan_updateable": true},
            ],
        },
        {
            "id": "s2", "name": "second", "description": "d", "bindable": true,
            "plans": [
                {
                    "id": "p3", "name": "unbindable", "description": "d", "bindable": false,
                    "plan_updateable": true,
                },
                {"id": "p4", "name": "next", "description": "d", "plan_updateable": true},
            ],
        },
    ]})
}

pub(super) fn query(seen: &Seen) -> HashMap<String, String> {
    let pairs = seen.query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' && tail.len() >= 2 {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).unwrap()
}
