//! The event queue: a calendar of short slots for near events, and a heap for events that are far away.
//!
//! Invariant: events leave the queue in the order of their times. Events of the same time leave the
//! queue in the order in which they were added. So a run is a function of its seed. The queue allocates
//! nothing once it has grown to its working size.
//!
//! The queue is a calendar (Brown, "Calendar queues: a fast O(1) priority queue implementation for the
//! simulation event set problem", CACM 1988) without its resizing. Verbs take microseconds on every
//! cluster, so one width of slots is enough. A slot is so short that it usually holds one event or
//! none. The events of a slot form a sorted list in one small block of memory, and this block stays in
//! the cache. A map of bits finds the next occupied slot. The example `event_queue` compares this queue
//! with a binary heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The length of one slot in picoseconds, as a power of two. The length is 16 ns. On a large cluster
/// the time between two events is three times as long.
const WIDTH_BITS: u32 = 14;
/// The number of slots, a power of two. Events more than 134 µs ahead of the present time wait in the
/// heap.
const SLOTS: usize = 8192;
const WORDS: usize = SLOTS / 64;
/// The index that means "no node".
const NONE: u32 = u32::MAX;

/// An event that is too far away for the calendar.
#[derive(Clone, Copy, Debug)]
struct Far<T> {
    at_ps: u64,
    sequence: u64,
    item: T,
}

impl<T> Far<T> {
    fn key(&self) -> (u64, u64) {
        (self.at_ps, self.sequence)
    }
}

