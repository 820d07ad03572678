//! The supervisor, the process beside a broker: it starts the broker, ends it when its time is over, keeps what it
//! printed, and ends.
//!
//! ```text
//! order ─▶ lock ─▶ go ─▶ claim ─▶ start the broker ─▶ answer ─▶ watch ─▶ log, exit, result ─▶ end
//!           │ taken │ never │ taken    │ refused: give the claim back
//! ```
//!
//! It is a process of one thread, in a session of its own, with no file of the server's open, so that the
//! end of the server does not affect it. It works in the run's directory, and so finds it again
//! when the data directory was moved meanwhile. SIGTERM asks it to end the broker and to write down how
//! that ended.

mod broker;
mod watch;

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use engine::contract::{self, Exit};
use engine::redact::{Redactor, Secrets};
use osb::jobs::contract::{Capability, MAX_STATE_BYTES};
use rustix::process::{
    DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior, setsid,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

use self::watch::Watched;
use super::directory::{ExitNote, RunDirectory};
use super::durable;
use super::ending::{Bytes, Ending};
use super::exchange::Exchange;
use super::identity::Identity;
use super::log;
use super::order::{GO, Order, Reply};
use super::refusal::Refusal;

/// How much of the log goes into the result, for descriptions.
const RESULT_LOG_BYTES: usize = 8 * 1024;
/// The first pause before a result is written again that the disk did not take; it doubles each time.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest such pause: once there is room, nobody waits much longer.
const LONGEST: Duration = Duration::from_secs(10);

/// Supervises the run of a directory. The order is read from stdin, the answer written to stdout; to
/// be called by the program of [`ProcessSettings::supervisor`](super::ProcessSettings::supervisor).
pub fn main(run_dir: &Path) -> ExitCode {
    // The key is in our memory: no core dumps, no debugger of the same user.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let supervised = runtime
        .and_then(|runtime| runtime.block_on(Box::pin(supervise(&RunDirectory::at(run_dir)))));
    match supervised {
        Ok(()) => ExitCode::SUCCESS,
        // A server is told if it is still there and has had no answer yet.
        Err(error) => {
            reply(&Reply::Refused(Refusal::of(run_dir.display(), &error)));
            ExitCode::FAILURE
        }
    }
}

/// Reads the order. A server that is killed while it writes leaves half an order, which is an error.
fn read_order(server: &mut impl BufRead) -> io::Result<Order> {
    let mut order = Zeroizing::new(String::new());
    server.read_line(&mut order)?;
    Ok(serde_json::from_str(&order)?)
}

/// Whether the server sent [`GO`](super::order::GO) before it ended.
fn hears_go(server: &mut impl BufRead) -> bool {
    let mut line = String::new();
    server.read_line(&mut line).is_ok() && line == GO
}

/// Sends an answer to the server, if it is still there.
fn reply(reply: &Reply) {
    let Ok(mut line) = serde_json::to_vec(reply) else { return };
    line.push(b'\n');
    let mut stdout = io::stdout();
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
}

/// The signals that the supervisor catches. They are caught before the lock is taken: a process that sees it held may
/// send them.
struct Signals {
    /// SIGTERM: somebody asks for the end.
    end: Signal,
    /// SIGCHLD: a child has ended.
    child: Signal,
}

async fn supervise(run: &RunDirectory) -> io::Result<()> {
    // Fails only for the leader of a process group, which is as good if it leads a session, too.
    let _ = setsid();
    // What the broker leaves behind becomes ours to reap rather than the server's, should that be the
    // first process of a container.
    let _ = set_child_subreaper(Some(getpid()));
    std::env::set_current_dir(run.path())?;
    let run = &RunDirectory::at(".");
    let mut signals =
        Signals { end: signal(SignalKind::terminate())?, child: signal(SignalKind::child())? };
    let mut server = io::stdin().lock();
    let order = read_order(&mut server)?;
    let Some(lock) = run.lock()?.filter(|_| !run.is_claimed()) else {
        reply(&Reply::Taken);
        return Ok(());
    };
    reply(&Reply::Ready);
    if !hears_go(&mut server) {
        return Ok(());
    }
    run.write_about(&order.about)?;
    // Where that is not to be known, as without the whole of /proc, one that is killed just now leaves its broker.
    if !run.claim(Identity::of_session().ok().as_ref())? {
        reply(&Reply::Taken);
        return Ok(());
    }
    let exchange = Exchange::at(&order.exchange);
    let started = match run.is_cancelled() {
        true => Ok(None),
        false => broker::start(&order, &exchange).map(Some),
    };
    let (watched, secrets) = match started {
        Ok(Some((mut broker, given))) => {
            // Without it, the session that was noted with the claim is where the broker is found.
            let _ = run.write_broker(broker.identity().ok().as_ref());
            reply(&Reply::Started);
            let watched = broker.watch(&order, run, &exchange, &mut signals, &given.notes).await?;
            (watched, given.secrets)
        }
        Ok(None) => {
            reply(&Reply::Started);
            (Watched::never(Exit::Halted), Secrets::default())
        }
        Err(refusal) => {
            let _ = exchange.remove();
            run.unclaim()?;
            // Whoever hears of it finds nothing.
            drop(lock);
            reply(&Reply::Refused(refusal));
            return Ok(());
        }
    };
    finish(run, &order, &exchange, watched, secrets).await
}

/// Writes down the end of the run. The result comes last: once it is there, so is everything else.
async fn finish(
    run: &RunDirectory,
    order: &Order,
    exchange: &Exchange,
    watched: Watched,
    mut secrets: Secrets,
) -> io::Result<()> {
    let state = match order.about.can(Capability::State) {
        true => durable::read(&exchange.state_out(), MAX_STATE_BYTES + 1).unwrap_or_default(),
        false => None,
    };
    secrets.extend(contract::secrets::of_output(&watched.stdout));
    if let Some(state) = &state {
        secrets.add(state);
    }
    let printed = Some(watched.stderr_bytes);
    let redactor = Redactor::new(&secrets);
    let log = log::read(exchange.path(), order.log_limit, printed, &redactor);
    let log = log.unwrap_or_else(|error| format!("[the log cannot be read: {error}]\n"));
    let note = ExitNote {
        exit: watched.exit,
        ended_at: child::seconds_since_1970(),
        stdout_bytes: watched.stdout_bytes,
        stderr_bytes: watched.stderr_bytes,
    };
    // On a full disk the result is worth more than what is for people.
    let _ = run.write_log(&log);
    let _ = run.write_exit(&note);
    let ending = Ending {
        exit: watched.exit,
        stdout: Bytes(watched.stdout),
        log: child::text::end(&log, RESULT_LOG_BYTES).to_owned(),
        state: state.map(Bytes),
        secrets: match order.about.capabilities.is_empty() {
            true => Vec::new(),
            false => Ending::keep(&secrets),
        },
    };
    let Some(sealed) = ending.seal(&order.key, &order.about.name) else {
        return Err(io::Error::other("the result cannot be sealed"));
    };
    let kept = keep(run, &sealed).await;
    // It holds secrets, and nobody comes for it any more.
    let _ = exchange.remove();
    kept
}

/// Writes the result, and tries again for as long as the disk does not take it: what the broker has made, credentials
/// among it, is known nowhere else. It gives up if the run's directory is gone, for then nobody reads the result.
async fn keep(run: &RunDirectory, sealed: &[u8]) -> io::Result<()> {
    let mut failures = 0;
    while let Err(error) = run.write_result(sealed) {
        // A limit of file sizes is this process's own: no time mends it, and a run that is lost is told at least.
        if run.is_absent() || error.kind() == io::ErrorKind::FileTooLarge {
            return Err(error);
        }
        failures += 1;
        tokio::time::sleep(pause(failures)).await;
    }
    Ok(())
}

/// The pause after `failures` failures, at least one.
fn pause(failures: u32) -> Duration {
    AGAIN.saturating_mul(1 << failures.min(8).saturating_sub(1)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_the_disk_does_not_take_is_written_again_ever_more_seldom_up_to_a_limit() {
        for (case, failures, expected) in [
            ("at first", 1, 1),
            ("again", 2, 2),
            ("and again", 3, 4),
            ("for a while", 4, 8),
            ("for longer", 5, 10),
            ("for an hour", 360, 10),
            ("for ever", u32::MAX, 10),
        ] {
            assert_eq!(pause(failures), Duration::from_secs(expected), "{case}");
        }
    }
}
