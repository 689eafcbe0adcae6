//! Frames of Ethernet, IPv4 and UDP around datagrams, and random numbers.
//!
//! Invariant: [`reply`] builds the answer's frame from the question's frame alone, byte by byte, without a
//! look at the program's output.

use crate::CONFIG;

/// The bytes of the headers before a datagram.
pub(crate) const HEADERS: usize = 14 + 20 + 8;

const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM_PORT: u16 = 50_001;

/// The one's complement of the sum of halves: RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let halves =
        header.chunks_exact(2).map(|half| u32::from(u16::from_be_bytes([half[0], half[1]])));
    let sum: u32 = halves.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A frame from a machine to the decider.
pub(crate) fn frame(datagram: &[u8]) -> Vec<u8> {
    build([TO, FROM], [[10, 0, 0, 2], [10, 0, 0, 1]], [FROM_PORT, CONFIG.port], (17, datagram))
}

/// The frame of an answer to a frame of [`frame`].
pub(crate) fn reply(datagram: &[u8]) -> Vec<u8> {
    build([FROM, TO], [[10, 0, 0, 1], [10, 0, 0, 2]], [CONFIG.port, FROM_PORT], (64, datagram))
}

fn build(
    ethernet: [[u8; 6]; 2],
    addresses: [[u8; 4]; 2],
    ports: [u16; 2],
    (lives, datagram): (u8, &[u8]),
) -> Vec<u8> {
    let mut frame = ethernet.concat();
    frame.extend([8, 0]);
    let mut ipv4 = vec![0x45, 0];
    ipv4.extend((28 + datagram.len() as u16).to_be_bytes());
    ipv4.extend([0x12, 0x34, 0x40, 0, lives, 17, 0, 0]);
    addresses.iter().for_each(|address| ipv4.extend(address));
    let sum = checksum(&ipv4);
    ipv4[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ipv4);
    ports.iter().for_each(|port| frame.extend(port.to_be_bytes()));
    frame.extend((8 + datagram.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(datagram);
    frame
}

/// SplitMix64 of Steele, Lea and Flood, OOPSLA 2014.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `of` draws.
    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}
