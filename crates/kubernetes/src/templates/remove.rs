//! Removes the objects of an instance: all of them, and only them.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};

use super::Controller;
use super::await_ready::of_place;
use super::make::{AT_ONCE, get, is_ours};
use super::resource::Instance;
use super::status::{Made, State};
use super::step::Came;
use super::trouble::Trouble;
use crate::calls::{CallError, call, find};

/// How soon objects that are going are looked at again.
const LOOK: Duration = Duration::from_secs(1);

/// What has become of an object.
enum Left {
    /// It is gone, or Kubernetes sees to it when its owner is.
    Nothing,
    /// It is going.
    Going,
}

impl Controller {
    /// Goes on with the removal of an instance.
    pub(super) async fn remove(&self, instance: &Instance) -> Result<Came, Trouble> {
        let orphans = self.table().work(&instance.key).is_some_and(|work| work.orphans);
        // One who is nobody has made nothing.
        let requester = instance.requester().ok().filter(|_| !orphans);
        if let Some(requester) = requester {
            let client = requester.client(&self.client, &instance.key.namespace);
            let targets = self.targets(instance, &client).await?;
            let removals = targets.iter().map(|made| self.remove_one(instance, &client, made));
            let removals: Vec<_> = removals.collect();
            let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
            let (mut goes, mut troubles) = (false, Vec::new());
            while let Some(left) = removals.next().await {
                match left {
                    Ok(Left::Nothing) => {}
                    Ok(Left::Going) => goes = true,
                    Err(Trouble::Passing(why) | Trouble::Doubtful(why) | Trouble::Final(why)) => {
                        troubles.push(why);
                    }
                    Err(Trouble::Old) => return Err(Trouble::Old),
                }
            }
            if !troubles.is_empty() {
                return Err(Trouble::Passing(troubles.join("\n")));
            }
            if goes {
                return Ok(Came::Later(LOOK));
            }
        }
        let instance = self.known(&instance.key)?;
        self.hold(&instance, false).await?;
        tracing::info!(
            namespace = &*instance.key.namespace,
            name = &*instance.key.name,
            "its objects are gone"
        );
        Ok(Came::Idle)
    }

    /// What was made, also by somebody who did not come to say so.
    async fn targets(&self, instance: &Instance, client: &Client) -> Result<Vec<Made>, Trouble> {
        let mut targets: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        if instance.is_made() && !targets.is_empty() {
            return Ok(targets);
        }
        // Before it was recorded nothing was made.
        let recorded = match self.read_record(instance).await {
            Ok(Some(values)) => values,
            // What somebody else has written says nothing of what was made.
            Ok(None) | Err(Trouble::Final(_)) => return Ok(targets),
            Err(trouble) => return Err(trouble),
        };
        let plan = match self.planned(instance, &recorded).await {
            Ok(plan) => plan,
            Err(Trouble::Final(_) | Trouble::Doubtful(_)) => return Ok(targets),
            Err(trouble) => return Err(trouble),
        };
        for planned in plan {
            let found = match get(client, &planned).await {
                Ok(found) => found,
                // Who may not read it any more leaves it to Kubernetes.
                Err(CallError::Forbidden(_))
                    if self.is_owned(instance, planned.namespace.as_deref()) =>
                {
                    None
                }
                Err(error) => return Err(Trouble::from(error).of(&planned.words())),
            };
            let Some(found) = found.filter(|found| is_ours(instance, found)) else { continue };
            let resource = &planned.place.resource;
            let made = Made {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
                namespace: planned.namespace.unwrap_or_default(),
                name: planned.name,
                uid: found["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                state: State::Created,
                message: String::new(),
            };
            if !targets.iter().any(|it| it.uid == made.uid) {
                targets.push(made);
            }
        }
        Ok(targets)
    }

    /// Whether Kubernetes removes what is there when the instance is gone.
    fn is_owned(&self, instance: &Instance, namespace: Option<&str>) -> bool {
        namespace == Some(&*instance.key.namespace)
    }

    async fn remove_one(
        &self,
        instance: &Instance,
        client: &Client,
        made: &Made,
    ) -> Result<Left, Trouble> {
        let words = || format!("unable to delete {} {}", made.kind, made.name);
        let place = self.kinds.find(&made.api_version, &made.kind).await;
        // A kind that is gone took its objects with it.
        let Some(place) =
            place.map_err(|error| Trouble::Passing(format!("{}: {error}", words())))?
        else {
            return Ok(Left::Nothing);
        };
        let api = of_place(client, &place, &made.namespace);
        let asked = {
            let mut table = self.table();
            let Some(work) = table.work(&instance.key) else { return Err(Trouble::Old) };
            !work.removing.insert(made.uid.clone())
        };
        let gone = match asked {
            false => {
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Foreground),
                    preconditions: Some(Preconditions {
                        uid: Some(made.uid.clone()),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                match call(api.delete(&made.name, &params)).await {
                    // Gone at once, or marked.
                    Ok(either) => Ok(either.is_right()),
                    Err(CallError::NotFound) => Ok(true),
                    // Another has its name.
                    Err(CallError::Conflict) => self.is_gone(&api, made).await,
                    Err(error) => Err(error),
                }
            }
            true => self.is_gone(&api, made).await,
        };
        match gone {
            Ok(true) => Ok(Left::Nothing),
            Ok(false) => Ok(Left::Going),
            Err(error) => {
                if let Some(work) = self.table().work(&instance.key) {
                    work.removing.remove(&made.uid);
                }
                match error {
                    // Who may not remove it any more leaves it to Kubernetes.
                    CallError::Forbidden(_) if self.is_owned(instance, Some(&made.namespace)) => {
                        Ok(Left::Nothing)
                    }
                    error => Err(Trouble::Passing(format!("{}: {error}", words()))),
                }
            }
        }
    }

    async fn is_gone(
        &self,
        api: &kube::api::Api<kube::api::DynamicObject>,
        made: &Made,
    ) -> Result<bool, CallError> {
        let found = find(api.get_metadata(&made.name)).await?;
        Ok(found.is_none_or(|found| found.metadata.uid.as_deref() != Some(&made.uid)))
    }
}
