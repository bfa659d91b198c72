//! One hash for all indexes: of bytes, with the table's seed.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

#[derive(Clone, Debug)]
pub(crate) struct KeyHash(FixedState);

impl KeyHash {
    pub(crate) fn new(seed: u64) -> KeyHash {
        KeyHash(FixedState::with_seed(seed))
    }

    /// The bytes alone, without the length that hashing a slice would add: each index hashes one
    /// kind of key, and compares keys anyway.
    pub(crate) fn of(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }

    /// For maps that own their keys.
    pub(crate) fn state(&self) -> FixedState {
        self.0.clone()
    }
}
