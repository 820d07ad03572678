//! Plans that have left the catalog while instances have them.

use std::time::Duration;

use osb::{Catalog, PlanId, Service, ServiceId};
use serde::{Deserialize, Serialize};

use crate::record::Timestamp;

/// How long a plan is remembered that left the catalog and that nobody had: whoever ordered it just then, while
/// another process still sold it, has it all the same.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// A plan that has left the catalog, in the service that had it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Former {
    left_at: Timestamp,
    /// With this plan alone.
    pub(crate) service: Service,
}

impl Former {
    pub(crate) fn is(&self, service: &ServiceId, plan: &PlanId) -> bool {
        self.service.id == *service && self.service.plans.iter().any(|former| former.id == *plan)
    }
}

/// What is to be remembered once the fresh catalog is in force: the plans that it lacks of the one before, and what
/// was remembered then, for its time.
pub(crate) fn remember(
    fresh: &Catalog,
    last: &Catalog,
    former: &[Former],
    now: Timestamp,
) -> Vec<Former> {
    let lacks = |plan: &PlanId| {
        !fresh.services.iter().flat_map(|service| &service.plans).any(|has| has.id == *plan)
    };
    let left = last.services.iter().flat_map(|service| {
        let left = service.plans.iter().filter(|plan| lacks(&plan.id));
        left.map(|plan| Former {
            left_at: now,
            service: Service { plans: vec![plan.clone()], ..service.clone() },
        })
    });
    let still = former.iter().filter(|former| {
        now < former.left_at.plus(REMEMBERED)
            && former.service.plans.iter().all(|plan| lacks(&plan.id))
    });
    left.chain(still.cloned()).collect()
}

/// The catalog with every plan that is in use and has left it taken over from those that it had before; says
/// which.
///
/// A plan in use never disappears under its instances: the platform would then refuse to touch them.
/// But what the broker offers now goes first: a plan that it has moved is where it is now, and a name
/// that it gives to something new is taken from what is only kept.
pub(crate) fn keep_plans_in_use(
    fresh: &mut Catalog,
    last: &[&Service],
    in_use: &[(ServiceId, PlanId)],
) -> Vec<(ServiceId, PlanId)> {
    let mut kept = Vec::new();
    for (service_id, plan_id) in in_use {
        let offered = fresh.services.iter().flat_map(|service| &service.plans);
        if offered.into_iter().any(|plan| plan.id == *plan_id) {
            continue;
        }
        let found = last.iter().filter(|service| service.id == *service_id).find_map(|service| {
            Some((*service, service.plans.iter().find(|plan| plan.id == *plan_id)?))
        });
        let Some((old, plan)) = found else { continue };
        let mut plan = plan.clone();
        match fresh.services.iter_mut().find(|service| service.id == *service_id) {
            Some(service) => {
                let taken: Vec<_> = service.plans.iter().map(|plan| plan.name.as_str()).collect();
                plan.name = free_name(&plan.name, &taken);
                service.plans.push(plan);
            }
            None => {
                let taken: Vec<_> = fresh.services.iter().map(|s| s.name.as_str()).collect();
                let mut service = Service {
                    name: free_name(&old.name, &taken),
                    plans: vec![plan],
                    ..old.clone()
                };
                let client = |service: &Service| {
                    service.dashboard_client.as_ref().map(|client| client.id.clone())
                };
                if fresh.services.iter().any(|other| client(other) == client(&service)) {
                    service.dashboard_client = None;
                }
                fresh.services.push(service);
            }
        }
        kept.push((service_id.clone(), plan_id.clone()));
    }
    kept
}

fn free_name(name: &str, taken: &[&str]) -> String {
    if !taken.contains(&name) {
        return name.to_owned();
    }
    let withdrawn = format!("{name}-withdrawn");
    let numbered = (2_u32..).map(|n| format!("{withdrawn}-{n}"));
    std::iter::once(withdrawn.clone())
        .chain(numbered)
        .find(|name| !taken.contains(&name.as_str()))
        .unwrap_or(withdrawn)
}

