//! The ports of a template's Services, as Routes name them.
//!
//! A Route names a port as the router looks it up among the endpoints: by the name of the Service's port, or by the
//! number in the pods. An Ingress names a port of the Service.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Translation, namespace};

/// The ports of the template's Services, by namespace and name.
pub(super) struct Services(HashMap<(String, String), Ports>);

/// A port as an Ingress names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Port {
    Name(String),
    Number(u16),
}

/// The result of looking up a Route's port.
pub(super) enum Found {
    Port(Port),
    /// The Service is not in the template.
    NoService,
    /// There is no such port, or more than one; with the reason.
    Not(&'static str),
}

#[derive(Default)]
struct Ports {
    /// The ports by their names, and by their numbers in the pods.
    by: HashMap<String, Port>,
    first: Option<Port>,
    /// Whether only the pods know the number of the first port.
    is_theirs: bool,
    count: usize,
}

impl Services {
    pub(super) fn of(objects: &[Value], means: &Translation) -> Self {
        let mut services = HashMap::new();
        for object in objects {
            if object["apiVersion"] == "v1"
                && object["kind"] == "Service"
                && let Some(name) = object["metadata"]["name"].as_str()
            {
                let key = (namespace(&object["metadata"], means).to_owned(), name.to_owned());
                services.entry(key).or_insert_with(|| Ports::of(&object["spec"]["ports"]));
            }
        }
        Self(services)
    }

    /// Looks up a Route's `targetPort`; `None`: the Route names none, and the router takes all ports.
    pub(super) fn find(&self, namespace: &str, service: &str, target: Option<&str>) -> Found {
        let Some(ports) = self.0.get(&(namespace.to_owned(), service.to_owned())) else {
            return Found::NoService;
        };
        let only = ports.first.as_ref().filter(|_| ports.count == 1);
        let found = match target {
            None => only.ok_or("names no port, and the Service has not one: name that of them"),
            // A number can be that of a port whose number only the pods know.
            Some(target) => {
                let theirs = only.filter(|_| ports.is_theirs && target.parse::<u16>().is_ok());
                ports.by.get(target).or(theirs).ok_or(
                    "is neither the name of a port of the Service nor its number in the pods",
                )
            }
        };
        found.map_or_else(Found::Not, |port| Found::Port(port.clone()))
    }
}

impl Ports {
    /// The TCP ports of a Service: HTTP needs no others.
    fn of(ports: &Value) -> Self {
        let mut found = Self::default();
        let tcp = |port: &&Value| port["protocol"].as_str().is_none_or(|it| it == "TCP");
        let all = || ports.as_array().into_iter().flatten().filter(tcp);
        for (of, port) in all().filter_map(|it| Some((it, Port::of(it)?))) {
            if let Port::Name(name) = &port {
                found.by.entry(name.clone()).or_insert_with(|| port.clone());
            }
            if found.first.is_none() {
                found.is_theirs = of["targetPort"].is_string();
                found.first = Some(port);
            }
            found.count += 1;
        }
        for (of, port) in all().filter_map(|it| Some((it, Port::of(it)?))) {
            let number = if of["targetPort"].is_null() { &of["port"] } else { &of["targetPort"] };
            if number.is_u64() {
                found.by.entry(number.to_string()).or_insert(port);
            }
        }
        found
    }
}

impl Port {
    /// A port of a Service: by its name, if it has one.
    fn of(port: &Value) -> Option<Self> {
        match port["name"].as_str() {
            Some(name) if !name.is_empty() => Some(Self::Name(name.to_owned())),
            _ => Some(Self::Number(u16::try_from(port["port"].as_u64()?).ok()?)),
        }
    }

    /// The port that a Route names for an unknown Service.
    pub(super) fn named(target: &str) -> Self {
        match target.parse() {
            Ok(number) => Self::Number(number),
            Err(_) => Self::Name(target.to_owned()),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Self::Name(name) => json!({"name": name}),
            Self::Number(number) => json!({"number": number}),
        }
    }
}
