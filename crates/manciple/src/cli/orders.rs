//! The orders of instances: provision, update, deprovision.

use osb::{
    Action, DeprovisionRequest, MaintenanceInfo, PreviousValues, ProvisionRequest, ProvisionedBody,
    UpdateRequest,
};
use serde::Serialize;

use super::args::{DeprovisionArgs, ProvisionArgs, UpdateArgs};
use super::connection::{Connection, Subject};
use super::failure::Failure;
use super::follow::Following;
use super::input;
use super::lookup::{self, Ids};

/// The result of an order. `M` is the type of what was made.
#[derive(Debug, Serialize)]
pub(crate) struct OrderResult<'a, M> {
    /// The action that was asked for.
    pub(crate) action: Action,
    /// The instance.
    pub(crate) instance_id: &'a str,
    /// The binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) binding_id: Option<&'a str>,
    /// The service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_id: Option<&'a str>,
    /// The plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan_id: Option<&'a str>,
    /// `succeeded` or `in progress`.
    pub(crate) state: &'static str,
    /// The broker's name for the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operation: Option<&'a str>,
    /// The content of what was made.
    #[serde(flatten)]
    pub(crate) made: M,
}

pub(crate) async fn provision(connection: Connection, args: ProvisionArgs) -> Result<(), Failure> {
    let parameters = input::object("--parameters", args.parameters.as_deref()).await?;
    let context = input::object("--context", args.context.as_deref()).await?;
    let id = args.instance.map_or_else(|| connection.new_id(), Ok)?;
    let subject = Subject::new(&id, None)?;
    let catalog = connection.catalog().await?;
    let service = lookup::service(&catalog, &args.service)?;
    let plan = lookup::plan(service, &args.plan)?;
    let ids = Ids { service: service.id.clone(), plan: plan.id.clone() };
    let request = ProvisionRequest {
        service_id: ids.service.clone(),
        plan_id: ids.plan.clone(),
        organization_guid: args.organization,
        space_guid: args.space,
        context,
        parameters,
        // So that the broker refuses an order of a version that it does not offer any more.
        maintenance_info: plan.maintenance_info.as_ref().map(|info| version(&info.version)),
    };
    let answer = connection.client.provision(&subject.instance, &request).await;
    let following = Following {
        action: Action::Provision,
        subject: &subject,
        ids: Some(&ids),
        catalog: Some(&catalog),
    };
    let settled = connection.settle(&following, answer, args.waiting.no_wait).await?;
    print(&connection, &following, settled.state(), settled.operation.as_deref(), &settled.body)
}

pub(crate) async fn update(connection: Connection, args: UpdateArgs) -> Result<(), Failure> {
    let parameters = input::object("--parameters", args.parameters.as_deref()).await?;
    let context = input::object("--context", args.context.as_deref()).await?;
    let subject = Subject::new(&args.instance, None)?;
    let catalog = connection.catalog().await?;
    let what = format!("update {subject}");
    let ids = connection.ids(&subject, &args.offering, Some(&catalog), &what).await?;
    let plan = match &args.plan {
        None => None,
        Some(wanted) => {
            let service = lookup::service(&catalog, ids.service.as_str())?;
            Some(lookup::plan(service, wanted)?.id.clone())
        }
    };
    let request = UpdateRequest {
        service_id: ids.service.clone(),
        plan_id: plan.clone(),
        parameters,
        context,
        previous_values: Some(PreviousValues {
            plan_id: Some(ids.plan.to_string()),
            ..PreviousValues::default()
        }),
        maintenance_info: args.maintenance_version.as_deref().map(version),
    };
    let answer = connection.client.update(&subject.instance, &request).await;
    let following = Following {
        action: Action::Update,
        subject: &subject,
        ids: Some(&ids),
        catalog: Some(&catalog),
    };
    let settled = connection.settle(&following, answer, args.waiting.no_wait).await?;
    let now = Ids { plan: plan.unwrap_or_else(|| ids.plan.clone()), ..ids.clone() };
    let changed = Following { ids: Some(&now), ..following };
    print(&connection, &changed, settled.state(), settled.operation.as_deref(), &settled.body)
}

pub(crate) async fn deprovision(
    connection: Connection,
    args: DeprovisionArgs,
) -> Result<(), Failure> {
    let subject = Subject::new(&args.instance, None)?;
    // What is removed may have left the catalog, and the catalog may be unreadable.
    let catalog = connection.catalog().await.ok();
    let what = format!("deprovision {subject}");
    let ids = connection.ids(&subject, &args.offering, catalog.as_ref(), &what).await?;
    let request = DeprovisionRequest { service_id: ids.service.clone(), plan_id: ids.plan.clone() };
    let answer = connection.client.deprovision(&subject.instance, &request).await;
    let following = Following {
        action: Action::Deprovision,
        subject: &subject,
        ids: Some(&ids),
        catalog: catalog.as_ref(),
    };
    let settled = connection.settle(&following, answer, args.waiting.no_wait).await?;
    let nothing = ProvisionedBody::default();
    print(&connection, &following, settled.state(), settled.operation.as_deref(), &nothing)
}

fn version(version: &str) -> MaintenanceInfo {
    MaintenanceInfo { version: version.to_owned(), description: None }
}

/// Prints the result of an order of an instance, or of a removal.
pub(crate) fn print(
    connection: &Connection,
    following: &Following<'_>,
    state: &'static str,
    operation: Option<&str>,
    made: &ProvisionedBody,
) -> Result<(), Failure> {
    // Given again, an order without an id would make another.
    let look = format!("look at it: manciple status {}", following.subject.words());
    tell(connection, following, state, operation, made).map_err(|failure| failure.hint(look))
}

fn tell(
    connection: &Connection,
    following: &Following<'_>,
    state: &'static str,
    operation: Option<&str>,
    made: &ProvisionedBody,
) -> Result<(), Failure> {
    let out = connection.out;
    let Following { action, subject, ids, catalog } = following;
    let instance = subject.instance.as_str();
    let binding = subject.binding.as_ref().map(osb::BindingId::as_str);
    if out.is_json() {
        return out.json(&OrderResult {
            action: *action,
            instance_id: instance,
            binding_id: binding,
            service_id: ids.map(|ids| ids.service.as_str()),
            plan_id: ids.map(|ids| ids.plan.as_str()),
            state,
            operation,
            made,
        });
    }
    if out.quiet {
        return out.line(binding.unwrap_or(instance));
    }
    let names = ids.map(|ids| lookup::names(*catalog, ids.service.as_str(), ids.plan.as_str()));
    out.fields(vec![
        ("Instance", Some(instance.to_owned())),
        ("Binding", binding.map(str::to_owned)),
        ("Service", names.map(|(service, _)| service.to_owned())),
        ("Plan", names.map(|(_, plan)| plan.to_owned())),
        ("Operation", Some(format!("{action} {state}"))),
        ("Dashboard", made.dashboard_url.clone()),
    ])?;
    if state == "in progress" {
        out.hint(&format!("follow it: manciple status {}", subject.words_and("--watch")));
    } else if *action == Action::Provision {
        out.hint(&format!("bind it: manciple bind {}", subject.words()));
    }
    Ok(())
}
