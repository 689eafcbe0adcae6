//! Keys, prefixes of keys, and ranges of an ordered index, as callers pass them.
//!
//! Invariant: a key is built from its parts, and each part is stored in bytes that compare like the part's values. A
//! key that is shorter than the index's keys is a prefix, and matches every key that begins with the prefix. A key is
//! impossible if one of its parts has another width than the index's part, or if a text does not fit. An [`IndexKey`]
//! may store an impossible key, and the next fetch reports an error. A key stores the positions at which its parts
//! end. An index stores the positions at which parts of its keys may end (`KeyParts`).

use crate::schema::{INDEX_KEY_BYTES_MAX, Key};

/// The limit of a scan without a limit.
pub const UNLIMITED: u32 = u32::MAX;

const TOO_LONG: u8 = u8::MAX;

/// A key of an ordered index, or a prefix of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexKey {
    bytes: [u8; INDEX_KEY_BYTES_MAX],
    len: u8,
    parts: KeyParts,
}

/// The positions at which the parts of a key end, and the kinds of the parts. In each word, bit `n − 1` describes a
/// part whose last byte is byte `n` of the key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyParts {
    /// One bit for the end of each part of the key.
    pub ends: u64,
    /// One bit for the end of each signed part of the key.
    pub signed: u64,
    /// For a key: one bit for the end of each text part that was padded. For an index: one bit for every byte of its
    /// text parts, because a key may build one text from several parts.
    pub text: u64,
}

const _: () = assert!(INDEX_KEY_BYTES_MAX <= u64::BITS as usize);

impl KeyParts {
    /// Whether a key of `len` bytes with these parts can begin keys of an index with the parts `index`. Three rules
    /// decide whether a key can begin keys of an index. No part may cross the end of a part of the index. A number
    /// must be a whole part of the index. Only a whole text may be padded.
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
    /// The empty prefix, with which every key begins.
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

    /// Returns the bit that describes the key's last byte in [`KeyParts`].
    #[inline]
    fn last(&self) -> u64 {
        1u64.unbounded_shl(u32::from(self.len).wrapping_sub(1))
    }

    /// Returns the key with one more part, of one byte.
    #[inline]
    #[must_use]
    pub fn u8(self, part: u8) -> IndexKey {
        self.push(&[part], 1)
    }

    /// Returns the key with one more part, of two bytes.
    #[inline]
    #[must_use]
    pub fn u16(self, part: u16) -> IndexKey {
        self.push(&part.to_be_bytes(), 2)
    }

    /// Returns the key with one more part, of four bytes.
    #[inline]
    #[must_use]
    pub fn u32(self, part: u32) -> IndexKey {
        self.push(&part.to_be_bytes(), 4)
    }

    /// Returns the key with one more part, of eight bytes.
    #[inline]
    #[must_use]
    pub fn u64(self, part: u64) -> IndexKey {
        self.push(&part.to_be_bytes(), 8)
    }

    /// Returns the key with one more part, which is signed and has eight bytes.
    #[inline]
    #[must_use]
    pub fn i64(self, part: i64) -> IndexKey {
        let mut key = self.push(&(part as u64 ^ (1 << 63)).to_be_bytes(), 8);
        key.parts.signed |= key.last();
        key
    }

    /// Returns the key with one more part: a text for a column of `width` bytes, padded with zeros. If the key's
    /// last part is only the beginning of a text, the caller passes that part's length as `width`.
    #[inline]
    #[must_use]
    pub fn bytes(self, part: &[u8], width: usize) -> IndexKey {
        let mut key = self.push(part, width);
        if part.len() < width {
            key.parts.text |= key.last();
        }
        key
    }

