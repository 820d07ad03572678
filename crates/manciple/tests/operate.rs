//! A careless operator: whatever is done wrong is refused with a clear word, and costs nothing; what
//! is done while the server runs is taken up.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Served, Site, http, order, within};

/// `wait` waits for the file `go`; credentials are new for each run.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
case $1:$5 in
catalog:*)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plans":[
        {"id":"p","name":"small","description":"first words"},
        {"id":"wait","name":"slow","description":"d"}]}]}' ;;
bind:*)
    until [ "$9" != held ] || [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    echo "{\"credentials\":{\"password\":\"$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')\"}}" ;;
*:wait)
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    echo '{}' ;;
*) echo '{}' ;;
esac
"#;

const KEY: &str = "5b2f6e0d3c4a19887766554433221100ffeeddccbbaa99887766554433221100";
const OTHER_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// The variable that holds a key, and the one that holds the key before it.
const HELD: &str = "MANCIPLE_ENCRYPTION_KEY";
const HELD_BEFORE: &str = "MANCIPLE_PREVIOUS_ENCRYPTION_KEY";

fn with_key(site: &mut Site, name: &str) {
    site.settings = format!("auth: {{disabled: true}}\nencryption: {{key_file: {name}}}\n");
}

/// A server with an instance and a binding, and the binding's credentials.
fn with_a_binding(site: &Site) -> (Served, Value) {
    let server = site.serve();
    let given = bound(&server);
    (server, given)
}

/// Orders an instance and a binding: the binding's credentials.
fn bound(server: &Served) -> Value {
    order::ready(server);
    order::provisioned(server, "i", &order::body("p"));
    let body = json!({"service_id": "s", "plan_id": "p"});
    let bound = order::bind(server, "i", "b", &body);
    assert_eq!(bound.status, 201, "{bound:?}");
    bound.body["credentials"].clone()
}

fn credentials(server: &Served) -> Value {
    let path = format!("{}/service_bindings/b", order::path("i"));
    let answer = http::get(&server.address, &path).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["credentials"].clone()
}

/// Every file below a directory, with its content; but for those that say who has the store open.
fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if name == "lock" || name == "manciple.db-shm" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                let bytes = std::fs::read(entry.path()).unwrap();
                files.insert(entry.path().display().to_string(), bytes);
            }
        }
    }
    files
}

fn refused(command: &mut Command, words: &[&str]) {
    let (code, said) = Served::refused(command);
    assert_eq!(code, Some(2), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
    assert!(!said.contains("panicked") && !said.contains("\"serving\""), "{said}");
    assert!(![KEY, OTHER_KEY].iter().any(|key| said.contains(key)), "{said}");
}

#[test]
fn a_wrong_key_is_refused_and_the_right_one_still_opens() {
    let mut site = Site::new(BROKER);
    site.write("right.key", KEY);
    site.write("wrong.key", OTHER_KEY);
    with_key(&mut site, "right.key");
    let (mut server, given) = with_a_binding(&site);
    server.kill();
    let before = content(&site.data());
    with_key(&mut site, "wrong.key");
    refused(&mut site.command(), &["wrong.key", "is not the key of this store"]);
    site.settings = "auth: {disabled: true}\n".to_owned();
    refused(&mut site.command(), &["opened with a key that is not configured now"]);
    assert!(content(&site.data()) == before, "the data directory was changed");
    with_key(&mut site, "right.key");
    assert_eq!(credentials(&site.serve()), given);
}

#[test]
fn the_key_is_changed_by_giving_the_one_before_once() {
    let mut site = Site::new(BROKER);
    site.write("old.key", KEY);
    site.write("new.key", OTHER_KEY);
    with_key(&mut site, "old.key");
    let (mut server, given) = with_a_binding(&site);
    server.kill();
    with_key(&mut site, "new.key");
    let previous = site.path().join("old.key");
    let mut command = site.command();
    command.arg("--previous-encryption-key-file").arg(&previous);
    let mut server = Served::start(&mut command).unwrap();
    assert_eq!(credentials(&server), given);
    server.kill();
    std::fs::remove_file(previous).unwrap();
    assert_eq!(credentials(&site.serve()), given);
}

#[test]
fn a_key_in_the_environment_opens_the_store_again_and_another_does_not() {
    let site = Site::new(BROKER);
    let mut server = Served::start(site.command().env(HELD, KEY)).unwrap();
    let given = bound(&server);
    server.kill();
    let before = content(&site.data());
    let made = before.keys().find(|path| path.ends_with("encryption.key"));
    assert!(made.is_none(), "a key was made beside the one that was given: {made:?}");
    refused(site.command().env(HELD, OTHER_KEY), &[HELD, "is not the key of this store"]);
    refused(site.command().env(HELD, &KEY[1..]), &[HELD, "is not a key"]);
    refused(&mut site.command(), &["opened with a key that is not configured now", HELD]);
    assert!(content(&site.data()) == before, "the data directory was changed");
    let server = Served::start(site.command().env(HELD, KEY)).unwrap();
    assert_eq!(credentials(&server), given);
}

#[test]
fn a_key_in_the_environment_is_changed_by_giving_the_one_before_once() {
    let site = Site::new(BROKER);
    let mut server = Served::start(site.command().env(HELD, KEY)).unwrap();
    let given = bound(&server);
    server.kill();
    let mut both = site.command();
    both.env(HELD, OTHER_KEY).env(HELD_BEFORE, KEY);
    let mut server = Served::start(&mut both).unwrap();
    assert_eq!(credentials(&server), given);
    server.kill();
    refused(site.command().env(HELD, KEY), &[HELD, "is not the key of this store"]);
    let server = Served::start(site.command().env(HELD, OTHER_KEY)).unwrap();
    assert_eq!(credentials(&server), given);
}

#[test]
fn a_backup_is_restored_by_the_key_in_the_environment() {
    let (site, elsewhere) = (Site::new(BROKER), Site::new(BROKER));
    let server = Served::start(site.command().env(HELD, KEY)).unwrap();
    let given = bound(&server);
    let saved = site.client(&server.url(), &["backup", "--to", "copy"]).output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    let restore = |key: &str| {
        let mut command = elsewhere.client(&server.url(), &["restore", "--from"]);
        command.arg(site.path().join("copy")).arg("--data-dir").arg(elsewhere.data());
        command.env(HELD, key).output().unwrap()
    };
    let wrong = restore(OTHER_KEY);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains(HELD) && said.contains("is not the key of this backup"), "{said}");
    let restored = restore(KEY);
    assert!(restored.status.success(), "{restored:?}");
    let server = Served::start(elsewhere.command().env(HELD, KEY)).unwrap();
    assert_eq!(credentials(&server), given);
}

