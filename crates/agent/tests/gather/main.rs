//! The real program around and beside commands that leave files, in a directory that stands for a pod.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod beside;
mod files;
mod harness;
mod init;
mod log;
mod prints;
mod wrap;
