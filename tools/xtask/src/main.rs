//! The contributor's commands: `cargo xtask <command>`. `CONTRIBUTING.md` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to people")]

mod calls;
mod clients;
mod cluster;
mod conformance;
mod demo;
mod deployment;
mod fuzz;
mod image;
mod images;
mod kubectl;
mod manifests;
mod order;
mod packages;
mod rights;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};

const USAGE: &str = "\
usage: cargo xtask <command>

  demo             order a real database from a script, and show what happens
  test             install what the tests need, then lint and run them all
  lint             format check, clippy, dependency rules
  schedules <n>    n seeded crash schedules: in memory, with real processes, before a real API server
  fuzz [seconds] [target]
                   each fuzz target, or one, for so long (60), after a build of its own
  bench            every bench, with its figures
  dist             the program as it is given away: static, in the order of use, into target/dist
  images [dev]     the container images, into target/images, and into the test cluster if it is up;
                   dev: of the program as it is built for tests, and what tests order, in seconds
  examples [built] what is tried of the examples without a cluster: their scripts, and the demo both ways;
                   built: with the program that is there
  walk [dist|built]
                   the deployment on the cluster for tests: rights, overlays, an instance's life,
                   a broker of its own, brokers apart, templates, QuarksJobs;
                   dist: of the programs as they are given away;
                   built: of those that are there
  manifests        deploy/ and the chart's definitions, from the chart and the program
  cluster up       a real Kubernetes on this machine, for the tests (as root; built once)
  cluster down     and its end
  agent            the agent that goes into pods: static and small, plain and packed, into target/dist
  docs             the man page and the completions, into target/docs
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["demo"] => demo::run(),
        ["test"] => test(),
        ["lint"] => lint(),
        ["schedules", count] => schedules(count),
        ["fuzz"] => fuzz::run("60", None),
        ["fuzz", seconds] => fuzz::run(seconds, None),
        ["fuzz", seconds, target] => fuzz::run(seconds, Some(target)),
        ["bench"] => bench(),
        ["dist"] => dist(),
        // Not for people: rustc calls it, see `dist`.
        [order::LINK, arguments @ ..] => order::link(arguments),
        ["images"] => images::all(images::Kind::Dist),
        ["images", "dev"] => images::all(images::Kind::Dev),
        ["examples"] => build().and_then(|()| examples()),
        ["examples", "built"] => examples(),
        ["manifests"] => manifests::write(),
        ["walk"] => walk(images::Kind::Dev),
        ["walk", "dist"] => walk(images::Kind::Dist),
        ["walk", "built"] => cluster::for_tests()
            .and_then(|(kubeconfig, _)| deployment::test(&kubeconfig, images::Kind::Dev)),
        ["cluster", "up"] => cluster::up().map(drop),
        ["cluster", "down"] => cluster::down(),
        ["agent"] => agent(),
        ["docs"] => docs(),
        words => {
            // Last, where it is seen.
            eprint!("{USAGE}");
            if !words.is_empty() {
                eprintln!("\ncargo xtask {}: there is no such command", words.join(" "));
            }
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo says of this package to this program: the build script of a dependency looks at it, and all that rests on
    // that would be built anew whenever somebody calls cargo himself.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds the programs that images are made of.
fn build() -> anyhow::Result<()> {
    run(cargo().arg("build").args(images::packages().flat_map(|package| ["-p", package])))
}

/// The path of a program of the same build, wherever cargo was told to put it: it is beside this one.
fn built(name: &str) -> anyhow::Result<std::path::PathBuf> {
    Ok(std::env::current_exe().context("the path of this program")?.with_file_name(name))
}

/// Runs a command with this program's output, and fails if it does.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let line = line(command);
    eprintln!("+ {line}");
    let begun = Instant::now();
    let status = command.status().with_context(|| format!("{line} cannot be run"))?;
    say_how_long(&line, begun);
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

/// Prints how long a command took, if that was noticeable: this shows which part of a test run is slow.
fn say_how_long(line: &str, begun: Instant) {
    let took = begun.elapsed().as_secs();
    if took > 9 {
        eprintln!("= {took} s: {line}");
    }
}

/// A command as somebody would type it, without variables that are removed from the environment.
fn line(command: &Command) -> String {
    let given = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let given = given.map(|(name, value)| format!("{}={}", name.display(), value.display()));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    given.chain(words.map(|word| word.display().to_string())).collect::<Vec<_>>().join(" ")
}

/// How long a test run begins further schedules of QuarksJobs: this is enough for all 500 unless the machine is slow.
const SCHEDULES_FOR: Duration = Duration::from_mins(50);

fn test() -> anyhow::Result<()> {
    let schedules_until = SystemTime::now() + SCHEDULES_FOR;
    cluster::can_be_had()?;
    packages::install_for_tests()?;
    clients::install()?;
    // A cluster mostly waits: for packages, and for its parts.
    let lint = Aside::begin("lint", ourselves()?.arg("lint"))?;
    let cluster = cluster::for_tests();
    let images = cluster.as_ref().map_or(Ok(()), |_| images::for_tests());
    let linted = lint.end();
    let (kubeconfig, ours) = cluster?;
    let result = linted.and(images).and_then(|()| tests(&kubeconfig, schedules_until));
    if ours {
        cluster::down()?;
    }
    result
}

/// The tests that have control planes of their own, or need none, and keep every core busy for minutes.
const APART: &str = "binary(schedules) or binary(runs) or binary(instances) or binary(kill) or binary(replicas) or \
    binary(controller_killed) or binary(definition) or binary(damaged)";

fn tests(kubeconfig: &std::path::Path, schedules_until: SystemTime) -> anyhow::Result<()> {
    let until = schedules_until.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    images::forget_programs()?;
    // Whoever has failures to mend is to know them all.
    let most = run(&mut nextest(kubeconfig, &format!("not ({APART})")));
    // Who walks over the cluster mostly waits.
    let mut walk = ourselves()?;
    let walk = Aside::begin("walk", walk.args(["walk", "built"]).env("KUBECONFIG", kubeconfig))?;
    let examples = Aside::begin("examples", ourselves()?.args(["examples", "built"]))?;
    let tested = run(nextest(kubeconfig, APART).env("MANCIPLE_UNTIL", until.to_string()));
    let documentation = ["test", "--workspace", "--all-features", "--doc", "--quiet"];
    let documented = run(cargo().args(documentation));
    let (tried, walked) = (examples.end(), walk.end());
    most.and(tried).and(walked).and(tested).and(documented)
}

fn nextest(kubeconfig: &std::path::Path, which: &str) -> Command {
    let profile = if std::env::var_os("CI").is_some() { "ci" } else { "default" };
    // Most of what takes long waits for pods; of what keeps the cores busy `.config/nextest.toml` has three at a time.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut command = cargo();
    command
        .args(["nextest", "run", "--workspace", "--all-features", "--profile", profile])
        .args(["--test-threads", &(3 * cores).to_string(), "-E", which])
        .env("KUBECONFIG", kubeconfig);
    command
}

/// A command that runs this program once more.
fn ourselves() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("the path of this program")?))
}