#[cfg(test)]
mod tests {
    use osb::catalog::{CompiledCatalog, parse};
    use serde_json::json;

    use super::*;

    /// `service:name plan:name plan:name, …`.
    fn catalog(text: &str) -> Catalog {
        let split = |word: &str| {
            let (id, name) = word.split_once(':').unwrap_or((word, word));
            json!({"id": id, "name": name, "description": "d"})
        };
        let services = text.split(", ").filter(|service| !service.is_empty()).map(|service| {
            let mut words = service.split(' ').map(split);
            let mut service = words.next().unwrap();
            service["bindable"] = json!(true);
            service["plans"] = words.collect();
            service
        });
        parse(&json!({"services": services.collect::<Vec<_>>()})).unwrap()
    }

    fn shown(catalog: &Catalog) -> String {
        let service = |service: &osb::Service| {
            let plans = service.plans.iter().map(|plan| format!(" {}:{}", plan.id, plan.name));
            format!("{}:{}{}", service.id, service.name, plans.collect::<String>())
        };
        catalog.services.iter().map(service).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_is_in_use_stays_and_stands_in_the_way_of_nothing() {
        let cases = [
            ("still offered", "s p", "s p", "s:s p:p", 0),
            ("a plan left", "s p q", "s q", "s:s q:q p:p", 1),
            ("a service left", "s p, t q", "t q", "t:t q:q, s:s p:p", 1),
            ("everything left", "s p", "", "s:s p:p", 1),
            (
                "a plan replaced under its name",
                "s p:fast",
                "s p2:fast",
                "s:s p2:fast p:fast-withdrawn",
                1,
            ),
            (
                "a name taken twice",
                "s p:fast",
                "s p2:fast p3:fast-withdrawn",
                "s:s p2:fast p3:fast-withdrawn p:fast-withdrawn-2",
                1,
            ),
            (
                "a service replaced under its name",
                "s:db p",
                "s2:db q",
                "s2:db q:q, s:db-withdrawn p:p",
                1,
            ),
            ("a plan moved to another service", "s p", "t p", "t:t p:p", 0),
            (
                "kept before, under another name",
                "s p2:fast p:fast-withdrawn",
                "s p2:fast",
                "s:s p2:fast p:fast-withdrawn",
                1,
            ),
        ];
        for (name, last, fresh, expected, count) in cases {
            let mut fresh = catalog(fresh);
            let in_use = [(ServiceId::new("s").unwrap(), PlanId::new("p").unwrap())];
            let last = catalog(last);
            let last: Vec<_> = last.services.iter().collect();
            let kept = keep_plans_in_use(&mut fresh, &last, &in_use);
            assert_eq!(shown(&fresh), expected, "{name}");
            assert_eq!(kept.len(), count, "{name}");
            assert!(CompiledCatalog::compile(fresh).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_left_is_remembered_for_its_time() {
        let shown = |former: &[Former]| {
            former.iter().map(|it| shown(&Catalog { services: vec![it.service.clone()] })).collect()
        };
        let (day, hour) = (Timestamp(24 * 3_600_000), REMEMBERED);
        let left = remember(&catalog("s q"), &catalog("s p q"), &[], day);
        let seen: Vec<String> = shown(&left);
        assert_eq!(seen, ["s:s p:p"]);
        for (name, fresh, now, remembered) in [
            ("while it may have been ordered", "s q", day, vec!["s:s p:p"]),
            ("beside what leaves later", "", day, vec!["s:s q:q", "s:s p:p"]),
            ("not once it is back", "s q p", day, vec![]),
            ("not for ever", "s q", day.plus(hour), vec![]),
        ] {
            let seen: Vec<String> = shown(&remember(&catalog(fresh), &catalog("s q"), &left, now));
            assert_eq!(seen, remembered, "{name}");
        }
    }
}
