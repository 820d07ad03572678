//! Watches the resources and tombstones of records for [`KnownRecords`].

use std::sync::Arc;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};

use super::entry::Entry;
use super::known::{KnownRecords, Source, Watched};
use super::read::PAGE;
use super::relabel::Relabelling;
use super::{RecordApi, names};
use crate::calls::{Again, call, next_page, version_of, watching};
use crate::resources::Kind;

/// The value of the label [`names::KEEPS`] of a tombstone.
pub(super) const TOMBSTONE: &str = "tombstone";

/// Watches one kind for ever. To be spawned; ends when it is dropped.
pub(super) async fn follow(api: Arc<RecordApi>, known: Arc<KnownRecords>, watched: Watched) {
    let selector = api.selector();
    let config = |selector: &str| watching().labels(selector).page_size(PAGE);
    match watched {
        Watched::Instances | Watched::Bindings => {
            let stream = watcher(api.resources(kind_of(watched)), config(&selector));
            let read = |object: &DynamicObject| {
                let entry = api.entry(object);
                if entry.is_none() && Entry::of_resource(object, || None).is_some() {
                    tracing::warn!(
                        copy = object.name_any(),
                        "a copy of a record's resource stands for nothing: take its finalizers off, then delete it"
                    );
                }
                entry
            };
            take_in(&api, &known, watched, stream.backoff(Again::default()), read).await;
        }
        Watched::Tombstones => {
            let kept = [TOMBSTONE, names::KEEPS_CATALOG].join(",");
            let selector = format!("{selector},{} in ({kept})", names::KEEPS);
            let stream = watcher(api.config_maps(), config(&selector));
            let catalog = Some(api.catalog_name());
            let read = |object: &ConfigMap| {
                if object.metadata.name == catalog {
                    known.hear_of_catalog(version_of(object.metadata.resource_version.as_deref()));
                }
                api.own(Entry::of_tombstone(object, None), &object.metadata)
            };
            take_in(&api, &known, watched, stream.backoff(Again::default()), read).await;
        }
    }
}

async fn take_in<K: ResourceExt>(
    api: &Arc<RecordApi>,
    known: &Arc<KnownRecords>,
    watched: Watched,
    stream: impl futures_util::Stream<Item = Result<Event<K>, watcher::Error>>,
    read: impl Fn(&K) -> Option<Result<Entry, serde_json::Error>>,
) {
    pin_mut!(stream);
    let sight = Arc::<Relabelling>::default();
    let hear = |object: K, source: Source| match read(&object) {
        Some(Ok(entry)) => {
            if let Some(damage) = &entry.damage {
                complain(watched, &object, &damage.why);
            }
            if !entry.is_tombstone() && !api.is_labelled(&entry.key, object.meta()) {
                sight.keep(api, known, watched, &entry);
            }
            known.hear(entry, source);
        }
        Some(Err(error)) => complain(watched, &object, &error.to_string()),
        None => {}
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Apply(object)) => hear(object, Source::Event),
            Ok(Event::InitApply(object)) => hear(object, Source::List),
            Ok(Event::Delete(object)) => match read(&object) {
                Some(Ok(entry)) if entry.is_out_of_sight() => {
                    sight.keep(api, known, watched, &entry);
                }
                Some(Ok(entry)) => {
                    known.forget(&entry);
                    api.secrets.forget(&api.name(&entry.key));
                }
                Some(Err(_)) | None => {
                    known.forget_uid(watched, &object.uid().unwrap_or_default());
                }
            },
            Ok(Event::Init) => known.begin(watched),
            Ok(Event::InitDone) => {
                known.finish(watched);
                if watched != Watched::Tombstones {
                    let (api, known) = (Arc::clone(api), Arc::clone(known));
                    tokio::spawn(look_out_of_sight(api, known, watched, Arc::clone(&sight)));
                }
            }
            Err(error) => tracing::warn!(?watched, %error, "the watch was interrupted"),
        }
    }
}

fn kind_of(watched: Watched) -> Kind {
    match watched {
        Watched::Bindings => Kind::ServiceBinding,
        _ => Kind::ServiceInstance,
    }
}

/// Labels resources again that lost their labels while nobody watched: no list has them.
async fn look_out_of_sight(
    api: Arc<RecordApi>,
    known: Arc<KnownRecords>,
    watched: Watched,
    sight: Arc<Relabelling>,
) {
    let mut bare = ListParams::default().labels(&format!("!{}", names::BROKER)).limit(PAGE);
    let resources = api.resources(kind_of(watched));
    loop {
        let page = match call(resources.list(&bare)).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(?watched, %error, "those without labels cannot be listed");
                return;
            }
        };
        for entry in page.items.iter().filter_map(|object| api.entry(object)?.ok()) {
            sight.keep(&api, &known, watched, &entry);
        }
        let Some(next) = next_page(bare, page.metadata) else { return };
        bare = next;
    }
}

/// Logs that the record of a resource cannot be read, and what can be done.
fn complain(watched: Watched, object: &impl ResourceExt, why: &str) {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    tracing::error!(
        ?watched,
        namespace,
        name,
        why,
        "the record of a resource cannot be read: put its status.record right, or forget it: manciple purge"
    );
}
