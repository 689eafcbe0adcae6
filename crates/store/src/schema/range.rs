//! Keys, prefixes of keys and ranges of an ordered index, as callers give them.
//!
//! Invariant: a key is built from its parts, each in the bytes that compare as the part does. A key that is
//! shorter than the index's keys is a prefix and stands for every key that begins with it. An impossible key
//! (a part of another width than the index's, a text that does not fit) is kept, and reported at the next
//! fetch. A key knows where its parts end, and an index knows which ends it allows (`KeyParts`).

use crate::schema::{INDEX_KEY_BYTES_MAX, Key};

/// The limit of a scan that has none.
pub const UNLIMITED: u32 = u32::MAX;

const TOO_LONG: u8 = u8::MAX;

/// A key of an ordered index, or a prefix of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexKey {
    bytes: [u8; INDEX_KEY_BYTES_MAX],
    len: u8,
    parts: KeyParts,
}

/// Where the parts of a key end, and of which kind they are: bit `n − 1` is for a part whose last byte is
/// byte `n`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyParts {
    /// Every part's end.
    pub ends: u64,
    /// The ends of signed parts.
    pub signed: u64,
    /// Of a key: the ends of texts that were padded. Of an index: every byte of its texts, since a key may
    /// make them of any parts.
    pub text: u64,
}

const _: () = assert!(INDEX_KEY_BYTES_MAX <= u64::BITS as usize);

impl KeyParts {
    /// Whether a key of `len` bytes with these parts begins keys of an index with the parts `index`. No part
    /// may cross the end of one of the index's, a number must be one of the index's, and only a whole text
    /// may be padded.
    #[inline]
    fn begin(self, index: KeyParts, len: usize) -> bool {
        let within = u64::MAX.unbounded_shr(u64::BITS - len as u32);
        index.ends & within & !self.ends == 0
            && self.ends & !index.ends & !index.text == 0
            && self.signed == index.signed & within
            && self.text & !(index.ends & index.text) == 0
    }
}

impl Default for IndexKey {
    fn default() -> IndexKey {
        IndexKey::new()
    }
}

impl IndexKey {
    /// The empty prefix: every key begins with it.
    #[inline]
    pub const fn new() -> IndexKey {
        let parts = KeyParts { ends: 0, signed: 0, text: 0 };
        IndexKey { bytes: [0; INDEX_KEY_BYTES_MAX], len: 0, parts }
    }

    #[inline]
    fn push(mut self, part: &[u8], width: usize) -> IndexKey {
        let at = usize::from(self.len);
        if self.len == TOO_LONG || at + width > INDEX_KEY_BYTES_MAX || part.len() > width {
            self.len = TOO_LONG;
            return self;
        }
        self.bytes[at..at + part.len()].copy_from_slice(part);
        self.len += width as u8;
        self.parts.ends |= self.last();
        self
    }

    /// The bit of the last byte so far.
    #[inline]
    fn last(&self) -> u64 {
        1u64.unbounded_shl(u32::from(self.len).wrapping_sub(1))
    }

    /// The key with one more part, of one byte.
    #[inline]
    #[must_use]
    pub fn u8(self, part: u8) -> IndexKey {
        self.push(&[part], 1)
    }

    /// The key with one more part, of two bytes.
    #[inline]
    #[must_use]
    pub fn u16(self, part: u16) -> IndexKey {
        self.push(&part.to_be_bytes(), 2)
    }

    /// The key with one more part, of four bytes.
    #[inline]
    #[must_use]
    pub fn u32(self, part: u32) -> IndexKey {
        self.push(&part.to_be_bytes(), 4)
    }

    /// The key with one more part, of eight bytes.
    #[inline]
    #[must_use]
    pub fn u64(self, part: u64) -> IndexKey {
        self.push(&part.to_be_bytes(), 8)
    }

