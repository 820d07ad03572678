//! The acceptance list of the Open Service Broker API 2.17, item by item: the real server over the
//! real engine. `docs/conformance.md` says which test stands for which item.

mod bindings;
mod catalog;
mod deletes;
mod document;
mod harness;
mod headers;
mod instances;
mod operations;
mod profiles;
mod suite;
