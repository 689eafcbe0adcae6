//! The place of a table's index in each replica group, and the numbers and sizes of its buckets.
//!
//! Invariant: every compute node computes the same geometry, since it depends only on the plan
//! ([`crate::placement::catalog`]). Later growth is recorded in the index header, and this file also defines that
//! header's layout.

use super::{LINED_ROW_AT, LINED_WRITER_AT, LVER_BYTES};
use tarn_fabric::address::{Address, GroupId, LINE_BYTES};

/// The maximum number of times that the number of a table's buckets may double in one group.
pub const SEGMENTS_MAX: usize = 16;

/// The place of a table's index; see [`crate::placement::catalog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// A number that makes the hashes of different tables differ.
    pub salt: u64,
    /// The number of buckets of the first segment in each group.
    pub buckets: u64,
    /// The number of slots of a bucket.
    pub slots: usize,
    /// The size of a bucket.
    pub bucket_bytes: usize,
    /// The size of a bin.
    pub bin_bytes: usize,
    /// The offset of the index header in each group.
    pub header_at: u64,
    /// The offset of the first segment in each group.
    pub first_segment_at: u64,
}

impl Geometry {
    /// The number of bins of a bucket.
    pub const BINS: usize = 4;
    /// The number of slots of a bin.
    pub const SLOTS_PER_BIN: usize = 2;
    /// The number of slots of all bins. A bucket has at least this number of slots, and may have more slots behind
    /// its bins.
    pub const BIN_SLOTS: usize = Geometry::BINS * Geometry::SLOTS_PER_BIN;
    /// The number of bytes of an index header: LOCK, VERSION, STATE, WRITER, then the addresses of the later
    /// segments. Each line of the header after the first begins with a version. WRITER and the versions of lines are
    /// used only in layouts whose records have these fields ([`crate::layout::Lined`]). In other layouts, these
    /// fields are 0.
    pub const HEADER_BYTES: usize = 192;
    /// The offset of STATE in the index header.
    pub const STATE_AT: usize = 16;
    /// The offset of the first later segment's address in the index header.
    const SEGMENTS_AT: usize = LINED_ROW_AT;

    /// The offset of a later segment's address in the index header. The first later segment has number 0.
    pub const fn segment_at(segment: usize) -> usize {
        const FIRST: usize = (LINE_BYTES - Geometry::SEGMENTS_AT) / 8;
        const LATER: usize = (LINE_BYTES - LVER_BYTES) / 8;
        if segment < FIRST {
            return Geometry::SEGMENTS_AT + segment * 8;
        }
        let (line, within) = ((segment - FIRST) / LATER, (segment - FIRST) % LATER);
        (line + 1) * LINE_BYTES + LVER_BYTES + within * 8
    }

    /// Whether a slot lies in the bucket itself and not in an overflow block.
    pub fn contains(&self, bucket: Address, slot: Address) -> bool {
        let start = bucket.to_word();
        (start..start + self.bucket_bytes as u64).contains(&slot.to_word())
    }

    /// The address of the table's index header in one group.
    pub fn header(&self, group: GroupId) -> Address {
        Address::new(group, self.header_at)
    }
}

const _: () = assert!(Geometry::segment_at(SEGMENTS_MAX - 1) + 8 <= Geometry::HEADER_BYTES);
const _: () = assert!(Geometry::STATE_AT + 8 == LINED_WRITER_AT);
const _: () = assert!(Geometry::HEADER_BYTES.is_multiple_of(LINE_BYTES));
