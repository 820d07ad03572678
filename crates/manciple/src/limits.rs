//! Limits that others set for this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;

/// A write beyond the limit of file sizes (`ulimit -f`) shall fail, as one on a full disk does, instead of ending
/// the process: whoever writes then says so.
///
/// The signal is taken and not ignored: programs that are started get what is usual back, and what is ignored
/// they would ignore, too.
pub(crate) fn report_files_that_may_not_grow() {
    // That it cannot be taken is no reason not to begin: such a limit is rare.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
