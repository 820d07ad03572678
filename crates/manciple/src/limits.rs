//! Handling of the resource limits that are set for this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;

/// Makes a write beyond the limit of file sizes (`ulimit -f`) fail, as one on a full disk does, instead of ending
/// the process, so that the writer can report it.
///
/// The signal is caught and not ignored: programs that are started get the default back, where they would inherit an
/// ignored signal.
pub(crate) fn report_files_that_may_not_grow() {
    // That it cannot be taken is no reason not to begin: such a limit is rare.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
