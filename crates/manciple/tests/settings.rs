//! Settings that cannot be meant end the server before it begins.

mod support;

use support::{Served, Site, http};

const BROKER: &str = "#!/bin/sh\necho '{}'\n";

#[test]
fn faults_of_the_file_and_the_environment_are_refused_together_before_anything_is_made() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\nhttp: {max_connections: 0}\n".to_owned();
    let (code, said) = Served::refused(site.command().env("JOBS_TIMEOUT", "0"));
    assert_eq!(code, Some(2), "{said}");
    for member in ["http.max_connections: ", "operations.timeout: "] {
        assert!(said.contains(member), "{said}");
    }
    assert!(!site.data().exists());
}

#[test]
fn a_configuration_that_is_not_there_is_named_with_what_may_be_instead() {
    let site = Site::new(BROKER);
    for (path, why) in [("/nowhere.yaml", "No such file"), ("/", "Is a directory")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["serve", "--config", path]).stderr(std::process::Stdio::piped());
        let (code, said) = Served::refused(command.current_dir(site.path()));
        assert_eq!(code, Some(2), "{said}");
        for words in [path, why, "MANCIPLE_CONFIG", "manciple serve --help"] {
            assert!(said.contains(words), "{said}");
        }
    }
}

#[test]
fn a_server_that_asks_nobody_who_they_are_says_so_at_its_start() {
    let mut site = Site::new(BROKER);
    for (auth, says) in [("{disabled: true}", true), ("{}", false)] {
        site.settings = format!("auth: {auth}\n");
        let server = site.serve();
        assert_eq!(
            server.log().contains("auth.disabled: whoever reaches"),
            says,
            "{}",
            server.log()
        );
    }
}

#[test]
fn a_variable_closes_metrics_that_the_file_opens_and_a_flag_opens_them_again() {
    let mut site = Site::new(BROKER);
    site.settings = "http: {open_metrics: true}\n".to_owned();
    for (variable, flag, status) in [
        (None, None, 200),
        (Some("false"), None, 401),
        (Some("false"), Some("--open-metrics"), 200),
        (Some("true"), Some("--open-metrics=false"), 401),
    ] {
        let mut command = site.command();
        command.envs(variable.map(|value| ("MANCIPLE_OPEN_METRICS", value))).args(flag);
        let server = Served::start(&mut command).unwrap();
        let metrics = http::get(&server.address, "/metrics").unwrap();
        assert_eq!(metrics.status, status, "{variable:?} {flag:?}");
    }
}

#[test]
fn a_level_that_would_silence_the_log_is_refused_wherever_it_is_given() {
    let site = Site::new(BROKER);
    let (code, said) = Served::refused(site.command().env("MANCIPLE_LOG_LEVEL", "warning"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("log.level: \"warning\""), "{said}");
}

#[test]
fn an_agent_that_cannot_be_given_to_runs_is_named_with_the_remedy() {
    let mut site = Site::new(BROKER);
    let plain = site.write("agent", "not a program");
    for (file, why) in
        [("/nowhere/agent", "No such file"), (plain.to_str().unwrap(), "is not a program")]
    {
        site.settings = format!(
            "auth: {{disabled: true}}\nkubernetes: {{namespace: n, image: i, agent_file: {file}}}\n"
        );
        let config = site.write("manciple.yaml", &site.settings);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        let (code, said) = Served::refused(&mut command);
        assert_ne!(code, Some(0), "{said}");
        for words in ["kubernetes.agent_file: ", "agent_delivery: init-container", file, why] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
