//! The server's certificate, which is read again when its files change.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, anyhow, ensure};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::config::Tls;

/// The certificate in force.
pub(crate) struct Certificate {
    files: Tls,
    current: RwLock<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    of: [Option<Identity>; 2],
    /// What the certificate says, and its key with it, for it fits no other: a kubelet touches the files of a volume though
    /// nothing in them has changed.
    chain: Vec<CertificateDer<'static>>,
}

/// The identity and the change time of a file. The time at which its content was written does not count: a file that is
/// older than the one in force, and is moved or copied into its place, is new all the same.
type Identity = (u64, u64, u64, i64, i64);

impl Certificate {
    /// Reads the files.
    pub(crate) fn open(files: &Tls) -> anyhow::Result<Arc<Self>> {
        let current = RwLock::new(load(files)?);
        Ok(Arc::new(Self { files: files.clone(), current }))
    }

    /// The configuration for the next connection.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// Reads the files again if they changed. If they are not valid, the certificate before stays in force. Returns
    /// whether a new one is in force.
    pub(crate) fn reload(&self) -> anyhow::Result<bool> {
        let seen = self.current.read().unwrap_or_else(PoisonError::into_inner).of;
        if identities(&self.files) == seen {
            return Ok(false);
        }
        let fresh = load(&self.files)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = current.chain != fresh.chain;
        *current = fresh;
        Ok(is_new)
    }
}

fn identities(files: &Tls) -> [Option<Identity>; 2] {
    [&files.certificate, &files.key].map(|path| {
        let of = std::fs::metadata(path).ok()?;
        Some((of.dev(), of.ino(), of.len(), of.ctime(), of.ctime_nsec()))
    })
}

fn load(files: &Tls) -> anyhow::Result<Loaded> {
    let of = identities(files);
    let path = files.certificate.display();
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("tls.certificate: {path} cannot be read as PEM"))?;
    ensure!(!chain.is_empty(), "tls.certificate: {path} holds no certificate");
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| no_key(&files.key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain.clone(), key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                anyhow!(
                    "tls: the key does not fit the certificate: give the two that belong together"
                )
            }
            other => anyhow!("tls: the certificate and its key cannot be used: {other}"),
        })?;
    Ok(Loaded { config: Arc::new(config), of, chain })
}

fn no_key(path: &Path, error: pem::Error) -> anyhow::Error {
    let at = path.display();
    let is_encrypted = |text: String| {
        text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
    };
    if std::fs::read_to_string(path).is_ok_and(is_encrypted) {
        return anyhow!(
            "tls.key: {at} is encrypted, and nobody is here to give its password: decrypt it, as \
             `openssl pkey -in {at} -out tls.key` does"
        );
    }
    anyhow!(error).context(format!("tls.key: {at} cannot be read as PEM"))
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes, write};
    use std::time::{Duration, SystemTime};

    use super::*;

    fn made(folder: &Path) -> Tls {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let files = Tls { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
        write(&files.certificate, made.cert.pem()).unwrap();
        write(&files.key, made.signing_key.serialize_pem()).unwrap();
        files
    }

    #[test]
    fn a_certificate_older_than_the_one_in_force_is_taken_up() {
        let (folder, waiting) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let older = made(waiting.path());
        let before = SystemTime::now() - Duration::from_secs(3600);
        for path in [&older.certificate, &older.key] {
            let file = File::options().append(true).open(path).unwrap();
            file.set_times(FileTimes::new().set_modified(before)).unwrap();
        }
        let files = made(folder.path());
        let certificate = Certificate::open(&files).unwrap();
        assert!(!certificate.reload().unwrap(), "nothing changed");
        std::fs::rename(&older.certificate, &files.certificate).unwrap();
        let error = certificate.reload().unwrap_err().to_string();
        assert!(error.contains("does not fit"), "{error}");
        std::fs::rename(&older.key, &files.key).unwrap();
        assert!(certificate.reload().unwrap(), "both are others now");
        let same = std::fs::read(&files.key).unwrap();
        write(&files.key, same).unwrap();
        assert!(!certificate.reload().unwrap(), "it was written again, as it is");
        std::fs::remove_file(&files.certificate).unwrap();
        let error = format!("{:#}", certificate.reload().unwrap_err());
        assert!(error.contains("tls.crt cannot be read"), "{error}");
    }

    #[test]
    fn an_encrypted_key_is_named_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let files = made(folder.path());
        for (key, says) in [
            (
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
                "is encrypted",
            ),
            (
                "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAAAA\n\
                 -----END EC PRIVATE KEY-----\n",
                "is encrypted",
            ),
            ("nothing", "cannot be read as PEM"),
        ] {
            write(&files.key, key).unwrap();
            let error = format!("{:#}", load(&files).err().unwrap());
            assert!(error.starts_with("tls.key: ") && error.contains(says), "{error}");
        }
    }
}
