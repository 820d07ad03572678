//! `manciple restore`: puts a backup into a data directory, or says what is wrong with the backup, the key or the
//! directory.

use standalone::seal::KeyError;
use standalone::store::{OpenError, Restored};

use serde_json::json;

use super::RemoteArgs;
use super::connection::format;
use super::failure::Failure;
use super::output::Output;
use crate::serve::RestoreArgs;

/// Restores a backup, and prints what that did.
pub(crate) fn restore(args: &RestoreArgs, remote: &RemoteArgs) -> Result<(), Failure> {
    let out = Output { format: format(remote)?, quiet: remote.printing.quiet };
    let restored = crate::serve::restore(args).map_err(|error| refused(args, &error))?;
    // Given again, the command would be refused, or move aside what it has restored.
    tell(out, &restored)
        .map_err(|failure| failure.hint("nothing is left to do but to start the server"))
}

fn tell(out: Output, restored: &Restored) -> Result<(), Failure> {
    if out.is_json() {
        let aside = restored.aside.as_ref().map(|aside| aside.to_string_lossy());
        return out.json(&json!({ "records": restored.records, "aside": aside }));
    }
    if out.quiet {
        return Ok(());
    }
    out.line(&format!("{} records restored", restored.records))?;
    match &restored.aside {
        Some(aside) => out.line(&format!("what was there before is in {}", aside.display())),
        None => Ok(()),
    }
}

/// The failure of a restore. Everything that it needs is on this machine, so the reason is a file or an option.
fn refused(args: &RestoreArgs, error: &OpenError) -> Failure {
    let (why, hint) = match error {
        OpenError::Key(KeyError::Missing(place)) => (format!("{place} does not exist"), KEY),
        OpenError::WrongKey { tried } => (format!("{tried} the key of this backup"), KEY),
        OpenError::Locked { dir, holder } => (
            format!("{} is in use by {holder}", dir.display()),
            "end the server first; nothing has to be cleaned up after it",
        ),
        OpenError::Occupied { dir } => (
            format!("there is a store in {} already", dir.display()),
            "--replace puts the backup in its place and keeps what is there aside; or name another \
             directory: --data-dir DIR",
        ),
        OpenError::NotABackup { why, .. } => (why.clone(), BACKUP),
        OpenError::NotAStore => ("it is not a database of manciple".to_owned(), BACKUP),
        OpenError::Newer { found, known } => (
            format!(
                "it has version {found} of the store, and this manciple knows none above {known}"
            ),
            "restore it with the manciple that made it, or a newer one: manciple --version",
        ),
        OpenError::Damaged { what } => {
            (format!("it is damaged: {what}"), "nothing was changed; restore another backup")
        }
        other => (other.to_string(), ""),
    };
    Failure::usage(format!("{} was not restored: {why}", args.from.display())).hint(hint)
}

const KEY: &str =
    "give the key that was in force when the backup was made: --encryption-key-file FILE";
const BACKUP: &str = "name a file that manciple backup wrote: --from FILE";
