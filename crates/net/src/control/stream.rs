//! One end of a control connection: frames in and out, without waiting.
//!
//! Invariant: until the first sealed frame has come from a machine, it gets no more than [`UNKNOWN_BYTES_MAX`] of the decider's memory. A
//! frame with a wrong seal, length or text ends the connection, and so does an end that does not read.
//!
//! | bytes | |
//! |---|---|
//! | 0..16, once | the nonce of the end that sends |
//! | 0..4 of a frame | the number of bytes of the text |
//! | 4..20 | the seal: SipHash-2-4 with 128 bits over direction, both nonces, the frame's number, and the text |
//! | 20.. | the text, JSON |

use crate::os;
use serde::Serialize;
use serde::de::DeserializeOwned;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, RawFd};
use tarn_locks::wire::Key;

const NONCE_BYTES: usize = 16;
const FRAME_HEADER_BYTES: usize = 20;
/// The greatest frame of an end that has not shown the key yet.
pub const UNKNOWN_BYTES_MAX: usize = 1 << 14;
/// The greatest frame.
pub const FRAME_BYTES_MAX: usize = 1 << 28;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 16;

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The decider.
    Decider,
    /// A machine, or a program that asks for the state.
    Machine,
}

/// The reason why a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The other end is gone.
    Gone,
    /// The other end does not know the key, or breaks the format.
    Refused,
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    side: Side,
    key: Key,
    own: [u8; NONCE_BYTES],
    other: Option<[u8; NONCE_BYTES]>,
    sent: u64,
    received: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Texts that wait for the other end's nonce.
    waiting: Vec<Vec<u8>>,
}

impl Stream {
    /// One end of a connection that is or will be open.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(tcp: TcpStream, side: Side, key: Key) -> io::Result<Stream> {
        tcp.set_nonblocking(true)?;
        _ = tcp.set_nodelay(true);
        let own = os::random()?;
        Ok(Stream {
            tcp,
            side,
            key,
            own,
            other: None,
            sent: 0,
            received: 0,
            input: Vec::new(),
            output: own.to_vec(),
            waiting: Vec::new(),
        })
    }

    /// The descriptor to sleep on.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }

    /// Whether bytes wait to be written.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether the other end has shown that it knows the key.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.received > 0
    }

    fn seal(&self, by: Side, number: u64, text: &[u8]) -> [u8; 16] {
        let other = self.other.unwrap_or_default();
        let (decider, machine) = match self.side {
            Side::Decider => (self.own, other),
            Side::Machine => (other, self.own),
        };
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        // No datagram begins so: a seal of one kind is none of the other.
        hasher.write(if by == Side::Decider { b"control decider " } else { b"control machine " });
        hasher.write(&decider);
        hasher.write(&machine);
        hasher.write(&number.to_le_bytes());
        hasher.write(text);
        hasher.finish128().as_bytes()
    }

    /// Sends a message, as far as that needs no waiting.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Ended> {
        let text = serde_json::to_vec(message).map_err(|_| Ended::Refused)?;
        if self.output.len() + text.len() > FRAME_BYTES_MAX {
            return Err(Ended::Gone);
        }
        match self.other {
            Some(_) => self.frame(&text),
            None => self.waiting.push(text),
        }
        self.write()
    }

    fn frame(&mut self, text: &[u8]) {
        let seal = self.seal(self.side, self.sent, text);
        self.sent += 1;
        self.output.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.output.extend_from_slice(&seal);
        self.output.extend_from_slice(text);
    }

    /// Writes as much as the system takes.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn write(&mut self) -> Result<(), Ended> {
        while !self.output.is_empty() {
            match self.tcp.write(&self.output) {
                Ok(0) => return Err(Ended::Gone),
                Ok(count) => _ = self.output.drain(..count),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended::Gone),
            }
        }
        Ok(())
    }

    /// Reads all messages that are there.
    ///
    /// # Errors
    /// The connection has ended. Messages that came before that are in `messages`.
    pub fn read<M: DeserializeOwned>(&mut self, messages: &mut Vec<M>) -> Result<(), Ended> {
        let mut room = [0; READ_BYTES];
        loop {
            match self.tcp.read(&mut room) {
                Ok(0) => return Err(Ended::Gone),
                Ok(count) => {
                    self.input.extend_from_slice(&room[..count]);
                    self.take(messages)?;
                }
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Ended::Gone),
            }
        }
    }

    fn take<M: DeserializeOwned>(&mut self, messages: &mut Vec<M>) -> Result<(), Ended> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        if self.other.is_none() {
            let Some((nonce, after)) = rest.split_first_chunk() else {
                self.input = input;
                return Ok(());
            };
            (self.other, rest) = (Some(*nonce), after);
            for text in std::mem::take(&mut self.waiting) {
                self.frame(&text);
            }
            self.write()?;
        }
        while let Some((header, after)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() {
            let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
            // A machine has chosen its decider; a decider has not chosen those that connect.
            let is_trusted = self.side == Side::Machine || self.is_known();
            if length > if is_trusted { FRAME_BYTES_MAX } else { UNKNOWN_BYTES_MAX } {
                return Err(Ended::Refused);
            }
            let Some((text, after)) = after.split_at_checked(length) else { break };
            let by = if self.side == Side::Decider { Side::Machine } else { Side::Decider };
            let seal = self.seal(by, self.received, text);
            let differs = seal.iter().zip(&header[4..]).fold(0, |all, (a, b)| all | (a ^ b));
            if differs != 0 {
                return Err(Ended::Refused);
            }
            self.received += 1;
            messages.push(serde_json::from_slice(text).map_err(|_| Ended::Refused)?);
            rest = after;
        }
        self.input = rest.to_vec();
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
        || error.raw_os_error() == Some(libc::EINPROGRESS)
}
