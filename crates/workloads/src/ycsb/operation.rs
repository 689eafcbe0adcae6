//! The operations of YCSB, and the random inputs of its transactions. An operation is one word.
//!
//! Invariant: a transaction's input has a fixed size and lies in its coordinator's own frame. Drawing
//! an input allocates no memory. For each operation with a uniform key it takes one call of the
//! generator.

use super::profiles::Variant;
use crate::distribution::{Dice, Keys};
use tarn_store::schema::ColumnId;
use tarn_fabric::rng::Rng;

/// The largest number of operations of a transaction.
pub const OPERATIONS_MAX: usize = 16;

/// A read or update of one field (or of all) of one record.
///
/// ```text
/// 63     | 62 … 56 | 55 … 0
/// write? | field   | key
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operation(u64);

const WRITE: u64 = 1 << 63;
const FIELD_SHIFT: u32 = 56;

impl Operation {
    /// The largest number of keys.
    pub const KEYS_MAX: u64 = 1 << FIELD_SHIFT;

    /// Creates an operation on `field` of the record at `key`.
    #[inline]
    pub fn new(key: u64, field: u8, write: bool) -> Operation {
        debug_assert!(key < Operation::KEYS_MAX);
        debug_assert!(field < 64);
        let write = if write { WRITE } else { 0 };
        Operation(key | (u64::from(field) << FIELD_SHIFT) | write)
    }

    /// Returns the key of the operation's record.
    #[inline]
    pub fn key(self) -> u64 {
        self.0 & (Operation::KEYS_MAX - 1)
    }

    /// Returns the number of the operation's field. If operations use whole records, this number has
    /// no meaning.
    #[inline]
    pub fn field(self) -> ColumnId {
        ColumnId((self.0 >> FIELD_SHIFT) as u8 & 0x7f)
    }

    /// Returns whether the operation updates its record.
    #[inline]
    pub fn is_write(self) -> bool {
        self.0 & WRITE != 0
    }
}

/// The input of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    operations: [Operation; OPERATIONS_MAX],
    /// The number of operations.
    len: u8,
    /// The number of operations in the first fetch. The keys of the other operations become known
    /// from the result of this fetch.
    known: u8,
    writes: bool,
}

impl Input {
    #[inline]
    pub(super) fn draw(keys: &Keys, variant: &Variant, rng: &mut Rng) -> Input {
        let mut operations = [Operation::default(); OPERATIONS_MAX];
        let mut writes = false;
        // The first operation's dice also decide whether the transaction writes at all.
        let mut percent = u64::from(variant.writes_percent);
        for (index, operation) in operations[..variant.operations].iter_mut().enumerate() {
            let (key, mut dice) = keys.draw_with_dice(rng);
            if index == 0 && !is_writer(variant, &mut dice) {
                percent = 0;
            }
            let (write, field) = match (percent, variant.fields) {
                (0, 1) => (false, 0),
                (percent, fields) => {
                    (dice.roll(100) < percent, dice.roll(u64::from(fields)) as u8)
                }
            };
            *operation = Operation::new(key, field, write);
            writes |= write;
        }
        let (len, known) = (variant.operations as u8, variant.known_operations as u8);
        Input { operations, len, known, writes }
    }

    /// Returns the operations of the transaction.
    #[inline]
    pub fn operations(&self) -> &[Operation] {
        &self.operations[..usize::from(self.len)]
    }

    /// Returns the operations of the two fetches: the operations that are known from the start, and
    /// the operations that become known by the first fetch.
    #[inline]
    pub fn steps(&self) -> [&[Operation]; 2] {
        let (known, rest) = self.operations().split_at(usize::from(self.known));
        [known, rest]
    }

    /// Returns whether any operation of the transaction updates its record.
    #[inline]
    pub fn writes(&self) -> bool {
        self.writes
    }
}

#[inline]
fn is_writer(variant: &Variant, dice: &mut Dice) -> bool {
    let percent = u64::from(variant.writers_percent);
    percent == 100 || dice.roll(100) < percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_apart_as_they_were_packed() {
        let operation = Operation::new(Operation::KEYS_MAX - 1, 63, true);
        assert_eq!((operation.key(), operation.field().0), (Operation::KEYS_MAX - 1, 63));
        assert!(operation.is_write());
        assert!(!Operation::new(7, 63, false).is_write());
    }
}
