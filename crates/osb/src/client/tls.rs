//! TLS with ring, named explicitly: the process-wide default of rustls panics when nothing, or two
//! things, have set it.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::error::SettingsError;

/// The authorities to trust.
pub(super) enum Roots<'a> {
    /// None: for plain HTTP, where reading the system's certificates would be wasted.
    None,
    /// The system's authorities.
    System,
    /// These PEM certificates only.
    Pem(&'a [u8]),
}

pub(super) fn config(roots: &Roots<'_>) -> Result<ClientConfig, SettingsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SettingsError::Tls)?;
    let builder = match roots {
        Roots::None => builder.with_root_certificates(RootCertStore::empty()),
        Roots::System => builder.with_native_roots().map_err(SettingsError::SystemRoots)?,
        Roots::Pem(pem) => builder.with_root_certificates(store(pem)?),
    };
    Ok(builder.with_no_client_auth())
}

fn store(pem: &[u8]) -> Result<RootCertStore, SettingsError> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|_| SettingsError::Certificates("are not valid PEM"))?;
        store
            .add(certificate)
            .map_err(|_| SettingsError::Certificates("hold one that cannot be a root"))?;
    }
    if store.is_empty() {
        return Err(SettingsError::Certificates("hold no certificate"));
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_none_are_refused() {
        let broken = b"-----BEGIN CERTIFICATE-----\nhunter2!\n-----END CERTIFICATE-----\n";
        let empty = b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for pem in [b"".as_slice(), b"no pem", broken, empty] {
            assert!(matches!(config(&Roots::Pem(pem)), Err(SettingsError::Certificates(_))));
        }
    }
}
