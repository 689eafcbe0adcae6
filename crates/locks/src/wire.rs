//! Packets as bytes: datagrams of several lock packets, sealed with the cluster's key.
//!
//! Invariant: a datagram is opened whole or not at all. [`open`] checks length, version, addressee and seal before any packet is read, and
//! every packet of an opened datagram decodes, or the datagram is refused. All numbers are little-endian.
//!
//! | bytes of the header | |
//! |---|---|
//! | 0..2 | [`MAGIC`] |
//! | 2 | [`VERSION`] |
//! | 3 | the number of lock packets |
//! | 4..8 | the sender's view |
//! | 8..10 | the sender's machine; 0 is the decider |
//! | 10..12 | the addressee's machine; 0 is the decider |
//! | 12..16 | 0 |
//! | 16..32 | the seal: SipHash-2-4 with 128 bits over bytes 0..16 and 32.. |
//!
//! | bytes of a packet | |
//! |---|---|
//! | 0 | the kind ([`kind`]) |
//! | 1 | flags: 1 exclusive, 2 bars readers, 4 granted, 8 has a number; from bit 4 the verdict or the acknowledged kind |
//! | 2..4 | the number of waiters that follow the packet, 12 bytes each |
//! | 4..8 | the lock |
//! | 8..12 | the question's number on its lane |
//! | 12..14, 14..16, 16..20 | the request's machine, thread and sequence number |
//! | 20..22 | the lane's thread |
//! | 22..24 | the machine of the agent, or where an agent comes from; 0 is none |
//! | 24..32 | the acquire's number, or a count |
//! | 32..40 | the order of the token |
//!
//! A seal is no secret of one machine: every member of the cluster can speak for every other. It keeps strangers out.

use crate::decider::Sent;
use crate::host::Incoming;
use crate::links::Packet;
use crate::packet::{
    Answer, Ask, LaneId, Notice, NoticeKind, NoticeName, Payload, Question, Reply, Verdict, Waiter,
};
use crate::value::{LockId, Machine, Mode, RequestId, Thread, Token, View};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// The first two bytes of a datagram: "LT".
pub const MAGIC: u16 = 0x544c;
/// The version of the format.
pub const VERSION: u8 = 1;
/// The bytes of a datagram's header.
pub const HEADER_BYTES: usize = 32;
/// The bytes of a packet without waiters.
pub const PACKET_BYTES: usize = 40;
/// The bytes of a waiter.
pub const WAITER_BYTES: usize = 12;
/// The bytes up to which a datagram takes several packets: it fits one Ethernet frame.
pub const BATCH_BYTES: usize = 1_400;
/// The greatest number of bytes of a datagram. Only an agent with many waiters is above [`BATCH_BYTES`].
pub const DATAGRAM_BYTES_MAX: usize = 65_000;
/// The greatest number of waiters that move with an agent.
pub const WAITERS_MAX: usize = (DATAGRAM_BYTES_MAX - HEADER_BYTES - PACKET_BYTES) / WAITER_BYTES;

/// Kinds of packets.
pub mod kind {
    /// [`crate::packet::Ask::Acquire`].
    pub const ACQUIRE: u8 = 1;
    /// [`crate::packet::Ask::Free`].
    pub const FREE: u8 = 2;
    /// [`crate::packet::Ask::Transfer`].
    pub const TRANSFER: u8 = 3;
    /// [`crate::packet::Ask::BarReaders`].
    pub const BAR_READERS: u8 = 4;
    /// [`crate::packet::Reply`].
    pub const REPLY: u8 = 16;
    /// [`crate::packet::Notice::Copy`].
    pub const COPY: u8 = 32;
    /// [`crate::packet::Notice::Release`].
    pub const RELEASE: u8 = 33;
    /// [`crate::packet::Notice::Grant`].
    pub const GRANT: u8 = 34;
    /// [`crate::packet::Notice::Install`].
    pub const INSTALL: u8 = 35;
    /// An acknowledgement of a notice.
    pub const ACKNOWLEDGEMENT: u8 = 48;
}

/// Flags of a packet.
pub mod flag {
    /// The request is exclusive.
    pub const EXCLUSIVE: u8 = 1;
    /// Shared requests wait while this exclusive one does.
    pub const BARS_READERS: u8 = 2;
    /// The decider has granted the request.
    pub const GRANTED: u8 = 4;
    /// The release has the number of its acquire.
    pub const NUMBERED: u8 = 8;
    /// The first bit of a verdict or of an acknowledged kind.
    pub const CODE_SHIFT: u32 = 4;
}

