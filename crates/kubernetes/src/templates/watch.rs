//! Follows all instances, and tells which may have something to do.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, pin_mut};
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};

use super::Controller;
use super::names::Kind;
use super::resource::Key;
use super::table::Scope;
use crate::calls::Again;

/// An instance may be as large as anything that etcd takes.
const PAGE: u32 = 50;

impl Controller {
    /// For ever.
    pub(super) async fn follow(self: Arc<Self>, scope: Scope) {
        let kind = Kind::TemplateInstance.resource();
        let api: Api<DynamicObject> = match &scope {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind),
            None => Api::all_with(self.client.clone(), &kind),
        };
        let config = Config { page_size: Some(PAGE), ..Config::default() };
        let events = watcher(api, config).backoff(Again::default());
        pin_mut!(events);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.extend(Key::of(&object));
                    self.learn(object);
                }
                Ok(Event::InitDone) => self.table().keep(&scope, &std::mem::take(&mut listed)),
                Ok(Event::Apply(object)) => self.learn(object),
                Ok(Event::Delete(object)) => self.table().forget(&object),
                Err(error) => tracing::warn!(%error, "TemplateInstances cannot be watched now"),
            }
        }
    }

    fn learn(&self, object: DynamicObject) {
        let key = self.table().learn(object);
        self.queue.push(key);
    }
}
