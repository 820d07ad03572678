//! Passwords, tokens and keys: they are read from files, and made at the first start if none are configured.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use engine::vital;
use http::HeaderValue;
use osb::Error;
use osb::server::{Authentication, Authenticator, Credentials, Presented, Principal};
use tokio::sync::watch::Receiver;
use zeroize::Zeroizing;

use super::access::Access;
use super::config::Auth;
use crate::random;
use crate::role::Role;

/// The largest secret file read, in bytes.
const LARGEST: u64 = 64 * 1024;

/// The name of the user who is made if none is configured.
pub(crate) const FIRST_USER: &str = "admin";

/// The password of the user who is made if none is configured.
pub(crate) enum First {
    /// The password is in a file of this folder, made if it is not there.
    Folder(PathBuf),
    /// The password is this one, which is kept elsewhere.
    Password(String),
    /// There is no such user.
    Nobody,
}

/// The callers who may send requests, read again when files and Secrets change.
pub(crate) struct Callers {
    auth: Auth,
    first: First,
    access: Access,
    /// The content of each file when it could last be read.
    files: Mutex<BTreeMap<PathBuf, Zeroizing<String>>>,
    current: RwLock<Arc<Credentials>>,
}

impl Callers {
    /// Reads every secret; makes a first user where none is configured.
    pub(crate) fn open(auth: &Auth, first: First, access: Access) -> anyhow::Result<Arc<Self>> {
        let first = if auth.is_configured() { First::Nobody } else { first };
        if let First::Folder(folder) = &first {
            let path = first_file(folder);
            if !path.exists() && make(&path, &random::text()?)? {
                tracing::warn!(
                    user = FIRST_USER,
                    password_file = %path.display(),
                    "no users are configured: one was made, with a password of its own"
                );
            }
        }
        let (files, current) = (Mutex::default(), RwLock::default());
        let callers = Arc::new(Self { auth: auth.clone(), first, access, files, current });
        callers.reload()?;
        if let Some(followed) = &callers.access.followed {
            let follow = follow(Arc::downgrade(&callers), followed.changed());
            tokio::spawn(vital::task("the look at Secrets", follow));
        }
        Ok(callers)
    }

    /// Reads the files and Secrets again. If a file cannot be read, its content before stays valid; all other
    /// changes, which may revoke something, are taken up all the same.
    ///
    /// # Errors
    /// If a file could never be read.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        let mut credentials = Credentials::new();
        for user in &self.auth.users {
            let password = self.secret(&user.password_file);
            let password = password
                .with_context(|| format!("auth.users: password_file of {:?}", user.name))?;
            credentials = credentials.user(&user.name, &password, user.role.as_str());
        }
        for token in &self.auth.tokens {
            let secret = self.secret(&token.token_file);
            let secret =
                secret.with_context(|| format!("auth.tokens: token_file of {:?}", token.name))?;
            credentials = credentials.token(&token.name, &secret, token.role.as_str());
        }
        if let Some(followed) = &self.access.followed {
            for secret in &self.auth.secrets {
                let (more, fault) = secret.add(credentials, followed);
                credentials = more;
                if let Some(fault) = fault {
                    tracing::error!("a Secret of auth.secrets lets nobody in: {fault}");
                }
            }
        }
        let first = match &self.first {
            First::Folder(folder) => Some(self.secret(&first_file(folder))?),
            First::Password(password) => Some(password.clone().into()),
            First::Nobody => None,
        };
        if let Some(password) = first {
            credentials = credentials.user(FIRST_USER, &password, Role::Operator.as_str());
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
        Ok(())
    }