/// The secret of a cluster: 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A lock packet of a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// For the decider.
    Question(Question),
    /// For a machine.
    Incoming(Incoming),
}

/// A datagram that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The datagram is shorter than its header or than its packets.
    Short,
    /// The datagram is longer than its packets.
    Long,
    /// Another protocol, or another version.
    Version,
    /// The seal is not the cluster's.
    Seal,
    /// The datagram is for another machine.
    Addressee,
    /// A packet has a kind, a flag or a machine that does not exist.
    Packet,
}

impl Malformed {
    /// All of them, in the order of their counters.
    pub const ALL: [Malformed; 6] = [
        Malformed::Short,
        Malformed::Long,
        Malformed::Version,
        Malformed::Seal,
        Malformed::Addressee,
        Malformed::Packet,
    ];

    /// The name of its counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::Short => "short",
            Malformed::Long => "long",
            Malformed::Version => "version",
            Malformed::Seal => "seal",
            Malformed::Addressee => "addressee",
            Malformed::Packet => "packet",
        }
    }
}

/// The seal of a datagram.
#[must_use]
pub fn seal_of(bytes: &[u8], key: &Key) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(&bytes[..16]);
    hasher.write(&bytes[HEADER_BYTES..]);
    hasher.finish128().as_bytes()
}

/// A datagram that is being filled.
#[derive(Clone, Debug)]
pub struct Datagram {
    bytes: Vec<u8>,
}

impl Datagram {
    /// A datagram without packets. Machine 0 is the decider.
    #[must_use]
    pub fn new(view: View, from: Machine, to: Machine) -> Datagram {
        let mut datagram = Datagram { bytes: Vec::with_capacity(BATCH_BYTES) };
        datagram.begin(view, from, to);
        datagram
    }

