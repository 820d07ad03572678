//! Drift: checks whether the objects of an instance still are as they were made, and, by choice, repairs them.
//!
//! A check asks the API server, in the requester's name, what each object would become if it were applied anew, and
//! compares that with the object: so nothing that others have added, and no default, is taken for drift.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kube::Client;
use serde_json::json;

use super::Controller;
use super::change::{apply, unapplied};
use super::differences::differences;
use super::make::{AT_ONCE, get_whole};
use super::names::{BINDING_TYPE, DRIFT};
use super::plan::Planned;
use super::prepare::Prepared;
use super::requester::Requester;
use super::resource::{Instance, Key};
use super::status::{Made, Objects, said_of_drift};
use super::trouble::Trouble;
use crate::calls::{CallError, find};

/// What happens to drifted objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// Instances are not checked for drift.
    Ignore,
    /// The condition `Drifted` of the instance says which objects drifted, and where.
    Report,
    /// Drifted objects are changed back; the instance says which.
    Repair,
}

impl Drift {
    /// Parses the value of the drift annotation of an instance.
    fn of(word: &str) -> Option<Self> {
        match word {
            "ignore" => Some(Self::Ignore),
            "report" => Some(Self::Report),
            "repair" => Some(Self::Repair),
            _ => None,
        }
    }
}

/// How soon an instance is checked for which there was no permit.
const AGAIN: Duration = Duration::from_secs(1);
/// How soon an instance is checked again in which something was left to do.
const SOON: Duration = Duration::from_secs(5);

/// The log message for an instance or object that could not be checked.
const UNKNOWN: &str = "whether it has drifted is not known";

/// The result of a drift check.
enum Inspected {
    /// Nothing is left to do.
    Through,
    /// Something is left to do that may succeed in a moment.
    InPart,
    /// There was no permit for the check.
    NotYet,
}

/// An object that is not as it was made.
struct Drifted<'p> {
    planned: &'p Planned,
    /// Which object it is, and where it differs.
    words: String,
}

impl Controller {
    /// Checks a ready instance for drift, if it is due; when to check again.
    pub(super) async fn look_after(&self, key: &Key) -> Result<Option<Duration>, ()> {
        let every = self.settings.drift_interval;
        if self.settings.drift == Drift::Ignore || every.is_zero() {
            return Ok(None);
        }
        let now = Instant::now();
        let Some(due) = self.table().due(key, now + first(key, every)) else { return Ok(None) };
        let wait = due.saturating_duration_since(now);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        let Ok(_place) = self.looks.try_acquire() else { return Ok(Some(AGAIN)) };
        let next = match self.inspect(key).await {
            Ok(Inspected::Through) => every,
            Ok(Inspected::NotYet) => AGAIN,
            // An object is removed to be made anew, say, or the instance was written in the meantime.
            Ok(Inspected::InPart) | Err(Trouble::Old) => every.min(SOON),
            Err(trouble) => {
                let (namespace, name, why) = (&*key.namespace, &*key.name, trouble.reason());
                tracing::warn!(namespace, name, why, "{UNKNOWN}");
                every
            }
        };
        self.table().look_again_at(key, now + next);
        Ok(Some(next))
    }

    /// What happens to drifted objects of this instance.
    pub(super) fn drift_of(&self, instance: &Instance) -> Drift {
        instance.annotation(DRIFT).and_then(Drift::of).unwrap_or(self.settings.drift)
    }

