//! Fingerprints: one line tells which of a bucket's own slots are free, and which keys these slots may hold.
//!
//! ```text
//! directory record | LOCK | VERSION | STAMP | PRINTS: one byte a slot, 0 for free | DEPTH | NEXT |
//! ```
//! Invariant: PRINTS are true of the bucket's own slots if STAMP equals VERSION, and are void otherwise. Slots change
//! between used and free only under the directory's lock and with a new VERSION. VERSION never decreases, and writers
//! write STAMP, PRINTS and VERSION together in one line. So if code changes slots without updating fingerprints (a
//! split, an undo), the new VERSION makes the fingerprints void. Only a writer that has read all slots of the bucket
//! may write valid fingerprints again. A bucket of zeros has valid fingerprints. The loader writes fingerprints under
//! VERSION 0. See docs/design/0015-fingerprints.md.

use super::locate::hash_of;
use crate::layout::{
    DIRECTORY_BYTES, DIRECTORY_NEXT_AT, DIRECTORY_PRINTS_AT, DIRECTORY_STAMP_AT, Geometry, KEY_AT,
    RecordLayout, VERSION_AT, Version,
};
use crate::placement::catalog::Table;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};

/// The number of bytes from VERSION to the end of PRINTS. A writer writes these bytes together.
pub const STAMPED_BYTES: usize = DIRECTORY_PRINTS_AT + 8 - VERSION_AT;

/// The position of a fingerprint's bits in the hash: above the bits of the bin, and below the bits that choose the
/// bucket.
const PRINT_SHIFT: u32 = 34;

/// Fingerprints of a bucket's own slots, or [`Prints::UNKNOWN`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Prints(u64);

/// A fingerprint value that no key has.
const NO_PRINT: u8 = u8::MAX;

/// The fingerprint of a key. In tables of up to 2^22 buckets, no other function uses the hash bits of the
/// fingerprint. A fingerprint is neither 0 nor [`NO_PRINT`].
#[inline]
fn print_of(hash: u64) -> u8 {
    ((hash >> PRINT_SHIFT) as u8).clamp(1, NO_PRINT - 1)
}

impl Prints {
    /// The value for fingerprints that are not known. Writers do not write unknown fingerprints to memory.
    pub const UNKNOWN: Prints = Prints(u64::from_le_bytes([NO_PRINT; 8]));

    /// Whether the buckets of this table have fingerprints. Buckets of records with several versions have none,
    /// because inserts of such records do not write the directory record.
    #[inline]
    pub fn apply(table: &Table) -> bool {
        table.schema.fingerprinted
            && table.geometry.slots == Geometry::BIN_SLOTS
            && table.slot.record == RecordLayout::InPlace
    }

    /// The fingerprints in an image of a directory record, if they are valid.
    #[inline]
    pub fn read(round: &Round, image: BufferOffset) -> Option<Prints> {
        let [version, stamp, prints] = *round.array(image.plus(VERSION_AT));
        (version == stamp).then_some(Prints(prints))
    }

    /// Computes the fingerprints of the slots in a bucket's image.
    pub fn of_slots(table: &Table, round: &Round, bucket: BufferOffset) -> Prints {
        let mut prints = Prints::default();
        for slot in 0..Geometry::BIN_SLOTS {
            let image = bucket.plus(DIRECTORY_BYTES + slot * table.slot.slot_bytes);
            if Version::from_word(round.word(image.plus(VERSION_AT))).is_present() {
                let hash = hash_of(table, round.word(image.plus(KEY_AT)));
                prints = prints.with(slot, print_of(hash));
            }
        }
        prints
    }

    /// Returns the fingerprints as the word that a directory record holds.
    pub fn word(self) -> u64 {
        self.0
    }

    fn with(self, slot: usize, print: u8) -> Prints {
        let shift = slot * 8;
        Prints(self.0 & !(0xff << shift) | u64::from(print) << shift)
    }

    /// Whether the key with this hash may be in one of the bucket's own slots.
    #[inline]
    pub fn may_hold(self, hash: u64) -> bool {
        self.0.to_le_bytes().contains(&print_of(hash))
    }

    /// Returns the number of a free slot. If the bin `bin` has a free slot, the function returns a slot of that bin.
    #[inline]
    pub fn free(self, bin: u8) -> Option<usize> {
        let bytes = self.0.to_le_bytes();
        let home = usize::from(bin) * Geometry::SLOTS_PER_BIN;
        let mut at_home = home..home + Geometry::SLOTS_PER_BIN;
        at_home.find(|&slot| bytes[slot] == 0).or_else(|| bytes.iter().position(|&it| it == 0))
    }

    /// Returns the fingerprints after a change of `slot`. The change is that `slot` has received the key with this
    /// hash, or that `slot` has become free (`None`). Slots of overflow blocks have no fingerprints.
    pub fn changed(
        self,
        table: &Table,
        (bucket, slot): (Address, Address),
        hash: Option<u64>,
    ) -> Prints {
        if self == Prints::UNKNOWN || !table.geometry.contains(bucket, slot) {
            return self;
        }
        let into = (slot.to_word() - bucket.to_word()) as usize - DIRECTORY_BYTES;
        self.with(into / table.slot.slot_bytes, hash.map_or(0, print_of))
    }
}

