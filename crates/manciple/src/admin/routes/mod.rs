//! The routes of the operator's API.

use std::fs::File;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::history::{Cursor, OperationFilter, OperationQuery};
use engine::names::RunName;
use engine::ports::{Filter, Kind, Stored};
use engine::record::{Key, Timestamp};
use engine::{CatalogError, Engine};
use http::{HeaderValue, header};
use osb::server::Authentication;
use osb::{BindingId, Error, ErrorKind, InstanceId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::Instrument as _;

use super::model::{Done, LogView, OperationsPage, Page, RecordView, Target};
use super::refusal::{Refusal, explain_method, unwelcome};
use super::request::{BODY_LIMIT, Members, parameters, required, target_of_body, target_of_query};
use crate::role::Role;

/// The most records on a page.
const LARGEST_PAGE: usize = 500;

/// A way to make a copy of the store while it is in use.
#[async_trait]
pub(crate) trait Backup: Send + Sync + 'static {
    /// Makes the copy: a file that is gone when it is closed.
    async fn backup(&self) -> Result<File, Error>;
}

/// The state of the routes.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) engine: Engine,
    pub(crate) authentication: Authentication,
    pub(crate) backup: Arc<dyn Backup>,
}

/// The routes under `/admin/v1`, for principals with the role `operator`.
pub(crate) fn routes(admin: Admin) -> Router {
    Router::new()
        .route("/admin/v1/instances", get(instances))
        .route("/admin/v1/bindings", get(bindings))
        .route("/admin/v1/operations", get(operations))
        .route("/admin/v1/record", get(record))
        .route("/admin/v1/logs", get(logs))
        .route("/admin/v1/retry", post(retry))
        .route("/admin/v1/purge", post(purge))
        .route("/admin/v1/catalog/refresh", post(refresh))
        .route("/admin/v1/backup", get(backup))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_LIMIT))
        .layer(middleware::map_response(explain_method))
        .layer(middleware::from_fn_with_state(admin.clone(), operators_only))
        .with_state(admin)
}

async fn operators_only(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Result<Response, Response> {
    let refuse = |error: Error| unwelcome(error, &admin.authentication);
    let (parts, body) = request.into_parts();
    match admin.authentication.principal(&parts).await {
        Err(error) => Err(refuse(error)),
        Ok(Some(principal)) if &*principal.role != Role::Operator.as_str() => {
            Err(refuse(Error::new(
                ErrorKind::Forbidden,
                "this needs the role operator: set auth.users[].role or auth.tokens[].role",
            )))
        }
        Ok(_) => Ok(next.run(Request::from_parts(parts, body)).await),
    }
}

/// The query of a list.
struct ListQuery {
    state: Option<String>,
    instance: Option<InstanceId>,
    after: Option<String>,
    limit: usize,
}

impl ListQuery {
    fn read(RawQuery(query): RawQuery) -> Result<Self, Error> {
        let names = ["state", "instance", "after", "limit"];
        let [state, instance, after, limit] = parameters(query.as_deref(), names)?;
        let limit = limit.map(|limit| limit.parse::<usize>()).transpose();
        let limit = limit.map_err(|_| Error::bad_request("limit: must be a whole number"))?;
        Ok(Self {
            state,
            instance: instance.map(|id| instance_id("instance", id)).transpose()?,
            after,
            limit: limit.unwrap_or(100).clamp(1, LARGEST_PAGE),
        })
    }
}

type Listed = Result<Json<Page>, Refusal>;
type Sent = Result<Json<Members>, JsonRejection>;

async fn instances(State(admin): State<Admin>, query: RawQuery) -> Listed {
    list(&admin, Kind::Instances, ListQuery::read(query)?).await
}

async fn bindings(State(admin): State<Admin>, query: RawQuery) -> Listed {
    list(&admin, Kind::Bindings, ListQuery::read(query)?).await
}

async fn list(admin: &Admin, kind: Kind, query: ListQuery) -> Listed {
    let filter = match query.state.as_deref() {
        None | Some("live") => Filter::Live,
        Some("all") => Filter::All,
        Some("busy") => Filter::Busy,
        Some("deleted") => Filter::DeletedBefore(Timestamp(u64::MAX >> 1)),
        Some(_) => {
            return Err(Error::bad_request("state: must be live, all, busy or deleted").into());
        }
    };
    let limit = query.limit;
    let query = engine::ports::Query {
        kind,
        instance: query.instance,
        filter,
        after: query.after.as_deref().map(parse_cursor::<Key>).transpose()?,
        limit,
    };
    let found = admin.engine.scan(&query).await?;
    let next = found.last().filter(|_| found.len() == limit);
    let next = next.map(|last| cursor(Stored::key_of(last)));
    let (mut items, mut unreadable) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Ok(stored) => items.push(RecordView::from(&*stored.record)),
            Err(one) => unreadable.push(one.into()),
        }
    }
    Ok(Json(Page { items, unreadable, next }))
}

