//! Sessions: the state that a thread keeps about another thread. A session belongs to one incarnation of each
//! thread's node. This file also fills the datagrams for the other thread.
//!
//! Invariant: a session's state belongs to exactly one pair of incarnations. If the layer learns that the other end
//! has a new incarnation, unfinished calls end in `NodeDown`. The session then removes recorded replies and
//! half-received requests, and numbers of calls start again. Packets of the old pair of incarnations no longer match
//! the session, so the layer drops them. (Sessions and credits follow eRPC; Kalia, Kaminsky, Andersen, "Datacenter
//! RPCs can be General and Fast", NSDI 2019.)

use super::client::ClientHalf;
use super::server::ServerHalf;
use super::wire::{self, Ends, Fragments, Header};
use super::{RpcConfig, RpcStats};
use crate::address::{Incarnation, NodeId};
use crate::backend::Endpoint;
use crate::port::Port;

/// A thread of one incarnation of a node. The thread is the caller or the receiver of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The node of the thread, with its incarnation.
    pub node: NodeId,
    /// The number of the thread on the node.
    pub thread: u16,
}

impl Peer {
    /// Returns the endpoint for messages to this peer.
    pub fn endpoint(self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.thread }
    }
}

/// The data for sending datagrams, which all sessions of a thread share.
pub struct Link {
    pub port: Port,
    pub incarnation: Incarnation,
    pub datagram_bytes: usize,
    pub fragments: Fragments,
    pub stats: RpcStats,
    /// The sessions whose outbox contains packets. The session whose first packet is oldest comes first.
    dirty: Vec<u32>,
}

impl Link {
    pub fn new(port: Port) -> Link {
        let datagram_bytes = port.caps().datagram_bytes_max;
        let fragments = Fragments::for_datagrams_of(datagram_bytes);
        let incarnation = port.node().incarnation;
        let (stats, dirty) = (RpcStats::default(), Vec::new());
        Link { port, incarnation, datagram_bytes, fragments, stats, dirty }
    }

    fn send(&mut self, to: Endpoint, datagram: &[u8]) {
        self.stats.datagrams += 1;
        let sent = self.port.send(to, datagram);
        debug_assert!(sent.is_ok(), "datagrams are cut to the port's limit: {sent:?}");
    }

    /// Tells a sender of datagrams to an earlier incarnation of this node that this incarnation has ended.
    pub fn notify_of_new_life(&mut self, to: Endpoint, life: Incarnation) {
        let mut notice = Vec::with_capacity(wire::DATAGRAM_HEADER_BYTES);
        wire::put_ends(&mut notice, Ends { from: self.incarnation, to: life });
        self.send(to, &notice);
    }
}

/// The packets to one peer that will be sent together in one datagram.
pub struct Outbox {
    session: u32,
    to: Endpoint,
    ends: Ends,
    datagram: Vec<u8>,
    packets: u16,
    listed: bool,
}

impl Outbox {
    /// Adds a packet to the datagram. If the datagram has no room for the packet, the function first sends the
    /// datagram and begins a new one.
    pub fn push(&mut self, link: &mut Link, header: &Header, payload: &[u8]) {
        let bytes = wire::PACKET_HEADER_BYTES + payload.len();
        if self.datagram.len() + bytes > link.datagram_bytes {
            self.flush(link);
        }
        if self.datagram.is_empty() {
            wire::put_ends(&mut self.datagram, self.ends);
        }
        if !self.listed {
            self.listed = true;
            link.dirty.push(self.session);
        }
        wire::put_packet(&mut self.datagram, header, payload);
        self.packets += 1;
        link.stats.packets += 1;
    }

    fn flush(&mut self, link: &mut Link) {
        if self.packets > 0 {
            wire::put_count(&mut self.datagram, self.packets);
            link.send(self.to, &self.datagram);
        }
        self.datagram.clear();
        self.packets = 0;
    }
}

/// The session with one peer. See the module's documentation.
pub struct Session {
    pub peer: Peer,
    /// The number of times that the session was renewed. Work that belongs to an older number is not done.
    pub generation: u32,
    /// Whether the peer must run this thread's requests in the order of the calls.
    pub fifo: bool,
    pub outbox: Outbox,
    pub client: ClientHalf,
    pub server: ServerHalf,
}

/// All sessions of a thread.
pub struct Sessions {
    pub list: Vec<Session>,
    by_endpoint: Vec<(Endpoint, u32)>,
    sessions_max: usize,
}

impl Sessions {
    pub fn new(config: &RpcConfig) -> Sessions {
        let sessions_max = config.sessions_max;
        Sessions { list: Vec::new(), by_endpoint: Vec::new(), sessions_max }
    }

    /// Returns the session with an endpoint, whatever the peer's incarnation is.
    pub fn find(&self, endpoint: Endpoint) -> Option<u32> {
        let found = self.by_endpoint.binary_search_by_key(&endpoint, |entry| entry.0);
        found.ok().map(|at| self.by_endpoint[at].1)
    }

    /// Creates a session with `peer`. Returns `None` if the maximum number of sessions already exists.
    pub fn add(&mut self, peer: Peer, link: &Link) -> Option<u32> {
        if self.list.len() == self.sessions_max {
            return None;
        }
        let index = self.list.len() as u32;
        let endpoint = peer.endpoint();
        let at = self.by_endpoint.partition_point(|entry| entry.0 < endpoint);
        self.by_endpoint.insert(at, (endpoint, index));
        let outbox = Outbox {
            session: index,
            to: endpoint,
            ends: Ends { from: link.incarnation, to: peer.node.incarnation },
            datagram: Vec::new(),
            packets: 0,
            listed: false,
        };
        let (client, server) = (ClientHalf::default(), ServerHalf::default());
        self.list.push(Session { peer, generation: 0, fifo: false, outbox, client, server });
        Some(index)
    }

    /// Restarts a session for a later incarnation of its peer. The caller must first end the session's calls.
    pub fn renew(&mut self, index: u32, incarnation: Incarnation) {
        let session = &mut self.list[index as usize];
        session.peer.node.incarnation = incarnation;
        session.generation += 1;
        session.outbox.ends.to = incarnation;
        session.outbox.datagram.clear();
        session.outbox.packets = 0;
        session.client = ClientHalf::default();
        session.server = ServerHalf::default();
    }

    /// Sends the packets of all sessions' outboxes.
    pub fn flush(&mut self, link: &mut Link) {
        let mut dirty = std::mem::take(&mut link.dirty);
        for index in dirty.drain(..) {
            let outbox = &mut self.list[index as usize].outbox;
            outbox.listed = false;
            outbox.flush(link);
        }
        link.dirty = dirty;
    }
}
