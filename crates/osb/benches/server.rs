//! What a request costs before and after its backend: in process, and over loopback TCP, where the
//! client shares the cores.

#![allow(clippy::unwrap_used, reason = "a bench has nobody to tell")]

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use http::Request;
use osb::catalog::{CompiledCatalog, PlanEntry, parse};
use osb::server::{Authentication, Credentials, Limits, Settings, router, serve};
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, DeprovisionRequest,
    Error, InstanceId, InstanceView, LastOperation, LastOperationQuery, ProvisionRequest,
    ProvisionedBody, Reply, UnbindRequest, UpdateRequest,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tower_service::Service;

fn main() {
    divan::main();
}

/// Answers every request at once with the least there is to say.
struct Instant(Arc<CompiledCatalog>);

#[async_trait]
impl Backend for Instant {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        Some(Arc::clone(&self.0))
    }

    fn requires_async(&self, _: Action, _: Option<&PlanEntry>) -> bool {
        false
    }

    async fn provision(
        &self,
        _: &Call,
        _: &InstanceId,
        _: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        Ok(Reply::Done(ProvisionedBody::default()))
    }

    async fn update(
        &self,
        _: &Call,
        _: &InstanceId,
        _: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        Ok(Reply::Done(ProvisionedBody::default()))
    }

    async fn deprovision(
        &self,
        _: &Call,
        _: &InstanceId,
        _: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        Ok(Reply::Done(()))
    }

    async fn instance(&self, _: &Call, _: &InstanceId) -> Result<InstanceView, Error> {
        Err(Error::not_found("none"))
    }

    async fn instance_last_operation(
        &self,
        _: &Call,
        _: &InstanceId,
        _: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        Err(Error::not_found("none"))
    }

    async fn bind(
        &self,
        _: &Call,
        _: &InstanceId,
        _: &BindingId,
        _: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        Ok(Reply::Done(BindingBody::default()))
    }

    async fn unbind(
        &self,
        _: &Call,
        _: &InstanceId,
        _: &BindingId,
        _: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        Ok(Reply::Done(()))
    }

    async fn binding(&self, _: &Call, _: &InstanceId, _: &BindingId) -> Result<BindingView, Error> {
        Err(Error::not_found("none"))
    }

    async fn binding_last_operation(
        &self,
        _: &Call,
        _: &InstanceId,
        _: &BindingId,
        _: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        Err(Error::not_found("none"))
    }
}

fn api() -> Router {
    let schema = json!({"parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1}}}});
    let plans: Vec<_> = (0..10)
        .map(|n| {
            json!({"id": format!("plan-{n}"), "name": format!("p{n}"), "description": "A plan",
                   "schemas": {"service_instance": {"create": schema}}})
        })
        .collect();
    let catalog = json!({"services": [{"id": "service", "name": "s", "description": "A service",
                                       "bindable": true, "plans": plans}]});
    let catalog = CompiledCatalog::compile(parse(&catalog).unwrap()).unwrap();
    let credentials = Credentials::new().user("platform", "secret", "platform");
    let settings = Settings::new(Authentication::fixed(credentials));
    router(Arc::new(Instant(Arc::new(catalog))), settings)
}

const BODY: &str = r#"{"service_id":"service","plan_id":"plan-3","organization_guid":"6d3b8f3e-0a4b",
    "space_guid":"76a9d4a2-5f1c","context":{"platform":"cloudfoundry","space_name":"dev"},
    "parameters":{"size":3}}"#;

const HEADERS: [(&str, &str); 4] = [
    ("authorization", "Basic cGxhdGZvcm06c2VjcmV0"),
    ("x-broker-api-version", "2.17"),
    ("x-broker-api-request-identity", "e26cee84-6b38-4456-b34e-d1a9f002c956"),
    ("content-type", "application/json"),
];

/// Method, path and body of what a name stands for.
fn asked(name: &str) -> (&'static str, &'static str, &'static str) {
    match name {
        "catalog" => ("GET", "/v2/catalog", ""),
        _ => ("PUT", "/v2/service_instances/8a1f4ee0-77a2?accepts_incomplete=true", BODY),
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[divan::bench(args = ["catalog", "repeated_put"], max_time = 3)]
fn in_process(bencher: Bencher<'_, '_>, name: &str) {
    let (method, path, body) = asked(name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let router = api();
    let request = || {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in HEADERS {
            request = request.header(name, value);
        }
        request.body(Body::from(Bytes::from_static(body.as_bytes()))).unwrap()
    };
    bencher.with_inputs(|| (router.clone(), request())).bench_values(|(mut router, request)| {
        let response = runtime.block_on(router.call(request)).unwrap();
        assert_eq!(response.status(), 200);
        response
    });
}

const CONNECTIONS: usize = 32;
const REQUESTS: usize = 200;

#[divan::bench(args = ["catalog", "repeated_put"], max_time = 5)]
fn over_loopback(bencher: Bencher<'_, '_>, name: &str) {
    let (method, path, body) = asked(name);
    let runtime = runtime();
    let address = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, api(), None, Limits::default(), std::future::pending()));
        address
    });
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in HEADERS {
        request += &format!("{name}: {value}\r\n");
    }
    let request: Arc<str> = (request + "\r\n" + body).into();
    // Every answer to one request has one length.
    let length = runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let closing = request.replacen("host: x", "host: x\r\nconnection: close", 1);
        stream.write_all(closing.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer.len() - "connection: close\r\n".len()
    });
    bencher.counter(ItemsCount::new(CONNECTIONS * REQUESTS)).bench(|| {
        runtime.block_on(async {
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|_| {
                    let request = Arc::clone(&request);
                    tokio::spawn(async move {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let mut answer = vec![0; length];
                        for _ in 0..REQUESTS {
                            stream.write_all(request.as_bytes()).await.unwrap();
                            stream.read_exact(&mut answer).await.unwrap();
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
        });
    });
}
