//! Checks of items 19 to 35 and 48: an instance's life up to its end.

use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::chosen::Chosen;
use super::message::{Answer, Ask, Kind};
use super::probe::{Probe, Settled, parameters};
use super::refusals;
use super::report::Verdict;

/// The reason to skip checks of an operation in progress.
pub(super) const AT_ONCE: &str = "the broker was done at once";

/// Runs the checks of an instance, which is provisioned and kept; `None` if there is none to go on with.
pub(super) async fn check(probe: &mut Probe<'_>) -> Option<String> {
    let chosen = probe.chosen.clone()?;
    check_refused(probe, &chosen).await;

    let ask = probe.ask(Kind::Provision);
    let instance = ask.instance.clone();
    let first = probe.send(ask.clone()).await;
    probe.note("profile-kubernetes", accepts(&first));
    if !provisioned(probe, &first).await {
        return None;
    }
    check_again(probe, &chosen, &ask).await;
    check_fetch(probe, &chosen, &first).await;
    check_updates(probe, &chosen, &instance).await;
    Some(instance)
}

/// Judges the answer to a provision: 201 or 202.
fn accepts(answer: &Answer) -> Verdict {
    if answer.is_success() { Verdict::Pass } else { answer.expect(&[201, 202]) }
}

/// Follows a provision to its end.
async fn provisioned(probe: &mut Probe<'_>, first: &Answer) -> bool {
    if first.status == 202 {
        check_early(probe, first).await;
    } else {
        for id in ["provision-again-early", "provision-conflict-early", "fetch-early"] {
            probe.skip(id, AT_ONCE);
        }
        probe.skip("last-operation-hints", AT_ONCE);
        probe.skip("last-operation-again", AT_ONCE);
    }
    let verdict = first.expect(&[201, 202]);
    let settled = if first.is_success() { probe.settle(first).await } else { Settled::Well };
    if let Settled::Badly(why) = settled {
        probe.note("provision", Verdict::Fail(why.clone()));
        probe.block(&format!("no instance could be provisioned: {why}"));
        return false;
    }
    probe.note("provision", verdict.clone());
    if !first.is_success() {
        let Verdict::Fail(why) = verdict else { return false };
        probe.block(&format!("no instance could be provisioned: {why}"));
        return false;
    }
    if first.status == 202 {
        let again = probe.poll(first).await;
        let same = again.status == 200 && again.json["state"] == "succeeded";
        let verdict = if same { Verdict::Pass } else { again.fault("the operation had succeeded") };
        probe.note("last-operation-again", verdict);
    }
    true
}

/// Runs the checks that need an instance that is being provisioned.
async fn check_early(probe: &mut Probe<'_>, first: &Answer) {
    let again = probe.send(first.ask.clone()).await;
    let verdict = same_operation(first, &again);
    probe.note_early("provision-again-early", first, verdict).await;
    let other = probe.send(first.ask.clone().with("space_guid", json!("elsewhere"))).await;
    probe.note_early("provision-conflict-early", first, other.expect(&[409])).await;

    let retrievable = "instances_retrievable";
    if probe.chosen.as_ref().is_some_and(|chosen| chosen.service_flag(retrievable)) {
        let ask = probe.ask_of(Kind::Instance, &first.ask.instance, "");
        let fetched = probe.send(ask).await;
        probe.note_early("fetch-early", first, fetched.expect(&[404])).await;
    } else {
        probe.skip("fetch-early", "instances cannot be fetched");
    }
    let ask = probe.ask_of(Kind::InstanceLast, &first.ask.instance, "");
    probe.check("last-operation-hints", ask, |answer| answer.expect(&[200])).await;
}

/// Judges the answer to a repeated request: 202 with the same operation.
pub(super) fn same_operation(first: &Answer, again: &Answer) -> Verdict {
    again.expect(&[202]).and(|| {
        let same = first.json["operation"] == again.json["operation"];
        if same { Verdict::Pass } else { again.fault("the operation is not the first one's") }
    })
}

/// Judges the answer to a request without `accepts_incomplete`: done at once, or `AsyncRequired`.
pub(super) fn at_once(answer: &Answer, done: &[u16]) -> Verdict {
    if done.contains(&answer.status) { Verdict::Pass } else { answer.expect_word("AsyncRequired") }
}

