//! Failpoints: named points between the store and the runner at which a test ends the process.
//!
//! Without the feature `failpoints` a point does nothing. With it, a test installs a hook that
//! is told every name as it is passed: it may end the process, or have the engine stand
//! still there for ever, which is what a crash looks like from inside.

/// The names of all points, in the order in which an operation passes them.
pub const POINTS: [&str; 9] = [
    "before-intent",
    "after-intent",
    "before-start",
    "after-start",
    "after-started",
    "before-outcome",
    "after-outcome",
    "after-release",
    "after-cancel",
];

#[cfg(feature = "failpoints")]
mod hook {
    use std::sync::{Arc, RwLock};

    /// A hook that is told a point's name; `true` stops the caller there for ever.
    pub type Hook = Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

    static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

    /// Installs the hook for the whole process.
    pub fn install(hook: Hook) {
        if let Ok(mut slot) = HOOK.write() {
            *slot = Some(hook);
        }
    }

    pub(crate) async fn hit(point: &'static str) {
        let hook = HOOK.read().ok().and_then(|slot| slot.clone());
        if hook.is_some_and(|hook| hook(point)) {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(feature = "failpoints")]
pub(crate) use hook::hit;
#[cfg(feature = "failpoints")]
pub use hook::{Hook, install};

#[cfg(not(feature = "failpoints"))]
pub(crate) async fn hit(_point: &'static str) {}
