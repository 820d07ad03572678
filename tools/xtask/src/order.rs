//! Orders the code in the release of the program, so that the functions that a server calls are next to each other.
//!
//! The system maps 64 KiB of a program around each place that is touched. Where the linker puts functions as they
//! come, a server touches a tenth of the code, and nearly all of it is mapped. So the program is linked, a broker
//! is served with it and ordered from, under valgrind, which notes what is called, and it is linked again with
//! that first. What was never called works as before, from farther away.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use data_encoding::BASE64;

/// A broker whose plans have schemas, and that is done at once.
const BROKER: &str = r#"#!/bin/sh
if [ "$1" != catalog ]; then echo '{}'; exit; fi
cat <<'JSON'
{"services": [{"id": "s", "name": "thing", "description": "A thing", "bindable": true,
  "instances_retrievable": true, "bindings_retrievable": true, "plans": [
  {"id": "small", "name": "small", "description": "A small one", "schemas": {"service_instance": {"create":
    {"parameters": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties":
      {"size": {"type": "integer", "minimum": 1}, "name": {"type": "string", "pattern": "^[a-z]+$"}}}}}}},
  {"id": "large", "name": "large", "description": "A large one"}
]}]}
JSON
"#;

/// The configuration of the server, as an operator has it, with a log for programs.
const CONFIGURATION: &str = "\
listen: ADDRESS
data_dir: data
broker: {command: broker}
auth:
  users:
  - {name: platform, password_file: password}
  - {name: admin, password_file: password, role: operator}
operations: {timeout: 5m, max_runs: 4}
log: {format: json}
";
const PASSWORD: &str = "secret";

