//! `manciple conformance`: checks any broker against the specification, by its answers.

use std::cell::Cell;
use std::pin::pin;

use clap::{Args, ValueEnum};
use osb::client::ClientError;
use osb::conformance::{self, CheckResult, Options, Report, Verdict};
use serde_json::{Value, json};

use super::connection::Connection;
use super::exit::Exit;
use super::failure::Failure;
use super::output::{Output, one_line, shown};
use super::{input, interrupts, lookup};

/// `conformance`
#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// The service to try, by name or id; the first that has a bindable plan when absent
    pub(crate) service: Option<String>,
    /// Its plan, by name or id; the first bindable one when absent
    pub(crate) plan: Option<String>,
    /// Make up to three instances and their bindings, and remove them; without it only what reads is asked
    #[arg(long)]
    pub(crate) allow_mutation: bool,
    /// What the broker may not fail
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t)]
    pub(crate) level: LevelArg,
    /// Parameters that provision an instance: @FILE, - for standard input, or a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) parameters: Option<String>,
    /// Parameters that violate the plan's schema, as --parameters
    #[arg(long, value_name = "JSON")]
    pub(crate) invalid_parameters: Option<String>,
    /// Parameters that update an instance; those that provision one when absent
    #[arg(long, value_name = "JSON")]
    pub(crate) update_parameters: Option<String>,
    /// Parameters with which an update fails, at once or later
    #[arg(long, value_name = "JSON")]
    pub(crate) failing_update_parameters: Option<String>,
    /// A plan to change to, by name or id; the plan is not changed when absent
    #[arg(long, value_name = "PLAN")]
    pub(crate) update_plan: Option<String>,
    /// Parameters that make a binding
    #[arg(long, value_name = "JSON")]
    pub(crate) binding_parameters: Option<String>,
}

/// How strongly the specification asks for what a broker may not fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LevelArg {
    /// What it must do.
    #[default]
    Must,
    /// What it should do, too.
    Should,
    /// What is recommended, too.
    Recommended,
}

impl From<LevelArg> for osb::conformance::Level {
    fn from(level: LevelArg) -> Self {
        match level {
            LevelArg::Must => Self::Must,
            LevelArg::Should => Self::Should,
            LevelArg::Recommended => Self::Recommended,
        }
    }
}

/// Runs the suite. The first interrupt makes it remove what it has made, and report how far it came.
pub(crate) async fn check(connection: Connection, args: ConformanceArgs) -> Result<(), Failure> {
    // From now on: the one that ends the command at once counts from here, too.
    let mut interrupt = pin!(interrupts(1)?);
    let (level, allow_mutation) = (args.level, args.allow_mutation);
    let prepared = async {
        let options = Options { polling: connection.polling(None), ..options(args).await? };
        is_there(&connection, &options).await.map(|()| options)
    };
    let options = tokio::select! {
        options = prepared => options?,
        () = &mut interrupt => {
            return Err(Failure::new(Exit::Unfinished, "interrupted").hint("nothing was made"));
        }
    };
    let out = connection.out;
    let is_stopped = Cell::new(false);
    let stop = async {
        interrupt.await;
        is_stopped.set(true);
        out.hint("what was made is removed; another interrupt leaves it");
    };
    let report = conformance::run_until(&connection.client, options, stop).await;
    let printed = print(out, &report, level);
    if !allow_mutation && report.blocked.is_none() {
        out.hint("what makes something was not tried; --allow-mutation makes instances, and removes them");
    }
    let again = "the same command tries the broker anew";
    let exit = match (is_stopped.get(), report.is_silent) {
        (true, _) => Exit::Unfinished,
        (false, true) => Exit::Unreachable,
        (false, false) => Exit::BrokerFailed,
    };
    shown(printed.map_err(|failure| failure.hint(again)), judged(&report, level, exit))
}

async fn options(args: ConformanceArgs) -> Result<Options, Failure> {
    let object = |option, given: &Option<String>| {
        let given = given.clone();
        async move { input::object(option, given.as_deref()).await }
    };
    Ok(Options {
        service: args.service,
        plan: args.plan,
        parameters: object("--parameters", &args.parameters).await?,
        invalid_parameters: object("--invalid-parameters", &args.invalid_parameters).await?,
        update_parameters: object("--update-parameters", &args.update_parameters).await?,
        failing_update_parameters: object(
            "--failing-update-parameters",
            &args.failing_update_parameters,
        )
        .await?,
        update_plan: args.update_plan,
        binding_parameters: object("--binding-parameters", &args.binding_parameters).await?,
        allow_mutation: args.allow_mutation,
        ..Options::default()
    })
}

