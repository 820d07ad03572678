//! The agent: it runs a `/bin/broker` in a pod and delivers its result sealed, without network or token, and with
//! nothing to read for those who may look at pods and logs.
//!
//! ```text
//! controller                      pod
//!  Order::of ──▶ MANCIPLE_ORDER ──▶ manciple-agent run ──▶ /bin/broker
//!            ──▶ Secret ──install──▶ given/, unlinked         │ stdout, stderr, state
//!  Report ◀── Sealed::open ◀── Message::parse ◀── termination message
//!                └──────────── Logged::read  ◀── its log, for what does not fit
//! ```
//!
//! Files that other containers leave come home the same way: [`Gathering`] goes in, and [`Gathered`] comes
//! from `manciple-agent wrap` around a container's command, or `manciple-agent gather` beside it.
//!
//! This library is both ends of what goes in and out: [`Order`], [`Given`] and [`Gathering`] on the way
//! in; [`Message`], [`Line`], [`Report`] and [`Gathered`] on the way out; [`KeyPair`] and [`KeySet`] for the
//! seal. The program `manciple-agent` is the middle. What a broker's result means is decided by
//! [`engine::contract`], as it is for the process runner. `docs/agent.md` is the protocol on a page.

mod error;
mod gathering;
mod keys;
mod line;
mod message;
mod order;
mod report;
mod seal;

pub use error::Error;
pub use gathering::{Content, Gathered, Gathering, Outputs};
pub use keys::{KeyPair, KeySet, PublicKey};
pub use line::{Line, escape};
pub use message::{
    Logged, MAX_CONTAINERS, MAX_LOGGED_BYTES, MAX_MESSAGE_BYTES, MESSAGE_FILE, Message,
    POD_MESSAGES_BYTES, SHARED_MESSAGE_BYTES,
};
pub use order::{
    AGENT_FILE, EXCHANGE_DIRECTORY, GATHERING_VARIABLE, GIVEN_DIRECTORY, GIVEN_VARIABLE, Given,
    GivenFile, ORDER_VARIABLE, OUR_VARIABLES, Order, TARGET_VARIABLE, is_variable_taken,
};
pub use report::{Answer, Report};
pub use seal::{Purpose, Sealed};
