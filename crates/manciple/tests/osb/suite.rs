//! The conformance suite that we give to others, run against ourselves over TCP.

use std::time::Duration;

use engine::record::Reason;
use engine::testing::scripted_runner::{Act, failure, fitting_output};
use osb::client::{Auth, Client, ClientSettings, Polling};
use osb::conformance::{Level, Options, Report, Verdict};
use osb::server::{Authentication, Credentials, Limits, Settings};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Api, FIXED, SMALL, Setup, catalog};

/// Runs the suite against the usual broker, whose runs take a little while.
async fn suite(plan: &str) -> Report {
    let credentials = Credentials::new().user("platform", "planted-password", "platform");
    let settings = Settings::new(Authentication::fixed(credentials));
    let mut catalog = catalog();
    for flag in ["instances_retrievable", "bindings_retrievable", "allow_context_updates"] {
        catalog["services"][0][flag] = json!(true);
    }
    let api = Api::with(Setup { settings, catalog, ..Setup::default() }).await;
    api.runner.script(|work| {
        let fails = work.parameters.expose().get("label") == Some(&json!("fails"));
        let failed = || Err(failure(Reason::ExitStatus, "as asked"));
        let result = if fails { failed() } else { Ok(fitting_output(work)) };
        Act::End(Duration::from_millis(50), result)
    });

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = api.router.clone();
    let forever = std::future::pending();
    tokio::spawn(async move {
        osb::server::serve(listener, router, None, Limits::default(), forever).await;
    });
    let auth =
        Auth::Basic { user: "platform".into(), password: "planted-password".to_owned().into() };
    let client = Client::new(ClientSettings { auth, ..ClientSettings::new(url) }).unwrap();
    let object = |value: Value| value.as_object().cloned().map(Into::into);
    let options = Options {
        plan: Some(plan.to_owned()),
        parameters: object(json!({ "size": 1 })),
        invalid_parameters: object(json!({ "size": "large" })),
        update_parameters: object(json!({ "size": 2 })),
        failing_update_parameters: object(json!({ "label": "fails" })),
        allow_mutation: true,
        polling: Polling {
            first_interval: Duration::from_millis(20),
            max_interval: Duration::from_millis(50),
            deadline: Duration::from_secs(60),
            ..Polling::default()
        },
        ..Options::default()
    };
    osb::conformance::run(&client, options).await
}

#[tokio::test]
async fn we_pass_what_we_ask_of_others() {
    let (small, fixed) = tokio::join!(suite(SMALL), suite(FIXED));
    for (plan, report) in [(SMALL, small), (FIXED, fixed)] {
        assert!(report.conforms(Level::Recommended), "{plan}: {report}");
        assert!(report.leftovers.is_empty(), "{plan}: {report}");
        let always =
            ["deprovision", "update-refused-whole", "update-failed", "deprovision-unlisted-plan"];
        for check in always {
            assert_eq!(report.verdict(check), Some(&Verdict::Pass), "{plan} {check}: {report}");
        }
        let bound = report.verdict("deprovision-bound") == Some(&Verdict::Pass);
        assert_eq!(bound, plan == SMALL, "{plan}: {report}");
    }
}
