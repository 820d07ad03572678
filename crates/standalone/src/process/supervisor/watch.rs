//! Watches a broker to its end.

use std::time::Duration;
use std::{io, mem};

use child::{NEVER, group};
use engine::contract::Exit;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Signals;
use super::broker::Broker;
use crate::process::directory::RunDirectory;
use crate::process::exchange::Exchange;
use crate::process::log::Log;
use crate::process::order::Order;

/// How long the pipes of a broker that has ended are read: what has left its process group may hold
/// them open for ever.
const DRAIN: Duration = Duration::from_millis(500);
/// How often the supervisor looks whether a process of the group is left.
const LOOK: Duration = Duration::from_millis(10);
/// The size of a read, in bytes: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// The end of a broker, and what it printed.
pub(super) struct Watched {
    pub(super) exit: Exit,
    pub(super) stdout: Vec<u8>,
    /// How many bytes were printed on stdout, kept or not.
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
}

impl Watched {
    /// The end of a broker that was not started.
    pub(super) fn never(exit: Exit) -> Self {
        Self { exit, stdout: Vec::new(), stdout_bytes: 0, stderr_bytes: 0 }
    }
}

impl Broker {
    /// Watches the broker until it has ended, by itself or by the supervisor, and nothing is left of its group.
    pub(super) async fn watch(
        &mut self,
        order: &Order,
        run: &RunDirectory,
        exchange: &Exchange,
        signals: &mut Signals,
        notes: &[String],
    ) -> io::Result<Watched> {
        let mut output = Output::of(self, order, exchange)?;
        for note in notes {
            output.log(format!("manciple: {note}\n").as_bytes());
        }
        let timeout = order.about.timeout;
        let deadline = Instant::now() + timeout.min(NEVER);
        let (mut ended_by_us, mut kill_at): (Option<Exit>, Option<Instant>) = (None, None);
        let status = loop {
            let goes_on = ended_by_us.is_none();
            let end = tokio::select! {
                biased;
                _ = signals.child.recv() => match group::reap(self.pid, Signal::TERM)? {
                    Some(status) => break status,
                    None => None,
                },
                Some(()) = signals.end.recv(), if goes_on => {
                    Some(if run.is_cancelled() { Exit::Halted } else { Exit::Stopped })
                }
                () = sleep_until(deadline), if goes_on => Some(Exit::TimedOut(timeout.as_secs())),
                () = sleep_until(kill_at.unwrap_or(deadline)), if kill_at.is_some() => {
                    group::signal(self.pid, Signal::KILL);
                    kill_at = None;
                    None
                }
                () = output.read() => {
                    let too_much = output.is_too_much() && goes_on;
                    too_much.then_some(Exit::TooMuchOutput(order.output_limit as u64))
                }
            };
            // One that has just ended by itself was not ended by us.
            if let Some(exit) = end
                && !group::has_ended(self.pid)?
            {
                group::ask_to_end(self.pid);
                ended_by_us = Some(exit);
                kill_at = Some(Instant::now() + order.grace.min(NEVER));
            }
        };
        let kill_at = match ended_by_us {
            Some(_) => kill_at.unwrap_or_else(Instant::now),
            None => Instant::now() + order.grace.min(NEVER),
        };
        end_leftovers(self.pid, kill_at, &mut output).await;
        let exit = match ended_by_us {
            Some(exit) => exit,
            None if output.is_too_much() => Exit::TooMuchOutput(order.output_limit as u64),
            None => group::exit_of(status),
        };
        Ok(output.into_watched(exit))
    }
}

/// The pipes of a broker, and what came through them.
struct Output {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    kept: Vec<u8>,
    limit: usize,
    printed: u64,
    log: Log,
    chunks: [Box<[u8]>; 2],
}

impl Output {
    fn of(broker: &mut Broker, order: &Order, exchange: &Exchange) -> io::Result<Self> {
        Ok(Self {
            stdout: broker.child.stdout.take().map(ChildStdout::from_std).transpose()?,
            stderr: broker.child.stderr.take().map(ChildStderr::from_std).transpose()?,
            kept: Vec::new(),
            limit: order.output_limit,
            printed: 0,
            log: Log::create(exchange.path(), order.log_limit)?,
            chunks: [vec![0; CHUNK].into(), vec![0; CHUNK].into()],
        })
    }

    /// Reads from whichever pipe has something; never returns when both are closed.
    async fn read(&mut self) {
        let [out, err] = &mut self.chunks;
        tokio::select! {
            read = read_some(&mut self.stdout, out) => {
                self.printed += read as u64;
                let fits = read.min(self.limit.saturating_sub(self.kept.len()));
                self.kept.extend_from_slice(&self.chunks[0][..fits]);
            }
            read = read_some(&mut self.stderr, err) => {
                // The broker's work does not fail for want of room for its log.
                let _ = self.log.write(&self.chunks[1][..read]);
            }
        }
    }

    /// Reads what is still in the pipes.
    async fn drain(&mut self) {
        let until = Instant::now() + DRAIN;
        while self.stdout.is_some() || self.stderr.is_some() {
            if timeout_at(until, self.read()).await.is_err() {
                return;
            }
        }
    }

    fn log(&mut self, line: &[u8]) {
        let _ = self.log.write(line);
    }

    fn is_too_much(&self) -> bool {
        self.printed > self.limit as u64
    }

    fn into_watched(mut self, exit: Exit) -> Watched {
        Watched {
            exit,
            stdout: mem::take(&mut self.kept),
            stdout_bytes: self.printed,
            stderr_bytes: self.log.printed,
        }
    }
}

/// Reads from a pipe, and drops it at its end; never returns without a pipe.
async fn read_some(pipe: &mut Option<impl AsyncRead + Unpin>, chunk: &mut [u8]) -> usize {
    match pipe {
        Some(open) => {
            let read = open.read(chunk).await.unwrap_or(0);
            if read == 0 {
                *pipe = None;
            }
            read
        }
        None => std::future::pending().await,
    }
}

/// Ends what is left of a broker's group, which was asked to end when the broker had: at `kill_at` it is killed.
async fn end_leftovers(broker: Pid, kill_at: Instant, output: &mut Output) {
    while group::is_left(broker) && Instant::now() < kill_at {
        let _ = timeout_at(Instant::now() + LOOK, output.read()).await;
    }
    if group::is_left(broker) {
        group::signal(broker, Signal::KILL);
    }
    output.drain().await;
    reap_group(broker).await;
}

/// Reaps the rest of the killed group for a while; processes that take longer are left to the system.
async fn reap_group(broker: Pid) {
    let until = Instant::now() + DRAIN;
    while Instant::now() < until && group::is_left(broker) {
        sleep(Duration::from_millis(2)).await;
    }
}