/// A command that runs beside others. Its output is shown at its end.
struct Aside {
    line: String,
    begun: Instant,
    log: std::path::PathBuf,
    child: std::process::Child,
}

impl Aside {
    fn begin(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let (line, log) = (line(command), built(&format!("{name}.log"))?);
        let said = std::fs::File::create(&log)?;
        let child = command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn();
        let child = child.with_context(|| format!("{line} cannot be run"))?;
        Ok(Self { line, begun: Instant::now(), log, child })
    }

    fn end(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        eprint!("+ {}\n{}", self.line, String::from_utf8_lossy(&std::fs::read(&self.log)?));
        // Until it was waited for, which may be long after.
        say_how_long(&self.line, self.begun);
        ensure!(status.success(), "{}, above: {status}", self.line);
        Ok(())
    }
}

/// Tests the examples without a cluster and without the server. They are POSIX shell, and so are their tests.
fn examples() -> anyhow::Result<()> {
    run(Command::new("sh").arg("examples/files/test.sh"))?;
    run(Command::new("sh").arg("examples/postgres/test.sh"))?;
    demo::test()
}

fn walk(kind: images::Kind) -> anyhow::Result<()> {
    packages::install_for_tests()?;
    clients::install()?;
    // What is read of the program, as the definitions, is of the same sources.
    build()?;
    images::build(kind)?;
    let (kubeconfig, ours) = cluster::for_tests()?;
    let result = images::agent().and_then(|()| deployment::test(&kubeconfig, kind));
    if ours {
        cluster::down()?;
    }
    result
}

