//! The HTTP server: every rule of the specification that can be judged from a request and the
//! catalog, before a [`Backend`] hears of it.
//!
//! ```text
//! serve ─▶ router ─▶ exchange ─▶ authentication, headers, route, query, body
//! (TCP, TLS,         (one request)  requests (bodies against the catalog and its schemas)
//!  limits)                    └──▶ Backend ──▶ respond
//! ```
//!
//! [`router`] can be nested under a prefix and merged with other routes; [`serve`] runs any router.
//! Every answer is JSON, refusals of unknown routes included.

mod authentication;
mod body;
mod catalog;
mod detached;
mod exchange;
mod headers;
mod malformed;
mod observer;
mod patience;
mod places;
mod query;
mod requests;
mod respond;
mod route;
mod serve;
mod settings;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use tower_service::Service;

pub use authentication::{Authentication, Authenticator, Credentials, Presented, Principal};
pub use body::Bodies;
pub use exchange::refuse;
pub use observer::{Exchange, Observer};
pub use route::decode;
pub use serve::{Limits, TlsSource, serve};
pub use settings::{MissingVersion, Settings};
pub use tokio_rustls::rustls;

use crate::backend::Backend;
use crate::error::Error;
use exchange::Server;
use respond::{Refusal, Telling};

/// The routes of the API over a backend, `/openapi.json` included.
///
/// They are the router's fallback, since the ids in their paths are not what a router takes them
/// for: whatever it is merged with or nested under answers first where it has a route.
pub fn router(backend: Arc<dyn Backend>, settings: Settings) -> Router {
    Router::new().fallback_service(Api(Arc::new(Server::new(backend, settings))))
}

/// An error as this server answers it, for routes beside those of the API.
pub fn error_response(error: Error) -> Response {
    respond::refusal(&Refusal::from(error), Telling::Neither)
}

#[derive(Clone)]
struct Api(Arc<Server>);

impl Service<Request<Body>> for Api {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = Arc::clone(&self.0);
        Box::pin(async move { Ok(server.respond(request).await) })
    }
}
