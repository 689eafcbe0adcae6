//! Datagrams between threads of this process.
//!
//! Invariant: each ring has exactly one producer and one consumer. When a [`Sender`] sends its first datagram to a
//! destination, it creates its own ring under a lock, and no other sender uses this ring. Only the [`Receiver`] of an
//! inbox empties the inbox's rings.
//!
//! Sending and receiving take no lock and no read-modify-write instruction. The producer publishes `tail` and the
//! consumer publishes `head`, each with one release store (Lamport, "Specifying concurrent program modules", TOPLAS
//! 1983). The producer keeps a copy of `head` and the consumer keeps a copy of `tail`, so that each of them seldom
//! accesses the other's cache line (Lee, Bu and Chandranmenon, "A lock-free, cache-efficient shared ring buffer",
//! ANCS 2009).
//!
//! Loss: if the ring is full or the destination is unknown, the datagram is lost without an error, as in a network.
//! If an endpoint registers again, datagrams in flight to this endpoint are lost.
//!
//! ```text
//! ring: 128 KiB of words, made at first use.
//! record: length u64 | bytes, padded to 8.   A record never wraps: a length of WRAP says
//! "go on at the start".
//! ```

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, Site, Watch, order};
use crate::backend::Endpoint;
use crate::error::FabricError;
use crossbeam_utils::CachePadded;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum size of a datagram in bytes.
pub const DATAGRAM_BYTES_MAX: usize = if cfg!(loom) { 8 } else { 4096 };

/// The number of words of a ring. A ring has room for at least 31 datagrams of the maximum size, and in a model for
/// four.
const RING_WORDS: u64 = if cfg!(loom) { 8 } else { (128 << 10) / 8 };
const WRAP: u64 = u64::MAX;

const _: () = assert!(RING_WORDS.is_power_of_two());
const _: () = assert!(RING_WORDS >= 4 * (DATAGRAM_BYTES_MAX as u64 / 8 + 1));

/// The ring of datagrams from one sender to one receiver. A position in the ring is a number of words, and never
/// wraps.
struct Ring {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    words: Box<[UnsafeCell<u64>]>,
    watch: Watch,
}

// SAFETY: only the one consumer reads words in `head..tail`, and only the one producer writes the other words. The
// release store of `tail` passes words to the consumer, which loads `tail` with acquire. The release store of `head`
// passes words to the producer, which loads `head` with acquire. Only `Producer` and `Consumer` use the ring, and
// neither is `Clone`.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Ring {
        Ring {
            head: CachePadded::default(),
            tail: CachePadded::default(),
            words: (0..RING_WORDS).map(|_| UnsafeCell::new(0)).collect(),
            watch: Watch::new(RING_WORDS),
        }
    }

    fn word(&self, position: u64) -> *mut u64 {
        let index = (position % RING_WORDS) as usize;
        // SAFETY: the ring has RING_WORDS words. The pointer comes from the whole slice, so that it may be moved
        // within the slice.
        unsafe { UnsafeCell::raw_get(self.words.as_ptr().add(index)) }
    }
}

/// The producer's end of a ring.
struct Producer {
    ring: Arc<Ring>,
    tail: u64,
    head_seen: u64,
}

impl Producer {
    /// Appends a datagram to the ring. Returns `false` if the ring has no room.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let words = 1 + bytes.len().div_ceil(8) as u64;
        let to_end = RING_WORDS - self.tail % RING_WORDS;
        let skip = if words > to_end { to_end } else { 0 };
        let end = self.tail + skip + words;
        if end - self.head_seen > RING_WORDS {
            self.head_seen = self.ring.head.load(order(Site::HeadSeen, Ordering::Acquire));
            if end - self.head_seen > RING_WORDS {
                return false;
            }
        }
        let at = self.tail + skip;
        let record = self.ring.word(at);
        self.ring.watch.writes(self.tail..end);
        // SAFETY: only the producer uses the positions `tail..end`, because `end - head` is not larger than the ring,
        // and the consumer has passed these positions. The record lies before the ring's end. So its words are
        // contiguous in one allocation and have room for `bytes`.
        unsafe {
            if skip > 0 {
                self.ring.word(self.tail).write(WRAP);
            }
            record.write(bytes.len() as u64);
            record.add(1).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.tail = end;
        self.ring.tail.store(end, order(Site::TailPublished, Ordering::Release));
        true
    }
}

