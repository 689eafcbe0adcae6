//! Sessions: the state that a thread keeps about another thread, each in one life of its node. Also
//! the datagrams that are being filled for the other end.
//!
//! Invariant: a session's state belongs to exactly one pair of incarnations. One end may be found
//! to live on in a new incarnation. Then calls under way end in `NodeDown`, recorded replies and
//! half-received requests are forgotten, and numbers start over. Packets of the old pair no longer
//! match and are dropped. (Sessions and credits as in eRPC; Kalia, Kaminsky, Andersen, "Datacenter
//! RPCs can be General and Fast", NSDI 2019.)

use super::client::ClientHalf;
use super::server::ServerHalf;
use super::wire::{self, Ends, Fragments, Header};
use super::{RpcConfig, RpcStats};
use crate::address::{Incarnation, NodeId};
use crate::backend::Endpoint;
use crate::port::Port;

/// A thread of a node in one of its lives: the caller or the receiver of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The node, with its incarnation.
    pub node: NodeId,
    /// Its thread.
    pub thread: u16,
}

impl Peer {
    /// Returns the endpoint for messages to this peer.
    pub fn endpoint(self) -> Endpoint {
        Endpoint { node: self.node.slot, thread: self.thread }
    }
}

/// The way out, shared by all sessions of a thread.
pub struct Link {
    pub port: Port,
    pub incarnation: Incarnation,
    pub datagram_bytes: usize,
    pub fragments: Fragments,
    pub stats: RpcStats,
    /// Sessions whose outbox holds packets, in the order of their first.
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

    /// Tells a sender that writes to an earlier life of this node that this life is over.
    pub fn notify_of_new_life(&mut self, to: Endpoint, life: Incarnation) {
        let mut notice = Vec::with_capacity(wire::DATAGRAM_HEADER_BYTES);
        wire::put_ends(&mut notice, Ends { from: self.incarnation, to: life });
        self.send(to, &notice);
    }
}

/// Packets to one peer that wait to leave in one datagram.
pub struct Outbox {
    session: u32,
    to: Endpoint,
    ends: Ends,
    datagram: Vec<u8>,
    packets: u16,
    listed: bool,
}

impl Outbox {
    /// Adds a packet; sends the datagram first if it does not fit.
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

/// One peer's session; see the module's documentation.
pub struct Session {
    pub peer: Peer,
    /// Counts the lives of the pair; work for an older one is void.
    pub generation: u32,
    /// Whether our requests run in the order in which they were made.
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

    /// Returns the session with an endpoint, in any incarnation.
    pub fn find(&self, endpoint: Endpoint) -> Option<u32> {
        let found = self.by_endpoint.binary_search_by_key(&endpoint, |entry| entry.0);
        found.ok().map(|at| self.by_endpoint[at].1)
    }

    /// A new session; `None` if there are as many as allowed.
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

    /// Starts a session over with a later life of its peer. The caller has ended its calls.
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

    /// Sends all buffered packets.
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
