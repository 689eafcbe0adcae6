//! The bytes that the layer puts into a datagram.
//!
//! Invariant: a datagram names both ends' incarnations once, and every packet in it belongs to the
//! session between exactly these two lives. Numbers are little-endian, whatever the machine.
//! Decoding trusts nothing: bytes that do not fit are no packet.
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
//! A datagram without packets is a *notice*: "the life you write to is over; this is the next one".

use crate::address::Incarnation;
use std::ops::Range;

/// Bytes before a datagram's first packet.
pub const DATAGRAM_HEADER_BYTES: usize = 8;
/// Bytes before a packet's payload.
pub const PACKET_HEADER_BYTES: usize = 32;

const MAGIC: u16 = 0x7a01;
const FLAG_FIFO: u8 = 1;
const FLAG_AGAIN: u8 = 2;

/// The ends of a datagram, as its sender believes them to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The sender's life.
    pub from: Incarnation,
    /// The life written to.
    pub to: Incarnation,
}

/// A packet's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketKind {
    /// Client to server: a fragment of a request.
    Request = 1,
    /// Server to client: a fragment of a reply.
    Reply = 2,
    /// Server to client: `fragment` is the first fragment of the request that is missing.
    Ack = 3,
    /// Client to server: `fragment` is the first fragment of the reply that is missing.
    More = 4,
}

/// A packet's header, less the length of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The packet's kind.
    pub kind: PacketKind,
    /// Requests: to be handed to the handler in the order of their numbers.
    pub fifo: bool,
    /// Sent because a time-out expired.
    pub again: bool,
    /// The client's slot.
    pub slot: u16,
    /// Requests: the handler to run.
    pub handler: u16,
    /// The client's number for the call, from 1, unique in the session.
    pub seq: u64,
    /// Requests and replies: bytes of the whole message.
    pub total_bytes: u32,
    /// The fragment's number; see [`PacketKind`].
    pub fragment: u32,
    /// Requests: `seq` minus the smallest number the client has not given up or finished.
    pub floor_lag: u32,
}

/// Starts a datagram in `out`.
pub fn put_ends(out: &mut Vec<u8>, ends: Ends) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&ends.from.0.to_le_bytes());
    out.extend_from_slice(&ends.to.0.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
}

/// Says how many packets the datagram in `out` holds.
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

/// Splits a datagram into its ends and its packets; `None` if it is not one of ours.
pub fn take_ends(datagram: &[u8]) -> Option<(Ends, &[u8])> {
    let (header, packets) = datagram.split_at_checked(DATAGRAM_HEADER_BYTES)?;
    let ends = Ends { from: Incarnation(u16_at(header, 2)), to: Incarnation(u16_at(header, 4)) };
    let sound = u16_at(header, 0) == MAGIC && (u16_at(header, 6) == 0) == packets.is_empty();
    sound.then_some((ends, packets))
}

/// Takes the first packet off `packets`; `None` at the end, or at bytes that are no packet.
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

/// How messages are cut: all fragments but the last have the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// Payload bytes of one fragment.
    pub bytes: usize,
}

impl Fragments {
    /// Fragments of as many payload bytes as one packet alone in a datagram carries.
    pub fn for_datagrams_of(bytes_max: usize) -> Fragments {
        let overhead = DATAGRAM_HEADER_BYTES + PACKET_HEADER_BYTES;
        assert!(bytes_max > overhead, "a datagram of {bytes_max} bytes carries no packet");
        Fragments { bytes: (bytes_max - overhead).min(usize::from(u16::MAX)) }
    }

    /// Returns the number of fragments of a message; an empty one has one.
    #[inline]
    pub fn count(self, total_bytes: usize) -> u32 {
        if total_bytes <= self.bytes { 1 } else { total_bytes.div_ceil(self.bytes) as u32 }
    }

    /// The bytes of fragment `index`, which must exist.
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
