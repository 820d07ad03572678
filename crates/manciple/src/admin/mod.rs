//! The operator's API, under `/admin/v1`: look at what is recorded, read a run's log, retry, purge,
//! back up. The server's side is [`routes`], the command line's is in [`crate::cli`].

pub(crate) mod model;
pub(crate) mod refusal;
mod request;
pub(crate) mod routes;
