//! Waits for the end of a change of an instance, and shows its progress.

use std::time::{Duration, Instant};

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::cli::cluster::{Away, pause};
use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::one_line;
use crate::cli::progress::Progress;
use crate::cli::times;

/// How long a change may stand before the user is told that no controller takes it up. A controller that is there does
/// so at once; replicas change places in some 15 s.
const UNTAKEN: Duration = Duration::from_secs(20);

/// The state of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    /// No controller has taken the change up.
    Untaken,
    /// The change goes on, with what the controller says.
    Going(String),
    /// The instance is what was ordered.
    Done,
    /// The instance did not become what was ordered, for this reason.
    Failed(String),
}

/// The state of the change that made this generation of an instance.
fn stand(instance: &Value, generation: i64) -> Stand {
    let status = &instance["status"];
    let is_reached = |count: &Value| count.as_i64().is_some_and(|count| count >= generation);
    let condition = |of: &str| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().find(|it| it["type"] == of)
    };
    let message =
        |it: &Value| one_line(it["message"].as_str().unwrap_or_default()).trim().to_owned();
    let holds = |of: &str| condition(of).filter(|it| it["status"] == "True");
    if is_reached(&status["observedGeneration"]) {
        if let Some(failure) = holds("InstantiateFailure") {
            return Stand::Failed(message(failure));
        }
        if holds("Ready").is_some() {
            return Stand::Done;
        }
    } else if !is_reached(&status["change"]["generation"]) {
        // What cannot be begun is said before it is taken up.
        let retries = condition("Ready").filter(|it| it["reason"] == "Retrying");
        return retries.map_or(Stand::Untaken, |it| Stand::Going(message(it)));
    }
    let ready = condition("Ready");
    let words = ready.map(message).filter(|words| !words.is_empty());
    Stand::Going(words.unwrap_or_else(|| "its objects are being changed".to_owned()))
}

/// A waiter for the end of a change.
pub(super) struct Waiter<'c> {
    cluster: &'c Cluster,
    uid: Option<String>,
    generation: i64,
    progress: Progress,
    started: Instant,
    away: Away,
    /// Whether the user was told that no controller takes the change up.
    hinted: bool,
}

impl<'c> Waiter<'c> {
    /// A waiter for the change of an instance, given as the API server returned it.
    pub(super) fn new(cluster: &'c Cluster, changed: &DynamicObject) -> Self {
        let what = format!("change of {}", cluster.subject());
        cluster.ongoing.set(what.clone(), cluster.command("history"));
        Self {
            cluster,
            uid: changed.metadata.uid.clone(),
            generation: changed.metadata.generation.unwrap_or_default(),
            progress: Progress::new(&what, cluster.out, "ordered"),
            started: Instant::now(),
            away: Away::default(),
            hinted: false,
        }
    }

    /// Waits until the instance is what was ordered, and returns it.
    ///
    /// # Errors
    /// If the change fails: with the controller's words.
    pub(super) async fn wait(mut self) -> Result<DynamicObject, Failure> {
        loop {
            match self.cluster.instance().await {
                Ok(instance) => {
                    self.away.answered_again();
                    if self.look(&instance)? {
                        return Ok(instance);
                    }
                }
                Err(failure) if failure.exit == Exit::Missing => return Err(self.deleted()),
                Err(failure) => {
                    let hint = format!("it may go on; {}", self.follow());
                    self.progress.tell(&self.away.bear(failure, &hint)?);
                }
            }
            match pause(self.started.elapsed(), self.cluster.patience) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(self.impatient()),
            }
        }
    }

    /// Looks at the instance; returns whether it is what was ordered.
    fn look(&mut self, instance: &DynamicObject) -> Result<bool, Failure> {
        if instance.metadata.uid != self.uid || instance.metadata.deletion_timestamp.is_some() {
            return Err(self.deleted());
        }
        match stand(&instance.data, self.generation) {
            Stand::Done => return Ok(true),
            Stand::Failed(why) => return Err(self.failed(&why)),
            Stand::Going(words) => self.progress.tell(&words),
            Stand::Untaken if self.started.elapsed() > UNTAKEN => self.untaken(),
            Stand::Untaken => {}
        }
        Ok(false)
    }

    /// Says once that no controller seems to be there.
    fn untaken(&mut self) {
        self.progress.tell("nothing has taken it up yet");
        if !std::mem::replace(&mut self.hinted, true) {
            self.progress.hint(&format!(
                "no controller seems to make the TemplateInstances of namespace {}: is one running?",
                self.cluster.namespace
            ));
        }
    }

    fn failed(&self, why: &str) -> Failure {
        let message = format!("the change of {} failed: {why}", self.cluster.subject());
        let hint = format!("have it be again what it was: {}", self.cluster.command("rollback"));
        Failure::new(Exit::OperationFailed, message).hint(hint)
    }

    fn deleted(&self) -> Failure {
        let subject = self.cluster.subject();
        Failure::missing(format!("{subject} was deleted while its change was waited for"))
    }

    fn impatient(&self) -> Failure {
        let after = times::span(self.cluster.patience.unwrap_or_default());
        let subject = self.cluster.subject();
        let message = format!("the change of {subject} did not end within {after}");
        Failure::new(Exit::Unfinished, message).hint(format!("it goes on; {}", self.follow()))
    }

    fn follow(&self) -> String {
        format!("look at it: {}", self.cluster.command("history"))
    }
}

