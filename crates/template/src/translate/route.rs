//! Translates a Route (`route.openshift.io/v1`) to an Ingress.
//!
//! A Route means what OpenShift's router makes of it: its paths are prefixes of whole elements, a wildcard is one
//! label, and a port is looked up among the endpoints.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::members::{Members, Notes, map};
use super::services::{Found, Port};
use super::{Context, exposed, namespace};
use crate::fault::Place;

/// The prefixes of annotations that only OpenShift's router reads.
const ROUTER: [&str; 2] = ["haproxy.router.openshift.io/", "router.openshift.io/"];
/// How many bytes the name of an object has at most.
const NAME: usize = 253;
/// The suffix of the name of a certificate's Secret.
const OF_SECRET: &str = "-tls";
/// How many bytes the name of a host has at most.
const HOST: usize = 253;
/// How many bytes a label of a host name has at most.
const LABEL: usize = 63;
/// How many bytes of its digest stand for the end of a part that is too long.
const DIGEST: usize = 4;
/// How many bytes of a port's name are read: more than the longest has.
const PORT: usize = 63;

/// Translates a Route: the Ingress, after a Secret if the Route has a certificate.
pub(super) fn ingress(
    place: &Place<'_>,
    object: Map<String, Value>,
    context: &Context<'_>,
    notes: &mut Notes,
) -> Vec<Value> {
    let mut route = Members::new(place, object.into(), notes);
    let mut metadata = route.value("metadata");
    let (spec_place, metadata_place) = (route.at("spec"), route.at("metadata"));
    let mut spec = Members::new(&spec_place, route.value("spec"), notes);
    for known in ["apiVersion", "kind", "status"] {
        route.take(known);
    }
    route.end(notes);
    let way = Way::read(&mut spec, &metadata, context, notes);
    let (tls, secret) = tls(&mut spec, &metadata, &way.host, notes);
    spec.refuse("httpHeaders", "an Ingress changes no headers: let the application do it", notes);
    spec.end(notes);
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        let place = Place::Key(&metadata_place, "annotations");
        if annotations.keys().any(|key| ROUTER.iter().any(|of| key.starts_with(of))) {
            notes.warn(&place, "only OpenShift's router reads those of its own: they do nothing");
        }
        exposed::rewrite(&place, annotations, &|fields| way.at(fields), notes);
    }
    let class = context.means.ingress_class.as_deref().filter(|class| !class.is_empty());
    let rules = json!([way.rule()]);
    let ingress = map([
        ("apiVersion", "networking.k8s.io/v1".into()),
        ("kind", "Ingress".into()),
        ("metadata", metadata),
        ("spec", map([("ingressClassName", class.into()), ("rules", rules), ("tls", tls)])),
    ]);
    secret.into_iter().chain([ingress]).collect()
}

/// The way of requests: from which host and path to which port.
struct Way {
    host: Host,
    /// The path; empty: any.
    path: String,
    service: String,
    /// The port, as the Route names it.
    target: Option<String>,
    port: Port,
}

impl Way {
    fn read(
        spec: &mut Members<'_>,
        metadata: &Value,
        context: &Context<'_>,
        notes: &mut Notes,
    ) -> Self {
        let host = host(spec, metadata, context, notes);
        let path = path(spec, notes);
        let service = service(spec, notes);
        let target = target(spec, notes);
        let namespace = namespace(metadata, context.means);
        let found = context.services.find(namespace, &service, target.as_deref());
        let port = port(spec, target.as_deref(), found, notes);
        Self { host, path, service, target, port }
    }

    fn rule(&self) -> Value {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        let backend = json!({"service": {"name": self.service, "port": self.port.value()}});
        json!({
            "host": self.host.rule,
            "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]},
        })
    }

    /// The path in the Ingress for a path of the Route; the text itself if the Ingress does not have it.
    fn at(&self, fields: &[&str]) -> Option<Cow<'_, str>> {
        match fields {
            ["spec", "host"] if self.host.own != self.host.rule => {
                Some(self.host.own.as_str().into())
            }
            ["spec", "host"] => Some("{.spec.rules[0].host}".into()),
            ["spec", "path"] if self.path.is_empty() => Some("".into()),
            ["spec", "path"] => Some("{.spec.rules[0].http.paths[0].path}".into()),
            ["spec", "to", "name"] => {
                Some("{.spec.rules[0].http.paths[0].backend.service.name}".into())
            }
            ["spec", "port", "targetPort"] => Some(self.target_port()),
            _ => None,
        }
    }

    fn target_port(&self) -> Cow<'_, str> {
        let target = self.target.as_deref().unwrap_or_default();
        match &self.port {
            Port::Name(name) if target == name => {
                "{.spec.rules[0].http.paths[0].backend.service.port.name}".into()
            }
            Port::Number(number) if target == number.to_string() => {
                "{.spec.rules[0].http.paths[0].backend.service.port.number}".into()
            }
            _ => target.into(),
        }
    }
}

