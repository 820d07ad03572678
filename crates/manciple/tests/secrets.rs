//! Nothing secret in argument lists, environments, logs, answers, metrics or the bytes on disk: every
//! secret that there is gets a value of its own, and these are looked for, while a run is under way
//! and after it.

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Served, Site, http, order, within};

const ADMIN: &str = "planted-admin-password";
const USER: &str = "planted-user-password";
const TOKEN: &str = "planted-bearer-token";
const BROKER_SECRET: &str = "planted-broker-secret";
const PARAMETER: &str = "planted-parameter";
const CONTEXT: &str = "planted-context";
const CREDENTIAL: &str = "planted-credential";
const STATE: &str = "planted-state";
const ENCRYPTION_KEY: &str = "c0ffee0dc0ffee1dc0ffee2dc0ffee3dc0ffee4dc0ffee5dc0ffee6dc0ffee7d";

/// What is looked for, by name. The key also as bytes.
fn planted() -> Vec<(&'static str, Vec<u8>)> {
    let text = [ADMIN, USER, TOKEN, BROKER_SECRET, PARAMETER, CONTEXT, CREDENTIAL, STATE];
    let mut all: Vec<_> = text.map(|value| (value, value.as_bytes().to_vec())).into();
    all.push(("the key", ENCRYPTION_KEY.as_bytes().to_vec()));
    all.push((
        "the key's bytes",
        data_encoding::HEXLOWER.decode(ENCRYPTION_KEY.as_bytes()).unwrap(),
    ));
    all
}

/// Says aloud whatever it knows: on stderr, as progress, in errors.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
if [ "$1" = catalog ]; then
    echo '{"jobs":{"version":2,"capabilities":["request-file","update","progress","state","structured-errors"]},
        "services":[{"id":"s","name":"db","description":"d","bindable":true,"plan_updateable":true,"plans":[
        {"id":"p","name":"small","description":"d","schemas":{"service_instance":{"create":{"parameters":
            {"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"size":{"type":"integer"}}}}}}}]}]}'
    exit
fi
tell() {
    echo "secret $DB_PASSWORD in $(cat "$here/secret/db.password")"
    cat "$OSB_REQUEST_FILE"
    [ ! -e "$OSB_STATE_FILE" ] || cat "$OSB_STATE_FILE"
}
tell >&2
asked=$(sed -n 's/.*"do":"\([a-z]*\)".*/\1/p' "$OSB_REQUEST_FILE")
case $1:$asked in
*:wait)
    echo "{\"description\":\"creating with planted-parameter and $DB_PASSWORD\"}" >"$OSB_PROGRESS_FILE"
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done ;;
*:report)
    echo "{\"description\":\"failed with $DB_PASSWORD and planted-parameter\"}"
    exit 1 ;;
*:fail) echo '{"credentials":{"password":"planted-credential"}}'; exit 1 ;;
*:garble) echo '{"credentials":{"password":"planted-credential"}} and planted-credential'; exit ;;
esac
case $1 in
bind) echo "the password is planted-credential" >&2
    echo '{"credentials":{"uri":"db://user:planted-credential@host/","password":"planted-credential"}}' ;;
*) echo '{"secret":"planted-state"}' >"$OSB_STATE_OUT_FILE"
    echo '{}' ;;
esac
"#;

fn site() -> Site {
    let mut site = Site::new(BROKER);
    site.settings = "\
auth:
  users:
    - {name: boss, password_file: boss.password, role: operator}
    - {name: user, password_file: user.password}
  tokens: [{name: robot, token_file: robot.token, role: operator}]
encryption: {key_file: encryption.key}
broker: {secret_dir: secret}
log: {level: debug}
"
    .to_owned();
    site.write("boss.password", ADMIN);
    site.write("user.password", USER);
    site.write("robot.token", TOKEN);
    site.write("encryption.key", ENCRYPTION_KEY);
    site.write("secret/db.password", BROKER_SECRET);
    site
}

fn basic(user: &str, password: &str) -> String {
    let basic = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
    format!("Authorization: Basic {basic}\r\n")
}

struct Asker<'s> {
    server: &'s Served,
    /// Everything that it was answered and that is meant for nobody's eyes in particular.
    heard: std::cell::RefCell<Vec<(String, String)>>,
}

impl Asker<'_> {
    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> http::Answer {
        let header = match method {
            "GET" => basic("boss", ADMIN),
            "PUT" => basic("user", USER),
            _ => format!("Authorization: Bearer {TOKEN}\r\n"),
        };
        let answer = http::send_with(&self.server.address, method, path, body, &header).unwrap();
        let what = format!("{method} {path}: {}", answer.status);
        self.heard.borrow_mut().push((what, format!("{} {}", answer.head, answer.body)));
        answer
    }

    fn get(&self, path: &str) -> http::Answer {
        self.send("GET", path, None)
    }

    fn settled(&self, instance: &str) -> Value {
        let path = format!("{}/last_operation", order::path(instance));
        let ended = || {
            let answer = self.get(&path).body;
            (answer["state"] != "in progress").then_some(answer)
        };
        within(20, ended).unwrap_or_else(|| panic!("{instance} never ends"))
    }

    /// Asks for everything that shows something of the work.
    fn look_around(&self) {
        let metrics = self.get("/metrics");
        assert_eq!(metrics.status, 200, "{metrics:?}");
        let text = metrics.body.as_str().unwrap_or_default();
        assert!(text.lines().any(|line| line.starts_with("manciple_")), "no metrics: {text}");
        self.get("/v2/catalog");
        for kind in ["instances", "bindings"] {
            let page = self.get(&format!("/admin/v1/{kind}?state=all"));
            for item in page.body["items"].as_array().unwrap() {
                let run = item["operation"]["run"].as_str().unwrap();
                let log = self.get(&format!("/admin/v1/logs?run={run}"));
                assert_eq!(log.status, 200, "{log:?}");
            }
        }
    }

    fn check(&self, when: &str) {
        for (what, text) in self.heard.borrow().iter() {
            expect_none(&format!("{when}: {what}"), text.as_bytes());
        }
        expect_none(&format!("{when}: the server's log"), self.server.log().as_bytes());
    }
}

