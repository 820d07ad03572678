//! Requests that must be refused, whatever a broker can do: each is a valid request with one fault.

use serde_json::{Value, json};

use super::message::{Ask, Kind};
use super::probe::{Probe, Settled};

/// A valid request with a fault, and the check that it is refused.
pub(super) struct Refusal {
    id: &'static str,
    kind: Kind,
    faults: &'static [fn(Ask) -> Ask],
}

const fn refusal(id: &'static str, kind: Kind, faults: &'static [fn(Ask) -> Ask]) -> Refusal {
    Refusal { id, kind, faults }
}

fn nowhere() -> Value {
    json!("conformance-not-in-the-catalog")
}

/// The refusals of provisioning.
pub(super) const PROVISION: &[Refusal] = &[
    refusal(
        "provision-members",
        Kind::Provision,
        &[
            |ask| ask.without("service_id"),
            |ask| ask.with("service_id", json!("")),
            |ask| ask.with("service_id", json!(7)),
            |ask| ask.without("plan_id"),
            |ask| ask.with("plan_id", json!("")),
            |ask| ask.without("organization_guid"),
            |ask| ask.with("organization_guid", json!("")),
            |ask| ask.without("space_guid"),
            |ask| ask.with("space_guid", json!("")),
            |ask| ask.with("parameters", json!("text")),
            |ask| ask.with("context", json!([])),
        ],
    ),
    refusal(
        "provision-object",
        Kind::Provision,
        &[|ask| ask.raw(b"[]"), |ask| ask.raw(b"\"text\""), |ask| ask.raw(b"null")],
    ),
    refusal(
        "provision-unknown-service",
        Kind::Provision,
        &[|ask| ask.with("service_id", nowhere())],
    ),
    refusal("provision-unknown-plan", Kind::Provision, &[|ask| ask.with("plan_id", nowhere())]),
];

/// The refusals of updating an instance that is there.
pub(super) const UPDATE: &[Refusal] = &[
    refusal(
        "update-members",
        Kind::Update,
        &[|ask| ask.without("service_id"), |ask| ask.with("service_id", json!(""))],
    ),
    refusal("update-unknown-service", Kind::Update, &[|ask| ask.with("service_id", nowhere())]),
    refusal("update-unknown-plan", Kind::Update, &[|ask| ask.with("plan_id", nowhere())]),
];

/// The refusals of binding an instance that is there.
pub(super) const BIND: &[Refusal] = &[refusal(
    "bind-members",
    Kind::Bind,
    &[
        |ask| ask.without("service_id"),
        |ask| ask.with("service_id", json!("")),
        |ask| ask.without("plan_id"),
        |ask| ask.with("plan_id", json!("")),
    ],
)];

const WITHOUT_NAMES: &[fn(Ask) -> Ask] =
    &[|ask| ask.without("service_id"), |ask| ask.without("plan_id")];

/// The refusals of removing a binding that is there.
pub(super) const UNBIND: &[Refusal] = &[refusal("unbind-members", Kind::Unbind, WITHOUT_NAMES)];

/// The refusals of removing an instance that is there.
pub(super) const DEPROVISION: &[Refusal] =
    &[refusal("deprovision-members", Kind::Deprovision, WITHOUT_NAMES)];

/// Checks requests for ids that are new each time.
pub(super) async fn check(probe: &mut Probe<'_>, table: &[Refusal]) {
    for refusal in table {
        for fault in refusal.faults {
            let ask = fault(probe.ask(refusal.kind));
            probe.check(refusal.id, ask, |answer| answer.expect(&[400])).await;
        }
    }
}

/// Checks requests for an instance, and a binding if one is named. Returns whether the broker accepted
/// a request that it should have refused.
pub(super) async fn check_of(
    probe: &mut Probe<'_>,
    table: &[Refusal],
    instance: &str,
    binding: Option<&str>,
) -> bool {
    let mut accepted = false;
    for refusal in table {
        for fault in refusal.faults {
            let fresh = probe.ask(refusal.kind).binding;
            let ask = probe.ask_of(refusal.kind, instance, binding.unwrap_or(&fresh));
            let answer = probe.check(refusal.id, fault(ask), |answer| answer.expect(&[400])).await;
            if answer.is_success() {
                accepted = true;
                // What comes next should not meet an operation in progress.
                if probe.settle(&answer).await != Settled::Well {
                    return accepted;
                }
            }
        }
    }
    accepted
}