impl<T> PartialEq for Far<T> {
    fn eq(&self, other: &Far<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Far<T> {}

impl<T> PartialOrd for Far<T> {
    fn partial_cmp(&self, other: &Far<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Far<T> {
    fn cmp(&self, other: &Far<T>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// An event of a slot, and the index of the next event of that slot.
#[derive(Clone, Copy, Debug)]
struct Node<T> {
    at_ps: u64,
    next: u32,
    item: T,
}

/// A queue of events, ordered by time. All times are in picoseconds.
#[derive(Debug)]
pub struct EventQueue<T> {
    /// The first node of each slot's list of events.
    heads: Box<[u32; SLOTS]>,
    /// The slots that hold events, one bit per slot.
    occupied: Box<[u64; WORDS]>,
    nodes: Vec<Node<T>>,
    free: u32,
    /// The number of the slot from which the last event was taken. Slots are numbered since time zero.
    cursor: u64,
    /// The number of events in slots.
    near: usize,
    /// All events before this slot were already shown. The field `shown` counts the shown events that
    /// still wait.
    shown_to: u64,
    shown: usize,
    /// The events beyond the calendar.
    far: BinaryHeap<Reverse<Far<T>>>,
    /// The slot of the earliest event in `far`.
    far_slot: u64,
    sequence: u64,
    /// The time of the last event that was taken.
    now_ps: u64,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> EventQueue<T> {
        EventQueue::new()
    }
}

impl<T: Copy> EventQueue<T> {
    /// Creates an empty queue at time zero.
    pub fn new() -> EventQueue<T> {
        EventQueue {
            heads: Box::new([NONE; SLOTS]),
            occupied: Box::new([0; WORDS]),
            nodes: Vec::new(),
            free: NONE,
            cursor: 0,
            near: 0,
            shown_to: 0,
            shown: 0,
            far: BinaryHeap::new(),
            far_slot: u64::MAX,
            sequence: 0,
            now_ps: 0,
        }
    }

    /// The number of waiting events.
    pub fn len(&self) -> usize {
        self.near + self.far.len()
    }

    /// Returns whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an event. The time must not be before the time of the last event that was taken.
    #[inline]
    pub fn push(&mut self, at_ps: u64, item: T) {
        assert!(at_ps >= self.now_ps, "an event in the past");
        let slot = at_ps >> WIDTH_BITS;
        if slot - self.cursor < SLOTS as u64 {
            self.file(slot, at_ps, item);
        } else {
            self.push_far(slot, at_ps, item);
        }
    }

    /// Like `push`, for an event that is too far away for the calendar. A separate function, so that `push`
    /// needs few registers.
    #[inline(never)]
    fn push_far(&mut self, slot: u64, at_ps: u64, item: T) {
        self.sequence += 1;
        self.far.push(Reverse(Far { at_ps, sequence: self.sequence, item }));
        self.far_slot = self.far_slot.min(slot);
    }

    /// Adds an event to its slot, behind the slot's earlier events of the same time.
    #[inline(always)]
    fn file(&mut self, slot: u64, at_ps: u64, item: T) {
        let index = slot as usize % SLOTS;
        let head = self.heads[index];
        let place = self.free;
        if head == NONE
            && let Some(node) = self.nodes.get_mut(place as usize)
        {
            self.free = node.next;
            *node = Node { at_ps, next: NONE, item };
            self.heads[index] = place;
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.file_among(index, at_ps, item);
        }
        self.near += 1;
        self.shown += usize::from(slot < self.shown_to);
    }

    /// Like `file`, for the case that the slot already holds an event or that no node is free.
    #[inline(never)]
    fn file_among(&mut self, index: usize, at_ps: u64, item: T) {
        let node = |next| Node { at_ps, next, item };
        let (mut before, mut after) = (NONE, self.heads[index]);
        while let Some(other) = self.nodes.get(after as usize).filter(|other| other.at_ps <= at_ps)
        {
            (before, after) = (after, other.next);
        }
        let mut place = self.free;
        match self.nodes.get_mut(place as usize) {
            Some(free) => {
                self.free = free.next;
                *free = node(after);
            }
            None => {
                place = self.nodes.len() as u32;
                self.nodes.push(node(after));
            }
        }
        match self.nodes.get_mut(before as usize) {
            Some(before) => before.next = place,
            None => self.heads[index] = place,
        }
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// Takes the next event out of the queue.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        self.pop_until(u64::MAX)
    }

    /// Takes the next event out of the queue, if this event does not happen after `until_ps`.
    #[inline]
    pub fn pop_until(&mut self, until_ps: u64) -> Option<(u64, T)> {
        if self.near == 0 {
            return self.pop_far(until_ps);
        }
        let slot = self.next_occupied(self.cursor).expect("an event is near");
        let index = slot as usize % SLOTS;
        let place = self.heads[index];
        let node = &mut self.nodes[place as usize];
        let (at_ps, next, item) = (node.at_ps, node.next, node.item);
        if at_ps > until_ps {
            return None;
        }
        debug_assert!(at_ps >= self.now_ps);
        node.next = self.free;
        self.free = place;
        self.heads[index] = next;
        self.occupied[index / 64] &= !(u64::from(next == NONE) << (index % 64));
        self.near -= 1;
        self.shown -= usize::from(slot < self.shown_to);
        self.now_ps = at_ps;
        self.cursor = slot;
        if self.far_slot - slot < SLOTS as u64 {
            self.fetch_far();
        }
        Some((at_ps, item))
    }

    /// Like `pop_until`, for the case that the calendar is empty.
    #[cold]
    fn pop_far(&mut self, until_ps: u64) -> Option<(u64, T)> {
        let Reverse(first) = self.far.peek()?;
        if first.at_ps > until_ps {
            return None;
        }
        self.cursor = self.far_slot;
        self.fetch_far();
        self.pop_until(until_ps)
    }

    /// Moves the events that are now near enough from the heap into their slots.
    #[cold]
    fn fetch_far(&mut self) {
        self.far_slot = u64::MAX;
        while let Some(Reverse(first)) = self.far.peek() {
            let slot = first.at_ps >> WIDTH_BITS;
            if slot - self.cursor >= SLOTS as u64 {
                self.far_slot = slot;
                return;
            }
            let Reverse(Far { at_ps, item, .. }) = self.far.pop().expect(
                "the heap's first event \
                was seen above",
            );
            self.file(slot, at_ps, item);
        }
    }

    /// Returns how many of the waiting events were already shown.
    #[inline(always)]
    pub fn shown(&self) -> usize {
        self.shown
    }

    /// Shows the next events in the order of their times, each event once. The function stops when
    /// `ahead` of the waiting events have been shown. An event that is added before an already shown
    /// event is never shown.
    #[inline]
    pub fn show(&mut self, ahead: usize, mut see: impl FnMut(T)) {
        while self.shown < ahead.min(self.near) {
            let slot = self.next_occupied(self.shown_to.max(self.cursor));
            let slot = slot.expect("an event that was not shown waits");
            let mut place = self.heads[slot as usize % SLOTS];
            while let Some(node) = self.nodes.get(place as usize) {
                see(node.item);
                self.shown += 1;
                place = node.next;
            }
            self.shown_to = slot + 1;
        }
    }

    /// Returns the first occupied slot from `from` on. `from` must not be before the cursor.
    #[inline(always)]
    fn next_occupied(&self, from: u64) -> Option<u64> {
        let start = from as usize % SLOTS;
        let bits = self.occupied[start / 64] >> (start % 64);
        if bits != 0 {
            return Some(from + u64::from(bits.trailing_zeros()));
        }
        self.next_occupied_word(from)
    }

    /// Like `next_occupied`, for the case that the slot's bit is in another word of the bit map.
    #[inline]
    fn next_occupied_word(&self, from: u64) -> Option<u64> {
        let (word, bit) = (from as usize % SLOTS / 64, from as usize % 64);
        for step in 1..=WORDS {
            let bits = self.occupied[(word + step) % WORDS];
            if bits != 0 {
                let ahead = step * 64 - bit + bits.trailing_zeros() as usize;
                return Some(from + ahead as u64);
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
    fn the_queue_agrees_with_a_sorted_list() {
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
                    now = pop_both(&mut queue, &mut model);
                }
                assert_eq!(queue.len(), model.len());
                if model.len() > 40 {
                    now = pop_both(&mut queue, &mut model);
                }
            }
        }
    }

    /// Takes the next event from the queue and from the model. Returns the time of the event.
    fn pop_both(queue: &mut EventQueue<u64>, model: &mut Vec<(u64, u64)>) -> u64 {
        let first = *model.iter().min().unwrap();
        model.retain(|other| *other != first);
        if first.0 > 0 {
            assert_eq!(queue.pop_until(first.0 - 1), None);
        }
        assert_eq!(queue.pop_until(first.0), Some(first));
        first.0
    }

    /// Each event is shown once, in the order of times, unless it was added too late.
    #[test]
    fn events_are_shown_in_their_order() {
        for seed in 0..20 {
            let mut rng = seeded(seed, 0);
            let mut queue = EventQueue::new();
            let (mut now, mut next, mut last) = (0, 0u64, 0);
            let mut seen = std::collections::BTreeSet::new();
            let mut shown = 0;
            for _ in 0..20_000 {
                if rng.random_range(0..2) == 0 {
                    let at = now + 200_000 + rng.random_range(0..1u64 << 28);
                    queue.push(at, (at, next));
                    next += 1;
                } else if let Some((at, _)) = queue.pop() {
                    now = at;
                }
                queue.show(8, |(at, number)| {
                    assert!(at >> WIDTH_BITS >= last >> WIDTH_BITS, "shown too late");
                    assert!(seen.insert(number), "shown twice");
                    last = at;
                    shown += 1;
                });
                assert!(queue.shown() >= queue.near.min(8));
            }
            assert!(shown > 1_000);
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
    fn an_event_in_the_past_is_refused() {
        let mut queue = EventQueue::new();
        queue.push(10, ());
        queue.pop();
        queue.push(9, ());
    }
}
