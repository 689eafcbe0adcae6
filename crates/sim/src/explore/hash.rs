//! Digests of 128 bits. A change of the explored state updates the state's digest. So the explorer
//! never computes the digest again from the whole state.
//!
//! Invariant: parts without an order (the words of memory, pieces that have landed) are [`mix`]ed,
//! and the results are summed. So a change of one part costs one subtraction and one addition. The
//! digests of parts with an order form a [`chain`]. The two halves of a digest are mixed separately
//! (two rounds of folded multiplication each, as in wyhash). Two of the `n` states of an exploration
//! have the same digest with a probability of about `n² / 2^129`.

/// A digest.
pub(crate) type Digest = u128;

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

const KEYS: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// Returns the digest of a value at a place.
#[inline(always)]
pub(crate) fn mix(place: u64, value: u64) -> Digest {
    let low = fold(fold(place ^ KEYS[0], value ^ KEYS[1]) ^ value, KEYS[2] ^ place);
    let high =
        fold(fold(value ^ KEYS[2], place.rotate_left(32) ^ KEYS[3]) ^ place, KEYS[0] ^ value);
    Digest::from(high) << 64 | Digest::from(low)
}

/// Returns the digest of a sequence that has grown by one element.
#[inline]
pub(crate) fn chain(before: Digest, next: Digest) -> Digest {
    let (low, high) = (before as u64, (before >> 64) as u64);
    let first = mix(low ^ KEYS[3], next as u64 ^ high);
    first.wrapping_add(mix(high.rotate_left(17), (next >> 64) as u64 ^ low)).rotate_left(1) ^ before
}

/// Returns the digest of some bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> Digest {
    bytes.chunks(8).fold(mix(bytes.len() as u64, 0), |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        chain(digest, mix(0, u64::from_le_bytes(word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn small_values_at_near_places_do_not_collide() {
        let mut seen = BTreeSet::new();
        for place in 0..300 {
            for value in 0..300 {
                assert!(seen.insert(mix(place, value)));
            }
        }
        let low: BTreeSet<_> = seen.iter().map(|digest| *digest as u64).collect();
        let high: BTreeSet<_> = seen.iter().map(|digest| (*digest >> 64) as u64).collect();
        assert_eq!((low.len(), high.len()), (seen.len(), seen.len()));
    }

    #[test]
    fn a_chain_knows_its_order() {
        let (a, b) = (mix(1, 1), mix(1, 2));
        assert_ne!(chain(chain(0, a), b), chain(chain(0, b), a));
        assert_ne!(chain(chain(0, a), a), chain(0, a));
    }
}
