//! TATP as lock requests: one lock for each subscriber, access info and special facility, and one for each 5 possible forwardings.
//!
//! Invariant: a row is requested only if it exists; insertions and deletions change later transactions.
//! Rows and kinds: the TATP benchmark's description, version 1.0. Locks as in the traces of Zhang et al., OSDI 2024.

use super::{Wanted, Words, below};
use crate::value::{LockId, Mode};

/// The mask of the non-uniform draw of subscribers. TATP prescribes this value for up to a million subscribers.
const SUBSCRIBER_BITS: u64 = 65_535;
/// Special facilities of a subscriber, at most, and times at which a forwarding may start.
const TYPES: u64 = 4;
const STARTS: u64 = 3;
/// Locks for forwardings: 4 for each 5 subscribers. Source: the traces.
const FORWARDING_LOCKS: (u64, u64) = (4, 5);

/// The rows of a subscriber, as bits.
#[derive(Clone, Copy, Debug)]
struct Rows {
    access: u8,
    facilities: u8,
    /// Three bits for each facility.
    forwardings: u16,
    /// Rows of access info, and of facilities, of the subscribers before this one.
    access_before: u32,
    facilities_before: u32,
}

/// TATP.
#[derive(Clone, Debug)]
pub struct Tatp {
    rows: Vec<Rows>,
    access: u32,
    facilities: u32,
    forwarding_locks: u32,
}

impl Tatp {
    /// Kinds of transactions.
    pub const KINDS: [&str; 7] = [
        "get-subscriber",
        "get-destination",
        "get-access",
        "update-subscriber",
        "update-location",
        "insert-forwarding",
        "delete-forwarding",
    ];
    /// Shares of the kinds, added up. Source: TATP.
    const UP_TO: [u64; 7] = [35, 45, 80, 82, 96, 98, 100];
    /// Subscribers in the paper.
    pub const SUBSCRIBERS: u32 = 100_000;

    /// Draws the rows of so many subscribers.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(subscribers: u32, words: Words) -> Tatp {
        assert!(subscribers > 0, "no subscribers");
        let mut tatp = Tatp {
            rows: Vec::with_capacity(subscribers as usize),
            access: 0,
            facilities: 0,
            forwarding_locks: 0,
        };
        for _ in 0..subscribers {
            let access = some(words, 1, TYPES) as u8;
            let facilities = some(words, 1, TYPES) as u8;
            let each = (0..TYPES).filter(|facility| facilities >> facility & 1 == 1);
            let forwardings =
                each.fold(0, |all, facility| all | some(words, 0, STARTS) << (STARTS * facility));
            tatp.rows.push(Rows {
                access,
                facilities,
                forwardings: forwardings as u16,
                access_before: tatp.access,
                facilities_before: tatp.facilities,
            });
            tatp.access += access.count_ones();
            tatp.facilities += facilities.count_ones();
        }
        let (locks, of) = FORWARDING_LOCKS;
        tatp.forwarding_locks = (u64::from(subscribers) * locks).div_ceil(of) as u32;
        tatp
    }

    pub(super) fn locks(&self) -> u32 {
        self.rows.len() as u32 + self.access + self.facilities + self.forwarding_locks
    }

    fn access(&self, subscriber: u32, kind: u64) -> Option<LockId> {
        let Rows { access, access_before, .. } = self.rows[subscriber as usize];
        let place = place(access, kind)?;
        Some(LockId(self.rows.len() as u32 + access_before + place))
    }

    fn facility(&self, subscriber: u32, kind: u64) -> Option<LockId> {
        let Rows { facilities, facilities_before, .. } = self.rows[subscriber as usize];
        let place = place(facilities, kind)?;
        Some(LockId(self.rows.len() as u32 + self.access + facilities_before + place))
    }

    fn has_forwarding(&self, subscriber: u32, (kind, start): (u64, u64)) -> bool {
        self.rows[subscriber as usize].forwardings >> (STARTS * kind + start) & 1 == 1
    }

    fn forwarding(&self, subscriber: u32, (kind, start): (u64, u64)) -> LockId {
        let row = (u64::from(subscriber) * TYPES + kind) * STARTS + start;
        let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let lock = (spread * u64::from(self.forwarding_locks)) >> 32;
        LockId(self.rows.len() as u32 + self.access + self.facilities + lock as u32)
    }

    pub(super) fn draw(&mut self, words: Words, wanted: &mut Vec<Wanted>) -> u8 {
        let roll = below(words, 100);
        let kind = Tatp::UP_TO.iter().position(|end| roll < *end).unwrap_or_default();
        let subscribers = self.rows.len() as u64;
        let masked = below(words, SUBSCRIBER_BITS + 1) | below(words, subscribers);
        let subscriber = (masked % subscribers) as u32;
        let (of_type, start) = (below(words, TYPES), below(words, STARTS));
        let whole = LockId(subscriber);
        match kind {
            0 => Wanted::add(wanted, whole, Mode::Shared),
            1 => {
                let Some(facility) = self.facility(subscriber, of_type) else { return 1 };
                Wanted::add(wanted, facility, Mode::Shared);
                let rows = (0..=start).map(|start| (of_type, start));
                for row in rows.filter(|row| self.has_forwarding(subscriber, *row)) {
                    Wanted::add(wanted, self.forwarding(subscriber, row), Mode::Shared);
                }
            }
            2 => {
                let lock = self.access(subscriber, of_type);
                lock.iter().for_each(|lock| Wanted::add(wanted, *lock, Mode::Shared));
            }
            3 => {
                Wanted::add(wanted, whole, Mode::Exclusive);
                let lock = self.facility(subscriber, of_type);
                lock.iter().for_each(|lock| Wanted::add(wanted, *lock, Mode::Exclusive));
            }
            4 => Wanted::add(wanted, whole, Mode::Exclusive),
            _ => self.change(subscriber, (of_type, start), kind == 5, wanted),
        }
        kind as u8
    }

    /// Inserts or deletes a forwarding. It fails, with the requests made so far, if the row is there already, or is not.
    fn change(
        &mut self,
        subscriber: u32,
        row: (u64, u64),
        inserts: bool,
        wanted: &mut Vec<Wanted>,
    ) {
        Wanted::add(wanted, LockId(subscriber), Mode::Shared);
        let facilities = (0..TYPES).filter_map(|kind| self.facility(subscriber, kind));
        if inserts {
            facilities.for_each(|lock| Wanted::add(wanted, lock, Mode::Shared));
        }
        let has_facility = self.facility(subscriber, row.0).is_some();
        if has_facility && self.has_forwarding(subscriber, row) != inserts {
            Wanted::add(wanted, self.forwarding(subscriber, row), Mode::Exclusive);
            self.rows[subscriber as usize].forwardings ^= 1 << (STARTS * row.0 + row.1);
        }
    }
}

