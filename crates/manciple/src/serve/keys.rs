//! The key of the store: configured, or made at the first start.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use standalone::seal::KeySource;

use super::config::Encryption;
use super::secrets;
use crate::random;

/// The variable that holds the key itself.
pub(crate) const KEY: &str = "MANCIPLE_ENCRYPTION_KEY";
/// The variable that holds the key before it.
pub(crate) const PREVIOUS: &str = "MANCIPLE_PREVIOUS_ENCRYPTION_KEY";

/// The file that is made in the data directory where no key is configured.
pub(crate) const FILE: &str = "encryption.key";

/// The key, and the one before it.
pub(crate) struct Keys {
    pub(crate) current: KeySource,
    pub(crate) previous: Option<KeySource>,
}

/// The file of a key. A file that a flag or its variable names goes before a variable that holds the key itself, and
/// that before the configuration.
pub(crate) fn file(
    given: Option<PathBuf>,
    held: bool,
    configured: Option<PathBuf>,
) -> Option<PathBuf> {
    given.or_else(|| configured.filter(|_| !held))
}

/// Whether a variable holds a key.
pub(crate) fn is_held(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|key| !key.is_empty())
}

/// Finds the keys: a file, else the environment, else a file that is made beside the store.
pub(crate) fn choose(encryption: &Encryption, data_dir: &Path) -> anyhow::Result<Keys> {
    let of = |file: &Option<PathBuf>, variable: &str| match file {
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
        standalone::data_dir::make(data_dir)
            .with_context(|| format!("data_dir: {} cannot be made", data_dir.display()))?;
        if secrets::make(&path, &random::text()?)? {
            tracing::warn!(
                key_file = %path.display(),
                "no encryption key is configured: one was made beside the store; keep a copy \
                 elsewhere, or configure encryption.key_file"
            );
        }
    }
    Ok(Keys { current: KeySource::File(path), previous })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_before_variables_and_both_before_the_configuration() {
        let (flag, yaml) = (Some("flag"), Some("yaml"));
        for (case, given, held, configured, expected) in [
            ("nothing is said", None, false, None, None),
            ("a flag", flag, false, None, flag),
            ("the configuration", None, false, yaml, yaml),
            ("a flag and the configuration", flag, false, yaml, flag),
            ("a variable and the configuration", None, true, yaml, None),
            ("a flag and a variable", flag, true, None, flag),
            ("all of them", flag, true, yaml, flag),
        ] {
            let found = file(given.map(Into::into), held, configured.map(Into::into));
            assert_eq!(found, expected.map(Into::into), "{case}");
        }
    }
}
