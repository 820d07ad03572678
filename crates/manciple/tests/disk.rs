//! A disk that fails under the server: full, or without the files of the store. Nothing that was
//! acknowledged is lost, and whoever asks is told.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::{Served, Site, http, order, within};

/// `wait` waits for the file `go`.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
case $1:$5 in
catalog:*)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plans":[
        {"id":"p","name":"small","description":"first words"},
        {"id":"wait","name":"slow","description":"d"}]}]}' ;;
*:wait)
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    echo '{}' ;;
provision:*)
    sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status > "$here/ignored"
    echo '{}' ;;
*) echo '{}' ;;
esac
"#;

/// In a user namespace root is somebody like others, whom permissions bind; `None` where that is not permitted.
fn by_an_ordinary_user(site: &Site) -> Option<Served> {
    let nobody = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=1000"]);
        command
    };
    let permitted = nobody().arg("true").output();
    if !permitted.as_ref().is_ok_and(|output| output.status.success()) {
        testkit::skipped(&format!("a user namespace is not permitted: {permitted:?}"));
        return None;
    }
    let (serve, mut command) = (site.command(), nobody());
    command.arg(serve.get_program()).args(serve.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Some(Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}")))
}

#[test]
fn what_a_broker_has_closed_is_removed_with_all_else_that_it_worked_with() {
    let site = Site::new(&BROKER.replace(
        "provision:*)",
        "provision:*)\n    pwd > \"$here/work\"; mkdir -p a/b/c; touch a/b/c/d; chmod 000 a/b/c; chmod 555 a/b a .",
    ));
    let Some(server) = by_an_ordinary_user(&site) else { return };
    order::ready(&server);
    assert_eq!(order::provisioned(&server, "i", &order::body("p"))["state"], "succeeded");
    let work = site.read("work");
    let work = Path::new(work.trim());
    assert!(work.is_absolute(), "{work:?}");
    let gone = || (!work.parent().unwrap().exists()).then_some(());
    assert!(within(10, gone).is_some(), "{work:?} stays\n{}", server.log());
}

/// A server whose data directory is a small disk of its own; `None`, with the reason, where that is not
/// permitted.
fn on_a_small_disk(site: &Site) -> Option<Served> {
    std::fs::create_dir_all(site.data()).unwrap();
    let small = "mount -t tmpfs -o size=12m,mode=700 small \"$0\" && exec \"$@\"";
    let in_namespace = |data: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", small]).arg(data);
        command
    };
    let permitted = in_namespace(&site.data()).arg("true").output();
    if !permitted.as_ref().is_ok_and(|output| output.status.success()) {
        testkit::skipped(&format!(
            "a mount namespace with a tmpfs is not permitted: {permitted:?}"
        ));
        return None;
    }
    let serve = site.command();
    let mut command = in_namespace(&site.data());
    command.arg(serve.get_program()).args(serve.get_args());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::piped());
    Some(Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}")))
}

