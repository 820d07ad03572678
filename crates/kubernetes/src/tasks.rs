//! A set of tasks, each with a key that is returned when the task ends: a task that panicked cannot report that itself.

use std::collections::HashMap;

use tokio::task::{Id, JoinError, JoinSet};

/// The running tasks, each for a key `K`. They are aborted when this is dropped.
pub(crate) struct Tasks<K, T> {
    going: JoinSet<T>,
    of: HashMap<Id, K>,
}

impl<K, T> Default for Tasks<K, T> {
    fn default() -> Self {
        Self { going: JoinSet::new(), of: HashMap::new() }
    }
}

impl<K, T: Send + 'static> Tasks<K, T> {
    pub(crate) fn begin(&mut self, key: K, task: impl Future<Output = T> + Send + 'static) {
        let id = self.going.spawn(task).id();
        self.of.insert(id, key);
    }

    /// How many tasks are running.
    pub(crate) fn len(&self) -> usize {
        self.going.len()
    }

    /// Waits for the next task that ends; `None` if none is running. Dropping the future loses no result.
    pub(crate) async fn next(&mut self) -> Option<(K, Result<T, JoinError>)> {
        let (id, ended) = match self.going.join_next_with_id().await? {
            Ok((id, ended)) => (id, Ok(ended)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.of.remove(&id)?, ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_panicked_has_ended_like_others_and_it_is_known_what_it_was_for() {
        let mut tasks = Tasks::default();
        tasks.begin("answers", async { true });
        tasks.begin("panics", async { panic!("planted") });
        tasks.begin("refuses", async { false });
        let mut ended = Vec::new();
        while let Some((key, answer)) = tasks.next().await {
            ended.push((key, answer.ok()));
        }
        ended.sort();
        let expected = [("answers", Some(true)), ("panics", None), ("refuses", Some(false))];
        assert_eq!(ended, expected);
        assert!(tasks.of.is_empty(), "none is remembered");
    }
}
