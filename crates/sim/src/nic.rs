//! The NIC of one node. The NIC's parts work in parallel, and each part counts how long it is busy.
//!
//! Invariant: events reserve a part of a NIC in the order of their times. An event never reserves a
//! part for a time before which another event may still happen. The simulator computes two times early:
//! the moment at which a request leaves its own NIC, and the moment at which a response reaches the
//! requester. A request or response whose time is computed early reserves the part from the present
//! time on. If the request or response must wait for the part, the same wait is added to its real
//! arrival time. So no work waits for work that arrives later.
//!
//! The verbs of a batch follow one another through the parts. The first verb may be executed while the
//! last verb is still being sent. Nevertheless one event handles the whole batch, when the last verb
//! arrives. The event of a batch reserves the parts as if each verb had requested them at its own
//! arrival. This reservation is exact as long as the verbs arrive at equal distances. The reservation
//! covers no more time of a part than the verbs need.

use crate::profile::AtomicUnit;
use tarn_fabric::rng::mix;

/// A part of the hardware that does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    free_ps: u64,
    /// How long the part was busy before `counted_to_ps`.
    busy_ps: u64,
    /// How long the part was busy after `counted_to_ps`.
    later_ps: u64,
    counted_to_ps: u64,
}

impl Default for Resource {
    fn default() -> Resource {
        Resource { free_ps: 0, busy_ps: 0, later_ps: 0, counted_to_ps: u64::MAX }
    }
}

/// Items that follow one another into a part. The fields say when the first and the last item arrive,
/// how long all items together occupy the part, and how long the last item occupies it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) first_ps: u64,
    pub(crate) last_ps: u64,
    pub(crate) all_take_ps: u64,
    pub(crate) last_takes_ps: u64,
}

impl Resource {
    /// Reserves the part for `service_ps`, not before `at_ps` and after all earlier reservations.
    /// Returns the end of the reservation.
    #[inline]
    pub(crate) fn reserve(&mut self, at_ps: u64, service_ps: u64) -> u64 {
        self.take(self.free_ps.max(at_ps) + service_ps, service_ps)
    }

    /// Reserves the part for the time until `tail_ps`. The last byte arrives at `tail_ps` if no earlier
    /// reservation delays this byte.
    #[inline]
    pub(crate) fn reserve_until(&mut self, tail_ps: u64, service_ps: u64) -> u64 {
        self.take((self.free_ps + service_ps).max(tail_ps), service_ps)
    }

    /// Reserves the part from `now_ps` on. Returns how long the new reservation must wait for earlier
    /// reservations.
    #[inline]
    pub(crate) fn join(&mut self, now_ps: u64, service_ps: u64) -> u64 {
        let wait_ps = self.free_ps.saturating_sub(now_ps);
        self.reserve(now_ps, service_ps);
        wait_ps
    }

    /// Reserves the part from `now_ps` on for a stream that arrives now or later. Returns the time at
    /// which the last item of the stream has passed the part.
    #[inline]
    pub(crate) fn pass(&mut self, now_ps: u64, stream: Stream) -> u64 {
        let Stream { first_ps, last_ps, all_take_ps, last_takes_ps } = stream;
        let wait_ps = self.join(now_ps, all_take_ps);
        wait_ps + (first_ps + all_take_ps).max(last_ps + last_takes_ps)
    }

    #[inline]
    fn take(&mut self, end_ps: u64, service_ps: u64) -> u64 {
        self.free_ps = end_ps;
        self.count(end_ps, service_ps);
        end_ps
    }

    #[inline]
    fn count(&mut self, end_ps: u64, service_ps: u64) {
        self.busy_ps += service_ps;
        if end_ps > self.counted_to_ps {
            let beyond_ps = (end_ps - self.counted_to_ps).min(service_ps);
            self.busy_ps -= beyond_ps;
            self.later_ps += beyond_ps;
        }
    }

    /// Counts the busy time before `end_ps`, and keeps the rest of the busy time for the next count. So
    /// no count gives a part more busy time than the measured time. Busy time after `end_ps` stays
    /// kept. If the part is reserved without a gap, all of this time stays kept.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        let still_later_ps = self.later_ps.min(self.free_ps.saturating_sub(end_ps));
        self.busy_ps += self.later_ps - still_later_ps;
        self.later_ps = still_later_ps;
        self.counted_to_ps = end_ps;
    }

    /// Returns how long the part was busy before the end of its last count.
    pub(crate) fn busy_ps(&self) -> u64 {
        self.busy_ps
    }
}

