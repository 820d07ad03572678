//! The real program against brokers that are shell scripts, in a directory that stands for a pod.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod endings;
mod given;
mod harness;
mod init;
mod log;
mod secrets;
