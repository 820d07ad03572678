//! The catalog as it is served: linted, indexed, its schemas compiled, its bytes and tag ready.
//!
//! ```text
//! JSON ──parse──▶ Catalog ──lint──▶ faults, each with its path
//!                    └────compile──▶ CompiledCatalog: body + tag, plans by id, schemas
//! ```

mod binding;
mod effort;
mod expansion;
mod lint;
mod parse;
mod platforms;
mod rules;
mod schemas;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;

pub use crate::fields::Fault;
use crate::fields::Faults;
use crate::model::{Catalog, Object, Permission, Plan, PlanId, Service, ServiceId};
pub use binding::check_binding;
pub use lint::lint;
pub use parse::parse;
pub use platforms::refused_elsewhere;
pub use rules::{check_maintenance_info, check_parameters, is_version, parse_timestamp};
pub use schemas::Violation;

/// A catalog that may be served.
///
/// Built once per catalog; a request costs a hash lookup and, with parameters, a run of a compiled
/// schema.
#[derive(Debug)]
pub struct CompiledCatalog {
    catalog: Catalog,
    body: Bytes,
    etag: String,
    last_modified: SystemTime,
    headers: [HeaderValue; 2],
    // Where in `catalog`.
    services: HashMap<ServiceId, usize>,
    // By the plan's id alone, which the lint knows to be unique across services: a key of both ids
    // could not be looked up without owning both.
    plans: HashMap<PlanId, PlanEntry>,
}

/// The uses of a plan's schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// `service_instance.create`.
    Provision,
    /// `service_instance.update`.
    Update,
    /// `service_binding.create`.
    Bind,
}

/// A plan, with what its service decides for it.
#[derive(Debug)]
pub struct PlanEntry {
    /// The service, without its plans.
    pub service: Arc<Service>,
    /// The plan.
    pub plan: Plan,
    schemas: Arc<schemas::PlanSchemas>,
}

impl CompiledCatalog {
    /// Lints the catalog and compiles its schemas; last modified now.
    ///
    /// # Errors
    /// Every fault at once, each with its path (`services[0].plans[1].name`).
    pub fn compile(catalog: Catalog) -> Result<Self, Vec<Fault>> {
        Self::compile_at(catalog, SystemTime::now())
    }

    /// Does as [`Self::compile`], given the catalog before: schemas of a plan that are still the same are not compiled
    /// again. Of thousands of plans usually one changes at a time.
    ///
    /// # Errors
    /// Every fault at once, each with its path (`services[0].plans[1].name`).
    pub fn compile_after(catalog: Catalog, before: &Self) -> Result<Self, Vec<Fault>> {
        Self::build(catalog, Some(before), SystemTime::now())
    }

    /// Lints the catalog and compiles its schemas; last modified at a given time, which is kept in
    /// whole seconds.
    ///
    /// # Errors
    /// Every fault at once, each with its path (`services[0].plans[1].name`).
    pub fn compile_at(catalog: Catalog, last_modified: SystemTime) -> Result<Self, Vec<Fault>> {
        Self::build(catalog, None, last_modified)
    }

    fn build(
        catalog: Catalog,
        before: Option<&Self>,
        last_modified: SystemTime,
    ) -> Result<Self, Vec<Fault>> {
        let faults = Faults::default();
        let schemas = lint::inspect(&catalog, before, &faults);
        let whole = |message: String| vec![Fault { path: String::new(), message }];
        let body = serde_json::to_vec(&catalog)
            .map_err(|error| whole(format!("cannot be written as JSON: {error}")))?;
        let (last_modified, modified) = http_date(last_modified)
            .ok_or_else(|| whole("was modified at a time that HTTP cannot express".to_owned()))?;
        if !faults.is_empty() {
            return Err(faults.into_vec());
        }
        let mut services = HashMap::with_capacity(catalog.services.len());
        let mut plans = HashMap::new();
        for (index, (service, schemas)) in catalog.services.iter().zip(schemas).enumerate() {
            let alone = Arc::new(without_plans(service));
            for (plan, schemas) in service.plans.iter().zip(schemas) {
                let entry = PlanEntry { service: Arc::clone(&alone), plan: plan.clone(), schemas };
                plans.insert(plan.id.clone(), entry);
            }
            services.insert(service.id.clone(), index);
        }
        let etag = etag(&body);
        let tag = HeaderValue::from_str(&etag).map_err(|error| whole(error.to_string()))?;
        let (body, headers) = (Bytes::from(body), [tag, modified]);
        Ok(Self { catalog, body, etag, last_modified, headers, services, plans })
    }

    /// The compiled schemas of a plan, if this catalog has the plan with the same schemas.
    fn schemas_of(&self, plan: &Plan) -> Option<Arc<schemas::PlanSchemas>> {
        let known = self.plans.get(&plan.id).filter(|it| it.plan.schemas == plan.schemas)?;
        Some(Arc::clone(&known.schemas))
    }

    /// The catalog itself.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The body of `GET /v2/catalog`.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// A strong entity tag of [`Self::body`], quotes included.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// When the catalog was last modified, in whole seconds.
    pub fn last_modified(&self) -> SystemTime {
        self.last_modified
    }

