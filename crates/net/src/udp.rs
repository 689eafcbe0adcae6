//! A UDP socket that receives and sends many datagrams with one system call.
//!
//! Invariants: a datagram is whole or absent: the room for one is as large as a datagram can be. Sending never waits; a datagram that the
//! system does not take is lost, and the protocol sends its packets again.

use crate::faults::Faults;
use crate::os::{self, Address};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Datagrams that one system call receives.
const RECEIVED_MAX: usize = 16;
/// Datagrams that one system call sends.
const SENT_MAX: usize = 64;
/// The room for one datagram.
const DATAGRAM_BYTES: usize = 1 << 16;
/// Bytes that the system keeps for a socket, if it may. Source: 4,000 datagrams of 1,400 bytes.
const BUFFER_BYTES: i32 = 4 << 20;
/// A sleeping reader looks around after this time.
pub const NAP: Duration = Duration::from_millis(10);

/// A socket.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    faults: Option<Faults>,
}

impl Socket {
    /// A socket at an address.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(at: SocketAddr, faults: Option<Faults>) -> io::Result<Socket> {
        let udp = UdpSocket::bind(at)?;
        udp.set_read_timeout(Some(NAP))?;
        os::set_buffers(udp.as_raw_fd(), BUFFER_BYTES);
        Ok(Socket { udp, faults })
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// The descriptor to sleep on.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.udp.as_raw_fd()
    }

    /// Sends datagrams. Returns how many the system has taken.
    pub fn send(&self, datagrams: &[(Address, &[u8])]) -> usize {
        match &self.faults {
            None => self.transmit(datagrams),
            Some(faults) => {
                faults.pass(datagrams, |datagrams| self.transmit(datagrams));
                datagrams.len()
            }
        }
    }

    fn transmit(&self, datagrams: &[(Address, &[u8])]) -> usize {
        datagrams.chunks(SENT_MAX).map(|chunk| self.transmit_chunk(chunk)).sum()
    }

    fn transmit_chunk(&self, datagrams: &[(Address, &[u8])]) -> usize {
        if let [(to, bytes)] = datagrams {
            let (at, len) = (bytes.as_ptr().cast(), bytes.len());
            let name = (&raw const to.storage).cast();
            // SAFETY: the bytes and the address live during the call.
            let sent =
                unsafe { libc::sendto(self.fd(), at, len, libc::MSG_DONTWAIT, name, to.len) };
            return usize::from(sent >= 0);
        }
        // SAFETY: all bytes zero are valid for both.
        let (mut parts, mut headers): ([libc::iovec; SENT_MAX], [libc::mmsghdr; SENT_MAX]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for (at, (to, bytes)) in datagrams.iter().enumerate() {
            parts[at] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let header = &mut headers[at].msg_hdr;
            header.msg_name = (&raw const to.storage).cast_mut().cast();
            header.msg_namelen = to.len;
            header.msg_iov = &raw mut parts[at];
            header.msg_iovlen = 1;
        }
        let (headers, count) = (headers.as_mut_ptr(), datagrams.len() as libc::c_uint);
        // SAFETY: each header points to an address and to bytes that live during the call, and are not written.
        let sent = unsafe { libc::sendmmsg(self.fd(), headers, count, libc::MSG_DONTWAIT) };
        sent.max(0) as usize
    }
}

/// The room for datagrams that arrive.
pub struct Inbox {
    /// Headers, whose pointers are into the other two. A box does not move what it holds.
    headers: Box<[libc::mmsghdr]>,
    names: Box<[libc::sockaddr_storage]>,
    parts: Box<[libc::iovec]>,
    bytes: Box<[u8]>,
}

// SAFETY: the pointers of the headers lead only into the boxes of the same value.
unsafe impl Send for Inbox {}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

impl Inbox {
    /// An empty inbox.
    #[must_use]
    pub fn new() -> Inbox {
        // SAFETY: all bytes zero are valid for each of the three.
        let mut inbox = unsafe {
            Inbox {
                headers: vec![std::mem::zeroed(); RECEIVED_MAX].into(),
                names: vec![std::mem::zeroed(); RECEIVED_MAX].into(),
                parts: vec![std::mem::zeroed(); RECEIVED_MAX].into(),
                bytes: vec![0; RECEIVED_MAX * DATAGRAM_BYTES].into(),
            }
        };
        for (at, room) in inbox.bytes.chunks_exact_mut(DATAGRAM_BYTES).enumerate() {
            inbox.parts[at] =
                libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: DATAGRAM_BYTES };
            let header = &mut inbox.headers[at].msg_hdr;
            header.msg_iov = &raw mut inbox.parts[at];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut inbox.names[at]).cast();
        }
        inbox
    }

    /// Receives the datagrams that are there; if `waits`, sleeps for the first one for [`NAP`] at most. Returns their number.
    pub fn receive(&mut self, socket: &Socket, waits: bool) -> usize {
        for header in &mut self.headers {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        let flags = if waits { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        let (headers, count) = (self.headers.as_mut_ptr(), RECEIVED_MAX as libc::c_uint);
        // SAFETY: the headers point into this value's boxes, which live and are borrowed alone during the call.
        let got = unsafe {
            libc::recvmmsg(socket.fd(), headers, count, flags as _, std::ptr::null_mut())
        };
        got.max(0) as usize
    }

    /// One of the datagrams that were received last, and its sender.
    #[must_use]
    pub fn datagram(&self, at: usize) -> (&[u8], Option<SocketAddr>) {
        let from = at * DATAGRAM_BYTES;
        let len = self.headers[at].msg_len as usize;
        (&self.bytes[from..from + len], os::socket_address(&self.names[at]))
    }

    /// Whether more datagrams may be waiting than one call has received.
    #[must_use]
    pub fn is_full(received: usize) -> bool {
        received == RECEIVED_MAX
    }
}
