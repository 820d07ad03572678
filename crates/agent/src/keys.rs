//! The keys that reports are sealed to.
//!
//! A controller has one pair that new runs are sealed to, and keeps older ones until no run needs them.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem as _, Serializable};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::Error;

/// How keys are agreed on: DHKEM(X25519, HKDF-SHA256) of RFC 9180.
pub(crate) type Kem = X25519HkdfSha256;

const KEY_BYTES: usize = 32;
/// How many bytes of the hash are a key's id.
const ID_BYTES: usize = 8;

/// The public key that reports are sealed to. Nothing confidential: it stands in pod specs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct PublicKey([u8; KEY_BYTES]);

/// A public key as it is written in an order. The id is for people, and for looking up the key by it.
#[derive(Serialize, Deserialize)]
struct Written {
    id: String,
    key: String,
}

impl PublicKey {
    /// The id of the key: 16 hexadecimal digits, the beginning of SHA-256 over it.
    pub fn id(&self) -> String {
        HEXLOWER.encode(&Sha256::digest(self.0)[..ID_BYTES])
    }

    pub(crate) fn for_hpke(&self) -> Result<<Kem as hpke::Kem>::PublicKey, Error> {
        Deserializable::from_bytes(&self.0).map_err(|_| Error::NotAKey("it is no public key"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl From<PublicKey> for Written {
    fn from(key: PublicKey) -> Self {
        Self { id: key.id(), key: BASE64.encode(&key.0) }
    }
}

impl TryFrom<Written> for PublicKey {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self, Error> {
        let bytes = BASE64.decode(written.key.as_bytes());
        let bytes = bytes.map_err(|_| Error::NotAKey("a public key is not base64"))?;
        let bytes = bytes.try_into().map_err(|_| Error::NotAKey("a public key has 32 bytes"))?;
        let key = Self(bytes);
        if key.id() != written.id {
            return Err(Error::NotAKey("a public key and its id do not belong together"));
        }
        Ok(key)
    }
}

/// The key pair that opens reports. Wiped from memory when dropped; `Debug` shows the id.
#[derive(Clone)]
pub struct KeyPair {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

impl KeyPair {
    /// Makes a new key pair.
    ///
    /// # Panics
    /// If the system has no randomness to give.
    pub fn generate() -> Self {
        Self::of(&Kem::gen_keypair().0)
    }

    /// Reads what [`Self::to_base64`] wrote; whitespace around it is passed over.
    ///
    /// # Errors
    /// [`Error::NotAKey`].
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let bytes = BASE64.decode(text.trim().as_bytes()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| Error::NotAKey("a private key is not base64"))?;
        let secret = Deserializable::from_bytes(&bytes);
        Ok(Self::of(&secret.map_err(|_| Error::NotAKey("a private key has 32 bytes"))?))
    }

    /// The private half, for a Secret.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(self.secret.as_ref()))
    }

    /// The public half, for orders.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn for_hpke(&self) -> Result<<Kem as hpke::Kem>::PrivateKey, Error> {
        Deserializable::from_bytes(self.secret.as_ref())
            .map_err(|_| Error::NotAKey("it is no private key"))
    }

    fn of(secret: &<Kem as hpke::Kem>::PrivateKey) -> Self {
        let mut pair = Self {
            secret: Zeroizing::new([0; KEY_BYTES]),
            public: PublicKey(Kem::sk_to_pk(secret).to_bytes().into()),
        };
        secret.write_exact(pair.secret.as_mut());
        pair
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.public.id())
    }
}

/// The key pairs that are still needed, looked up by id.
#[derive(Debug, Clone, Default)]
pub struct KeySet(Vec<KeyPair>);

impl KeySet {
    /// The key pair with this id.
    ///
    /// # Errors
    /// [`Error::UnknownKey`].
    pub(crate) fn get(&self, id: &str) -> Result<&KeyPair, Error> {
        let found = self.0.iter().find(|pair| pair.public.id() == id);
        found.ok_or_else(|| Error::UnknownKey(id.to_owned()))
    }
}

impl FromIterator<KeyPair> for KeySet {
    fn from_iter<I: IntoIterator<Item = KeyPair>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// Whether a text can be the id of a key.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 2 * ID_BYTES && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