#[test]
fn on_a_full_disk_nothing_acknowledged_is_lost_and_all_goes_on_when_there_is_space() {
    let site = Site::new(BROKER);
    let Some(server) = on_a_small_disk(&site) else { return };
    order::ready(&server);
    assert_eq!(order::provision(&server, "before", &order::body("wait")).status, 202);
    // The server sees a disk that we do not; what it sees is behind its root.
    let data = Path::new("/proc").join(server.id().to_string()).join("root");
    let filler = data.join(site.data().strip_prefix("/").unwrap()).join("filler");
    fill(&filler);
    // Room for a few commits, and for nothing that a run would have to write.
    give_back(&filler, 48 * 1024);

    let mut accepted = vec!["before".to_owned()];
    let mut refusal = None;
    for number in 0..300 {
        let name = format!("during-{number}");
        let answer = order::provision(&server, &name, &order::body("wait"));
        if answer.status != 202 {
            refusal = Some((name, answer));
            break;
        }
        accepted.push(name);
        fill(&filler);
    }
    let (refused, answer) = refusal.expect("a full disk refuses sooner or later");
    assert!(accepted.len() > 1, "nothing was accepted while the disk ran full");
    assert!(matches!(answer.status, 503 | 429), "{answer:?}");
    assert!(answer.body["description"].is_string(), "{answer:?}");
    assert!(answer.head.to_lowercase().contains("retry-after:"), "{answer:?}");
    assert_eq!(http::get(&server.address, "/v2/catalog").unwrap().status, 200);
    let unknown = http::get(&server.address, &format!("{}/last_operation", order::path(&refused)));
    assert_eq!(unknown.unwrap().status, 404, "what was refused is not recorded");

    // Whoever asks whether it is ready is told, and more than once.
    fill(&filler);
    for _ in 0..30 {
        assert_unready(&server, "the disk is full");
        std::thread::sleep(Duration::from_millis(100));
    }

    site.write("go", "");
    std::thread::sleep(Duration::from_secs(1));
    std::fs::remove_file(&filler).unwrap();
    order::ready(&server);
    println!("accepted on a full disk: {}", accepted.len() - 1);
    let ended = order::settled(&server, "before");
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    for name in accepted.iter().skip(1) {
        let ended = order::settled(&server, name);
        assert_eq!(ended["state"], "succeeded", "{name}: {ended}");
    }
    let ended = order::provisioned(&server, &refused, &order::body("p"));
    assert_eq!(ended["state"], "succeeded", "{ended}");
}

fn assert_unready(server: &Served, why: &str) {
    let told = http::get(&server.address, "/readyz").unwrap();
    assert_eq!(told.status, 503, "{told:?}");
    assert!(told.body.as_str().unwrap_or_default().contains(why), "{told:?}");
}

