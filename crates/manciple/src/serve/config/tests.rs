//! What a configuration may say.

use super::environment::of_steward;
use super::*;

fn parse(yaml: &str) -> Result<Config, String> {
    Config::parse(yaml)
}

/// The blocks of YAML of a page.
fn shown(page: &str) -> impl Iterator<Item = &str> {
    page.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next())
}

/// An operator begins with what the page shows, and takes what it says for the defaults.
#[test]
fn what_the_page_shows_is_understood_and_is_the_default() {
    let mut shown = shown(include_str!("../../../../../docs/operating.md"));
    let config = parse(shown.next().unwrap()).unwrap();
    config.check().unwrap();
    let mut policy = config.policy();
    assert_eq!(policy.timeouts.bind, Duration::from_secs(60), "not the default, but an example");
    policy.timeouts = engine::Policy::default().timeouts;
    policy.dashboard_url = None;
    assert_eq!(policy.capabilities.take(), Some(vec![Capability::RequestFile]));
    assert_eq!(format!("{policy:?}"), format!("{:?}", engine::Policy::default()));
    assert_eq!(format!("{:?}", config.http.limits()), format!("{:?}", Limits::default()));
    let server = osb::server::Settings::new(osb::server::Authentication::Disabled);
    assert_eq!(config.http.body_limit, Some(server.body_limit));
    assert_eq!(config.http.body_timeout.map(|it| it.0), Some(server.body_timeout));
    assert_eq!(config.http.changes_in_flight, Some(server.changes_in_flight));
    assert_eq!((config.auth.disabled, config.http.open_metrics), (false, false));
}

#[test]
fn what_is_shown_for_a_cluster_is_understood() {
    let pages = [
        include_str!("../../../../../docs/kubernetes.md"),
        include_str!("../../../../../docs/template-instances.md"),
    ];
    let is_ours = |block: &&str| {
        ["broker:\n", "kubernetes:\n", "auth:\n"].iter().any(|it| block.starts_with(it))
    };
    let blocks: Vec<_> = pages.into_iter().flat_map(shown).filter(is_ours).collect();
    assert_eq!(blocks.len(), 4, "{blocks:?}");
    for block in blocks {
        parse(block).unwrap_or_else(|fault| panic!("{fault}:\n{block}"));
    }
}

