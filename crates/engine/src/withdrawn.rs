//! Withdrawn plans: those that have left the catalog, while instances have them or may have them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use osb::{Catalog, Plan, PlanId, Service, ServiceId};
use serde::{Deserialize, Serialize};

use crate::record::Timestamp;

/// How long a plan is remembered that left the catalog while no instance had it: it may have been ordered just then,
/// from another process that still sold it.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// The plans of a service that have left the catalog. The service is kept once, however many of its plans have left: an
/// icon in its metadata may be most of a catalog.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Former {
    /// When the last of them left.
    left_at: Timestamp,
    /// When each plan left that left before the last one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    earlier: BTreeMap<PlanId, Timestamp>,
    /// The service, with these plans alone.
    pub(crate) service: Service,
}

impl Former {
    /// The plans of a service that have left; `None`: none has.
    fn of(service: &Service, left: &[(Timestamp, &Plan)]) -> Option<Self> {
        let left_at = left.iter().map(|(left_at, _)| *left_at).max()?;
        let before = left.iter().filter(|(time, _)| *time < left_at);
        let earlier = before.map(|(time, plan)| (plan.id.clone(), *time)).collect();
        let plans = left.iter().map(|(_, plan)| (*plan).clone()).collect();
        Some(Self { left_at, earlier, service: Service { plans, ..service.clone() } })
    }

    pub(crate) fn is(&self, service: &ServiceId, plan: &PlanId) -> bool {
        self.service.id == *service && self.service.plans.iter().any(|former| former.id == *plan)
    }

    /// The plans, each with the time at which it left.
    fn plans(&self) -> impl Iterator<Item = (Timestamp, &Plan)> {
        let left_at =
            move |plan: &Plan| self.earlier.get(&plan.id).copied().unwrap_or(self.left_at);
        self.service.plans.iter().map(move |plan| (left_at(plan), plan))
    }
}

/// The plans to remember once the fresh catalog is in force: those of the last catalog that it lacks, and those that
/// are remembered already and not for too long. Each service is there once, as it was last.
pub(crate) fn remember(
    fresh: &Catalog,
    last: &Catalog,
    former: &[Former],
    now: Timestamp,
) -> Vec<Former> {
    let has = fresh.services.iter().flat_map(|service| &service.plans);
    let has: HashSet<&PlanId> = has.map(|plan| &plan.id).collect();
    let lacks = |(_, plan): &(Timestamp, &Plan)| !has.contains(&plan.id);
    let left = last.services.iter().map(|service| {
        let left = service.plans.iter().map(|plan| (now, plan)).filter(lacks);
        (service, left.collect::<Vec<_>>())
    });
    let still = former.iter().map(|former| {
        let still = former.plans().filter(|(left_at, _)| now < left_at.plus(REMEMBERED));
        (&former.service, still.filter(lacks).collect::<Vec<_>>())
    });
    let mut all: Vec<(&Service, Vec<(Timestamp, &Plan)>)> = Vec::new();
    for (service, plans) in left.chain(still) {
        match all.iter_mut().find(|(known, _)| known.id == service.id) {
            Some((_, known)) => known.extend(plans),
            None => all.push((service, plans)),
        }
    }
    all.iter().filter_map(|(service, left)| Former::of(service, left)).collect()
}

/// Adds to the fresh catalog every plan in use that has left it, from the services that it had before; returns which
/// plans these are.
///
/// A plan in use never disappears under its instances: the platform would then refuse to touch them.
/// But what the broker offers now goes first: a plan that it has moved to another service stays there, and a name
/// that it gives to something new is taken from the plan that is only kept.
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

    fn remembered(former: &[Former]) -> Vec<String> {
        former.iter().map(|it| shown(&Catalog { services: vec![it.service.clone()] })).collect()
    }

    #[test]
    fn what_left_is_remembered_for_its_time() {
        let (day, hour) = (Timestamp(24 * 3_600_000), REMEMBERED);
        let later = day.plus(hour / 2);
        let left = remember(&catalog("s q, t u"), &catalog("s p q, t u"), &[], day);
        assert_eq!(remembered(&left), ["s:s p:p"]);
        for (name, fresh, now, expected) in [
            ("while it may have been ordered", "s q, t u", day, vec!["s:s p:p"]),
            ("beside what leaves later", "t u", later, vec!["s:s q:q p:p"]),
            ("beside a service that leaves later", "s q", later, vec!["s:s p:p", "t:t u:u"]),
            ("not once it is back", "s q p, t u", day, vec![]),
            ("not for ever", "s q, t u", day.plus(hour), vec![]),
        ] {
            let seen = remember(&catalog(fresh), &catalog("s q, t u"), &left, now);
            assert_eq!(remembered(&seen), expected, "{name}");
        }
    }

    #[test]
    fn plans_of_one_service_are_remembered_once_each_for_its_own_time() {
        let (day, half) = (Timestamp(24 * 3_600_000), REMEMBERED / 2);
        let saved_before = |plan: &str| {
            let service = catalog(&format!("s {plan}")).services.remove(0);
            json!({"left_at": day, "service": service})
        };
        let saved = json!([saved_before("p"), saved_before("o")]);
        let former: Vec<Former> = serde_json::from_value(saved).unwrap();
        let former = remember(&catalog(""), &catalog("s q"), &former, day.plus(half));
        let former: Vec<Former> =
            serde_json::from_value(serde_json::to_value(&former).unwrap()).unwrap();
        for (name, fresh, now, expected) in [
            ("all", "", day.plus(half), vec!["s:s q:q p:p o:o"]),
            ("one is back", "s o", day.plus(half), vec!["s:s q:q p:p"]),
            ("the last that left", "", day.plus(REMEMBERED), vec!["s:s q:q"]),
            ("none", "", day.plus(REMEMBERED + half), vec![]),
        ] {
            let seen = remember(&catalog(fresh), &catalog(""), &former, now);
            assert_eq!(remembered(&seen), expected, "{name}");
        }
        let service = ServiceId::new("s").unwrap();
        let is = |plan: &str| former.iter().any(|it| it.is(&service, &PlanId::new(plan).unwrap()));
        assert_eq!(["o", "p", "q", "r"].map(is), [true, true, true, false]);
    }

    #[test]
    fn a_service_is_remembered_once_however_many_of_its_plans_left() {
        let mut last = catalog("s a");
        last.services[0].metadata = json!({"imageUrl": "x".repeat(40_000)}).as_object().cloned();
        let mut former = Vec::new();
        for number in 0..25_u64 {
            let mut fresh = catalog(&format!("s p{number} q{number}"));
            fresh.services[0].metadata.clone_from(&last.services[0].metadata);
            former = remember(&fresh, &last, &former, Timestamp(number));
            last = fresh;
        }
        let bytes = serde_json::to_string(&former).unwrap().len();
        assert!(bytes < 50_000, "{bytes}");
        assert_eq!(former.iter().flat_map(|it| &it.service.plans).count(), 49);
    }
}
