//! Of which builds those are that take each other's place.
//!
//! `MANCIPLE_OLDER=/path/to/manciple` names the program of another build; without it all are of this one.

use std::path::PathBuf;

/// This build.
pub(crate) fn this() -> PathBuf {
    env!("CARGO_BIN_EXE_manciple").into()
}

/// Those that serve one after another: this build twice; where another is named, an upgrade from that, and back to it.
pub(crate) fn rolled() -> Vec<PathBuf> {
    match std::env::var_os("MANCIPLE_OLDER").map(PathBuf::from) {
        None => vec![this(), this()],
        Some(older) => vec![older.clone(), this(), older],
    }
}

/// The same, as pairs of who goes and who comes.
pub(crate) fn successions() -> Vec<[PathBuf; 2]> {
    rolled().windows(2).filter_map(|two| <[PathBuf; 2]>::try_from(two.to_vec()).ok()).collect()
}
