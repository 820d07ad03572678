//! Parses the command line of `/bin/broker`. Every flag may come with every subcommand, as the seed asks.

use std::ffi::OsString;

use super::contract::{CATALOG, LAST_OPERATION, flag};
use crate::broker::Action;
use crate::model::{BindingId, IdError, InstanceId, PlanId, ServiceId};

pub(super) const USAGE: &str = "\
Usage: broker <subcommand> [flags]

Subcommands: catalog, provision, update, bind, unbind, deprovision, last-operation
Flags:       --service-id <id>  --plan-id <id>  --instance-id <id>  --binding-id <id>
             --operation <name>   (last-operation only; others ignore it)

The result is JSON on stdout; everything else goes to stderr.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subcommand {
    Help,
    Catalog,
    Work(Action),
    LastOperation,
}

#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) subcommand: Subcommand,
    pub(super) service_id: Option<ServiceId>,
    pub(super) plan_id: Option<PlanId>,
    pub(super) instance_id: Option<InstanceId>,
    pub(super) binding_id: Option<BindingId>,
    pub(super) operation: Option<String>,
}

impl Arguments {
    pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut subcommand = None;
        let mut values: [(&str, Option<String>); 5] = flag::ALL.map(|name| (name, None));
        let mut arguments = arguments.into_iter().map(text);
        while let Some(argument) = arguments.next().transpose()? {
            if argument == "--help" || argument == "-h" {
                subcommand = Some(Subcommand::Help);
                break;
            }
            if !argument.starts_with('-') {
                if subcommand.is_some() {
                    return Err(format!("unexpected argument {argument:?}; {SEE_HELP}"));
                }
                subcommand = Some(parse_subcommand(&argument)?);
                continue;
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let Some((_, slot)) = values.iter_mut().find(|(flag, _)| *flag == name) else {
                return Err(format!("unknown flag {name:?}; {SEE_HELP}"));
            };
            let value = match value {
                Some(value) => value,
                None => arguments.next().ok_or(format!("{name} needs a value"))??,
            };
            if slot.replace(value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        let subcommand = subcommand.ok_or(format!("a subcommand is needed; {SEE_HELP}"))?;
        let [service, plan, instance, binding, operation] = values;
        Ok(Self {
            subcommand,
            service_id: id(service, ServiceId::new)?,
            plan_id: id(plan, PlanId::new)?,
            instance_id: id(instance, InstanceId::new)?,
            binding_id: id(binding, BindingId::new)?,
            operation: operation.1.filter(|operation| !operation.is_empty()),
        })
    }
}

const SEE_HELP: &str = "--help lists what there is";

fn text(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|argument| format!("{argument:?} is not UTF-8"))
}

fn parse_subcommand(name: &str) -> Result<Subcommand, String> {
    if let Some(action) = Action::ALL.into_iter().find(|action| action.as_str() == name) {
        return Ok(Subcommand::Work(action));
    }
    match name {
        CATALOG => Ok(Subcommand::Catalog),
        LAST_OPERATION => Ok(Subcommand::LastOperation),
        "help" => Ok(Subcommand::Help),
        _ => Err(format!("unknown subcommand {name:?}; {SEE_HELP}")),
    }
}

/// Reads the id of a flag. A flag with an empty value (`--binding-id=`) counts as absent.
fn id<T>(
    (name, value): (&str, Option<String>),
    new: impl Fn(String) -> Result<T, IdError>,
) -> Result<Option<T>, String> {
    let value = value.filter(|value| !value.is_empty());
    value.map(|value| new(value).map_err(|why| format!("{name} {why}"))).transpose()
}
