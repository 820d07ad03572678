//! The operator's API, under `/admin/v1`: read records and the logs of runs, retry, purge,
//! back up. The server's side is [`routes`], the command line's is in [`crate::cli`].

pub(crate) mod model;
pub(crate) mod refusal;
mod request;
pub(crate) mod routes;
