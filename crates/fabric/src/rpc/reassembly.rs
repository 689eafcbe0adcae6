//! Reassembles a message whose fragments arrive in any order, some of them twice.
//!
//! Invariant: each byte is written once, and the message is complete when every fragment has arrived. A reassembly
//! never takes more memory than the largest message. A buffer is reused for the next message, unless it is larger
//! than [`KEEP_BYTES`].

use super::wire::Fragments;

/// If a buffer is larger than this number of bytes, its memory returns to the allocator after use.
pub const KEEP_BYTES: usize = 64 << 10;

/// Empties a buffer so that it can be reused.
pub fn recycle(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEEP_BYTES {
        *buffer = Vec::new();
    }
    buffer.clear();
}

/// One message that is being reassembled. See the module's documentation.
#[derive(Default)]
pub struct Reassembly {
    /// The bytes of the message. Only the bytes of fragments that have arrived have a meaning.
    pub bytes: Vec<u8>,
    seen: Vec<u64>,
    count: u32,
    arrived: u32,
    first_missing: u32,
}

impl Reassembly {
    /// Starts the reassembly of a message of `total_bytes` bytes.
    pub fn begin(&mut self, fragments: Fragments, total_bytes: usize) {
        recycle(&mut self.bytes);
        self.bytes.resize(total_bytes, 0);
        self.count = fragments.count(total_bytes);
        self.seen.clear();
        self.seen.resize(self.count.div_ceil(64) as usize, 0);
        self.arrived = 0;
        self.first_missing = 0;
    }

    /// Removes the message that is being reassembled.
    pub fn clear(&mut self) {
        recycle(&mut self.bytes);
        self.count = 0;
        self.arrived = 0;
        self.first_missing = 0;
    }

    /// Whether the reassembly of a message was begun.
    pub fn has_begun(&self) -> bool {
        self.count > 0
    }

    /// Adds a fragment to the message. `insert` ignores a fragment that does not belong to this message.
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

    /// Whether every fragment of the message has arrived.
    pub fn is_complete(&self) -> bool {
        self.arrived == self.count
    }

    /// Returns the number of the first missing fragment. If no fragment is missing, returns the number of fragments.
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
