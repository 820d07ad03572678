//! Several catalogs as one.

use osb::jobs::contract::Capability;
use osb::{ServiceId, catalog};
use serde_json::json;

use super::super::merge::{Given, Merged, Part, merge};

/// `service:name plan plan, …`; a service whose name ends in `@x` has the dashboard client `x`.
pub(super) fn part(text: &str) -> Part {
    let services = text.split(", ").filter(|service| !service.is_empty()).map(|service| {
        let mut words = service.split(' ');
        let (id, name) = words.next().unwrap().split_once(':').unwrap();
        let plans: Vec<_> =
            words.map(|id| json!({"id": id, "name": id, "description": "d"})).collect();
        let (name, client) = name.split_once('@').unwrap_or((name, ""));
        let mut service = json!({
            "id": id, "name": name, "description": "d", "bindable": true, "plans": plans,
        });
        if !client.is_empty() {
            service["dashboard_client"] = json!({"id": client, "secret": "s"});
        }
        service
    });
    let services: Vec<_> = services.collect();
    let catalog = catalog::parse(&json!({"services": services})).unwrap();
    Part { catalog, capabilities: vec![Capability::Update] }
}

fn sold(merged: &Merged) -> String {
    let catalog = catalog::parse(&merged.offer.catalog).unwrap();
    assert!(catalog::CompiledCatalog::compile(catalog.clone()).is_ok(), "it may be served");
    let ids: Vec<_> = catalog.services.iter().map(|service| service.id.as_str()).collect();
    ids.join(" ")
}

#[test]
fn what_is_taken_is_refused_to_the_later_and_harms_nothing_else() {
    // Name, the parts of a and b, what b holds already, what is sold, what is said to a and to b.
    let cases = [
        ("apart", "s:s p", "t:t q", "", "s t", "", ""),
        ("nothing of one", "", "t:t q", "", "t", "", ""),
        ("the same id", "s:s p", "s:z q", "", "s", "", "services[0].id"),
        ("the same name", "s:s p", "t:s q", "", "s", "", "services[0].name"),
        ("the same plan", "s:s p", "t:t q p", "", "s", "", "services[0].plans[1].id"),
        (
            "a plan with the id of a service",
            "s:s p",
            "t:t s",
            "",
            "s",
            "",
            "services[0].plans[0].id",
        ),
        ("a service with the id of a plan", "s:s p", "p:t q", "", "s", "", "services[0].id"),
        ("the same client", "s:s@c p", "t:t@c q", "", "s", "", "services[0].dashboard_client.id"),
        ("its others are sold", "s:s p", "s:z q, t:t r", "", "s t", "", "services[0].id"),
        ("held by the later", "s:s p, t:t r", "s:z q", "s", "t s", "services[0].id", ""),
        ("held, and in the way by its name", "s:s p", "t:s q", "t", "t", "services[0].name", ""),
        ("held, and not offered any more", "s:s p", "t:t q", "s", "s t", "", ""),
    ];
    for (name, a, b, holds, expected, to_a, to_b) in cases {
        let (a, b) = (part(a), part(b));
        let held: Vec<ServiceId> =
            holds.split_whitespace().map(|id| ServiceId::new(id).unwrap()).collect();
        let merged = merge(&[
            Given { name: "a", part: &a, holds: Vec::new() },
            Given { name: "b", part: &b, holds: held.iter().collect() },
        ]);
        assert_eq!(sold(&merged), expected, "{name}");
        for (broker, said, other) in [("a", to_a, "b"), ("b", to_b, "a")] {
            let refused = merged.refused.get(broker).cloned().unwrap_or_default();
            assert_eq!(refused.is_empty(), said.is_empty(), "{name}: {refused:?}");
            for refused in refused {
                let begins = format!("{said}: is taken by Broker {other}");
                assert!(refused.starts_with(&begins), "{name}: {refused}");
            }
        }
        assert_eq!(merged.offer.of_service.len(), sold(&merged).split_whitespace().count());
    }
}
