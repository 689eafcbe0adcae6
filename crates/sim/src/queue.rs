//! The event queue: a calendar of near buckets, and a heap for what is far away.
//!
//! Invariant: events come out by time, and those of one time in the order in which they went in; so
//! a run is a function of its seed. Nothing is allocated once the queue has grown to its working size.
//!
//! A calendar (Brown, "Calendar queues: a fast O(1) priority queue implementation for the simulation
//! event set problem", CACM 1988) without its resizing: verbs take microseconds whatever the
//! cluster, so that one width serves. Buckets are lists in one small block of memory, which stays in
//! the cache; buckets as vectors, each with its own, did not. What comes next is sorted a few
//! events ahead, so that one can see who comes soon. The example `event_queue` compares it with a
//! binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds of one bucket, as a power of two: 66 ns, two or three events of a large cluster.
const WIDTH_BITS: u32 = 16;
/// Buckets, a power of two: what lies further ahead than 134 µs waits in the heap.
const BUCKETS: usize = 2048;
const WORDS: usize = BUCKETS / 64;
/// So many events after the next one are known, if there are so many.
pub const KNOWN_AHEAD: usize = 19;
/// No node.
const NONE: u32 = u32::MAX;

/// An event and when it happens.
#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at_ps: u64,
    sequence: u64,
    item: T,
}

impl<T> Entry<T> {
    #[inline(always)]
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

/// An entry of a bucket and the next one.
#[derive(Clone, Copy, Debug)]
struct Node<T> {
    entry: Entry<T>,
    next: u32,
}

/// See the module's text. Times are picoseconds.
#[derive(Debug)]
pub struct EventQueue<T> {
    /// The first node of each bucket; the order in a bucket is that of nothing.
    buckets: Box<[u32; BUCKETS]>,
    /// Which buckets hold something.
    occupied: [u64; WORDS],
    nodes: Vec<Node<T>>,
    free: u32,
    /// What comes next, sorted, from `head` on: all of the buckets up to `cursor`.
    open: Vec<Entry<T>>,
    head: usize,
    /// Number of the last opened bucket since time began.
    cursor: u64,
    far: BinaryHeap<Reverse<Entry<T>>>,
    /// The bucket of the first entry of `far`.
    far_bucket: u64,
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
            buckets: Box::new([NONE; BUCKETS]),
            occupied: [0; WORDS],
            nodes: Vec::new(),
            free: NONE,
            open: Vec::new(),
            head: 0,
            cursor: 0,
            far: BinaryHeap::new(),
            far_bucket: u64::MAX,
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
            self.insert(entry);
        } else if bucket < self.cursor + BUCKETS as u64 {
            self.file(bucket, entry);
        } else {
            self.far.push(Reverse(entry));
            self.far_bucket = self.far_bucket.min(bucket);
        }
    }

    /// Sorts an entry into what is open: from the end, where it mostly belongs.
    #[inline]
    fn insert(&mut self, entry: Entry<T>) {
        let mut at = self.open.len();
        self.open.push(entry);
        while at > self.head && self.open[at - 1].key() > entry.key() {
            self.open[at] = self.open[at - 1];
            at -= 1;
        }
        self.open[at] = entry;
    }

    #[inline]
    fn file(&mut self, bucket: u64, entry: Entry<T>) {
        let index = bucket as usize % BUCKETS;
        let node = Node { entry, next: self.buckets[index] };
        let place = self.free;
        match self.nodes.get_mut(place as usize) {
            Some(free) => {
                self.free = free.next;
                *free = node;
                self.buckets[index] = place;
            }
            None => {
                self.buckets[index] = self.nodes.len() as u32;
                self.nodes.push(node);
            }
        }
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// When the next event happens.
    #[inline]
    pub fn next_at_ps(&mut self) -> Option<u64> {
        self.look_ahead();
        self.open.get(self.head).map(|entry| entry.at_ps)
    }

    /// The event that comes `turns` after the next one, if it is known already: at least up to
    /// [`KNOWN_AHEAD`]. Others may come before it.
    #[inline]
    pub fn soon(&self, turns: usize) -> Option<T> {
        self.open.get(self.head + turns).map(|entry| entry.item)
    }

    /// The next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.look_ahead();
        let entry = *self.open.get(self.head)?;
        self.head += 1;
        debug_assert!(entry.at_ps >= self.now_ps);
        self.now_ps = entry.at_ps;
        self.len -= 1;
        Some((entry.at_ps, entry.item))
    }

    #[inline(always)]
    fn look_ahead(&mut self) {
        if self.open.len() - self.head <= KNOWN_AHEAD {
            self.open_some();
        }
    }

    /// Opens buckets until enough is known.
    fn open_some(&mut self) {
        // What is left moves to the front; seldom, since it is short then.
        if self.head > 2 * KNOWN_AHEAD {
            self.open.drain(..self.head);
            self.head = 0;
        }
        loop {
            let known = self.open.len() - self.head;
            if known > KNOWN_AHEAD || known == self.len {
                return;
            }
            self.open_next();
        }
    }

    /// Opens the next bucket that holds something.
    #[inline]
    fn open_next(&mut self) {
        let near = self.next_occupied().unwrap_or(u64::MAX);
        self.cursor = near.min(self.far_bucket);
        if self.far_bucket < self.cursor + BUCKETS as u64 {
            self.fetch_far();
        }
        let index = self.cursor as usize % BUCKETS;
        self.occupied[index / 64] &= !(1 << (index % 64));
        let mut place = std::mem::replace(&mut self.buckets[index], NONE);
        while place != NONE {
            let node = &mut self.nodes[place as usize];
            let next = std::mem::replace(&mut node.next, self.free);
            let entry = node.entry;
            self.free = place;
            place = next;
            self.insert(entry);
        }
    }

    /// Files what has come near.
    #[cold]
    fn fetch_far(&mut self) {
        self.far_bucket = u64::MAX;
        while let Some(Reverse(entry)) = self.far.peek() {
            let bucket = entry.at_ps >> WIDTH_BITS;
            if bucket >= self.cursor + BUCKETS as u64 {
                self.far_bucket = bucket;
                return;
            }
            let Reverse(entry) = self.far.pop().expect("it was seen");
            self.file(bucket, entry);
        }
    }

    /// The first occupied bucket from the cursor on.
    #[inline]
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
