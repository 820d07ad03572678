//! Holds a broker to the specification: any broker, by what it answers.

use osb::conformance::{self, CheckResult, Options, Report, Verdict};
use serde_json::{Value, json};

use super::args::{ConformanceArgs, LevelArg};
use super::connection::Connection;
use super::exit::Exit;
use super::failure::Failure;
use super::input;

pub(crate) async fn check(connection: Connection, args: ConformanceArgs) -> Result<(), Failure> {
    let object = |option, given: &Option<String>| {
        let given = given.clone();
        async move { input::object(option, given.as_deref()).await }
    };
    let options = Options {
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
    };
    let level = args.level;
    let report = conformance::run(&connection.client, options).await;
    let out = connection.out;
    match out.is_json() {
        true => out.json(&as_json(&report, level))?,
        // What a broker says in its errors is among it.
        false => out.foreign(&format!("{}\n", in_words(&report, out.quiet)))?,
    }
    if !args.allow_mutation && report.blocked.is_none() {
        out.hint("what makes something was not tried; --allow-mutation makes instances, and removes them");
    }
    match report.conforms(level.into()) {
        true => Ok(()),
        false => Err(Failure::new(Exit::BrokerFailed, why_not(&report, level))),
    }
}

/// The whole report, or of a quiet one what failed.
fn in_words(report: &Report, quiet: bool) -> String {
    if !quiet {
        return report.to_string();
    }
    let failures = report.failures();
    failures.map(|result| result.check.id).collect::<Vec<_>>().join("\n")
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

fn why_not(report: &Report, level: LevelArg) -> String {
    match &report.blocked {
        Some(_) => "the broker could not be checked to the end".to_owned(),
        None => {
            let asked = |result: &&CheckResult| result.check.level <= level.into();
            let count = report.failures().filter(asked).count();
            let checks = if count == 1 { "check" } else { "checks" };
            format!("the broker does not conform: {count} {checks} failed")
        }
    }
}