/// Checks provisions that can only be refused by the catalog or by other requests.
async fn check_refused(probe: &mut Probe<'_>, chosen: &Chosen) {
    match &chosen.foreign_plan {
        Some(plan) => {
            let ask = probe.ask(Kind::Provision).with("plan_id", plan["id"].clone());
            probe.check("provision-foreign-plan", ask, |answer| answer.expect(&[400])).await;
        }
        None => probe.skip("provision-foreign-plan", "the catalog has one service"),
    }
    match probe.options.invalid_parameters.clone() {
        Some(_) if !chosen.provision_schema() => {
            probe.skip("provision-parameters", "the plan has no schema");
        }
        Some(invalid) => {
            let invalid = parameters(Some(&invalid));
            let ask = probe.ask(Kind::Provision).with("parameters", invalid);
            probe.check("provision-parameters", ask, |answer| answer.expect(&[400])).await;
        }
        None => probe.skip("provision-parameters", "no invalid parameters were given"),
    }
    if chosen.maintained() {
        let ask = other_maintenance(probe.ask(Kind::Provision));
        let word = |answer: &Answer| answer.expect_word("MaintenanceInfoConflict");
        probe.check("provision-maintenance", ask, word).await;
    } else {
        probe.skip("provision-maintenance", "the plan has no maintenance_info");
    }
    let ask = probe.ask(Kind::Provision).at_once();
    let answer = probe.check("provision-async", ask, |answer| at_once(answer, &[201])).await;
    probe.settle(&answer).await;
}

fn other_maintenance(ask: Ask) -> Ask {
    ask.with("maintenance_info", json!({"version": "99999.0.0"}))
}

/// Runs the checks that need an instance that is there.
async fn check_again(probe: &mut Probe<'_>, chosen: &Chosen, ask: &Ask) {
    let done = |answer: &Answer| answer.expect(&[200]);
    probe.check("provision-again", ask.clone(), done).await;
    let undeclared = ask.clone().without_header(CONTENT_TYPE);
    probe.check("content-type-absent", undeclared, done).await;
    let more = ask.clone().with("x-conformance", json!({"unknown": true}));
    probe.check("unknown-members", more, done).await;

    let conflict = |answer: &Answer| answer.expect(&[409]);
    let elsewhere = ask.clone().with("space_guid", json!("elsewhere"));
    probe.check("provision-conflict-space", elsewhere, conflict).await;
    match &chosen.other_plan {
        Some(plan) => {
            let other = ask.clone().with("plan_id", plan["id"].clone());
            probe.check("provision-conflict-plan", other, conflict).await;
        }
        None => probe.skip("provision-conflict-plan", "the service has one plan"),
    }
}

async fn check_fetch(probe: &mut Probe<'_>, chosen: &Chosen, first: &Answer) {
    if !chosen.service_flag("instances_retrievable") {
        for id in ["fetch", "fetch-body", "dashboard-url-early", "refused-changes-nothing"] {
            probe.skip(id, "instances cannot be fetched");
        }
        return;
    }
    let ask = probe.ask_of(Kind::Instance, &first.ask.instance, "");
    let fetched = probe.check("fetch", ask, |answer| answer.expect(&[200])).await;
    if fetched.status != 200 {
        return;
    }
    let ordered = fetched.json["service_id"] == chosen.service["id"]
        && fetched.json["plan_id"] == chosen.plan["id"];
    let verdict =
        if ordered { Verdict::Pass } else { fetched.fault("not the service and plan ordered") };
    probe.note("fetch-body", verdict);
    let (early, late) = (&first.json["dashboard_url"], &fetched.json["dashboard_url"]);
    let kept = late.is_null() || early == late;
    let verdict = if kept { Verdict::Pass } else { fetched.fault("dashboard_url came too late") };
    probe.note("dashboard-url-early", verdict);
}

async fn check_updates(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) {
    let before = fetched(probe, chosen, instance).await;
    refusals::check_of(probe, refusals::UPDATE, instance, None).await;
    check_plan_fixed(probe, chosen, instance).await;
    if chosen.maintained() {
        let ask = other_maintenance(probe.ask_of(Kind::Update, instance, ""));
        let word = |answer: &Answer| answer.expect_word("MaintenanceInfoConflict");
        probe.check("update-maintenance", ask, word).await;
    } else {
        probe.skip("update-maintenance", "the plan has no maintenance_info");
    }
    let after = fetched(probe, chosen, instance).await;
    if let (Some(before), Some(after)) = (&before, &after) {
        let verdict = Verdict::of(before == after, || {
            "the fetched instance is not what it was before the refused updates".to_owned()
        });
        probe.note("refused-changes-nothing", verdict);
    }
    check_refused_whole(probe, chosen, instance).await;
    check_update(probe, chosen, instance).await;
    check_failed(probe, chosen, instance).await;
}