fn found(bytes: &[u8]) -> Vec<&'static str> {
    let is_in = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    planted().iter().filter(|(_, value)| is_in(value)).map(|(name, _)| *name).collect()
}

fn expect_none(place: &str, bytes: &[u8]) {
    let found = found(bytes);
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    assert!(found.is_empty(), "{place} holds {found:?}: {text}");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

fn expect_none_on_disk(site: &Site, when: &str) {
    let kept = files(&site.data());
    assert!(kept.len() > 3, "{kept:?}");
    for path in kept {
        expect_none(
            &format!("{when}: {}", path.display()),
            &std::fs::read(&path).unwrap_or_default(),
        );
    }
}

/// The processes of this server: itself, and what supervises its runs.
fn expect_none_in_processes(server: &Served, site: &Site, when: &str) -> usize {
    let data = site.data().display().to_string();
    let mut supervisors = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let command = read("cmdline");
        // Other tests at the same time plant nothing, so every process of the machine may be asked.
        expect_none(&format!("{when}: the command line of {id}"), &command);
        let command = String::from_utf8_lossy(&command);
        let supervises = command.contains("supervise") && command.contains(&data);
        supervisors += usize::from(supervises);
        if supervises || id == server.id() {
            expect_none(&format!("{when}: the environment of {command}"), &read("environ"));
        }
    }
    supervisors
}

/// Where runs work, in memory: what of it holds something planted, but for what was there before.
fn exposed_in_memory(before: &[PathBuf]) -> Vec<PathBuf> {
    let exposed = |path: &PathBuf| {
        !before.contains(path) && !found(&std::fs::read(path).unwrap_or_default()).is_empty()
    };
    files(Path::new("/dev/shm")).into_iter().filter(exposed).collect()
}

#[test]
fn nothing_planted_is_found_during_a_run_or_after_it() {
    // A test that was cut short may have left its own.
    let before = exposed_in_memory(&[]);
    let site = site();
    let server = site.serve();
    order::ready(&server);
    let asker = Asker { server: &server, heard: std::cell::RefCell::default() };
    let provision = |instance: &str, what: &str| {
        let mut body = order::body("p");
        body["parameters"] = json!({"do": what, "password": PARAMETER});
        body["context"] = json!({"platform": "x", "note": CONTEXT});
        asker.send(
            "PUT",
            &format!("{}?accepts_incomplete=true", order::path(instance)),
            Some(&body),
        )
    };
    assert_eq!(provision("i", "wait").status, 202);
    let description = || {
        let answer = asker.get(&format!("{}/last_operation", order::path("i")));
        answer.body["description"].as_str().map(str::to_owned)
    };
    let description = within(10, description).expect("progress");
    assert!(description.starts_with("creating with [redacted]"), "{description}");
    asker.look_around();
    asker.check("during");
    assert_eq!(expect_none_in_processes(&server, &site, "during"), 1);
    expect_none_on_disk(&site, "during");
    let exposed = exposed_in_memory(&before);
    assert!(!exposed.is_empty(), "the request is handed over in memory");
    for path in &exposed {
        let ours = path.ancestors().find(|path| path.parent() == Some(Path::new("/dev/shm")));
        let metadata = std::fs::metadata(ours.unwrap()).unwrap();
        assert_eq!(metadata.mode() & 0o077, 0, "{} can be reached by others", path.display());
    }
    site.write("go", "");
    assert_eq!(asker.settled("i")["state"], "succeeded");
    afterwards(&site, &server, &asker, &provision);
    let left = exposed_in_memory(&before);
    assert!(left.is_empty(), "left in memory: {left:?}");
}