    async fn inspect(&self, key: &Key) -> Result<Inspected, Trouble> {
        let Some(instance) = self.read(key).await? else { return Ok(Inspected::Through) };
        let Ok(_turn) = self.heavy_turn(instance.weight()) else { return Ok(Inspected::NotYet) };
        let choice = self.drift_of(&instance);
        if choice == Drift::Ignore || !is_idle(&instance) {
            return Ok(Inspected::Through);
        }
        let kept = self.read_record(key).await?.filter(|kept| kept.record.is_of(&instance));
        let Some(kept) = kept else { return Ok(Inspected::Through) };
        let requester = Requester::of(&kept.record.requester).map_err(Trouble::Final)?;
        let client = requester.client(&self.client, &key.namespace);
        let prepared = self.prepare(&instance, kept).await?;
        let Some(prepared) = prepared else { return Ok(Inspected::NotYet) };
        let looks = prepared.plan.iter();
        let looks: Vec<_> = looks.map(|it| self.look_at(&instance, &client, it)).collect();
        let looks: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        let mut drifted: Vec<Drifted<'_>> = Vec::new();
        for look in looks {
            match look {
                Ok(found) => drifted.extend(found),
                // An object that cannot be checked does not keep others from being checked.
                Err(trouble) => pass_over(key, &prepared, trouble, UNKNOWN)?,
            }
        }
        let looked = match choice {
            Drift::Repair if !drifted.is_empty() => {
                self.repair(&instance, &client, &prepared, drifted).await?
            }
            _ => {
                let words = drifted.iter().map(|it| it.words.as_str()).collect::<Vec<_>>();
                let redacted = prepared.redactor.redact(&words.join("\n")).into_owned();
                let are = if drifted.is_empty() { Objects::AsMade } else { Objects::Drifted };
                self.say_drift(&instance, are, redacted, None).await?;
                Inspected::Through
            }
        };
        let annotations = &instance.spec()["template"]["metadata"]["annotations"];
        if annotations[BINDING_TYPE].is_string() || instance.status()["binding"].is_object() {
            self.bind_as_it_is(key, &prepared).await?;
        }
        Ok(looked)
    }

    /// Renews the binding of an instance after its check, because exposed objects may have been repaired.
    async fn bind_as_it_is(&self, key: &Key, prepared: &Prepared) -> Result<(), Trouble> {
        let Some(instance) = self.read(key).await?.filter(is_idle) else { return Ok(()) };
        match self.bind_again(&instance).await {
            Ok(()) => Ok(()),
            Err(trouble) => pass_over(key, prepared, trouble, "its binding is as it was"),
        }
    }

    /// Reads an instance as it is now, if it still is the same (by its uid).
    async fn read(&self, key: &Key) -> Result<Option<Instance>, Trouble> {
        let found = find(self.instances(&key.namespace).get(&key.name)).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        Ok(found.and_then(Instance::of).filter(|it| it.key == *key))
    }