/// Checks the `GET` of an instance, and returns its answer.
async fn fetched(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) -> Option<Value> {
    if !chosen.service_flag("instances_retrievable") {
        return None;
    }
    let ask = probe.ask_of(Kind::Instance, instance, "");
    let answer = probe.send(ask).await;
    (answer.status == 200).then_some(answer.json)
}

async fn check_plan_fixed(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) {
    let (id, words) = ("update-plan-fixed", "update-plan-fixed-words");
    let (Some(plan), true) = (&chosen.other_plan, chosen.plans_are_fixed()) else {
        probe.skip(id, "there is no plan that may not be changed to");
        probe.skip(words, "there is no plan that may not be changed to");
        return;
    };
    let ask = probe.ask_of(Kind::Update, instance, "").with("plan_id", plan["id"].clone());
    let answer = probe.check(id, ask, |answer| answer.expect(&[422])).await;
    let told = answer.json["update_repeatable"] == false;
    let verdict = if told { Verdict::Pass } else { answer.fault("no update_repeatable: false") };
    probe.note(words, verdict);
}

async fn check_update(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) {
    let ask = update_of(probe, instance);
    let plain = probe.send(ask.clone().at_once()).await;
    if plain.status == 422 && plain.word() != "AsyncRequired" {
        for id in ["update", "update-async", "update-again-early", "update-keeps", "fetch-updating"]
        {
            probe.skip(id, "the broker does not update this instance");
        }
        return;
    }
    probe.note("update-async", at_once(&plain, &[200]));
    probe.settle(&plain).await;
    update(probe, chosen, ask.clone()).await;
    match fetched(probe, chosen, instance).await {
        Some(now) => {
            let kept = now["plan_id"] == chosen.plan["id"];
            let changed = || "an update without plan_id changed the plan".to_owned();
            probe.note("update-keeps", Verdict::of(kept, changed));
        }
        None => probe.skip("update-keeps", "instances cannot be fetched"),
    }
    if chosen.service_flag("allow_context_updates") {
        let context = json!({"platform": "kubernetes", "namespace": "conformance", "clusterid": "conformance", "instance_name": "renamed"});
        let ask = probe.ask_of(Kind::Update, instance, "").with("context", context);
        let answer = probe.check("update-context", ask, |answer| answer.expect(&[200, 202])).await;
        probe.settle(&answer).await;
    } else {
        probe.skip("update-context", "the service does not allow it");
    }
}

/// Checks the change of plan that the options ask for, on an instance of its own; a broker that refuses it fails. Every
/// request names the new plan from then on. The instance is removed with whatever is there still.
pub(super) async fn check_plan_change(probe: &mut Probe<'_>) {
    let Some(chosen) = probe.chosen.clone() else { return };
    let Some(plan) = chosen.update_plan.clone() else { return };
    let made = probe.send(probe.ask(Kind::Provision)).await;
    let instance = made.ask.instance.clone();
    let is_made = probe.settle(&made).await == Settled::Well && made.is_success();
    let ask = update_of(probe, &instance).with("plan_id", plan["id"].clone());
    if !is_made {
        let why = "no instance could be made to change its plan".to_owned();
        probe.note("update", Verdict::Fail(why));
    } else if update(probe, &chosen, ask).await {
        let now = fetched(probe, &chosen, &instance).await;
        if now.is_some_and(|now| now["plan_id"] != plan["id"]) {
            let why = "the fetched instance does not have the new plan".to_owned();
            probe.note("update", Verdict::Fail(why));
        }
        probe.chosen = Some(Chosen { plan, ..chosen });
    }
    probe.clean_up().await;
}

/// A valid request for an update that leaves the plan as it is.
fn update_of(probe: &Probe<'_>, instance: &str) -> Ask {
    let (_, plan) = probe.names();
    let options = &probe.options;
    let wanted = options.update_parameters.as_ref().or(options.parameters.as_ref());
    let mut ask = probe.ask_of(Kind::Update, instance, "");
    ask = ask.with("previous_values", json!({"plan_id": plan}));
    match wanted {
        Some(wanted) => ask.with("parameters", parameters(Some(wanted))),
        None => ask,
    }
}

