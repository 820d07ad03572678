//! The server's certificate, read again when its files change.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use anyhow::{Context, ensure};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::config::Tls;

/// The certificate in force.
pub(crate) struct Certificate {
    files: Tls,
    current: RwLock<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    changed: Option<SystemTime>,
}

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

    /// Reads the files again if they changed. The certificate before stays in force if they are not
    /// right. `true` if a new one is in force.
    pub(crate) fn reload(&self) -> anyhow::Result<bool> {
        let seen = self.current.read().unwrap_or_else(PoisonError::into_inner).changed;
        if changed(&self.files) == seen {
            return Ok(false);
        }
        let fresh = load(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }
}

fn changed(files: &Tls) -> Option<SystemTime> {
    let at = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    at(&files.certificate).max(at(&files.key))
}

fn load(files: &Tls) -> anyhow::Result<Loaded> {
    let changed = changed(files);
    let path = files.certificate.display();
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("tls.certificate: {path} cannot be read as PEM"))?;
    ensure!(!chain.is_empty(), "tls.certificate: {path} holds no certificate");
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .with_context(|| format!("tls.key: {} cannot be read as PEM", files.key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("tls: the key does not fit the certificate")?;
    Ok(Loaded { config: Arc::new(config), changed })
}
