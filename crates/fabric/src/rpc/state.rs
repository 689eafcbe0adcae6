//! The state of one thread's layer, without its handlers.
//!
//! Invariant: never borrowed while a handler, or a closure that fills a message, runs: both may
//! call, notify and reply.
//!
//! Bounds:
//! - sessions ≤ `sessions_max`;
//! - per session, calls in flight, recorded replies and messages being put together ≤ `credits`
//!   each, every one of at most `message_bytes_max`;
//! - per session, calls waiting ≤ `queue_max`, and one datagram being filled;
//! - buffers kept for reuse ≤ 256 of 64 KiB.

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

/// One thread's state; see the module's documentation. Its methods for calling are in `client`,
/// those for answering in `server`.
pub struct State {
    pub config: RpcConfig,
    pub link: Link,
    pub sessions: Sessions,
    pub calls: Calls,
    /// The time, read once a poll and once a call.
    pub now: Nanos,
    /// By handler: whether one is registered.
    pub handlers_known: Vec<bool>,
    /// Sessions and slots whose client is to learn which fragments have arrived.
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

    /// Returns the session with `peer` in the life that it names.
    ///
    /// # Errors
    /// `NodeDown` if a later life was seen; `Overloaded` if there are too many sessions.
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

    /// Returns the session that a datagram belongs to, and its packets; `None` if it is to be
    /// dropped.
    pub fn admit<'a>(&mut self, from: Endpoint, datagram: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let (Ends { from: life, to }, packets) = wire::take_ends(datagram)?;
        if to != self.link.incarnation {
            self.link.stats.stale += 1;
            // A notice gets no notice, or two ends could go on for ever.
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

    /// Takes one packet of an admitted datagram; returns a request that is to run.
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
