//! Places that are reused, and tickets. A ticket names one use of a place.
//!
//! Invariant: a ticket holds the place and its generation, so an old ticket never names a new use. A
//! place that is given back keeps its allocated capacity, so in steady state the slab allocates
//! nothing. The place that was given back last is taken first. So the sequence of calls determines the
//! place that the slab chooses.

/// A value that lies in a place.
pub(crate) trait Reused {
    /// Creates an unused value.
    fn unused() -> Self;

    /// Returns how often the value's place was given back.
    fn generation(&self) -> u32;

    /// Sets the generation when the place is given back once more.
    fn set_generation(&mut self, generation: u32);
}

/// Returns the ticket that the user of place `index`, which holds `it`, keeps.
#[inline(always)]
pub(crate) fn ticket(it: &impl Reused, index: u32) -> u64 {
    u64::from(it.generation()) << 32 | u64::from(index)
}

/// A set of places that are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    all: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { all: Vec::new(), free: Vec::new() }
    }
}

impl<T: Reused> Slab<T> {
    /// Takes a free place. The caller must fill the place with a value.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(T::unused());
            self.all.len() as u32 - 1
        })
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &T {
        &self.all[index as usize]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.all[index as usize]
    }

    /// Like [`Slab::get`], for a place that may not exist.
    #[inline(always)]
    pub(crate) fn look(&self, index: u32) -> Option<&T> {
        self.all.get(index as usize)
    }

    /// Returns the tickets of the places for which `are_so` holds. Places that were given back are
    /// included.
    pub(crate) fn tickets(&self, are_so: impl Fn(&T) -> bool) -> Vec<u64> {
        let all = (0..self.all.len() as u32).filter(|index| are_so(self.get(*index)));
        all.map(|index| self.ticket(index)).collect()
    }

    /// Returns the ticket that the user of a place keeps.
    #[inline]
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        ticket(self.get(index), index)
    }

    /// Returns the place that a ticket names, unless the place has been reused since.
    #[inline]
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        let (index, generation) = (ticket as u32, (ticket >> 32) as u32);
        (self.look(index)?.generation() == generation).then_some(index)
    }

    /// Returns a place to the slab, for reuse.
    #[inline]
    pub(crate) fn give_back(&mut self, index: u32) {
        let it = self.get_mut(index);
        it.set_generation(it.generation().wrapping_add(1));
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Used(u32, Vec<u8>);

    impl Reused for Used {
        fn unused() -> Used {
            Used(0, Vec::new())
        }

        fn generation(&self) -> u32 {
            self.0
        }

        fn set_generation(&mut self, generation: u32) {
            self.0 = generation;
        }
    }

    #[test]
    fn a_place_keeps_its_allocation_and_an_old_ticket_finds_nothing() {
        let mut slab = Slab::<Used>::default();
        let (one, two) = (slab.take(), slab.take());
        slab.get_mut(two).1.extend([1, 2, 3]);
        let ticket = slab.ticket(two);
        assert_eq!((slab.find(ticket), slab.find(slab.ticket(one))), (Some(two), Some(one)));
        slab.give_back(two);
        assert_eq!(slab.find(ticket), None);
        assert_eq!(slab.take(), two, "the one given back last");
        assert_eq!(slab.get(two).1.len(), 3);
        assert_ne!(slab.ticket(two), ticket);
        assert!(slab.look(7).is_none() && slab.find(7).is_none());
    }
}
