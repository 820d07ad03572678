//! TemplateInstances on a real cluster.

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/mod.rs"]
mod support;

mod admission;
mod changes;
mod deaths;
mod harness;
mod instances;
mod refusals;
mod translation;
mod webhook;
mod withstands;
