//! Pieces of a log entry: bytes, and the address that the bytes belong to.
//!
//! ```text
//! a piece: { address u64 | length u64 | bytes, padded to 8 }
//! ```
//! Invariant: the pieces of an entry follow one another without a gap, and `read` returns the pieces that `write` has
//! written.

use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;

/// The number of words before a piece's bytes.
const HEAD_WORDS: usize = 2;

/// A piece to be written into an entry.
#[derive(Clone, Copy, Debug)]
pub struct OldBytes {
    /// The address to which the transaction will write.
    pub address: Address,
    /// The position of the piece's bytes in the round's buffer.
    pub at: BufferOffset,
    /// The number of bytes of the piece.
    pub len_bytes: usize,
}

/// A piece as it was read from an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedPiece {
    /// The address that the bytes belong to.
    pub address: Address,
    /// The bytes of the piece. In an entry of old bytes, the field holds the bytes before the write. In an entry of
    /// new bytes, the field holds the bytes that the transaction writes.
    pub old: Vec<u8>,
}

/// The length in bytes of `pieces` pieces in an entry. The bytes of the pieces, each piece padded to 8, add up to
/// `bytes`.
#[inline]
pub(super) fn encoded_bytes(pieces: usize, bytes: usize) -> usize {
    pieces * HEAD_WORDS * 8 + bytes
}

/// Writes pieces one behind the other into the entry. The bytes of the pieces lie in `buffer`. Returns the number of
/// pieces.
#[inline]
pub(super) fn write(
    pieces: impl Iterator<Item = OldBytes>,
    buffer: &[u64],
    mut rest: &mut [u64],
) -> u64 {
    let mut count = 0;
    for piece in pieces {
        count += 1;
        let (head, after) = rest.split_at_mut(HEAD_WORDS + piece.len_bytes.div_ceil(8));
        (head[0], head[1]) = (piece.address.to_word(), piece.len_bytes as u64);
        copy_old(buffer, piece.at, &mut head[HEAD_WORDS..]);
        rest = after;
    }
    count
}

/// Copies whole words of `buffer` into `old`, from byte position `at` on. The last word may also contain bytes behind
/// the old bytes, which have no meaning.
#[inline(always)]
fn copy_old(buffer: &[u64], at: BufferOffset, old: &mut [u64]) {
    let (first, shift) = (at.0 as usize / 8, at.0 % 8 * 8);
    if shift == 0 {
        let from = &buffer[first..first + old.len()];
        let ((to, to_rest), (from, from_rest)) = (old.as_chunks_mut::<4>(), from.as_chunks::<4>());
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
        for (to, from) in to_rest.iter_mut().zip(from_rest) {
            *to = *from;
        }
        return;
    }
    for (index, to) in old.iter_mut().enumerate() {
        let next = buffer.get(first + index + 1).copied().unwrap_or(0);
        *to = (buffer[first + index] >> shift) | (next << (64 - shift));
    }
}

/// Reads `count` pieces from the beginning of `words`. Returns `None` if a piece is incomplete.
pub(super) fn read(mut words: &[u64], count: u32) -> Option<Vec<LoggedPiece>> {
    let mut pieces = Vec::new();
    for _ in 0..count {
        let [address, len, ..] = *words else { return None };
        let (bytes, len) = (words.get(HEAD_WORDS..)?, len as usize);
        let mut old: Vec<u8> =
            bytes.get(..len.div_ceil(8))?.iter().flat_map(|word| word.to_le_bytes()).collect();
        old.truncate(len);
        pieces.push(LoggedPiece { address: Address::from_word(address), old });
        words = &bytes[len.div_ceil(8)..];
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::GroupId;

    #[test]
    fn pieces_at_any_place_are_read_as_written() {
        let buffer: Vec<u64> = (0..8).map(|word| 0x0807_0605_0403_0201 + (word << 56)).collect();
        let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_le_bytes()).collect();
        let pieces = [(0, 8), (3, 13), (16, 40), (5, 1)].map(|(at, len_bytes)| OldBytes {
            address: Address::new(GroupId(2), 64 * u64::from(at)),
            at: BufferOffset(at),
            len_bytes,
        });
        let padded: usize = pieces.iter().map(|piece| piece.len_bytes.next_multiple_of(8)).sum();
        let mut words = vec![0; encoded_bytes(pieces.len(), padded) / 8];
        assert_eq!(write(pieces.into_iter(), &buffer, &mut words), 4);
        let read_back = read(&words, 4).expect("all of them");
        for (piece, read) in pieces.iter().zip(&read_back) {
            let from = piece.at.0 as usize;
            assert_eq!(read.address, piece.address);
            assert_eq!(read.old, bytes[from..from + piece.len_bytes]);
        }
        assert_eq!(read(&words[..words.len() - 1], 4), None, "cut");
        assert_eq!(read(&words, 5), None, "one that was not written");
    }
}
