//! The stock of templates, by the ids of their services: the one map in which they are looked up.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use osb::{MaintenanceInfo, Service};
use serde_json::Value;

use super::catalog;
use super::ids::{Ids, Named, SERVICE_ID};
use super::revision::revision;
use crate::deep::Unread;
use crate::templates::seen::SeenTemplate;

/// A template as the API server has it, and its service.
#[derive(Debug)]
pub(super) struct OfferedTemplate {
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
    /// The `resourceVersion`: as long as it is the same, nothing here is derived again.
    version: String,
    /// The id of its service.
    id: String,
    pub(super) document: Value,
    pub(super) revision: MaintenanceInfo,
    /// The service, or why the template cannot be offered.
    pub(super) service: Result<Service, String>,
}

impl OfferedTemplate {
    /// The template as messages name it.
    pub(super) fn words(&self) -> String {
        format!("template {}/{}", self.namespace, self.name)
    }
}

/// The templates of all configured namespaces.
pub(super) struct Stock {
    ids: Ids,
    /// The namespaces in their order of precedence.
    namespaces: Arc<[String]>,
    /// The templates by service id; several may claim one id, and the first of them has it.
    of: BTreeMap<String, Vec<Arc<OfferedTemplate>>>,
}

impl Stock {
    pub(super) fn new(ids: Ids, namespaces: Arc<[String]>) -> Self {
        Self { ids, namespaces, of: BTreeMap::new() }
    }

    /// The template of a service, whether or not it can be offered: no other template takes its place.
    pub(super) fn get(&self, id: &str) -> Option<&Arc<OfferedTemplate>> {
        self.of.get(id)?.first()
    }

    /// The known template, if it has not changed since; otherwise it has to be [`Self::read`].
    pub(super) fn unchanged(
        &self,
        namespace: &str,
        seen: &SeenTemplate,
    ) -> Option<Arc<OfferedTemplate>> {
        let (uid, version) = (seen.uid()?, seen.resource_version()?);
        let claiming = self.of.get(&id(self.ids, namespace, seen, &uid))?;
        claiming.iter().find(|it| it.uid == uid && it.version == version).cloned()
    }

    /// Reads a template that was seen.
    ///
    /// # Errors
    /// If the template cannot be read.
    pub(super) fn read(
        ids: Ids,
        namespace: &str,
        seen: &SeenTemplate,
    ) -> Result<OfferedTemplate, Unread> {
        let (uid, document) = (seen.uid().unwrap_or_default(), seen.document()?);
        let id = id(ids, namespace, seen, &uid);
        let revision = revision(&document);
        let service = catalog::service(&id, &ids.plan(&id), &revision, &document);
        Ok(OfferedTemplate {
            namespace: namespace.to_owned(),
            name: seen.name_any(),
            uid,
            version: seen.resource_version().unwrap_or_default(),
            id,
            document,
            revision,
            service,
        })
    }

    /// Adds a template, or replaces its former state.
    pub(super) fn learn(&mut self, template: Arc<OfferedTemplate>) {
        self.forget(&template.uid);
        self.insert(template);
    }

    fn insert(&mut self, template: Arc<OfferedTemplate>) {
        let claiming = self.of.entry(template.id.clone()).or_default();
        claiming.push(template);
        let place = |namespace: &str| self.namespaces.iter().position(|it| it == namespace);
        claiming.sort_by_cached_key(|it| (place(&it.namespace), it.name.clone(), it.uid.clone()));
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.retain(|it| it.uid != uid);
    }

    /// Replaces all templates of a namespace.
    pub(super) fn replace(&mut self, namespace: &str, listed: Vec<Arc<OfferedTemplate>>) {
        self.retain(|it| it.namespace != namespace);
        listed.into_iter().for_each(|template| self.insert(template));
    }

    fn retain(&mut self, stays: impl Fn(&OfferedTemplate) -> bool) {
        self.of.retain(|_, claiming| {
            claiming.retain(|it| stays(it));
            !claiming.is_empty()
        });
    }

    /// The templates that have their id, in order of precedence; and the reasons for those whose id another has.
    pub(super) fn offered(&self) -> (Vec<Arc<OfferedTemplate>>, Vec<String>) {
        let (mut offered, mut refused) = (Vec::new(), Vec::new());
        for claiming in self.of.values() {
            let mut claiming = claiming.iter();
            let Some(first) = claiming.next() else { continue };
            refused.extend(claiming.map(|it| {
                let (words, others) = (it.words(), first.words());
                format!("{words}: its service id is that of {others}: {}", first.id)
            }));
            offered.push(Arc::clone(first));
        }
        let place = |namespace: &str| self.namespaces.iter().position(|it| it == namespace);
        offered.sort_by_cached_key(|it| (place(&it.namespace), it.name.clone(), it.uid.clone()));
        // An annotation may also name the id of another template's plan: such a template would keep all from being
        // offered.
        let mut taken = HashSet::new();
        offered.retain(|it| {
            let plan = self.ids.plan(&it.id);
            let is_free = !taken.contains(&it.id) && !taken.contains(&plan);
            match is_free {
                true => taken.extend([it.id.clone(), plan]),
                false => refused.push(format!("{}: its ids are taken: {}", it.words(), it.id)),
            }
            is_free
        });
        (offered, refused)
    }
}

