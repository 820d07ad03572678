//! The end of a run, kept sealed, for it may hold credentials.

use data_encoding::BASE64;
use engine::contract::{self, Ended, Exit};
use engine::ports::{Offer, RunFailure};
use engine::redact::{Redactor, Secrets};
use osb::Output;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::order::About;
use super::settings::RunnerKey;

const KEY_BYTES: usize = 32;
/// The first bytes of a sealed result: format and version.
const MAGIC: &[u8; 4] = b"MRR1";

/// The key that seals the result of one run. It exists in the memory of server and supervisor only.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct RunKey(Zeroizing<[u8; KEY_BYTES]>);

struct KeyBytes;

impl KeyType for KeyBytes {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl RunKey {
    /// Derives the key of the run of this name. `None` only if the cryptography fails.
    pub(super) fn derive(key: &RunnerKey, name: &str) -> Option<Self> {
        let secret = Salt::new(HKDF_SHA256, b"manciple/run-result/1").extract(key.expose());
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        secret.expand(&[name.as_bytes()], KeyBytes).ok()?.fill(bytes.as_mut()).ok()?;
        Some(Self(bytes))
    }

    /// Seals a result. `None` only if the cryptography fails.
    fn seal(&self, name: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = [MAGIC.as_slice(), &nonce].concat();
        let mut body = plain.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.cipher()?.seal_in_place_append_tag(nonce, Aad::from(name), &mut body).ok()?;
        sealed.append(&mut body);
        Some(sealed)
    }

    /// Opens a sealed result. `None` if it was sealed under another key, for another run, or changed since.
    fn open(&self, name: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, body) = sealed.strip_prefix(MAGIC)?.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = Zeroizing::new(body.to_vec());
        let length = self.cipher()?.open_in_place(nonce, Aad::from(name), &mut body).ok()?.len();
        body.truncate(length);
        Some(body)
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, self.0.as_ref()).ok().map(LessSafeKey::new)
    }
}

impl From<RunKey> for String {
    fn from(key: RunKey) -> Self {
        BASE64.encode(key.0.as_ref())
    }
}

impl TryFrom<String> for RunKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let text = Zeroizing::new(text);
        let bytes = Zeroizing::new(BASE64.decode(text.as_bytes()).map_err(|_| "not base64")?);
        let bytes = bytes.as_slice().try_into().map_err(|_| "not a key")?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

/// The end of a run, with all that its meaning is read from.
#[derive(Serialize, Deserialize)]
pub(super) struct Ending {
    pub(super) exit: Exit,
    pub(super) stdout: Bytes,
    /// The end of the redacted log.
    pub(super) log: String,
    pub(super) state: Option<Bytes>,
    /// The secrets to redact from the broker's descriptions.
    pub(super) secrets: Vec<String>,
}

impl Ending {
    pub(super) fn seal(&self, key: &RunKey, name: &str) -> Option<Vec<u8>> {
        let plain = Zeroizing::new(serde_json::to_vec(self).ok()?);
        key.seal(name, &plain)
    }

    pub(super) fn open(key: &RunKey, name: &str, sealed: &[u8]) -> Option<Self> {
        serde_json::from_slice(&key.open(name, sealed)?).ok()
    }

    /// Interprets the end, with nothing secret in what people see.
    pub(super) fn interpret(&self, about: &About) -> Result<Output, RunFailure> {
        contract::interpret(&about.asked(), &self.ended(&self.redactor()))
    }

    /// Reads the broker's offer, if it was asked for that.
    pub(super) fn offer(&self) -> Result<Offer, RunFailure> {
        contract::offer(&self.ended(&self.redactor()))
    }

    fn redactor(&self) -> Redactor {
        let mut secrets = contract::secrets::of_output(&self.stdout.0);
        self.secrets.iter().for_each(|secret| secrets.add(secret.as_bytes()));
        Redactor::new(&secrets)
    }

    fn ended<'a>(&'a self, redactor: &'a Redactor) -> Ended<'a> {
        Ended {
            exit: self.exit,
            stdout: &self.stdout.0,
            log: &self.log,
            state: self.state.as_ref().map(|state| state.0.as_slice()),
            redactor,
        }
    }

    /// The secrets that [`Self::secrets`] keeps: those that are text.
    pub(super) fn keep(secrets: &Secrets) -> Vec<String> {
        secrets
            .iter()
            .filter_map(|secret| std::str::from_utf8(secret).ok())
            .map(str::to_owned)
            .collect()
    }
}

/// Bytes that travel in JSON.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> Self {
        BASE64.encode(&bytes.0)
    }
}

impl TryFrom<String> for Bytes {
    type Error = data_encoding::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        BASE64.decode(text.as_bytes()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8, name: &str) -> RunKey {
        RunKey::derive(&RunnerKey::new([byte; 32]), name).unwrap()
    }

    fn ending() -> Ending {
        Ending {
            exit: Exit::Status(0),
            stdout: Bytes(b"{\"credentials\": \"hunter22\"}".to_vec()),
            log: "log".to_owned(),
            state: Some(Bytes(vec![0, 255])),
            secrets: vec!["s3cret".to_owned()],
        }
    }

    #[test]
    fn a_result_is_read_again_and_cannot_be_read_otherwise() {
        let sealed = ending().seal(&key(1, "a"), "a").unwrap();
        let opened = Ending::open(&key(1, "a"), "a", &sealed).unwrap();
        assert_eq!(opened.stdout.0, ending().stdout.0);
        assert_eq!(opened.state.unwrap().0, [0, 255]);
        let text = String::from_utf8_lossy(&sealed).into_owned();
        assert!(!text.contains("hunter22") && !text.contains("credentials"));
    }

    #[test]
    fn a_result_of_another_key_run_or_content_is_refused() {
        let sealed = ending().seal(&key(1, "a"), "a").unwrap();
        assert!(Ending::open(&key(2, "a"), "a", &sealed).is_none(), "another key");
        assert!(Ending::open(&key(1, "b"), "b", &sealed).is_none(), "another run");
        assert!(Ending::open(&key(1, "a"), "b", &sealed).is_none(), "renamed");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(Ending::open(&key(1, "a"), "a", &changed).is_none(), "byte {at}");
            assert!(Ending::open(&key(1, "a"), "a", &sealed[..at]).is_none(), "{at} bytes");
        }
    }

    #[test]
    fn a_key_survives_the_pipe() {
        let json = serde_json::to_string(&key(1, "a")).unwrap();
        let sent: RunKey = serde_json::from_str(&json).unwrap();
        let sealed = ending().seal(&sent, "a").unwrap();
        assert!(Ending::open(&key(1, "a"), "a", &sealed).is_some());
    }
}