/// The NIC of one node.
#[derive(Debug)]
pub(crate) struct Nic {
    /// The part that sends work requests.
    pub(crate) transmit: Resource,
    /// The part that receives responses and messages.
    pub(crate) receive: Resource,
    /// The part that executes requests of other nodes, one request at a time, whatever the verb.
    pub(crate) pipeline: Resource,
    /// The part that executes atomics, if the NIC executes one atomic at a time. If the NIC executes
    /// atomics in parallel, this part only counts how long the atomics took.
    atomics: Resource,
    addresses: Vec<Resource>,
    pub(crate) link_out: Resource,
    pub(crate) link_in: Resource,
    /// The number of work requests that have not completed.
    pub(crate) in_flight: u64,
}

impl Nic {
    pub(crate) fn new(unit: AtomicUnit, slots: usize) -> Nic {
        let addresses = match unit {
            AtomicUnit::Serial => Vec::new(),
            AtomicUnit::PerAddress => vec![Resource::default(); slots],
        };
        Nic {
            transmit: Resource::default(),
            receive: Resource::default(),
            pipeline: Resource::default(),
            atomics: Resource::default(),
            addresses,
            link_out: Resource::default(),
            link_in: Resource::default(),
            in_flight: 0,
        }
    }

    /// Reserves the atomic unit for the word at `address`. The atomic occupies the unit from
    /// `taken_ps`, when the pipeline accepted the verb. The atomic occupies the unit at least until
    /// `through_ps`, when the pipeline has finished the verb.
    #[inline]
    pub(crate) fn atomic(&mut self, taken_ps: u64, through_ps: u64, address: u64, ps: u64) -> u64 {
        let end = if self.addresses.is_empty() {
            self.atomics.reserve(taken_ps, ps)
        } else {
            let slot = mix(address) as usize % self.addresses.len();
            let end_ps = self.addresses[slot].reserve(taken_ps, ps);
            self.atomics.free_ps = self.atomics.free_ps.max(end_ps);
            self.atomics.count(end_ps, ps);
            end_ps
        };
        end.max(through_ps)
    }

    /// Counts the busy time before `end_ps`, as [`Resource::count_to`] does.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        let Nic { transmit, receive, pipeline, atomics, link_out, link_in, .. } = self;
        for part in [transmit, receive, pipeline, atomics, link_out, link_in] {
            part.count_to(end_ps);
        }
    }

    /// Returns how long the NIC was executing atomics. If atomics ran in parallel, the result is larger
    /// than the time that passed.
    pub(crate) fn atomics_busy_ps(&self) -> u64 {
        self.atomics.busy_ps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_request_waits() {
        let mut resource = Resource::default();
        assert_eq!(resource.reserve(100, 10), 110);
        assert_eq!(resource.reserve(100, 10), 120);
        assert_eq!(resource.reserve(200, 10), 210);
        assert_eq!(resource.reserve_until(215, 30), 240);
        assert_eq!(resource.reserve_until(500, 30), 500);
        assert_eq!(resource.busy_ps(), 90);
    }

    #[test]
    fn an_early_reservation_does_not_delay_an_earlier_arrival() {
        let mut resource = Resource::default();
        let far = Stream { first_ps: 900, last_ps: 1_000, all_take_ps: 40, last_takes_ps: 10 };
        assert_eq!(resource.pass(100, far), 1_010);
        let near = Stream { first_ps: 100, last_ps: 100, all_take_ps: 40, last_takes_ps: 10 };
        assert_eq!(resource.pass(100, near), 40 + 140); // the second stream waits only for the first stream's work
    }

    #[test]
    fn a_window_is_never_used_for_longer_than_its_length() {
        let mut resource = Resource::default();
        resource.count_to(1_000);
        for at_ps in [0, 100, 150, 990, 990] {
            resource.reserve(at_ps, 300);
        }
        assert_eq!(resource.busy_ps(), 910);
        resource.count_to(1_200);
        assert_eq!(resource.busy_ps(), 1_110);
        resource.count_to(2_000);
        assert_eq!(resource.busy_ps(), 1_500);
        resource.reserve(5_000, 100);
        assert_eq!(resource.busy_ps(), 1_500);
        resource.count_to(6_000);
        assert_eq!(resource.busy_ps(), 1_600);
    }

    #[test]
    fn atomics_wait_for_the_unit_or_for_the_address() {
        let mut serial = Nic::new(AtomicUnit::Serial, 64);
        assert_eq!([8, 16, 8].map(|at| serial.atomic(0, 5, at, 100)), [100, 200, 300]);
        let mut apart = Nic::new(AtomicUnit::PerAddress, 4096);
        assert_eq!([8, 16, 8].map(|at| apart.atomic(0, 5, at, 100)), [100, 100, 200]);
    }
}