fn lint() -> anyhow::Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-features", "--quiet"];
    run(cargo().args(clippy).args(["--", "-D", "warnings"]))?;
    // Tests and their helpers fail by panicking, and print.
    let tests = [
        "unwrap_used",
        "expect_used",
        "panic",
        "print_stdout",
        "print_stderr",
        "needless_pass_by_value",
    ];
    let allowed = tests.map(|lint| format!("-Aclippy::{lint}"));
    run(cargo().args(clippy).args(["--all-targets", "--", "-D", "warnings"]).args(allowed))?;
    let doc = ["doc", "--workspace", "--no-deps", "--all-features", "--quiet"];
    run(cargo().args(doc).env("RUSTDOCFLAGS", "-Dwarnings"))?;
    conformance::check()?;
    manifests::check()?;
    dependencies()
}

/// Checks the rules of `deny.toml`: all of them if cargo-deny is installed, else the bans only.
fn dependencies() -> anyhow::Result<()> {
    let installed = cargo().args(["deny", "--version"]).output().is_ok_and(|o| o.status.success());
    if installed {
        return run(cargo()
            .args(["deny", "--log-level", "error", "check"])
            .args(["bans", "licenses", "sources"]));
    }
    eprintln!("cargo-deny is not installed (`cargo install cargo-deny`): checking the bans alone");
    let rules = std::fs::read_to_string("deny.toml").context("deny.toml cannot be read")?;
    let lock = std::fs::read_to_string("Cargo.lock").context("Cargo.lock cannot be read")?;
    let banned = rules.lines().filter_map(|line| {
        line.trim().strip_prefix("{ crate = \"").and_then(|rest| rest.split('"').next())
    });
    for name in banned {
        if lock.contains(&format!("name = \"{name}\"")) {
            bail!("{name} is banned by deny.toml, yet it is in Cargo.lock");
        }
    }
    Ok(())
}

fn schedules(count: &str) -> anyhow::Result<()> {
    let count: u32 = count.parse().context("give a number of schedules")?;
    packages::install_nextest()?;
    cluster::programs_for_tests()?;
    let count = count.to_string();
    run(cargo()
        .args(["nextest", "run", "--workspace", "--all-features", "--profile", "schedules"])
        .args(["--success-output", "immediate"])
        .args(["-E", "binary(schedules) or binary(runs) or binary(instances) or binary(kill) or binary(replicas)"])
        .env("MANCIPLE_SCHEDULES", &count)
        .env("MANCIPLE_ETCD_PAUSE", "30"))
}

fn bench() -> anyhow::Result<()> {
    run(cargo().args(["bench", "-p", "standalone", "--bench", "stores", "--bench", "embedded"]))?;
    run(cargo().args(["bench", "-p", "osb", "--features", "server", "--bench", "server"]))?;
    run(cargo().args(["bench", "-p", "template", "--bench", "process"]))?;
    // The server as it is given away.
    dist()?;
    let program = std::path::absolute("target/dist/manciple")?;
    run(cargo()
        .args(["bench", "-p", "manciple", "--bench", "serve"])
        .env("SERVE_BINARY", program))?;
    let (kubeconfig, ours) = cluster::for_tests()?;
    let result = images::agent().and_then(|()| {
        let benches = [
            ["kubernetes", "jobs"],
            ["kubernetes", "rate"],
            ["kubernetes", "quarks"],
            ["kubernetes", "templates"],
            ["manciple", "cluster"],
        ];
        benches.iter().try_for_each(|[package, bench]| {
            run(cargo()
                .args(["bench", "-p", package, "--bench", bench])
                .env("KUBECONFIG", &kubeconfig))
        })
    });
    if ours {
        cluster::down()?;
    }
    result
}

/// The largest size of the agent, in bytes: every pod of a run has one.
const AGENT_BYTES: u64 = 2_000_000;
/// The file name of the agent as it goes into a ConfigMap.
const PACKED: &str = "manciple-agent.packed";
const STATIC: &str = "-C target-feature=+crt-static";
/// The linker's argument for a short list of relocations: the list is read as a whole at the start, and stays in
/// memory.
const PACKED_RELOCATIONS: &str = "-C link-arg=-Wl,-z,pack-relative-relocs";

