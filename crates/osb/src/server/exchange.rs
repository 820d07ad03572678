//! The exchange: takes a request to its answer.
//!
//! ```text
//! 401 ─▶ 412 ─▶ 404, 405 of routes ─▶ 400 ─▶ AsyncRequired ─▶ MaintenanceInfoConflict
//!     ─▶ the other 422 that need no state ─▶ 429 ─▶ Backend
//! ```
//!
//! Nothing of a body is read before its sender is known. A client that hangs up cancels nothing that
//! was begun: see [`Detached`].

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Body as _;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::authentication::Principal;
use super::body::{self, Arrived, Open};
use super::catalog;
use super::detached::Detached;
use super::headers;
use super::observer::Exchange;
use super::query::Query;
use super::requests::{self, Judge};
use super::respond::{self, Refusal, SOON, Telling};
use super::route::{self, Route, Target};
use super::settings::Settings;
use crate::backend::{Backend, Call};
use crate::broker::Action;
use crate::catalog::{CompiledCatalog, PlanEntry};
use crate::error::{Error, ErrorKind};
use crate::fields::Faults;
use crate::model::{BindingId, DeprovisionRequest, IdError, InstanceId, ServiceId, UnbindRequest};

/// The state of the server that all requests share.
pub(super) struct Server {
    backend: Arc<dyn Backend>,
    settings: Settings,
    changes: Arc<Semaphore>,
}

