//! Which layout a database's records have, and what is read of a slot of any of them.
//!
//! Invariant: whoever fills tables, looks at memory at rest or names what a verb touched reads a slot's record
//! through here alone, so that another layout is one more variant of both enums and its arms. Not here: the
//! head of LOCK, VERSION and KEY, which slots, directory records and nodes have in every layout (indexes find
//! keys by it), and what a protocol does to its own layout, whose bytes it knows.

use super::{KEY_AT, Slot, VERSION_AT, Version};
use crate::schema::TableSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use tarn_fabric::address::Address;

/// Which layout all records of a database have: the protocol says which, and the plan's stamp holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// One version, changed in place.
    #[default]
    SingleVersion,
}

impl LayoutKind {
    /// The slot for rows of `schema`.
    pub fn slot(self, schema: &TableSchema) -> Slot {
        match self {
            LayoutKind::SingleVersion => Slot::of(schema),
        }
    }
}

/// The name in a memory node's superblock; its number is raised when bytes come to mean something else.
impl fmt::Display for LayoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutKind::SingleVersion => f.write_str("single-version-4"),
        }
    }
}

/// How one table's records lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordLayout {
    /// VERSION in the head is the record's; its payload is in the slot or at an address there.
    InPlace,
}

/// Where a version's payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadAt {
    /// So many bytes into the slot.
    Slot(usize),
    /// In memory of its own.
    Apart(Address),
}

/// The newest version of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// Which.
    pub version: Version,
    /// Where its payload lies.
    pub payload: PayloadAt,
}

/// A record that is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// Key word.
    pub key: u64,
    /// The full key, of a table whose keys are longer than a word.
    pub full_key: &'a [u8],
    /// Where its payload lies apart; else [`Address::NULL`].
    pub body: Address,
}

impl Slot {
    /// Whether a slot of this image, [`Slot::slot_bytes`] long, can take another record.
    #[inline]
    pub fn is_free(&self, image: &[u8]) -> bool {
        match self.record {
            RecordLayout::InPlace => !version(image).is_present(),
        }
    }

    /// The newest version of the record in a slot of this image, if there is one.
    pub fn newest(&self, image: &[u8]) -> Option<Newest> {
        match self.record {
            RecordLayout::InPlace => {
                let payload = match self.body_at {
                    None => PayloadAt::Slot(self.payload_at),
                    Some(at) => PayloadAt::Apart(Address::from_word(word(image, at))),
                };
                let newest = Newest { version: version(image), payload };
                newest.version.is_present().then_some(newest)
            }
        }
    }

    /// Where in memory of its own lies what belongs to the record in a slot of this image:
    /// [`Slot::body_bytes`] at each address.
    pub fn apart(&self, image: &[u8]) -> impl Iterator<Item = Address> {
        let newest = match self.record {
            RecordLayout::InPlace => self.newest(image),
        };
        newest.into_iter().filter_map(|newest| match newest.payload {
            PayloadAt::Slot(_) => None,
            PayloadAt::Apart(body) => Some(body),
        })
    }

    /// How many of a slot's first bytes are the same at every replica at rest, LOCK aside. Of a slot without
    /// a record only the head counts: an insert that was undone leaves bytes.
    pub fn replicated_bytes(&self, image: &[u8]) -> usize {
        match self.record {
            RecordLayout::InPlace if self.is_free(image) => self.body_at.unwrap_or(KEY_AT) + 8,
            RecordLayout::InPlace => self.slot_bytes,
        }
    }

    /// Writes all of a loaded record but its payload into an image of zeros.
    pub fn write_loaded(&self, image: &mut [u8], record: &Loaded<'_>) {
        let mut set = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        match self.record {
            RecordLayout::InPlace => {
                set(VERSION_AT, &Version::LOADED.word().to_le_bytes());
                set(KEY_AT, &record.key.to_le_bytes());
                set(self.full_key_at, record.full_key);
                if let Some(at) = self.body_at {
                    set(at, &record.body.to_word().to_le_bytes());
                }
            }
        }
    }
}

fn version(image: &[u8]) -> Version {
    Version::from_word(word(image, VERSION_AT))
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*image[at..].first_chunk().expect("a slot has a whole head"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;
    use tarn_fabric::address::GroupId;

    fn slot(payload: u16) -> Slot {
        let schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload)).key_bytes(10);
        LayoutKind::SingleVersion.slot(&schema)
    }

    #[test]
    fn a_loaded_record_is_read_as_it_was_written() {
        let body = Address::new(GroupId(1), 4096);
        for (payload, at, bodies) in
            [(30, PayloadAt::Slot(40), vec![]), (500, PayloadAt::Apart(body), vec![body])]
        {
            let slot = slot(payload);
            let mut image = vec![0; slot.slot_bytes];
            assert!(slot.is_free(&image) && slot.newest(&image).is_none());
            assert_eq!(slot.apart(&image).count(), 0);
            slot.write_loaded(&mut image, &Loaded { key: 7, full_key: b"0123456789", body });
            let newest = Newest { version: Version::LOADED, payload: at };
            assert_eq!(slot.newest(&image), Some(newest));
            assert!(!slot.is_free(&image));
            assert_eq!(slot.apart(&image).collect::<Vec<Address>>(), bodies);
            assert_eq!(word(&image, KEY_AT), 7);
            assert_eq!(&image[slot.full_key_at..][..10], b"0123456789");
        }
    }

    #[test]
    fn of_a_slot_without_a_record_only_the_head_must_be_the_same_everywhere() {
        let slot = slot(30);
        let mut image = vec![0; slot.slot_bytes];
        assert_eq!(slot.replicated_bytes(&image), KEY_AT + 8);
        image[VERSION_AT..KEY_AT]
            .copy_from_slice(&Version::LOADED.absent_after().word().to_le_bytes());
        assert_eq!(slot.replicated_bytes(&image), KEY_AT + 8);
        image[VERSION_AT..KEY_AT].copy_from_slice(&Version::LOADED.word().to_le_bytes());
        assert_eq!(slot.replicated_bytes(&image), slot.slot_bytes);
    }
}
