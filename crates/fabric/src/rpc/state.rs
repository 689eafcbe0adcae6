//! The state of one thread's RPC layer, without the handlers.
//!
//! Invariant: the state is not borrowed while a handler runs, or while a closure that fills a message runs. A handler
//! or closure may call, notify and reply, and these functions borrow the state.
//!
//! The state has these bounds:
//! - The number of sessions is at most `sessions_max`.
//! - Per session, the number of calls in flight, the number of recorded replies, and the number of messages that are
//!   being reassembled are each at most `credits`. Each of these messages has at most `message_bytes_max` bytes.
//! - Per session, at most `queue_max` calls wait, and at most one datagram is being filled.
//! - At most 256 buffers of at most 64 KiB are kept for reuse.

use super::RpcConfig;
use super::client::Calls;
use super::server::Work;
use super::session::{Link, Peer, Sessions};
use super::wire::{self, Ends, Header, PacketKind};
use crate::address::NodeId;
use crate::backend::Endpoint;
use crate::clock::Nanos;
use crate::error::FabricError;
use crate::port::Port;
use std::cmp::Ordering;

/// The state of one thread's layer. See the module's documentation. The methods for calling are in `client`, and the
/// methods for answering are in `server`.
pub struct State {
    pub config: RpcConfig,
    pub link: Link,
    pub sessions: Sessions,
    pub calls: Calls,
    /// The time, which the layer reads once per poll and once per call.
    pub now: Nanos,
    /// For each handler number, whether a handler with this number is registered.
    pub handlers_known: Vec<bool>,
    /// The sessions and slots whose client must be told which fragments have arrived.
    pub acks_due: Vec<(u32, u16)>,
}

impl State {
    pub fn new(port: Port, config: RpcConfig) -> State {
        State {
            config,
            sessions: Sessions::new(&config),
            link: Link::new(port),
            calls: Calls::default(),
            now: Nanos(0),
            handlers_known: Vec::new(),
            acks_due: Vec::new(),
        }
    }

    /// Returns the session with `peer`, in the incarnation that `peer` names.
    ///
    /// # Errors
    /// `NodeDown` if the layer has seen a later incarnation of the peer. `Overloaded` if too many sessions exist.
    pub fn session_for(&mut self, peer: Peer) -> Result<u32, FabricError> {
        let slot = peer.node.slot;
        let Some(session) = self.sessions.find(peer.endpoint()) else {
            let added = self.sessions.add(peer, &self.link);
            return added.ok_or(FabricError::Overloaded(slot));
        };
        let current = self.sessions.list[session as usize].peer.node.incarnation;
        match peer.node.incarnation.cmp(&current) {
            Ordering::Less => return Err(FabricError::NodeDown(slot)),
            Ordering::Equal => {}
            Ordering::Greater => self.renew(session, peer),
        }
        Ok(session)
    }

    fn renew(&mut self, session: u32, peer: Peer) {
        self.fail_calls(session);
        self.sessions.renew(session, peer.node.incarnation);
    }

    /// Returns the session to which a datagram belongs, and the datagram's packets. Returns `None` if the layer must
    /// drop the datagram.
    pub fn admit<'a>(&mut self, from: Endpoint, datagram: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let (Ends { from: life, to }, packets) = wire::take_ends(datagram)?;
        if to != self.link.incarnation {
            self.link.stats.stale += 1;
            // The layer does not answer a notice by another notice. Otherwise two nodes could send notices to each
            // other for ever.
            if to < self.link.incarnation && !packets.is_empty() {
                self.link.notify_of_new_life(from, life);
            }
            return None;
        }
        let node = NodeId { slot: from.node, incarnation: life };
        let Ok(session) = self.session_for(Peer { node, thread: from.thread }) else {
            self.link.stats.stale += 1;
            return None;
        };
        Some((session, packets))
    }

    /// Processes one packet of a datagram. Returns a request that must now run, if any.
    pub fn on_packet(&mut self, session: u32, header: &Header, payload: &[u8]) -> Option<Work> {
        match header.kind {
            PacketKind::Request => return self.on_request(session, header, payload),
            PacketKind::Reply => self.on_reply(session, header, payload),
            PacketKind::Ack => self.on_ack(session, header),
            PacketKind::More => self.on_more(session, header),
        }
        None
    }
}