#[test]
fn periods_are_written_as_people_write_them() {
    let seconds = |text: &str| text.parse::<Period>().map(|period| period.0.as_secs());
    assert_eq!(seconds("30s"), Ok(30));
    assert_eq!(seconds("15m"), Ok(900));
    assert_eq!(seconds("1h 30m"), Ok(5400));
    assert_eq!(seconds("7d"), Ok(604_800));
    for wrong in ["", "5", "soon", "-5s", "1 fortnight"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_period_beyond_ten_years_is_refused_with_the_limit() {
    let read = |text: &str| text.parse::<Period>().map(|period| period.0.as_secs());
    for most in ["3650d", "87600h", "315360000s"] {
        assert_eq!(read(most), Ok(315_360_000), "{most}");
    }
    for beyond in [
        "3651d",
        "87600h 1ms",
        "999999999999h",
        "1000000000000000000s",
        "9223372036854775807s",
        "9223372036854775807h",
        "99999999999999999999s",
        "18446744073709551615d",
        "99999999999999999999d",
    ] {
        let said = read(beyond).unwrap_err();
        assert!(said.contains("3650d at most"), "{beyond}: {said}");
    }
}

#[test]
fn an_unknown_member_is_refused_by_name() {
    let error = parse("broker:\n  comand: /bin/broker\n").unwrap_err();
    assert!(error.contains("comand"), "{error}");
}

#[test]
fn a_fault_has_its_place_its_member_and_a_remedy_and_no_value() {
    for (yaml, says) in [
        (
            "auth: {users: [{name: a, password: planted}]}",
            "line 1, column 26: password is not known; known are name, password_file, role",
        ),
        ("encryption:\n  key: planted\n", "line 2, column 3: key is not known; known are key_file"),
        ("auth: {tokens: [planted]}", "line 1, column 17: tokens: must have members"),
        ("auth: {tokens: planted}", "line 1, column 16: tokens: must be a list"),
        ("auth: {disabled: planted}", "line 1, column 18: disabled: must be true or false"),
        (
            "auth:\n  users:\n  - name: a\n    password_file: p\n    role: planted\n",
            "line 5, column 11: role: must be one of platform, operator",
        ),
        ("auth: {users: [{name: a}]}", "password_file is missing"),
        ("broker: planted", "line 1, column 9: broker: must have members, as `member: value`"),
        ("broker: {pass_env: planted}", "line 1, column 20: pass_env: must be a list"),
        ("operations: {attempts: 1e3}", "line 1, column 24: attempts: must be a whole number"),
        ("operations: {max_runs: -1}", "line 1, column 24: max_runs: must be a whole number"),
        ("http: {body_limit: 1MB}", "line 1, column 20: body_limit: must be a whole number"),
        ("operations: {timeout: 15}", "line 1, column 23: timeout: \"15\" is not a period; write"),
        (
            "operations: {timeout: 999999999999h}",
            "line 1, column 23: timeout: must be 3650d at most; give less",
        ),
        (
            "kubernetes:\n  keep_failed: 1000000000000000000s\n",
            "line 2, column 16: keep_failed: must be 3650d at most; give less",
        ),
        ("listen: a\nlisten: planted\n", "line 2, column 1: listen is there more than once"),
        ("{}\n---\n{}\n", "line 3, column 1: there is a second document"),
        ("broker:\n\tcommand: planted\n", "line 2, column 2: tabs"),
        ("auth: {users: [{password_file: *planted}]}", "reference to unknown value"),
        ("auth: {users: [{name: a, password_file: 'planted", "line 1"),
        ("auth: {users: [{name: planted: planted}]}", "line 1"),
    ] {
        let said = parse(yaml).unwrap_err();
        assert!(said.contains(says), "{yaml}: {said}");
        assert!(!said.contains("planted") && !said.contains('\n'), "{yaml}: {said}");
    }
}

#[test]
fn seed_variables_are_understood() {
    let with = |pairs: &[(&str, &str)]| {
        let pairs: std::collections::HashMap<String, String> =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut config = Config::default();
        config.take_environment(|name| pairs.get(name).cloned()).map(|()| config)
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let config = with(&[
        ("STEWARD_MODE", "jobs"),
        ("POD_NAMESPACE", "steward"),
        ("JOBS_CONFIG_MAP", path),
        ("JOBS_SECRET", path),
        ("JOBS_TIMEOUT", "900000"),
    ])
    .unwrap();
    assert_eq!(config.broker.config_dir.as_deref(), Some(folder.path()));
    assert_eq!(config.broker.secret_dir.as_deref(), Some(folder.path()));
    assert_eq!(config.policy().timeouts.bind, Duration::from_secs(900));
    for (pairs, word) in [
        ([("STEWARD_MODE", "helm")], "only `jobs`"),
        ([("JOBS_SECRET", "my-secret")], "directory"),
        ([("JOBS_TIMEOUT", "15m")], "milliseconds"),
        ([("JOBS_TIMEOUT", "18446744073709551615")], "JOBS_TIMEOUT: must be 3650d at most"),
    ] {
        let error = with(&pairs).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// There, one time was that of a pod: of its image, of the catalog and of an operation.
#[test]
fn variables_of_jobs_mode_are_taken() {
    let given = |jobs: bool| {
        move |name: &str| match name {
            "STEWARD_MODE" if jobs => Some("jobs".to_owned()),
            "JOBS_IMAGE" => Some("registry.example/broker:1".to_owned()),
            "JOBS_TIMEOUT" => Some("1200000".to_owned()),
            // Nobody polls.
            "JOBS_POLL_INTERVAL" => Some("10000".to_owned()),
            "LOG_LEVEL" => Some("trace".to_owned()),
            // What is empty names nothing.
            "JOBS_CONFIG_MAP" | "JOBS_SECRET" => Some(String::new()),
            _ => None,
        }
    };
    let read = |yaml: &str, jobs: bool| {
        let mut config = parse(yaml).unwrap();
        config.take_environment(given(jobs)).unwrap();
        let seconds = |period: Option<Period>| period.map(|it| it.0.as_secs());
        let start = config.kubernetes.as_ref().unwrap().start_timeout;
        let cluster = config.kubernetes.as_ref().unwrap();
        assert_eq!((&cluster.config_map, &cluster.secret), (&None, &None));
        let times = [config.operations.timeout, config.catalog.timeout, start].map(seconds);
        (times, config.log.level)
    };
    let steward = |yaml: &str, variables: &[(&str, &str)]| {
        let mut config = parse(yaml).unwrap();
        let given = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
        config.take_environment(given).unwrap();
        let start = config.kubernetes.as_ref().and_then(|cluster| cluster.start_timeout);
        let times = [config.operations.timeout, config.catalog.timeout, start];
        (times.map(|time| time.map(|it| it.0.as_secs())), config.broker.name)
    };
    let plain = [("JOBS_IMAGE", "i"), ("BROKER_NAME", "b"), ("STEWARD_MODE", "jobs")];
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(steward("{}", &plain), ([None, Some(900), Some(900)], name("b")));
    let said = "{broker: {name: a}, catalog: {timeout: 1m}}";
    assert_eq!(steward(said, &plain), ([None, Some(60), Some(900)], name("b")));
    assert_eq!(steward(said, &plain[2..]), ([None, Some(60), None], name("a")));
    // Of somebody else's.
    assert_eq!(steward(said, &plain[..2]), ([None, Some(60), None], name("a")));
    let level = |level: &str| Some(level.to_owned());
    assert_eq!(read("{}", true), ([Some(1200); 3], level("trace")));
    let said = "{catalog: {timeout: 1m}, kubernetes: {start_timeout: 2m}, log: {level: warn}}";
    assert_eq!(read(said, true), ([Some(1200), Some(60), Some(120)], level("trace")));
    assert_eq!(read(said, false).1, level("warn"), "it may be somebody else's");
    for (level, ours) in [
        ("Warning", "warn"),
        ("critical", "error"),
        ("DEBUG", "debug"),
        ("loud", "info"),
        ("kube=debug,info", "kube=debug,info"),
    ] {
        assert_eq!(of_steward(level.to_owned()), ours);
    }
    let mut config = parse("{catalog: {timeout: 0s}}").unwrap();
    let fault = config.check().unwrap_err().to_string();
    assert!(fault.contains("catalog.timeout"), "{fault}");
    config.catalog.timeout = None;
    config.check().unwrap();
}

#[test]
fn a_variable_that_lets_runs_outlive_their_keys_is_named() {
    let check = |yaml: &str| {
        let mut config = parse(yaml).unwrap();
        let given = |name: &str| match name {
            "JOBS_IMAGE" => Some("registry.example/broker:1".to_owned()),
            // 30 d: of the run, and of its pod's start.
            "JOBS_TIMEOUT" => Some("2592000000".to_owned()),
            _ => None,
        };
        config.take_environment(given).unwrap();
        config.check().map_err(|error| error.to_string())
    };
    for (case, yaml) in [
        ("keys as by default", "{}"),
        ("the file says less, and does not count", "operations: {timeout: 15m}"),
        ("keys that are good for longer, and not long enough", "kubernetes: {key_rotation: 60d}"),
    ] {
        let said = check(yaml).unwrap_err();
        for words in ["kubernetes.key_rotation: ", "may be 5184040 s by JOBS_TIMEOUT, "] {
            assert!(said.contains(words), "{case}: {words} is not in {said}");
        }
    }
    assert_eq!(check("kubernetes: {key_rotation: 61d}"), Ok(()));
    assert_eq!(check("kubernetes: {key_rotation: 31d, start_timeout: 5m}"), Ok(()));
}

#[test]
fn an_image_makes_a_cluster_the_place() {
    let mut config = Config::default();
    let given = |name: &str| match name {
        "STEWARD_MODE" => Some("jobs".to_owned()),
        "POD_NAMESPACE" => Some("steward".to_owned()),
        "JOBS_IMAGE" => Some("registry.example/broker:1".to_owned()),
        "JOBS_CONFIG_MAP" => Some("settings".to_owned()),
        "JOBS_SECRET" => Some("secrets".to_owned()),
        _ => None,
    };
    config.take_environment(given).unwrap();
    let cluster = config.kubernetes.unwrap();
    assert_eq!(cluster.namespace.as_deref(), Some("steward"));
    assert_eq!(cluster.image.as_deref(), Some("registry.example/broker:1"));
    assert_eq!(cluster.config_map.as_deref(), Some("settings"));
    assert_eq!(cluster.secret.as_deref(), Some("secrets"));
    assert!(config.broker.config_dir.is_none() && config.broker.secret_dir.is_none());
}

#[test]
fn jobs_mode_without_an_image_is_refused_unless_it_is_said_what_is_served_instead() {
    let check = |image: Option<&'static str>, change: fn(&mut Config)| {
        let mut config = Config::default();
        let given = |name: &str| match name {
            "STEWARD_MODE" => Some("jobs".to_owned()),
            "JOBS_IMAGE" => image.map(str::to_owned),
            _ => None,
        };
        config.take_environment(given).unwrap();
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    };
    assert_eq!(check(Some("registry.example/broker:1"), |_| {}), Ok(()));
    for image in [None, Some("")] {
        let said = check(image, |_| {}).unwrap_err();
        for word in ["JOBS_IMAGE: ", "the broker's image", "unset STEWARD_MODE", "broker.command"] {
            assert!(said.contains(word), "{image:?}: {word} is not in {said}");
        }
        let names_one = |config: &mut Config| config.broker.command = Some("/opt/broker".into());
        assert_eq!(check(image, names_one), Ok(()), "{image:?}");
        let has_resources = |config: &mut Config| {
            config.kubernetes.get_or_insert_default().brokers = Some(Several::Apart);
        };
        assert_eq!(check(image, has_resources), Ok(()), "{image:?}");
    }
    assert!(Config::default().check().is_ok(), "nobody asks for jobs mode");
}

#[test]
fn a_variable_has_brokers_served_from_their_resources() {
    let take = |how: &'static str| {
        let mut config = Config::default();
        let given = move |name: &str| match name {
            "MANCIPLE_BROKERS" => Some(how.to_owned()),
            "MANCIPLE_JOB_NAMESPACES" => Some("a, b,".to_owned()),
            _ => None,
        };
        config.take_environment(given).map(|()| config.kubernetes)
    };
    for (how, expected) in [("together", Several::Together), ("apart", Several::Apart)] {
        let cluster = take(how).unwrap().unwrap();
        assert_eq!(cluster.brokers, Some(expected), "{how}");
        assert_eq!(cluster.job_namespaces, ["a", "b"]);
    }
    assert!(take("both").unwrap_err().to_string().contains("together or apart"));
}

#[test]
fn a_variable_that_nobody_would_heed_is_refused_with_what_has_to_be_said_too() {
    let (namespaces, image) = ("MANCIPLE_JOB_NAMESPACES", "MANCIPLE_IMAGE");
    let together = ["set MANCIPLE_BROKERS too", "kubernetes.brokers in the file", "unset it"];
    let either = ["set JOBS_IMAGE or MANCIPLE_BROKERS too", "kubernetes in the file", "unset it"];
    for (case, yaml, set, refused) in [
        ("namespaces alone", "{}", vec![(namespaces, "a")], Some((namespaces, together))),
        ("an image alone", "{}", vec![(image, "i")], Some((image, either))),
        (
            "jobs mode does not make it a cluster's",
            "{}",
            vec![("STEWARD_MODE", "jobs"), ("POD_NAMESPACE", "n"), (namespaces, "a")],
            Some((namespaces, together)),
        ),
        ("what is empty says nothing", "{}", vec![(namespaces, ""), (image, "")], None),
        ("any pod has a namespace", "{}", vec![("POD_NAMESPACE", "n")], None),
        ("beside Brokers", "{}", vec![("MANCIPLE_BROKERS", "apart"), (namespaces, "a")], None),
        ("beside a broker's image", "{}", vec![("JOBS_IMAGE", "b"), (image, "i")], None),
        ("beside a file", "kubernetes: {}", vec![(namespaces, "a"), (image, "i")], None),
    ] {
        let value = |name: &str| {
            let found = set.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut config = parse(yaml).unwrap();
        let said = config.take_environment(value).map_err(|error| error.to_string());
        match refused {
            None => assert_eq!(said, Ok(()), "{case}"),
            Some((name, words)) => {
                let said = said.unwrap_err();
                assert!(said.starts_with(name), "{case}: {said}");
                assert!(words.iter().all(|word| said.contains(word)), "{case}: {said}");
            }
        }
        let cluster = config.kubernetes.unwrap_or_default();
        let taken = (cluster.job_namespaces.join(","), cluster.agent_image.unwrap_or_default());
        let of = |name: &str| value(name).filter(|_| refused.is_none()).unwrap_or_default();
        assert_eq!(taken, (of(namespaces), of(image)), "{case}");
    }
}

#[test]
fn each_limit_of_the_server_is_taken_up_and_only_that() {
    let (base, seven) = (Limits::default(), Duration::from_secs(7));
    for (http, expected) in [
        ("{}", base),
        ("{max_connections: 7}", Limits { connections: 7, ..base }),
        ("{handshake_timeout: 7s}", Limits { handshake: seven, ..base }),
        ("{head_timeout: 7s}", Limits { head: seven, ..base }),
        ("{head_limit: 7}", Limits { head_bytes: 7, ..base }),
        ("{write_timeout: 7s}", Limits { write: seven, ..base }),
        ("{drain: 7s}", Limits { drain: seven, ..base }),
    ] {
        let limits = parse(&format!("http: {http}\n")).unwrap().http.limits();
        assert_eq!(format!("{limits:?}"), format!("{expected:?}"), "{http}");
    }
}

#[test]
fn modes_of_files_are_octal_as_in_a_manifest() {
    let volumes = "volumes: [{name: a, configMap: {name: a, defaultMode: 0555}}]";
    let config = parse(&format!("kubernetes: {{pod: {{{volumes}}}}}")).unwrap();
    let volume = &config.kubernetes.unwrap().pod.volumes[0];
    assert_eq!(volume["configMap"]["defaultMode"], 0o555);
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manciple.yaml");
    std::fs::write(&file, "data_dir: data\nbroker:\n  command: ./broker\n").unwrap();
    let config = Config::read(&file).unwrap();
    assert_eq!(config.data_dir, Some(folder.path().join("data")));
    assert_eq!(config.broker.command, Some(folder.path().join("./broker")));
}