    /// Begins again, with the same memory.
    pub fn begin(&mut self, view: View, from: Machine, to: Machine) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.put(0, &MAGIC.to_le_bytes());
        self.bytes[2] = VERSION;
        self.put(4, &view.0.to_le_bytes());
        self.put(8, &from.0.to_le_bytes());
        self.put(10, &to.0.to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The number of lock packets.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.bytes[3])
    }

    /// Whether a packet with this number of waiters still fits. A datagram without packets takes up to [`WAITERS_MAX`] waiters.
    #[must_use]
    pub fn has_room(&self, waiters: usize) -> bool {
        let bytes = self.bytes.len() + PACKET_BYTES + waiters * WAITER_BYTES;
        bytes <= BATCH_BYTES || (self.count() == 0 && waiters <= WAITERS_MAX)
    }

    /// Seals the datagram and returns its bytes.
    pub fn seal(&mut self, key: &Key) -> &[u8] {
        let seal = seal_of(&self.bytes, key);
        self.put(16, &seal);
        &self.bytes
    }

    /// The bytes so far. They are sealed only if [`Datagram::seal`] came after the last packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn add(&mut self, fields: &Fields, waiters: &[Waiter]) {
        self.bytes[3] += 1;
        self.bytes.extend_from_slice(&fields.encode(waiters.len() as u16));
        for waiter in waiters {
            let Waiter { request, mode } = *waiter;
            self.bytes.extend_from_slice(&request.machine.0.to_le_bytes());
            self.bytes.extend_from_slice(&request.thread.0.to_le_bytes());
            self.bytes.extend_from_slice(&request.seq.to_le_bytes());
            self.bytes.extend_from_slice(&u32::from(mode_flag(mode)).to_le_bytes());
        }
    }

    /// Adds a question for a decider that answers its sender alone ([`crate::decider::Fanout::Answers`]): a transfer leaves its queue
    /// behind. So each question has [`PACKET_BYTES`], however many requests wait. The caller has asked [`Datagram::has_room`].
    pub fn question_alone(&mut self, question: &Question) {
        self.question_with(question, &[]);
    }

    /// Adds a question. The caller has asked [`Datagram::has_room`].
    pub fn question(&mut self, question: &Question) {
        let queue: &[Waiter] = match &question.ask {
            Ask::Transfer { payload, .. } => &payload.queue,
            _ => &[],
        };
        self.question_with(question, queue);
    }

    fn question_with(&mut self, question: &Question, queue: &[Waiter]) {
        let Question { lane, number, lock, ref ask, .. } = *question;
        let fields =
            Fields { lock, lane_number: number, lane_thread: lane.thread, ..Fields::EMPTY };
        match ask {
            Ask::Acquire { waiter, bars_readers } => {
                let flags = mode_flag(waiter.mode) | bars_flag(*bars_readers);
                let request = Some(waiter.request);
                self.add(&Fields { kind: kind::ACQUIRE, flags, request, ..fields }, &[]);
            }
            Ask::Free { count } => {
                self.add(&Fields { kind: kind::FREE, number: *count, ..fields }, &[]);
            }
            Ask::Transfer { count, next, bars_readers, .. } => {
                let flags = mode_flag(next.mode) | bars_flag(*bars_readers);
                let (request, number) = (Some(next.request), *count);
                let fields = Fields { kind: kind::TRANSFER, flags, request, number, ..fields };
                self.add(&fields, queue);
            }
            Ask::BarReaders => self.add(&Fields { kind: kind::BAR_READERS, ..fields }, &[]),
            Ask::Release => unreachable!("a planted fault of the search never reaches a network"),
        }
    }

    /// Adds the decider's answer.
    pub fn reply(&mut self, reply: &Reply) {
        let Reply { lane, number, lock, answer, token, .. } = *reply;
        let code = match answer.verdict {
            Verdict::Granted => 0,
            Verdict::Joined => 1,
            Verdict::Queued => 2,
            Verdict::Done => 3,
            Verdict::Refused => 4,
        };
        let fields = Fields {
            kind: kind::REPLY,
            flags: code << flag::CODE_SHIFT,
            lock,
            lane_number: number,
            lane_thread: lane.thread,
            other: answer.agent,
            number: answer.number,
            order: token.order,
            ..Fields::EMPTY
        };
        self.add(&fields, &[]);
    }

    /// Adds a notice.
    pub fn notice(&mut self, lock: LockId, notice: &Notice) {
        let fields = Fields { lock, request: Some(notice.request()), ..Fields::EMPTY };
        match *notice {
            Notice::Copy { waiter, number, granted } => {
                let granted = if granted { flag::GRANTED } else { 0 };
                let flags = mode_flag(waiter.mode) | granted;
                self.add(&Fields { kind: kind::COPY, flags, number, ..fields }, &[]);
            }
            Notice::Release { number, .. } => {
                let flags = if number.is_some() { flag::NUMBERED } else { 0 };
                let number = number.unwrap_or(0);
                self.add(&Fields { kind: kind::RELEASE, flags, number, ..fields }, &[]);
            }
            Notice::Grant { agent, token, .. } => {
                let (other, order) = (Some(agent), token.order);
                self.add(&Fields { kind: kind::GRANT, other, order, ..fields }, &[]);
            }
            Notice::Install { holder, from, ref payload, token } => {
                let fields = Fields {
                    kind: kind::INSTALL,
                    flags: mode_flag(holder.mode),
                    other: Some(from),
                    number: payload.counted,
                    order: token.order,
                    ..fields
                };
                self.add(&fields, &payload.queue);
            }
        }
    }

    /// Adds an acknowledgement.
    pub fn acknowledgement(&mut self, lock: LockId, name: NoticeName) {
        let code = match name.kind {
            NoticeKind::Copy => 0,
            NoticeKind::Joined => 1,
            NoticeKind::Release => 2,
            NoticeKind::Grant => 3,
            NoticeKind::Install => 4,
        };
        let (kind, flags) = (kind::ACKNOWLEDGEMENT, code << flag::CODE_SHIFT);
        let request = Some(name.request);
        self.add(&Fields { kind, flags, lock, request, ..Fields::EMPTY }, &[]);
    }

    /// Adds a packet of a machine.
    pub fn packet(&mut self, packet: &Packet) {
        match packet {
            Packet::Question(question) => self.question(question),
            Packet::Notice { lock, notice, .. } => self.notice(*lock, notice),
            Packet::Acknowledgement { lock, name, .. } => self.acknowledgement(*lock, *name),
        }
    }

    /// Adds a packet of the decider.
    pub fn sent(&mut self, sent: &Sent) {
        match sent {
            Sent::Reply(reply) => self.reply(reply),
            Sent::Notice { lock, notice, .. } => self.notice(*lock, notice),
        }
    }
}