/// The place of a row among the rows that exist.
fn place(rows: u8, kind: u64) -> Option<u32> {
    (rows >> kind & 1 == 1).then(|| (rows & ((1 << kind) - 1)).count_ones())
}

/// From `least` to `of` of `of` rows, neighbours in a circle, as bits.
fn some(words: Words, least: u64, of: u64) -> u64 {
    let count = least + below(words, of + 1 - least);
    let first = below(words, of);
    (0..count).fold(0, |rows, step| rows | 1 << ((first + step) % of))
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::super::{Trace, Workload};
    use super::*;

    #[test]
    fn kinds_come_as_often_as_specified_and_reads_are_shared() {
        let tatp = Tatp::new(1_000, &mut words(9));
        let mut workload = Workload::Tatp(Box::new(tatp));
        let trace = Trace::drawn(&mut workload, (40_000, 8), &mut words(9));
        let mut kinds = [0usize; 7];
        for it in trace.transactions() {
            kinds[usize::from(it.kind)] += 1;
            let writes = it.wanted.iter().any(|it| it.mode() == Mode::Exclusive);
            assert!(!writes || it.kind >= 3);
            assert!(it.kind == 1 || it.kind == 2 || !it.wanted.is_empty());
        }
        for (kind, percent) in [35, 10, 35, 2, 14, 2, 2].into_iter().enumerate() {
            assert!(kinds[kind].abs_diff(400 * percent) < 500, "{kinds:?}");
        }
    }

    #[test]
    fn the_published_size_has_about_680_thousand_locks() {
        let tatp = Tatp::new(Tatp::SUBSCRIBERS, &mut words(1));
        assert!((675_000..685_000).contains(&tatp.locks()), "{}", tatp.locks());
    }

    #[test]
    fn rows_have_locks_of_their_own_and_changes_are_seen() {
        let mut tatp = Tatp::new(50, &mut words(2));
        let mut locks: Vec<_> = (0..50)
            .flat_map(|it| (0..TYPES).map(move |kind| (it, kind)))
            .flat_map(|(it, kind)| [tatp.access(it, kind), tatp.facility(it, kind)])
            .flatten()
            .collect();
        let count = locks.len();
        locks.sort_unstable();
        locks.dedup();
        assert_eq!(locks.len(), count);
        assert_eq!(count as u32, tatp.access + tatp.facilities);
        let facility = (0..TYPES).find(|kind| tatp.facility(7, *kind).is_some()).unwrap();
        let had = tatp.has_forwarding(7, (facility, 1));
        for expected in [!had, had] {
            let mut wanted = Vec::new();
            tatp.change(7, (facility, 1), expected, &mut wanted);
            assert_eq!(tatp.has_forwarding(7, (facility, 1)), expected);
            let last = wanted.last().unwrap();
            assert_eq!(last.lock(), tatp.forwarding(7, (facility, 1)));
            assert_eq!(last.mode(), Mode::Exclusive);
            // The same change again fails.
            wanted.clear();
            tatp.change(7, (facility, 1), expected, &mut wanted);
            assert!(wanted.iter().all(|it| it.mode() == Mode::Shared));
        }
    }
}
