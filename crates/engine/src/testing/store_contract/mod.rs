//! The contract suite of stores: what every [`Store`] must do, as named cases over the port alone.
//!
//! An adapter's test gives [`run`] a way to make new, empty [`Place`]s; every case gets one of its own
//! and may open it again, as a restart would.

mod keeping;
mod lists;
mod samples;
mod versions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::ports::Store;

pub use samples::{Lists, sample, sample_binding};

/// A place in which a store keeps its records.
#[async_trait]
pub trait Place: Send + Sync + 'static {
    /// Opens the store of this place; it is empty the first time. A caller that opens it again has dropped the former
    /// store, and finds all that it acknowledged.
    async fn open(&self) -> Arc<dyn Store>;
}

type Case = fn(Box<dyn Place>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($subject:ident: $($name:ident),+;)+) => {
        const CASES: &[(&str, Case)] =
            &[$($((stringify!($name), |place| Box::pin($subject::$name(place)))),+),+];
    };
}

cases! {
    keeping:
        a_record_reads_as_it_was_written,
        what_was_never_written_is_not_there,
        how_an_operation_stands_is_in_the_public_part,
        instances_and_bindings_of_one_id_are_apart,
        the_catalog_is_the_last_saved,
        a_write_is_seen_by_whatever_begins_after_it,
        large_records_are_kept_whole,
        a_dropped_write_happens_whole_or_not_at_all,
        everything_survives_a_restart;
    versions:
        creating_twice_conflicts,
        of_concurrent_creations_one_wins,
        a_stale_version_conflicts_and_changes_nothing,
        a_version_fits_only_its_record,
        versions_that_were_never_given_conflict,
        what_is_removed_is_gone,
        what_is_recalled_is_as_it_is,
        a_stale_removal_conflicts_and_removes_nothing,
        a_version_never_comes_back_after_a_removal,
        a_version_never_comes_back_after_a_restart,
        concurrent_increments_lose_none;
    lists:
        hostile_ids_are_ids_like_others,
        pages_hold_everything_once_and_in_order,
        a_page_begins_after_any_key,
        filters_select,
        lists_of_one_instance_hold_no_others,
        busy_is_what_has_an_operation_in_progress,
        plans_in_use_are_those_of_live_records_once;
}

/// Runs all cases, each on a place of its own. Needs a runtime with more than one thread.
///
/// # Panics
/// If a case fails; names all that did.
pub async fn run<P: Place>(new_place: impl Fn() -> P) {
    let mut failed = Vec::new();
    for (name, case) in CASES {
        if tokio::spawn(case(Box::new(new_place()))).await.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "the store breaks its contract: {failed:?}");
}