/// The number of waiters that go with a packet.
#[must_use]
pub fn waiters_of(packet: &Packet) -> usize {
    match packet {
        Packet::Question(Question { ask: Ask::Transfer { payload, .. }, .. })
        | Packet::Notice { notice: Notice::Install { payload, .. }, .. } => payload.queue.len(),
        Packet::Question(_) | Packet::Notice { .. } | Packet::Acknowledgement { .. } => 0,
    }
}

/// The fields of a packet in memory.
#[derive(Clone, Copy)]
struct Fields {
    kind: u8,
    flags: u8,
    lock: LockId,
    lane_number: u32,
    request: Option<RequestId>,
    lane_thread: Thread,
    other: Option<Machine>,
    number: u64,
    order: u64,
}

impl Fields {
    const EMPTY: Fields = Fields {
        kind: 0,
        flags: 0,
        lock: LockId(0),
        lane_number: 0,
        request: None,
        lane_thread: Thread(0),
        other: None,
        number: 0,
        order: 0,
    };

    fn encode(&self, waiters: u16) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        (bytes[0], bytes[1]) = (self.kind, self.flags);
        bytes[2..4].copy_from_slice(&waiters.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.lock.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.lane_number.to_le_bytes());
        if let Some(request) = self.request {
            bytes[12..14].copy_from_slice(&request.machine.0.to_le_bytes());
            bytes[14..16].copy_from_slice(&request.thread.0.to_le_bytes());
            bytes[16..20].copy_from_slice(&request.seq.to_le_bytes());
        }
        bytes[20..22].copy_from_slice(&self.lane_thread.0.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.other.map_or(0, |machine| machine.0).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.order.to_le_bytes());
        bytes
    }

    /// The fields, and the number of waiters that follow.
    fn decode(bytes: &[u8; PACKET_BYTES]) -> (Fields, usize) {
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from(two(at)) | u32::from(two(at + 2)) << 16;
        let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        let machine = two(12);
        let request = (machine != 0).then(|| RequestId {
            machine: Machine(machine),
            thread: Thread(two(14)),
            seq: four(16),
        });
        let fields = Fields {
            kind: bytes[0],
            flags: bytes[1],
            lock: LockId(four(4)),
            lane_number: four(8),
            request,
            lane_thread: Thread(two(20)),
            other: (two(22) != 0).then(|| Machine(two(22))),
            number: eight(24),
            order: eight(32),
        };
        (fields, usize::from(two(2)))
    }

    fn mode(&self) -> Mode {
        if self.flags & flag::EXCLUSIVE == 0 { Mode::Shared } else { Mode::Exclusive }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn item(&self, ends: Ends, queue: Vec<Waiter>) -> Option<Item> {
        let Ends { view, from, to } = ends;
        let (lock, number, mode) = (self.lock, self.number, self.mode());
        let token = Token { view, order: self.order };
        let notice = |notice| Some(Item::Incoming(Incoming::Notice { view, lock, notice }));
        let question = |ask| {
            // The decider is 0: a question from it would be its own.
            let lane = LaneId { machine: from, thread: self.lane_thread };
            let question = Question { view, lane, number: self.lane_number, lock, ask };
            (from.0 != 0 && to.0 == 0).then_some(Item::Question(question))
        };
        let is_for_machine = to.0 != 0;
        match self.kind {
            kind::ACQUIRE => {
                let waiter =
                    Waiter { request: self.request.filter(|it| it.machine == from)?, mode };
                let bars_readers = self.has(flag::BARS_READERS);
                question(Ask::Acquire { waiter, bars_readers })
            }
            kind::FREE => question(Ask::Free { count: number }),
            kind::TRANSFER => {
                let next = Waiter { request: self.request?, mode };
                let bars_readers = self.has(flag::BARS_READERS);
                let payload = Payload { counted: number, queue };
                question(Ask::Transfer { count: number, next, bars_readers, payload })
            }
            kind::BAR_READERS => question(Ask::BarReaders),
            _ if !is_for_machine => None,
            kind::REPLY if from.0 == 0 => {
                let verdict = match self.flags >> flag::CODE_SHIFT {
                    0 => Verdict::Granted,
                    1 => Verdict::Joined,
                    2 => Verdict::Queued,
                    3 => Verdict::Done,
                    4 => Verdict::Refused,
                    _ => return None,
                };
                let answer = Answer { verdict, agent: self.other, number };
                let lane = LaneId { machine: to, thread: self.lane_thread };
                let number = self.lane_number;
                let reply = Reply { view, lane, number, lock, answer, token };
                Some(Item::Incoming(Incoming::Reply(reply)))
            }
            kind::COPY => {
                let waiter = Waiter { request: self.request?, mode };
                notice(Notice::Copy { waiter, number, granted: self.has(flag::GRANTED) })
            }
            kind::RELEASE => {
                let number = self.has(flag::NUMBERED).then_some(number);
                notice(Notice::Release { request: self.request?, number })
            }
            kind::GRANT => {
                let (request, agent) = (self.request?, self.other?);
                notice(Notice::Grant { request, agent, token })
            }
            kind::INSTALL => {
                let holder = Waiter { request: self.request?, mode };
                let payload = Payload { counted: number, queue };
                notice(Notice::Install { holder, from: self.other?, payload, token })
            }
            kind::ACKNOWLEDGEMENT => {
                let kind = match self.flags >> flag::CODE_SHIFT {
                    0 => NoticeKind::Copy,
                    1 => NoticeKind::Joined,
                    2 => NoticeKind::Release,
                    3 => NoticeKind::Grant,
                    4 => NoticeKind::Install,
                    _ => return None,
                };
                let name = NoticeName { kind, request: self.request? };
                Some(Item::Incoming(Incoming::Acknowledgement { view, lock, name }))
            }
            _ => None,
        }
    }
}

