//! Looks up the ids that the API wants by the names that people know, and back.

use osb::client::ClientError;
use osb::{Catalog, InstanceId, Plan, PlanId, Service, ServiceId};

use super::args::InstanceOffering;
use super::connection::{Connection, Subject};
use super::failure::Failure;
use crate::admin::model::RecordView;

/// How many names an error lists.
const CHOICES: usize = 20;

/// The service and plan of an instance. Either may have left the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The service.
    pub(crate) service: ServiceId,
    /// The plan.
    pub(crate) plan: PlanId,
}

/// Finds a service by its id or name; an id goes first.
pub(crate) fn service<'a>(catalog: &'a Catalog, wanted: &str) -> Result<&'a Service, Failure> {
    let services = &catalog.services;
    let by_id = services.iter().find(|service| service.id.as_str() == wanted);
    by_id.or_else(|| services.iter().find(|service| service.name == wanted)).ok_or_else(|| {
        let names = services.iter().map(|service| service.name.as_str());
        Failure::missing(format!("there is no service {wanted:?} in the catalog"))
            .hint(choices("services", names))
    })
}

/// Finds a plan of a service by its id or name; an id goes first.
pub(crate) fn plan<'a>(service: &'a Service, wanted: &str) -> Result<&'a Plan, Failure> {
    let by_id = service.plans.iter().find(|plan| plan.id.as_str() == wanted);
    by_id.or_else(|| service.plans.iter().find(|plan| plan.name == wanted)).ok_or_else(|| {
        let names = service.plans.iter().map(|plan| plan.name.as_str());
        Failure::missing(format!("the service {:?} has no plan {wanted:?}", service.name))
            .hint(choices("plans", names))
    })
}

/// The names of a service and a plan; their ids, if they have left the catalog.
pub(crate) fn names<'a>(
    catalog: Option<&'a Catalog>,
    service_id: &'a str,
    plan_id: &'a str,
) -> (&'a str, &'a str) {
    let services = catalog.map(|catalog| catalog.services.as_slice()).unwrap_or_default();
    let Some(service) = services.iter().find(|service| service.id.as_str() == service_id) else {
        return (service_id, plan_id);
    };
    let plan = service.plans.iter().find(|plan| plan.id.as_str() == plan_id);
    (&service.name, plan.map_or(plan_id, |plan| &plan.name))
}

/// The plan with these ids, if it is still offered.
pub(crate) fn offered<'a>(catalog: Option<&'a Catalog>, ids: &Ids) -> Option<&'a Plan> {
    let service = catalog?.services.iter().find(|service| service.id == ids.service)?;
    service.plans.iter().find(|plan| plan.id == ids.plan)
}

impl Connection {
    /// The service and plan of an instance: as the options say, as the operator's API says, or as
    /// `GET` of the instance says. `what` completes "cannot …".
    pub(crate) async fn ids(
        &self,
        subject: &Subject,
        offering: &InstanceOffering,
        catalog: Option<&Catalog>,
        what: &str,
    ) -> Result<Ids, Failure> {
        if let (Some(service), Some(plan)) = (&offering.of_service, &offering.of_plan) {
            return typed(catalog, service, plan);
        }
        match self.record(subject).await {
            Ok(record) if record.state == engine::record::Lifecycle::Deleted => {
                Err(Failure::missing(format!("cannot {what}: it is deleted already")))
            }
            Ok(record) => recorded(&record),
            // Another broker, or one whose operator's API is not for us.
            Err(error) if not_for_us(&error) => self.fetched(&subject.instance, what).await,
            Err(error) => Err(self.refused(what, &error)),
        }
    }

    async fn fetched(&self, instance: &InstanceId, what: &str) -> Result<Ids, Failure> {
        match self.client.instance(instance).await {
            Ok(answer) => Ok(Ids { service: answer.body.service_id, plan: answer.body.plan_id }),
            Err(error) => Err(self.refused(what, &error).or_hint(
                "manciple instances lists what there is; if the broker cannot tell, name the \
                 service and plan: --of-service SERVICE --of-plan PLAN",
            )),
        }
    }
}

fn not_for_us(error: &ClientError) -> bool {
    matches!(error.status(), Some(400..=499)) && error.status() != Some(401)
}

fn recorded(record: &RecordView) -> Result<Ids, Failure> {
    ids(&record.service_id, &record.plan_id)
}

/// The ids for typed names; a name that is not in the catalog is taken for an id.
fn typed(catalog: Option<&Catalog>, wanted: &str, wanted_plan: &str) -> Result<Ids, Failure> {
    let found = catalog.and_then(|catalog| service(catalog, wanted).ok());
    let Some(service) = found else {
        return ids(wanted, wanted_plan);
    };
    let plan = plan(service, wanted_plan).map_or(wanted_plan, |plan| plan.id.as_str());
    ids(service.id.as_str(), plan)
}

fn ids(service: &str, plan: &str) -> Result<Ids, Failure> {
    let wrong = |what: &str, error| Failure::usage(format!("the {what}'s id {error}"));
    Ok(Ids {
        service: ServiceId::new(service).map_err(|error| wrong("service", error))?,
        plan: PlanId::new(plan).map_err(|error| wrong("plan", error))?,
    })
}

fn choices<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(CHOICES);
    names.truncate(CHOICES);
    match (names.is_empty(), more) {
        (true, _) => format!("it offers no {what}"),
        (false, 0) => format!("the {what} are: {}", names.join(", ")),
        (false, more) => format!("some of the {what}: {}, and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog() -> Catalog {
        let plan = |id: &str, name: &str| json!({"id": id, "name": name, "description": "d"});
        serde_json::from_value(json!({"services": [
            {"id": "s1", "name": "db", "description": "d", "bindable": true,
             "plans": [plan("p1", "small"), plan("p2", "large")]},
            // A name that is the other's id: ids go first.
            {"id": "s2", "name": "s1", "description": "d", "bindable": true,
             "plans": [plan("p3", "small")]},
        ]}))
        .unwrap()
    }

    #[test]
    fn names_and_ids_find_the_same() {
        let catalog = catalog();
        for wanted in ["db", "s1"] {
            assert_eq!(service(&catalog, wanted).unwrap().id.as_str(), "s1");
        }
        let db = service(&catalog, "db").unwrap();
        for wanted in ["large", "p2"] {
            assert_eq!(plan(db, wanted).unwrap().id.as_str(), "p2");
        }
    }

    #[test]
    fn unknown_names_list_what_there_is() {
        let catalog = catalog();
        let failure = service(&catalog, "nope").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("the services are: db, s1"));
        let failure = plan(&catalog.services[0], "nope").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("the plans are: large, small"));
    }

    #[test]
    fn what_left_the_catalog_is_an_id() {
        let catalog = catalog();
        let gone = typed(Some(&catalog), "gone", "old").unwrap();
        assert_eq!((gone.service.as_str(), gone.plan.as_str()), ("gone", "old"));
        let half = typed(Some(&catalog), "db", "old").unwrap();
        assert_eq!((half.service.as_str(), half.plan.as_str()), ("s1", "old"));
        assert_eq!(names(Some(&catalog), "s1", "p2"), ("db", "large"));
        assert_eq!(names(Some(&catalog), "s1", "p9"), ("db", "p9"));
        assert_eq!(names(None, "s1", "p2"), ("s1", "p2"));
    }
}
