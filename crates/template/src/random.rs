//! Sources of randomness for generated values.

use ring::rand::SecureRandom as _;

/// The error where the operating system has no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness;

/// A source of random bytes.
pub trait Random {
    /// Fills all bytes.
    ///
    /// # Errors
    ///
    /// If there are no random bytes: then nothing is generated.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness>;
}

/// The operating system's random bytes, for passwords.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        ring::rand::SystemRandom::new().fill(bytes).map_err(|_| NoRandomness)
    }
}

/// Zeros instead of random bytes: only for comparisons, in which a generated password is no difference.
#[derive(Debug, Clone, Copy, Default)]
pub struct Zeros;

impl Random for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        bytes.fill(0);
        Ok(())
    }
}

/// The same bytes each time, only for tests: anybody who knows the seed knows them all.
#[derive(Debug, Clone, Copy)]
pub struct Seeded(pub u64);

impl Random for Seeded {
    /// Fills by SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Chooses `count` characters of an alphabet, all equally likely.
pub(crate) fn choose(
    random: &mut dyn Random,
    alphabet: &[u8],
    count: usize,
) -> Result<String, NoRandomness> {
    let mut chosen = String::with_capacity(count);
    let mut bytes = [0; 64];
    // Beyond the last whole multiple some characters would be likelier than others.
    let fair = 256 - 256 % alphabet.len().max(1);
    while chosen.len() < count && !alphabet.is_empty() {
        random.fill(&mut bytes)?;
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        let left = count - chosen.len();
        chosen.extend(fair.take(left).map(|byte| char::from(alphabet[byte % alphabet.len()])));
    }
    Ok(chosen)
}