fn id(ids: Ids, namespace: &str, seen: &SeenTemplate, uid: &str) -> String {
    let (name, annotation) = (seen.name_any(), seen.annotations().get(SERVICE_ID));
    ids.service(Named { uid, namespace, name: &name, annotation: annotation.map(String::as_str) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";

    fn seen(name: &str, uid: &str, annotations: Value) -> SeenTemplate {
        let object = json!({
            "metadata": {
                "name": name, "uid": uid, "resourceVersion": "1", "annotations": annotations,
            },
            "objects": [],
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn stock(ids: Ids, all: &[(&str, SeenTemplate)]) -> Stock {
        let mut stock = Stock::new(ids, ["first".to_owned(), "second".to_owned()].into());
        for (namespace, seen) in all {
            stock.learn(Arc::new(Stock::read(ids, namespace, seen).unwrap()));
        }
        stock
    }

    #[test]
    fn one_id_is_one_templates_and_nobody_takes_its_place() {
        let claims = || json!({SERVICE_ID: ID});
        let mut faulty = seen("b", "u-1", claims());
        let fault = json!({"metadata": faulty.metadata, "objects": "none"}).to_string();
        faulty = serde_json::from_str(&fault).unwrap();
        for (case, all, first, refused) in [
            (
                "of two namespaces",
                vec![("second", seen("a", "u-2", claims())), ("first", seen("b", "u-1", claims()))],
                "u-1",
                "template second/a: its service id is that of template first/b: aaaaaaaa-",
            ),
            (
                "of two names",
                vec![("first", seen("b", "u-2", claims())), ("first", seen("a", "u-1", claims()))],
                "u-1",
                "template first/b: its service id is that of template first/a: aaaaaaaa-",
            ),
            (
                "one that cannot be offered",
                vec![("second", seen("a", "u-2", claims())), ("first", faulty)],
                "u-1",
                "template second/a: its service id is that of template first/b: aaaaaaaa-",
            ),
        ] {
            let stock = stock(Ids::Name, &all);
            assert_eq!(stock.get(ID).unwrap().uid, first, "{case}");
            let (offered, why) = stock.offered();
            assert_eq!((offered.len(), why.len()), (1, 1), "{case}: {why:?}");
            assert!(why[0].starts_with(refused), "{case}: {why:?}");
        }
    }

    #[test]
    fn nobody_claims_what_is_anothers_otherwise_written_or_the_id_of_anothers_plan() {
        let plan = Ids::Name.plan(ID);
        for (case, claim, refused) in [
            ("in capitals", ID.to_uppercase(), "its service id is that of template first/a"),
            ("a plan's", plan, "its ids are taken"),
        ] {
            let other = seen("b", "u-2", json!({SERVICE_ID: claim}));
            let one = seen("a", "u-1", json!({SERVICE_ID: ID}));
            let (offered, why) = stock(Ids::Name, &[("first", one), ("first", other)]).offered();
            assert_eq!((offered.len(), offered[0].uid.as_str()), (1, "u-1"), "{case}: {why:?}");
            assert!(why[0].contains(refused), "{case}: {why:?}");
        }
    }

    #[test]
    fn a_template_that_changes_is_found_under_what_it_is_now() {
        let mut stock = stock(Ids::Name, &[("first", seen("a", "u-1", json!({SERVICE_ID: ID})))]);
        assert_eq!(stock.get(ID).unwrap().uid, "u-1");
        let later = Stock::read(Ids::Name, "first", &seen("a", "u-1", json!({}))).unwrap();
        let id = later.id.clone();
        stock.learn(Arc::new(later));
        assert!(stock.get(ID).is_none() && stock.get(&id).is_some());
        // Made anew under its name: the same service.
        let anew = Stock::read(Ids::Name, "first", &seen("a", "u-2", json!({}))).unwrap();
        stock.learn(Arc::new(anew));
        assert_eq!(stock.get(&id).unwrap().uid, "u-1");
        stock.forget("u-1");
        assert_eq!(stock.get(&id).unwrap().uid, "u-2");
        stock.replace("first", Vec::new());
        assert!(stock.get(&id).is_none() && stock.of.is_empty());
    }

    #[test]
    fn in_the_originals_way_nothing_is_found_by_anything_but_its_uid() {
        let stock = stock(Ids::Uid, &[("first", seen("a", "u-1", json!({SERVICE_ID: ID})))]);
        assert_eq!(stock.get("u-1").unwrap().name, "a");
        assert!(stock.get(ID).is_none());
        let service = stock.get("u-1").unwrap().service.as_ref().unwrap();
        assert_eq!((service.id.as_str(), service.plans[0].id.as_str()), ("u-1", "u-1"));
    }

    #[test]
    fn what_has_not_changed_is_not_found_out_again() {
        let first = seen("a", "u-1", json!({}));
        let stock = stock(Ids::Name, &[("first", first.clone())]);
        assert!(stock.unchanged("first", &first).is_some());
        let mut changed = first.clone();
        changed.metadata.resource_version = Some("2".to_owned());
        assert!(stock.unchanged("first", &changed).is_none());
        let mut anew = first;
        anew.metadata.uid = Some("u-2".to_owned());
        assert!(stock.unchanged("first", &anew).is_none());
    }
}
