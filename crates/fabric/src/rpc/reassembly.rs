//! A message that arrives in fragments, in any order, some twice.
//!
//! Invariant: each byte is written once, and the message is complete when every fragment has been
//! seen. Memory is bounded by the largest message; buffers are kept for the next message unless they
//! are larger than [`KEEP_BYTES`].

use super::wire::Fragments;

/// Buffers above this size are given back to the allocator after use.
pub const KEEP_BYTES: usize = 64 << 10;

/// Empties a buffer for reuse.
pub fn recycle(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEEP_BYTES {
        *buffer = Vec::new();
    }
    buffer.clear();
}

/// One message being put together; see the module's text.
#[derive(Default)]
pub struct Reassembly {
    /// The message; meaningful where fragments have arrived.
    pub bytes: Vec<u8>,
    seen: Vec<u64>,
    count: u32,
    arrived: u32,
    first_missing: u32,
}

impl Reassembly {
    /// Starts a message of `total_bytes`.
    pub fn begin(&mut self, fragments: Fragments, total_bytes: usize) {
        recycle(&mut self.bytes);
        self.bytes.resize(total_bytes, 0);
        self.count = fragments.count(total_bytes);
        self.seen.clear();
        self.seen.resize(self.count.div_ceil(64) as usize, 0);
        self.arrived = 0;
        self.first_missing = 0;
    }

    /// Forgets the message.
    pub fn clear(&mut self) {
        recycle(&mut self.bytes);
        self.count = 0;
        self.arrived = 0;
        self.first_missing = 0;
    }

    /// Whether a message was begun.
    pub fn has_begun(&self) -> bool {
        self.count > 0
    }

    /// Takes a fragment in; ignores one that does not belong to this message.
    pub fn insert(&mut self, fragments: Fragments, index: u32, payload: &[u8]) {
        if index >= self.count {
            return;
        }
        let range = fragments.range(index, self.bytes.len());
        let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
        if range.len() != payload.len() || self.seen[word] & bit != 0 {
            return;
        }
        self.bytes[range].copy_from_slice(payload);
        self.seen[word] |= bit;
        self.arrived += 1;
        while self.first_missing < self.count && self.has(self.first_missing) {
            self.first_missing += 1;
        }
    }

    fn has(&self, index: u32) -> bool {
        self.seen[(index / 64) as usize] & (1 << (index % 64)) != 0
    }

    /// Whether every fragment has arrived.
    pub fn is_complete(&self) -> bool {
        self.arrived == self.count
    }

    /// The first fragment that is missing; the number of fragments if none is.
    pub fn first_missing(&self) -> u32 {
        self.first_missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_with_repetitions_gives_the_message() {
        let fragments = Fragments::for_datagrams_of(50);
        let message: Vec<u8> = (0..1234u32).map(|n| (n * 7) as u8).collect();
        let count = fragments.count(message.len());
        let mut reassembly = Reassembly::default();
        reassembly.begin(fragments, message.len());
        reassembly.insert(fragments, count, b"beyond the end");
        reassembly.insert(fragments, 0, b"short");
        for step in 0..count {
            let index = step * 55 % count; // 55 and 124 have no common divisor
            assert!(!reassembly.is_complete());
            let payload = &message[fragments.range(index, message.len())];
            reassembly.insert(fragments, index, payload);
            reassembly.insert(fragments, index, payload);
        }
        assert!(reassembly.is_complete());
        assert_eq!(reassembly.first_missing(), count);
        assert_eq!(reassembly.bytes, message);
    }
}
