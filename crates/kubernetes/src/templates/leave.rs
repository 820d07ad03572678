//! Takes care of objects that were just made when another controller leads by now, or their instance is gone: perhaps
//! nobody else knows of them.
//!
//! A call that was not answered may make one even later, so what was to be made is looked for again:
//! [`orphaned_records`](super::orphaned_records).

use std::collections::HashSet;

use super::Controller;
use super::plan::Planned;
use super::remove::{LOOK, Left, is_orphaned};
use super::resource::Instance;
use super::status::Made;
use super::trouble::Trouble;

/// How often the removal of objects of a vanished instance is tried.
const UNDOES: u32 = 20;

impl Controller {
    /// Takes care of objects that were just made, when another controller leads by now, or the instance is gone. If the
    /// instance is being deleted, or is gone, they are removed too; those of the plan that come later are looked for.
    pub(super) async fn leave(&self, instance: &Instance, made: Vec<Made>, plan: &[Planned]) {
        for _ in 0..UNDOES {
            if let Ok(is_there) = self.refresh(&instance.key).await {
                let known = self.table().instance(&instance.key);
                if !is_there {
                    self.note_stray(instance, plan);
                    return self.undo(instance, made).await;
                }
                match self.goes_with_all(known.as_deref()).await {
                    Ok(true) => {
                        self.note_stray(instance, plan);
                        return self.take_back(instance, made).await;
                    }
                    Ok(false) => return,
                    Err(_) => {}
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        let name = &*instance.key.name;
        tracing::error!(
            name,
            "whether an instance is gone is not known; if so, these may be left: {made:?}"
        );
    }

    /// Whether an instance is being deleted together with its objects.
    async fn goes_with_all(&self, known: Option<&Instance>) -> Result<bool, Trouble> {
        let Some(known) = known.filter(|known| known.deleting) else { return Ok(false) };
        match self.read_record(&known.key).await {
            Ok(record) => Ok(!is_orphaned(known, record.as_deref())),
            // As in [`Controller::remove`].
            Err(Trouble::Final(_)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Removes the objects without an owner that were made while their instance vanished. The record stays until the
    /// leader looks for orphaned records, when no further object can come.
    pub(super) async fn undo(&self, instance: &Instance, made: Vec<Made>) {
        self.take_back(instance, made).await;
        self.strays.news.notify_one();
    }

    /// Removes those of the objects that have no owner. Objects in the status are left out: whoever removes the
    /// instance knows them.
    async fn take_back(&self, instance: &Instance, made: Vec<Made>) {
        let said = instance.objects().iter().filter_map(Made::of);
        let said: HashSet<String> = said.map(|it| it.uid).collect();
        let is_left =
            |it: &Made| it.namespace != *instance.key.namespace && !said.contains(&it.uid);
        let left: Vec<Made> = made.into_iter().filter(is_left).collect();
        let Some(requester) = instance.requester().ok().filter(|_| !left.is_empty()) else {
            return;
        };
        let client = requester.client(&self.client, &instance.key.namespace);
        let mut removed = Ok(Left::Nothing);
        for _ in 0..UNDOES {
            removed = self.remove_all(&instance.key, &client, &left).await;
            if removed == Ok(Left::Nothing) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        // Deleted objects go, however slowly.
        if removed.is_ok() {
            return;
        }
        let name = &*instance.key.name;
        tracing::error!(name, "objects of an instance that is gone may be left: {left:?}");
    }
}
