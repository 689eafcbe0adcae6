//! The layout of the bytes that the RPC layer puts into a datagram.
//!
//! Invariant: a datagram names the incarnations of its sender and its receiver once. Every packet in the datagram
//! belongs to the session between exactly these two incarnations. Numbers are little-endian on every machine.
//! Decoding checks all bytes, and bytes that are not a valid packet are ignored.
//!
//! ```text
//! datagram  0        2        4        6        8
//!          | magic  | from   | to     | packets |  packet …
//!          |        | incarn.| incarn.|         |
//! packet    0     1      2       4             8                  16
//!          |kind |flags | slot  | total bytes |  sequence number |
//!           16        18         20           24           28     32
//!          | handler | payload  | fragment   | floor lag  | zero | payload …
//!          |         | bytes    |            |            |      |
//! ```
//!
//! A datagram without packets is a *notice*. A notice tells the receiver that its datagrams went to an incarnation
//! that has ended, and names the sender's new incarnation.

use crate::address::Incarnation;
use std::ops::Range;

/// The number of bytes before a datagram's first packet.
pub const DATAGRAM_HEADER_BYTES: usize = 8;
/// The number of bytes of a packet before its payload.
pub const PACKET_HEADER_BYTES: usize = 32;

const MAGIC: u16 = 0x7a01;
const FLAG_FIFO: u8 = 1;
const FLAG_AGAIN: u8 = 2;

/// The incarnations of a datagram's sender and receiver, as the sender knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The incarnation of the sender.
    pub from: Incarnation,
    /// The incarnation of the receiver to which the datagram is sent.
    pub to: Incarnation,
}

/// The kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketKind {
    /// The client sends a fragment of a request to the server.
    Request = 1,
    /// The server sends a fragment of a reply to the client.
    Reply = 2,
    /// The server tells the client that `fragment` is the first missing fragment of the request.
    Ack = 3,
    /// The client tells the server that `fragment` is the first missing fragment of the reply.
    More = 4,
}

/// The header of a packet, without the length of the packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The packet's kind.
    pub kind: PacketKind,
    /// For a request, whether the server must pass requests to their handlers in the order of their numbers.
    pub fifo: bool,
    /// Whether the packet was sent again because a time-out expired.
    pub again: bool,
    /// The number of the client's slot.
    pub slot: u16,
    /// For a request, the number of the handler that must run.
    pub handler: u16,
    /// The number that the client gave to the call. Numbers start at 1 and are unique in the session.
    pub seq: u64,
    /// For a request or a reply, the number of bytes of the whole message.
    pub total_bytes: u32,
    /// The number of a fragment: see [`PacketKind`].
    pub fragment: u32,
    /// For a request, `seq` minus the smallest number of a call that the client has not abandoned or finished.
    pub floor_lag: u32,
}

/// Starts a datagram in `out` with the incarnations `ends`.
pub fn put_ends(out: &mut Vec<u8>, ends: Ends) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&ends.from.0.to_le_bytes());
    out.extend_from_slice(&ends.to.0.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
}

/// Writes the number of packets into the datagram in `out`.
pub fn put_count(out: &mut [u8], packets: u16) {
    out[6..8].copy_from_slice(&packets.to_le_bytes());
}

