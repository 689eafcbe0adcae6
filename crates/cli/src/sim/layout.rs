//! The flags of `tarn sim` that define the shape of the index.
//!
//! Invariant: if the user gives none of these flags, the layout is the engine's own layout.

use crate::scenario::whole;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Options;

/// The flags that define the shape of the index; see the module's documentation.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct LayoutFlags {
    /// Number of slots of an index bucket [default: 8]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    bucket_slots: Option<u64>,
    /// Least size of a record's slot in its bucket, in bytes [default: the size of the row]
    #[arg(long, value_name = "BYTES", value_parser = whole, allow_negative_numbers = true)]
    slot_bytes: Option<u64>,
    /// Number of slots laid out for 100 records; fewer than 100 make chains of buckets [default: 200]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    slots_per_100_records: Option<u64>,
    /// Let a lookup read the whole bucket and its chain, as published systems do, instead of only the bin of the key
    #[arg(long)]
    read_buckets: bool,
}

impl LayoutFlags {
    /// Writes the values of the flags to `options`. The catalog checks whether the values fit together.
    ///
    /// # Errors
    /// If a number is not possible in any layout.
    pub(super) fn shape(&self, options: &mut Options) -> Result<(), UsageError> {
        let shape = &mut options.bucket;
        set("bucket-slots", self.bucket_slots, &mut shape.slots)?;
        set("slot-bytes", self.slot_bytes, &mut shape.slot_bytes_min)?;
        set(
            "slots-per-100-records",
            self.slots_per_100_records,
            &mut options.slots_per_100_records,
        )?;
        options.bucket.read_whole = self.read_buckets;
        Ok(())
    }
}

fn set(flag: &str, asked: Option<u64>, field: &mut u32) -> Result<(), UsageError> {
    let Some(asked) = asked else { return Ok(()) };
    *field = u32::try_from(asked).map_err(|_| UsageError {
        field: flag.to_owned(),
        value: asked.to_string(),
        allowed: format!("at most {}", u32::MAX),
    })?;
    Ok(())
}
