//! One ordered index of the catalog: how index keys are made from records, and where the index's tree lies.
//!
//! Invariant: an index is a pure function of schemas and options. Index keys and primary keys have fixed widths. The
//! primary key is part of the index key, or the value in the leaf's slot is the primary key. So an entry always leads
//! to its record.

use super::node::{Node, NodeShape};
use crate::schema::range::KeyParts;
use crate::schema::{
    Cells, ColumnType, INDEX_KEY_BYTES_MAX, IndexId, IndexPart, IndexSchema, Key, KeyWidth,
    TableId, TableSchema, encode_column, primary_key_bytes,
};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::rng::mix;

/// A key of any index, padded to its width.
pub type KeyBytes = [u8; INDEX_KEY_BYTES_MAX];

/// The part of a record from which a part of an index key is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Key,
    KeyBits { shift: u8, bits: u8 },
    KeyBytes { at: u8 },
    Column { offset_bytes: usize, column_type: ColumnType },
}

/// The order in which the values of a key part compare.
enum PartKind {
    /// The part compares as bytes.
    Text,
    /// The part compares as a signed number.
    Signed,
    /// The part compares as an unsigned number.
    Unsigned,
}

fn kind(source: Source, key: KeyWidth) -> PartKind {
    match source {
        Source::Key if key != KeyWidth::Word => PartKind::Text,
        Source::KeyBytes { .. } => PartKind::Text,
        Source::Column { column_type: ColumnType::Bytes(_), .. } => PartKind::Text,
        Source::Column { column_type: ColumnType::I64, .. } => PartKind::Signed,
        Source::Key | Source::KeyBits { .. } | Source::Column { .. } => PartKind::Unsigned,
    }
}

/// Returns the positions at which parts end, in keys that are made of `sources`.
fn parts_of(sources: &[(Source, usize)], key: KeyWidth) -> KeyParts {
    let (mut parts, mut at) = (KeyParts::default(), 0);
    for &(source, width) in sources {
        let last = 1 << (at + width - 1);
        parts.ends |= last;
        match kind(source, key) {
            PartKind::Text => parts.text |= (at..at + width).fold(0, |bits, byte| bits | 1 << byte),
            PartKind::Signed => parts.signed |= last,
            PartKind::Unsigned => {}
        }
        at += width;
    }
    parts
}

/// An ordered index: its schema, keys, tree and groups.
#[derive(Clone, Debug)]
pub struct Index {
    /// The id of the index in the catalog.
    pub id: IndexId,
    /// The table whose records the index orders.
    pub table: TableId,
    /// The index's schema, as the table's schema declares it.
    pub schema: IndexSchema,
    /// The layout of the index's nodes.
    pub shape: NodeShape,
    /// The address of the index's root, which never changes.
    pub root: Address,
    /// The columns that the index's keys are made of.
    pub columns: Cells,
    /// The number of bytes of an index key before padding.
    pub used_bytes: usize,
    /// The positions at which the parts of the index's keys end.
    pub parts: KeyParts,
    /// The width of the primary key.
    key: KeyWidth,
    /// The offset of the primary key in the index key. `None` means that the primary key is the leaf's value.
    key_at: Option<usize>,
    sources: Vec<(Source, usize)>,
    /// The groups over which the index's nodes are distributed: the number of the first group, and the number of
    /// groups.
    groups: (u16, u16),
}

impl Index {
    /// Plans the index with number `id`, of `table`. The index's root is at `root`. The index's nodes are in
    /// `groups`, which gives the number of the first group and the number of groups.
    pub fn plan(
        id: IndexId,
        table: (TableId, &TableSchema),
        schema: &IndexSchema,
        root: Address,
        groups: (u16, u16),
    ) -> Index {
        let (table, of) = table;
        let (mut sources, mut key_at, mut at) = (Vec::new(), None, 0);
        let mut columns = Cells::NONE;
        for &part in &schema.parts {
            let source = match part {
                IndexPart::Key => {
                    key_at = Some(at);
                    Source::Key
                }
                IndexPart::KeyBits { shift, bits } => Source::KeyBits { shift, bits },
                IndexPart::KeyBytes { at, .. } => Source::KeyBytes { at },
                IndexPart::Column(column) => {
                    columns = columns.union(Cells::one(column));
                    let column = &of.columns[usize::from(column.0)];
                    let (offset_bytes, column_type) = (column.offset_bytes, column.column_type);
                    Source::Column { offset_bytes, column_type }
                }
            };
            let width = part.width_bytes(of);
            sources.push((source, width));
            at += width;
        }
        let key_bytes = primary_key_bytes(of.key);
        if !schema.unique {
            key_at = Some(at);
            sources.push((Source::Key, key_bytes));
        }
        let used_bytes = schema.used_bytes(of);
        let value_bytes = if key_at.is_some() { 0 } else { key_bytes.next_multiple_of(8) };
        let shape = NodeShape::of(used_bytes.next_multiple_of(8), value_bytes);
        let (schema, key) = (schema.clone(), of.key);
        let parts = parts_of(&sources, key);
        Index {
            id,
            table,
            schema,
            shape,
            root,
            columns,
            used_bytes,
            parts,
            key,
            key_at,
            sources,
            groups,
        }
    }

