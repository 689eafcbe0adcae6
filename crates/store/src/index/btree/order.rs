//! Sorts the slots of a node by their keys, so that a scan returns a leaf's entries in order.
//!
//! Invariant: the order contains exactly the used slots whose keys lie in the requested range, in ascending order of
//! the keys. An entry lies in the slots that its key hashes to, so every scan must sort them. Keys of one word are
//! sorted by their distances from LOW, so most keys need no comparison with another key.

use crate::layout::node::{Node, SLOTS_MAX, first_of};

/// The number of bits of a slot's number.
const SLOT_BITS: u32 = SLOTS_MAX.ilog2();

/// The slots of a leaf in the order of their keys. The memory of an `Order` is reused for the next leaf.
#[derive(Default)]
pub struct Order {
    slots: Vec<u8>,
}

impl Order {
    /// Fills the order with those slots of a node whose keys are in `from..=to`.
    pub fn fill(&mut self, node: Node<'_>, from: &[u8], to: &[u8]) {
        self.slots.clear();
        if let (Ok(from), Ok(to)) = (<[u8; 8]>::try_from(from), <[u8; 8]>::try_from(to)) {
            let range = (u64::from_be_bytes(from), u64::from_be_bytes(to));
            return self.fill_by_words(node, range);
        }
        let inside = |slot: &usize| (from..=to).contains(&node.key(*slot));
        self.slots.extend(node.used().filter(inside).map(|slot| slot as u8));
        let first = |slot: u8| first_of(node.key(usize::from(slot)));
        self.slots.sort_unstable_by(|&one, &other| {
            let rest = || node.key(usize::from(one)).cmp(node.key(usize::from(other)));
            first(one).cmp(&first(other)).then_with(rest)
        });
    }

    /// Does the same as [`Order::fill`] for keys of one word. This function combines a key's distance from LOW and
    /// the slot's number into one number, if both values fit, and sorts the combined numbers.
    fn fill_by_words(&mut self, node: Node<'_>, (from, to): (u64, u64)) {
        let (low, width) = (first_of(node.low()), to.wrapping_sub(from));
        let (mut numbers, mut count, mut all) = ([0; SLOTS_MAX + 1], 0, 0);
        for slot in node.used() {
            let key = first_of(node.key(slot));
            let beyond_low = key.wrapping_sub(low);
            numbers[count] = beyond_low << SLOT_BITS | slot as u64;
            all |= beyond_low;
            count += usize::from(key.wrapping_sub(from) <= width);
        }
        if all >> (64 - SLOT_BITS) == 0 {
            let numbers = &mut numbers[..count];
            sort_spread(numbers);
            self.slots.extend(numbers.iter().map(|&it| (it as usize % SLOTS_MAX) as u8));
            return;
        }
        let key = |slot: usize| first_of(node.key(slot));
        let inside = |&slot: &usize| (from..=to).contains(&key(slot));
        self.slots.extend(node.used().filter(inside).map(|slot| slot as u8));
        self.slots.sort_unstable_by_key(|&slot| key(usize::from(slot)));
    }

    /// The slots in ascending order of their keys.
    #[inline]
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.slots.iter().map(|&slot| usize::from(slot))
    }
}

/// The number of buckets into which [`sort_spread`] puts numbers. If a bucket has more than [`CROWD`] numbers, that
/// function uses an ordinary sort instead.
const BUCKETS: usize = 64;
const CROWD: u8 = 8;

/// Sorts the numbers of a leaf's slots. The function computes a likely position of each number from its distance to
/// the least number, and then sorts neighbours. If the numbers are not spread evenly, the function sorts them by
/// comparison.
fn sort_spread(numbers: &mut [u64]) {
    assert!(numbers.len() <= SLOTS_MAX);
    let (least, most) = numbers
        .iter()
        .fold((u64::MAX, 0), |(least, most), &number| (number.min(least), number.max(most)));
    let span_bits = 64 - most.saturating_sub(least).leading_zeros();
    let shift = span_bits.saturating_sub(BUCKETS.ilog2());
    let bucket = |number: u64| ((number - least) >> shift) as usize % BUCKETS;
    let mut starts = [0u8; BUCKETS];
    numbers.iter().for_each(|&number| starts[bucket(number)] += 1);
    let (mut before, mut crowd) = (0, 0);
    for start in &mut starts {
        let count = *start;
        (*start, before, crowd) = (before, before + count, crowd.max(count));
    }
    if crowd > CROWD {
        return numbers.sort_unstable();
    }
    let mut sorted = [0; SLOTS_MAX];
    for &number in numbers.iter() {
        let place = &mut starts[bucket(number)];
        sorted[usize::from(*place) % SLOTS_MAX] = number;
        *place += 1;
    }
    for at in 1..numbers.len() {
        let (number, mut to) = (sorted[at], at);
        while to > 0 && sorted[to - 1] > number {
            sorted[to] = sorted[to - 1];
            to -= 1;
        }
        sorted[to] = number;
    }
    numbers.copy_from_slice(&sorted[..numbers.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::node::{BITMAP_AT, NodeShape};

    #[test]
    fn numbers_are_sorted_however_they_are_spread() {
        for seed in 0..400u64 {
            let count = (seed % 65) as usize;
            let number = |at: u64| tarn_fabric::rng::mix(seed << 8 | at) >> (seed % 60);
            let mut numbers: Vec<u64> = (0..count as u64).map(number).collect();
            if seed.is_multiple_of(7) {
                numbers.iter_mut().skip(1).for_each(|number| *number >>= 20);
            }
            let mut wanted = numbers.clone();
            wanted.sort_unstable();
            sort_spread(&mut numbers);
            assert_eq!(numbers, wanted);
        }
    }

    #[test]
    fn slots_come_by_key() {
        let shape = NodeShape::of(8, 0);
        for spread in [1, 1 << 40, u64::MAX / 64] {
            let mut bytes = vec![0xff; shape.used_bytes(0)];
            bytes[..shape.header_bytes].fill(0);
            let mut bitmap = 0;
            for slot in (0..60).filter(|slot| slot % 5 != 0) {
                let key = (slot as u64 * 37 % 61) * spread;
                let at = shape.slot_at(0, slot);
                bytes[at..at + 8].copy_from_slice(&key.to_be_bytes());
                bitmap |= 1u64 << slot;
            }
            bytes[BITMAP_AT..BITMAP_AT + 8].copy_from_slice(&bitmap.to_le_bytes());
            let node = Node::new(&shape, &bytes);
            let (from, to) = ((4 * spread).to_be_bytes(), (50 * spread).to_be_bytes());
            let mut order = Order::default();
            order.fill(node, &from, &to);
            let keys: Vec<_> = order.slots().map(|slot| node.key(slot)).collect();
            let inside = |key: &&[u8]| (from.as_slice()..=&to).contains(key);
            assert!(keys.is_sorted() && keys.iter().all(inside));
            let inside =
                node.used().filter(|&slot| (from.as_slice()..=&to).contains(&node.key(slot)));
            assert_eq!(keys.len(), inside.count());
        }
    }
}
