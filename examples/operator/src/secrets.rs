//! What is in files that change while they are used, as the files of a Secret in a pod do.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use osb::server::Credentials;
use osb::server::rustls::ServerConfig;
use osb::server::rustls::crypto::ring::default_provider;
use osb::server::rustls::pki_types::pem::PemObject;
use osb::server::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are read again.
const AGAIN: Duration = Duration::from_secs(10);

/// What was made of files, and is made again.
pub struct Followed<T> {
    read: Box<dyn Fn() -> anyhow::Result<T> + Send + Sync>,
    current: RwLock<Arc<T>>,
}

impl<T> Followed<T> {
    /// As it is now.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(
        read: impl Fn() -> anyhow::Result<T> + Send + Sync + 'static,
    ) -> anyhow::Result<Arc<Self>> {
        let current = RwLock::new(Arc::new(read()?));
        Ok(Arc::new(Self { read: Box::new(read), current }))
    }

    /// As it was last.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes it again and again; what was before stays in force while it cannot be made. To be spawned.
    pub async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(AGAIN).await;
            match (self.read)() {
                Ok(fresh) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                }
                Err(error) => tracing::error!("what was before stays in force: {error:#}"),
            }
        }
    }
}

/// A user with the passwords that a file holds, one a line: while one takes another's place, both are good.
///
/// # Errors
/// If the file cannot be read, or holds none.
pub fn credentials(user: &str, file: &Path) -> anyhow::Result<Credentials> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let mut passwords = text.lines().filter(|line| !line.is_empty()).peekable();
    ensure!(passwords.peek().is_some(), "{} is empty: put a password into it", file.display());
    Ok(passwords.fold(Credentials::new(), |known, password| known.user(user, password, user)))
}

/// A certificate with its chain, and its key.
///
/// # Errors
/// If they cannot be read as PEM, or do not belong together.
pub fn certificate(chain: &Path, key: &Path) -> anyhow::Result<ServerConfig> {
    let no_pem = |file: &Path| format!("{} cannot be read as PEM", file.display());
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| no_pem(chain))?;
    ensure!(!certificates.is_empty(), "{} holds no certificate", chain.display());
    let private = PrivateKeyDer::from_pem_file(key).with_context(|| no_pem(key))?;
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .with_context(|| {
            format!("{} and {} do not belong together", chain.display(), key.display())
        })
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use axum::http::HeaderValue;

    use super::*;

    /// What a platform sends, of user and password `p:` and the word.
    const SENT: [(&str, &str); 4] = [
        ("first", "Basic cDpmaXJzdA=="),
        ("second ", "Basic cDpzZWNvbmQg"),
        ("third", "Basic cDp0aGlyZA=="),
        ("", "Basic cDo="),
    ];

    #[tokio::test(start_paused = true)]
    async fn changed_passwords_are_taken_up_and_a_file_without_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        write(&file, "first\r\n").unwrap();
        let known = Followed::open({
            let file = file.clone();
            move || credentials("p", &file)
        });
        let known = known.unwrap();
        tokio::spawn(Arc::clone(&known).keep());
        let good = || -> Vec<&str> {
            let known = known.current();
            let is_known = |sent| known.find(&HeaderValue::from_static(sent)).is_some();
            SENT.iter().filter(|(_, sent)| is_known(sent)).map(|(password, _)| *password).collect()
        };
        assert_eq!(good(), ["first"]);
        for (written, expected) in [
            ("second \r\nfirst\r\n", &["first", "second "][..]),
            ("\n\n", &["first", "second "]),
            ("\nsecond \n\n", &["second "]),
            ("third", &["third"]),
        ] {
            write(&file, written).unwrap();
            tokio::time::sleep(AGAIN + Duration::from_secs(1)).await;
            assert_eq!(good(), expected, "{written:?}");
        }
    }
}