/// Prints the state of an instance now.
pub(super) fn print(cluster: &Cluster, instance: &DynamicObject) -> Result<(), Failure> {
    let look = format!("what has become of it: {}", cluster.command("history"));
    // Given again, the command would change it again.
    tell(cluster, instance).map_err(|failure| failure.hint(&look))?;
    cluster.out.hint(&look);
    Ok(())
}

fn tell(cluster: &Cluster, instance: &DynamicObject) -> Result<(), Failure> {
    let (out, status) = (cluster.out, &instance.data["status"]);
    // One that was never changed does not say which it is.
    let revision = status["revision"].as_u64().unwrap_or(1);
    let objects = status["objects"].as_array().map_or(0, Vec::len);
    if out.is_json() {
        return out.json(&json!({
            "kind": "TemplateInstance", "namespace": cluster.namespace, "name": cluster.name,
            "state": "ready", "revision": revision, "objects": objects,
        }));
    }
    if out.quiet {
        return out.line(&revision.to_string());
    }
    out.fields(vec![
        ("Instance", Some(cluster.name.clone())),
        ("Revision", Some(revision.to_string())),
        ("Objects", Some(objects.to_string())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_when_what_was_ordered_is_observed() {
        let ready = |status: &str, reason: &str, message: &str| json!({"type": "Ready", "status": status, "reason": reason, "message": message});
        let failure = |status: &str, message: &str| json!({"type": "InstantiateFailure", "status": status, "message": message});
        let going = |words: &str| Stand::Going(words.to_owned());
        for (case, observed, change, conditions, expected) in [
            ("as before", 1, None, vec![ready("True", "Created", "")], Stand::Untaken),
            ("failed before", 1, None, vec![failure("True", "old")], Stand::Untaken),
            (
                "cannot begin",
                1,
                None,
                vec![ready("False", "Retrying", "no\nSecret")],
                going("no Secret"),
            ),
            (
                "taken up",
                1,
                Some(2),
                vec![ready("False", "Changing", "")],
                going("its objects are being changed"),
            ),
            ("waits", 2, Some(2), vec![ready("False", "Waiting", "for a")], going("for a")),
            (
                "done",
                2,
                None,
                vec![ready("True", "Created", ""), failure("False", "")],
                Stand::Done,
            ),
            (
                "failed",
                2,
                None,
                vec![ready("False", "Failed", "why"), failure("True", "why")],
                Stand::Failed("why".to_owned()),
            ),
            ("changed again since", 3, None, vec![ready("True", "Created", "")], Stand::Done),
            ("nothing is known", 0, None, vec![], Stand::Untaken),
        ] {
            let mut status = json!({"observedGeneration": observed, "conditions": conditions});
            if let Some(generation) = change {
                status["change"] = json!({ "generation": generation });
            }
            assert_eq!(stand(&json!({ "status": status }), 2), expected, "{case}");
        }
    }
}
