//! What can be written and is refused, and what is not.

use super::*;

fn faults(yaml: &str) -> Vec<String> {
    let config: Config = serde_saphyr::from_str(yaml).unwrap();
    let Err(error) = config.check() else { return Vec::new() };
    let error = error.to_string();
    let (_, faults) = error.split_once("right:").unwrap();
    faults.trim().lines().map(|fault| fault.trim().to_owned()).collect()
}

#[test]
fn what_cannot_be_meant_is_refused_naming_the_member() {
    let zero = "must not be 0";
    for (yaml, member, words) in [
        ("http: {max_connections: 0}", "http.max_connections", zero),
        ("http: {changes_in_flight: 0}", "http.changes_in_flight", zero),
        ("http: {body_limit: 0}", "http.body_limit", zero),
        ("http: {head_limit: 0}", "http.head_limit", zero),
        ("http: {body_timeout: 0s}", "http.body_timeout", zero),
        ("http: {head_timeout: 0s}", "http.head_timeout", zero),
        ("http: {write_timeout: 0s}", "http.write_timeout", zero),
        ("http: {handshake_timeout: 0s}", "http.handshake_timeout", zero),
        ("broker: {output_limit: 0}", "broker.output_limit", zero),
        (
            "{kubernetes: {image: x}, broker: {output_limit: 4194305}}",
            "broker.output_limit",
            "4194304 at most on a cluster",
        ),
        (
            "{kubernetes: {image: x}, broker: {log_limit: 2097153}}",
            "broker.log_limit",
            "2097152 at most on a cluster",
        ),
        ("operations: {max_runs: 0}", "operations.max_runs", zero),
        ("operations: {max_in_progress: 0}", "operations.max_in_progress", zero),
        ("operations: {attempts: 0}", "operations.attempts", zero),
        ("operations: {external_timeout: 0s}", "operations.external_timeout", zero),
        ("auth: {secrets: [{name: s}]}", "auth.secrets", "is for a cluster"),
        ("auth: {kubernetes: {access_review: true}}", "auth.kubernetes", "is for a cluster"),
        ("{kubernetes: {image: x}, auth: {kubernetes: {}}}", "auth.kubernetes", "nobody may"),
        (
            "{kubernetes: {brokers: apart}, catalog: {file: c.json}}",
            "catalog.file",
            "Brokers each say their own",
        ),
        (
            "{kubernetes: {brokers: together}, broker: {capabilities: [update]}}",
            "broker.capabilities",
            "Brokers each declare their own, as jobs.capabilities",
        ),
        (
            "{kubernetes: {brokers: apart}, broker: {capabilities: []}}",
            "broker.capabilities",
            "leave it out, or leave out kubernetes.brokers",
        ),
        (
            "auth: {disabled: true, tokens: [{name: t, token_file: f}]}",
            "auth.disabled",
            "whatever auth.tokens says",
        ),
        (
            "{kubernetes: {image: x}, auth: {disabled: true, kubernetes: {access_review: true}}}",
            "auth.disabled",
            "whatever auth.kubernetes says",
        ),
        ("data_dir: ''", "data_dir", "is empty"),
        ("broker: {config_dir: ''}", "broker.config_dir", "is empty"),
        (
            "auth: {users: [{name: a, password_file: a}, {name: b, password_file: ''}]}",
            "auth.users[1].password_file",
            "is empty",
        ),
        ("tls: {certificate: c, key: ''}", "tls.key", "is empty"),
        ("kubernetes: {image: x, key_rotation: 59m}", "kubernetes.key_rotation", "at least 1h"),
        (
            "{kubernetes: {image: x, key_rotation: 2h}, operations: {timeout: 3h}}",
            "kubernetes.key_rotation",
            "longer than any run",
        ),
        (
            "{kubernetes: {image: x, key_rotation: 2h}, operations: {timeouts: {unbind: 2h}}}",
            "kubernetes.key_rotation",
            "which may be 7540 s",
        ),
        (
            "{kubernetes: {image: x, key_rotation: 1h, start_timeout: 1h}}",
            "kubernetes.key_rotation",
            "which may be 4540 s",
        ),
        (
            "{kubernetes: {image: x, key_rotation: 2h}, catalog: {timeout: 3h}}",
            "kubernetes.key_rotation",
            "which may be 11140 s by operations.timeout, operations.timeouts, catalog.timeout, ",
        ),
        (
            "kubernetes: {image: x, start_timeout: 30d}",
            "kubernetes.key_rotation",
            "is 2592000 s, by default",
        ),
        (
            "{kubernetes: {image: x}, operations: {timeout: 30d}}",
            "kubernetes.key_rotation",
            "which may be 2592340 s",
        ),
        (
            "{kubernetes: {brokers: apart}, operations: {timeouts: {unbind: 40d}}}",
            "kubernetes.key_rotation",
            "which may be 3456340 s",
        ),
        (
            "{kubernetes: {image: x}, catalog: {timeout: 31d}}",
            "kubernetes.key_rotation",
            "have runs take less",
        ),
        ("kubernetes: {image: x, start_timeout: 0s}", "kubernetes.start_timeout", "at least 1s"),
        (
            "kubernetes: {image: x, start_timeout: 999ms}",
            "kubernetes.start_timeout",
            "leave it out",
        ),
        (
            "{kubernetes: {image: x}, auth: {secrets: [{name: s}, {name: s}]}}",
            "auth.secrets",
            "more than once",
        ),
        ("operations: {timeout: 0s}", "operations.timeout", zero),
        ("operations: {hold: {bind: 60s}}", "operations.hold.bind", "give up after 60s; give less"),
        ("operations: {timeouts: {provision: 0s}}", "operations.timeouts.provision", zero),
        ("operations: {timeouts: {update: 0m}}", "operations.timeouts.update", zero),
        ("operations: {timeouts: {bind: 0h}}", "operations.timeouts.bind", zero),
        ("operations: {timeouts: {unbind: 0d}}", "operations.timeouts.unbind", zero),
        ("operations: {timeouts: {deprovision: PT0S}}", "operations.timeouts.deprovision", zero),
        (
            "operations: {dashboard_url: 'https://d/{instance}'}",
            "operations.dashboard_url",
            "{instance_id}",
        ),
        (
            "operations: {dashboard_url: 'https://d/{instance_id'}",
            "operations.dashboard_url",
            "{instance_id}",
        ),
        (
            "operations: {dashboard_url: 'javascript:alert(1)'}",
            "operations.dashboard_url",
            "https://",
        ),
        ("operations: {dashboard_url: ''}", "operations.dashboard_url", "leave it out"),
        ("log: {level: warning}", "log.level", "error, warn, info"),
        ("broker: {pass_env: [A, 'B=planted']}", "broker.pass_env[1]", "the name alone"),
        ("catalog: {refresh: 1ms}", "catalog.refresh", "1s at least"),
        ("broker: {pass_env: ['']}", "broker.pass_env[0]", "the name alone"),
        ("broker: {pass_env: [OSB_ATTEMPT]}", "broker.pass_env[0]", "the contract's own"),
        (
            "auth: {users: [{name: a, password_file: x}, {name: b, password_file: y}, \
             {name: a, password_file: z}, {name: a, password_file: w}]}",
            "auth.users",
            "\"a\" is there more than once",
        ),
        (
            "auth: {tokens: [{name: a, token_file: x}, {name: a, token_file: y}]}",
            "auth.tokens",
            "\"a\" is there more than once",
        ),
        (
            "kubernetes: {image: x, agent_delivery: init-container, agent_file: /a}",
            "kubernetes.agent_file",
            "agent_delivery: config-map",
        ),
        (
            "kubernetes: {templates: {namespaces: []}}",
            "kubernetes.templates.namespaces",
            "name at least one",
        ),
        (
            "kubernetes: {templates: {namespaces: [a, '']}}",
            "kubernetes.templates.namespaces[1]",
            "is empty",
        ),
        (
            "kubernetes: {templates: {namespaces: [a], instance_namespaces: ['*']}}",
            "kubernetes.templates.instance_namespaces[0]",
            "no name of a namespace",
        ),
        (
            "kubernetes: {templates: {namespaces: [a], drift_interval: 1ms}}",
            "kubernetes.templates.drift_interval",
            "1s at least",
        ),
        (
            "kubernetes: {templates: {namespaces: [a], translate: {route_domain: a..b}}}",
            "kubernetes.templates.translate.route_domain",
            "a DNS name",
        ),
        ("kubernetes: {}", "kubernetes.image", "(or JOBS_IMAGE); or give kubernetes.brokers"),
        ("kubernetes: {image: ''}", "kubernetes.image", "the name of an image"),
        (
            "kubernetes: {brokers: apart, image: x}",
            "kubernetes.image (or JOBS_IMAGE)",
            "make a Broker resource of it",
        ),
        (
            "kubernetes: {image: x, job_namespaces: [a]}",
            "kubernetes.job_namespaces",
            "give kubernetes.brokers too",
        ),
        ("kubernetes: {image: x, agent_image: a b}", "kubernetes.agent_image", "of an image"),
        ("kubernetes: {image: x, config_map: Bad/Name}", "kubernetes.config_map", "a name"),
        ("kubernetes: {image: x, secret: ''}", "kubernetes.secret", "must be a name"),
        (
            "kubernetes: {brokers: apart, job_namespaces: [Jobs]}",
            "kubernetes.job_namespaces[0]",
            "no name of a namespace",
        ),
        (
            "kubernetes: {image: x, pod: {securityContext: {runAsUsr: 1000}}}",
            "kubernetes.pod.securityContext.runAsUsr",
            "mind the spelling",
        ),
        (
            "kubernetes: {image: x, pod: {annotations: {manciple.dev/released-until: '0'}}}",
            "kubernetes.pod.annotations",
            "is for Manciple itself",
        ),
        (
            "kubernetes: {image: x, pod: {env: [{name: OSB_X}, {name: MANCIPLE_AGENT, value: a}]}}",
            "kubernetes.pod.env[1].name",
            "choose another name",
        ),
        (
            "kubernetes: {image: x, pod: {imagePullPolicy: always}}",
            "kubernetes.pod.imagePullPolicy",
            "Always, IfNotPresent or Never",
        ),
        (
            "kubernetes: {image: x, agent_path: /a}",
            "kubernetes.agent_path",
            "agent_delivery: init-container",
        ),
        (
            "kubernetes: {image: x, agent_resources: {}}",
            "kubernetes.agent_resources",
            "agent_delivery: init-container",
        ),
        (
            "kubernetes: {image: x, agent_delivery: init-container, agent_resources: {limit: {cpu: 1m}}}",
            "kubernetes.agent_resources.limit",
            "mind the spelling",
        ),
    ] {
        let faults = faults(yaml);
        let [fault] = &faults[..] else { panic!("{yaml}: {faults:?}") };
        assert!(fault.starts_with(&format!("{member}: ")), "{yaml}: {fault}");
        assert!(fault.contains(words), "{yaml}: {fault}");
    }
}

