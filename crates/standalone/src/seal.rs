//! Encryption at rest, and the sources of its key.
//!
//! What is kept on disk may be copied by whoever gets at the disk: a backup, a snapshot of a volume,
//! a discarded drive. So parameters, contexts and credentials are written only sealed, with
//! AES-256-GCM (NIST SP 800-38D) under a key that is not on that disk.
//!
//! ```text
//! operator's key (file or environment) ──wraps──▶ data keys ──seal──▶ records
//! ```
//!
//! Sealed bytes are `format (1) ‖ nonce (12) ‖ ciphertext ‖ tag (16)`. The format and the caller's
//! words of context are authenticated with the content, so that sealed bytes moved to another place
//! do not open there.
//!
//! Limits: sealing says nothing about age; who can write the files can put back an older state of
//! the same place. Buffers of plaintext are wiped after use, but not the copies that an allocator
//! leaves when one grows that is not sealed where it stands, nor the expanded key schedule inside `ring`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use data_encoding::{
    BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, Encoding, HEXLOWER_PERMISSIVE,
};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

/// The length of a key, in bytes.
pub const KEY_BYTES: usize = 32;
/// How many bytes sealing adds.
pub const OVERHEAD_BYTES: usize = 1 + NONCE_LEN + 16;

const FORMAT: u8 = 1;
/// The largest file that may be a key, in bytes: more than any spelling of a key takes.
const LARGEST_KEY_FILE: u64 = 1024;

/// The place where the operator keeps the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file that only its owner (and group) can read: 32 bytes as base64, as hex, or raw.
    File(PathBuf),
    /// The name of an environment variable that holds 32 bytes as base64 or hex. It stays in the
    /// environment: whoever may read `/proc/<pid>/environ` may read it there.
    Environment(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the key file {}", path.display()),
            Self::Environment(name) => write!(f, "the key in the environment variable {name}"),
        }
    }
}

/// The error with which a key could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or variable does not exist.
    #[error(
        "{0} does not exist. Put back the key that the store was written with, or leave it out if it is one from before that is \
         not needed any more; where there is no store yet, make one with `openssl rand -base64 32` and keep a copy of it \
         elsewhere: nobody can read the store without it"
    )]
    Missing(KeySource),
    /// The file is there but cannot be read.
    #[error("{place} cannot be read: {source}")]
    Unreadable {
        /// Which.
        place: KeySource,
        /// Why.
        source: io::Error,
    },
    /// The file can be read or changed by other users.
    #[error(
        "the key file {} is open to others (mode {mode:04o}). Run: chmod 600 {}",
        path.display(), path.display()
    )]
    Exposed {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The content is not a key.
    #[error(
        "{place} is not a key: {why}. A key is 32 random bytes as base64 (44 characters) or hex \
         (64), as `openssl rand -base64 32` prints them"
    )]
    Malformed {
        /// Which.
        place: KeySource,
        /// The fault in the content.
        why: &'static str,
    },
}

impl KeySource {
    /// Reads the key.
    ///
    /// # Errors
    /// See [`KeyError`]. No error holds any part of the key.
    pub fn read(&self) -> Result<Cipher, KeyError> {
        let content = match self {
            Self::File(path) => self.read_file(path)?,
            Self::Environment(name) => {
                let value =
                    std::env::var_os(name).ok_or_else(|| KeyError::Missing(self.clone()))?;
                Zeroizing::new(value.into_encoded_bytes())
            }
        };
        let raw = matches!(self, Self::File(_));
        let key =
            parse(&content, raw).map_err(|why| KeyError::Malformed { place: self.clone(), why })?;
        Ok(Cipher::new(&key))
    }

    fn read_file(&self, path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => KeyError::Missing(self.clone()),
            _ => KeyError::Unreadable { place: self.clone(), source },
        };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mode = metadata.permissions().mode() & 0o7777;
        // A group may read: mounted secrets are often handed over that way.
        if metadata.is_file() && mode & 0o026 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut content = Zeroizing::new(Vec::with_capacity(LARGEST_KEY_FILE as usize));
        file.take(LARGEST_KEY_FILE).read_to_end(&mut content).map_err(unreadable)?;
        Ok(content)
    }
}

fn parse(content: &[u8], raw: bool) -> Result<Zeroizing<[u8; KEY_BYTES]>, &'static str> {
    if raw && content.len() == KEY_BYTES && !content.iter().all(u8::is_ascii_graphic) {
        return checked(content);
    }
    let text = content.trim_ascii();
    if text.is_empty() {
        return Err("it is empty");
    }
    let encodings: &[&Encoding] = if text.len() == 2 * KEY_BYTES {
        &[&HEXLOWER_PERMISSIVE]
    } else {
        &[&BASE64, &BASE64_NOPAD, &BASE64URL, &BASE64URL_NOPAD]
    };
    let decoded = encodings.iter().find_map(|encoding| encoding.decode(text).ok());
    match decoded.map(Zeroizing::new) {
        Some(key) if key.len() == KEY_BYTES => checked(&key),
        Some(_) => Err("it does not hold 32 bytes"),
        None => Err("it is neither base64 nor hex"),
    }
}