/// The consumer's end of a ring.
struct Consumer {
    from: Endpoint,
    ring: Arc<Ring>,
    head: u64,
    tail_seen: u64,
}

impl Consumer {
    /// Passes the oldest datagram of the ring to `sink`. Returns `false` if the ring is empty.
    #[inline]
    fn pop(&mut self, sink: &mut dyn FnMut(Endpoint, &[u8])) -> bool {
        if self.head == self.tail_seen {
            self.tail_seen = self.ring.tail.load(order(Site::TailSeen, Ordering::Acquire));
            if self.head == self.tail_seen {
                return false;
            }
        }
        // SAFETY: the producer has published the positions `head..tail_seen`, and does not write them until `head`
        // has passed them. The producer wrote each record's length together with the record, and the record lies
        // inside the ring.
        let (bytes, end) = unsafe {
            if self.ring.word(self.head).read() == WRAP {
                self.head = self.head.next_multiple_of(RING_WORDS);
            }
            let record = self.ring.word(self.head);
            let len = record.read() as usize;
            let bytes = std::slice::from_raw_parts(record.add(1).cast::<u8>(), len);
            (bytes, self.head + 1 + len.div_ceil(8) as u64)
        };
        self.ring.watch.reads(self.head..end);
        sink(self.from, bytes);
        self.head = end;
        self.ring.head.store(end, order(Site::HeadPublished, Ordering::Release));
        true
    }
}

/// The place where senders announce their rings to one receiver.
#[derive(Default)]
struct Inbox {
    /// A number that changes when a sender adds a ring.
    announced: AtomicU64,
    added: Mutex<Vec<(Endpoint, Arc<Ring>)>>,
}

/// All mailboxes of a fabric.
#[derive(Default)]
pub struct Mailboxes {
    /// A number that changes when an endpoint is registered or unregistered. Senders then look up their destinations
    /// again.
    version: AtomicU64,
    inboxes: Mutex<BTreeMap<Endpoint, Arc<Inbox>>>,
}

