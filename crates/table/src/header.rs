//! The header of a bin: one word that decides which of the bin's slots hold entries.
//!
//! ```text
//! bit 63                    32 31  30 29            15 14             0
//!    +------------------------+------+----------------+----------------+
//!    |        version         | phase|   held (15)    |  present (15)  |
//!    +------------------------+------+----------------+----------------+
//! ```
//!
//! | present | held | state of the slot |
//! |---|---|---|
//! | 0 | 0 | free |
//! | 0 | 1 | claimed: its owner writes key and value |
//! | 1 | 0 | valid: reads see the entry |
//! | 1 | 1 | shadow: a lock of the key, which reads do not see |
//!
//! Invariant: each change of a bit of `present`, and each change of the phase, adds 1 to the version. So an entry that
//! is read between two equal headers was in the bin at both of them. A claim and its release change no version,
//! because they change no entry. A word of zeros is the header of an empty bin that was never used.
//!
//! Paper: Katsarakis, Gavrielatos, Ntarmos, "DLHT: A Non-blocking Resizable Hashtable with Fast Deletes and
//! Memory-awareness", HPDC 2024. The paper gives each slot two adjacent bits. Here the bits lie in two planes, so that
//! the valid slots of a bin are `present & !held`: two instructions.

/// The slots of a bin, those of its linked lines included.
pub(crate) const SLOTS: u32 = 15;
/// The slots that lie in the bin itself.
pub(crate) const SLOTS_INLINE: u32 = 3;
/// The slots of the bin's first linked line, behind those of the bin.
pub(crate) const SLOTS_SINGLE: u32 = 4;
/// The first slot of the linked pair of lines.
pub(crate) const FIRST_OF_PAIR: u32 = SLOTS_INLINE + SLOTS_SINGLE;

const PLANE: u64 = (1 << SLOTS) - 1;
const PHASE_AT: u32 = 2 * SLOTS;
const PHASE_MASK: u64 = 0b11 << PHASE_AT;
const VERSION_ONE: u64 = 1 << 32;
/// The slots of the first linked line, as bits of a plane.
pub(crate) const SINGLE_BITS: u32 = 0b1111 << SLOTS_INLINE;
/// The slots of the linked pair of lines, as bits of a plane.
pub(crate) const PAIR_BITS: u32 = 0xff << FIRST_OF_PAIR;

/// The state of a bin with regard to growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The bin's entries are here.
    Open,
    /// One thread copies the bin's entries. Reads continue; the entries cannot change.
    Moving,
    /// The bin's entries are in the next index.
    Moved,
}

/// A value of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) u64);

impl Header {
    /// Returns the header of a bin whose entries are in the next index. It shows no slot, so that a read finds no
    /// entry and looks at the phase only then.
    pub(crate) fn moved(self) -> Self {
        Self((self.0 & !(PHASE_MASK | PLANE | PLANE << SLOTS)) | 2 << PHASE_AT).next_version()
    }

    /// Returns the header of the same bin while a thread copies its entries.
    pub(crate) fn moving(self) -> Self {
        Self(self.0 & !PHASE_MASK | 1 << PHASE_AT).next_version()
    }

    #[inline]
    pub(crate) fn phase(self) -> Phase {
        match (self.0 & PHASE_MASK) >> PHASE_AT {
            0 => Phase::Open,
            1 => Phase::Moving,
            _ => Phase::Moved,
        }
    }

    /// Returns the slots whose entries reads see.
    #[inline]
    pub(crate) fn valid(self) -> u32 {
        (self.0 & !(self.0 >> SLOTS) & PLANE) as u32
    }

    /// Returns the slots with an entry or a lock.
    #[inline]
    pub(crate) fn present(self) -> u32 {
        (self.0 & PLANE) as u32
    }

    /// Returns the slots with a lock of a key.
    #[inline]
    pub(crate) fn shadows(self) -> u32 {
        (self.0 & (self.0 >> SLOTS) & PLANE) as u32
    }

    /// Returns the slots that are not free.
    #[inline]
    pub(crate) fn taken(self) -> u32 {
        ((self.0 | self.0 >> SLOTS) & PLANE) as u32
    }

    /// Returns the first free slot.
    #[inline]
    pub(crate) fn free_slot(self) -> Option<u32> {
        let slot = (!self.taken()).trailing_zeros();
        (slot < SLOTS).then_some(slot)
    }

    /// Returns whether the bin is open, and has no claim, no lock, and no entry in a linked line.
    #[inline]
    pub(crate) fn is_simple(self) -> bool {
        let linked = u64::from(SINGLE_BITS | PAIR_BITS);
        self.0 & (PHASE_MASK | PLANE << SLOTS | linked) == 0
    }