    /// The key's bytes. Returns `None` if the key is longer than the keys of any index.
    #[inline]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.len))
    }

    /// Whether this key can begin keys of an index with these parts.
    #[inline]
    pub fn begins(&self, index: KeyParts) -> bool {
        self.len != TOO_LONG && self.parts.begin(index, usize::from(self.len))
    }

    /// The widths of the key's parts, as text for error messages.
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

    /// The greatest key of this length that is lower than this key. Returns `None` if the key is zeros or empty. With
    /// the returned key as its end, a scan ends before all keys that begin with this key.
    #[must_use]
    pub fn before(mut self) -> Option<IndexKey> {
        let bytes = self.bytes.get_mut(..usize::from(self.len))?;
        let last = bytes.iter().rposition(|&byte| byte != 0)?;
        bytes[last] -= 1;
        bytes[last + 1..].fill(u8::MAX);
        Some(self)
    }

    /// The lowest key of this length that is greater than this key. Returns `None` if the key is ones or empty. With
    /// the returned key as its beginning, a scan begins after all keys that begin with this key.
    #[must_use]
    pub fn after(mut self) -> Option<IndexKey> {
        let bytes = self.bytes.get_mut(..usize::from(self.len))?;
        let last = bytes.iter().rposition(|&byte| byte != u8::MAX)?;
        bytes[last] += 1;
        bytes[last + 1..].fill(0);
        Some(self)
    }

    /// The key padded with zeros, which is the lowest possible key that begins with this prefix.
    #[inline]
    pub fn least(&self) -> [u8; INDEX_KEY_BYTES_MAX] {
        self.bytes
    }

    /// The key padded with ones, so that no key that begins with this prefix is greater.
    #[inline]
    pub fn greatest(&self) -> [u8; INDEX_KEY_BYTES_MAX] {
        let mut bytes = self.bytes;
        bytes[usize::from(self.len).min(INDEX_KEY_BYTES_MAX)..].fill(u8::MAX);
        bytes
    }
}

/// A range of an ordered index that a transaction wants to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The scan begins at this key.
    pub from: IndexKey,
    /// The scan ends at this key. Every key that begins with this key is included.
    pub to: IndexKey,
    /// The maximum number of entries that the scan returns. The limit is [`UNLIMITED`] unless the caller sets it.
    pub limit: u32,
    /// Whether the scan goes from the end of the range towards its beginning.
    pub backward: bool,
}

impl Scan {
    /// All entries between the two keys, in order. The scan includes the keys `from` and `to`, and its number of
    /// entries is not limited. The scan reads the entries in pages of a few leaves.
    #[inline]
    pub fn range(from: IndexKey, to: IndexKey) -> Scan {
        Scan { from, to, limit: UNLIMITED, backward: false }
    }

    /// All entries whose keys begin with `key`.
    #[inline]
    pub fn prefix(key: IndexKey) -> Scan {
        Scan::range(key, key)
    }

    /// Limits the scan to its first `entries` entries. The scan does not read later entries.
    #[inline]
    #[must_use]
    pub fn limit(mut self, entries: u32) -> Scan {
        self.limit = entries;
        self
    }

    /// Makes the scan go from the last entry of the range to the first.
    #[inline]
    #[must_use]
    pub fn backward(mut self) -> Scan {
        self.backward = true;
        self
    }
}

/// Names a scan or a look-up of the current transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanHandle(pub u32);

impl ScanHandle {
    /// The bit that is set in the handle of a look-up and not in the handle of a scan.
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

/// An entry of an ordered index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEntry<'a> {
    /// The bytes of the index key.
    pub key: &'a [u8],
    /// The primary key of the entry's record.
    pub record: Key<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_key_have_no_key_between_them() {
        let of = |number: u16| IndexKey::new().u16(number);
        for number in [0, 1, 255, 256, 257, 0xfeff, 0xff00, u16::MAX - 1, u16::MAX] {
            assert_eq!(of(number).before(), number.checked_sub(1).map(of), "{number}");
            assert_eq!(of(number).after(), number.checked_add(1).map(of), "{number}");
        }
        assert_eq!((IndexKey::new().before(), IndexKey::new().after()), (None, None));
        let too_long = IndexKey::new().bytes(&[1; INDEX_KEY_BYTES_MAX + 1], 1);
        assert_eq!((too_long.before(), too_long.after()), (None, None));
    }
}
