//! Adoption of instances and bindings that exist already: another broker made them, and this engine keeps them from now
//! on.

use std::sync::Arc;

use osb::{Action, Output};

use crate::engine::Engine;
use crate::ports::StoreError;
use crate::record::{Key, Made, OperationFailure, Ordered, Reason, Record};
use crate::transition::{self, Intent};

impl Engine {
    /// Records an instance or a binding that was ordered and made elsewhere, as if it had been made here just now: it
    /// can be fetched, bound, updated and deleted. Nothing is run for it. `made`: what was made, or why that failed:
    /// then it can only be deleted. `false`: there is a record or a tombstone of the key already, which stays as it is.
    ///
    /// # Errors
    /// If the store does not keep it.
    pub async fn adopt(
        &self,
        key: &Key,
        ordered: Ordered,
        made: Result<Made, String>,
    ) -> Result<bool, StoreError> {
        let (policy, now) = (&self.shared.policy, self.shared.clock.now());
        let action = key.binding().map_or(Action::Provision, |_| Action::Bind);
        let begun = transition::create(policy, key, None, ordered, Intent::new(action), now);
        let record = match made {
            Ok(made) => Record { made, ..transition::succeeded(&begun, &Output::default(), now) },
            Err(description) => {
                let failure = OperationFailure::new(Reason::Reported, description);
                transition::failed(&begun, failure, false, now)
            }
        };
        match self.shared.store.write(Arc::new(record), None).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
