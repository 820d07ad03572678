//! The chart in Helm's own hands: installed, changed with the values that it has, taken back and removed, with an
//! instance that outlives all but the last.

use anyhow::{Context as _, ensure};

use super::place::{Place, TIMEOUT, manciple};
use crate::clients;
use crate::manifests::{CHART, RELEASE};

/// The kinds of objects of which a removed release leaves nothing.
const KINDS: &str =
    "deployments,pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies";

/// Runs the test, if Helm is there.
pub(super) fn test(place: &Place<'_>) -> anyhow::Result<()> {
    let Some(program) = clients::program("helm") else {
        testkit::skipped("there is no Helm");
        return Ok(());
    };
    let program = program.to_str().context("the path of Helm")?;
    let helm = |arguments: &[&str]| {
        let mut helm = place.program(program);
        crate::run(helm.args(arguments).args(["--namespace", place.namespace(), TIMEOUT]))
    };
    for object in place.needed() {
        place.apply(object, &[])?;
    }
    let sells = ["--set", "broker.configMap=files", "--set", "replicas=1", "--wait"];
    helm(&[&["install", RELEASE, CHART], sells.as_slice()].concat())?;
    let first = place.forward(&place.run_out(1)?[0])?;
    manciple(&first.url, &["provision", "manciple-files", "plain", "shop"])?;

    helm(&[
        "upgrade",
        RELEASE,
        CHART,
        "--reuse-values",
        "--set",
        "replicas=2,runAs=65531",
        "--wait",
    ])?;
    let second = place.forward(&place.run_out(2)?[1])?;
    let said = manciple(&second.url, &["status", "shop", "-o", "json"])?;
    ensure!(said.contains("ready"), "the instance is lost by an upgrade: {said}");

    helm(&["rollback", RELEASE, "1", "--wait"])?;
    let third = place.forward(&place.run_out(1)?[0])?;
    manciple(&third.url, &["deprovision", "shop"])?;

    helm(&["uninstall", RELEASE, "--wait"])?;
    let label = format!("app.kubernetes.io/instance={RELEASE}");
    place.until("nothing of the release is left", |place| {
        Ok(place.run(&["get", KINDS, "-l", &label, "-o", "name"])?.is_empty())
    })
}