fn mode_flag(mode: Mode) -> u8 {
    if mode == Mode::Exclusive { flag::EXCLUSIVE } else { 0 }
}

fn bars_flag(bars_readers: bool) -> u8 {
    if bars_readers { flag::BARS_READERS } else { 0 }
}

/// The two ends of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ends {
    /// The sender's view.
    pub view: View,
    /// The sender; 0 is the decider.
    pub from: Machine,
    /// The addressee; 0 is the decider.
    pub to: Machine,
}

/// Opens a datagram for the machine `to`, and hands its packets to `take` in their order.
///
/// # Errors
/// The datagram is refused as a whole: `take` is called with none of its packets.
pub fn open(
    bytes: &[u8],
    (to, key): (Machine, &Key),
    take: &mut impl FnMut(Ends, Item),
) -> Result<Ends, Malformed> {
    if bytes.len() < HEADER_BYTES {
        return Err(Malformed::Short);
    }
    let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if two(0) != MAGIC || bytes[2] != VERSION {
        return Err(Malformed::Version);
    }
    let view = View(u32::from(two(4)) | u32::from(two(6)) << 16);
    let ends = Ends { view, from: Machine(two(8)), to: Machine(two(10)) };
    if ends.to != to {
        return Err(Malformed::Addressee);
    }
    if !is_equal(&seal_of(bytes, key), &bytes[16..32]) {
        return Err(Malformed::Seal);
    }
    // Twice: a datagram that ends in a packet that does not decode has no effect.
    each(bytes, ends, &mut |_| {})?;
    each(bytes, ends, &mut |item| take(ends, item))?;
    Ok(ends)
}

/// Compares in a time that does not depend on the bytes.
fn is_equal(one: &[u8; 16], other: &[u8]) -> bool {
    one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

fn each(bytes: &[u8], ends: Ends, take: &mut impl FnMut(Item)) -> Result<(), Malformed> {
    let mut rest = &bytes[HEADER_BYTES..];
    for _ in 0..bytes[3] {
        let (packet, after) = rest.split_first_chunk().ok_or(Malformed::Short)?;
        let (fields, waiters) = Fields::decode(packet);
        let (queue, after) =
            after.split_at_checked(waiters * WAITER_BYTES).ok_or(Malformed::Short)?;
        let takes_waiters = matches!(fields.kind, kind::TRANSFER | kind::INSTALL);
        if waiters > 0 && !takes_waiters {
            return Err(Malformed::Packet);
        }
        let queue: Option<Vec<Waiter>> = queue.chunks_exact(WAITER_BYTES).map(waiter).collect();
        let item = fields.item(ends, queue.ok_or(Malformed::Packet)?).ok_or(Malformed::Packet)?;
        take(item);
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
}

fn waiter(bytes: &[u8]) -> Option<Waiter> {
    let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let four = |at: usize| u32::from(two(at)) | u32::from(two(at + 2)) << 16;
    let mode = match four(8) {
        0 => Mode::Shared,
        1 => Mode::Exclusive,
        _ => return None,
    };
    let (machine, thread, seq) = (Machine(two(0)), Thread(two(2)), four(4));
    (machine.0 != 0).then_some(Waiter { request: RequestId { machine, thread, seq }, mode })
}
