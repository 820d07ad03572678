//! `manciple template process`

use template::{System, Template};

use super::args::ProcessArgs;
use super::print::{Printer, parameters};
use super::{documents, given, invalid};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

pub(super) async fn print(args: &ProcessArgs, out: Output) -> Result<(), Failure> {
    let printer = Printer::new(&args.output, args.template.as_deref())?;
    let values = &args.given.values;
    let given = given::read(&args.given.positional, values, out).await?;
    let mut template = documents::one(&args.file.path, out).await?;
    if args.parameters {
        return out.foreign(&parameters(&template.parameters));
    }
    if let Some(labels) = &args.labels {
        add_labels(&mut template, labels)?;
    }
    given::apply(&mut template, &given, values.ignore_unknown_parameters)?;
    let name = template.name().to_owned();
    let processed = template.process(&mut System).map_err(|faults| invalid(&name, &faults))?;
    for warning in &processed.warnings {
        out.note(&format!("warning: {warning}"));
    }
    printer.print(&processed.objects, args.raw, out)
}

/// `a=b,c=d`; they win over those of the template.
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
