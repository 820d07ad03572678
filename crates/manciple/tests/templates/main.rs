//! Templates as services, on a real cluster: ordered by people who may edit a namespace, and refused to those who may
//! only look.

#[path = "../support/mod.rs"]
mod support;

mod changes;
mod database;
mod market;
mod orders;
mod switch;
