//! The client's methods, one for each route of the API, with the statuses by which it succeeds.

use bytes::Bytes;
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::error::ClientError;
use super::response::{Ordered, RawResponse, Response};
use super::{Client, path};
use crate::model::{
    BindRequest, BindingBody, BindingId, BindingView, Catalog, DeprovisionRequest, InstanceId,
    InstanceView, LastOperation, LastOperationQuery, PlanId, ProvisionRequest, ProvisionedBody,
    ServiceId, UnbindRequest, UpdateRequest,
};

/// The answer of a route that changes something.
type Answer<T> = Result<Response<Ordered<T>>, ClientError>;

impl Client {
    /// `GET /v2/catalog` (section "Catalog Management"); `None` if the tag given is still that of the
    /// catalog (304).
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn catalog(
        &self,
        if_none_match: Option<&str>,
    ) -> Result<Response<Option<Catalog>>, ClientError> {
        let mut headers = self.headers();
        // A tag that no header can carry was not sent by any broker: ask for the whole catalog.
        if let Some(tag) = if_none_match.and_then(|tag| HeaderValue::from_str(tag).ok()) {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let conditional = headers.contains_key(IF_NONE_MATCH);
        let raw = self.send_json(Method::GET, "/v2/catalog", headers, None).await?;
        if conditional && raw.status == 304 {
            return Ok(raw.with(None));
        }
        Ok(raw.expect(&[200])?.read()?.map(Some))
    }

    /// `PUT` of an instance (section "Provisioning").
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn provision(
        &self,
        instance: &InstanceId,
        request: &ProvisionRequest,
    ) -> Answer<ProvisionedBody> {
        let path = path::instance(instance.as_str(), &self.incomplete());
        self.change(Method::PUT, &path, request, &[200, 201, 202]).await
    }

    /// `PATCH` of an instance (section "Updating a Service Instance").
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn update(
        &self,
        instance: &InstanceId,
        request: &UpdateRequest,
    ) -> Answer<ProvisionedBody> {
        let path = path::instance(instance.as_str(), &self.incomplete());
        self.change(Method::PATCH, &path, request, &[200, 202]).await
    }

    /// `DELETE` of an instance (section "Deprovisioning").
    ///
    /// # Errors
    /// Any [`ClientError`]; a refusal with 410 if there is none.
    pub async fn deprovision(
        &self,
        instance: &InstanceId,
        request: &DeprovisionRequest,
    ) -> Answer<()> {
        let query = self.deletion(&request.service_id, &request.plan_id);
        self.delete(&path::instance(instance.as_str(), &query)).await
    }

    /// `GET` of an instance (section "Fetching a Service Instance").
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn instance(
        &self,
        instance: &InstanceId,
    ) -> Result<Response<InstanceView>, ClientError> {
        self.get(&path::instance(instance.as_str(), "")).await
    }

    /// `GET` of an instance's last operation (section "Polling Last Operation for Service Instances").
    ///
    /// # Errors
    /// Any [`ClientError`]; a refusal with 410 if it was deleted.
    pub async fn instance_last_operation(
        &self,
        instance: &InstanceId,
        query: &LastOperationQuery,
    ) -> Result<Response<LastOperation>, ClientError> {
        self.last_operation(&path::instance(instance.as_str(), &hints(query))).await
    }

    /// `PUT` of a binding (sections "Binding" and "Rotating a Service Binding").
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn bind(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        request: &BindRequest,
    ) -> Answer<BindingBody> {
        let path = path::binding(instance.as_str(), binding.as_str(), &self.incomplete());
        self.change(Method::PUT, &path, request, &[200, 201, 202]).await
    }

    /// `DELETE` of a binding (section "Unbinding").
    ///
    /// # Errors
    /// Any [`ClientError`]; a refusal with 410 if there is none.
    pub async fn unbind(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        request: &UnbindRequest,
    ) -> Answer<()> {
        let query = self.deletion(&request.service_id, &request.plan_id);
        self.delete(&path::binding(instance.as_str(), binding.as_str(), &query)).await
    }

    /// `GET` of a binding (section "Fetching a Service Binding").
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Response<BindingView>, ClientError> {
        self.get(&path::binding(instance.as_str(), binding.as_str(), "")).await
    }

    /// `GET` of a binding's last operation (section "Polling Last Operation for Service Bindings").
    ///
    /// # Errors
    /// Any [`ClientError`]; a refusal with 410 if it was deleted.
    pub async fn binding_last_operation(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        query: &LastOperationQuery,
    ) -> Result<Response<LastOperation>, ClientError> {
        let path = path::binding(instance.as_str(), binding.as_str(), &hints(query));
        self.last_operation(&path).await
    }

    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        request: &impl Serialize,
        statuses: &[u16],
    ) -> Answer<T> {
        let body = serde_json::to_vec(request)
            .map_err(|source| ClientError::Transport { sent: false, source: Box::new(source) })?;
        let raw = self.send_json(method, path, self.headers(), Some(Bytes::from(body))).await?;
        raw.expect(statuses)?.ordered()
    }

    async fn delete(&self, path: &str) -> Answer<()> {
        let raw = self.send_json(Method::DELETE, path, self.headers(), None).await?;
        let response = raw.expect(&[200, 202])?.ordered::<IgnoredAny>()?;
        Ok(response.map(|ordered| match ordered {
            Ordered::Created(_) => Ordered::Created(()),
            Ordered::Done(_) => Ordered::Done(()),
            Ordered::Accepted { operation, .. } => Ordered::Accepted { operation, body: () },
        }))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Response<T>, ClientError> {
        self.fetch(path).await?.expect(&[200])?.read()
    }

    async fn last_operation(&self, path: &str) -> Result<Response<LastOperation>, ClientError> {
        self.fetch(path).await?.last_operation()
    }

    async fn fetch(&self, path: &str) -> Result<RawResponse, ClientError> {
        self.send_json(Method::GET, path, self.headers(), None).await
    }

    fn incomplete(&self) -> String {
        path::query(&[self.incomplete_pair()])
    }

    fn deletion(&self, service: &ServiceId, plan: &PlanId) -> String {
        path::query(&[
            ("service_id", Some(service.as_str())),
            ("plan_id", Some(plan.as_str())),
            self.incomplete_pair(),
        ])
    }

    fn incomplete_pair(&self) -> (&'static str, Option<&'static str>) {
        ("accepts_incomplete", self.accepts_incomplete.then_some("true"))
    }
}

/// The path `/last_operation` with what is known of the operation. The ids, a plan's included, are hints only.
fn hints(query: &LastOperationQuery) -> String {
    let query = path::query(&[
        ("service_id", query.service_id.as_deref()),
        ("plan_id", query.plan_id.as_deref()),
        ("operation", query.operation.as_deref()),
    ]);
    format!("/last_operation{query}")
}