/// The orders of a person and a platform.
const ORDERS: [&[&str]; 9] = [
    &["catalog"],
    &["provision", "thing", "small", "one", "--parameters", r#"{"size": 3, "name": "one"}"#],
    &["provision", "thing", "small", "two"],
    &["bind", "one", "app"],
    &["status", "one"],
    &["operations"],
    &["unbind", "one", "app"],
    &["deprovision", "one"],
    &["instances"],
];

/// The paths that are read beside that.
const READ: [&str; 7] = [
    "/readyz",
    "/healthz",
    "/metrics",
    "/v2/catalog",
    "/v2/service_instances/two",
    "/v2/service_instances/two/last_operation",
    "/v2/service_instances/none",
];

/// How long anything may take here: a program under valgrind is tens of times slower.
const PATIENCE: Duration = Duration::from_secs(120);

/// The command of this program that runs [`link`].
pub(crate) const LINK: &str = "link";

/// Whether rustc links with LLVM's linker here, which comes with it: other linkers accept no order.
pub(crate) fn is_possible() -> bool {
    cfg!(target_arch = "x86_64")
}

/// Installs what is needed; returns rustc's argument that makes [`link`] do the linking.
pub(crate) fn linker() -> anyhow::Result<String> {
    crate::packages::install("the order of the program's code", &[("valgrind", "valgrind")])?;
    let folder = std::env::current_dir()?.join("target/dist");
    std::fs::create_dir_all(&folder)?;
    // rustc knows by the name that this takes what the C compiler takes.
    let linker = folder.join("cc");
    let this = std::env::current_exe().context("the path of this program")?;
    std::fs::write(&linker, format!("#!/bin/sh\nexec '{}' {LINK} \"$@\"\n", this.display()))?;
    std::fs::set_permissions(&linker, std::fs::Permissions::from_mode(0o755))?;
    Ok(format!("-Clinker={}", linker.display()))
}

/// Takes the linker's place: links twice, as the arguments say, the second time in the order of use.
pub(crate) fn link(arguments: &[&str]) -> anyhow::Result<()> {
    let cc = |further: &[String]| {
        let line = format!("cc … {}", further.join(" "));
        let output = Command::new("cc").args(arguments).args(further).output().context("cc")?;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    cc(&[])?;
    let output = arguments.iter().skip_while(|argument| **argument != "-o").nth(1);
    let program = PathBuf::from(output.context("the linker is not told with -o what to make")?);
    let order = program.with_extension("order");
    std::fs::write(&order, used(&program)?.join("\n") + "\n")?;
    // What a later link leaves out of the program, the list may still name.
    cc(&[
        format!("-Wl,--symbol-ordering-file={}", order.display()),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ])
}

/// The functions that a server calls from its start to its end, by the linker's names.
fn used(program: &Path) -> anyhow::Result<Vec<String>> {
    let folder = std::env::temp_dir().join(format!("manciple-order-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let profile = profile(program, &folder);
    std::fs::remove_dir_all(&folder)?;
    let used = called(&profile?, &program.to_string_lossy());
    ensure!(!used.is_empty(), "valgrind saw no function of {}", program.display());
    Ok(used)
}

/// Runs the server, orders and reads; returns valgrind's profile.
fn profile(program: &Path, folder: &Path) -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    drop(listener);
    let files = [
        ("broker", BROKER, 0o755),
        ("password", PASSWORD, 0o600),
        ("manciple.yaml", &CONFIGURATION.replace("ADDRESS", &address), 0o600),
    ];
    for (name, content, mode) in files {
        std::fs::write(folder.join(name), content)?;
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), mode)?;
    }
    let (profile, log) = (folder.join("profile"), folder.join("log"));
    let mut server = Server(
        Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind", "--demangle=no"])
            .arg(format!("--callgrind-out-file={}", profile.display()))
            .arg(program)
            .args(["serve", "--config"])
            .arg(folder.join("manciple.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .context("valgrind")?,
    );
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let until = Instant::now() + PATIENCE;
    while !ask(&address, "/readyz", "").is_ok_and(|answer| answer.contains(" 200 ")) {
        ensure!(Instant::now() < until, "the server is not ready under valgrind: {}", said());
        std::thread::sleep(Duration::from_millis(100));
    }
    for order in ORDERS {
        let output = Command::new(program)
            .args(order)
            .env("MANCIPLE_URL", format!("http://{address}"))
            .env("MANCIPLE_USER", "admin")
            .env("MANCIPLE_PASSWORD", PASSWORD)
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "manciple {}: {stderr}", order.join(" "));
    }
    for path in READ {
        ask(&address, path, &BASE64.encode(format!("platform:{PASSWORD}").as_bytes()))?;
    }
    server.end().with_context(said)?;
    std::fs::read_to_string(&profile).with_context(said)
}

/// Sends one request; returns the whole answer.
fn ask(address: &str, path: &str, credentials: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: broker\r\nX-Broker-API-Version: 2.17\r\n\
         Authorization: Basic {credentials}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A server that ends when this does.
struct Server(Child);

impl Server {
    /// Tells the server to end, and waits.
    fn end(&mut self) -> anyhow::Result<()> {
        crate::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.0.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the server did not end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The functions of a program that a profile of callgrind names (format version 1), each once, as they come.
fn called(profile: &str, program: &str) -> Vec<String> {
    let (mut objects, mut functions) = (HashMap::new(), HashMap::new());
    let (mut ours, mut seen, mut called) = (false, HashSet::new(), Vec::new());
    for line in profile.lines() {
        match line.split_once('=') {
            Some(("ob", object)) => ours = name(object, &mut objects) == Some(program),
            Some(("cob", object)) => drop(name(object, &mut objects)),
            Some(("cfn", function)) => drop(name(function, &mut functions)),
            Some(("fn", function)) => {
                let function = name(function, &mut functions).unwrap_or_default();
                // `'2` stands behind a function that was called by itself.
                let function = function.split('\'').next().unwrap_or_default();
                if ours && seen.insert(function) {
                    called.push(function.to_owned());
                }
            }
            _ => {}
        }
    }
    called
}

/// Reads a function's name: `(7) name` where it comes first, `(7)` from then on.
fn name<'p>(text: &'p str, names: &mut HashMap<&'p str, &'p str>) -> Option<&'p str> {
    let (number, name) = text.strip_prefix('(')?.split_once(')')?;
    let name = name.trim();
    if !name.is_empty() {
        names.insert(number, name);
    }
    names.get(number).copied()
}

#[cfg(test)]
mod tests {
    use super::called;

    #[test]
    fn functions_of_the_program_are_listed_once_each_as_they_come() {
        let profile = "version: 1\nevents: Ir\n\nob=(1) /lib/ld.so\nfl=(1) dl.c\nfn=(1) _dl_start\n1 5\n\n\
                       ob=(2) /p/manciple\nfn=(2) main\n16 3\ncob=(1)\ncfn=(3) serve\ncalls=1 5\n1 9\n\n\
                       ob=(2)\nfn=(3)\n1 4\n\nfn=(4) walk'2\n1 1\n\nfn=(5) walk\n1 1\n\nfn=(2)\n1 1\n";
        assert_eq!(called(profile, "/p/manciple"), ["main", "serve", "walk"]);
        assert_eq!(called(profile, "/p/other"), [""; 0]);
        assert_eq!(called("fn=main\nob=(3)\nfn=()\n", "/p/manciple"), [""; 0]);
    }
}
