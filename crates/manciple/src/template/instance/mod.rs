//! `manciple template instance`: works with the instances of templates on a cluster, with the user's own kubeconfig.
//!
//! ```text
//! args ─▶ cluster ─▶ revisions (what the record keeps) ─▶ history
//!            │             └─▶ order (template, values) ─▶ change, rollback: a Secret, one patch ─▶ wait
//!            └─▶ preview (dry runs) ◀──────┘ ─▶ diff
//! ```
//!
//! The controller is not asked: what it knows it has written to the instance and to the Secret beside it. No value of a
//! parameter is printed.

mod args;
mod change;
mod cluster;
mod diff;
mod history;
mod order;
mod revisions;
mod wait;

pub(crate) use args::InstanceArgs;
use args::InstanceCommand;
use cluster::Cluster;

use crate::cli::failure::Failure;
use crate::cli::{Ongoing, RemoteArgs};

/// Carries out the command; `remote` says how to print.
pub(super) async fn perform(
    args: InstanceArgs,
    remote: &RemoteArgs,
    ongoing: Ongoing,
) -> Result<(), Failure> {
    let open = |name, cluster| Cluster::open(name, cluster, remote, ongoing);
    match args.command {
        InstanceCommand::History(on) => history::print(&open(on.name, &on.cluster).await?).await,
        InstanceCommand::Diff(on) => {
            diff::print(&open(on.name, &on.cluster).await?, &on.args).await
        }
        InstanceCommand::Change(on) => {
            change::change(&open(on.name, &on.cluster).await?, &on.args).await
        }
        InstanceCommand::Rollback(on) => {
            change::rollback(&open(on.name, &on.cluster).await?, &on.args).await
        }
    }
}
