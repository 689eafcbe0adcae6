//! The shape of an index bucket: the number and size of its slots, and the part of the bucket that a lookup reads.
//!
//! Invariant: a bucket has room for every key's bin, and one verb reads the whole bucket. The default shape of a
//! bucket is Tarn's own. Published systems use other shapes. The size of the part that a lookup reads decides how
//! fast a published system is. FORD reads a bucket of 22 records, then the blocks of the bucket's chain (see
//! docs/protocols/ford.md).

use super::{DIRECTORY_BYTES, Geometry, LayoutKind, Slot};
use crate::ids::UsageError;
use crate::schema::TableSchema;
use serde::{Deserialize, Serialize};
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::round::VERB_BYTES_MAX;

const SLOTS_MIN: u32 = Geometry::BIN_SLOTS as u32;
const SLOTS_MAX: u32 = 64;

/// The shape of an index bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BucketShape {
    /// The number of slots of a bucket, and of each block of its chain.
    pub slots: u32,
    /// The minimum size of a slot.
    pub slot_bytes_min: u32,
    /// If true, a lookup reads the whole bucket by one READ, then the blocks of the bucket's chain, one by one. If
    /// false, it reads the key's bin first.
    pub read_whole: bool,
}

impl Default for BucketShape {
    fn default() -> BucketShape {
        BucketShape { slots: SLOTS_MIN, slot_bytes_min: 0, read_whole: false }
    }
}

impl BucketShape {
    /// Returns the slot for rows of `schema` in the layout `layout`.
    pub fn slot(&self, layout: LayoutKind, schema: &TableSchema) -> Slot {
        layout.slot(schema).shaped(self.slot_bytes_min as usize, self.read_whole)
    }

    /// The size in bytes of a bucket of this shape with slots like `slot`.
    pub fn bucket_bytes(&self, slot: &Slot) -> usize {
        DIRECTORY_BYTES + self.slots as usize * slot.slot_bytes
    }

    /// Checks that tables of these schemas can have buckets of this shape.
    ///
    /// # Errors
    /// The error names the field that is not possible, its value, and the allowed values.
    pub fn validate(&self, layout: LayoutKind, schemas: &[TableSchema]) -> Result<(), UsageError> {
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&self.slots) {
            return Err(UsageError {
                field: "bucket_slots".into(),
                value: self.slots.to_string(),
                allowed: format!("{SLOTS_MIN} to {SLOTS_MAX}"),
            });
        }
        let room = (VERB_BYTES_MAX - DIRECTORY_BYTES) / self.slots as usize;
        let most = room / LINE_BYTES * LINE_BYTES;
        let needed = schemas.iter().map(|schema| layout.slot(schema).slot_bytes).max();
        let asked = needed.unwrap_or_default().max(self.slot_bytes_min as usize);
        if asked <= most {
            return Ok(());
        }
        Err(UsageError {
            field: "slot_bytes".into(),
            value: asked.to_string(),
            allowed: format!("at most {most} with {} slots in a bucket", self.slots),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;

    fn schema() -> TableSchema {
        TableSchema::new("t", 1).column("c", ColumnType::U64)
    }

    #[test]
    fn the_default_is_a_bucket_of_four_bins() {
        let shape = BucketShape::default();
        let slot = shape.slot(LayoutKind::SingleVersion, &schema());
        assert_eq!(shape.bucket_bytes(&slot), 64 + 8 * 32);
        assert!(shape.validate(LayoutKind::SingleVersion, &[schema()]).is_ok());
    }

    #[test]
    fn an_impossible_bucket_names_the_field() {
        let validate = |shape: BucketShape| shape.validate(LayoutKind::SingleVersion, &[schema()]);
        let error = |shape: BucketShape| validate(shape).expect_err("refused").to_string();
        let shape = BucketShape::default();
        assert!(error(BucketShape { slots: 7, ..shape }).contains("bucket_slots = 7"));
        assert!(error(BucketShape { slots: 65, ..shape }).contains("8 to 64"));
        let wide = BucketShape { slots: 64, slot_bytes_min: 4096, read_whole: true };
        assert!(error(wide).contains("slot_bytes = 4096"));
        let most = BucketShape { slot_bytes_min: 448, ..wide };
        assert!(validate(most).is_ok());
    }
}
