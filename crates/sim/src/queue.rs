//! The event queue: a calendar of near buckets, and a heap for what is far away.
//!
//! Invariant: events come out by time, and those of one time in the order in which they went in; so
//! a run is a function of its seed. Nothing is allocated once buckets have grown to their working
//! size: a bucket that was emptied keeps its room.
//!
//! A calendar (Brown, "Calendar queues: a fast O(1) priority queue implementation for the simulation
//! event set problem", CACM 1988) without its resizing: verbs take microseconds whatever the
//! cluster, so that one width serves. The example `event_queue` compares it with a binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds of one bucket, as a power of two: 262 ns, some ten events of a large cluster, so that
/// one can see who comes soon.
const WIDTH_BITS: u32 = 18;
/// Buckets, a power of two: what lies further ahead than 67 µs waits in the heap.
const BUCKETS: usize = 256;
const WORDS: usize = BUCKETS / 64;

/// An event and when it happens.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at_ps: u64,
    sequence: u64,
    item: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.at_ps, self.sequence)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// See the module's text. Times are picoseconds.
#[derive(Debug)]
pub struct EventQueue<T> {
    buckets: Vec<Vec<Entry<T>>>,
    /// Which buckets hold something.
    occupied: [u64; WORDS],
    /// The bucket being emptied, latest first.
    open: Vec<Entry<T>>,
    /// Number of the open bucket since time began.
    cursor: u64,
    far: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
    /// Time of the last event that came out.
    now_ps: u64,
    len: usize,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue::new()
    }
}

impl<T: Copy> EventQueue<T> {
    /// An empty queue at time zero.
    pub fn new() -> EventQueue<T> {
        EventQueue {
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            occupied: [0; WORDS],
            open: Vec::new(),
            cursor: 0,
            far: BinaryHeap::new(),
            sequence: 0,
            now_ps: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. It must not lie before the last one that came out.
    #[inline]
    pub fn push(&mut self, at_ps: u64, item: T) {
        assert!(at_ps >= self.now_ps, "an event in the past");
        let entry = Entry { at_ps, sequence: self.sequence, item };
        self.sequence += 1;
        self.len += 1;
        let bucket = at_ps >> WIDTH_BITS;
        if bucket <= self.cursor {
            let later = self.open.partition_point(|other| other.key() > entry.key());
            self.open.insert(later, entry);
        } else if bucket < self.cursor + BUCKETS as u64 {
            self.file(bucket, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    #[inline]
    fn file(&mut self, bucket: u64, entry: Entry<T>) {
        let index = bucket as usize % BUCKETS;
        self.buckets[index].push(entry);
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// When the next event happens.
    #[inline]
    pub fn next_at_ps(&mut self) -> Option<u64> {
        if self.open.is_empty() {
            self.open_next();
        }
        self.open.last().map(|entry| entry.at_ps)
    }

    /// The event that comes `turns` after the next one, if it is known already: it may lie in a bucket
    /// that was not opened yet, and others may come before it.
    #[inline]
    pub fn soon(&self, turns: usize) -> Option<T> {
        let index = self.open.len().checked_sub(1 + turns)?;
        Some(self.open[index].item)
    }

    /// The next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.open.is_empty() {
            self.open_next();
        }
        let entry = self.open.pop()?;
        debug_assert!(entry.at_ps >= self.now_ps);
        self.now_ps = entry.at_ps;
        self.len -= 1;
        Some((entry.at_ps, entry.item))
    }

    /// Opens the next bucket that holds something.
    fn open_next(&mut self) {
        if self.len == 0 {
            return;
        }
        let far = self.far.peek().map(|Reverse(entry)| entry.at_ps >> WIDTH_BITS);
        self.cursor = match (self.next_occupied(), far) {
            (Some(near), Some(far)) => near.min(far),
            (near, far) => near.or(far).expect("an event waits somewhere"),
        };
        self.fetch_far();
        let index = self.cursor as usize % BUCKETS;
        self.occupied[index / 64] &= !(1 << (index % 64));
        std::mem::swap(&mut self.open, &mut self.buckets[index]);
        self.open.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Files what has come near.
    fn fetch_far(&mut self) {
        while let Some(Reverse(entry)) = self.far.peek() {
            let bucket = entry.at_ps >> WIDTH_BITS;
            if bucket >= self.cursor + BUCKETS as u64 {
                return;
            }
            let Reverse(entry) = self.far.pop().expect("it was seen");
            self.file(bucket, entry);
        }
    }

    /// The first occupied bucket from the cursor on.
    fn next_occupied(&self) -> Option<u64> {
        let start = self.cursor as usize % BUCKETS;
        let (word, bit) = (start / 64, start % 64);
        let first = self.occupied[word] >> bit;
        if first != 0 {
            return Some(self.cursor + u64::from(first.trailing_zeros()));
        }
        for step in 1..=WORDS {
            let bits = self.occupied[(word + step) % WORDS];
            if bits != 0 {
                let ahead = step * 64 - bit + bits.trailing_zeros() as usize;
                return Some(self.cursor + ahead as u64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt as _;
    use tarn_fabric::rng::seeded;

    #[test]
    fn it_agrees_with_a_sorted_list() {
        for seed in 0..20 {
            let mut rng = seeded(seed, 0);
            let mut queue = EventQueue::new();
            let mut model: Vec<(u64, u64)> = Vec::new();
            let (mut now, mut next) = (0, 0u64);
            let reach = [1u64 << 10, 1 << 18, 1 << 27, 1 << 40];
            for _ in 0..20_000 {
                if rng.random_range(0..9) < 5 || model.is_empty() {
                    let reach = reach[rng.random_range(0..reach.len())];
                    let at = now + rng.random_range(0..reach);
                    queue.push(at, next);
                    model.push((at, next));
                    next += 1;
                } else {
                    let first = *model.iter().min().unwrap();
                    model.retain(|other| *other != first);
                    assert_eq!(queue.next_at_ps(), Some(first.0));
                    assert_eq!(queue.pop(), Some(first));
                    now = first.0;
                }
                assert_eq!(queue.len(), model.len());
                if model.len() > 40 {
                    let keep = model.iter().min().copied().unwrap();
                    assert_eq!(queue.pop(), Some(keep));
                    model.retain(|other| *other != keep);
                    now = keep.0;
                }
            }
        }
    }

    #[test]
    fn events_of_one_time_keep_their_order() {
        let mut queue = EventQueue::new();
        for (index, at) in [7, 7, 3, 7, 3].into_iter().enumerate() {
            queue.push(at, index);
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|(_, item)| item).collect();
        assert_eq!(order, [2, 4, 0, 1, 3]);
    }

    #[test]
    #[should_panic(expected = "an event in the past")]
    fn the_past_is_closed() {
        let mut queue = EventQueue::new();
        queue.push(10, ());
        queue.pop();
        queue.push(9, ());
    }
}