impl Server {
    pub(super) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        let permits = settings.changes_in_flight.min(Semaphore::MAX_PERMITS);
        Self { backend, settings, changes: Arc::new(Semaphore::new(permits)) }
    }

    /// Answers a request, whatever happens.
    pub(super) async fn respond(&self, request: Request<Body>) -> Response {
        let (parts, body) = request.into_parts();
        let target = Target::find(parts.uri.path());
        let mut record = Record::begin(&self.settings, &parts, target);
        let answered = unwinding(self.answer(&parts, body, target, &mut record.principal)).await;
        let answered = answered.unwrap_or_else(|| Err(panicked().into()));
        record.end(answered, telling(target, &parts.method))
    }

    async fn answer(
        &self,
        parts: &Parts,
        body: Body,
        target: Option<Target<'_>>,
        principal: &mut Option<Principal>,
    ) -> Result<Response, Refusal> {
        admit(&self.settings, parts, principal).await?;
        let target = target.ok_or_else(|| Error::not_found(no_route(parts.uri.path())))?;
        if !target.route.allows(&parts.method) {
            let error = Error::new(ErrorKind::MethodNotAllowed, "the route has no such method");
            return Err(Refusal { error, header: Some((ALLOW, target.route.allow())) });
        }
        let asked = Asked::read(parts, target, &body);
        match (target.route, &parts.method) {
            (Route::Catalog, _) => {
                asked.finish()?;
                Ok(catalog::respond(&*self.catalog()?, &parts.headers))
            }
            (Route::OpenApi, _) => {
                asked.finish()?;
                Ok(respond::raw(StatusCode::OK, Bytes::from_static(crate::OPENAPI.as_bytes())))
            }
            (Route::InstanceLastOperation, _) => self.instance_last_operation(asked).await,
            (Route::BindingLastOperation, _) => self.binding_last_operation(asked).await,
            (Route::Instance, &Method::PUT) => self.provision(asked, self.read(body).await?).await,
            (Route::Instance, &Method::PATCH) => self.update(asked, self.read(body).await?).await,
            (Route::Instance, &Method::DELETE) => self.deprovision(asked).await,
            (Route::Instance, _) => self.instance(asked).await,
            (Route::Binding, &Method::PUT) => self.bind(asked, self.read(body).await?).await,
            (Route::Binding, &Method::DELETE) => self.unbind(asked).await,
            (Route::Binding, _) => self.binding(asked).await,
        }
    }

    async fn provision(&self, asked: Asked<'_>, mut body: Arrived) -> Result<Response, Refusal> {
        let catalog = self.backend.catalog();
        let judge = Judge { catalog: catalog.as_deref(), faults: &asked.faults };
        let room = body.room();
        let judged = judge.provision(body);
        let (call, instance) = asked.instance()?;
        let (request, plan) = judged.ok_or_else(unread)?;
        catalog.as_ref().ok_or_else(no_catalog)?;
        self.check_async(&call, Action::Provision, plan)?;
        requests::check_maintenance_info(plan, request.maintenance_info.as_ref())?;
        let reply = self.change(room, move |backend| async move {
            backend.provision(&call, &instance, request).await
        });
        Ok(respond::provisioned(reply.await?, StatusCode::CREATED))
    }

    async fn update(&self, asked: Asked<'_>, mut body: Arrived) -> Result<Response, Refusal> {
        let catalog = self.backend.catalog();
        let judge = Judge { catalog: catalog.as_deref(), faults: &asked.faults };
        let room = body.room();
        let judged = judge.update(body);
        let (call, instance) = asked.instance()?;
        let (request, plan) = judged.ok_or_else(unread)?;
        if catalog.is_none() {
            return Err(no_catalog().into());
        }
        self.check_async(&call, Action::Update, plan)?;
        requests::check_maintenance_info(plan, request.maintenance_info.as_ref())?;
        let reply = self.change(room, move |backend| async move {
            backend.update(&call, &instance, request).await
        });
        Ok(respond::provisioned(reply.await?, StatusCode::OK))
    }

    async fn deprovision(&self, asked: Asked<'_>) -> Result<Response, Refusal> {
        let ids = asked.query.ids(asked.with_body, &asked.faults);
        let (call, instance) = asked.instance()?;
        let (service_id, plan_id) = ids.ok_or_else(unread)?;
        let request = DeprovisionRequest { service_id, plan_id };
        let catalog = self.backend.catalog();
        // The plan may have left the catalog: what was made from it can still be deleted.
        let plan = catalog.as_ref().and_then(|all| all.plan(&request.service_id, &request.plan_id));
        self.check_async(&call, Action::Deprovision, plan)?;
        let reply = self.change(Open::default(), move |backend| async move {
            backend.deprovision(&call, &instance, request).await
        });
        Ok(respond::removed(reply.await?))
    }

    async fn bind(&self, asked: Asked<'_>, mut body: Arrived) -> Result<Response, Refusal> {
        let catalog = self.backend.catalog();
        let judge = Judge { catalog: catalog.as_deref(), faults: &asked.faults };
        let room = body.room();
        let judged = judge.bind(body, asked.binding.as_ref());
        let (call, instance, binding) = asked.binding()?;
        let (request, plan) = judged.ok_or_else(unread)?;
        catalog.as_ref().ok_or_else(no_catalog)?;
        self.check_async(&call, Action::Bind, plan)?;
        requests::check_app(plan, &request)?;
        let reply = self.change(room, move |backend| async move {
            backend.bind(&call, &instance, &binding, request).await
        });
        Ok(respond::bound(reply.await?))
    }

    async fn unbind(&self, asked: Asked<'_>) -> Result<Response, Refusal> {
        let ids = asked.query.ids(asked.with_body, &asked.faults);
        let (call, instance, binding) = asked.binding()?;
        let (service_id, plan_id) = ids.ok_or_else(unread)?;
        let request = UnbindRequest { service_id, plan_id };
        let catalog = self.backend.catalog();
        let plan = catalog.as_ref().and_then(|all| all.plan(&request.service_id, &request.plan_id));
        self.check_async(&call, Action::Unbind, plan)?;
        let reply = self.change(Open::default(), move |backend| async move {
            backend.unbind(&call, &instance, &binding, request).await
        });
        Ok(respond::removed(reply.await?))
    }

    async fn instance(&self, asked: Asked<'_>) -> Result<Response, Refusal> {
        let (call, instance) = asked.instance()?;
        let view = self.backend.instance(&call, &instance).await?;
        let catalog = self.backend.catalog();
        let service = catalog.as_ref().and_then(|all| all.service(&view.service_id));
        if service.is_some_and(|service| service.instances_retrievable == Some(false)) {
            return Err(not_retrievable("instances").into());
        }
        Ok(respond::json(StatusCode::OK, &view))
    }

    async fn binding(&self, asked: Asked<'_>) -> Result<Response, Refusal> {
        // A binding does not tell its service. The query may; failing that, every service would
        // have to say the same.
        let named = asked.query.service_id().and_then(|id| ServiceId::new(id).ok());
        let (call, instance, binding) = asked.binding()?;
        if let Some(catalog) = self.backend.catalog() {
            let mut services = match named.and_then(|id| catalog.service(&id)) {
                Some(service) => std::slice::from_ref(service),
                None => catalog.catalog().services.as_slice(),
            }
            .iter();
            let any = services.len() > 0;
            if any && services.all(|service| service.bindings_retrievable == Some(false)) {
                return Err(not_retrievable("bindings").into());
            }
        }
        Ok(respond::json(StatusCode::OK, &self.backend.binding(&call, &instance, &binding).await?))
    }

    async fn instance_last_operation(&self, mut asked: Asked<'_>) -> Result<Response, Refusal> {
        let hints = std::mem::take(&mut asked.query).hints(&asked.faults);
        let (call, instance) = asked.instance()?;
        let operation = self.backend.instance_last_operation(&call, &instance, hints).await?;
        Ok(respond::last_operation(operation, Telling::Both))
    }

    async fn binding_last_operation(&self, mut asked: Asked<'_>) -> Result<Response, Refusal> {
        let hints = std::mem::take(&mut asked.query).hints(&asked.faults);
        let (call, instance, binding) = asked.binding()?;
        let operation =
            self.backend.binding_last_operation(&call, &instance, &binding, hints).await?;
        Ok(respond::last_operation(operation, Telling::Neither))
    }

    /// Runs a request that changes something to its end, whether its client waits for it or not, and holds the room of
    /// its body.
    async fn change<T: Send + 'static, F>(
        &self,
        room: Open,
        work: impl FnOnce(Arc<dyn Backend>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let permit = Arc::clone(&self.changes).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::TooManyRequests, "too many changes are under way; come again")
                .retry_after(SOON)
        })?;
        let work = work(Arc::clone(&self.backend));
        let task = async move {
            let _held = (permit, room);
            work.await
        };
        Detached::new(task.in_current_span()).await
    }

    async fn read(&self, body: Body) -> Result<Arrived, Error> {
        body::read(body, &self.settings).await
    }

    fn catalog(&self) -> Result<Arc<CompiledCatalog>, Error> {
        self.backend.catalog().ok_or_else(no_catalog)
    }

    fn check_async(
        &self,
        call: &Call,
        action: Action,
        plan: Option<&PlanEntry>,
    ) -> Result<(), Error> {
        if call.accepts_incomplete || !self.backend.requires_async(action, plan) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::AsyncRequired,
            "accepts_incomplete: must be true in the query, for this is only done asynchronously",
        ))
    }
}

