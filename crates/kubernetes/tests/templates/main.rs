//! TemplateInstances on a real cluster.

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/hook.rs"]
mod hook;
#[path = "../support/mod.rs"]
mod support;

mod account;
mod admission;
mod awaited;
mod bindings;
mod broker;
mod changes;
mod counter;
mod deaths;
mod drift;
mod forged;
mod harness;
mod held_up;
mod instances;
mod leaders;
mod leaving;
mod namespaces;
mod orders;
mod parameters;
mod pitfalls;
mod refusals;
mod removals;
mod requests;
mod rights;
mod shop;
mod translation;
mod webhook;
mod withstands;
mod workloads;
