//! Shows the catalog: what can be ordered.

use osb::{Catalog, Plan, Service};
use serde_json::{Value, json};

use super::args::CatalogArgs;
use super::connection::Connection;
use super::exit::Exit;
use super::failure::Failure;
use super::lookup;
use super::output::Output;

pub(crate) async fn show(connection: Connection, args: CatalogArgs) -> Result<(), Failure> {
    if args.refresh {
        let refreshed = connection.refresh_catalog().await;
        refreshed.map_err(|error| {
            let failure = connection.refused("refresh the catalog", &error);
            match failure.exit {
                Exit::BrokerFailed => failure.or_hint(
                    "the catalog from before stays in force: manciple catalog; what the broker wrote is \
                     in the server's log",
                ),
                _ => failure,
            }
        })?;
    }
    let catalog = connection.catalog().await?;
    let out = connection.out;
    let service = args.service.as_deref().map(|wanted| lookup::service(&catalog, wanted));
    match service.transpose()? {
        Some(service) if out.is_json() => out.json(&without_secret(json!(service))),
        None if out.is_json() => {
            let services = catalog.services.iter().map(|service| without_secret(json!(service)));
            out.json(&json!({ "services": services.collect::<Vec<_>>() }))
        }
        Some(service) => details(out, service),
        None => overview(out, &catalog),
    }
}

/// Removes the secret of a dashboard's login from a service: it is for the platform alone.
fn without_secret(mut service: Value) -> Value {
    if let Some(client) = service.get_mut("dashboard_client").and_then(Value::as_object_mut) {
        client.remove("secret");
    }
    service
}

fn overview(out: Output, catalog: &Catalog) -> Result<(), Failure> {
    if out.quiet {
        let names = catalog.services.iter().map(|service| service.name.as_str());
        return out.line(&names.collect::<Vec<_>>().join("\n"));
    }
    let rows = catalog.services.iter().flat_map(|service| {
        service.plans.iter().map(|plan| {
            let bindable = plan.bindable.unwrap_or(service.bindable);
            let free = plan.free.unwrap_or(true);
            let names = [service.name.as_str(), plan.name.as_str(), yes(bindable), yes(free)];
            let mut row = names.map(str::to_owned).to_vec();
            row.push(plan.description.clone());
            row
        })
    });
    out.table(&["SERVICE", "PLAN", "BINDABLE", "FREE", "DESCRIPTION"], rows.collect())?;
    out.hint("the parameters of a service: manciple catalog SERVICE");
    Ok(())
}

fn details(out: Output, service: &Service) -> Result<(), Failure> {
    out.fields(vec![
        ("Service", Some(service.name.clone())),
        ("Id", Some(service.id.to_string())),
        ("Description", Some(service.description.clone())),
        ("Tags", Some(service.tags.join(", ")).filter(|tags| !tags.is_empty())),
    ])?;
    for plan in &service.plans {
        out.line("")?;
        let version = plan.maintenance_info.as_ref().map(|info| info.version.clone());
        let bindable = yes(plan.bindable.unwrap_or(service.bindable));
        out.fields(vec![
            ("Plan", Some(plan.name.clone())),
            ("Id", Some(plan.id.to_string())),
            ("Description", Some(plan.description.clone())),
            ("Bindable", Some(bindable.to_owned())),
            ("Version", version),
        ])?;
        for (title, schema) in schemas(plan) {
            let rows = parameters(schema);
            if !rows.is_empty() {
                out.line("")?;
                out.table(&[title, "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"], rows)?;
            }
        }
    }
    Ok(())
}

fn yes(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

fn schemas(plan: &Plan) -> Vec<(&'static str, &Value)> {
    let Some(schemas) = &plan.schemas else {
        return Vec::new();
    };
    let (instance, binding) = (schemas.service_instance.as_ref(), schemas.service_binding.as_ref());
    let all = [
        ("TO PROVISION", instance.and_then(|group| group.create.as_ref())),
        ("TO UPDATE", instance.and_then(|group| group.update.as_ref())),
        ("TO BIND", binding.and_then(|group| group.create.as_ref())),
    ];
    let parameters =
        all.into_iter().filter_map(|(title, schema)| Some((title, schema?.parameters.as_ref()?)));
    parameters.collect()
}

/// The members that a schema names, a row for each. `--output json` shows what is below them.
fn parameters(schema: &Value) -> Vec<Vec<String>> {
    let required = schema.get("required").and_then(Value::as_array);
    let members = schema.get("properties").and_then(Value::as_object);
    let rows = members.into_iter().flatten().map(|(name, member)| {
        let needed = required.is_some_and(|names| names.iter().any(|other| other == name));
        let text = |key: &str| match member.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let default = member.get("default").map(Value::to_string).unwrap_or_default();
        let kind = if member.get("enum").is_some() { text("enum") } else { text("type") };
        vec![name.clone(), kind, yes(needed).to_owned(), default, text("description")]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_a_row_each() {
        let schema = json!({
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "default": 1, "description": "in GB"},
                "tier": {"enum": ["a", "b"]},
            },
        });
        let expected = vec![
            vec!["size", "integer", "yes", "1", "in GB"],
            vec!["tier", "[\"a\",\"b\"]", "no", "", ""],
        ];
        assert_eq!(parameters(&schema), expected);
        assert!(parameters(&json!(true)).is_empty());
    }

    #[test]
    fn the_secret_of_a_dashboard_is_left_out() {
        let service = without_secret(json!({"dashboard_client": {"id": "c", "secret": "hunter2"}}));
        assert_eq!(service, json!({"dashboard_client": {"id": "c"}}));
    }
}
