//! A node's NIC: what it can do at once, and for how long each part is taken.
//!
//! Invariant: a part is reserved by events in the order of their times, never for a time that another
//! event may still come before: a responder's parts when a request arrives, not when it is posted.
//! (The two reservations that are made early, a request's on its own NIC and a response's on the
//! requester's, are made in the order in which they come into force, since all of them travel equally
//! long from there; see `post.rs` and `respond.rs`.)

use crate::profile::AtomicUnit;
use tarn_fabric::rng::mix;

/// Something that does one thing at a time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Resource {
    free_ps: u64,
    busy_ps: u64,
}

impl Resource {
    /// Takes it for `service_ps`, not before `at_ps` and after whoever came before; returns the end.
    #[inline]
    pub(crate) fn reserve(&mut self, at_ps: u64, service_ps: u64) -> u64 {
        self.busy_ps += service_ps;
        self.free_ps = self.free_ps.max(at_ps) + service_ps;
        self.free_ps
    }

    /// Takes it for the time until `tail_ps`, when the last byte arrives if nothing is in the way.
    #[inline]
    pub(crate) fn reserve_until(&mut self, tail_ps: u64, service_ps: u64) -> u64 {
        self.busy_ps += service_ps;
        self.free_ps = (self.free_ps + service_ps).max(tail_ps);
        self.free_ps
    }

    /// For how long it was taken so far.
    pub(crate) fn busy_ps(&self) -> u64 {
        self.busy_ps
    }
}

/// One node's NIC.
#[derive(Debug)]
pub(crate) struct Nic {
    /// Sends work requests.
    pub(crate) transmit: Resource,
    /// Takes responses and messages in.
    pub(crate) receive: Resource,
    /// Executes requests of others: one at a time, whatever the verb.
    pub(crate) pipeline: Resource,
    /// Executes atomics, if one at a time; else counts how long it did.
    atomics: Resource,
    addresses: Vec<Resource>,
    pub(crate) link_out: Resource,
    pub(crate) link_in: Resource,
    /// Work requests whose completion is not there yet.
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

    /// Takes the atomic unit for the word at `address`, from when the pipeline took the verb until at
    /// least when it was through with it.
    #[inline]
    pub(crate) fn atomic(&mut self, taken_ps: u64, through_ps: u64, address: u64, ps: u64) -> u64 {
        let end = if self.addresses.is_empty() {
            self.atomics.reserve(taken_ps, ps)
        } else {
            self.atomics.busy_ps += ps;
            let slot = mix(address) as usize % self.addresses.len();
            self.addresses[slot].reserve(taken_ps, ps)
        };
        end.max(through_ps)
    }

    /// For how long atomics were being executed; more than the time that passed, if side by side.
    pub(crate) fn atomics_busy_ps(&self) -> u64 {
        self.atomics.busy_ps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_later_waits() {
        let mut resource = Resource::default();
        assert_eq!(resource.reserve(100, 10), 110);
        assert_eq!(resource.reserve(100, 10), 120);
        assert_eq!(resource.reserve(200, 10), 210);
        assert_eq!(resource.reserve_until(215, 30), 240);
        assert_eq!(resource.reserve_until(500, 30), 500);
        assert_eq!(resource.busy_ps(), 90);
    }

    #[test]
    fn atomics_wait_for_the_unit_or_for_the_address() {
        let mut serial = Nic::new(AtomicUnit::Serial, 64);
        assert_eq!([8, 16, 8].map(|at| serial.atomic(0, 5, at, 100)), [100, 200, 300]);
        let mut apart = Nic::new(AtomicUnit::PerAddress, 4096);
        assert_eq!([8, 16, 8].map(|at| apart.atomic(0, 5, at, 100)), [100, 100, 200]);
    }
}