/// Checks that there is a broker that accepts the credentials, and has the named service and plan. Other faults of its
/// catalog are in the report.
async fn is_there(connection: &Connection, options: &Options) -> Result<(), Failure> {
    let catalog = match connection.client.catalog(None).await {
        Ok(answer) => answer.body,
        Err(ClientError::Malformed { .. }) => None,
        Err(ClientError::Refused(refusal)) if !matches!(refusal.status, 401 | 403) => None,
        Err(error) => return Err(connection.refused("read the catalog", &error)),
    };
    let (Some(catalog), Some(service)) = (catalog, &options.service) else { return Ok(()) };
    let service = lookup::service(&catalog, service)?;
    let plans = [&options.plan, &options.update_plan].into_iter().flatten();
    plans.map(|plan| lookup::plan(service, plan)).try_for_each(|plan| plan.map(drop))
}

fn print(out: Output, report: &Report, level: LevelArg) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&as_json(report, level));
    }
    if !out.quiet {
        // What a broker says in its errors is among it.
        return out.foreign(&format!("{report}\n"));
    }
    report.failures().try_for_each(|result| out.line(result.check.id))
}

fn as_json(report: &Report, level: LevelArg) -> Value {
    let result = |CheckResult { check, verdict }: &CheckResult| {
        let (word, why) = match verdict {
            Verdict::Pass => ("pass", None),
            Verdict::Fail(why) => ("fail", Some(why)),
            Verdict::Skip(why) => ("skip", Some(why)),
        };
        json!({
            "id": check.id, "item": check.item, "level": check.level.to_string(), "words": check.words,
            "verdict": word, "why": why,
        })
    };
    json!({
        "conforms": report.conforms(level.into()),
        "checks": report.results.iter().map(result).collect::<Vec<_>>(),
        "blocked": report.blocked,
        "leftovers": report.leftovers,
    })
}

/// The result of the command. What is left at the broker is named in any case: somebody has to remove it.
fn judged(report: &Report, level: LevelArg, failed: Exit) -> Result<(), Failure> {
    let asked = |result: &&CheckResult| result.check.level <= level.into();
    let count = report.failures().filter(asked).count();
    let checks = if count == 1 { "check" } else { "checks" };
    let verdict = match (&report.blocked, report.conforms(level.into())) {
        (Some(why), _) => format!("the broker could not be checked to the end: {}", one_line(why)),
        (None, false) => format!("the broker does not conform: {count} {checks} failed"),
        (None, true) if report.leftovers.is_empty() => return Ok(()),
        (None, true) => "the broker conforms".to_owned(),
    };
    let left = match &*report.leftovers.join(", ") {
        "" => String::new(),
        left => format!("; left at it: {}", one_line(left)),
    };
    Err(Failure::new(failed, verdict + &left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_at_a_level_or_is_left_is_no_success() {
        let should =
            conformance::CHECKS.iter().find(|check| check.level == LevelArg::Should.into());
        let check = should.unwrap();
        let failed = vec![CheckResult { check, verdict: Verdict::Fail("no".to_owned()) }];
        let left = || vec!["i: 500".to_owned(), "i/b: gone\nmad".to_owned()];
        let report = |results: &[CheckResult], blocked: Option<&str>, leftovers| Report {
            results: results.to_vec(),
            blocked: blocked.map(str::to_owned),
            is_silent: false,
            leftovers,
        };
        let whole = "; left at it: i: 500, i/b: gone mad";
        for (name, report, level, expected) in [
            ("all is well", report(&[], None, vec![]), LevelArg::Recommended, None),
            ("a level is not asked for", report(&failed, None, vec![]), LevelArg::Must, None),
            (
                "it is",
                report(&failed, None, vec![]),
                LevelArg::Should,
                Some("the broker does not conform: 1 check failed".to_owned()),
            ),
            (
                "something is left",
                report(&failed, None, left()),
                LevelArg::Must,
                Some(format!("the broker conforms{whole}")),
            ),
            (
                "it did not come to the end",
                report(&[], Some("no\ncatalog"), left()),
                LevelArg::Must,
                Some(format!("the broker could not be checked to the end: no catalog{whole}")),
            ),
        ] {
            let judged = judged(&report, level, Exit::BrokerFailed).err();
            let found = judged.map(|failure| (failure.exit, failure.message));
            assert_eq!(found, expected.map(|words| (Exit::BrokerFailed, words)), "{name}");
        }
    }
}
