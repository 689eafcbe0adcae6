//! One request a transaction: FissLock's micro workloads and its moving hotspot.
//!
//! Invariant: a hotspot moves after a number of its own requests, not after a time, so that a trace does not depend on the speed of its
//! replay.

use super::{Picker, Wanted, Words, below};
use crate::value::{LockId, Mode};

const READ: u8 = 0;
const WRITE: u8 = 1;

/// The share of exclusive requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Exclusive requests of 100.
    pub writes_percent: u8,
}

impl Mix {
    /// UH.
    pub const UPDATE_HEAVY: Mix = Mix { writes_percent: 50 };
    /// RM.
    pub const READ_MOSTLY: Mix = Mix { writes_percent: 10 };
    /// RO.
    pub const READ_ONLY: Mix = Mix { writes_percent: 0 };
}

/// A micro workload over objects, with one lock for several of them.
#[derive(Clone, Debug)]
pub struct Micro {
    /// Reads and writes.
    pub mix: Mix,
    /// Draws objects.
    pub picker: Picker,
    /// Objects of one lock.
    pub granule: u32,
}

impl Micro {
    pub(super) fn locks(&self) -> u32 {
        self.picker.locks().div_ceil(self.granule)
    }

    pub(super) fn draw(&self, words: Words, wanted: &mut Vec<Wanted>) -> u8 {
        let writes = below(words, 100) < u64::from(self.mix.writes_percent);
        let lock = LockId(self.picker.pick(words) / self.granule);
        wanted.push(Wanted::new(lock, if writes { Mode::Exclusive } else { Mode::Shared }));
        if writes { WRITE } else { READ }
    }
}

/// A hotspot that moves. Half of the requests are for it, the others for the other locks; all are shared.
#[derive(Clone, Debug)]
pub struct Hotspot {
    /// The number of locks.
    pub locks: u32,
    hot: u32,
    moves_after: u64,
    drawn: u64,
}

impl Hotspot {
    /// Locks of the hotspot in FissLock's figure 16, of a million.
    pub const HOT: u32 = 2_500;

    /// A hotspot of `hot` of `locks` locks, which moves after so many requests.
    ///
    /// # Panics
    /// If not 0 < `hot` < `locks`, or if it moves after 0 requests.
    #[must_use]
    pub fn new(locks: u32, hot: u32, moves_after: u64) -> Hotspot {
        assert!(0 < hot && hot < locks, "hot = {hot} of {locks}");
        assert!(moves_after > 0, "a hotspot stays for one request at least");
        Hotspot { locks, hot, moves_after, drawn: 0 }
    }

    /// The first lock of the hotspot now. It moves by its own length, and begins again at lock 0 when it has passed all locks.
    #[must_use]
    pub fn first(&self) -> u32 {
        let places = u64::from(self.locks / self.hot);
        (self.drawn / self.moves_after % places) as u32 * self.hot
    }

    pub(super) fn draw(&mut self, words: Words, wanted: &mut Vec<Wanted>) -> u8 {
        let first = self.first();
        self.drawn += 1;
        let lock = if words() >> 63 == 0 {
            first + below(words, u64::from(self.hot)) as u32
        } else {
            let other = below(words, u64::from(self.locks - self.hot)) as u32;
            if other < first { other } else { other + self.hot }
        };
        wanted.push(Wanted::new(LockId(lock), Mode::Shared));
        READ
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::super::{Skew, Trace, Workload};
    use super::*;

    #[test]
    fn mixes_write_as_often_as_they_say() {
        for mix in [Mix::UPDATE_HEAVY, Mix::READ_MOSTLY, Mix::READ_ONLY] {
            let picker = Picker::new(10_000_000, Skew::Uniform);
            let mut workload = Workload::Micro(Micro { mix, picker, granule: 1 });
            let trace = Trace::drawn(&mut workload, (20_000, 8), &mut words(5));
            let writes = trace.transactions().filter(|it| it.kind == WRITE).count();
            let expected = 200 * usize::from(mix.writes_percent);
            assert!(writes.abs_diff(expected) < 300, "{mix:?}: {writes}");
            assert_eq!(trace.locks(), 10_000_000);
        }
    }

    #[test]
    fn half_of_the_requests_are_for_the_hotspot_and_it_moves() {
        let mut hotspot = Hotspot::new(1_000_000, Hotspot::HOT, 10_000);
        let (mut words, mut wanted) = (words(6), Vec::new());
        for phase in 0..3 {
            let hot = phase * Hotspot::HOT..(phase + 1) * Hotspot::HOT;
            assert_eq!(hotspot.first(), hot.start);
            wanted.clear();
            (0..10_000).for_each(|_| _ = hotspot.draw(&mut words, &mut wanted));
            let hits = wanted.iter().filter(|it| hot.contains(&it.lock().0)).count();
            assert!((4_800..5_200).contains(&hits), "{hits}");
        }
        let mut small = Hotspot::new(10, 4, 1);
        let firsts = (0..4).map(|_| (small.first(), small.draw(&mut words, &mut wanted)).0);
        assert_eq!(firsts.collect::<Vec<_>>(), [0, 4, 0, 4]);
    }
}
