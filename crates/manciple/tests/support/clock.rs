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
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    const char *ahead = getenv("CLOCK_AHEAD_S");
    if (ahead)
        now->tv_sec += atoi(ahead);
    const char *stands = getenv("CLOCK_STANDS_S");
    if (stands) {
        now->tv_sec = atol(stands);
        now->tv_nsec = 0;
    }
    return failed;
}
"#;

/// A library to be preloaded, which sets the time of day `CLOCK_AHEAD_S` ahead, or has it stand at `CLOCK_STANDS_S`.
pub(crate) fn shim(folder: &Path) -> PathBuf {
    slow::library(folder, "clock", SHIM)
}