/// A command under a limit of file sizes, in KiB.
fn limited(command: &Command, kib: u32) -> Command {
    let mut limited = Command::new("bash");
    let limit = format!("ulimit -f {kib} && exec \"$0\" \"$@\"");
    limited.args(["-c", &limit]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    limited
}

#[test]
fn files_that_may_not_grow_are_as_a_full_disk() {
    let site = Site::new(BROKER);
    site.write("go", "");
    let mut server = Served::start(&mut limited(&site.command(), 256)).unwrap();
    order::ready(&server);
    let ended = order::provisioned(&server, "before", &order::body("p"));
    assert_eq!(ended["state"], "succeeded", "{ended}");
    // Bit 24: the programs of brokers are ended by the signal as usual.
    let ignored = u64::from_str_radix(site.read("ignored").trim(), 16).unwrap();
    assert_eq!(ignored & (1 << 24), 0, "{ignored:x}");

    let mut accepted = Vec::new();
    let refusal = (0..300).find_map(|number| {
        let name = format!("during-{number}");
        let answer = order::provision(&server, &name, &order::body("p"));
        if answer.status != 202 {
            return Some(answer);
        }
        accepted.push(name);
        None
    });
    assert_eq!(refusal.expect("refused sooner or later").status, 503);
    // Since what was refused something smaller may have found room, and is the last that is known.
    let is_told = || {
        let told = http::get(&server.address, "/readyz")?;
        if told.status == 503 {
            let why = told.body.as_str().unwrap_or_default();
            assert!(why.contains("the store cannot be written"), "{told:?}");
            return Some(());
        }
        order::provision(&server, "further", &order::body("p"));
        None
    };
    assert!(within(20, is_told).is_some(), "{}", server.log());
    assert!(!server.has_ended(), "{}", server.log());
    server.says("ulimit -f");
    let backup = site.client(&server.url(), &["backup", "--to", "copy"]);
    let saved = limited(&backup, 8).output().unwrap();
    let said = String::from_utf8_lossy(&saved.stderr);
    assert_eq!(saved.status.code(), Some(2), "{said}");
    assert!(said.contains("File too large"), "{said}");
    server.kill();

    let server = site.serve();
    order::ready(&server);
    for name in accepted {
        let ended = order::settled(&server, &name);
        assert_eq!(ended["state"], "succeeded", "{name} was accepted: {ended}");
    }
}

#[test]
fn nothing_is_acknowledged_into_a_store_that_was_removed_and_a_backup_still_saves_it() {
    let site = Site::new(BROKER);
    let mut server = site.serve();
    order::ready(&server);
    order::provisioned(&server, "before", &order::body("p"));
    for name in ["manciple.db", "manciple.db-wal", "manciple.db-shm"] {
        std::fs::remove_file(site.data().join(name)).unwrap();
    }
    let refused = order::provision(&server, "after", &order::body("p"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_unready(&server, "its files were removed or replaced");
    server.says("make a backup of what this process still has");
    let saved = site.client(&server.url(), &["backup", "--to", "copy"]).output().unwrap();
    assert!(saved.status.success(), "{saved:?}");
    server.kill();

    // Begun without it, the loss is said at least.
    let mut new = site.serve();
    new.says("manciple.db is missing or empty: beginning anew");
    new.kill();
    let restore = ["restore", "--from", "copy", "--replace", "--data-dir", "data"];
    let mut restore = site.client("http://127.0.0.1:1", &restore);
    let restored = restore.args(["--encryption-key-file", "data/encryption.key"]).output().unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let server = site.serve();
    let path = order::path("before");
    let there = http::get(&server.address, &format!("{path}?service_id=s&plan_id=p")).unwrap();
    assert_eq!(there.status, 200, "{there:?}");
}

#[test]
fn a_server_without_its_store_ends_no_run_that_the_store_knows_of() {
    let site = Site::new(BROKER);
    let mut server = site.serve();
    order::ready(&server);
    assert_eq!(order::provision(&server, "i", &order::body("wait")).status, 202);
    let begun = || {
        let mut runs = std::fs::read_dir(site.data().join("runs")).ok()?.flatten();
        let is_it = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("provision");
        runs.find(|run| is_it(&run.file_name()) && run.path().join("broker").exists())
    };
    assert!(within(30, begun).is_some(), "no run has begun:\n{}", server.log());
    server.kill();
    let files = ["manciple.db", "manciple.db-wal", "manciple.db-shm"];
    for name in files {
        let _ = std::fs::rename(site.data().join(name), site.data().join(format!("away-{name}")));
    }
    let refused = Served::start(&mut site.command()).err().expect("it began anew");
    assert!(refused.contains("runs are there") && refused.contains("put it back"), "{refused}");
    for name in files {
        let _ = std::fs::rename(site.data().join(format!("away-{name}")), site.data().join(name));
    }
    site.write("go", "");
    let server = site.serve();
    assert_eq!(order::settled(&server, "i")["state"], "succeeded");
}

#[test]
fn a_damaged_store_is_not_ready_and_no_backup_of_it_is_saved() {
    let site = Site::new(BROKER);
    let mut server = site.serve();
    order::ready(&server);
    order::provisioned(&server, "i", &order::body("p"));
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().is_some_and(|status| status.success()), "{}", server.log());
    // Free pages that are not there, of which nothing is read at a start.
    let database = std::fs::OpenOptions::new().write(true).open(site.data().join("manciple.db"));
    std::os::unix::fs::FileExt::write_all_at(&database.unwrap(), &[0, 0, 0, 7], 36).unwrap();

    let server = site.serve();
    server.says("the store's database is damaged: restore a backup");
    assert_unready(&server, "the store is damaged: restore a backup");
    let last = order::last_operation(&server, "i");
    assert_eq!(last["state"], "succeeded", "what can be read is read: {last}");
    let saved = site.client(&server.url(), &["backup", "--to", "copy"]).output().unwrap();
    let said = String::from_utf8_lossy(&saved.stderr);
    assert_eq!(saved.status.code(), Some(5), "{said}");
    assert!(said.contains("it is damaged") && said.contains("nothing was saved"), "{said}");
    assert!(!site.path().join("copy").exists());
}

/// Makes so much room again.
fn give_back(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(bytes)).unwrap();
}

/// Takes every byte that is left.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [64 * 1024, 4096, 256] {
        while file.write_all(&vec![0x55; size]).is_ok() {}
    }
}
