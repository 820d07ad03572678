//! The key of the store: configured, or made at the first start.

use std::path::Path;

use anyhow::{Context, ensure};
use standalone::seal::KeySource;

use super::config::Encryption;
use super::secrets;

/// The variable that holds the key itself.
pub(crate) const KEY: &str = "MANCIPLE_ENCRYPTION_KEY";
/// The variable that holds the key before it.
const PREVIOUS: &str = "MANCIPLE_PREVIOUS_ENCRYPTION_KEY";

/// The file that is made in the data directory where no key is configured.
pub(crate) const FILE: &str = "encryption.key";

/// The key, and the one before it.
pub(crate) struct Keys {
    pub(crate) current: KeySource,
    pub(crate) previous: Option<KeySource>,
}

/// Finds the keys: a file, else the environment, else a file that is made beside the store.
pub(crate) fn choose(encryption: &Encryption, data_dir: &Path) -> anyhow::Result<Keys> {
    let of = |file: &Option<std::path::PathBuf>, variable: &str| match file {
        Some(path) => Some(KeySource::File(path.clone())),
        None => std::env::var_os(variable).map(|_| KeySource::Environment(variable.into())),
    };
    let previous = of(&encryption.previous_key_file, PREVIOUS);
    if let Some(current) = of(&encryption.key_file, KEY) {
        return Ok(Keys { current, previous });
    }
    let path = data_dir.join(FILE);
    if !path.exists() {
        ensure!(
            !data_dir.join("manciple.db").exists(),
            "{} was opened with a key that is not configured now: give encryption.key_file, \
             --encryption-key-file or {KEY}",
            data_dir.display()
        );
        let mut private = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut private, 0o700);
        private
            .recursive(true)
            .create(data_dir)
            .with_context(|| format!("data_dir: {} cannot be made", data_dir.display()))?;
        secrets::make(&path, &secrets::random_text()?)?;
        tracing::warn!(
            key_file = %path.display(),
            "no encryption key is configured: one was made beside the store; keep a copy \
             elsewhere, or configure encryption.key_file"
        );
    }
    Ok(Keys { current: KeySource::File(path), previous })
}