    /// The key with one more part, signed, of eight bytes.
    #[inline]
    #[must_use]
    pub fn i64(self, part: i64) -> IndexKey {
        let mut key = self.push(&(part as u64 ^ (1 << 63)).to_be_bytes(), 8);
        key.parts.signed |= key.last();
        key
    }

    /// The key with a text in a column of `width` bytes, padded with zeros. If the key's last part is only
    /// the beginning of a text, its `width` is its length.
    #[inline]
    #[must_use]
    pub fn bytes(self, part: &[u8], width: usize) -> IndexKey {
        let mut key = self.push(part, width);
        if part.len() < width {
            key.parts.text |= key.last();
        }
        key
    }

    /// The key's bytes, or `None` if it is longer than any index's keys.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.len))
    }

    /// Whether the key begins keys of an index with these parts.
    #[inline]
    pub fn begins(&self, index: KeyParts) -> bool {
        self.len != TOO_LONG && self.parts.begin(index, usize::from(self.len))
    }

    /// The widths of its parts, as errors name them.
    pub fn widths(&self) -> String {
        let mut from = 0;
        let ends = (1..=u32::from(self.len)).filter(|end| self.parts.ends >> (end - 1) & 1 != 0);
        let part = |end: u32| {
            let width = end - std::mem::replace(&mut from, end);
            let is_signed = self.parts.signed >> (end - 1) & 1 != 0;
            format!("{width}{}", if is_signed { " (signed)" } else { "" })
        };
        format!("parts of {} bytes", ends.map(part).collect::<Vec<_>>().join(" + "))
    }

    /// The key padded with zeros: the least key that begins with it.
    #[inline]
    pub fn least(&self) -> [u8; INDEX_KEY_BYTES_MAX] {
        self.bytes
    }

    /// The key padded with ones: beyond every key that begins with it.
    #[inline]
    pub fn greatest(&self) -> [u8; INDEX_KEY_BYTES_MAX] {
        let mut bytes = self.bytes;
        bytes[usize::from(self.len).min(INDEX_KEY_BYTES_MAX)..].fill(u8::MAX);
        bytes
    }
}

/// A range of an ordered index that a transaction wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The scan begins at this key.
    pub from: IndexKey,
    /// The scan ends at this key; every key that begins with it is included.
    pub to: IndexKey,
    /// The most entries; [`UNLIMITED`] unless set.
    pub limit: u32,
    /// Whether the scan goes from the end of the range towards its beginning.
    pub backward: bool,
}

impl Scan {
    /// All entries between both keys, in order, both included, however many: they are read in pages of a few
    /// leaves.
    #[inline]
    pub fn range(from: IndexKey, to: IndexKey) -> Scan {
        Scan { from, to, limit: UNLIMITED, backward: false }
    }

    /// All entries whose keys begin with `key`.
    #[inline]
    pub fn prefix(key: IndexKey) -> Scan {
        Scan::range(key, key)
    }

    /// Limits the scan to the first `entries` of them. Entries behind them are not read.
    #[inline]
    #[must_use]
    pub fn limit(mut self, entries: u32) -> Scan {
        self.limit = entries;
        self
    }

    /// Makes the scan go from the last entry to the first.
    #[inline]
    #[must_use]
    pub fn backward(mut self) -> Scan {
        self.backward = true;
        self
    }
}

/// Names a scan or look-up of the current transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanHandle(pub u32);

impl ScanHandle {
    /// The bit that marks a look-up.
    const SEEK: u32 = 1 << 31;

    /// The handle of look-up number `at`.
    #[inline]
    pub fn of_seek(at: usize) -> ScanHandle {
        ScanHandle(at as u32 | ScanHandle::SEEK)
    }

    /// The number of the look-up, if the handle names one.
    #[inline]
    pub fn seek(self) -> Option<usize> {
        (self.0 & ScanHandle::SEEK != 0).then_some((self.0 & !ScanHandle::SEEK) as usize)
    }
}

/// An entry of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEntry<'a> {
    /// The index key's bytes.
    pub key: &'a [u8],
    /// The primary key of its record.
    pub record: Key<'a>,
}
