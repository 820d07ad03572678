//! The ConfigMap with the agent, in each namespace: plain state.

use std::collections::HashSet;
use std::sync::Arc;

use super::object::{Digest, Object};
use super::table::Table;
use super::watch::Scope;
use crate::quarks::api::reference::Kind;

/// The agent's ConfigMaps.
#[derive(Default)]
pub(crate) struct Agents {
    /// Their name, and the digest of what they hold; `None`: the agent comes by no ConfigMap.
    ours: Option<(Box<str>, Digest)>,
    /// The namespaces in which we made it: the watch may not have told of it yet.
    made: HashSet<Arc<str>>,
}

/// What is known of the agent's ConfigMap in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    There,
    /// It is not known to be there.
    Unknown,
    /// One of its name is there that holds something else: somebody's own, which is not to be run.
    Taken,
}

impl Agents {
    pub(crate) fn of(name: &str, content: Digest) -> Self {
        Self { ours: Some((name.into(), content)), made: HashSet::new() }
    }

    /// Notes that we made it, or found it as it should be.
    pub(crate) fn made(&mut self, namespace: &Arc<str>) {
        self.made.insert(Arc::clone(namespace));
    }

    /// Forgets what we have done in a namespace.
    pub(super) fn leave(&mut self, namespace: &str) {
        self.made.remove(namespace);
    }

    /// Notes that a ConfigMap has gone. Returns whether it had the agent's name.
    pub(super) fn went(&mut self, map: &Object) -> bool {
        let has_its_name = self.ours.as_ref().is_some_and(|(name, _)| **name == *map.name);
        if has_its_name {
            self.made.remove(&map.namespace);
        }
        has_its_name
    }

    /// Takes the end of a list of a scope: what was not listed may have gone, and no watch may have told of it.
    pub(super) fn listed(&mut self, scope: &Scope) {
        self.made.retain(|namespace| scope.as_ref().is_some_and(|scope| scope != namespace));
    }
}

impl Table {
    /// What is known of the agent's ConfigMap in a namespace.
    pub(crate) fn agent(&self, namespace: &str) -> Brought {
        let Some((name, content)) = &self.agents.ours else { return Brought::There };
        match self.objects.get(namespace, Kind::ConfigMap, name) {
            Some(known) if known.has(content) => Brought::There,
            Some(_) => Brought::Taken,
            None if self.agents.made.contains(namespace) => Brought::There,
            None => Brought::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::super::follows::{Follows, OfConfigMaps};
    use super::super::object::content;
    use super::*;
    use crate::quarks::api::dialect::Dialect;
    use crate::quarks::api::key::Key;
    use crate::quarks::api::resource::Resource;

    fn config_map(name: &str, version: u32, value: &str) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string()},
            "data": {"agent": value},
        }))
        .unwrap()
    }

    /// One whose agent is in the ConfigMap `agent-1`, with a QuarksJob in the namespace `a`.
    fn table() -> (Table, Key) {
        let mut table = Table::new(2, b"key");
        table.agents = Agents::of("agent-1", content(&config_map("agent-1", 1, "ours")));
        let object = serde_json::from_value(json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": "j", "namespace": "a", "uid": "u", "resourceVersion": "1"},
        }));
        let key =
            table.learn(Resource::of(Dialect::QuarksJob, &object.unwrap()).unwrap()).remove(0);
        (table, key)
    }

    #[test]
    fn what_somebody_has_put_in_the_place_of_the_agent_is_known_without_a_try_until_it_goes() {
        let other = |version| config_map("agent-1", version, "other");
        type Change = fn(&mut Agents);
        let made: Change = |agents| agents.made(&"a".into());
        let nothing: Change = |_| {};
        for (name, map, change, expected) in [
            ("nobody has made it", None, nothing, Brought::Unknown),
            ("it was made just now", None, made, Brought::There),
            ("it is there", Some(config_map("agent-1", 1, "ours")), nothing, Brought::There),
            ("another has its name", Some(other(1)), nothing, Brought::Taken),
            ("another has its name since it was made", Some(other(1)), made, Brought::Taken),
            ("another is beside it", Some(config_map("agent-2", 1, "other")), made, Brought::There),
        ] {
            let (mut table, _) = table();
            change(&mut table.agents);
            let seen = map.and_then(|map| OfConfigMaps.see(map));
            seen.into_iter().for_each(|seen| drop(OfConfigMaps.learn(&mut table, seen)));
            assert_eq!(table.agent("a"), expected, "{name}");
            assert_eq!(table.agent("b"), Brought::Unknown, "{name}: elsewhere");
        }
        let (mut table, key) = table();
        OfConfigMaps.learn(&mut table, OfConfigMaps.see(other(1)).unwrap());
        let woken = OfConfigMaps.forget(&mut table, OfConfigMaps.see(other(2)).unwrap());
        assert_eq!((table.agent("a"), woken), (Brought::Unknown, vec![key]), "it may be made now");
    }

    #[test]
    fn an_agent_that_went_while_nothing_was_watched_is_brought_again() {
        use Brought::{There, Unknown};
        for (scope, expected) in
            [(None, [Unknown; 2]), (Some("a"), [Unknown, There]), (Some("c"), [There; 2])]
        {
            let (mut table, _) = table();
            for namespace in ["a", "b"] {
                table.agents.made(&namespace.into());
            }
            OfConfigMaps.finish(&mut table, &scope.map(Arc::from), HashSet::new());
            let found = ["a", "b"].map(|namespace| table.agent(namespace));
            assert_eq!(found, expected, "a list of {scope:?} is without it");
        }
    }
}
