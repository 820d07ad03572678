//! Builds and runs the fuzz targets, with the stable compiler.
//!
//! libFuzzer needs code that counts the edges it passes. The compiler's pass for that is asked for by
//! flags that stable takes; `--target` keeps them from build scripts and procedural macros. There is no
//! address sanitizer: our code has no `unsafe`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};

const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// A target, and the longest input that is worth trying, in bytes: the limits of its parser are
/// within, and what is longer is only slower.
const TARGETS: [(&str, u32); 8] = [
    ("requests", 8192),
    ("broker_output", 12288),
    ("catalog", 16384),
    ("records", 8192),
    ("reports", 8192),
    ("templates", 8192),
    ("readiness", 8192),
    ("translation", 8192),
];

/// Runs each target, or the one named, for `seconds`; tries all of them before it fails.
pub(crate) fn run(seconds: &str, only: Option<&str>) -> anyhow::Result<()> {
    let seconds: u32 = seconds.parse().context("give the seconds for each target, from 1")?;
    ensure!(seconds > 0, "give the seconds for each target, from 1");
    let wanted = |target: &str| only.is_none_or(|only| only == target);
    let targets = TARGETS.iter().filter(|(target, _)| wanted(target));
    ensure!(targets.clone().count() > 0, "there is no such target; fuzz/targets has them");
    let seed = seed()?;
    let programs = build()?;
    println!("seed {seed}: MANCIPLE_SEED={seed} begins with it again");
    let mut broken = Vec::new();
    for (target, max_len) in targets {
        let ran = fuzz(&programs.join(target), target, *max_len, seconds, seed)?;
        println!("{ran}");
        if !ran.ends_with(CLEAN) {
            broken.push(*target);
        }
    }
    ensure!(broken.is_empty(), "findings in {}", broken.join(", "));
    Ok(())
}

const CLEAN: &str = "clean";

fn seed() -> anyhow::Result<u32> {
    if let Ok(seed) = std::env::var("MANCIPLE_SEED") {
        return seed.parse().context("MANCIPLE_SEED must be a whole number from 1");
    }
    // libFuzzer takes 0 for "choose one".
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.subsec_nanos().max(1))
}

/// Builds all targets; returns their folder.
fn build() -> anyhow::Result<PathBuf> {
    let triple = host()?;
    crate::run(
        crate::cargo()
            .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"])
            .args(["--target-dir", "fuzz/target", "--target", &triple])
            .env("RUSTFLAGS", FLAGS.join(" ")),
    )?;
    Ok(Path::new("fuzz/target").join(triple).join("release"))
}

fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("rustc cannot be run")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Runs one target and prints the result.
fn fuzz(
    program: &Path,
    target: &str,
    max_len: u32,
    seconds: u32,
    seed: u32,
) -> anyhow::Result<String> {
    let corpus = format!("fuzz/corpus/{target}");
    let artifacts = format!("fuzz/artifacts/{target}/");
    let log = format!("fuzz/target/{target}.log");
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let begun = Instant::now();
    let status = Command::new(program)
        .args([&corpus, &format!("fuzz/seeds/{target}")])
        .args([format!("-seed={seed}"), format!("-max_total_time={seconds}")])
        .args([format!("-max_len={max_len}"), format!("-artifact_prefix={artifacts}")])
        .args(["-rss_limit_mb=2048", "-timeout=10", "-dict=fuzz/words.dict"])
        .args(["-print_final_stats=1", "-verbosity=1"])
        .stderr(fs::File::create(&log)?)
        .status()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    let said = fs::read(&log).with_context(|| format!("{log} cannot be read"))?;
    let said = String::from_utf8_lossy(&said);
    let (executions, edges) = (executions(&said), edges(&said));
    let ran = format!(
        "{target}: {executions} executions in {} s, {edges} edges, ",
        begun.elapsed().as_secs()
    );
    if status.success() {
        // Without counters a run is blind, and says so by no edges.
        ensure!(edges > 0, "{target} counts no edges; see {log}");
        return Ok(ran + CLEAN);
    }
    let found = said.lines().find_map(|line| line.split_once("Test unit written to "));
    let Some((_, file)) = found else { bail!("{ran}{status}; see {log}") };
    Ok(format!(
        "{ran}a finding in {file}; {log} says what; repeat it: {} {file}",
        program.display()
    ))
}

/// The count of executions: the final one, or the last that was printed on the way.
fn executions(said: &str) -> u64 {
    let total = "stat::number_of_executed_units:";
    let last = said.lines().rev().find_map(|line| match line.strip_prefix(total) {
        Some(total) => total.trim().parse().ok(),
        None => line.strip_prefix('#')?.split_whitespace().next()?.parse().ok(),
    });
    last.unwrap_or_default()
}

fn edges(said: &str) -> u64 {
    let after = |line: &str| line.split_once(" cov: ")?.1.split_whitespace().next()?.parse().ok();
    said.lines().rev().find_map(after).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
INFO: seed corpus: files: 20 min: 50b max: 3000b
#21\tINITED cov: 3051 ft: 7000 corp: 20/9Kb exec/s: 0 rss: 60Mb
#4096\tpulse  cov: 3120 ft: 8012 corp: 90/30Kb lim: 8192 exec/s: 2048 rss: 70Mb
Done 9001 runs in 5 second(s)
stat::number_of_executed_units: 9001
stat::average_exec_per_sec:     1800
";

    #[test]
    fn the_figures_are_the_last_that_were_said() {
        assert_eq!((executions(SAID), edges(SAID)), (9001, 3120));
        let broken = SAID.split("Done").next().unwrap();
        assert_eq!((executions(broken), edges(broken)), (4096, 3120));
        assert_eq!((executions(""), edges("")), (0, 0));
    }

    #[test]
    fn every_target_is_run() {
        let targets = fs::read_dir("../../fuzz/targets").unwrap();
        assert_eq!(targets.count(), TARGETS.len());
    }
}
