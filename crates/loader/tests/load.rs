//! Packed programs, run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A program that says what it was given.
const SCRIPT: &[u8] = b"#!/bin/sh\necho \"$1 $2 $GIVEN\"; exit 7\n";

struct Site {
    folder: TempDir,
    packed: PathBuf,
}

impl Site {
    fn new(packed: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed");
        fs::write(&path, packed).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o555)).unwrap();
        Self { folder, packed: path }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    fn run(&self, target: &Path) -> Output {
        let mut command = Command::new(&self.packed);
        command.args(["run", "a b"]).env("GIVEN", "kept").env(loader::TARGET_VARIABLE, target);
        loop {
            match command.output() {
                // Another test forked while ours was open for writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                output => return output.unwrap(),
            }
        }
    }
}

fn the_loader() -> Vec<u8> {
    fs::read(env!("CARGO_BIN_EXE_manciple-loader")).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn it_becomes_the_program_with_the_same_arguments_and_variables() {
    let site = Site::new(&loader::pack(&the_loader(), SCRIPT));
    // A second start finds the file of the first.
    for _ in 0..2 {
        let output = site.run(&site.target());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "run a b kept\n", "{}", said(&output));
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(fs::read(site.target()).unwrap(), SCRIPT);
        assert_eq!(fs::metadata(site.target()).unwrap().permissions().mode() & 0o777, 0o555);
    }
}

#[test]
fn a_link_in_the_way_is_replaced_and_not_followed() {
    let site = Site::new(&loader::pack(&the_loader(), SCRIPT));
    let elsewhere = site.folder.path().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, site.target()).unwrap();
    assert_eq!(site.run(&site.target()).status.code(), Some(7));
    assert_eq!(fs::read(elsewhere).unwrap(), b"precious");
}

#[test]
fn what_is_wrong_is_said() {
    let whole = loader::pack(&the_loader(), SCRIPT);
    let program = whole.len() - loader::TRAILER_BYTES;
    let mut spoilt = whole.clone();
    spoilt[program - 20] ^= 1;
    let mut too_long = whole[..program].to_vec();
    too_long.extend(loader::trailer(u64::MAX));
    let cut: Vec<u8> = [&whole[..program - 9], &whole[program..]].concat();
    let cases = [
        ("nothing packed", the_loader(), "the packed agent cannot be read"),
        ("spoilt", spoilt, "the packed agent is damaged"),
        ("longer than it is", too_long, "the packed agent cannot be read"),
        ("a piece missing", cut, "the packed agent is damaged"),
    ];
    for (case, packed, why) in cases {
        let site = Site::new(&packed);
        let output = site.run(&site.target());
        assert_eq!(output.status.code(), Some(2), "{case}");
        assert!(
            said(&output).starts_with(&format!("MANCIPLE1 broken {why}")),
            "{case}: {}",
            said(&output)
        );
    }
    let site = Site::new(&whole);
    let output = site.run(&site.folder.path().join("nowhere/agent"));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        said(&output),
        "MANCIPLE1 broken the file for the agent cannot be made (error 2 of the system)\n"
    );
    let output = Command::new(&site.packed).env_remove(loader::TARGET_VARIABLE).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("MANCIPLE_AGENT"), "{}", said(&output));
}

#[test]
fn what_does_not_execute_is_said() {
    let site = Site::new(&loader::pack(&the_loader(), b"no program"));
    let output = site.run(&site.target());
    assert_eq!(
        said(&output),
        "MANCIPLE1 broken the agent cannot be executed (error 8 of the system)\n"
    );
}

#[test]
fn large_programs_come_out_as_they_went_in() {
    // Compresses badly at first and well later, over many windows.
    let mut seed: u64 = 1;
    let mut program = Vec::new();
    for _ in 0..300_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        program.extend_from_slice(&seed.to_be_bytes()[..2]);
    }
    program.extend(std::iter::repeat_n(b"over and over ", 100_000).flatten());
    let packed = loader::pack(b"", &program);
    let compressed = &packed[..packed.len() - loader::TRAILER_BYTES];
    for piece in [1, 7, 4096, usize::MAX] {
        let (mut rest, mut out) = (compressed, Vec::new());
        let read = |buffer: &mut [u8]| {
            let some = rest.len().min(buffer.len()).min(piece);
            buffer[..some].copy_from_slice(&rest[..some]);
            rest = &rest[some..];
            Ok::<_, ()>(some)
        };
        let write = |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok(())
        };
        assert_eq!(loader::inflate(read, write), Ok(()), "in pieces of {piece}");
        assert!(out == program, "in pieces of {piece}");
    }
}
