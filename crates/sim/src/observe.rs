//! Shows the cluster's events, as they happen, to a drawing or counting observer.
//!
//! Invariant: an observer changes nothing: it is told, and cannot answer. Without an observer, each
//! place that would tell it costs one look at an empty field. Events at a cluster at rest are not
//! shown. In random mode verbs land line by line, and the service of batches is not shown.

use crate::world::World;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Verb;

/// An event. A ticket names a round until the round is complete.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The running coroutine has posted one batch of a round.
    Posted {
        /// The round.
        ticket: u64,
        /// Whether no coroutine will wait for the round.
        is_detached: bool,
        /// The memory node to which the batch goes.
        to: NodeSlot,
        /// All verbs of the round; those to `to` are the batch's.
        verbs: &'a [Verb],
        /// When the processor rang the doorbell.
        posted: Nanos,
        /// When the requester's NIC put it on its link.
        sent: Nanos,
        /// When it reaches the memory node.
        arrives: Nanos,
    },
    /// A memory node has executed a batch.
    Served {
        /// The round.
        ticket: u64,
        /// The memory node.
        by: NodeSlot,
        /// When the batch arrived.
        arrived: Nanos,
        /// When the last response left.
        left: Nanos,
        /// When the requester's NIC had received it.
        taken: Nanos,
        /// When the requester's processor can see it.
        seen: Nanos,
    },
    /// All batches of a round are answered.
    Completed {
        /// The round.
        ticket: u64,
        /// The round's verbs, with the values that atomics found.
        verbs: &'a [Verb],
        /// The present time.
        at: Nanos,
    },
    /// The running coroutine has sent a datagram.
    Sent {
        /// The receiver.
        to: Endpoint,
        /// The length of the datagram.
        bytes: usize,
        /// When it leaves its processor.
        sent: Nanos,
        /// When it reaches the other node.
        arrives: Nanos,
    },
}

/// A receiver of events.
pub trait Observer {
    /// Tells the observer of an event. The world is borrowed during the call: an observer must not use
    /// a port of it.
    fn see(&mut self, seen: Seen<'_>);
}

/// The world's observer, if it has one.
#[derive(Default)]
pub(crate) struct Eyes(pub(crate) Option<Box<dyn Observer>>);

/// Virtual time to the nanosecond.
fn nanos(ps: u64) -> Nanos {
    Nanos(ps / 1_000)
}

impl World {
    /// Whether there is an observer.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.eyes.0.is_some()
    }

    /// Shows a batch that was posted: when the processor and the NIC were done with it, and when it
    /// arrives.
    #[cold]
    pub(crate) fn show_posted(
        &mut self,
        index: u32,
        batch: u32,
        [posted_ps, sent_ps, arrival_ps]: [u64; 3],
    ) {
        let ticket = self.flights.ticket(index);
        let flight = self.flights.get(index);
        let is_detached = flight.interest == crate::flight::Interest::Detached;
        let (to, verbs) = (flight.batches.get(batch).node, flight.verbs());
        let (posted, sent, arrives) = (nanos(posted_ps), nanos(sent_ps), nanos(arrival_ps));
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Posted { ticket, is_detached, to, verbs, posted, sent, arrives });
    }

    /// Shows a batch that was served now.
    #[cold]
    pub(crate) fn show_served(
        &mut self,
        index: u32,
        batch: u32,
        [left_ps, taken_ps, seen_ps]: [u64; 3],
    ) {
        let ticket = self.flights.ticket(index);
        let by = self.flights.get(index).batches.get(batch).node;
        let arrived = nanos(self.now_ps);
        let (left, taken, seen) = (nanos(left_ps), nanos(taken_ps), nanos(seen_ps));
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Served { ticket, by, arrived, left, taken, seen });
    }

    /// Shows a round that is complete.
    #[cold]
    pub(crate) fn show_completed(&mut self, index: u32) {
        let (ticket, at) = (self.flights.ticket(index), nanos(self.now_ps));
        let verbs = self.flights.get(index).verbs();
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Completed { ticket, verbs, at });
    }

    /// Shows a datagram.
    #[cold]
    pub(crate) fn show_sent(&mut self, to: Endpoint, bytes: usize, sent_ps: u64, arrival_ps: u64) {
        let (sent, arrives) = (nanos(sent_ps), nanos(arrival_ps));
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Sent { to, bytes, sent, arrives });
    }
}