/// The host of requests.
#[derive(Default)]
struct Host {
    /// The host of the Route.
    own: String,
    /// The host of the rule, which differs for a wildcard.
    rule: String,
}

/// The host of a Route. A missing one is generated as on OpenShift (`hostassignment` of library-go). An Ingress without
/// a host would take everybody else's requests, too.
fn host(
    spec: &mut Members<'_>,
    metadata: &Value,
    context: &Context<'_>,
    notes: &mut Notes,
) -> Host {
    let (own, subdomain) = (spec.text("host", notes), spec.text("subdomain", notes));
    let policy = spec.text("wildcardPolicy", notes);
    if !["", "None", "Subdomain"].contains(&policy.as_str()) {
        let detail = "there is no such policy: None and Subdomain are known";
        notes.wrong(&spec.at("wildcardPolicy"), &policy.into(), detail);
        return Host::default();
    }
    let is_wildcard = policy == "Subdomain";
    let own = match own.as_str() {
        "" if is_wildcard => Err("a wildcard needs one: say which"),
        "" => made_host(&subdomain, metadata, context),
        _ => Ok(own),
    };
    let own = match own {
        Ok(own) => own,
        Err(detail) => {
            notes.required(&spec.at("host"), detail);
            return Host::default();
        }
    };
    let domain = own.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    match domain.filter(|_| is_wildcard) {
        Some(rule) if own.len() <= HOST && !own.contains('{') => Host { own, rule },
        None if !is_wildcard => Host { rule: own.clone(), own },
        _ => {
            notes.wrong(&spec.at("host"), &own.into(), "is no name of a host in a domain");
            Host::default()
        }
    }
}

fn made_host(
    subdomain: &str,
    metadata: &Value,
    context: &Context<'_>,
) -> Result<String, &'static str> {
    let domain = context.means.domain.as_deref().filter(|domain| !domain.is_empty());
    let domain = domain.ok_or(
        "is empty, and an Ingress without a host takes the requests for all others: set it, or \
         say the domain of Routes",
    )?;
    if !subdomain.is_empty() {
        return Ok(format!("{subdomain}.{domain}"));
    }
    let name = metadata["name"].as_str().unwrap_or_default().replace('.', "-");
    match (name.as_str(), namespace(metadata, context.means)) {
        ("", _) => Err("is empty, and made of the name, which the Route has not: set one of them"),
        (_, "") => Err("is empty, and made of the namespace too: set it, or say the namespace"),
        (name, namespace) => {
            Ok(format!("{}.{domain}", within(&format!("{name}-{namespace}"), LABEL)))
        }
    }
}

/// Shortens a name to `most` characters. OpenShift generates host names that are too long, which nobody can request:
/// here the end becomes a digest of the whole, always the same, and different for other names.
fn within(whole: &str, most: usize) -> Cow<'_, str> {
    if whole.len() <= most {
        return whole.into();
    }
    let digest = digest(&SHA256, whole.as_bytes());
    let digest = HEXLOWER.encode(digest.as_ref().get(..DIGEST).unwrap_or_default());
    // Valid names have only ASCII characters; the API server refuses others.
    let begin: String = whole.chars().take(most - 1 - digest.len()).collect();
    format!("{}-{digest}", begin.trim_end_matches(['-', '.'])).into()
}

fn path(spec: &mut Members<'_>, notes: &mut Notes) -> String {
    let path = spec.text("path", notes);
    if !path.is_empty() && !path.starts_with('/') {
        notes.wrong(&spec.at("path"), &path.as_str().into(), "has to begin with a /");
    }
    path
}

/// The name of the Service to which all requests go.
fn service(spec: &mut Members<'_>, notes: &mut Notes) -> String {
    let detail = "an Ingress has one Service for a path: leave one";
    spec.refuse("alternateBackends", detail, notes);
    let place = spec.at("to");
    let mut to = Members::new(&place, spec.value("to"), notes);
    let (kind, name) = (to.text("kind", notes), to.text("name", notes));
    if !kind.is_empty() && kind != "Service" {
        notes.wrong(&to.at("kind"), &kind.into(), "has to be Service");
    }
    if name.is_empty() {
        notes.required(&to.at("name"), "an Ingress has a Service: name it");
    }
    // For a single Service any other weight means all requests.
    let weight = to.value("weight");
    if weight.as_f64() == Some(0.0) {
        let detail =
            "is 0: no request comes through, which an Ingress cannot say; leave the Route out";
        notes.wrong(&to.at("weight"), &weight, detail);
    }
    to.end(notes);
    name
}

