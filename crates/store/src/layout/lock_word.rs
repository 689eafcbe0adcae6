//! A LOCK word that may say "I am going to write" before it keeps readers away, or until when readers keep writers away.
//!
//! ```text
//! 63 (zero) | 62 INTENT | 61 … 0 owner's tag          0: free
//! 63 LEASE  | 62 … 0 until when, or whose first
//! ```
//! Invariant: changed by CAS alone, so that it is never taken from whoever holds it. A tag without INTENT is exclusive,
//! and so is every lock that knows no modes: what shared code takes means the same to everybody. A lease has no owner, and ends
//! by itself: it is nothing to give back, to sweep or to find left over. Which leases a writer has to wait out is the protocol's.
//!
//! After the intention lock of OOCC, which there is not its owner's: nobody can tell whose a lock is that the
//! dead have left, nor whether a CAS was his own of which no answer came.

use crate::ids::OwnerTag;

const INTENT: u64 = 1 << 62;
const LEASE: u64 = 1 << 63;

/// What a lock keeps away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// Other writers: who reads has to look again.
    Intent,
    /// Everybody.
    Exclusive,
}

/// A LOCK word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockWord(u64);

impl LockWord {
    /// Nobody's.
    pub const FREE: LockWord = LockWord(0);

    /// Held by `owner`.
    #[inline]
    pub fn held(owner: OwnerTag, mode: LockMode) -> LockWord {
        match mode {
            LockMode::Intent => LockWord(owner.word() | INTENT),
            LockMode::Exclusive => LockWord(owner.word()),
        }
    }

    /// A lease of readers, of which `says` tells more.
    ///
    /// # Panics
    /// If `says` has more than 63 bits: our bug.
    #[inline]
    pub fn lease(says: u64) -> LockWord {
        assert!(says < LEASE);
        LockWord(says | LEASE)
    }

    /// What a lease of readers says, if it is one.
    #[inline]
    pub fn as_lease(self) -> Option<u64> {
        (self.0 & LEASE != 0).then_some(self.0 & !LEASE)
    }

    /// From the word in memory.
    #[inline]
    pub fn from_word(word: u64) -> LockWord {
        LockWord(word)
    }

    /// As in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Who holds it.
    #[inline]
    pub fn owner(self) -> Option<OwnerTag> {
        OwnerTag::from_word(self.0 & !INTENT)
    }

    /// How it is held, if it is.
    #[inline]
    pub fn mode(self) -> Option<LockMode> {
        match (self.0 & !INTENT, self.0 & INTENT) {
            (0, _) => None,
            _ if self.as_lease().is_some() => None,
            (_, 0) => Some(LockMode::Exclusive),
            _ => Some(LockMode::Intent),
        }
    }

    /// How somebody else than `me` holds it, if one does.
    #[inline]
    pub fn held_against(self, me: OwnerTag) -> Option<LockMode> {
        self.mode().filter(|_| self.0 & !INTENT != me.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    fn tag(count: u64) -> OwnerTag {
        let node = NodeId { slot: NodeSlot(1023), incarnation: Incarnation(4095) };
        OwnerTag::new(node, 63, count)
    }

    #[test]
    fn an_exclusive_lock_is_its_owner_s_tag() {
        let word = LockWord::held(tag(7), LockMode::Exclusive);
        assert_eq!(word.word(), tag(7).word());
        assert_eq!(LockWord::from_word(tag(7).word()).mode(), Some(LockMode::Exclusive));
    }

    #[test]
    fn a_lease_is_nobody_s_and_binds_nobody_by_itself() {
        let word = LockWord::lease(tag(7).word());
        assert_eq!((word.owner(), word.mode(), word.held_against(tag(1))), (None, None, None));
        assert_eq!(word.as_lease(), Some(tag(7).word()));
        assert_eq!(LockWord::held(tag(7), LockMode::Intent).as_lease(), None);
        assert_eq!(LockWord::FREE.as_lease(), None);
    }

    #[test]
    fn both_modes_name_their_owner_and_bind_everybody_else() {
        for mode in [LockMode::Intent, LockMode::Exclusive] {
            let word = LockWord::from_word(LockWord::held(tag(crate::ids::COUNT_MAX), mode).word());
            assert_eq!((word.owner(), word.mode()), (Some(tag(crate::ids::COUNT_MAX)), Some(mode)));
            assert_eq!(word.held_against(tag(crate::ids::COUNT_MAX)), None);
            assert_eq!(word.held_against(tag(1)), Some(mode));
            assert_eq!(word.owner().map(OwnerTag::node), Some(tag(1).node()));
            // Sweeps that know no modes see whose it is, too.
            let seen = OwnerTag::from_word(word.word()).map(OwnerTag::node);
            assert_eq!(seen, Some(tag(1).node()));
        }
        assert_eq!((LockWord::FREE.owner(), LockWord::FREE.mode()), (None, None));
        assert_eq!(LockWord::FREE.held_against(tag(1)), None);
    }
}