/// After the first run: the other ways in which a run ends, and what is left of all of them.
fn afterwards(
    site: &Site,
    server: &Served,
    asker: &Asker<'_>,
    provision: &dyn Fn(&str, &str) -> http::Answer,
) {
    assert_eq!(provision("reported", "report").status, 202);
    let failed = asker.settled("reported");
    assert_eq!(failed["description"], "failed with [redacted] and [redacted]", "{failed}");

    let bind = |binding: &str, what: &str| {
        let body = json!({"service_id": "s", "plan_id": "p", "parameters": {"do": what}});
        let path = format!("{}/service_bindings/{binding}", order::path("i"));
        asker.send("PUT", &path, Some(&body))
    };
    assert_eq!(bind("failed", "fail").status, 500);
    assert_eq!(bind("garbled", "garble").status, 500);
    // The answer to a bind is the one place for credentials.
    let before = asker.heard.borrow().len();
    let bound = bind("b", "");
    assert_eq!(bound.body["credentials"]["password"], CREDENTIAL, "{bound:?}");
    asker.heard.borrow_mut().truncate(before);

    let mut body = order::body("p");
    body["parameters"] = json!({"size": PARAMETER});
    let refused = asker.send("PUT", &order::path("refused"), Some(&body));
    assert!(matches!(refused.status, 400 | 422), "{refused:?}");
    body["parameters"] = json!(PARAMETER);
    let path = format!("{}?accepts_incomplete=true", order::path("refused"));
    assert_eq!(asker.send("PUT", &path, Some(&body)).status, 400);
    body["parameters"] = json!({"size": PARAMETER});
    assert_eq!(asker.send("PUT", &path, Some(&body)).status, 400);
    let change = json!({"service_id": "s", "parameters": {"do": "", "password": PARAMETER}});
    let path = format!("{}?accepts_incomplete=true", order::path("i"));
    assert_eq!(asker.send("PATCH", &path, Some(&change)).status, 202);
    asker.settled("i");
    for header in [basic("boss", TOKEN), format!("Authorization: {TOKEN}\r\n")] {
        let answer = http::send_with(&server.address, "GET", "/v2/catalog", None, &header).unwrap();
        assert_eq!(answer.status, 401);
        asker.heard.borrow_mut().push(("401".to_owned(), format!("{answer:?}")));
    }

    asker.look_around();
    asker.check("after");
    let ended = || (expect_none_in_processes(server, site, "after") == 0).then_some(());
    within(20, ended).expect("a supervisor is left");
    expect_none_on_disk(site, "after");
    let log = server.log();
    assert!(log.contains("\"DEBUG\""), "the log is to be looked at when it says most");
}

/// A broker of version 1 that is given nothing but ids, and knows the password all the same.
const TELLTALE: &str = r#"#!/bin/sh
here=${0%/*}
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}' ;;
bind) echo '{"credentials":{"uri":"db://user:planted-credential@host/","password":"planted-credential"}}' ;;
unbind) echo "DROP ROLE failed for db://user:planted-credential@host/" >&2
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    exit "$(cat "$here/status")" ;;
*) echo '{}' ;;
esac
"#;

#[test]
fn credentials_are_not_told_when_their_binding_is_removed() {
    let mut site = Site::new(TELLTALE);
    site.settings = "auth: {disabled: true}\nlog: {level: debug}\n".to_owned();
    let server = site.serve();
    order::ready(&server);
    order::provisioned(&server, "i", &order::body("p"));
    let binding = format!("{}/service_bindings/b", order::path("i"));
    let plan = json!({"service_id": "s", "plan_id": "p"});
    assert_eq!(order::bind(&server, "i", "b", &plan).body["credentials"]["password"], CREDENTIAL);
    let unbind = format!("{binding}?accepts_incomplete=true&service_id=s&plan_id=p");
    let last = || http::get(&server.address, &format!("{binding}/last_operation")).unwrap();
    for (status, ends) in [("1", "failed"), ("0", "succeeded")] {
        let _ = std::fs::remove_file(site.path().join("go"));
        site.write("status", status);
        let begun = http::send(&server.address, "DELETE", &unbind, None).unwrap();
        assert_eq!(begun.status, 202, "{begun:?}");
        let path = format!("/admin/v1/logs?run={}-1", begun.body["operation"].as_str().unwrap());
        let log = || format!("{:?}", http::get(&server.address, &path).unwrap());
        let told =
            within(10, || log().contains("DROP ROLE").then(log)).expect("a log while it runs");
        expect_none("the log of a run that goes on", told.as_bytes());
        site.write("go", "");
        let ended = within(10, || (last().body["state"] != "in progress").then(last)).unwrap();
        // A binding that is gone is 410.
        assert!(ended.body["state"] == ends || ended.status == 410, "{ended:?}");
        expect_none("last_operation", format!("{ended:?}").as_bytes());
        expect_none("the log", log().as_bytes());
    }
    let record = http::get(&server.address, "/admin/v1/record?instance_id=i&binding_id=b").unwrap();
    expect_none("the record", format!("{record:?}").as_bytes());
    expect_none("the server's log", server.log().as_bytes());
    for file in files(&site.data()) {
        expect_none(&file.display().to_string(), &std::fs::read(&file).unwrap_or_default());
    }
}
