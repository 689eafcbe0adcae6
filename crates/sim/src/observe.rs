//! What happens on the cluster, shown as it happens to somebody who draws or counts it.
//!
//! Invariant: an observer changes nothing: it is told, and cannot answer. Without one, each place that
//! would tell it costs one look at a field that is not set. It is told of nothing that happens while the
//! cluster is at rest; in random mode, where verbs land line by line, not of how batches are served.

use crate::world::World;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Verb;

/// Something that happened. A ticket names a round until it is complete.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The running coroutine has posted one batch of a round.
    Posted {
        /// Which round.
        ticket: u64,
        /// Nobody will wait for the round.
        is_detached: bool,
        /// Where the batch goes.
        to: NodeSlot,
        /// All verbs of the round; those to `to` are the batch's.
        verbs: &'a [Verb],
        /// The processor has rung the doorbell.
        posted: Nanos,
        /// The requester's NIC has put it on its link.
        sent: Nanos,
        /// It reaches the memory node.
        arrives: Nanos,
    },
    /// A memory node has executed a batch.
    Served {
        /// Which round.
        ticket: u64,
        /// Where.
        by: NodeSlot,
        /// The batch had arrived.
        arrived: Nanos,
        /// The last response left.
        left: Nanos,
        /// The requester's NIC had taken it in.
        taken: Nanos,
        /// The requester's processor can see it.
        seen: Nanos,
    },
    /// All batches of a round are answered.
    Completed {
        /// Which round.
        ticket: u64,
        /// Its verbs, with what atomics found.
        verbs: &'a [Verb],
        /// Now.
        at: Nanos,
    },
    /// The running coroutine has sent a datagram.
    Sent {
        /// Whom to.
        to: Endpoint,
        /// How long it is.
        bytes: usize,
        /// It leaves its processor.
        sent: Nanos,
        /// It reaches the other node.
        arrives: Nanos,
    },
}

/// Who is told.
pub trait Observer {
    /// This has happened. The world is in use: an observer must not ask a port of it for anything.
    fn see(&mut self, seen: Seen<'_>);
}

/// The one observer of a world, if it has one.
#[derive(Default)]
pub(crate) struct Eyes(pub(crate) Option<Box<dyn Observer>>);

/// Virtual time to the nanosecond.
fn nanos(ps: u64) -> Nanos {
    Nanos(ps / 1_000)
}

impl World {
    /// Whether somebody looks.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.eyes.0.is_some()
    }

    /// Shows a batch that was posted: when the processor and the NIC were done with it, and when it arrives.
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
