//! Runs the broker of an order.
//!
//! ```text
//! order ─▶ claim ─▶ given, configuration ─▶ start ─▶ watch ─▶ interpret ─▶ report, sealed
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agent::{Answer, EXCHANGE_DIRECTORY, GIVEN_DIRECTORY, ORDER_VARIABLE, Order, Report};
use child::exchange::ExchangeDirectory;
use child::{seconds_since_1970, text};
use engine::contract::{self, Ended, Exit};
use engine::ports::RunFailure;
use engine::record::Reason;
use engine::redact::{Redactor, Secrets};
use osb::jobs::contract::{Capability, MAX_STATE_BYTES};
use osb::{Action, Failure};
use rustix::process::{getpid, set_child_subreaper};

use crate::broker::{self, Configuration};
use crate::given::Given;
use crate::log::Log;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::told::told;
use crate::watch::{Watched, watch};
use crate::{beside, deliver, hide_memory};

/// How many bytes of a log are considered for a report.
const REPORT_LOG_BYTES: usize = 8 * 1024;
/// How many notes go into a report.
const MAX_NOTES: usize = 10;
/// The token of the pod's account, where pods have one.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Runs the broker and delivers its report.
pub(crate) fn run() -> ExitCode {
    hide_memory();
    // Outside of a container orphans would go to somebody else.
    let _ = set_child_subreaper(Some(getpid()));
    let prepared = Signals::catch()
        .map_err(|error| format!("signals cannot be caught: {error}"))
        .and_then(|signals| Ok((signals, told(ORDER_VARIABLE, "order")?, directory()?)));
    let (mut signals, order, directory) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return deliver::broken(&why),
    };
    let report = ran(&order, &directory, &mut signals);
    deliver::deliver(&order, report.unwrap_or_else(|failure| Report::failed(&order, failure)))
}

/// The directory in which the agent was installed.
fn directory() -> Result<PathBuf, String> {
    let agent = std::env::current_exe();
    let agent = agent.map_err(|error| format!("where the agent is cannot be seen: {error}"))?;
    Ok(agent.parent().map(PathBuf::from).unwrap_or_default())
}

fn ran(order: &Order, directory: &Path, signals: &mut Signals) -> Result<Report, RunFailure> {
    let exchange = order.exchange.clone().unwrap_or_else(|| directory.join(EXCHANGE_DIRECTORY));
    let exchange = broker::make_exchange(exchange)?;
    let given = Given::take(order, &directory.join(GIVEN_DIRECTORY))?;
    let configuration = Configuration::read(order)?;
    let mut secrets = given.secrets();
    configuration.secret.values.iter().for_each(|value| secrets.add(value));
    secrets.extend(beside::secrets(order));
    // There only where the operator has asked for it.
    std::fs::read(TOKEN).into_iter().for_each(|token| secrets.add(&token));
    let mut log = Log::new(order.log_limit, live(order, &secrets));
    configuration.notes().for_each(|note| log.write(format!("manciple: {note}\n").as_bytes()));
    let notes = configuration.notes().take(MAX_NOTES).cloned().collect();

    let watched = match signals.end() {
        true => Watched { exit: Exit::Halted, stdout: Vec::new(), log },
        false => {
            let deadline = seconds_since_1970().saturating_add(order.timeout.as_secs());
            let mut broker = broker::start(order, given, &configuration, &exchange, deadline)?;
            drop(configuration);
            let progress = order
                .can(Capability::Progress)
                .then(|| Progress::watch(order, exchange.progress(), Redactor::new(&secrets)));
            let watched = watch(&mut broker, order, signals, log, progress);
            watched.map_err(|error| {
                RunFailure::new(
                    Reason::Lost,
                    Failure::failed(format!("the broker could not be watched: {error}")),
                )
            })?
        }
    };
    let (answer, log) = interpret(order, &exchange, watched, secrets);
    Ok(Report { run: order.run.clone(), answer, log, notes })
}

/// The redactor for showing the log as it comes; none for a run that can make secrets, which its broker may print
/// before they are known.
fn live(order: &Order, secrets: &Secrets) -> Option<Redactor> {
    // A catalog may have those of dashboards.
    let makes_secrets =
        matches!(order.action, None | Some(Action::Bind)) || order.can(Capability::State);
    (!makes_secrets).then(|| Redactor::new(secrets))
}

fn interpret(
    order: &Order,
    exchange: &ExchangeDirectory,
    watched: Watched,
    mut secrets: Secrets,
) -> (Answer, String) {
    let state = match order.can(Capability::State) {
        true => child::files::read(&exchange.state_out(), MAX_STATE_BYTES + 1).unwrap_or_default(),
        false => None,
    };
    secrets.extend(contract::secrets::of_output(&watched.stdout));
    state.iter().for_each(|state| secrets.add(state));
    let redactor = Redactor::new(&secrets);
    let log = watched.log.end(&redactor);
    let log = text::end(&log, REPORT_LOG_BYTES);
    let ended = Ended {
        exit: watched.exit,
        stdout: &watched.stdout,
        log,
        state: state.as_deref(),
        redactor: &redactor,
    };
    let answer = match order.action {
        Some(_) => Answer::Work(contract::interpret(&order.asked(), &ended)),
        None => Answer::Offer(contract::offer(&ended)),
    };
    (answer, log.to_owned())
}
