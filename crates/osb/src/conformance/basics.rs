//! Checks of items 1 to 10: headers, authentication, bodies, errors.

use http::header::{AUTHORIZATION, CONTENT_TYPE};

use super::chosen::Chosen;
use super::message::Kind;
use super::probe::Probe;
use super::report::Verdict;
use crate::client::{API_VERSION_HEADER, ORIGINATING_IDENTITY_HEADER};

/// Runs the checks that make nothing.
pub(super) async fn check(probe: &mut Probe<'_>) {
    check_version(probe).await;
    check_authentication(probe).await;

    let identity = "kubernetes eyJ1c2VybmFtZSI6ImNvbmZvcm1hbmNlIn0=";
    let ask = probe.ask(Kind::Catalog).header(ORIGINATING_IDENTITY_HEADER, identity);
    probe.check("originating-identity", ask, |answer| answer.expect(&[200])).await;
    for broken in ["kubernetes", "kubernetes !!!", "kubernetes bm90IEpTT04="] {
        let ask = probe.ask(Kind::Catalog).header(ORIGINATING_IDENTITY_HEADER, broken);
        probe.check("originating-identity-broken", ask, |answer| answer.expect(&[400])).await;
    }

    let ask = probe.ask(Kind::InstanceLast);
    probe.check("last-operation-unknown", ask, |answer| answer.expect(&[404])).await;
    let ask = probe.ask(Kind::BindingLast);
    probe.check("bind-last-operation-unknown", ask, |answer| answer.expect(&[404])).await;
    for (id, kind, flag) in [
        ("fetch-unknown", Kind::Instance, "instances_retrievable"),
        ("bind-fetch-unknown", Kind::Binding, "bindings_retrievable"),
    ] {
        if probe.chosen.as_ref().is_some_and(|chosen| chosen.service_flag(flag)) {
            let ask = probe.ask(kind);
            probe.check(id, ask, |answer| answer.expect(&[404])).await;
        } else {
            probe.skip(id, &format!("the service does not declare {flag}"));
        }
    }
}

async fn check_version(probe: &mut Probe<'_>) {
    let ask = probe.ask(Kind::Catalog).header(API_VERSION_HEADER, "1.0");
    probe.check("version-unsupported", ask, |answer| answer.expect(&[412])).await;
    // The specification allows 400 too.
    let ask = probe.ask(Kind::Catalog).without_header(API_VERSION_HEADER);
    let absent =
        probe.check("version-absent", ask, |answer| answer.expect(&[412, 400])).await.status;
    let ask = probe.ask(Kind::Catalog).header(API_VERSION_HEADER, "");
    probe
        .check("version-empty", ask, |answer| {
            let as_absent = answer.expect(&[absent]);
            answer.expect(&[412, 400]).and(|| as_absent)
        })
        .await;
}

async fn check_authentication(probe: &mut Probe<'_>) {
    const ALL: [&str; 4] = ["auth-required", "auth-wrong", "auth-first", "auth-body"];
    if !probe.client.headers().contains_key(AUTHORIZATION) {
        for id in ALL {
            probe.skip(id, "there are no credentials to leave out");
        }
        return;
    }
    let [required, wrong, first, body] = ALL;
    let reads = |kind: &Kind| {
        matches!(kind, Kind::Catalog | Kind::Instance | Kind::InstanceLast)
            || matches!(kind, Kind::Binding | Kind::BindingLast)
    };
    let may_change = probe.options.allow_mutation;
    for kind in Kind::ALL.into_iter().filter(|kind| may_change || reads(kind)) {
        let ask = probe.ask(kind).without_header(AUTHORIZATION);
        let answer = probe.check(required, ask, |answer| answer.expect(&[401])).await;
        if answer.status == 401 {
            let readable = answer.json.is_object();
            let verdict = if readable { Verdict::Pass } else { answer.fault("no JSON object") };
            probe.note(body, verdict);
        }
        let ask = probe.ask(kind).without_header(AUTHORIZATION);
        let ask = ask.without_header(API_VERSION_HEADER).raw(b"{");
        probe.check(first, ask, |answer| answer.expect(&[401])).await;
    }
    let ask = probe.ask(Kind::Catalog).header(AUTHORIZATION, "Basic d3Jvbmc6d3Jvbmc=");
    probe.check(wrong, ask, |answer| answer.expect(&[401])).await;
}

/// Runs the checks of malformed requests, on which a broker that does not refuse them may act.
pub(super) async fn check_bodies(probe: &mut Probe<'_>) {
    let ask = probe.ask(Kind::Provision).raw(b"{");
    probe.check("body-malformed", ask, |answer| answer.expect(&[400])).await;
    let ask = probe.ask(Kind::Provision).header(CONTENT_TYPE, "text/plain");
    probe.check("content-type-mismatch", ask, |answer| answer.expect(&[400])).await;
    // A router that takes the id apart, or does not decode it, answers for itself.
    for id in ["/b", " \u{fc}\u{20ac}", "%2F", "~._-", "?#&=+"] {
        let mut ask = probe.ask(Kind::Deprovision);
        ask.instance.push_str(id);
        probe.check("any-id", ask, |answer| answer.expect(&[410])).await;
    }
    for (id, kind) in [("deprovision-gone", Kind::Deprovision), ("unbind-gone", Kind::Unbind)] {
        let ask = probe.ask(kind);
        probe.check(id, ask, |answer| answer.expect(&[410])).await;
    }
    for (id, kind) in
        [("update-unknown-instance", Kind::Update), ("bind-unknown-instance", Kind::Bind)]
    {
        if kind == Kind::Bind && !probe.chosen.as_ref().is_some_and(Chosen::bindable) {
            probe.skip(id, "the plan is not bindable");
            continue;
        }
        let ask = probe.ask(kind);
        probe.check(id, ask, |answer| answer.expect(&[404])).await;
    }
}
