use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn options_after_the_command_win() {
    let cli = Cli::try_parse_from([
        "manciple",
        "--url",
        "http://one",
        "-o",
        "json",
        "catalog",
        "--url",
        "http://two",
    ])
    .unwrap();
    let Command::Catalog(catalog) = cli.command else { panic!("not a catalog") };
    let remote = cli.remote.overridden_by(catalog.remote);
    assert_eq!(remote.url.as_deref(), Some("http://two"));
    assert_eq!(remote.printing.output, Some(Format::Json));
}

#[test]
fn a_token_and_a_user_exclude_each_other() {
    let user = RemoteArgs { user: Some("u".to_owned()), ..RemoteArgs::default() };
    let token = RemoteArgs { token_file: Some("t".into()), ..RemoteArgs::default() };
    let later_token = user.clone().overridden_by(token.clone());
    assert!(later_token.user.is_none() && later_token.token_file.is_some());
    let later_user = token.overridden_by(user);
    assert!(later_user.user.is_some() && later_user.token_file.is_none());
}

#[test]
fn logs_are_of_a_run_or_of_an_instance_and_a_fault_names_both() {
    let fault = Cli::try_parse_from(["manciple", "logs"]).unwrap_err().to_string();
    assert!(fault.contains("logs [OPTIONS] <RUN>") && fault.contains("--instance <ID>"), "{fault}");
}

#[test]
fn an_update_changes_something() {
    assert!(Cli::try_parse_from(["manciple", "update", "i"]).is_err());
    assert!(Cli::try_parse_from(["manciple", "update", "i", "--plan", "p"]).is_ok());
}

#[test]
fn a_log_is_of_a_run_or_of_an_instance() {
    for (arguments, good) in [
        (vec!["run"], true),
        (vec!["--instance", "i"], true),
        (vec!["--instance", "i", "--binding", "b"], true),
        (vec![], false),
        (vec!["run", "--instance", "i"], false),
        (vec!["--binding", "b"], false),
    ] {
        let line = ["manciple", "logs"].into_iter().chain(arguments.clone());
        assert_eq!(Cli::try_parse_from(line).is_ok(), good, "{arguments:?}");
    }
}
