//! The unit of copying: all memory that one lock protects.

use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_store::layout::{DIRECTORY_BYTES, DIRECTORY_NEXT_AT};
use tarn_store::placement::catalog::Table;

/// The kind of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// An index header.
    Header,
    /// A bucket's directory record with the links to the blocks of the bucket's chain.
    Directory,
    /// A slot with the bodies of its versions.
    Slot {
        /// The directory record of the slot's bucket.
        bucket: Address,
    },
    /// A node of an ordered index.
    Node,
}

/// A unit of copying: all memory that one lock protects.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    /// The address of the unit's LOCK word. The address of the LOCK word identifies the unit.
    pub(super) guard: Address,
    /// The spans that certainly belong to the unit. The first span is the line that contains the LOCK word.
    pub(super) spans: Vec<(Address, usize)>,
}

impl Unit {
    pub(super) fn new(kind: Kind, guard: Address, bytes: usize) -> Unit {
        Unit { kind, guard, spans: vec![(guard, bytes)] }
    }

    /// The spans that belong to the unit according to its images. The images must be a snapshot of one moment.
    pub(super) fn spans_of(&self, table: &Table, images: &[Vec<u8>]) -> Vec<(Address, usize)> {
        let mut spans = vec![self.spans[0]];
        match self.kind {
            Kind::Header | Kind::Node => {}
            Kind::Directory => {
                for image in images {
                    let next = Address::from_word(word(image, DIRECTORY_NEXT_AT));
                    spans.extend((!next.is_null()).then_some((next, DIRECTORY_BYTES)));
                }
            }
            Kind::Slot { .. } => {
                let bytes = table.slot.body_bytes();
                spans.extend(table.slot.apart(&images[0]).map(|body| (body, bytes)));
            }
        }
        spans
    }

    /// Whether one READ of one line returns the whole unit.
    pub(super) fn is_one_line(&self) -> bool {
        let (first, bytes) = self.spans[0];
        self.spans.len() == 1 && first.offset_bytes() as usize % LINE_BYTES + bytes <= LINE_BYTES
    }
}

/// Returns the word that lies `at` bytes into an image.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("inside the image"))
}
