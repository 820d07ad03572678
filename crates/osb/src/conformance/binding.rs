//! Checks of items 36 to 47: bindings of an instance that is there.

use serde_json::{Value, json};

use super::chosen::Chosen;
use super::instance::{AT_ONCE, at_once, same_operation};
use super::message::{Answer, Ask, Kind};
use super::probe::{Probe, Settled, parameters};
use super::report::Verdict;
use super::{refusals, removal};

/// The checks that need a binding, by the beginnings of their names.
const OURS: [&str; 3] = ["bind", "rotate", "unbind"];

/// Runs the checks of bindings: makes some and removes them.
pub(super) async fn check(probe: &mut Probe<'_>, instance: &str) {
    let Some(chosen) = probe.chosen.clone() else { return };
    if !chosen.bindable() {
        let ask = bind(probe, instance);
        probe.check("bind-not-bindable", ask, |answer| answer.expect(&[400, 422])).await;
        return probe.skip_all(&OURS, "the plan is not bindable");
    }
    probe.skip("bind-not-bindable", "the plan is bindable");
    refusals::check_of(probe, refusals::BIND, instance, None).await;
    let ask = bind(probe, instance).without("bind_resource");
    let answer = probe.check("bind-without-app", ask, without_app).await;
    probe.settle(&answer).await;
    let ask = bind(probe, instance).at_once();
    let answer = probe.check("bind-async", ask, |answer| at_once(answer, &[201])).await;
    probe.settle(&answer).await;

    let ask = bind(probe, instance);
    let first = probe.send(ask.clone()).await;
    if !bound(probe, &chosen, &first).await {
        return probe.skip_all(&OURS, "no binding could be made");
    }
    probe.check("bind-again", ask.clone(), |answer| answer.expect(&[200])).await;
    check_conflict(probe, &chosen, &ask).await;
    check_fetch(probe, &chosen, &first).await;
    check_rotation(probe, &chosen, &ask).await;
    removal::check_binding(probe, &ask).await;
}

/// A valid request for a new binding.
fn bind(probe: &Probe<'_>, instance: &str) -> Ask {
    let Ask { binding, .. } = probe.ask(Kind::Bind);
    probe.ask_of(Kind::Bind, instance, &binding)
}

fn without_app(answer: &Answer) -> Verdict {
    if matches!(answer.status, 201 | 202) {
        return Verdict::Pass;
    }
    answer.expect_word("RequiresApp")
}

/// Follows a bind to its end.
async fn bound(probe: &mut Probe<'_>, chosen: &Chosen, first: &Answer) -> bool {
    if first.status == 202 {
        let again = probe.send(first.ask.clone()).await;
        probe.note_early("bind-again-early", first, same_operation(first, &again)).await;
        if chosen.service_flag("bindings_retrievable") {
            let ask = probe.ask_of(Kind::Binding, &first.ask.instance, &first.ask.binding);
            let fetched = probe.send(ask).await;
            probe.note_early("bind-fetch-early", first, fetched.expect(&[404])).await;
        }
    } else {
        probe.skip("bind-again-early", AT_ONCE);
        probe.skip("bind-fetch-early", AT_ONCE);
    }
    let verdict = match probe.settle(first).await {
        Settled::Well => first.expect(&[201, 202]),
        Settled::Badly(why) => Verdict::Fail(why),
    };
    let there = first.is_success() && !verdict.failed() || first.status == 200;
    probe.note("bind", verdict);
    there
}

/// Checks another bind of the same id.
async fn check_conflict(probe: &mut Probe<'_>, chosen: &Chosen, ask: &Ask) {
    if chosen.binding_schema() {
        let why = "the plan has a schema, and other parameters may violate it";
        return probe.skip("bind-conflict", why);
    }
    let mut other = parameters(probe.options.binding_parameters.as_ref());
    other["x-conformance"] = json!(true);
    let answer = probe.send(ask.clone().with("parameters", other)).await;
    if answer.status == 400 {
        return probe.skip("bind-conflict", "the broker does not take other parameters");
    }
    probe.note("bind-conflict", answer.expect(&[409]));
}

async fn check_fetch(probe: &mut Probe<'_>, chosen: &Chosen, first: &Answer) {
    let later = first.status == 202;
    if !later && !chosen.service_flag("bindings_retrievable") {
        return probe.skip("bind-fetch", "bindings cannot be fetched");
    }
    let ask = probe.ask_of(Kind::Binding, &first.ask.instance, &first.ask.binding);
    probe
        .check("bind-fetch", ask, |answer| {
            answer.expect(&[200]).and(|| {
                let credentials = &answer.json["credentials"];
                if later && !gives(&answer.json) {
                    return answer.fault("it gives nothing, and neither did the 202");
                }
                let same = credentials.is_null() || *credentials == first.json["credentials"];
                if later || same {
                    Verdict::Pass
                } else {
                    answer.fault("the credentials are not those of before")
                }
            })
        })
        .await;
}

fn gives(binding: &Value) -> bool {
    ["credentials", "syslog_drain_url", "route_service_url", "volume_mounts"]
        .iter()
        .any(|name| !binding[*name].is_null())
}

async fn check_rotation(probe: &mut Probe<'_>, chosen: &Chosen, predecessor: &Ask) {
    let instance = &predecessor.instance;
    let successor = bind(probe, instance);
    let named = json!(predecessor.binding);
    if !chosen.rotatable() {
        let ask = successor.with("predecessor_binding_id", named);
        let answer = probe.check("rotate-refused", ask, |answer| answer.expect(&[400, 422])).await;
        probe.settle(&answer).await;
        return probe.skip_all(&["rotate"], "the plan's bindings cannot be rotated");
    }
    probe.skip("rotate-refused", "the plan's bindings can be rotated");
    let mut ask = bind(probe, instance);
    ask.body = Some(json!({"predecessor_binding_id": "conformance-unknown"}));
    let answer = probe.check("rotate-unknown", ask, |answer| answer.expect(&[400, 422])).await;
    probe.settle(&answer).await;

    let mut ask = successor;
    ask.body = Some(json!({"predecessor_binding_id": named}));
    let first = probe.send(ask).await;
    let verdict = match probe.settle(&first).await {
        Settled::Well => first.expect(&[201, 202]),
        Settled::Badly(why) => Verdict::Fail(why),
    };
    probe.note("rotate", verdict.clone());
    if verdict.failed() {
        return probe.skip("rotate-both", "there is no successor");
    }
    // The bind that made it is still answered as one of something that is there.
    probe.check("rotate-both", predecessor.clone(), |answer| answer.expect(&[200])).await;
}
