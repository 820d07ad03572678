//! Sealing to a public key: HPKE (RFC 9180) in base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
//! ChaCha20-Poly1305.
//!
//! The run and the purpose are bound as `info`, so that what one run sealed is nothing in another. The
//! mode says nothing about who sealed: the public key stands in the pod, and the broker is the
//! authority on its own result.

use std::fmt;

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::{Deserializable, HpkeError, OpModeR, OpModeS, Serializable};
use osb::weight::weigh;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::keys::{Kem, KeySet, PublicKey};
use crate::{Error, Gathered, Report};

/// How many bytes sealing adds: the encapsulated key before the text, and the tag after it.
pub(crate) const OVERHEAD: usize = ENCAPSULATED + 16;
const ENCAPSULATED: usize = 32;

/// The most memory that reading a report may take, in bytes: a report of 5 MiB may take a hundred times that, and its
/// reader reads those of others, too. A text takes its length, so that files of 5 MiB in all are read.
pub(crate) const HEAVIEST: usize = 16 << 20;

/// The purpose for which something was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The report of a run.
    Report,
    /// The progress of a run.
    Progress,
    /// The files that were gathered of a run.
    Outputs,
}

impl Purpose {
    fn info(self, run: &str) -> Vec<u8> {
        let purpose = match self {
            Self::Report => "report",
            Self::Progress => "progress",
            Self::Outputs => "outputs",
        };
        format!("manciple/agent/{purpose}/1\n{run}").into_bytes()
    }
}

/// A sealed text, which only the controller can read, and the id of the key that opens it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    pub(crate) key: String,
    pub(crate) bytes: Vec<u8>,
}

impl Sealed {
    /// Seals a text for a run.
    ///
    /// # Errors
    /// [`Error::NotSealed`].
    pub fn seal(key: &PublicKey, purpose: Purpose, run: &str, plain: &[u8]) -> Result<Self, Error> {
        let failed = |_| Error::NotSealed("the key is none that can be sealed to");
        let (encapsulated, text) = hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, Kem>(
            &OpModeS::Base,
            &key.for_hpke()?,
            &purpose.info(run),
            plain,
            &[],
        )
        .map_err(failed)?;
        let bytes = [encapsulated.to_bytes().as_slice(), &text].concat();
        Ok(Self { key: key.id(), bytes })
    }

    /// The length of the sealed text, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Opens a text that was sealed for this run and purpose.
    ///
    /// # Errors
    /// [`Error::UnknownKey`], [`Error::NotOpened`].
    pub fn open(
        &self,
        keys: &KeySet,
        purpose: Purpose,
        run: &str,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let pair = keys.get(&self.key)?;
        let opened = || -> Result<Vec<u8>, HpkeError> {
            let (encapsulated, text) =
                self.bytes.split_at_checked(ENCAPSULATED).ok_or(HpkeError::OpenError)?;
            hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, Kem>(
                &OpModeR::Base,
                &pair.for_hpke().map_err(|_| HpkeError::OpenError)?,
                &Deserializable::from_bytes(encapsulated)?,
                &purpose.info(run),
                text,
                &[],
            )
        };
        opened().map(Zeroizing::new).map_err(|_| Error::NotOpened)
    }

    /// Opens the report of a run.
    ///
    /// # Errors
    /// As [`Self::open`], [`Error::TooHeavy`] and [`Error::NotAReport`].
    pub fn report(&self, keys: &KeySet, run: &str) -> Result<Report, Error> {
        let report: Report = self.read(keys, Purpose::Report, run)?;
        if report.run == run { Ok(report) } else { Err(Error::NotAReport) }
    }

    /// Opens the files that were gathered of a run.
    ///
    /// # Errors
    /// As [`Self::open`], [`Error::TooHeavy`] and [`Error::NotAReport`].
    pub fn gathered(&self, keys: &KeySet, run: &str) -> Result<Gathered, Error> {
        let gathered: Gathered = self.read(keys, Purpose::Outputs, run)?;
        if gathered.run == run { Ok(gathered) } else { Err(Error::NotAReport) }
    }

    /// Opens a progress report of a run: at most 500 bytes, redacted.
    ///
    /// # Errors
    /// As [`Self::open`], and [`Error::NotAReport`].
    pub fn progress(&self, keys: &KeySet, run: &str) -> Result<String, Error> {
        let plain = self.open(keys, Purpose::Progress, run)?;
        String::from_utf8(plain.to_vec()).map_err(|_| Error::NotAReport)
    }

    fn read<T: DeserializeOwned>(
        &self,
        keys: &KeySet,
        purpose: Purpose,
        run: &str,
    ) -> Result<T, Error> {
        let plain = self.open(keys, purpose, run)?;
        if weigh(&plain) > HEAVIEST {
            return Err(Error::TooHeavy);
        }
        // What serde would say may repeat a value.
        serde_json::from_slice(&plain).map_err(|_| Error::NotAReport)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes to {})", self.bytes.len(), self.key)
    }
}
