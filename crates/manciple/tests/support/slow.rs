//! A slow disk under a real process: its syncs are what they are, and then some.

use std::path::{Path, PathBuf};
use std::process::Command;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void pause_as_told(void) {
    const char *milliseconds = getenv("SLOW_SYNC_MS");
    usleep(1000 * (milliseconds ? atoi(milliseconds) : 0));
}

int fsync(int file) {
    pause_as_told();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    pause_as_told();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
}
"#;

/// A library to be preloaded, which delays `fsync` and `fdatasync` by `SLOW_SYNC_MS`.
pub(crate) fn shim(folder: &Path) -> PathBuf {
    library(folder, "slow", SHIM)
}

/// A library to be preloaded. Made with the C compiler that has compiled the store's database.
pub(crate) fn library(folder: &Path, name: &str, text: &str) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    let library = folder.join(format!("{name}.so"));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}
