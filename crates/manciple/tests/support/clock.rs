//! A wrong clock under a real process.

use std::path::{Path, PathBuf};

use crate::support::slow;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    const char *seconds = getenv("CLOCK_AHEAD_S");
    if (!failed && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += atoi(seconds);
    return failed;
}
"#;

/// A library to be preloaded, which sets the time of day `CLOCK_AHEAD_S` ahead.
pub(crate) fn shim(folder: &Path) -> PathBuf {
    slow::library(folder, "clock", SHIM)
}