/// Appends a packet to the datagram in `out`.
pub fn put_packet(out: &mut Vec<u8>, header: &Header, payload: &[u8]) {
    let mut bytes = [0; PACKET_HEADER_BYTES];
    let flags = (u8::from(header.fifo) * FLAG_FIFO) | (u8::from(header.again) * FLAG_AGAIN);
    bytes[0] = header.kind as u8;
    bytes[1] = flags;
    bytes[2..4].copy_from_slice(&header.slot.to_le_bytes());
    bytes[4..8].copy_from_slice(&header.total_bytes.to_le_bytes());
    bytes[8..16].copy_from_slice(&header.seq.to_le_bytes());
    bytes[16..18].copy_from_slice(&header.handler.to_le_bytes());
    bytes[18..20].copy_from_slice(&(payload.len() as u16).to_le_bytes());
    bytes[20..24].copy_from_slice(&header.fragment.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.floor_lag.to_le_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(payload);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Splits a datagram into its incarnations and its packets. Returns `None` if the datagram is not a datagram of this
/// layer.
pub fn take_ends(datagram: &[u8]) -> Option<(Ends, &[u8])> {
    let (header, packets) = datagram.split_at_checked(DATAGRAM_HEADER_BYTES)?;
    let ends = Ends { from: Incarnation(u16_at(header, 2)), to: Incarnation(u16_at(header, 4)) };
    let sound = u16_at(header, 0) == MAGIC && (u16_at(header, 6) == 0) == packets.is_empty();
    sound.then_some((ends, packets))
}

/// Removes the first packet from `packets` and returns it. Returns `None` if no packet is left, or if the next bytes
/// are not a packet.
pub fn take_packet<'a>(packets: &mut &'a [u8]) -> Option<(Header, &'a [u8])> {
    let (bytes, rest) = packets.split_at_checked(PACKET_HEADER_BYTES)?;
    let kind = match bytes[0] {
        1 => PacketKind::Request,
        2 => PacketKind::Reply,
        3 => PacketKind::Ack,
        4 => PacketKind::More,
        _ => return None,
    };
    let mut seq = [0; 8];
    seq.copy_from_slice(&bytes[8..16]);
    let header = Header {
        kind,
        fifo: bytes[1] & FLAG_FIFO != 0,
        again: bytes[1] & FLAG_AGAIN != 0,
        slot: u16_at(bytes, 2),
        handler: u16_at(bytes, 16),
        seq: u64::from_le_bytes(seq),
        total_bytes: u32_at(bytes, 4),
        fragment: u32_at(bytes, 20),
        floor_lag: u32_at(bytes, 24),
    };
    let (payload, rest) = rest.split_at_checked(usize::from(u16_at(bytes, 18)))?;
    *packets = rest;
    Some((header, payload))
}

/// The way in which messages are split into fragments. All fragments of a message except the last have the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// The number of payload bytes of one fragment.
    pub bytes: usize,
}

impl Fragments {
    /// Creates fragments of the maximum size for which a packet fits into a datagram of `bytes_max` bytes.
    pub fn for_datagrams_of(bytes_max: usize) -> Fragments {
        let overhead = DATAGRAM_HEADER_BYTES + PACKET_HEADER_BYTES;
        assert!(bytes_max > overhead, "a datagram of {bytes_max} bytes carries no packet");
        Fragments { bytes: (bytes_max - overhead).min(usize::from(u16::MAX)) }
    }

    /// Returns the number of fragments of a message. An empty message has one fragment.
    #[inline]
    pub fn count(self, total_bytes: usize) -> u32 {
        if total_bytes <= self.bytes { 1 } else { total_bytes.div_ceil(self.bytes) as u32 }
    }

    /// Returns the range of the message's bytes that fragment `index` contains. The message must have a fragment with
    /// this number.
    #[inline]
    pub fn range(self, index: u32, total_bytes: usize) -> Range<usize> {
        let start = index as usize * self.bytes;
        start..(start + self.bytes).min(total_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_the_wire_and_rubbish_does_not() {
        let header = Header {
            kind: PacketKind::More,
            fifo: true,
            again: false,
            slot: 3,
            handler: 0x1234,
            seq: u64::MAX - 1,
            total_bytes: 77,
            fragment: 9,
            floor_lag: 5,
        };
        let ends = Ends { from: Incarnation(7), to: Incarnation(8) };
        let mut out = Vec::new();
        put_ends(&mut out, ends);
        put_packet(&mut out, &header, b"abc");
        put_packet(&mut out, &Header { again: true, ..header }, b"");
        put_count(&mut out, 2);
        let (seen, mut packets) = take_ends(&out).unwrap();
        assert_eq!(seen, ends);
        assert_eq!(take_packet(&mut packets), Some((header, &b"abc"[..])));
        assert_eq!(take_packet(&mut packets), Some((Header { again: true, ..header }, &b""[..])));
        assert_eq!(take_packet(&mut packets), None);
        for cut in 0..out.len() {
            let Some((_, mut packets)) = take_ends(&out[..cut]) else { continue };
            while take_packet(&mut packets).is_some() {}
        }
        out[0] ^= 1;
        assert_eq!(take_ends(&out), None);
    }

    #[test]
    fn fragments_cover_the_message_once() {
        let fragments = Fragments::for_datagrams_of(100);
        for total in [0, 1, 59, 60, 61, 120, 121, 1000] {
            let ranges = (0..fragments.count(total)).map(|index| fragments.range(index, total));
            let mut end = 0;
            for range in ranges {
                assert_eq!(range.start, end);
                end = range.end;
            }
            assert_eq!(end, total);
        }
    }
}
