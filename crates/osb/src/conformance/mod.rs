//! The conformance suite: checks any broker against the specification, from outside.
//!
//! ```text
//! catalog ──▶ requests that must be refused ──▶ one instance's life ──▶ its bindings' ──▶ their end
//!    every answer on the way is looked at for what holds of all answers
//! ```
//!
//! Every check has a name and the number of an item of the project's acceptance list; [`CHECKS`] lists
//! them. What cannot be checked at a broker (it is synchronous, has one plan, binds nothing) is
//! skipped, with the reason. The suite makes up to three instances at a time, more where a broker accepts
//! what it should refuse, and deletes whatever it made.
//!
//! A report repeats what a broker says in its errors, and no parameter, credential or body.
//!
//! ```no_run
//! use osb::client::{Auth, Client, ClientSettings};
//! use osb::conformance::{self, Level, Options};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let password = std::env::var("PASSWORD")?.into();
//!     let auth = Auth::Basic { user: "admin".to_owned(), password };
//!     let settings = ClientSettings { auth, ..ClientSettings::new("http://127.0.0.1:8080") };
//!     let options = Options { allow_mutation: true, ..Options::default() };
//!     let report = conformance::run(&Client::new(settings)?, options).await;
//!     println!("{report}");
//!     if report.conforms(Level::Must) { Ok(()) } else { Err("it does not conform".into()) }
//! }
//! ```

mod basics;
mod binding;
mod catalog;
mod checks;
mod chosen;
mod instance;
mod message;
mod observe;
mod probe;
mod refusals;
mod removal;
mod report;

use std::future::{self, Future};
use std::pin::pin;
use std::task::Poll;

use crate::client::{Client, Polling};
use crate::model::{Object, Sensitive};

pub use checks::CHECKS;
pub use report::{Check, CheckResult, Level, Report, Verdict};

/// The options of a run of the suite.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The service, by id or name; at first the first one that has a bindable plan.
    pub service: Option<String>,
    /// Its plan, by id or name; at first the first bindable one.
    pub plan: Option<String>,
    /// Parameters that provision an instance.
    pub parameters: Option<Sensitive<Object>>,
    /// Parameters that violate the plan's schema.
    pub invalid_parameters: Option<Sensitive<Object>>,
    /// Parameters that update an instance; at first those that provision one.
    pub update_parameters: Option<Sensitive<Object>>,
    /// Parameters with which an update fails, at once or later.
    pub failing_update_parameters: Option<Sensitive<Object>>,
    /// A plan to change to, by id or name; at first the plan is not changed.
    pub update_plan: Option<String>,
    /// Parameters that make a binding.
    pub binding_parameters: Option<Sensitive<Object>>,
    /// Whether instances and bindings may be made. Without, only reading requests are sent.
    pub allow_mutation: bool,
    /// How to poll operations.
    pub polling: Polling,
}

/// Runs every check that the options allow. `client` says where the broker is and how to authenticate.
///
/// Whoever drops the future leaves at the broker what was made by then: see [`run_until`].
pub async fn run(client: &Client, options: Options) -> Report {
    run_until(client, options, future::pending()).await
}

/// As [`run`], but ends early once `stop` is ready: as soon as the request is answered that is under way, for it may make
/// something. What was made is removed, and the report says that it is not whole.
pub async fn run_until(
    client: &Client,
    options: Options,
    stop: impl Future<Output = ()>,
) -> Report {
    let mut probe = probe::Probe::new(client, options);
    let turn = probe.turn();
    let is_whole = {
        let (mut work, mut stop) = (pin!(check_all(&mut probe)), pin!(stop));
        future::poll_fn(|context| {
            if !turn.is_stopped() && stop.as_mut().poll(context).is_ready() {
                turn.stop();
            }
            match work.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending if turn.is_over() => Poll::Ready(false),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    };
    if !is_whole {
        probe.stopped();
        probe.clean_up().await;
    }
    probe.into_report()
}

async fn check_all(probe: &mut probe::Probe<'_>) {
    catalog::check(probe).await;
    basics::check(probe).await;
    if probe.options.allow_mutation && probe.chosen.is_some() {
        basics::check_bodies(probe).await;
        refusals::check(probe, refusals::PROVISION).await;
        if let Some(instance) = instance::check(probe).await {
            binding::check(probe, &instance).await;
            removal::check(probe, &instance).await;
            removal::check_bound(probe).await;
        }
        removal::check_unlisted(probe).await;
        instance::check_early_end(probe).await;
        probe.clean_up().await;
        instance::check_plan_change(probe).await;
    } else if !probe.options.allow_mutation {
        probe.reason = "instances may not be made".to_owned();
    }
}

#[cfg(test)]
mod tests;