/// Checks an update of which a part could be applied, and whose context is invalid.
async fn check_refused_whole(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) {
    let options = &probe.options;
    let wanted = options.update_parameters.as_ref().or(options.parameters.as_ref());
    let ask = probe.ask_of(Kind::Update, instance, "");
    let ask = ask.with("parameters", parameters(wanted)).with("context", json!([]));
    let changes = chosen.update_plan.as_ref().or(chosen.other_plan.as_ref());
    let ask = match changes {
        Some(plan) => ask.with("plan_id", plan["id"].clone()),
        None => ask,
    };
    check_unchanged(probe, chosen, "update-refused-whole", ask).await;
}

async fn check_failed(probe: &mut Probe<'_>, chosen: &Chosen, instance: &str) {
    match probe.options.failing_update_parameters.clone() {
        Some(failing) => {
            let ask = probe.ask_of(Kind::Update, instance, "");
            let ask = ask.with("parameters", parameters(Some(&failing)));
            check_unchanged(probe, chosen, "update-failed", ask).await;
        }
        None => probe.skip("update-failed", "no parameters were given that make an update fail"),
    }
}

/// Checks that the instance is unchanged after an update that cannot succeed.
async fn check_unchanged(probe: &mut Probe<'_>, chosen: &Chosen, id: &'static str, ask: Ask) {
    let instance = ask.instance.clone();
    let Some(before) = fetched(probe, chosen, &instance).await else {
        return probe.skip(id, "the instance cannot be fetched");
    };
    let answer = probe.send(ask).await;
    if probe.settle(&answer).await == Settled::Well && answer.is_success() {
        return probe.skip(id, "the broker made the update");
    }
    let after = fetched(probe, chosen, &instance).await;
    let changed = || "the fetched instance is not what it was before the update".to_owned();
    probe.note(id, Verdict::of(after == Some(before), changed));
}

/// Updates the instance, and runs the checks that need an update in progress. Returns whether it was updated.
async fn update(probe: &mut Probe<'_>, chosen: &Chosen, ask: Ask) -> bool {
    let first = probe.send(ask.clone()).await;
    if first.status == 202 {
        let again = probe.send(ask.clone()).await;
        probe.note_early("update-again-early", &first, same_operation(&first, &again)).await;
        if chosen.service_flag("instances_retrievable") {
            let fetch = probe.ask_of(Kind::Instance, &ask.instance, "");
            let fetched = probe.send(fetch).await;
            let verdict = fetched.expect_word("ConcurrencyError");
            probe.note_early("fetch-updating", &first, verdict).await;
        } else {
            probe.skip("fetch-updating", "instances cannot be fetched");
        }
    } else {
        probe.skip("update-again-early", AT_ONCE);
        probe.skip("fetch-updating", AT_ONCE);
    }
    let verdict = first.expect(&[200, 202]);
    let verdict = match probe.settle(&first).await {
        Settled::Well => verdict,
        Settled::Badly(why) => Verdict::Fail(why),
    };
    let updated = !verdict.failed();
    probe.note("update", verdict);
    updated
}

/// Checks the deletion of an instance while it is being provisioned, here with a context of Cloud Foundry.
pub(super) async fn check_early_end(probe: &mut Probe<'_>) {
    let context = json!({
        "platform": "cloudfoundry", "organization_guid": "conformance",
        "organization_name": "conformance", "space_guid": "conformance",
        "space_name": "conformance", "instance_name": "conformance",
    });
    let ask = probe.ask(Kind::Provision).with("context", context);
    let instance = ask.instance.clone();
    let first = probe.send(ask).await;
    probe.note("profile-cloudfoundry", accepts(&first));
    if first.status != 202 {
        return probe.skip("deprovision-early", AT_ONCE);
    }
    let ask = probe.ask_of(Kind::Deprovision, &instance, "");
    let end = probe.send(ask.clone()).await;
    if end.status == 422 && end.word() == "ConcurrencyError" {
        probe.note("deprovision-early", Verdict::Pass);
        probe.settle(&first).await;
        return;
    }
    let verdict = end.expect(&[200, 202]);
    let verdict = match probe.settle(&end).await {
        Settled::Well => verdict,
        Settled::Badly(why) => Verdict::Fail(why),
    };
    if verdict != Verdict::Pass {
        return probe.note("deprovision-early", verdict);
    }
    // Were the provision not halted, the instance would still come.
    let gone = probe.send(ask).await;
    probe.note("deprovision-early", gone.expect(&[410]));
}
