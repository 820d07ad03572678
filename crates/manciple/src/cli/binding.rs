//! The orders of bindings: bind, rotate, unbind.

use osb::client::{ClientError, Ordered, Response};
use osb::{
    Action, BindRequest, BindResource, BindingBody, BindingId, ProvisionedBody, UnbindRequest,
};
use serde_json::Value;

use super::args::{BindArgs, RotateArgs, UnbindArgs};
use super::connection::{Connection, Subject};
use super::failure::Failure;
use super::follow::Following;
use super::input;
use super::orders::{self, OrderResult};
use super::output::arguments;

pub(crate) async fn bind(connection: Connection, args: BindArgs) -> Result<(), Failure> {
    let parameters = input::object("--parameters", args.parameters.as_deref()).await?;
    let context = input::object("--context", args.context.as_deref()).await?;
    let id = args.binding.map_or_else(|| connection.new_id(), Ok)?;
    let subject = Subject::new(&args.instance, Some(&id))?;
    let instance = Subject { binding: None, ..subject.clone() };
    let catalog = connection.catalog().await?;
    let what = format!("bind {instance}");
    let ids = connection.ids(&instance, &args.offering, Some(&catalog), &what).await?;
    let request = BindRequest {
        service_id: Some(ids.service.clone()),
        plan_id: Some(ids.plan.clone()),
        context,
        // The older member, too: some brokers know no other.
        app_guid: args.app.clone(),
        bind_resource: args
            .app
            .map(|app| BindResource { app_guid: Some(app), ..BindResource::default() }),
        parameters,
        predecessor_binding_id: None,
    };
    let following = Following {
        action: Action::Bind,
        subject: &subject,
        ids: Some(&ids),
        catalog: Some(&catalog),
    };
    order(&connection, &following, &request, args.waiting.no_wait).await
}

pub(crate) async fn rotate(connection: Connection, args: RotateArgs) -> Result<(), Failure> {
    let id = args.binding.map_or_else(|| connection.new_id(), Ok)?;
    let subject = Subject::new(&args.instance, Some(&id))?;
    let predecessor = Subject::new(&args.instance, Some(&args.predecessor))?;
    let request = BindRequest {
        predecessor_binding_id: predecessor.binding.clone(),
        ..BindRequest::default()
    };
    let following = Following { action: Action::Bind, subject: &subject, ids: None, catalog: None };
    order(&connection, &following, &request, args.waiting.no_wait).await?;
    connection.out.hint(&format!(
        "once nothing uses the old one, remove it: manciple unbind {}",
        predecessor.words()
    ));
    Ok(())
}

pub(crate) async fn unbind(connection: Connection, args: UnbindArgs) -> Result<(), Failure> {
    let subject = Subject::new(&args.instance, Some(&args.binding))?;
    let instance = Subject { binding: None, ..subject.clone() };
    let catalog = connection.catalog().await.ok();
    let what = format!("unbind {subject}");
    // The binding's own plan first: the instance may have another one now.
    let ids = match connection.record(&subject).await {
        Ok(_) => connection.ids(&subject, &args.offering, catalog.as_ref(), &what).await?,
        Err(_) => connection.ids(&instance, &args.offering, catalog.as_ref(), &what).await?,
    };
    let request = UnbindRequest { service_id: ids.service.clone(), plan_id: ids.plan.clone() };
    let binding = binding_of(&subject)?;
    let answer = connection.client.unbind(&subject.instance, binding, &request).await;
    let following = Following {
        action: Action::Unbind,
        subject: &subject,
        ids: Some(&ids),
        catalog: catalog.as_ref(),
    };
    let settled = connection.settle(&following, answer, args.waiting.no_wait).await?;
    let (state, operation) = (settled.state(), settled.operation.as_deref());
    orders::print(&connection, &following, state, operation, &ProvisionedBody::default())
}

async fn order(
    connection: &Connection,
    following: &Following<'_>,
    request: &BindRequest,
    no_wait: bool,
) -> Result<(), Failure> {
    let subject = following.subject;
    let binding = binding_of(subject)?;
    let answer: Result<Response<Ordered<BindingBody>>, ClientError> =
        connection.client.bind(&subject.instance, binding, request).await;
    let settled = connection.settle(following, answer, no_wait).await?;
    let (state, operation) = (settled.state(), settled.operation.clone());
    let again = again(subject, request);
    let body = if settled.ended && settled.asynchronous {
        fetch(connection, subject, &again).await?
    } else {
        settled.body
    };
    // Its credentials stand nowhere else, and neither does an id that was made up.
    print(connection, following, state, operation.as_deref(), &body)
        .map_err(|failure| failure.hint(format!("the same order prints it again: {again}")))
}

