//! A node's NIC: the parts that work in parallel, and for how long each is busy.
//!
//! Invariant: a part is reserved by events in the order of their times, and never for a time before
//! which another event may still come. Some times are computed early: a request's way out of its own
//! NIC, a response's way to the requester. Such a request or response takes the part from now on. The
//! wait that it finds is added to the time at which it really comes. So nothing waits for work that
//! comes later.
//!
//! Verbs of a batch follow one another through the parts: the first may be executed while the last is
//! still being sent. Nevertheless one event handles a batch, when its last verb arrives. Parts are then
//! reserved as if each verb had asked for them at its own arrival. That is exact as long as the verbs
//! come evenly, and takes no more of a part than the verbs need.

use crate::profile::AtomicUnit;
use tarn_fabric::rng::mix;

/// A part that does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    free_ps: u64,
    /// How long it was busy before `counted_to_ps`.
    busy_ps: u64,
    /// How long it was busy after it.
    later_ps: u64,
    counted_to_ps: u64,
}

impl Default for Resource {
    fn default() -> Resource {
        Resource { free_ps: 0, busy_ps: 0, later_ps: 0, counted_to_ps: u64::MAX }
    }
}

/// Items that follow one another into a part: when the first and the last come, and how long all of
/// them and the last occupy the part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) first_ps: u64,
    pub(crate) last_ps: u64,
    pub(crate) all_take_ps: u64,
    pub(crate) last_takes_ps: u64,
}

impl Resource {
    /// Takes the part for `service_ps`, not before `at_ps` and after all earlier reservations. Returns
    /// the end.
    #[inline]
    pub(crate) fn reserve(&mut self, at_ps: u64, service_ps: u64) -> u64 {
        self.take(self.free_ps.max(at_ps) + service_ps, service_ps)
    }

    /// Takes the part for the time until `tail_ps`, the time at which the last byte arrives if nothing
    /// is in the way.
    #[inline]
    pub(crate) fn reserve_until(&mut self, tail_ps: u64, service_ps: u64) -> u64 {
        self.take((self.free_ps + service_ps).max(tail_ps), service_ps)
    }

    /// Takes the part from `now_ps` on. Returns for how much longer the part was already taken.
    #[inline]
    pub(crate) fn join(&mut self, now_ps: u64, service_ps: u64) -> u64 {
        let wait_ps = self.free_ps.saturating_sub(now_ps);
        self.reserve(now_ps, service_ps);
        wait_ps
    }

    /// Takes the part from `now_ps` on for a stream that comes now or later. Returns when its last item
    /// is through.
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

    /// From now on counts the busy time before `end_ps`, and remembers the rest for later. So no part
    /// is busy for more than all of a window of time. The remembered time that fits behind the new end
    /// stays remembered. That is all of it, if the part is taken without a gap.
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        let still_later_ps = self.later_ps.min(self.free_ps.saturating_sub(end_ps));
        self.busy_ps += self.later_ps - still_later_ps;
        self.later_ps = still_later_ps;
        self.counted_to_ps = end_ps;
    }

    /// How long the part was busy before the time to which it is counted.
    pub(crate) fn busy_ps(&self) -> u64 {
        self.busy_ps
    }
}

/// One node's NIC.
#[derive(Debug)]
pub(crate) struct Nic {
    /// Sends work requests.
    pub(crate) transmit: Resource,
    /// Receives responses and messages.
    pub(crate) receive: Resource,
    /// Executes requests of other nodes: one at a time, whatever the verb.
    pub(crate) pipeline: Resource,
    /// Executes atomics, if the NIC executes one at a time; otherwise it only counts how long atomics
    /// took.
    atomics: Resource,
    addresses: Vec<Resource>,
    pub(crate) link_out: Resource,
    pub(crate) link_in: Resource,
    /// Work requests that have not completed.
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

    /// Takes the atomic unit for the word at `address`. The atomic takes it from `taken_ps`, when the
    /// pipeline took the verb, at least until `through_ps`, when the pipeline was through with it.
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

    /// See [`Resource::count_to`].
    pub(crate) fn count_to(&mut self, end_ps: u64) {
        let Nic { transmit, receive, pipeline, atomics, link_out, link_in, .. } = self;
        for part in [transmit, receive, pipeline, atomics, link_out, link_in] {
            part.count_to(end_ps);
        }
    }

    /// How long atomics were being executed. It is more than the time that passed if they ran in
    /// parallel.
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
        assert_eq!(resource.pass(100, near), 40 + 140); // waits for the other's work, not its time
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
