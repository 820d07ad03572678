//! QuarksJobs and ExtendedJobs on a real cluster.

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/gate.rs"]
mod gate;
#[path = "../support/hook.rs"]
mod hook;
#[path = "../support/mod.rs"]
mod support;

mod apart;
mod beside;
mod beyond;
mod budget;
mod budget_of_triggers;
mod completions;
mod config;
mod counts;
mod deadline;
mod defects;
mod deleted;
mod discovery;
mod edits;
mod examples;
mod extended;
mod extended_config;
mod flood;
mod forged;
mod halfway;
mod harness;
mod hostile;
mod hundred;
mod injected;
mod lost;
mod manifest;
mod mesh;
mod monitored;
mod named;
mod names;
mod output;
mod owners;
mod paths;
mod planted;
mod podstate;
mod prefixes;
mod refused;
mod rights;
mod schema;
mod shown;
mod sizes;
mod told;
mod triggers;
mod upgrade;
mod versions;
mod wishes;