    /// `ETag` and `Last-Modified`, as HTTP writes them.
    pub fn validators(&self) -> &[HeaderValue; 2] {
        &self.headers
    }

    /// A plan of a service; `None` if either is unknown or they do not belong together.
    pub fn plan(&self, service: &ServiceId, plan: &PlanId) -> Option<&PlanEntry> {
        self.plans.get(plan).filter(|entry| entry.service.id == *service)
    }

    /// A service by its id.
    pub fn service(&self, service: &ServiceId) -> Option<&Service> {
        self.catalog.services.get(*self.services.get(service)?)
    }
}

impl PlanEntry {
    /// Whether instances of this plan can be bound.
    pub fn bindable(&self) -> bool {
        self.plan.bindable.unwrap_or(self.service.bindable)
    }

    /// Whether instances of this plan can change to another one.
    pub fn plan_updateable(&self) -> bool {
        self.plan.plan_updateable.or(self.service.plan_updateable).unwrap_or(false)
    }

    /// Whether bindings can be rotated, that is, renewed by a further binding.
    pub fn binding_rotatable(&self) -> bool {
        self.plan.binding_rotatable.unwrap_or(false)
    }

    /// Whether a binding is made for an application and nothing else.
    ///
    /// The specification leaves it to the broker. What the plan says, or else its service, in the
    /// extension `manciple_requires_app` holds; otherwise it follows from `requires`: logs are
    /// drained from an application and volumes are mounted into one, whereas requests may be
    /// forwarded from a route alone.
    pub fn requires_app(&self) -> bool {
        self.says(lint::REQUIRES_APP).unwrap_or_else(|| {
            let requires = &self.service.requires;
            requires.contains(&Permission::SyslogDrain)
                || requires.contains(&Permission::VolumeMount)
        })
    }

    /// Whether the broker checks the parameters of updates itself.
    ///
    /// The schema is what the plan takes now. Where instances may be of an earlier revision of it, and stay so until an
    /// update brings `maintenance_info`, it says nothing of what those take. The plan says so, or else its service, in
    /// the extension `manciple_checks_updates`; the schema is then for platforms to show.
    pub fn checks_updates(&self) -> bool {
        self.says(lint::CHECKS_UPDATES).unwrap_or(false)
    }

    /// The value of a boolean extension: that of the plan goes before that of its service.
    fn says(&self, name: &str) -> Option<bool> {
        let said = |extensions: &Object| extensions.get(name)?.as_bool();
        said(&self.plan.extensions).or_else(|| said(&self.service.extensions))
    }

    /// Checks parameters against the schema; without one everything passes, and so do those of an update where
    /// [`Self::checks_updates`] holds.
    ///
    /// # Errors
    /// Every violation, by JSON pointer; values are not repeated, for they may be secret. Of very
    /// many violations the first are told.
    pub fn check(&self, schema: SchemaUse, parameters: &Object) -> Result<(), Vec<Violation>> {
        match self.compiled(schema) {
            None => Ok(()),
            Some(_) => self.check_value(schema, &Value::Object(parameters.clone())),
        }
    }

    /// Does as [`Self::check`] for parameters that are still a value, which saves the copy.
    pub(crate) fn check_value(
        &self,
        schema: SchemaUse,
        parameters: &Value,
    ) -> Result<(), Vec<Violation>> {
        let Some(compiled) = self.compiled(schema) else { return Ok(()) };
        let Some(declared) = self.declared(schema) else { return Ok(()) };
        let violations = schemas::violations(compiled, declared, parameters);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// A schema as the catalog has it.
    fn declared(&self, schema: SchemaUse) -> Option<&Value> {
        let schemas = self.plan.schemas.as_ref()?;
        let (instance, binding) = (&schemas.service_instance, &schemas.service_binding);
        let declared = match schema {
            SchemaUse::Provision => &instance.as_ref()?.create,
            SchemaUse::Update => &instance.as_ref()?.update,
            SchemaUse::Bind => &binding.as_ref()?.create,
        };
        declared.as_ref()?.parameters.as_ref()
    }

    fn compiled(&self, schema: SchemaUse) -> Option<&schemas::Compiled> {
        let is_theirs = schema == SchemaUse::Update && self.checks_updates();
        self.schemas.get(schema).filter(|_| !is_theirs)
    }
}

fn without_plans(service: &Service) -> Service {
    let mut alone = service.clone();
    alone.plans = Vec::new();
    alone
}

fn etag(body: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    format!("\"{}\"", data_encoding::HEXLOWER.encode(&digest.as_ref()[..16]))
}

/// Returns a time in whole seconds, and as an IMF-fixdate (RFC 9110, 5.6.7).
fn http_date(time: SystemTime) -> Option<(SystemTime, HeaderValue)> {
    let seconds = Timestamp::try_from(time).ok()?.as_second();
    let timestamp = Timestamp::from_second(seconds).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()?;
    Some((SystemTime::from(timestamp), HeaderValue::try_from(text).ok()?))
}