fn checked(key: &[u8]) -> Result<Zeroizing<[u8; KEY_BYTES]>, &'static str> {
    if key.iter().all(|byte| *byte == key[0]) {
        return Err("all its bytes are the same");
    }
    key.try_into().map(Zeroizing::new).map_err(|_| "it does not hold 32 bytes")
}

/// Sealed bytes that do not open: of another key or another place, tampered with, or damaged. Which of
/// them cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("does not open with this key: damaged, tampered with, moved, or of another key")]
pub struct NotAuthentic;

/// The system gives no random bytes; nothing can be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's source of random bytes failed")]
pub struct NoRandomness;

/// A key, ready to seal and open. Its `Debug` shows nothing of it.
///
/// Nonces are random, so that no counter has to survive a crash; 2³² messages under one key are the
/// limit for that (SP 800-38D, 8.3). Who seals much counts, and changes the key in time.
pub struct Cipher {
    key: LessSafeKey,
    random: SystemRandom,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// Makes a cipher of a key.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        // `UnboundKey::new` only refuses a wrong length, which the type excludes.
        let Ok(unbound) = UnboundKey::new(&AES_256_GCM, key) else { unreachable!() };
        Self { key: LessSafeKey::new(unbound), random: SystemRandom::new() }
    }

    /// Makes a new random key, with its bytes, to be wrapped.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn generate() -> Result<(Self, Zeroizing<[u8; KEY_BYTES]>), NoRandomness> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(&mut *key).map_err(|_| NoRandomness)?;
        Ok((Self::new(&key), key))
    }

    /// Seals `content`, bound to `context`, which must be given again to open it.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn seal(&self, context: &[u8], content: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let mut sealing = self.begin(content.len())?;
        sealing.append(content);
        sealing.end(context)
    }

    /// Begins content that is sealed in place; `room` bytes are allocated at once.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn begin(&self, room: usize) -> Result<Sealing<'_>, NoRandomness> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| NoRandomness)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room + OVERHEAD_BYTES));
        bytes.push(FORMAT);
        bytes.extend_from_slice(&nonce);
        Ok(Sealing { cipher: self, nonce, bytes })
    }

    /// Opens what [`Self::seal`] made in the same context.
    ///
    /// # Errors
    /// [`NotAuthentic`].
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotAuthentic> {
        let Some((&[FORMAT], rest)) = sealed.split_first_chunk() else { return Err(NotAuthentic) };
        let (nonce, rest) = rest.split_first_chunk().ok_or(NotAuthentic)?;
        let mut content = Zeroizing::new(rest.to_vec());
        let length = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), associated(context), &mut content)
            .map_err(|_| NotAuthentic)?
            .len();
        content.truncate(length);
        Ok(content)
    }
}

/// Content that is written and then sealed in place. If it is dropped before that, nothing of it is left in memory, nor
/// in the shorter buffers that it was in before.
pub struct Sealing<'c> {
    cipher: &'c Cipher,
    nonce: [u8; NONCE_LEN],
    bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Sealing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing")
    }
}

impl Sealing<'_> {
    fn append(&mut self, content: &[u8]) {
        let length = self.bytes.len() + content.len();
        // With room for the tag: as a Vec grows by itself, it leaves what it held behind.
        if length + MAX_TAG_LEN > self.bytes.capacity() {
            let capacity = (length + MAX_TAG_LEN).max(2 * self.bytes.capacity());
            let mut larger = Zeroizing::new(Vec::with_capacity(capacity));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(content);
    }

    /// Seals what was written, bound to `context`.
    ///
    /// # Errors
    /// [`NoRandomness`]; also if it is 64 GiB or more.
    pub fn end(mut self, context: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let tag = self
            .cipher
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(self.nonce),
                associated(context),
                &mut self.bytes[1 + NONCE_LEN..],
            )
            .map_err(|_| NoRandomness)?;
        self.bytes.extend_from_slice(tag.as_ref());
        Ok(std::mem::take(&mut *self.bytes))
    }
}

