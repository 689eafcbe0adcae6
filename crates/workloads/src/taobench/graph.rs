//! The social graph: objects, edges between objects, and the rules for their keys.
//!
//! Invariant: loaded edge `e` leads from object `2e` to object `2e + 1`, because the benchmark's
//! public code creates two new objects for each edge that it loads. The type of an edge follows from
//! its two objects, with the shares of the public workload file. An edge of a type that goes both
//! ways has a reverse edge. A transaction writes an edge together with its reverse edge, and both
//! have the same timestamp.

use crate::field::{self, FIELD_BYTES_MAX};
use tarn_store::schema::row::Row;
use tarn_store::schema::{ColumnId, ColumnType, TableId, TableSchema};
use tarn_fabric::rng::mix;

pub(super) const OBJECTS: TableId = TableId(0);
pub(super) const EDGES: TableId = TableId(1);

/// The column of the benchmark's timestamp, which in this implementation is the number of a row's
/// writes.
pub(super) const TIMESTAMP: ColumnId = ColumnId(0);
/// The column of a row's value.
pub(super) const VALUE: ColumnId = ColumnId(1);
const VALUE_BYTES: u16 = 150;

const ID_BITS: u32 = 28;
/// The largest number of objects, including objects that transactions add.
pub(super) const IDS_MAX: u64 = 1 << ID_BITS;

/// The cumulative shares, per thousand edges, of the types 0 (unique), 1 (both ways), 2 (both) and 3
/// (other).
const TYPES_UP_TO: [u64; 4] = [52, 252, 272, 1_000];

/// An edge, named by the two objects that it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    from: u64,
    kind: u64,
}

impl Edge {
    /// Returns the edge that leads from an object with an even number to the next object.
    #[inline]
    pub(super) fn from(from: u64) -> Edge {
        debug_assert!(from.is_multiple_of(2) && from < IDS_MAX);
        let drawn = mix(from) % 1_000;
        let kind = TYPES_UP_TO.iter().filter(|&&up_to| up_to <= drawn).count() as u64;
        Edge { from, kind }
    }

    /// Returns the key of the edge.
    #[inline]
    pub(super) fn key(self) -> u64 {
        key(self.from, self.from + 1, self.kind)
    }

    /// Returns the key of the reverse edge, if the edge goes both ways.
    #[inline]
    pub(super) fn reverse(self) -> Option<u64> {
        goes_both_ways(self.kind).then(|| key(self.from + 1, self.from, self.kind))
    }
}

#[inline]
fn key(from: u64, to: u64, kind: u64) -> u64 {
    (from << ID_BITS | to) << 2 | kind
}

#[inline]
fn goes_both_ways(kind: u64) -> bool {
    kind == 1 || kind == 2
}

/// Returns the key of the edge that leads back, if the edge with this key goes both ways.
pub(super) fn reverse_of(edge: u64) -> Option<u64> {
    let (kind, from, to) = (edge & 3, edge >> (2 + ID_BITS), edge >> 2 & (IDS_MAX - 1));
    goes_both_ways(kind).then(|| key(to, from, kind))
}

/// Returns the number of edge rows of a graph. An edge that goes both ways has two rows.
pub(super) fn edge_rows(edges: u64) -> u64 {
    (0..edges).map(|edge| 1 + u64::from(Edge::from(2 * edge).reverse().is_some())).sum()
}

pub(super) fn schemas(edges: u64) -> Vec<TableSchema> {
    let schema = |name, rows| {
        let schema = TableSchema::new(name, rows).column("timestamp", ColumnType::U64);
        schema.column("value", ColumnType::Bytes(VALUE_BYTES))
    };
    vec![schema("objects", 2 * edges), schema("edges", edge_rows(edges))]
}

/// Returns the value of a row with this timestamp.
#[inline]
pub(super) fn value(timestamp: u64) -> [u8; VALUE_BYTES as usize] {
    const { assert!(VALUE_BYTES as usize <= FIELD_BYTES_MAX) };
    let mut value = [0; VALUE_BYTES as usize];
    field::fill(&mut value, timestamp);
    value
}

/// Returns the timestamp of a row, or `None` if the row is torn.
#[inline]
pub(super) fn timestamp(row: &Row<'_>) -> Option<u64> {
    let timestamp = row.u64(TIMESTAMP);
    (field::whole(row.bytes(VALUE)) == Some(timestamp)).then_some(timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_shares_and_reverse_edges_lead_back() {
        const EDGES: u64 = 100_000;
        let mut shares = [0u32; 4];
        for edge in (0..EDGES).map(|edge| Edge::from(2 * edge)) {
            shares[edge.kind as usize] += 1;
            assert_eq!(reverse_of(edge.key()), edge.reverse());
            if let Some(reverse) = edge.reverse() {
                assert_eq!(reverse_of(reverse), Some(edge.key()));
            }
        }
        for (share, expected) in shares.into_iter().zip([52, 200, 20, 728]) {
            assert!((share / 100).abs_diff(expected) <= 5, "{shares:?}");
        }
        assert_eq!(edge_rows(EDGES), EDGES + u64::from(shares[1] + shares[2]));
        // The key of the last possible edge fits into a word.
        let last = Edge::from(IDS_MAX - 2);
        assert_eq!(last.key() >> (2 + 2 * ID_BITS), 0);
    }
}