/// The port, as the Route names it.
fn target(spec: &mut Members<'_>, notes: &mut Notes) -> Option<String> {
    let place = spec.at("port");
    let mut port = Members::new(&place, spec.take("port")?, notes);
    let target = port.value("targetPort");
    let is_port = |it: &str| it.parse::<u16>().is_ok_and(|it| it > 0);
    let found = match &target {
        Value::String(name) if name.bytes().any(|byte| !byte.is_ascii_digit()) => {
            Some(name.clone())
        }
        Value::String(number) => Some(number.clone()).filter(|it| is_port(it)),
        Value::Number(number) => Some(number.to_string()).filter(|it| is_port(it)),
        _ => None,
    };
    let found = found.filter(|it| it.len() <= PORT && !it.contains('{'));
    if found.is_none() {
        let detail = "has to be the name of a port, or its number, from 1 to 65535";
        notes.wrong(&port.at("targetPort"), &target, detail);
    }
    port.end(notes);
    // The target is wrong: it is not looked up.
    Some(found.unwrap_or_default())
}

fn port(spec: &Members<'_>, target: Option<&str>, found: Found, notes: &mut Notes) -> Port {
    let place = spec.at("port");
    match (found, target) {
        (_, Some("")) => Port::Number(0),
        (Found::Port(port), _) => port,
        (Found::NoService, Some(target)) => {
            let port = Port::named(target);
            if let Port::Number(_) = port {
                let detail = "is a number in the pods; the Service is not in the template, and is taken to have \
                              the same: else name its port";
                notes.warn(&Place::Key(&place, "targetPort"), detail);
            }
            port
        }
        (Found::NoService, None) => {
            notes.required(&place, "an Ingress names a port of its Service: say targetPort");
            Port::Number(0)
        }
        (Found::Not(detail), None) => {
            notes.required(&place, detail);
            Port::Number(0)
        }
        (Found::Not(detail), Some(target)) => {
            notes.wrong(&Place::Key(&place, "targetPort"), &target.into(), detail);
            Port::Number(0)
        }
    }
}

/// The TLS of an Ingress, and the Secret with its certificate, if the Route had one.
fn tls(
    spec: &mut Members<'_>,
    metadata: &Value,
    host: &Host,
    notes: &mut Notes,
) -> (Value, Option<Value>) {
    let Some(tls) = spec.take("tls") else { return (Value::Null, None) };
    let place = spec.at("tls");
    let mut tls = Members::new(&place, tls, notes);
    let termination = tls.text("termination", notes);
    if !["", "edge"].contains(&termination.as_str()) {
        let detail =
            "an Ingress ends TLS, and goes on without: let it be edge, or leave the Route out";
        notes.wrong(&tls.at("termination"), &termination.into(), detail);
    }
    let detail = "an Ingress goes on without TLS: leave it out";
    tls.refuse("destinationCACertificate", detail, notes);
    if !tls.text("insecureEdgeTerminationPolicy", notes).is_empty() {
        let detail = "what becomes of requests without TLS is up to the controller of the Ingress";
        notes.warn(&tls.at("insecureEdgeTerminationPolicy"), detail);
    }
    let external_place = tls.at("externalCertificate");
    let external = tls.value("externalCertificate");
    let mut external = Members::new(&external_place, external, notes);
    let named = external.text("name", notes);
    external.end(notes);
    let secret = certificate(&mut tls, metadata, notes);
    tls.end(notes);
    if secret.is_some() && !named.is_empty() {
        let detail = "there is a certificate too: leave one of them";
        notes.wrong(&external_place, &named.as_str().into(), detail);
    }
    let name = secret.as_ref().map(|secret| &secret["metadata"]["name"]);
    let name = name.cloned().or_else(|| (!named.is_empty()).then(|| named.into()));
    let hosts = json!([host.rule]);
    (json!([map([("hosts", hosts), ("secretName", name.unwrap_or_default())])]), secret)
}

/// The Secret `NAME-tls`, with everything that the router sends.
fn certificate(tls: &mut Members<'_>, metadata: &Value, notes: &mut Notes) -> Option<Value> {
    let [own, key, authority] = ["certificate", "key", "caCertificate"];
    let (own, key, authority) =
        (tls.text(own, notes), tls.text(key, notes), tls.text(authority, notes));
    if own.is_empty() && key.is_empty() && authority.is_empty() {
        return None;
    }
    for (missing, member) in [(own.is_empty(), "certificate"), (key.is_empty(), "key")] {
        if missing {
            notes.required(&tls.at(member), "a certificate has a key: say both, or neither");
        }
    }
    let Some(name) = metadata["name"].as_str().filter(|name| !name.is_empty()) else {
        let detail = "goes into a Secret, which is named after the Route: name that";
        notes.required(&tls.at("certificate"), detail);
        return None;
    };
    let chain = match authority.as_str() {
        "" => own,
        authority => format!("{}\n{authority}", own.trim_end()),
    };
    let of = |key: &str| metadata[key].clone();
    let name = format!("{}{OF_SECRET}", within(name, NAME - OF_SECRET.len())).into();
    Some(map([
        ("apiVersion", "v1".into()),
        ("kind", "Secret".into()),
        (
            "metadata",
            map([("name", name), ("namespace", of("namespace")), ("labels", of("labels"))]),
        ),
        ("type", "kubernetes.io/tls".into()),
        ("stringData", map([("tls.crt", chain.into()), ("tls.key", key.into())])),
    ]))
}