    /// Returns whether the slot is claimed, and has no entry.
    pub(crate) fn is_claimed(self, slot: u32) -> bool {
        let held = self.0 >> SLOTS;
        (held & !self.0) >> slot & 1 == 1
    }

    /// Claims free slots, given as bits.
    #[inline]
    pub(crate) fn with_claims(self, slots: u32) -> Self {
        debug_assert_eq!(self.taken() & slots, 0);
        Self(self.0 | u64::from(slots) << SLOTS)
    }

    /// Frees claimed slots, given as bits.
    #[inline]
    pub(crate) fn without_claims(self, slots: u32) -> Self {
        debug_assert_eq!(self.present() & slots, 0);
        Self(self.0 & !(u64::from(slots) << SLOTS))
    }

    /// Turns the claimed slot into an entry, and frees the slots of `replaced`: one step for an insertion, a
    /// replacement, or the commit of a locked key.
    #[inline]
    pub(crate) fn confirmed(self, slot: u32, replaced: u32) -> Self {
        debug_assert!(self.is_claimed(slot));
        self.without(replaced).without_claims(1 << slot).with_present(1 << slot)
    }

    /// Turns the claimed slot into a lock of its key.
    pub(crate) fn confirmed_as_shadow(self, slot: u32) -> Self {
        debug_assert!(self.is_claimed(slot));
        self.with_present(1 << slot).next_version()
    }

    /// Frees slots with entries or locks, given as bits. The version grows, even if `slots` is empty.
    #[inline]
    pub(crate) fn without(self, slots: u32) -> Self {
        debug_assert_eq!(self.present() & slots, slots);
        let bits = u64::from(slots);
        Self(self.0 & !(bits | bits << SLOTS)).next_version()
    }

    /// Returns the header with slots that show entries, without a change of the version.
    #[inline]
    fn with_present(self, slots: u32) -> Self {
        Self(self.0 | u64::from(slots))
    }

    /// Returns the header of a bin that a growth has filled: `present` and `shadows` are slots as bits.
    pub(crate) fn filled(present: u32, shadows: u32) -> Self {
        Self(u64::from(present) | u64::from(shadows) << SLOTS).next_version()
    }

    #[inline]
    fn next_version(self) -> Self {
        Self(self.0.wrapping_add(VERSION_ONE))
    }

    /// Returns whether both headers have the same entries in the same slots, and the same phase.
    #[inline]
    pub(crate) fn same_entries(self, other: Self) -> bool {
        (self.0 ^ other.0) >> PHASE_AT == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_passes_through_its_states() {
        let empty = Header(0);
        assert_eq!((empty.phase(), empty.free_slot()), (Phase::Open, Some(0)));
        assert!(empty.is_simple() && Header(0b111).is_simple() && !Header(0b1000).is_simple());
        assert!(!empty.moving().is_simple() && !empty.moved().is_simple());
        let claimed = empty.with_claims(1);
        assert!(claimed.is_claimed(0) && claimed.same_entries(empty) && !claimed.is_simple());
        assert_eq!((claimed.valid(), claimed.free_slot()), (0, Some(1)));
        let valid = claimed.confirmed(0, 0);
        assert!(!valid.same_entries(claimed) && !valid.is_claimed(0));
        assert_eq!((valid.valid(), valid.present(), valid.shadows()), (1, 1, 0));
        let replaced = valid.with_claims(2).confirmed(1, 1);
        assert_eq!((replaced.valid(), replaced.taken()), (2, 2));
        let locked = replaced.with_claims(1).confirmed_as_shadow(0);
        assert_eq!((locked.valid(), locked.present(), locked.shadows()), (2, 3, 1));
        assert!(valid.is_simple() && !locked.is_simple());
        assert_eq!(locked.without(1).taken(), 2);
    }

    #[test]
    fn a_full_bin_has_no_free_slot() {
        let full = Header(0).with_claims((1 << SLOTS) - 1);
        assert_eq!((full.free_slot(), full.phase()), (None, Phase::Open));
        assert_eq!(SINGLE_BITS | PAIR_BITS | 0b111, full.taken());
    }

    #[test]
    fn a_moved_bin_shows_no_slot() {
        let bin = Header(0).with_claims(5).confirmed(0, 0);
        let moving = bin.moving();
        assert_eq!((moving.phase(), moving.valid()), (Phase::Moving, 1));
        let moved = moving.moved();
        assert_eq!((moved.phase(), moved.taken()), (Phase::Moved, 0));
        assert!(!moved.same_entries(moving) && !moving.same_entries(bin));
    }

    #[test]
    fn the_version_wraps_without_touching_the_rest() {
        let last = Header(u64::from(u32::MAX) << 32).with_claims(1);
        let next = last.confirmed(0, 0);
        assert_eq!((next.0 >> 32, next.valid(), next.phase()), (0, 1, Phase::Open));
    }
}