/// Answers a request with an error without a backend, as [`router`](super::router) would: the sender and the version
/// are checked before the error is told, the request's identity is echoed, and the observer is told. The path in
/// `parts` is relative to the root of the API.
pub async fn refuse(settings: &Settings, parts: &Parts, error: Error) -> Response {
    let target = Target::find(parts.uri.path());
    let mut record = Record::begin(settings, parts, target);
    let refused = admit(settings, parts, &mut record.principal).await.err();
    let refusal = refused.unwrap_or_else(|| error.into());
    record.end(Err(refusal), telling(target, &parts.method))
}

/// Checks every request before anything else: its sender, and then the version.
async fn admit(
    settings: &Settings,
    parts: &Parts,
    principal: &mut Option<Principal>,
) -> Result<(), Refusal> {
    *principal = settings.authentication.principal(parts).await.map_err(|error| {
        let challenge = error.kind == ErrorKind::Unauthorized;
        let challenge = challenge.then(|| settings.authentication.challenge());
        Refusal { error, header: challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)) }
    })?;
    if route::is_versioned(parts.uri.path()) {
        headers::check_version(&parts.headers, settings.missing_version)?;
    }
    Ok(())
}

/// The message for an unknown route. Some platforms append the path to the URL of a broker as it was registered, even
/// if that ends with a slash.
fn no_route(path: &str) -> &'static str {
    match path.starts_with("//v2/") {
        true => {
            "the API has no such route: register the broker by a URL without a slash at its end"
        }
        false => "the API has no such route",
    }
}

/// The content of a request outside its body, with the faults found so far.
struct Asked<'r> {
    query: Query<'r>,
    call: Call,
    instance: Option<InstanceId>,
    binding: Option<BindingId>,
    with_body: bool,
    faults: Faults,
}

impl<'r> Asked<'r> {
    fn read(parts: &'r Parts, target: Target<'_>, body: &Body) -> Self {
        let faults = Faults::default();
        let identity = headers::request_identity(&parts.headers).unwrap_or_else(|rule| {
            faults.add("X-Broker-API-Request-Identity", rule);
            None
        });
        let originating_identity = headers::originating_identity(&parts.headers, &faults);
        let reads_body = matches!(parts.method, Method::PUT | Method::PATCH);
        headers::check_content_type(&parts.headers, reads_body, &faults);
        let query = Query::read(parts.uri.query(), &faults);
        let changes = reads_body || parts.method == Method::DELETE;
        let call = Call {
            accepts_incomplete: changes && query.accepts_incomplete(&faults),
            originating_identity,
            request_identity: identity
                .and_then(|identity| identity.to_str().ok())
                .map(str::to_owned),
        };
        let has_instance = !matches!(target.route, Route::Catalog | Route::OpenApi);
        let has_binding = matches!(target.route, Route::Binding | Route::BindingLastOperation);
        let instance = has_instance.then(|| id(target.instance, "instance_id", &faults)).flatten();
        let binding = has_binding.then(|| id(target.binding, "binding_id", &faults)).flatten();
        Self { query, call, instance, binding, with_body: !body.is_end_stream(), faults }
    }

