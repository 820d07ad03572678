//! A restore that is refused says why, and what to do about just that.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::stub::{Run, saved_store};

const KEY: &str = "5b2f6e0d3c4a19887766554433221100ffeeddccbbaa99887766554433221100";

struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    /// A folder with a backup and its key.
    fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        home.write("right.key", KEY.as_bytes());
        home.write("wrong.key", KEY.replace('5', "6").as_bytes());
        home.write("backup", &saved_store(&home.path("right.key")));
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(self.path(name), content).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.path(name), private).unwrap();
    }

    fn command(&self, from: &str, key: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.env_clear().current_dir(self.dir.path()).args(["restore", "--from", from]);
        if !key.is_empty() {
            command.args(["--encryption-key-file", key]);
        }
        command
    }

    fn restore(&self, from: &str, key: &str, more: &[&str]) -> Run {
        let mut command = self.command(from, key);
        Run::from(command.args(["--data-dir", "data"]).args(more).output().unwrap())
    }
}

#[test]
fn every_cause_has_its_remedy() {
    let home = Home::new();
    home.write("text", b"hello\n");
    home.write("half", &std::fs::read(home.path("backup")).unwrap()[..5000]);
    for (from, key, why, remedy) in [
        ("missing", "right.key", "No such file", ""),
        (".", "right.key", "it is a directory", "hint: name a file that manciple backup wrote"),
        ("/dev/null", "right.key", "a device", "hint: name a file that manciple backup wrote"),
        ("text", "right.key", "it is not a database", "hint: name a file"),
        ("half", "right.key", "it was cut short", "hint: name a file"),
        (
            "backup",
            "",
            "data/encryption.key does not exist",
            "hint: give the key that was in force",
        ),
    ] {
        let run = home.restore(from, key, &[]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(&format!("{from} was not restored: ")), "{run:?}");
        assert!(run.stderr.contains(why) && run.stderr.contains(remedy), "{run:?}");
        assert!(!home.path("data").exists(), "{from}");
    }
    let run = home.restore("backup", "wrong.key", &[]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("is not the key of this backup\nhint: give the key"), "{run:?}");
}

#[test]
fn programs_are_told_in_json_wherever_they_ask_for_it() {
    let home = Home::new();
    let run = home.restore("backup", "right.key", &["-o", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let done: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&done["records"], &done["aside"]), (&0.into(), &Value::Null), "{done}");
    let unnamed = home.dir.path().join(OsStr::from_bytes(b"da\xffta"));
    for aside in [false, true] {
        let mut again = home.command("backup", "right.key");
        again.args(["--replace", "-o", "json", "--data-dir"]).arg(&unnamed);
        let run = Run::from(again.output().unwrap());
        assert_eq!(run.code, 0, "{run:?}");
        let done: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(done["aside"].is_string(), aside, "{done}");
    }
    let run = home.restore("backup", "right.key", &["--output", "json"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(
        (&error["error"]["kind"], &error["error"]["exit_code"]),
        (&"usage".into(), &2.into())
    );
    assert!(error["error"]["hint"].as_str().unwrap().starts_with("--replace"), "{error}");
}
