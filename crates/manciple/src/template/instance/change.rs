//! `manciple template instance change` and `rollback`: changes the order of an instance, and waits for the end.

use kube::api::DynamicObject;
use serde_json::json;

use super::args::{ChangeArgs, RollbackArgs};
use super::cluster::{Cluster, Written};
use super::order::{self, Desired};
use super::revisions::choose;
use super::wait::Waiter;
use super::{diff, wait};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;

/// How many times the write is tried if others write between the read and the write, as the controller does to the
/// status.
const TRIES: usize = 10;

/// Orders another template, or other values.
pub(super) async fn change(cluster: &Cluster, args: &ChangeArgs) -> Result<(), Failure> {
    if !args.order.is_given() {
        return Err(Failure::usage("nothing is to be changed")
            .hint("-f names another template, -p and --param-file give other values"));
    }
    let instance = there(cluster).await?;
    let order = order::given(cluster, &instance, &args.order).await?;
    match args.dry_run {
        true => diff::show(cluster, &instance, &order).await,
        false => carry_out(cluster, &instance, &order).await,
    }
}

/// Orders an earlier revision again, with all of its values.
pub(super) async fn rollback(cluster: &Cluster, args: &RollbackArgs) -> Result<(), Failure> {
    let instance = there(cluster).await?;
    let revisions = cluster.revisions(&instance).await?;
    let spec = &instance.data["spec"];
    let (revision, spec) = choose(&revisions, args.to_revision, spec, &cluster.subject())?;
    let number = revision.record.revision;
    if cluster.out.is_chatty() {
        cluster.out.note(&format!("{} becomes revision {number} again", cluster.subject()));
    }
    carry_out(cluster, &instance, &order::recorded(spec, &revision.record)).await
}

/// Reads the instance; fails if it is being deleted.
async fn there(cluster: &Cluster) -> Result<DynamicObject, Failure> {
    let instance = cluster.instance().await?;
    match instance.metadata.deletion_timestamp {
        None => Ok(instance),
        Some(_) => Err(Failure::missing(format!("{} is being deleted", cluster.subject()))),
    }
}

async fn carry_out(
    cluster: &Cluster,
    instance: &DynamicObject,
    order: &Desired,
) -> Result<(), Failure> {
    let secret = match order.has_values {
        true => Some(cluster.write_values(instance, &order.values).await?),
        false => None,
    };
    let changed = match write(cluster, instance, order, secret.as_deref()).await {
        Ok(changed) => changed,
        Err(failure) => {
            // Without an answer it may be what is ordered now.
            let is_answered = !matches!(failure.exit, Exit::Unreachable | Exit::BrokerFailed);
            if let Some(secret) = secret.filter(|_| is_answered) {
                cluster.forget_values(&secret).await;
            }
            return Err(failure);
        }
    };
    let ended = Waiter::new(cluster, &changed).wait().await?;
    cluster.ongoing.clear();
    wait::print(cluster, &ended)
}

/// Sends one patch of an instance that is as it was read; it is sent again if only the status was written since.
async fn write(
    cluster: &Cluster,
    instance: &DynamicObject,
    order: &Desired,
    secret: Option<&str>,
) -> Result<DynamicObject, Failure> {
    let secret = secret.map(|name| json!({ "name": name }));
    let mut changes = vec![("/spec/template", &order.template)];
    changes.extend(secret.as_ref().map(|secret| ("/spec/secret", secret)));
    let subject = cluster.subject();
    let mut read = instance.clone();
    for _ in 0..TRIES {
        let error = match cluster.patch(&read, &changes).await? {
            Written::Done(changed) => return Ok(*changed),
            Written::Refused(error) => error,
        };
        let again = there(cluster).await?;
        if again.metadata.resource_version == read.metadata.resource_version {
            return Err(refused(&subject, &error));
        }
        let same = again.metadata.uid == instance.metadata.uid
            && again.data["spec"] == instance.data["spec"];
        if !same {
            let message =
                format!("cannot change {subject}: somebody has changed it in the meantime");
            let hint = format!("look at what it is now: {}", cluster.command("history"));
            return Err(Failure::new(Exit::Refused, message).hint(hint));
        }
        read = again;
    }
    let message = format!("cannot change {subject}: somebody writes it all the time");
    Err(Failure::new(Exit::Refused, message).hint("try again"))
}

fn refused(subject: &str, error: &kube::Error) -> Failure {
    let failure = Failure::cluster(&format!("change {subject}"), error, None);
    match failure.message.contains("field is immutable") {
        true => failure.hint(
            "those may change an instance who may `assign` templateinstances; and, if the webhook is run with \
             --allow-changes, or deploy/templates/policy-changes is installed, whoever the instance was made for",
        ),
        false => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_change_what_is_ordered_is_told_who_may() {
        let of = |message: &str| {
            let status = json!({"code": 422, "message": message, "reason": "Invalid"});
            let error = kube::Error::Api(serde_json::from_value(status).unwrap());
            refused("TemplateInstance shop", &error)
        };
        let failure =
            of("TemplateInstance \"shop\" is invalid: spec: Forbidden: field is immutable");
        assert_eq!(failure.exit, Exit::Refused);
        let hint = failure.hint.unwrap_or_default();
        assert!(hint.contains("`assign`") && hint.contains("--allow-changes"), "{hint}");
        assert_eq!(of("spec.template: Required value").hint, None);
    }
}
