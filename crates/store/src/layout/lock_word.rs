//! A LOCK word that can hold a lock in two modes, or a lease. A writer may announce a write before it excludes
//! readers. Readers may exclude writers until a given time.
//!
//! ```text
//! 63 (zero) | 62 INTENT | 61 … 0 owner's tag          0: free
//! 63 LEASE  | 62 … 0 until when, or whose first
//! ``` Invariant: the word is changed only by CAS, so that no other transaction can take the lock from the
//! transaction that holds it by accident. A tag without INTENT is an exclusive lock. Code that knows no modes also
//! writes its tag without INTENT, so its locks are exclusive for every transaction. A lease has no owner and ends by
//! itself. No transaction releases a lease, recovery does not clear it, and the audit does not report it as a
//! leftover lock. The protocol decides which leases a writer has to wait for.
//!
//! The two modes follow the intention lock of OOCC, which does not name its owner. Without the owner's name, recovery
//! cannot identify the locks of a dead node. Without the owner's name, a transaction also cannot find out whether its
//! CAS succeeded if the CAS got no answer.

use crate::ids::OwnerTag;

const INTENT: u64 = 1 << 62;
const LEASE: u64 = 1 << 63;

/// The transactions that a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// The lock excludes other writers. A reader that finds the lock has to read again.
    Intent,
    /// The lock excludes all other transactions.
    Exclusive,
}

/// The value of a LOCK word: free, a lock with its owner and mode, or a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockWord(u64);

impl LockWord {
    /// The word of a free lock.
    pub const FREE: LockWord = LockWord(0);

    /// The word of a lock that `owner` holds.
    #[inline]
    pub fn held(owner: OwnerTag, mode: LockMode) -> LockWord {
        match mode {
            LockMode::Intent => LockWord(owner.word() | INTENT),
            LockMode::Exclusive => LockWord(owner.word()),
        }
    }

    /// Returns the word of a lease that readers hold. `says` is the contents of the lease.
    ///
    /// # Panics
    /// If `says` has more than 63 bits (a bug of Tarn).
    #[inline]
    pub fn lease(says: u64) -> LockWord {
        assert!(says < LEASE);
        LockWord(says | LEASE)
    }

    /// The contents of a lease of readers, if the word is a lease.
    #[inline]
    pub fn as_lease(self) -> Option<u64> {
        (self.0 & LEASE != 0).then_some(self.0 & !LEASE)
    }

    /// Decodes the LOCK word as it is in memory.
    #[inline]
    pub fn from_word(word: u64) -> LockWord {
        LockWord(word)
    }

    /// Returns the LOCK word as it is in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The transaction that holds the lock, if a transaction holds it.
    #[inline]
    pub fn owner(self) -> Option<OwnerTag> {
        OwnerTag::from_word(self.0 & !INTENT)
    }

    /// The mode in which the lock is held, if it is held.
    #[inline]
    pub fn mode(self) -> Option<LockMode> {
        match (self.0 & !INTENT, self.0 & INTENT) {
            (0, _) => None,
            _ if self.as_lease().is_some() => None,
            (_, 0) => Some(LockMode::Exclusive),
            _ => Some(LockMode::Intent),
        }
    }

    /// The mode in which another transaction than `me` holds the lock, if one does.
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
    fn a_lease_has_no_owner_and_binds_no_transaction_by_itself() {
        let word = LockWord::lease(tag(7).word());
        assert_eq!((word.owner(), word.mode(), word.held_against(tag(1))), (None, None, None));
        assert_eq!(word.as_lease(), Some(tag(7).word()));
        assert_eq!(LockWord::held(tag(7), LockMode::Intent).as_lease(), None);
        assert_eq!(LockWord::FREE.as_lease(), None);
    }

    #[test]
    fn both_modes_name_their_owner_and_bind_all_others() {
        for mode in [LockMode::Intent, LockMode::Exclusive] {
            let word = LockWord::from_word(LockWord::held(tag(crate::ids::COUNT_MAX), mode).word());
            assert_eq!((word.owner(), word.mode()), (Some(tag(crate::ids::COUNT_MAX)), Some(mode)));
            assert_eq!(word.held_against(tag(crate::ids::COUNT_MAX)), None);
            assert_eq!(word.held_against(tag(1)), Some(mode));
            assert_eq!(word.owner().map(OwnerTag::node), Some(tag(1).node()));
            // Recovery code that knows no modes can also read the owner from the word.
            let seen = OwnerTag::from_word(word.word()).map(OwnerTag::node);
            assert_eq!(seen, Some(tag(1).node()));
        }
        assert_eq!((LockWord::FREE.owner(), LockWord::FREE.mode()), (None, None));
        assert_eq!(LockWord::FREE.held_against(tag(1)), None);
    }
}
