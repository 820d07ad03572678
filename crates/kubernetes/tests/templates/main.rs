//! TemplateInstances on a real cluster.

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/mod.rs"]
mod support;

mod admission;

mod broker;
mod changes;
mod deaths;
mod harness;
mod instances;
mod pitfalls;
mod refusals;
mod shop;
mod translation;
mod webhook;
mod withstands;
mod workloads;