/// The command that repeats the order, for a person to copy: if the binding is there already, it is the answer.
fn again(subject: &Subject, request: &BindRequest) -> String {
    match &request.predecessor_binding_id {
        None => format!("manciple bind {}, with the same options", subject.words()),
        Some(predecessor) => {
            let binding = subject.binding.as_ref().map(BindingId::as_str);
            let ids = [Some(subject.instance.as_str()), Some(predecessor.as_str()), binding];
            format!("manciple rotate {}", arguments(ids))
        }
    }
}

/// Fetches the credentials of a binding that was made asynchronously: they come by `GET` only.
async fn fetch(
    connection: &Connection,
    subject: &Subject,
    again: &str,
) -> Result<BindingBody, Failure> {
    let binding = binding_of(subject)?;
    let answer = connection.patiently(|| connection.client.binding(&subject.instance, binding));
    let error = match answer.await {
        Ok(answer) => return Ok(answer.body.body),
        Err(error) => error,
    };
    let failure = connection.refused(&format!("fetch the {subject}, which was made,"), &error);
    Err(match error.status() {
        None => failure
            .hint(format!("once the server answers again, the same order fetches it: {again}")),
        Some(_) => failure
            .or_hint(format!("remove it, and order another: manciple unbind {}", subject.words())),
    })
}

fn binding_of(subject: &Subject) -> Result<&BindingId, Failure> {
    subject.binding.as_ref().ok_or_else(|| Failure::usage("no binding is named"))
}

fn print(
    connection: &Connection,
    following: &Following<'_>,
    state: &'static str,
    operation: Option<&str>,
    body: &BindingBody,
) -> Result<(), Failure> {
    let (out, subject) = (connection.out, following.subject);
    if out.is_json() {
        return out.json(&OrderResult {
            action: following.action,
            instance_id: subject.instance.as_str(),
            binding_id: subject.binding.as_ref().map(BindingId::as_str),
            service_id: following.ids.map(|ids| ids.service.as_str()),
            plan_id: following.ids.map(|ids| ids.plan.as_str()),
            state,
            operation,
            made: body,
        });
    }
    orders::print(connection, following, state, operation, &ProvisionedBody::default())?;
    if out.quiet {
        return Ok(());
    }
    let rows = gives(body);
    if rows.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.table(&["CREDENTIAL", "VALUE"], rows)
}

/// The content of a binding, a row for each value; nested values have dotted names.
fn gives(body: &BindingBody) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    if let Some(credentials) = &body.credentials {
        for (name, value) in credentials.expose() {
            flatten(name, value, &mut rows);
        }
    }
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            rows.push(vec![format!("({name})"), value.to_owned()]);
        }
    };
    let url = |url: &Option<osb::Sensitive<String>>| url.as_ref().map(|url| url.expose().clone());
    add("syslog drain", url(&body.syslog_drain_url).as_deref());
    add("route service", url(&body.route_service_url).as_deref());
    let metadata = body.metadata.clone().unwrap_or_default();
    add("expires at", metadata.expires_at.as_deref());
    add("renew before", metadata.renew_before.as_deref());
    for endpoint in body.endpoints.iter().flatten() {
        let value = format!("{} {}", endpoint.host, endpoint.ports.join(" "));
        add("endpoint", Some(&value));
    }
    for mount in body.volume_mounts.iter().flatten() {
        add("volume", Some(&format!("{} at {}", mount.device.volume_id, mount.container_dir)));
    }
    rows
}

fn flatten(name: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (member, value) in members {
                flatten(&format!("{name}.{member}"), value, rows);
            }
        }
        // What a table cannot show as it is (a key of many lines) is shown as JSON has it.
        Value::String(text) if !text.contains(char::is_control) => {
            rows.push(vec![name.to_owned(), text.clone()]);
        }
        other => rows.push(vec![name.to_owned(), other.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_a_row_each() {
        let body: BindingBody = serde_json::from_value(json!({
            "credentials": {"uri": "x://", "tls": {"key": "a\nb", "port": 1}, "hosts": ["a", "b"]},
            "metadata": {"expires_at": "2030-01-01T00:00:00.0Z"},
        }))
        .unwrap();
        let expected = [
            ("hosts", "[\"a\",\"b\"]"),
            ("tls.key", "\"a\\nb\""),
            ("tls.port", "1"),
            ("uri", "x://"),
            ("(expires at)", "2030-01-01T00:00:00.0Z"),
        ];
        let rows = gives(&body);
        assert_eq!(rows.len(), expected.len());
        for (name, value) in expected {
            assert!(rows.contains(&vec![name.to_owned(), value.to_owned()]), "{name}: {rows:?}");
        }
    }
}
