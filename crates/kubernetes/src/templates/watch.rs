//! Watches all instances, and queues those that may have something to do.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, pin_mut};
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};

use super::Controller;
use super::resource::Key;
use super::seen::SeenInstance;
use super::table::Scope;
use crate::calls::{Again, watching};

/// How many instances are listed at a time: one may be as large as anything that etcd takes, and a page is in memory
/// twice while it is read.
const PAGE: u32 = 20;

impl Controller {
    /// Watches the instances of a scope, for ever.
    pub(super) async fn follow(self: Arc<Self>, scope: Scope) {
        let api: Api<SeenInstance> = match &scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let config = watching().page_size(PAGE);
        let events = watcher(api, config).backoff(Again::default());
        pin_mut!(events);
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(seen)) => {
                    listed.extend(Key::of(&seen));
                    self.learn(seen);
                }
                Ok(Event::InitDone) => self.table().keep(&scope, &std::mem::take(&mut listed)),
                Ok(Event::Apply(seen)) => self.learn(seen),
                Ok(Event::Delete(seen)) => {
                    if let Some(key) = Key::of(&seen) {
                        self.table().remove(&key);
                    }
                }
                Err(error) => tracing::warn!(%error, "TemplateInstances cannot be watched now"),
            }
        }
    }

    fn learn(&self, seen: SeenInstance) {
        let key = self.table().learn(seen);
        self.queue.push(key);
    }
}
