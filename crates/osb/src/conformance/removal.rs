//! Checks of items 28, 47 and 49: how bindings and instances are removed.

use super::instance::{AT_ONCE, at_once, same_operation};
use super::message::{Answer, Ask, Kind};
use super::probe::{Probe, Settled};
use super::refusals::{self, Refusal};
use super::report::Verdict;

/// A removal, with the names of the checks on the way.
struct Removal {
    kind: Kind,
    refusals: &'static [Refusal],
    main: &'static str,
    at_once: &'static str,
    again_early: &'static str,
    gone: &'static str,
    deleted: Option<&'static str>,
}

const UNBIND: Removal = Removal {
    kind: Kind::Unbind,
    refusals: refusals::UNBIND,
    main: "unbind",
    at_once: "unbind-async",
    again_early: "unbind-again-early",
    gone: "unbind-gone",
    deleted: None,
};

const DEPROVISION: Removal = Removal {
    kind: Kind::Deprovision,
    refusals: refusals::DEPROVISION,
    main: "deprovision",
    at_once: "deprovision-async",
    again_early: "deprovision-again-early",
    gone: "deprovision-gone",
    deleted: Some("last-operation-deleted"),
};

/// Removes the binding that this request has made.
pub(super) async fn check_binding(probe: &mut Probe<'_>, bind: &Ask) {
    remove(probe, &UNBIND, &bind.instance, &bind.binding).await;
}

/// Removes the instance, after whatever bindings it still has.
pub(super) async fn check(probe: &mut Probe<'_>, instance: &str) {
    probe.remove_bindings().await;
    remove(probe, &DEPROVISION, instance, "").await;
}

/// Checks the removal of a new instance that is bound: it is refused, or its binding ends with it.
pub(super) async fn check_bound(probe: &mut Probe<'_>) {
    let id = "deprovision-bound";
    if probe.chosen.as_ref().is_none_or(|chosen| !chosen.bindable()) {
        return probe.skip(id, "the plan is not bindable");
    }
    let provision = probe.ask(Kind::Provision);
    let bind = probe.ask_of(Kind::Bind, &provision.instance, &provision.binding);
    for (ask, what) in [(provision, "no instance"), (bind.clone(), "no binding")] {
        let made = probe.send(ask).await;
        if probe.settle(&made).await != Settled::Well || !made.is_success() {
            return probe.skip(id, &format!("{what} could be made"));
        }
    }
    let ask = probe.ask_of(Kind::Deprovision, &bind.instance, "");
    let end = probe.send(ask).await;
    let ended = probe.settle(&end).await == Settled::Well && end.is_success();
    let verdict = match end.expect(&[200, 202, 422]) {
        Verdict::Pass if ended => {
            let unbind = probe.ask_of(Kind::Unbind, &bind.instance, &bind.binding);
            let gone = probe.send(unbind).await;
            probe.settle(&gone).await;
            left(&gone, 410, "the binding has outlived its instance")
        }
        // What was refused, or was begun and failed, has taken nothing along.
        Verdict::Pass => {
            let again = probe.send(bind).await;
            probe.settle(&again).await;
            left(&again, 200, "the instance is there, its binding is not")
        }
        wrong => wrong,
    };
    probe.note(id, verdict);
}

fn left(answer: &Answer, status: u16, otherwise: &str) -> Verdict {
    if answer.status == status { Verdict::Pass } else { answer.fault(otherwise) }
}

/// Checks the removal of something that is not there, of a plan that is not in the catalog: as a platform asks for when
/// the plan has been taken out of it meanwhile.
pub(super) async fn check_unlisted(probe: &mut Probe<'_>) {
    let kinds =
        [(Kind::Deprovision, "deprovision-unlisted-plan"), (Kind::Unbind, "unbind-unlisted-plan")];
    for (kind, id) in kinds {
        let mut ask = probe.ask(kind).without("plan_id");
        ask.query.push(("plan_id", "conformance-not-in-the-catalog".to_owned()));
        probe.check(id, ask, |answer| answer.expect(&[410])).await;
    }
}

async fn remove(probe: &mut Probe<'_>, removal: &Removal, instance: &str, binding: &str) {
    if refusals::check_of(probe, removal.refusals, instance, Some(binding)).await {
        for id in [removal.main, removal.at_once, removal.again_early] {
            probe.skip(id, "a request that should have been refused has removed it");
        }
        return;
    }
    let ask = probe.ask_of(removal.kind, instance, binding);
    let plain = probe.send(ask.clone().at_once()).await;
    probe.note(removal.at_once, at_once(&plain, &[200]));
    let first = if plain.is_success() { plain } else { probe.send(ask.clone()).await };
    if first.status == 202 {
        let again = probe.send(ask.clone()).await;
        probe.note_early(removal.again_early, &first, same_operation(&first, &again)).await;
    } else {
        probe.skip(removal.again_early, AT_ONCE);
    }
    let verdict = match probe.settle(&first).await {
        Settled::Badly(why) => Verdict::Fail(why),
        Settled::Well => first.expect(&[200, 202]).and(|| {
            let object = first.json.is_object();
            if object { Verdict::Pass } else { first.fault("no JSON object") }
        }),
    };
    let removed = !verdict.failed();
    probe.note(removal.main, verdict);
    if !removed {
        return;
    }
    match removal.deleted {
        Some(deleted) if first.status == 202 => {
            let again = probe.poll(&first).await;
            let succeeded = again.status == 200 && again.json["state"] == "succeeded";
            let told = again.status == 410 || succeeded;
            let verdict =
                if told { Verdict::Pass } else { again.fault("the deletion had succeeded") };
            probe.note(deleted, verdict);
        }
        Some(deleted) => probe.skip(deleted, AT_ONCE),
        None => {}
    }
    probe.check(removal.gone, ask, |answer| answer.expect(&[410])).await;
}