    /// The content of a file, or what it held before if it cannot be read.
    fn secret(&self, path: &Path) -> anyhow::Result<Zeroizing<String>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match (read(path), files.get(path)) {
            (Ok(secret), _) => {
                let secret = Zeroizing::new(secret);
                files.insert(path.to_owned(), secret.clone());
                Ok(secret)
            }
            (Err(error), Some(before)) => {
                tracing::error!("the secret from before stays in force: {error:#}");
                Ok(before.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The authentication of the server by these callers.
    pub(crate) fn authentication(self: &Arc<Self>) -> Authentication {
        if self.auth.disabled {
            return Authentication::Disabled;
        }
        Authentication::Authenticator(Arc::clone(self) as _)
    }

    fn current(&self) -> Arc<Credentials> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Authenticator for Callers {
    async fn authenticate(&self, request: Presented<'_>) -> Result<Option<Principal>, Error> {
        match self.current().find(request.authorization) {
            Some(principal) => Ok(Some(principal)),
            None => self.access.principal(request).await,
        }
    }

    fn challenge(&self) -> HeaderValue {
        self.current().challenge()
    }
}

/// Takes up Secrets of the cluster as they change.
async fn follow(callers: Weak<Callers>, mut changed: Receiver<u64>) {
    while changed.changed().await.is_ok() {
        let Some(callers) = callers.upgrade() else { return };
        match callers.reload() {
            Ok(()) => tracing::info!("the Secrets of auth.secrets were read again"),
            Err(error) => tracing::error!("the secrets from before stay in force: {error:#}"),
        }
    }
}

fn first_file(folder: &Path) -> PathBuf {
    folder.join("admin.password")
}

/// Reads a secret from a file that nobody else can read; one trailing newline is not part of it.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let text = String::from_utf8(read_bytes(path)?)
        .ok()
        .with_context(|| format!("{}: is not text", path.display()))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    ensure!(!secret.is_empty(), "{}: is empty", path.display());
    Ok(secret.to_owned())
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let open = || format!("{}: cannot be read", path.display());
    // To open a pipe waits for whoever writes to it, and a device may have no end.
    let is_regular = std::fs::metadata(path).with_context(open)?.is_file();
    ensure!(is_regular, "{}: is no regular file: write the secret into one", path.display());
    let file = File::open(path).with_context(open)?;
    let metadata = file.metadata().with_context(open)?;
    ensure!(
        metadata.mode() & 0o007 == 0,
        "{}: everybody can read it; `chmod 600` it (in a pod, mount its Secret with defaultMode 0440 \
         and give the pod an fsGroup)",
        path.display()
    );
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).with_context(open)?;
    ensure!(bytes.len() as u64 <= LARGEST, "{}: is too long for a secret", path.display());
    Ok(bytes)
}

/// Makes a file with a new secret, readable by its owner only, unless there is one: of several processes that start at
/// once the first makes it, and the others read it. Returns whether it was made.
///
/// Killed at any instant, this leaves the whole secret under its name, or nothing there.
pub(crate) fn make(path: &Path, secret: &str) -> anyhow::Result<bool> {
    // By a name that nobody else writes to, or has left behind.
    let beside = path.with_extension(format!("new-{}", random::text()?));
    let made = write(&beside, secret).and_then(|()| name(&beside, path));
    // Whatever came of it: it is not there, or has another name now.
    let _ = std::fs::remove_file(&beside);
    made.with_context(|| format!("{}: cannot be made", path.display()))
}

fn write(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Gives a file a further name (a hard link), unless something has that name: a rename would replace it. On file
/// systems without hard links, as FAT, the file is renamed all the same, if nothing is there.
fn name(file: &Path, name: &Path) -> io::Result<bool> {
    let linked = std::fs::hard_link(file, name).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        _ => rename(file, name),
    });
    let named = match linked {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    // What another has just named is relied upon from now on, too. Some file systems sync no folders.
    if let Some(folder) = name.parent() {
        let _ = File::open(folder)?.sync_all();
    }
    Ok(named)
}

fn rename(file: &Path, name: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, file, CWD, name, RenameFlags::NOREPLACE) {
        // Nor can this: one process alone begins there, or the last wins.
        Err(rustix::io::Errno::INVAL) if !name.exists() => std::fs::rename(file, name),
        renamed => Ok(renamed?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_everybody_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        make(&path, "planted").unwrap();
        assert_eq!(read(&path).unwrap(), "planted");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("chmod 600") && !error.contains("planted"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_no_other_secret_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let users = ["a", "b"].map(|name| {
            make(&path(name), "before").unwrap();
            format!("{{name: {name}, password_file: {}}}", path(name).display())
        });
        let auth: Auth = serde_saphyr::from_str(&format!("users: [{}]", users.join(", "))).unwrap();
        let callers = Callers::open(&auth, First::Nobody, Access::default()).unwrap();
        let knows = |user: &str, password: &str| {
            let said = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
            let said = HeaderValue::try_from(format!("Basic {said}")).unwrap();
            callers.current().find(&said).is_some()
        };
        assert!(knows("a", "before") && knows("b", "before"));
        std::fs::remove_file(path("a")).unwrap();
        std::fs::write(path("b"), "after").unwrap();
        callers.reload().unwrap();
        assert!(knows("b", "after") && !knows("b", "before"), "a changed one is taken up");
        assert!(knows("a", "before"), "one that cannot be read stays");
        make(&path("a"), "after").unwrap();
        callers.reload().unwrap();
        assert!(knows("a", "after") && !knows("a", "before"), "and is taken up when it can");
    }

    /// The names of what is in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn of_those_who_start_at_once_one_makes_the_secret_and_all_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.password");
        let starts = std::sync::Barrier::new(8);
        let made: Vec<bool> = std::thread::scope(|scope| {
            let start = |number: u32| {
                let (path, starts) = (&path, &starts);
                scope.spawn(move || {
                    starts.wait();
                    let made = make(path, &format!("planted-{number}")).unwrap();
                    assert!(!made || read(path).unwrap() == format!("planted-{number}"));
                    (made, read(path).unwrap())
                })
            };
            let all: Vec<_> = (0..8).map(start).collect();
            let all: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
            assert!(all.iter().all(|(_, found)| *found == all[0].1), "{all:?}");
            all.into_iter().map(|(made, _)| made).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
        assert_eq!(names(folder.path()), ["admin.password"]);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_start_that_was_killed_before_its_secret_had_a_name_keeps_no_later_one_from_making_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("encryption.key");
        write(&path.with_extension("new-left"), "half").unwrap();
        assert!(!path.exists(), "nobody reads it");
        assert!(make(&path, "planted").unwrap());
        assert_eq!(read(&path).unwrap(), "planted");
    }

    #[test]
    fn a_secret_that_cannot_be_made_leaves_nothing_behind_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let too_long = folder.path().join(format!("password.{}", "x".repeat(300)));
        assert!(make(&too_long, "planted").is_err());
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
        let path = folder.path().join("password");
        std::fs::write(&path, "").unwrap();
        assert!(!make(&path, "planted").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"", "it may be one that is being written");
        assert_eq!(names(folder.path()), ["password"]);
    }

    #[test]
    fn what_could_be_read_for_ever_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = format!("{:#}", read(path).unwrap_err());
            assert!(error.contains("is no regular file"), "{error}");
        }
    }

    #[test]
    fn an_empty_or_missing_secret_is_refused_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("password"));
        make(&path, "").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("is empty"));
    }
}
