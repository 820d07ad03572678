//! Applies our definition again where somebody else's has replaced it.

use std::time::{Duration, Instant};

use engine::trigger::Run;

use super::Controller;
use super::api::key::Key;
use super::install::install;
use crate::calls::CallError;

/// How long after a definition was applied it is not applied again: the API server takes it up a moment later.
const MENDED: Duration = Duration::from_secs(10);

impl Controller {
    /// Checks that the end of a run was kept in the status. Under somebody else's definition an API server drops the
    /// members that it does not know, and the run would never be over; so ours is applied again, if that is configured.
    ///
    /// # Errors
    /// If the end was not kept: then it is to be written again.
    pub(super) async fn reinstall_unless_kept(
        &self,
        key: &Key,
        run: &Run,
    ) -> Result<(), CallError> {
        let known = self.table().get(key).and_then(|entry| entry.resource.clone());
        match known.is_none_or(|it| it.ended(run.id).is_some()) {
            true => Ok(()),
            false if self.settings.mends_definitions => {
                // If another task is applying them, this one does not wait: that may take long.
                if let Ok(mut mended) = self.mended.try_lock()
                    && mended.is_none_or(|at| at.elapsed() > MENDED)
                {
                    tracing::warn!(
                        "somebody else's definition is in the place of ours: ours is applied again"
                    );
                    let applied = install(self.client.clone()).await;
                    *mended = Some(Instant::now());
                    applied.map_err(|error| CallError::Hindered(error.to_string()))?;
                }
                Err(CallError::Hindered(format!(
                    "the definition of {} in this cluster was somebody else's: Manciple's is applied again, and \
                     then the end of the run is written again",
                    key.dialect.kind()
                )))
            }
            false => Err(CallError::Hindered(format!(
                "the definition of {} in this cluster is not Manciple's: what a status says of runs is not \
                 kept; apply it, `manciple crds`, or start with --apply-crd",
                key.dialect.kind()
            ))),
        }
    }
}
