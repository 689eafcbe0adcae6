//! Datagrams under way, and those that have arrived.
//!
//! Invariant: a datagram is named by its sender and its number there. Any of those under way may arrive
//! next; those that have arrived are seen in the order in which they did.

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
    /// It will arrive once more after it has arrived.
    pub(crate) is_doubled: bool,
}

impl Message {
    pub(crate) fn digest(&self) -> Digest {
        let name = u64::from(self.actor) << 32 | u64::from(self.number);
        chain(of_bytes(&self.bytes), mix(name, u64::from(self.is_doubled)))
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Messages {
    /// Under way, in the order in which they were sent.
    pub(crate) sent: Vec<Message>,
    /// Arrived, in that order, for all receivers.
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

    /// The datagram of this name, if it is under way.
    pub(crate) fn named(&self, actor: u8, number: u32) -> Option<usize> {
        self.sent.iter().position(|it| it.actor == actor && it.number == number)
    }

    /// It arrives.
    pub(crate) fn deliver(&mut self, index: usize) {
        let mut message = self.sent.remove(index);
        if std::mem::take(&mut message.is_doubled) {
            self.sent.push(message.clone());
        }
        self.arrived.push_back(message);
    }

    /// The first that has arrived for `to`, taken away.
    pub(crate) fn take(&mut self, to: Endpoint) -> Option<Message> {
        let index = self.arrived.iter().position(|message| message.to == to)?;
        self.arrived.remove(index)
    }

    /// Of all that is here; where it went and in which order it arrived counts.
    pub(crate) fn digest(&self) -> Digest {
        let under_way = self.sent.iter().fold(0, |sum: Digest, it| sum.wrapping_add(it.digest()));
        self.arrived.iter().fold(under_way, |digest, it| {
            chain(digest, it.digest().wrapping_add(mix(u64::from(it.to.node.0), 0x1b0)))
        })
    }
}
