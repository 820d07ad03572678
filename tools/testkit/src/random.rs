//! Random numbers that a seed decides.

/// A generator that is the same everywhere: xorshift64*.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number from zero up to, and not, `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    /// True `times` times out of a thousand.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// A generator of its own for a part: what another part draws does not change what this one does.
    #[must_use]
    pub fn part(&self, name: u64) -> Self {
        Self::new(self.0.rotate_left(17) ^ name)
    }
}
