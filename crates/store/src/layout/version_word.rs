//! The word that contains the commit time of a version, or a mark that the version is not committed yet.
//!
//! ```text
//! 63 INVISIBLE | 62 DELETED | 61 ................ 0
//! visible: T_commit          invisible: T_lb, a lower bound of T_commit
//! ```
//! Invariant: T_commit is above T_lb, and no version has the commit time 0. Only packed records use the DELETED bit.
//! A cell stores its deletion mark in its address word. The word follows Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS:
//! Optimizing Disaggregated Transactions with Disaggregated Locks". In LOTUS, invisible versions contain no time; the
//! lower bound is Tarn's own.

use crate::ids::Timestamp;
use std::fmt;

const INVISIBLE: u64 = 1 << 63;
const DELETED: u64 = 1 << 62;

const _: () = assert!(Timestamp::MAX.0 == DELETED - 1);

/// The commit time of a version, or a lower bound of the commit time with the mark INVISIBLE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct VersionWord(u64);

impl VersionWord {
    /// The word of a place that never had a version.
    pub const FRESH: VersionWord = VersionWord(0);
    /// The word of a place that had a version and has none now. Only packed records use this word, because they keep
    /// no other data of the former version.
    pub const VACATED: VersionWord = VersionWord(DELETED);

    /// Returns the word of a version that was committed at `at`.
    #[inline]
    pub fn committed(at: Timestamp) -> VersionWord {
        debug_assert!(at.0 != 0, "0 is no version's");
        debug_assert!(at <= Timestamp::MAX, "timestamps have 62 bits");
        VersionWord(at.0)
    }

    /// The word of a version that may be committed later, with a commit time above `lower_bound`.
    #[inline]
    pub fn invisible(lower_bound: Timestamp) -> VersionWord {
        debug_assert!(lower_bound <= Timestamp::MAX, "timestamps have 62 bits");
        VersionWord(lower_bound.0 | INVISIBLE)
    }

    /// Returns the same word, for a version that says "deleted".
    #[inline]
    #[must_use]
    pub fn deleted(self) -> VersionWord {
        VersionWord(self.0 | DELETED)
    }

    /// Decodes the word of a version as it is in memory.
    #[inline]
    pub fn from_word(word: u64) -> VersionWord {
        VersionWord(word)
    }

    /// Returns the word of the version as it is in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// T_commit of a committed version, or T_lb of an invisible version. The result is 0 if the place has no
    /// version.
    #[inline]
    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.0 & Timestamp::MAX.0)
    }

    /// Whether the place has a version that is not committed yet.
    #[inline]
    pub fn is_invisible(self) -> bool {
        self.0 & INVISIBLE != 0
    }

    /// Whether the version says "deleted".
    #[inline]
    pub fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// Whether the place has no version.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 & !DELETED == 0
    }

    /// Whether the place has a committed version.
    #[inline]
    pub fn is_committed(self) -> bool {
        !self.is_invisible() && !self.is_empty()
    }
}

impl fmt::Debug for VersionWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deleted = if self.is_deleted() { "†" } else { "" };
        match self.is_invisible() {
            true => write!(f, "invisible >{}{deleted}", self.timestamp().0),
            false => write!(f, "t{}{deleted}", self.timestamp().0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_word_says_whether_and_when_it_is_visible() {
        let committed = VersionWord::committed(Timestamp::MAX);
        assert_eq!(committed.timestamp(), Timestamp::MAX);
        assert!(committed.is_committed() && !committed.is_deleted() && !committed.is_invisible());
        let gone = VersionWord::committed(Timestamp(7)).deleted();
        assert!(gone.is_committed() && gone.is_deleted() && gone.timestamp() == Timestamp(7));
        let coming = VersionWord::invisible(Timestamp(0));
        assert!(coming.is_invisible() && !coming.is_empty() && !coming.is_committed());
        assert!(VersionWord::FRESH.is_empty() && VersionWord::VACATED.is_empty());
        assert_ne!(VersionWord::FRESH, VersionWord::VACATED);
        assert_eq!(VersionWord::from_word(gone.word()), gone);
    }
}
