//! Runs `/bin/broker` on this machine: the port [`Runner`](engine::ports::Runner) over processes.
//!
//! A run outlives the server that started it. Between the two stands a supervisor, a small process of
//! its own session, which is all that a run needs: it starts the broker, ends it when its time is over,
//! keeps what it printed, and is gone. Server and supervisor meet only in the run's directory, so a
//! server that was restarted is as good as the one that started the run.
//!
//! ```text
//! server ──order (stdin)──▶ supervisor ──command line, environment──▶ broker (own process group)
//!    ▲                        │  ▲ holds `lock` while it lives            │ stdout, in memory
//!    │                        ▼  └────────────────────────────────────────┘ stderr, capped
//!    └──────── <runs>/<name>/: run.json, started, cancel, stderr.log, exit.json, result (sealed)
//! ```
//!
//! What is there says where the run stands, and nothing else does (see `directory`):
//!
//! | lock | `started` | `result` | the run |
//! |---|---|---|---|
//! | free | no | no | was never started: may be started |
//! | held | any | no | goes on |
//! | any | yes | yes | ended |
//! | free | yes | no | is lost |
//!
//! `started` is created exclusively, under the lock and before the broker: at most one broker is ever
//! started for a name, whoever is killed at whichever instruction. Two servers, or a server and the
//! supervisor that an earlier one left behind, may race for it; one wins.
//!
//! Nothing secret is on disk but for `result`, which is sealed under a key that exists only in the memory
//! of server and supervisor. What broker and supervisor exchange while the run goes on, the broker's
//! working directory included, is in memory too where the machine has `/dev/shm`
//! ([`ProcessSettings::exchange`]); a broker that needs room has `TMPDIR`.
//!
//! What leaves the broker's process group on purpose (`setsid`, daemons) is not ended with it. On a
//! machine whose service manager kills the whole service on a restart (systemd's
//! `KillMode=control-group`), supervisors are ended too; `KillMode=process` lets them go on.

mod directory;
mod durable;
mod ending;
mod exchange;
mod identity;
mod launch;
mod lock;
mod log;
mod order;
mod refusal;
mod retention;
mod runner;
mod settings;
pub mod supervisor;

pub use runner::{ProcessRunner, has_runs};
pub use settings::{OpenError, ProcessSettings, RunnerKey};
