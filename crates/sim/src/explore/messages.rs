//! Datagrams that are in flight, and datagrams that have arrived.
//!
//! Invariant: a datagram is named by its sender and its number among the sender's datagrams. Any
//! datagram in flight may arrive next. A receiver sees its datagrams in the order of their arrival.

use super::hash::{Digest, chain, mix, of_bytes};
use std::collections::VecDeque;
use tarn_fabric::backend::Endpoint;

/// One datagram.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) actor: u8,
    pub(crate) number: u32,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) bytes: Vec<u8>,
    /// Whether the datagram will arrive a second time after its first arrival.
    pub(crate) is_doubled: bool,
}

impl Message {
    pub(crate) fn digest(&self) -> Digest {
        let name = u64::from(self.actor) << 32 | u64::from(self.number);
        chain(of_bytes(&self.bytes), mix(name, u64::from(self.is_doubled)))
    }
}

/// All datagrams of an execution that no receiver has taken yet.
#[derive(Default)]
pub(crate) struct Messages {
    /// The datagrams in flight, in the order in which they were sent.
    pub(crate) sent: Vec<Message>,
    /// The datagrams of all receivers that have arrived, in the order of their arrival.
    arrived: VecDeque<Message>,
}

impl Messages {
    pub(crate) fn clear(&mut self) {
        self.sent.clear();
        self.arrived.clear();
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.sent.push(message);
    }

    /// Returns the position of the datagram with this sender and number, if the datagram is in flight.
    pub(crate) fn named(&self, actor: u8, number: u32) -> Option<usize> {
        self.sent.iter().position(|it| it.actor == actor && it.number == number)
    }

    /// Lets a datagram arrive.
    pub(crate) fn deliver(&mut self, index: usize) {
        let mut message = self.sent.remove(index);
        if std::mem::take(&mut message.is_doubled) {
            self.sent.push(message.clone());
        }
        self.arrived.push_back(message);
    }

    /// Removes and returns the first datagram that has arrived for `to`.
    pub(crate) fn take(&mut self, to: Endpoint) -> Option<Message> {
        let index = self.arrived.iter().position(|message| message.to == to)?;
        self.arrived.remove(index)
    }

    /// Returns the digest of all datagrams in flight and arrived. The digest depends on the receiver
    /// and on the order of arrival.
    pub(crate) fn digest(&self) -> Digest {
        let under_way = self.sent.iter().fold(0, |sum: Digest, it| sum.wrapping_add(it.digest()));
        self.arrived.iter().fold(under_way, |digest, it| {
            chain(digest, it.digest().wrapping_add(mix(u64::from(it.to.node.0), 0x1b0)))
        })
    }
}