    async fn look_at<'p>(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &'p Planned,
    ) -> Result<Option<Drifted<'p>>, Trouble> {
        let named = planned.words();
        let of = |trouble: Trouble| trouble.of(&format!("unable to look at {named}"));
        let is = |words: String| Some(Drifted { planned, words: format!("{named}: {words}") });
        if planned.object["metadata"]["annotations"][DRIFT] == "ignore" {
            return Ok(None);
        }
        let found =
            get_whole(client, &self.kinds, planned).await.map_err(|error| of(error.into()))?;
        let Some((found, _room)) = found else { return Ok(is("it is gone".to_owned())) };
        if !found["metadata"]["deletionTimestamp"].is_null() {
            return Ok(is("it is being removed".to_owned()));
        }
        if !planned.is(&instance.key, &found, &self.seal) {
            return Ok(is("it is not of this instance any more".to_owned()));
        }
        let would = match apply(client, planned, &found, true).await {
            Ok(would) => would,
            // Somebody has changed the object in a way that cannot be changed back.
            Err(CallError::Invalid(why)) => {
                return Ok(is(format!("it cannot become what was made: {why}")));
            }
            Err(error) => return Err(of(unapplied(error))),
        };
        let places = differences(&found, &would);
        Ok((!places.is_empty()).then(|| is(places.join(", "))).flatten())
    }

    async fn repair(
        &self,
        instance: &Instance,
        client: &Client,
        prepared: &Prepared,
        drifted: Vec<Drifted<'_>>,
    ) -> Result<Inspected, Trouble> {
        let mut made: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        let (mut repaired, mut left, mut looked) = (Vec::new(), Vec::new(), Inspected::Through);
        let (mut just_made, mut is_old) = (Vec::new(), false);
        for Drifted { planned, words } in drifted {
            match self.change_one(instance, client, planned).await {
                Ok(again) => {
                    just_made.push(again.clone());
                    // An object that was made anew has another uid.
                    if let Some(there) = made.iter_mut().find(|it| it.is_at(&again)) {
                        there.uid = again.uid;
                    }
                    repaired.push(words);
                }
                // What was just made is taken care of first.
                Err(Trouble::Old) => {
                    is_old = true;
                    break;
                }
                Err(Trouble::Passing(why)) => {
                    left.push(format!("{words}: {why}"));
                    looked = Inspected::InPart;
                }
                Err(Trouble::Doubtful(why) | Trouble::Final(why)) => {
                    left.push(format!("{words}: {why}"));
                }
            }
        }
        let (are, words) = match left.is_empty() {
            true => (Objects::Repaired, &repaired),
            false => (Objects::Drifted, &left),
        };
        let redacted = prepared.redactor.redact(&words.join("\n")).into_owned();
        let (namespace, name) = (&*instance.key.namespace, &*instance.key.name);
        tracing::info!(
            namespace,
            name,
            repaired = repaired.len(),
            left = left.len(),
            "it had drifted"
        );
        let said = match is_old {
            true => Err(Trouble::Old),
            false => self.say_drift(instance, are, redacted, Some(made)).await,
        };
        // Another controller may lead by now, and may have removed the instance.
        if !self.leads() || said == Err(Trouble::Old) {
            self.leave(instance, just_made, &prepared.plan).await;
        }
        said.map(|()| looked)
    }

    /// Writes the drift condition, and the objects where one was made anew, to the status; writes nothing where that is
    /// no news.
    async fn say_drift(
        &self,
        instance: &Instance,
        are: Objects,
        message: String,
        made: Option<Vec<Made>>,
    ) -> Result<(), Trouble> {
        let said = said_of_drift(instance, are, &message, &self.now().to_string());
        let objects: Option<Vec<_>> = made.map(|all| all.iter().map(Made::entry).collect());
        // The uid of an object that was made anew is written in any case: by it the object is removed.
        let objects = objects.filter(|objects| objects.as_slice() != instance.objects());
        let is_news = said.is_some();
        let mut status = json!({});
        if let Some(conditions) = said {
            status["conditions"] = conditions;
        }
        if let Some(objects) = objects {
            status["objects"] = objects.into();
        }
        if status.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        self.write_status(instance, &status).await?;
        if are == Objects::Drifted && is_news {
            self.tell_event(instance, "Drifted", &message);
        }
        Ok(())
    }
}

fn is_idle(instance: &Instance) -> bool {
    instance.is("Ready") && !instance.is_changed() && !instance.deleting
}

/// Logs, redacted, why a part of a check failed, and goes on; an error if somebody else wrote the instance.
fn pass_over(key: &Key, prepared: &Prepared, trouble: Trouble, what: &str) -> Result<(), Trouble> {
    let trouble = trouble.redacted(&prepared.redactor);
    let why = trouble.reason().ok_or(Trouble::Old)?;
    let (namespace, name) = (&*key.namespace, &*key.name);
    tracing::warn!(namespace, name, why, "{what}");
    Ok(())
}

/// How long until an instance is first checked: spread by its uid, so that not all are checked at once.
fn first(key: &Key, every: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.uid.hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    every.mul_f64(f64::from(part) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_documentation() {
        let words = ["ignore", "report", "repair", "Repair", ""].map(Drift::of);
        let expected = [Some(Drift::Ignore), Some(Drift::Report), Some(Drift::Repair), None, None];
        assert_eq!(words, expected);
    }

    #[test]
    fn instances_are_looked_at_one_after_the_other() {
        let every = Duration::from_secs(3600);
        let of = |uid: &str| Key { namespace: "n".into(), name: "i".into(), uid: uid.into() };
        let firsts: Vec<Duration> = (0..100).map(|it| first(&of(&it.to_string()), every)).collect();
        assert!(firsts.iter().all(|it| *it < every));
        let late = firsts.iter().filter(|it| **it > every / 2).count();
        assert!((20..80).contains(&late), "{late} in the second half");
    }
}