#[test]
fn faults_are_told_together() {
    let yaml = "http: {body_limit: 0}\nbroker: {output_limit: 0}\n\
                operations: {dashboard_url: '{x}'}";
    assert_eq!(faults(yaml).len(), 3);
}

/// The members of faults, each with words of its remedy.
#[test]
fn what_is_of_one_machine_of_one_broker_or_of_several_is_told_together() {
    let command = "{command: /b, config_dir: c, secret_dir: s, pass_env: [A]}";
    for (yaml, expected) in [
        (
            format!("{{kubernetes: {{image: x}}, broker: {command}}}"),
            vec![
                ("broker.command: ", "kubernetes.image instead"),
                ("broker.config_dir: ", "kubernetes.config_map instead"),
                ("broker.secret_dir: ", "kubernetes.secret instead"),
                ("broker.pass_env: ", "kubernetes.pod.env instead"),
            ],
        ),
        (
            "{kubernetes: {image: x}, encryption: {key_file: k, previous_key_file: p}}".to_owned(),
            vec![
                ("encryption.key_file: ", "leave it out"),
                ("encryption.previous_key_file: ", "leave it out"),
            ],
        ),
        (
            format!("{{kubernetes: {{brokers: apart}}, broker: {command}}}"),
            vec![
                ("broker.command: ", "spec.image of a Broker instead"),
                ("broker.config_dir: ", "spec.configMap of a Broker instead"),
                ("broker.secret_dir: ", "spec.secret of a Broker instead"),
                ("broker.pass_env: ", "spec.pod.env of a Broker instead"),
            ],
        ),
        (
            "kubernetes: {brokers: apart, image: x, config_map: c, secret: s, pod: {labels: {a: b}}}"
                .to_owned(),
            vec![
                ("kubernetes.image (or JOBS_IMAGE): ", "leave kubernetes.brokers out"),
                ("kubernetes.config_map (or JOBS_CONFIG_MAP): ", "leave kubernetes.brokers out"),
                ("kubernetes.secret (or JOBS_SECRET): ", "leave kubernetes.brokers out"),
                ("kubernetes.pod: ", "leave kubernetes.brokers out"),
            ],
        ),
        (
            "{kubernetes: {job_namespaces: [a]}, broker: {command: /b}, operations: {hold: {bind: 2m}}}"
                .to_owned(),
            vec![
                ("broker.command: ", "kubernetes.image instead"),
                ("operations.hold.bind: ", "give less"),
                ("kubernetes.image: ", "give the broker's image"),
                ("kubernetes.job_namespaces: ", "give kubernetes.brokers too"),
            ],
        ),
        // They run nothing.
        (
            format!(
                "{{kubernetes: {{templates: {{namespaces: [a]}}, job_namespaces: [b]}}, broker: {command}}}"
            ),
            vec![],
        ),
    ] {
        let faults = faults(&yaml);
        assert_eq!(faults.len(), expected.len(), "{yaml}: {faults:?}");
        for (fault, (member, remedy)) in faults.iter().zip(expected) {
            assert!(fault.starts_with(member) && fault.contains(remedy), "{yaml}: {fault}");
        }
    }
}

