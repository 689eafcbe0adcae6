//! Checks that a plan of the requested sizes is possible.
//!
//! Invariant: sizes that pass this check fit the offsets of one replica group. The check adds the sizes of only some
//! parts of the plan, so its sum is never greater than the plan. So the check refuses no plan that would fit. The
//! later arithmetic of the plan in 64 bits does not overflow.

use crate::ids::UsageError;
use crate::layout::LayoutKind;
use crate::placement::catalog::Options;
use crate::schema::TableSchema;
use tarn_fabric::address::GROUP_BYTES_MAX;

/// The maximum number of bytes that one group can hold.
const MOST: u128 = GROUP_BYTES_MAX as u128;

fn refuse(field: &str, value: impl ToString, allowed: String) -> Result<(), UsageError> {
    Err(UsageError { field: field.to_owned(), value: value.to_string(), allowed })
}

/// Refuses tables or log areas that do not fit the offsets of a group. The records of a table are distributed over
/// `sharing` groups.
///
/// # Errors
/// The error names the first part that is too large, and the maximum value that is allowed.
pub fn validate(
    schemas: &[TableSchema],
    options: &Options,
    sharing: u64,
) -> Result<(), UsageError> {
    let logs = u128::from(options.coordinators_max) * u128::from(options.log_bytes);
    if logs > MOST {
        let most = MOST / u128::from(options.log_bytes);
        let allowed = format!("at most {most}, each with {} bytes of log", options.log_bytes);
        return refuse("coordinators_max", options.coordinators_max, allowed);
    }
    let mut free = MOST;
    for schema in schemas {
        let each_100 = least_bytes_100(schema, options);
        let records = u128::from(schema.expected_records.div_ceil(sharing).max(1));
        let taken = records * each_100 / 100;
        if taken > free {
            let usual = Options::default().slots_per_100_records;
            let spared = u128::from(options.slots_per_100_records.saturating_sub(usual));
            let slot_bytes = options.slot(schema).slot_bytes as u128;
            if records * (each_100 - spared * slot_bytes) / 100 <= free {
                // The records have room with the usual number of slots.
                let bodies = each_100 - u128::from(options.slots_per_100_records) * slot_bytes;
                let most = (free * 100 / records).saturating_sub(bodies) / slot_bytes;
                let allowed = format!(
                    "at most {most}, for the {} records of table {}",
                    schema.expected_records, schema.name
                );
                return refuse("slots_per_100_records", options.slots_per_100_records, allowed);
            }
            let most = free * 100 / each_100 * u128::from(sharing);
            let allowed = format!("at most {most} in this many groups; add memory nodes");
            let field = format!("records of table {}", schema.name);
            return refuse(&field, schema.expected_records, allowed);
        }
        free -= taken;
    }
    Ok(())
}

/// The minimum number of bytes that 100 records take, in their slots and in separate memory.
fn least_bytes_100(schema: &TableSchema, options: &Options) -> u128 {
    let slot = options.slot(schema);
    let waiting = match options.layout {
        LayoutKind::MultiVersion { .. } => u128::from(options.versions_spare_percent),
        _ => 0,
    };
    let bodies = (100 * slot.cells() as u128 + waiting) * slot.body_bytes() as u128;
    u128::from(options.slots_per_100_records) * slot.slot_bytes as u128 + bodies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::catalog::Catalog;
    use crate::schema::ColumnType;

    fn refused(schemas: &[TableSchema], options: &Options) -> String {
        Catalog::plan(schemas, options, 1).err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn impossible_sizes_are_refused_by_field() {
        let table = |records| TableSchema::new("t", records).column("v", ColumnType::U64);
        let options = Options::default();
        for records in [u64::MAX, 1 << 62, 1 << 58, 1 << 40] {
            let said = refused(&[table(records)], &options);
            let start = format!("records of table t = {records}; allowed: at most ");
            assert!(said.starts_with(&start), "{said}");
        }
        let second = TableSchema { name: "u".into(), ..table(1 << 40) };
        let said = refused(&[table(10), second], &options);
        assert!(said.starts_with("records of table u = "), "{said}");
        let with = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            refused(&[table(10)], &options)
        };
        let said = with(&|options| options.spare_bytes = u64::MAX);
        assert!(said.starts_with("spare_bytes = "), "{said}");
        let said = with(&|options| options.coordinators_max = u32::MAX);
        assert!(said.starts_with("coordinators_max = "), "{said}");
        let said = with(&|options| options.slots_per_100_records = u32::MAX);
        assert_eq!(said, "", "ten records have room for that many slots");
        // A million records have room with the usual slots, so the number of slots is wrong.
        let slots = |count| Options { slots_per_100_records: count, ..Options::default() };
        let said = refused(&[table(1_000_000)], &slots(u32::MAX));
        let start = format!("slots_per_100_records = {}; allowed: at most ", u32::MAX);
        let (_, rest) = said.split_once(&start).expect(&said);
        let (most, rest) = rest.split_once(", ").expect(&said);
        assert_eq!(rest, "for the 1000000 records of table t");
        let most: u32 = most.parse().expect("a number");
        let said = refused(&[table(1_000_000)], &slots(most + 1));
        assert!(said.starts_with("slots_per_100_records = "), "{said}");
        let said = refused(&[table(1_000_000)], &slots(most));
        assert!(!said.starts_with("slots_per_100_records = "), "{said}");
    }

    /// If an option has its largest allowed number, planning either returns a valid plan or refuses the number.
    #[test]
    fn accepted_sizes_do_not_overflow() {
        let layouts = [LayoutKind::SingleVersion, LayoutKind::Ticketed];
        for layout in layouts {
            let options = Options { layout, ..Options::default() };
            for shift in 20..64 {
                let table = TableSchema::new("t", 1 << shift).column("v", ColumnType::Bytes(900));
                let _ = Catalog::plan(&[table], &options, 1);
            }
        }
    }
}
