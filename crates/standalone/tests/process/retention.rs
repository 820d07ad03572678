//! What is kept of a run that was released, and for how long.

use std::fs;
use std::time::Duration;

use engine::ports::{Run, RunState, Runner};
use standalone::process::ProcessRunner;

use crate::harness::{Fixture, finish, run};

async fn released(runner: &ProcessRunner, name: &str) -> Run {
    let run = run(name);
    finish(runner, &run).await.unwrap();
    runner.release(&run.name).await.unwrap();
    run
}

fn runs(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.path("runs")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_released_run_keeps_what_is_for_people() {
    let fixture = Fixture::with_broker("echo a word >&2; echo '{}'");
    let run = released(&fixture.runner(), "kept-1").await;
    let entries = fs::read_dir(fixture.path("runs/kept-1")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["exit.json", "released", "run.json", "started", "stderr.log"]);
    let note = fs::read_to_string(fixture.run_file(&run.name, "exit.json")).unwrap();
    assert!(note.contains("{\"status\":0}"), "{note}");
    let about = fs::read_to_string(fixture.run_file(&run.name, "run.json")).unwrap();
    assert!(about.contains("\"--instance-id\",\"kept-1\""), "{about}");
    let log = fixture.runner().log(&run.name).await.unwrap();
    assert_eq!(log.as_deref(), Some("a word\n"));
}

/// A stale decision may come late; the run's one start has been used.
#[tokio::test]
async fn a_released_run_is_not_started_again() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    let run = released(&runner, "once-1").await;
    runner.start(&run).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    assert_eq!(fixture.effects_of("once-1"), 1);
}

#[tokio::test]
async fn so_many_runs_are_kept_the_latest() {
    let fixture = Fixture::with_broker("echo '{}'");
    for restart in 0..2 {
        let runner = fixture.runner_with(|settings| settings.keep_runs = 3);
        for n in 0..5 {
            released(&runner, &format!("run-{restart}-{n}")).await;
        }
        let kept = [2, 3, 4].map(|n| format!("run-{restart}-{n}"));
        assert_eq!(runs(&fixture), kept);
    }
}

#[tokio::test]
async fn runs_are_kept_for_so_long() {
    let fixture = Fixture::with_broker("echo '{}'");
    let hour = Duration::from_secs(60 * 60);
    let runner = || fixture.runner_with(|settings| settings.keep_for = hour);
    let run = released(&runner(), "old-1").await;
    let released_at = fs::File::open(fixture.path("runs/old-1/released")).unwrap();
    released_at.set_modified(std::time::SystemTime::now() - 2 * hour).unwrap();
    let runner = runner();
    released(&runner, "new-1").await;
    assert_eq!(runs(&fixture), ["new-1"]);
    assert_eq!(runner.log(&run.name).await.unwrap(), None);
}

#[tokio::test]
async fn what_was_not_released_is_kept_whatever_its_age() {
    let fixture = Fixture::with_broker("echo '{}'");
    let runner = fixture.runner_with(|settings| {
        settings.keep_for = Duration::ZERO;
        settings.keep_runs = 0;
    });
    let kept = run("kept-1");
    finish(&runner, &kept).await.unwrap();
    released(&runner, "gone-1").await;
    assert_eq!(runs(&fixture), ["kept-1"]);
    let state = runner.observe(&kept.name).await.unwrap();
    assert!(matches!(state, RunState::Finished(Ok(_))));
}

#[tokio::test]
async fn what_an_earlier_server_left_half_done_is_removed() {
    let fixture = Fixture::with_broker("echo '{}'");
    let old = std::time::SystemTime::now() - Duration::from_secs(3 * 24 * 60 * 60);
    fixture.runner();
    for directory in ["runs/never-started-1", "runs/.catalog-1", "exchange/never-started-1"] {
        fs::create_dir(fixture.path(directory)).unwrap();
        fs::File::open(fixture.path(directory)).unwrap().set_modified(old).unwrap();
    }
    fs::create_dir(fixture.path("runs/being-started-1")).unwrap();
    released(&fixture.runner(), "any-1").await;
    assert_eq!(runs(&fixture), ["any-1", "being-started-1"]);
    assert_eq!(fs::read_dir(fixture.path("exchange")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_be_removed_keeps_nothing_else_from_going() {
    let fixture = Fixture::with_broker("echo '{}'");
    let runner = fixture.runner_with(|settings| settings.keep_runs = 3);
    // No directory, and so nothing that a directory is removed like.
    let stray = fs::File::create(fixture.path("exchange/stray")).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7 * 24 * 60 * 60);
    stray.set_modified(long_ago).unwrap();
    for n in 0..5 {
        released(&runner, &format!("run-{n}")).await;
    }
    assert_eq!(runs(&fixture), ["run-2", "run-3", "run-4"]);
}