impl Mailboxes {
    fn table(&self) -> MutexGuard<'_, BTreeMap<Endpoint, Arc<Inbox>>> {
        self.inboxes.lock().expect("no panic under this lock")
    }

    /// Opens the mailbox of the endpoint `me`. An older mailbox of the same endpoint receives no more datagrams.
    pub fn register(&self, me: Endpoint) -> (Sender, Receiver) {
        let inbox = Arc::new(Inbox::default());
        self.table().insert(me, Arc::clone(&inbox));
        self.version.fetch_add(1, Ordering::Release);
        let sender = Sender { me, version: 0, producers: BTreeMap::new() };
        (sender, Receiver { me, inbox, announced: 0, consumers: Vec::new(), turn: 0 })
    }

    /// Closes a mailbox, unless its endpoint has registered a newer mailbox.
    pub fn unregister(&self, receiver: &Receiver) {
        let mut table = self.table();
        if table.get(&receiver.me).is_some_and(|inbox| Arc::ptr_eq(inbox, &receiver.inbox)) {
            table.remove(&receiver.me);
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

/// The part of a thread's mailbox that sends datagrams.
pub struct Sender {
    me: Endpoint,
    version: u64,
    /// The producer for each destination. `None` means that the destination was unknown when the table of inboxes
    /// changed last.
    producers: BTreeMap<Endpoint, Option<Producer>>,
}

impl Sender {
    /// Sends a datagram.
    ///
    /// # Errors
    /// `MessageTooLarge` if the datagram is larger than [`DATAGRAM_BYTES_MAX`].
    #[inline]
    pub fn send(
        &mut self,
        mailboxes: &Mailboxes,
        to: Endpoint,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        if bytes.len() > DATAGRAM_BYTES_MAX {
            let limit_bytes = DATAGRAM_BYTES_MAX;
            return Err(FabricError::MessageTooLarge { bytes: bytes.len(), limit_bytes });
        }
        let version = mailboxes.version.load(Ordering::Acquire);
        if version != self.version {
            self.producers.clear();
            self.version = version;
        }
        let me = self.me;
        let producer = self.producers.entry(to).or_insert_with(|| connect(mailboxes, me, to));
        if let Some(producer) = producer {
            producer.push(bytes);
        }
        Ok(())
    }
}

#[cold]
fn connect(mailboxes: &Mailboxes, from: Endpoint, to: Endpoint) -> Option<Producer> {
    let inbox = mailboxes.table().get(&to).cloned()?;
    let ring = Arc::new(Ring::new());
    inbox.added.lock().expect("no panic under this lock").push((from, Arc::clone(&ring)));
    inbox.announced.fetch_add(1, Ordering::Release);
    Some(Producer { ring, tail: 0, head_seen: 0 })
}

/// The part of a thread's mailbox that receives datagrams.
pub struct Receiver {
    me: Endpoint,
    inbox: Arc<Inbox>,
    announced: u64,
    consumers: Vec<Consumer>,
    turn: usize,
}

impl Receiver {
    /// Passes up to `budget` datagrams to `sink`, from all sources in turn. Returns the number of passed datagrams.
    pub fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(Endpoint, &[u8])) -> usize {
        let announced = self.inbox.announced.load(Ordering::Acquire);
        if announced != self.announced {
            self.announced = announced;
            self.look_for_sources();
        }
        let sources = self.consumers.len();
        let (mut taken, mut idle) = (0, 0);
        while taken < budget && idle < sources {
            self.turn = if self.turn + 1 < sources { self.turn + 1 } else { 0 };
            if self.consumers[self.turn].pop(sink) {
                taken += 1;
                idle = 0;
            } else {
                idle += 1;
            }
        }
        taken
    }

    #[cold]
    fn look_for_sources(&mut self) {
        // If the producer of a ring no longer exists, the ring is kept only until it is empty.
        self.consumers.retain(|source| {
            Arc::strong_count(&source.ring) > 1
                || source.ring.tail.load(Ordering::Acquire) != source.head
        });
        let mut added = self.inbox.added.lock().expect("no panic under this lock");
        let consumer = |(from, ring)| Consumer { from, ring, head: 0, tail_seen: 0 };
        self.consumers.extend(added.drain(..).map(consumer));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::address::NodeSlot;

    fn endpoint(node: u16) -> Endpoint {
        Endpoint { node: NodeSlot(node), thread: 0 }
    }

    #[test]
    fn datagrams_of_all_sizes_arrive_in_order_across_threads() {
        let mailboxes = Mailboxes::default();
        let (mut sender, _) = mailboxes.register(endpoint(0));
        let (_, mut receiver) = mailboxes.register(endpoint(1));
        let text = |n: usize| vec![n as u8; n * 37 % (DATAGRAM_BYTES_MAX + 1)];
        let sent = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20_000 {
                    while n > sent.load(Ordering::Acquire) + 24 {
                        std::thread::yield_now();
                    }
                    sender.send(&mailboxes, endpoint(1), &text(n)).unwrap();
                }
            });
            let mut n = 0;
            while n < 20_000 {
                receiver.receive(7, &mut |from, bytes| {
                    assert_eq!(from, endpoint(0));
                    assert_eq!(bytes, text(n));
                    n += 1;
                });
                sent.store(n, Ordering::Release);
            }
        });
    }

    #[test]
    fn full_rings_and_unknown_destinations_lose_silently() {
        let mailboxes = Mailboxes::default();
        let (mut sender, mut mine) = mailboxes.register(endpoint(0));
        sender.send(&mailboxes, endpoint(9), b"nobody").unwrap();
        let large = vec![7; DATAGRAM_BYTES_MAX];
        for _ in 0..1000 {
            sender.send(&mailboxes, endpoint(0), &large).unwrap();
        }
        let arrived = mine.receive(usize::MAX, &mut |_, bytes| assert_eq!(bytes, large));
        assert!((31..32).contains(&arrived), "{arrived}");
        assert!(sender.send(&mailboxes, endpoint(0), &[0; DATAGRAM_BYTES_MAX + 1]).is_err());
        let (_, mut newer) = mailboxes.register(endpoint(0));
        sender.send(&mailboxes, endpoint(0), b"to the newer").unwrap();
        assert_eq!(mine.receive(9, &mut |_, _| ()), 0);
        assert_eq!(newer.receive(9, &mut |_, bytes| assert_eq!(bytes, b"to the newer")), 1);
        mailboxes.unregister(&newer);
        sender.send(&mailboxes, endpoint(0), b"gone").unwrap();
        assert_eq!(newer.receive(9, &mut |_, _| ()), 0);
    }
}