/// Returns the fingerprint byte that a loader must set for a loaded record: the byte's address and its value. Returns
/// `None` for slots of overflow blocks.
pub fn loaded_print(
    table: &Table,
    slot: Address,
    (bucket, hash): (Address, u64),
) -> Option<(Address, u8)> {
    if !Prints::apply(table) || !table.geometry.contains(bucket, slot) {
        return None;
    }
    let into = (slot.to_word() - bucket.to_word()) as usize - DIRECTORY_BYTES;
    let at = DIRECTORY_PRINTS_AT + into / table.slot.slot_bytes;
    Some((bucket.plus(at), print_of(hash)))
}

/// Whether valid fingerprints disagree with the slots of a bucket's image. The audit calls this function.
pub fn are_wrong(table: &Table, round: &Round, bucket: BufferOffset) -> bool {
    let said = Prints::read(round, bucket).filter(|_| Prints::apply(table));
    said.is_some_and(|said| said != Prints::of_slots(table, round, bucket))
}

/// If a directory record's fingerprints are void, returns the begin and end offsets of the words that then have no
/// meaning.
pub fn void_words(round: &Round, image: BufferOffset) -> Option<(usize, usize)> {
    Prints::read(round, image).is_none().then_some((DIRECTORY_STAMP_AT, DIRECTORY_PRINTS_AT + 8))
}

/// Returns a free slot for a new key with this hash and bin. `slot_for_new` returns a slot only if the directory
/// record alone proves that the bucket has a free slot and does not have the key. The proof needs valid fingerprints,
/// and a bucket without an overflow chain.
pub fn slot_for_new(round: &Round, image: BufferOffset, (hash, bin): (u64, u8)) -> Option<usize> {
    let has_chain = round.word(image.plus(DIRECTORY_NEXT_AT)) != 0;
    let prints = Prints::read(round, image).filter(|_| !has_chain)?;
    if prints.may_hold(hash) { None } else { prints.free(bin) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LOCK_AT;
    use crate::placement::catalog::{Catalog, Options};
    use crate::schema::{ColumnType, TableSchema};
    use tarn_fabric::address::GroupId;

    fn table() -> Table {
        let schema = TableSchema::new("t", 100).column("a", ColumnType::U64).fingerprinted();
        let catalog = Catalog::plan(&[schema], &Options::default(), 1).expect("a plan");
        catalog.tables()[0].clone()
    }

    #[test]
    fn a_slot_s_fingerprint_comes_and_goes_and_a_chain_has_none() {
        let (table, bucket) = (table(), Address::new(GroupId(0), 1 << 20));
        let slot = |index: usize| bucket.plus(DIRECTORY_BYTES + index * table.slot.slot_bytes);
        let hash = hash_of(&table, 7);
        let empty = Prints::default();
        assert!(!empty.may_hold(hash));
        let one = empty.changed(&table, (bucket, slot(5)), Some(hash));
        assert!(one.may_hold(hash) && one != empty);
        assert_eq!((one.free(2), one.free(3)), (Some(4), Some(6)));
        assert_eq!(one.changed(&table, (bucket, slot(5)), None), empty);
        let chain = bucket.plus(table.geometry.bucket_bytes + DIRECTORY_BYTES);
        assert_eq!(one.changed(&table, (bucket, chain), Some(hash)), one);
        let full =
            (0..8).fold(empty, |all, it| all.changed(&table, (bucket, slot(it)), Some(hash)));
        assert_eq!(full.free(0), None);
        assert_eq!(Prints::UNKNOWN.changed(&table, (bucket, slot(5)), Some(hash)), Prints::UNKNOWN);
        assert!((0..=u8::MAX).all(|it| {
            let print = print_of(u64::from(it) << PRINT_SHIFT);
            print != 0 && print != NO_PRINT
        }));
    }

    #[test]
    fn only_fingerprints_under_their_own_version_are_believed_and_the_audit_tells_wrong_ones() {
        let table = table();
        let mut round = Round::new();
        let image = round.reserve_lines(table.geometry.bucket_bytes);
        round.bytes_mut(image, table.geometry.bucket_bytes).fill(0);
        assert_eq!(Prints::read(&round, image), Some(Prints::default()));
        assert!(!are_wrong(&table, &round, image));
        // The bucket has this record, but the fingerprints do not contain its key.
        let slot = image.plus(DIRECTORY_BYTES + 3 * table.slot.slot_bytes);
        round.set_word(slot.plus(LOCK_AT), 0);
        round.set_word(slot.plus(VERSION_AT), Version::LOADED.word());
        round.set_word(slot.plus(KEY_AT), 7);
        assert!(are_wrong(&table, &round, image));
        let truth = Prints::of_slots(&table, &round, image);
        assert!(truth.may_hold(hash_of(&table, 7)) && truth.free(1) == Some(2));
        // Void fingerprints are not an error, because no lookup trusts them.
        round.set_word(image.plus(VERSION_AT), 9);
        assert_eq!(Prints::read(&round, image), None);
        assert!(!are_wrong(&table, &round, image) && void_words(&round, image).is_some());
        round.set_word(image.plus(DIRECTORY_STAMP_AT), 9);
        assert!(are_wrong(&table, &round, image));
        round.set_word(image.plus(DIRECTORY_PRINTS_AT), truth.word());
        assert!(!are_wrong(&table, &round, image));
    }
}