    /// Refuses the request for all its faults, if it has any.
    fn finish(self) -> Result<(Call, Option<InstanceId>, Option<BindingId>), Error> {
        if self.faults.is_empty() {
            return Ok((self.call, self.instance, self.binding));
        }
        let faults: Vec<_> = self.faults.into_vec().iter().map(ToString::to_string).collect();
        Err(Error::bad_request(faults.join("; ")))
    }

    fn instance(self) -> Result<(Call, InstanceId), Error> {
        let (call, instance, _) = self.finish()?;
        Ok((call, instance.ok_or_else(unread)?))
    }

    fn binding(self) -> Result<(Call, InstanceId, BindingId), Error> {
        let (call, instance, binding) = self.finish()?;
        Ok((call, instance.ok_or_else(unread)?, binding.ok_or_else(unread)?))
    }
}

fn id<T: TryFrom<String, Error = IdError>>(
    encoded: &str,
    name: &str,
    faults: &Faults,
) -> Option<T> {
    match route::decode(encoded, false) {
        Ok(id) => {
            T::try_from(id.into_owned()).map_err(|error| faults.add(name, error.to_string())).ok()
        }
        Err(rule) => {
            faults.add(name, rule);
            None
        }
    }
}

fn telling(target: Option<Target<'_>>, method: &Method) -> Telling {
    match (target.map(|target| target.route), method) {
        (Some(Route::Instance), &Method::PATCH) => Telling::Both,
        (Some(Route::Instance), &Method::DELETE) => Telling::Usable,
        _ => Telling::Neither,
    }
}

fn no_catalog() -> Error {
    Error::new(ErrorKind::Unavailable, "the catalog has not been read yet; come again")
        .retry_after(SOON)
}

fn not_retrievable(what: &str) -> Error {
    Error::not_found(format!(
        "{what} of this service cannot be fetched: the catalog says {what}_retrievable: false"
    ))
}

/// The error for a part of a request that is absent without a fault noted for it: a defect of the reader.
fn unread() -> Error {
    Error::bad_request("the request could not be read")
}

fn panicked() -> Error {
    tracing::error!("a request could not be answered: the broker panicked");
    Error::internal("the broker failed unexpectedly; what was asked for may be half done")
}

/// Runs a future to its end; `None` if it panicked.
async fn unwinding<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // Nothing that the future holds is seen after a panic: it is dropped.
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

/// Tells the observer when it is dropped: after the answer, or when the client has gone before.
struct Record<'r> {
    settings: &'r Settings,
    method: &'r Method,
    route: &'static str,
    begun: Instant,
    identity: Option<&'r HeaderValue>,
    principal: Option<Principal>,
    status: Option<u16>,
    error: Option<Error>,
}

impl<'r> Record<'r> {
    fn begin(settings: &'r Settings, parts: &'r Parts, target: Option<Target<'_>>) -> Self {
        Self {
            settings,
            method: &parts.method,
            route: target.map_or("unknown", |target| target.route.template()),
            begun: Instant::now(),
            identity: headers::request_identity(&parts.headers).ok().flatten(),
            principal: None,
            status: None,
            error: None,
        }
    }

    /// The answer as it is sent.
    fn end(mut self, answered: Result<Response, Refusal>, telling: Telling) -> Response {
        let mut response = answered.unwrap_or_else(|refusal| {
            let response = respond::refusal(&refusal, telling);
            self.error = Some(refusal.error);
            response
        });
        if let Some(identity) = self.identity {
            response.headers_mut().insert(headers::REQUEST_IDENTITY, identity.clone());
        }
        if let Some(principal) = self.principal.clone() {
            response.extensions_mut().insert(principal);
        }
        self.status = Some(response.status().as_u16());
        response
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let Some(observer) = &self.settings.observer else { return };
        observer.responded(&Exchange {
            method: self.method,
            route: self.route,
            status: self.status,
            duration: self.begun.elapsed(),
            request_identity: self.identity.and_then(|identity| identity.to_str().ok()),
            principal: self.principal.as_ref(),
            error: self.error.as_ref(),
        });
    }
}
