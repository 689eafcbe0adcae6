//! A record's version word.
//!
//! Invariant: the counter of one slot only grows, even when other records use the slot. So if two reads of a slot
//! return the same version word, the record has not changed between them. The word of a slot that was never used is
//! zero.

use std::fmt;

const ABSENT: u64 = 1 << 63;

/// The version of a record. Bit 63 means that the record is absent (deleted, or never inserted). The lower bits are
/// a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// The version of a slot that was never used.
    pub const NEVER: Version = Version(0);
    /// The version of a record that was loaded.
    pub const LOADED: Version = Version(1);

    /// Decodes a version word as it is in memory.
    #[inline]
    pub fn from_word(word: u64) -> Version {
        Version(word)
    }

    /// Returns the version word as it is in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The counter of the version, without the absent bit.
    #[inline]
    pub fn counter(self) -> u64 {
        self.0 & !ABSENT
    }

    /// Whether the slot has a record.
    #[inline]
    pub fn is_present(self) -> bool {
        self.0 & ABSENT == 0 && self.0 != 0
    }

    /// Returns a present version. The counter of the returned version is one more than the greater counter of this
    /// version and `floor`.
    #[inline]
    pub fn present_after(self, floor: Version) -> Version {
        Version(self.counter().max(floor.counter()) + 1)
    }

    /// Returns the absent version with the same counter.
    #[inline]
    #[must_use]
    pub fn absent(self) -> Version {
        Version(self.0 | ABSENT)
    }

    /// Returns an absent version whose counter is one more than the counter of this version.
    #[inline]
    pub fn absent_after(self) -> Version {
        Version((self.counter() + 1) | ABSENT)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.0 & ABSENT == 0 { "" } else { "†" };
        write!(f, "v{}{mark}", self.counter())
    }
}