impl io::Write for Sealing<'_> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.append(content);
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn associated(context: &[u8]) -> Aad<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1 + context.len());
    bytes.push(FORMAT);
    bytes.extend_from_slice(context);
    Aad::from(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write as _;

    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
    const TEXT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn bytes() -> [u8; KEY_BYTES] {
        std::array::from_fn(|n| u8::try_from(n).unwrap())
    }

    fn key_file(content: &[u8], mode: u32) -> (tempfile::TempDir, KeySource) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, KeySource::File(path))
    }

    #[test]
    fn a_key_may_be_spelled_in_base64_in_hex_or_raw() {
        let sealed = Cipher::new(&bytes()).seal(b"here", b"content").unwrap();
        let spellings: [&[u8]; 7] = [
            TEXT.as_bytes(),
            TEXT.trim_end_matches('=').as_bytes(),
            b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
            HEX.as_bytes(),
            b"  000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\r\n",
            b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
            &bytes(),
        ];
        for content in spellings {
            let (_dir, source) = key_file(content, 0o600);
            let key = source.read().unwrap();
            assert_eq!(*key.open(b"here", &sealed).unwrap(), b"content");
        }
    }

    #[test]
    fn what_is_not_a_key_is_refused_with_the_reason_and_without_its_content() {
        for (content, expected) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("correct horse battery staple", "neither base64 nor hex"),
            ("0123456789abcdef0123456789abcdef", "does not hold 32 bytes"),
            ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", "does not hold 32 bytes"),
            ("zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "neither"),
            ("0000000000000000000000000000000000000000000000000000000000000000", "the same"),
        ] {
            let (_dir, source) = key_file(content.as_bytes(), 0o600);
            let message = source.read().unwrap_err().to_string();
            assert!(message.contains(expected), "{content:?}: {message}");
            assert!(message.contains("openssl rand -base64 32"), "{message}");
            assert!(content.trim().is_empty() || !message.contains(content.trim()), "{message}");
        }
    }

    #[test]
    fn a_key_file_that_others_can_read_or_a_group_can_change_is_refused() {
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o440, true),
            (0o644, false),
            (0o604, false),
            (0o602, false),
            (0o660, false),
        ] {
            let (_dir, source) = key_file(HEX.as_bytes(), mode);
            match source.read() {
                Ok(_) => assert!(good, "{mode:o}"),
                Err(error @ KeyError::Exposed { .. }) => {
                    assert!(!good, "{mode:o}");
                    assert!(error.to_string().contains("chmod 600"), "{error}");
                }
                Err(error) => panic!("{mode:o}: {error}"),
            }
        }
    }

    #[test]
    fn a_missing_key_says_how_to_make_one() {
        let file = KeySource::File("/nowhere/key".into()).read().unwrap_err().to_string();
        assert!(file.starts_with("the key file /nowhere/key does not exist"), "{file}");
        let name = "MANCIPLE_TEST_NO_SUCH_VARIABLE";
        let variable = KeySource::Environment(name.to_owned()).read().unwrap_err().to_string();
        assert!(variable.contains(name) && variable.contains("openssl rand"), "{variable}");
    }

    #[test]
    fn sealed_bytes_open_only_whole_in_their_place_and_with_their_key() {
        let cipher = Cipher::new(&bytes());
        let sealed = cipher.seal(b"here", b"content").unwrap();
        assert_eq!(sealed.len(), b"content".len() + OVERHEAD_BYTES);
        assert_eq!(*cipher.open(b"here", &sealed).unwrap(), b"content");

        assert_eq!(cipher.open(b"there", &sealed), Err(NotAuthentic));
        let (other, _) = Cipher::generate().unwrap();
        assert_eq!(other.open(b"here", &sealed), Err(NotAuthentic));
        for length in 0..sealed.len() {
            assert_eq!(cipher.open(b"here", &sealed[..length]), Err(NotAuthentic), "{length}");
        }
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 1;
            assert_eq!(cipher.open(b"here", &changed), Err(NotAuthentic), "{position}");
        }
    }

    #[test]
    fn what_is_written_bit_by_bit_is_sealed_whole_whatever_room_was_made() {
        let cipher = Cipher::new(&bytes());
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for room in [0, 1, 13, 999, 1000, 4096] {
            for piece in [1, 7, 500, 1000] {
                let mut sealing = cipher.begin(room).unwrap();
                content.chunks(piece).for_each(|some| sealing.write_all(some).unwrap());
                let sealed = sealing.end(b"here").unwrap();
                assert_eq!(sealed.len(), content.len() + OVERHEAD_BYTES);
                assert_eq!(*cipher.open(b"here", &sealed).unwrap(), content, "{room}, {piece}");
            }
        }
    }

    #[test]
    fn the_same_content_never_seals_to_the_same_bytes() {
        let cipher = Cipher::new(&bytes());
        let sealed: std::collections::HashSet<_> =
            (0..1000).map(|_| cipher.seal(b"", b"content").unwrap()[1..13].to_vec()).collect();
        assert_eq!(sealed.len(), 1000);
    }
}