#[test]
fn what_has_a_meaning_is_taken() {
    for yaml in [
        "{}",
        "catalog: {refresh: 0s}",
        "catalog: {refresh: 1s}",
        "broker: {log_limit: 0, grace: 0s}",
        "broker: {log_limit: 2097153}",
        "{kubernetes: {image: x}, broker: {output_limit: 4194304, log_limit: 2097152}}",
        "broker: {capabilities: [update]}",
        "{kubernetes: {image: x}, broker: {capabilities: [update]}, catalog: {file: c.json}}",
        "kubernetes: {brokers: together}",
        "http: {drain: 0s, max_connections: 1}",
        "operations: {hold: {bind: 0s}, timeout: 1ms, tombstones: 0s}",
        "operations: {dashboard_url: 'https://d/{instance_id}?again={instance_id}'}",
        "operations: {dashboard_url: 'https://d/'}",
        "kubernetes: {image: x, agent_file: /a}",
        "kubernetes: {image: x, agent_delivery: init-container, agent_path: /a, agent_image: i}",
        "kubernetes: {image: x, agent_image: i}",
        "kubernetes: {image: x, start_timeout: 1s}",
        "{kubernetes: {image: x}, operations: {timeout: 29d}, catalog: {timeout: 29d}}",
        "{kubernetes: {image: x, key_rotation: 41d}, operations: {timeout: 40d}}",
        "{operations: {timeout: 40d}, catalog: {timeout: 40d}}",
        "{kubernetes: {image: x}, catalog: {file: c.json, timeout: 40d}}",
        "auth: {disabled: true}",
        "{kubernetes: {templates: {namespaces: [a]}}, operations: {timeout: 40d}}",
        "kubernetes: {image: x, agent_delivery: init-container, agent_resources: {limits: {memory: 64Mi}}}",
        "kubernetes: {image: 'r:5000/b@sha256:0', config_map: a.b, secret: s}",
        "kubernetes: {image: x, pod: {resources: {limits: {memory: 64Mi}}, labels: {team: a}}}",
        "kubernetes: {templates: {namespaces: [a], ids: name, status_codes: original}}",
        "auth: {users: [{name: a, password_file: x}], tokens: [{name: a, token_file: y}]}",
    ] {
        assert_eq!(faults(yaml), Vec::<String>::new(), "{yaml}");
    }
}
