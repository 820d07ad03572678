//! The failpoint of a server: ends the process at a named point, as `kill -9` would; for tests, with the feature
//! `failpoints`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable with the failpoint, as `POINT:N`: the process dies when POINT is passed for the Nth time.
const VARIABLE: &str = "MANCIPLE_FAILPOINT";

/// Installs the failpoint that the variable names, if it is set.
pub(crate) fn install() {
    let Ok(spec) = std::env::var(VARIABLE) else { return };
    let Some((point, times)) = spec.split_once(':') else { return };
    let (Ok(times), point) = (times.parse::<u32>(), point.to_owned()) else { return };
    let passed = AtomicU32::new(0);
    engine::failpoint::install(Arc::new(move |name| {
        if name == point && passed.fetch_add(1, Ordering::SeqCst) + 1 == times {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
        false
    }));
}