async fn operations(
    State(admin): State<Admin>,
    query: RawQuery,
) -> Result<Json<OperationsPage>, Refusal> {
    let query = ListQuery::read(query)?;
    let filter = match query.state.as_deref() {
        None | Some("all") => OperationFilter::All,
        Some("busy") => OperationFilter::Busy,
        Some("failed") => OperationFilter::Failed,
        Some(_) => return Err(Error::bad_request("state: must be all, busy or failed").into()),
    };
    let query = OperationQuery {
        instance: query.instance,
        filter,
        after: query.after.as_deref().map(parse_cursor::<Cursor>).transpose()?,
        limit: query.limit,
    };
    let page = admin.engine.operations(&query).await?;
    let next = page.next.as_ref().map(cursor);
    Ok(Json(OperationsPage { items: page.items.iter().map(Done::from).collect(), next }))
}

/// The place where a page has ended, as a token: base64 of its JSON.
fn cursor(place: &impl Serialize) -> String {
    let json = serde_json::to_vec(place).unwrap_or_default();
    data_encoding::BASE64URL_NOPAD.encode(&json)
}

fn parse_cursor<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    data_encoding::BASE64URL_NOPAD
        .decode(text.as_bytes())
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or_else(|| Error::bad_request("after: is not a `next` of an earlier page"))
}

fn instance_id(parameter: &str, id: String) -> Result<InstanceId, Error> {
    InstanceId::try_from(id).map_err(|error| Error::bad_request(format!("{parameter}: {error}")))
}

fn key(target: Target) -> Result<Key, Error> {
    let instance = instance_id("instance_id", target.instance_id)?;
    let binding = target.binding_id.map(BindingId::try_from).transpose();
    let binding = binding.map_err(|error| Error::bad_request(format!("binding_id: {error}")))?;
    Ok(Key::of(instance, binding))
}

async fn record(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
) -> Result<Json<RecordView>, Refusal> {
    let record = admin.engine.record(&key(target_of_query(query.as_deref())?)?).await?;
    Ok(Json(RecordView::from(&*record)))
}

async fn logs(
    State(admin): State<Admin>,
    RawQuery(query): RawQuery,
) -> Result<Json<LogView>, Refusal> {
    let [run] = parameters(query.as_deref(), ["run"])?;
    let run = required("run", run)?;
    let name =
        RunName::parse(&run).ok_or_else(|| Error::bad_request("run: is not the name of a run"))?;
    let log = admin.engine.log(&name).await?;
    Ok(Json(LogView { run, log }))
}

async fn retry(State(admin): State<Admin>, body: Sent) -> Result<Json<RecordView>, Refusal> {
    let key = key(target_of_body(body)?)?;
    let record = to_the_end(async move { admin.engine.retry(&key).await }).await?;
    Ok(Json(RecordView::from(&*record)))
}

async fn purge(State(admin): State<Admin>, body: Sent) -> Result<Json<serde_json::Value>, Refusal> {
    let key = key(target_of_body(body)?)?;
    to_the_end(async move { admin.engine.purge(&key).await }).await?;
    Ok(Json(json!({})))
}

/// Runs a request to its end, even if its client hangs up: what is recorded by then has to be carried out, too.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let task = tokio::spawn(work.in_current_span());
    task.await.unwrap_or_else(|error| Err(Error::internal(format!("it was broken off: {error}"))))
}

async fn refresh(State(admin): State<Admin>) -> Result<Json<serde_json::Value>, Refusal> {
    let refreshed = async move {
        admin.engine.refresh_catalog().await.map_err(|error| match error {
            CatalogError::Store(_) => Error::new(ErrorKind::Unavailable, error.to_string()),
            // Whoever asked did nothing wrong: the broker did.
            error => Error::internal(error.to_string()),
        })
    };
    to_the_end(refreshed).await?;
    Ok(Json(json!({})))
}

async fn backup(State(admin): State<Admin>) -> Result<Response, Refusal> {
    let unavailable = |error: std::io::Error| {
        Error::new(ErrorKind::Unavailable, format!("the backup could not be made: {error}"))
    };
    let file = admin.backup.backup().await?;
    let length = file.metadata().map_err(unavailable)?.len();
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    tokio::task::spawn_blocking(move || send(file, &sender));
    let mut response = Response::new(Body::new(Chunks { receiver }));
    let headers = response.headers_mut();
    let octets = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, octets);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

type Chunk = Result<bytes::Bytes, std::io::Error>;

fn send(mut file: File, sender: &tokio::sync::mpsc::Sender<Chunk>) {
    use std::io::Read;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let chunk = match file.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => Ok(bytes::Bytes::copy_from_slice(&buffer[..read])),
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if sender.blocking_send(chunk).is_err() || failed {
            return;
        }
    }
}

struct Chunks {
    receiver: tokio::sync::mpsc::Receiver<Chunk>,
}

impl axum::body::HttpBody for Chunks {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>> {
        let chunk = self.receiver.poll_recv(context);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(http_body::Frame::data)))
    }
}

#[cfg(test)]
mod tests;
