//! What a `Broker` says and what comes of several of them, without a cluster.

mod merging;
mod specs;
mod tables;