#[test]
fn a_secret_that_everybody_can_read_is_refused_with_the_remedy() {
    let mut site = Site::new(BROKER);
    let open = |name: &str, content: &str| {
        let path = site.write(name, content);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    };
    open("open.key", KEY);
    open("open.password", "planted-password");
    with_key(&mut site, "open.key");
    refused(&mut site.command(), &["open.key", "chmod 600"]);
    site.settings = "auth: {users: [{name: u, password_file: open.password}]}\n".to_owned();
    let (code, said) = Served::refused(&mut site.command());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("chmod 600") && !said.contains("planted-password"), "{said}");
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_by_name() {
    let mut site = Site::new(BROKER);
    let refuse = |site: &Site, words: &[&str]| refused(&mut site.command(), words);
    site.settings = "auth:\n  disabled: true\nbroker:\n  comand: /bin/broker\n".to_owned();
    refuse(&site, &["manciple.yaml", "comand"]);
    site.settings = "auth: {disabled: true}\nlog: {level: \"loud=shout\"}\n".to_owned();
    refuse(&site, &["log.level"]);
    site.settings = "auth: {disabled: true}\n".to_owned();
    let image = ("JOBS_IMAGE", "registry.example/broker:1");
    refused(site.command().envs([image]), &["broker.command", "give kubernetes.image instead"]);
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_manciple"));
    nowhere.args(["serve", "--listen", "127.0.0.1:0"]).envs([image]).stderr(Stdio::piped());
    refused(&mut nowhere, &["POD_NAMESPACE", "no pod"]);
    refused(site.command().env("STEWARD_MODE", "helm"), &["STEWARD_MODE"]);
    let mut without_image = Command::new(env!("CARGO_BIN_EXE_manciple"));
    without_image.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(site.data());
    without_image.envs([("STEWARD_MODE", "jobs"), ("JOBS_IMAGE", "")]).stderr(Stdio::piped());
    refused(&mut without_image, &["JOBS_IMAGE", "unset STEWARD_MODE"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    site.listen = taken.local_addr().unwrap().to_string();
    refuse(&site, &[&site.listen, "cannot be listened on", "in use"]);
    site.listen = "99999".to_owned();
    refuse(&site, &["listen: 99999 cannot be listened on", "as \"127.0.0.1:8080\""]);
}

#[test]
fn what_is_refused_for_its_address_or_certificate_has_made_nothing() {
    let tls = "tls: {certificate: none.crt, key: none.key}\n";
    for (listen, settings, word) in [("nonsense", "", "nonsense"), ("127.0.0.1:0", tls, "none.crt")]
    {
        let mut site = Site::new(BROKER);
        (site.listen, site.settings) = (listen.to_owned(), settings.to_owned());
        refused(&mut site.command(), &[word]);
        let made = std::fs::read_dir(site.data()).into_iter().flatten().flatten();
        assert_eq!(made.map(|entry| entry.file_name()).collect::<Vec<_>>(), [""; 0], "{word}");
    }
}

#[test]
fn a_second_server_on_the_same_data_is_refused_and_the_first_goes_on() {
    let site = Site::new(BROKER);
    let (server, given) = with_a_binding(&site);
    let holder = format!("process {}", server.id());
    refused(&mut site.command(), &["in use by", &holder]);
    assert_eq!(credentials(&server), given);
}

#[test]
fn without_its_executable_it_starts_is_not_ready_and_says_why() {
    let site = Site::new(BROKER);
    std::fs::remove_file(site.path().join("broker")).unwrap();
    let server = site.serve();
    server.says("no such executable");
    assert_eq!(http::get(&server.address, "/healthz").unwrap().status, 200);
    let ready = http::get(&server.address, "/readyz").unwrap();
    assert_eq!(ready.status, 503);
    let words = ready.body.as_str().unwrap_or_default();
    assert!(words.contains("manciple catalog --refresh"), "{words}");
    let catalog = http::get(&server.address, "/v2/catalog").unwrap();
    assert_eq!(catalog.status, 503, "{catalog:?}");
    assert!(catalog.body["description"].is_string(), "{catalog:?}");
    assert_eq!(order::provision(&server, "i", &order::body("p")).status, 503);
    site.script(BROKER);
    server.signal(Signal::HUP);
    order::ready(&server);
}

#[test]
fn a_catalog_outlives_its_executable_and_orders_fail_with_the_reason() {
    let site = Site::new(BROKER);
    let (mut server, given) = with_a_binding(&site);
    server.kill();
    std::fs::remove_file(site.path().join("broker")).unwrap();
    let server = site.serve();
    assert_eq!(http::get(&server.address, "/v2/catalog").unwrap().status, 200);
    assert_eq!(credentials(&server), given);
    let ended = order::provisioned(&server, "new", &order::body("p"));
    assert_eq!(ended["state"], "failed", "{ended}");
    assert!(ended["description"].as_str().unwrap().contains("no such executable"), "{ended}");
}

#[test]
fn told_to_end_it_answers_what_was_asked_and_exits_0() {
    let site = Site::new(BROKER);
    let (mut server, _) = with_a_binding(&site);
    let address = server.address.clone();
    let held = std::thread::spawn(move || {
        let path = format!("{}/service_bindings/held", order::path("i"));
        let body = json!({"service_id": "s", "plan_id": "p"});
        http::send(&address, "PUT", &path, Some(&body)).unwrap()
    });
    let busy = || {
        let page = http::get(&server.address, "/admin/v1/bindings?state=busy")?;
        (page.body["items"].as_array()?.len() == 1).then_some(())
    };
    within(10, busy).unwrap();
    server.signal(Signal::TERM);
    server.says("told to end");
    site.write("go", "");
    let answer = held.join().unwrap();
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(server.wait().and_then(|status| status.code()), Some(0), "{}", server.log());
}

#[test]
fn told_to_end_it_leaves_nothing_in_memory() {
    let site =
        Site::new(&BROKER.replace("here=${0%/*}\n", "here=${0%/*}; pwd >>\"$here/places\"\n"));
    let (mut server, _) = with_a_binding(&site);
    let places = site.read("places");
    let place = Path::new(places.lines().next().unwrap()).ancestors().nth(2).unwrap();
    if !place.starts_with("/dev/shm") {
        testkit::skipped("/dev/shm cannot be used");
        return;
    }
    let empty = || std::fs::read_dir(place).unwrap().next().is_none().then_some(());
    within(10, empty).expect("what has ended is removed");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().and_then(|status| status.code()), Some(0), "{}", server.log());
    assert!(!place.exists());
}

#[test]
fn operations_are_filtered_and_counted_by_the_server() {
    let site = Site::new(&BROKER.replace("*:wait)", "*:bad) exit 1 ;;\n*:wait)").replace(
        "{\"id\":\"wait\"",
        "{\"id\":\"bad\",\"name\":\"broken\",\"description\":\"d\"},{\"id\":\"wait\"",
    ));
    let (server, _) = with_a_binding(&site);
    for (instance, plan) in [("bad1", "bad"), ("good", "p"), ("bad2", "bad")] {
        order::provisioned(&server, instance, &order::body(plan));
    }
    assert_eq!(order::provision(&server, "slow", &order::body("wait")).status, 202);
    let get = |query: &str| {
        http::get(&server.address, &format!("/admin/v1/operations?{query}")).expect("an answer")
    };
    let of = |answer: &http::Answer| -> Vec<String> {
        let items = answer.body["items"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
        let name = |item: &Value| {
            let binding = item["binding_id"].as_str().map_or(String::new(), |id| format!("/{id}"));
            format!("{}{binding}", item["instance_id"].as_str().unwrap())
        };
        items.iter().map(name).collect()
    };
    assert_eq!(of(&get("")), ["bad1", "bad2", "good", "i", "slow", "i/b"]);
    assert_eq!(of(&get("state=failed")), ["bad1", "bad2"]);
    assert_eq!(of(&get("state=busy")), ["slow"]);
    assert_eq!(of(&get("instance=i")), ["i", "i/b"]);
    // The limit counts what matches, not what was looked at.
    let first = get("state=failed&limit=1");
    assert_eq!(of(&first), ["bad1"]);
    let next = first.body["next"].as_str().unwrap();
    assert_eq!(of(&get(&format!("state=failed&limit=1&after={next}"))), ["bad2"]);
    for (query, status, parameter) in [
        ("state=broken", 400, "state"),
        ("limit=few", 400, "limit"),
        ("after=there", 400, "after"),
        ("instance=", 400, "instance"),
        ("instance=none", 404, "instance none"),
    ] {
        let answer = get(query);
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        let said = answer.body["description"].as_str().unwrap();
        assert!(said.contains(parameter), "{query}: {said}");
    }
    site.write("go", "");
    order::settled(&server, "slow");
}

#[test]
fn a_hangup_takes_up_passwords_and_the_catalog() {
    let mut site = Site::new(BROKER);
    site.settings =
        "auth: {users: [{name: u, password_file: password, role: operator}]}\n".to_owned();
    site.write("password", "first");
    let server = site.serve();
    let catalog = |password: &str| {
        let basic = data_encoding::BASE64.encode(format!("u:{password}").as_bytes());
        let header = format!("Authorization: Basic {basic}\r\n");
        http::send_with(&server.address, "GET", "/v2/catalog", None, &header).unwrap()
    };
    order::ready(&server);
    assert_eq!(catalog("first").status, 200);
    assert_eq!(catalog("second").status, 401);
    site.write("password", "second");
    site.script(&BROKER.replace("first words", "other words"));
    server.signal(Signal::HUP);
    server.says("the catalog was read again");
    assert_eq!(catalog("first").status, 401);
    let now = catalog("second");
    assert_eq!(now.status, 200);
    assert_eq!(now.body["services"][0]["plans"][0]["description"], "other words");
    // What cannot be read leaves what was before in force.
    std::fs::remove_file(site.path().join("password")).unwrap();
    server.signal(Signal::HUP);
    server.says("the secret from before stays in force");
    assert_eq!(catalog("second").status, 200);
}

/// The broker may take minutes; a password that is revoked does not wait for it. Hangups meanwhile are one more, after it.
#[test]
fn a_catalog_that_is_asked_for_in_vain_holds_up_no_change_of_passwords() {
    let mut site = Site::new(&BROKER.replace(
        "catalog:*)\n",
        "catalog:*)\n    echo asked >>\"$here/asked\"\n    \
         while [ -e \"$here/held\" ]; do sleep 0.05; done\n",
    ));
    site.settings = "auth: {users: [{name: u, password_file: password, role: operator}]}\n\
                     catalog: {timeout: 10m}\n"
        .to_owned();
    site.write("password", "first");
    let server = site.serve();
    order::ready(&server);
    let status = |password: &str| {
        let basic = data_encoding::BASE64.encode(format!("u:{password}").as_bytes());
        let header = format!("Authorization: Basic {basic}\r\n");
        http::send_with(&server.address, "GET", "/v2/catalog", None, &header).unwrap().status
    };
    let asked = || site.read("asked").lines().count();
    let is_asked = |times: usize| (asked() == times).then_some(());
    let before = asked();
    site.write("held", "");
    server.signal(Signal::HUP);
    assert!(within(10, || is_asked(before + 1)).is_some(), "nobody asks\n{}", server.log());

    // Files are looked at each 10 s, and on a hangup at once.
    site.write("password", "second");
    let revoked = || (status("first") == 401 && status("second") == 200).then_some(());
    assert!(within(15, revoked).is_some(), "it is not taken up\n{}", server.log());
    for password in ["third", "fourth"] {
        site.write("password", password);
        server.signal(Signal::HUP);
        let taken = || (status(password) == 200).then_some(());
        assert!(within(2, taken).is_some(), "{password} is not taken up\n{}", server.log());
    }
    let read = || server.log().matches("the catalog was read again").count();
    assert_eq!((asked(), read()), (before + 1, 0), "it is asked for while it is asked for");

    std::fs::remove_file(site.path().join("held")).unwrap();
    let done = || (read() == 2).then_some(());
    assert!(within(10, done).is_some(), "it is not asked for once more\n{}", server.log());
    assert!(support::for_seconds(1, || is_asked(before + 3)).is_none(), "twice more");
}

#[test]
fn a_hangup_at_the_first_moment_does_not_end_it() {
    let site = Site::new(BROKER);
    let mut server = site.serve();
    server.signal(Signal::HUP);
    server.says("the catalog was read again");
    assert!(!server.has_ended());
}

#[test]
fn a_changed_certificate_is_taken_up() {
    let mut site = Site::new(BROKER);
    site.settings =
        "auth: {disabled: true}\ntls: {certificate: tls.crt, key: tls.key}\n".to_owned();
    let certify = |authority: &str| {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        site.write("tls.crt", &made.cert.pem());
        site.write("tls.key", &made.signing_key.serialize_pem());
        site.write(authority, &made.cert.pem());
    };
    certify("first.pem");
    let server = site.serve();
    let url = format!("https://{}", server.address);
    let trusts = |authority: &str| {
        let arguments = ["catalog", "--output", "json", "--ca-file", authority];
        site.client(&url, &arguments).output().unwrap()
    };
    let served = || trusts("first.pem").status.success().then_some(());
    assert!(within(20, served).is_some(), "{:?}\n{}", trusts("first.pem"), server.log());
    certify("second.pem");
    server.signal(Signal::HUP);
    server.says("a new certificate is in force");
    assert!(trusts("second.pem").status.success(), "{:?}", trusts("second.pem"));
    assert_eq!(trusts("first.pem").status.code(), Some(3), "the old one is not served any more");
    // Half a change leaves the one before in force.
    site.write("tls.key", "no key");
    server.signal(Signal::HUP);
    server.says("the certificate from before stays in force");
    assert!(trusts("second.pem").status.success());
}

#[test]
fn a_backup_of_a_running_server_serves_the_same_credentials_elsewhere() {
    let mut site = Site::new(BROKER);
    site.write("right.key", KEY);
    with_key(&mut site, "right.key");
    let (server, given) = with_a_binding(&site);
    let saved = site.client(&server.url(), &["backup", "--to", "copy"]).output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    let mode = std::fs::metadata(site.path().join("copy")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut elsewhere = Site::new(BROKER);
    elsewhere.write("right.key", KEY);
    elsewhere.write("wrong.key", OTHER_KEY);
    with_key(&mut elsewhere, "right.key");
    let restore = |key: &str| {
        let (from, data) = (site.path().join("copy"), elsewhere.data());
        let mut command = elsewhere.client(&server.url(), &["restore", "--from"]);
        command.arg(from).arg("--data-dir").arg(data).args(["--encryption-key-file", key]);
        command.output().unwrap()
    };
    let wrong = restore("wrong.key");
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(said.contains("is not the key of this backup"), "{said}");
    assert!(said.contains("hint: give the key"), "{said}");
    let restored = restore("right.key");
    assert!(restored.status.success(), "{restored:?}");
    let again = restore("right.key");
    assert_eq!(again.status.code(), Some(2), "a store is not replaced unasked: {again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("hint: --replace"), "{again:?}");
    assert_eq!(credentials(&elsewhere.serve()), given);
    assert_eq!(credentials(&server), given);
}

#[test]
fn a_log_that_nobody_reads_any_more_stops_nothing() {
    let site = Site::new(BROKER);
    let server = Served::start(site.command().env(support::UNHEARD, "1")).unwrap();
    order::ready(&server);
    // Each start that fails is logged, or would be.
    std::fs::rename(site.path().join("broker"), site.path().join("away")).unwrap();
    for number in 0..20 {
        let answer = order::provision(&server, &format!("i{number}"), &order::body("p"));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    for number in 0..20 {
        let last = order::settled(&server, &format!("i{number}"));
        assert_eq!(last["state"], "failed", "{last}");
    }
    std::fs::rename(site.path().join("away"), site.path().join("broker")).unwrap();
    let ended = order::provisioned(&server, "after", &order::body("p"));
    assert_eq!(ended["state"], "succeeded", "{ended}");
}