fn dist() -> anyhow::Result<()> {
    let flags = [STATIC, PACKED_RELOCATIONS].join(" ");
    let linked = if order::is_possible() { vec![order::linker()?] } else { Vec::new() };
    give_away("manciple", "manciple", "release", &flags, &linked)?;
    Ok(())
}

/// Builds the release of a broker that is a server of its own.
fn dist_broker(package: &str) -> anyhow::Result<()> {
    give_away(package, package, "release", &[STATIC, PACKED_RELOCATIONS].join(" "), &[])?;
    Ok(())
}

fn agent() -> anyhow::Result<()> {
    // Random bytes by the system call, as a static program does not find the function; no code for
    // the wide registers of some processors, which a single seal does not need; no tables for
    // unwinding, as it aborts.
    let flags = [
        STATIC,
        "--cfg getrandom_backend=\"linux_getrandom\"",
        "--cfg curve25519_dalek_backend=\"serial\"",
        "-C force-unwind-tables=no",
        PACKED_RELOCATIONS,
    ];
    let size = give_away("agent", "manciple-agent", "agent", &flags.join(" "), &[])?;
    eprintln!("{size} bytes");
    ensure!(size < AGENT_BYTES, "the agent is to be smaller than {AGENT_BYTES} bytes");
    // Nothing but itself and the kernel: it begins where the kernel begins, at an address of its own.
    let flags = [
        STATIC,
        "--cfg bare",
        "-C relocation-model=static",
        "-C link-arg=-nostartfiles",
        "-C link-arg=-nostdlib",
    ];
    give_away("loader", "manciple-loader", "agent", &flags.join(" "), &[])?;
    let read = |file: &str| std::fs::read(format!("target/dist/{file}"));
    calls::opens_no_connection(&read("manciple-agent")?)?;
    let packed = loader::pack(&read("manciple-loader")?, &read("manciple-agent")?);
    eprintln!("target/dist/{PACKED}\n{} bytes", packed.len());
    let most = testkit::cluster::CONFIG_MAP_BYTES;
    ensure!(packed.len() <= most, "the packed agent does not fit into a ConfigMap: {most} bytes");
    let unfinished = "target/dist/.packed.new";
    std::fs::write(unfinished, packed)?;
    std::fs::set_permissions(unfinished, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(unfinished, format!("target/dist/{PACKED}"))?;
    Ok(())
}

/// Builds a program into `target/dist`, and says how large it is in bytes.
///
/// Nothing of the machine that it runs on is needed but its kernel. The target is named so that what
/// runs while building is not static too, which procedural macros cannot be.
/// `flags` are for all of it, `last` for the program alone.
fn give_away(
    package: &str,
    program: &str,
    profile: &str,
    flags: &str,
    last: &[String],
) -> anyhow::Result<u64> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    run(cargo()
        .args(["rustc", "--profile", profile, "-p", package, "--bin", program, "--target", &target])
        .arg("--")
        .args(last)
        .env("RUSTFLAGS", flags))?;
    std::fs::create_dir_all("target/dist")?;
    let this = std::env::current_exe().context("the path of this program")?;
    let folder = this.ancestors().nth(2).context("this program is in no target folder")?;
    let built = folder.join(target).join(profile).join(program);
    let needed = image::libraries(&built)?;
    ensure!(needed.is_empty(), "{program} is to be static, and needs {needed:?}");
    // The one of before may be running.
    let unfinished = format!("target/dist/.{program}.new");
    let size = std::fs::copy(built, &unfinished)?;
    std::fs::rename(unfinished, format!("target/dist/{program}"))?;
    eprintln!("target/dist/{program}");
    Ok(size)
}

fn docs() -> anyhow::Result<()> {
    run(cargo().args(["build", "-p", "manciple"]))?;
    std::fs::create_dir_all("target/docs")?;
    for (arguments, file) in [
        (vec!["man"], "manciple.1"),
        (vec!["completions", "bash"], "manciple.bash"),
        (vec!["completions", "zsh"], "_manciple"),
        (vec!["completions", "fish"], "manciple.fish"),
    ] {
        let output = Command::new(built("manciple")?).args(&arguments).output()?;
        ensure!(output.status.success(), "manciple {arguments:?}: {}", output.status);
        std::fs::write(format!("target/docs/{file}"), output.stdout)?;
        eprintln!("target/docs/{file}");
    }
    Ok(())
}