    /// Returns a text for error messages. The text describes the key parts that callers may give.
    #[cold]
    pub fn allowed_keys(&self) -> String {
        let part = |&(source, width): &(Source, usize)| match kind(source, self.key) {
            PartKind::Text => format!("{width} (text; the last part may be its beginning)"),
            PartKind::Signed => format!("{width} (signed)"),
            PartKind::Unsigned => width.to_string(),
        };
        let parts = self.sources.iter().map(part).collect::<Vec<_>>().join(" + ");
        format!(
            "parts of {parts} bytes, at most {} bytes in all; the last parts may be left out",
            self.used_bytes
        )
    }

    /// The index key of a record with this key word, full key (if it has one) and payload.
    #[inline]
    pub fn key_of(&self, word: u64, full_key: &[u8], payload: &[u8]) -> KeyBytes {
        let (mut key, mut at) = ([0; INDEX_KEY_BYTES_MAX], 0);
        for &(source, width) in &self.sources {
            let to = &mut key[at..at + width];
            match source {
                Source::Key if self.key == KeyWidth::Word => {
                    to.copy_from_slice(&word.to_be_bytes());
                }
                Source::Key => to.copy_from_slice(full_key),
                Source::KeyBits { shift, bits } => {
                    let field = (word >> shift) & (u64::MAX >> (64 - bits));
                    to.copy_from_slice(&field.to_be_bytes()[8 - width..]);
                }
                Source::KeyBytes { at } => {
                    to.copy_from_slice(&full_key[usize::from(at)..][..width]);
                }
                Source::Column { offset_bytes, column_type } => {
                    encode_column(column_type, &payload[offset_bytes..offset_bytes + width], to);
                }
            }
            at += width;
        }
        key
    }

    /// Writes a slot of a leaf. The slot gets the index key. If the index key does not contain the primary key, the
    /// slot also gets the primary key.
    pub fn fill_slot(&self, key: &KeyBytes, (word, full_key): (u64, &[u8]), slot: &mut [u8]) {
        let NodeShape { key_bytes, value_bytes, .. } = self.shape;
        slot[..key_bytes].copy_from_slice(&key[..key_bytes]);
        let value = &mut slot[key_bytes..key_bytes + value_bytes];
        if value.is_empty() {
            return;
        }
        match self.key {
            KeyWidth::Word => value.copy_from_slice(&word.to_be_bytes()),
            KeyWidth::Bytes(_) => {
                value.fill(0);
                value[..full_key.len()].copy_from_slice(full_key);
            }
        }
    }

    /// The primary key of the record to which a leaf's slot leads.
    #[inline]
    pub fn record_of<'a>(&self, slot: &'a [u8]) -> Key<'a> {
        let at = self.key_at.unwrap_or(self.shape.key_bytes);
        match self.key {
            KeyWidth::Word => {
                Key::Word(u64::from_be_bytes(*slot[at..].first_chunk().expect("inside the slot")))
            }
            KeyWidth::Bytes(width) => Key::Bytes(&slot[at..at + usize::from(width)]),
        }
    }

    /// The replica group of a new node, chosen at random by `seed`.
    pub fn group(&self, seed: u64) -> GroupId {
        let (first, count) = self.groups;
        GroupId(first + (mix(seed) % u64::from(count)) as u16)
    }

    /// The number that identifies the index in its nodes. The number is never 0, so that no index takes memory of
    /// zeros for one of its nodes.
    pub fn tree(&self) -> u16 {
        self.id.0 + 1
    }

    /// Whether the memory at `address` is a node of this tree, alive or dead. A node of this tree has the tree's
    /// number. The root is also a node of the tree, but may have no number. Memory that was never written is not a
    /// node.
    #[inline]
    pub fn owns(&self, address: Address, node: Node<'_>) -> bool {
        address == self.root || node.tree() == self.tree()
    }

    /// Estimates the number of nodes that `entries` entries need. The estimate assumes that nodes are half full, and
    /// adds a few nodes.
    pub fn nodes(&self, entries: u64) -> u64 {
        let leaves = entries.div_ceil(self.shape.leaf_slots as u64 / 2) + 2;
        leaves + leaves.div_ceil(self.shape.inner_slots as u64 / 4) + 8
    }
}
