//! Shows the cluster's events to an observer while they happen. An observer may draw or count the
//! events.
//!
//! Invariant: an observer changes nothing. The simulation informs the observer and takes no answer
//! from it. Without an observer, each place that would inform an observer only checks that the field
//! for the observer is empty. The observer does not see events of a cluster at rest. In random mode
//! verbs land line by line, and the observer does not see that a node has served a batch.

use crate::flight::{Flight, Interest};
use crate::world::World;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::Verb;

/// An event that the observer sees. A ticket names a round until the round is complete.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The running coroutine has posted one batch of a round.
    Posted {
        /// The ticket of the round.
        ticket: u64,
        /// Whether no coroutine will wait for the round.
        is_detached: bool,
        /// The memory node to which the batch goes.
        to: NodeSlot,
        /// All verbs of the round. The verbs that target `to` belong to the batch.
        verbs: &'a [Verb],
        /// The time at which the processor rang the doorbell.
        posted: Nanos,
        /// The time at which the requester's NIC put the batch on its link.
        sent: Nanos,
        /// The time at which the batch reaches the memory node.
        arrives: Nanos,
    },
    /// A memory node has executed a batch.
    Served {
        /// The ticket of the round.
        ticket: u64,
        /// The memory node that served the batch.
        by: NodeSlot,
        /// The time at which the batch arrived.
        arrived: Nanos,
        /// The time at which the last response left the memory node.
        left: Nanos,
        /// The time at which the requester's NIC had received the last response.
        taken: Nanos,
        /// The time at which the requester's processor can see the completion.
        seen: Nanos,
    },
    /// All batches of a round are answered.
    Completed {
        /// The ticket of the round.
        ticket: u64,
        /// The round's verbs, with the values that atomics found.
        verbs: &'a [Verb],
        /// The present time.
        at: Nanos,
    },
    /// The running coroutine has sent a datagram.
    Sent {
        /// The endpoint that will receive the datagram.
        to: Endpoint,
        /// The length of the datagram.
        bytes: usize,
        /// The time at which the datagram leaves its processor.
        sent: Nanos,
        /// The time at which the datagram reaches the other node.
        arrives: Nanos,
    },
}

/// A receiver of events.
pub trait Observer {
    /// Tells the observer of an event. The world is borrowed during this call, so an observer must not
    /// use a port of this world.
    fn see(&mut self, seen: Seen<'_>);
}

/// The world's observer, if it has one.
#[derive(Default)]
pub(crate) struct Eyes(pub(crate) Option<Box<dyn Observer>>);

/// Converts picoseconds to virtual time in whole nanoseconds.
fn nanos(ps: u64) -> Nanos {
    Nanos(ps / 1_000)
}

impl Eyes {
    /// Shows the observer a batch that was posted. The arguments say when the processor and the NIC
    /// finished the batch, and when the batch arrives.
    #[cold]
    pub(crate) fn show_posted(
        &mut self,
        (flight, index): (&Flight, u32),
        batch: u32,
        times_ps: [u64; 3],
    ) {
        let Some(observer) = &mut self.0 else { return };
        let [posted, sent, arrives] = times_ps.map(nanos);
        observer.see(Seen::Posted {
            ticket: flight.ticket(index),
            is_detached: flight.interest == Interest::Detached,
            to: flight.batches.get(batch).node,
            verbs: flight.verbs(),
            posted,
            sent,
            arrives,
        });
    }
}

impl World {
    /// Returns whether the world has an observer.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.eyes.0.is_some()
    }

    /// Shows the observer a batch that was served now.
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

    /// Shows the observer a round that is complete.
    #[cold]
    pub(crate) fn show_completed(&mut self, index: u32) {
        let (ticket, at) = (self.flights.ticket(index), nanos(self.now_ps));
        let verbs = self.flights.get(index).verbs();
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Completed { ticket, verbs, at });
    }

    /// Shows the observer a datagram that was sent.
    #[cold]
    pub(crate) fn show_sent(&mut self, to: Endpoint, bytes: usize, sent_ps: u64, arrival_ps: u64) {
        let (sent, arrives) = (nanos(sent_ps), nanos(arrival_ps));
        let Some(observer) = &mut self.eyes.0 else { return };
        observer.see(Seen::Sent { to, bytes, sent, arrives });
    }
}
