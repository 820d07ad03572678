//! `manciple template process`

use serde_json::Value;
use template::translate::{Translation, translate};
use template::{Problem, System, Template};

use super::args::{ProcessArgs, TranslationArgs};
use super::print::{Printer, parameters};
use super::{documents, given, invalid, listed};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

pub(super) async fn print(args: &ProcessArgs, out: Output) -> Result<(), Failure> {
    let printer = Printer::new(&args.output, args.template.as_deref()).await?;
    let values = &args.given.values;
    given::once(std::iter::once(&args.file.path).chain(&values.files))?;
    let given = given::read(&args.given.positional, values, out).await?;
    let mut template = documents::one(&args.file.path, out).await?;
    if args.parameters {
        return out.foreign(&parameters(&template.parameters));
    }
    if let Some(labels) = args.labels.as_ref().filter(|labels| !labels.is_empty()) {
        add_labels(&mut template, labels)?;
    }
    given::apply(&mut template, &given, values.ignore_unknown_parameters == Some(true))?;
    let name = template.name().to_owned();
    let processed = template.process(&mut System).map_err(|faults| {
        let is_missing = faults.iter().any(|fault| fault.problem == Problem::Required);
        let hint = "give each that is required: -p NAME=VALUE, or --param-file FILE";
        invalid(&name, &faults).hint(if is_missing { hint } else { "" })
    })?;
    for warning in &processed.warnings {
        out.note(&format!("warning: {warning}"));
    }
    let objects = match args.translate {
        true => translated(&name, processed.objects, &args.translation, out)?,
        false => processed.objects,
    };
    printer.print(&objects, args.raw == Some(true), out)
}

fn translated(
    name: &str,
    objects: Vec<Value>,
    args: &TranslationArgs,
    out: Output,
) -> Result<Vec<Value>, Failure> {
    let means = Translation {
        domain: args.route_domain.clone(),
        ingress_class: args.ingress_class.clone(),
        namespace: args.namespace.clone(),
    };
    let translated = translate(objects, &means).map_err(|faults| {
        let is_missing = faults.iter().any(|fault| fault.problem == Problem::Required);
        let hint = "--route-domain says the domain of Routes, and --namespace where objects go";
        let faults = listed(&faults);
        Failure::usage(format!("The Template {name:?} cannot be translated: {faults}"))
            .hint(if is_missing { hint } else { "" })
    })?;
    for warning in &translated.warnings {
        out.note(&format!("warning: {warning}"));
    }
    Ok(translated.objects)
}

/// Adds labels, given as `a=b,c=d`, to a template; they win over its own.
fn add_labels(template: &mut Template, labels: &str) -> Result<(), Failure> {
    let labels = labels.split(',').map(|label| match label.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.contains('=') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(Failure::usage(format!("error parsing labels: unexpected label spec: {label}"))
            .hint("labels are given as a=b,c=d")),
    });
    let labels = labels.collect::<Result<Vec<_>, _>>()?;
    template.labels.get_or_insert_default().extend(labels);
    Ok(())
}
