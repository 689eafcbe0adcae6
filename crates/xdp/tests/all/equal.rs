//! Random datagrams, whole and damaged: the program's frames are the decider's, byte by byte, and so are the
//! counters of its refusals.
//!
//! Invariant: the expected frame is built by `tarn_locks` alone: `wire::open`, `Decider::receive`, `wire::Datagram`.

use crate::frames::{Draws, HEADERS, frame, reply};
use crate::{CONFIG, decider};
use std::collections::BTreeMap;
use tarn_locks::decider::{Decider, Entry, Refusal, Sent};
use tarn_locks::packet::{Ask, LaneId, Payload, Question, Verdict, Waiter};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread, View, Width};
use tarn_locks::wire::{self, Datagram, HEADER_BYTES, Item, Key, Malformed, PACKET_BYTES};
use tarn_xdp::counters::Counter;
use tarn_xdp::kernel::{Action, Kind, Program};
use tarn_xdp::{DATAGRAM_BYTES_MAX, SETUP, WINDOW};

/// Lock packets to compare.
const PACKETS: u64 = 100_000;
const DECIDER: Machine = Machine(0);

/// The decider and the senders' lanes.
struct World {
    draws: Draws,
    decider: Decider,
    /// The number that was accepted last on each lane, and the same with the datagram that is being built.
    last: BTreeMap<LaneId, u32>,
    built: BTreeMap<LaneId, u32>,
    expected: BTreeMap<Counter, u64>,
    verdicts: BTreeMap<Verdict, u64>,
}

fn waiter(draws: &mut Draws, machine: u16) -> Waiter {
    let thread = Thread(draws.below(4) as u16);
    let request = RequestId { machine: Machine(machine), thread, seq: draws.next() as u32 };
    Waiter { request, mode: if draws.one_in(2) { Mode::Shared } else { Mode::Exclusive } }
}

impl World {
    fn new(entries: &[(LockId, Entry)]) -> World {
        World {
            draws: Draws(34),
            decider: Decider::rebuilt(SETUP, CONFIG.view, CONFIG.locks, entries),
            last: BTreeMap::new(),
            built: BTreeMap::new(),
            expected: BTreeMap::new(),
            verdicts: BTreeMap::new(),
        }
    }

    fn expect(&mut self, counter: Counter, by: u64) {
        *self.expected.entry(counter).or_default() += by;
    }

    fn question(&mut self, machine: u16, view: View) -> Question {
        let draws = &mut self.draws;
        let thread = Thread(draws.below(u64::from(CONFIG.threads)) as u16);
        let lane = LaneId { machine: Machine(machine), thread };
        let last = self.built.entry(lane).or_default();
        let number = match draws.below(12) {
            0 => last.wrapping_sub(draws.below(u64::from(2 * WINDOW)) as u32),
            1 => last.wrapping_add(draws.below(4) as u32),
            _ => last.wrapping_add(1),
        };
        let beyond = u64::from(draws.one_in(60));
        let lock = LockId(draws.below(u64::from(CONFIG.locks) + beyond) as u32);
        if lock.0 < CONFIG.locks && view == CONFIG.view && number == last.wrapping_add(1) {
            *last = number;
        }
        let count = self.decider.entry(lock).map_or(0, |entry| entry.count);
        // The count is that before the datagram: later packets of a datagram are often stale.
        let count = match draws.below(6) {
            0 => draws.next(),
            1 => count.wrapping_sub(1),
            2 => count + (1 << 48),
            _ => count,
        };
        let ask = match draws.below(8) {
            0..4 => Ask::Acquire { waiter: waiter(draws, machine), bars_readers: draws.one_in(2) },
            4 | 5 => Ask::Free { count },
            6 => {
                let to = draws.below(u64::from(CONFIG.machines)) as u16 + 1;
                let next = waiter(draws, to);
                let waiters = if draws.one_in(3) { draws.below(6) } else { 0 };
                let queue = (0..waiters).map(|at| waiter(draws, at as u16 + 1)).collect();
                let payload = Payload { counted: count, queue };
                Ask::Transfer { count, next, bars_readers: draws.one_in(2), payload }
            }
            _ => Ask::BarReaders,
        };
        Question { view, lane, number, lock, ask }
    }

    /// A datagram with up to 34 packets.
    fn datagram(&mut self) -> Vec<u8> {
        self.built.clone_from(&self.last);
        let machine = self.draws.below(u64::from(CONFIG.machines)) as u16 + 1;
        let view = if self.draws.one_in(40) { View(6) } else { CONFIG.view };
        let mut datagram = Datagram::new(view, Machine(machine), DECIDER);
        let packets = if self.draws.one_in(20) { 40 } else { self.draws.below(9) };
        for _ in 0..packets {
            if !datagram.has_room(6) {
                break;
            }
            let question = self.question(machine, view);
            datagram.question(&question);
        }
        datagram.seal(&CONFIG.key).to_vec()
    }

    /// Damages some datagrams: most get a fresh seal, so that checks behind the seal are met too.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let draws = &mut self.draws;
        let is_sealed = match draws.below(60) {
            0 => {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << draws.below(8);
                false
            }
            1 => {
                bytes.truncate(draws.below(bytes.len() as u64) as usize);
                !draws.one_in(2)
            }
            2 => {
                bytes.extend(vec![0; draws.below(50) as usize]);
                true
            }
            3 => {
                bytes[3] = draws.next() as u8;
                true
            }
            4 => {
                // A number of the header, the reserved ones included.
                bytes[draws.below(16) as usize] = draws.next() as u8;
                true
            }
            5 | 6 if bytes.len() > HEADER_BYTES => {
                // A kind, a flag, a number of waiters, or a machine.
                let packets = (bytes.len() - HEADER_BYTES) / PACKET_BYTES;
                let packet = HEADER_BYTES + PACKET_BYTES * draws.below(packets as u64) as usize;
                let at = packet + [0, 0, 1, 2, 12, 13][draws.below(6) as usize];
                bytes[at] = draws.below(40) as u8;
                true
            }
            7 => {
                let seal = wire::seal_of(bytes, &Key([1; 16]));
                bytes[16..32].copy_from_slice(&seal);
                false
            }
            _ => return,
        };
        if is_sealed && bytes.len() >= HEADER_BYTES {
            let seal = wire::seal_of(bytes, &CONFIG.key);
            bytes[16..32].copy_from_slice(&seal);
        }
    }

    /// The questions of a datagram; or the counter of its refusal.
    fn open(bytes: &[u8]) -> Result<(Machine, Vec<Question>), Counter> {
        let mut questions = Vec::new();
        let ends = wire::open(bytes, (DECIDER, &CONFIG.key), &mut |_, item| match item {
            Item::Question(question) => questions.push(question),
            Item::Incoming(_) => panic!("the decider takes questions alone"),
        });
        match ends {
            Ok(ends) => Ok((ends.from, questions)),
            Err(Malformed::Short) => Err(Counter::Short),
            Err(Malformed::Long) => Err(Counter::Long),
            Err(Malformed::Version) => Err(Counter::Version),
            Err(Malformed::Seal) => Err(Counter::Seal),
            Err(Malformed::Addressee) => Err(Counter::Addressee),
            Err(Malformed::Packet) => Err(Counter::Packet),
        }
    }

    /// The answer to a datagram, and the number of its questions.
    fn answer(&mut self, bytes: &[u8]) -> (Option<Vec<u8>>, u64) {
        let (from, questions) = match World::open(bytes) {
            Ok(opened) => opened,
            Err(counter) => {
                self.expect(counter, 1);
                return (None, 0);
            }
        };
        let mut answer = Datagram::new(CONFIG.view, DECIDER, from);
        for question in &questions {
            let fits = |machine: Machine| u32::from(machine.0) <= CONFIG.machines;
            let fits = fits(question.lane.machine)
                && u32::from(question.lane.thread.0) < CONFIG.threads
                && match &question.ask {
                    Ask::Transfer { next, .. } => fits(next.request.machine),
                    _ => true,
                };
            if question.view == CONFIG.view && question.lock.0 < CONFIG.locks && !fits {
                self.expect(Counter::Lane, 1);
                continue;
            }
            let refused = self.decider.receive(question, &mut |sent| match sent {
                Sent::Reply(reply) => {
                    *self.verdicts.entry(reply.answer.verdict).or_default() += 1;
                    answer.reply(&reply);
                }
                Sent::Notice { .. } => panic!("it answers the sender alone"),
            });
            let counter = match refused {
                Ok(()) => Counter::Answered,
                Err(Refusal::View { .. }) => Counter::View,
                Err(Refusal::Lock { .. }) => Counter::Lock,
                Err(Refusal::Gap) => Counter::Gap,
            };
            self.expect(counter, 1);
            let last = self.last.entry(question.lane).or_default();
            if counter == Counter::Answered && question.number == last.wrapping_add(1) {
                *last = question.number;
            }
        }
        let count = questions.len() as u64;
        match answer.count() {
            0 => (None, count),
            _ => (Some(answer.seal(&CONFIG.key).to_vec()), count),
        }
    }
}

/// Runs a frame, and compares the result with the datagram that is expected.
fn compare(program: &Program, sent: &[u8], expected: Option<&[u8]>) {
    let mut got = sent.to_vec();
    let ran = program.run(&mut got).expect("the kernel runs a frame");
    match expected {
        None => assert_eq!(ran.action, Action::Dropped, "{:02x?}", &sent[HEADERS..]),
        Some(datagram) => {
            assert_eq!(ran.action, Action::Sent, "{:02x?}", &sent[HEADERS..]);
            assert_eq!(got, reply(datagram), "{:02x?}", &sent[HEADERS..]);
        }
    }
}

#[test]
fn a_hundred_thousand_packets_have_the_deciders_answers() {
    // Just below the wrap of a count of 48 bits.
    let entry = Entry { count: Width::WIDE.cut(u64::MAX - 50), held: None };
    let entries: Vec<_> = (0..CONFIG.locks).map(|lock| (LockId(lock), entry)).collect();
    let Some(mut program) = decider(&entries) else { return };
    let mut world = World::new(&entries);
    let mut packets = 0;
    while packets < PACKETS {
        let mut bytes = world.datagram();
        world.damage(&mut bytes);
        let is_oversize = bytes.len() > DATAGRAM_BYTES_MAX;
        let (expected, questions) = match is_oversize {
            true => {
                world.expect(Counter::Oversize, 1);
                (None, 0)
            }
            false => world.answer(&bytes),
        };
        packets += questions;
        compare(&program, &frame(&bytes), expected.as_deref());
    }
    for lock in (0..CONFIG.locks).map(LockId) {
        let entry = program.entry(lock).expect("a lock of the program");
        assert_eq!(Some(&entry), world.decider.entry(lock));
    }
    for counter in Counter::ALL {
        let counted = program.count(counter).expect("a counter of the program");
        let expected = world.expected.get(&counter).copied().unwrap_or(0);
        assert_eq!(counted, expected, "{}", counter.name());
        let is_rare = matches!(counter, Counter::Contended | Counter::Oversize);
        assert!(expected > 20 || is_rare, "{}: met {expected} times", counter.name());
    }
    assert!(world.verdicts.len() == 5 && world.verdicts.values().all(|met| *met > 1_000));
    println!("{packets} packets are equal: {:?}, {:?}", world.expected, world.verdicts);
}

#[test]
fn frames_of_others_pass_and_cut_frames_are_dropped() {
    let Some(program) = decider(&[]) else { return };
    let mut world = World::new(&[]);
    let bytes = world.datagram();
    let run = |mut frame: Vec<u8>| program.run(&mut frame).expect("it runs").action;
    let changed = |at: usize, byte: u8| {
        let mut frame = frame(&bytes);
        frame[at] = byte;
        run(frame)
    };
    assert_eq!(changed(12, 0x86), Action::Passed, "IPv6");
    assert_eq!(changed(14, 0x46), Action::Passed, "IPv4 with options");
    assert_eq!(changed(20, 0x20), Action::Passed, "a fragment");
    assert_eq!(changed(23, 6), Action::Passed, "TCP");
    assert_eq!(changed(36, 0), Action::Passed, "another port");
    // A frame that ends before its datagram does.
    let whole = frame(&[bytes, vec![0; 40]].concat());
    assert_eq!(run(whole[..whole.len() - 30].to_vec()), Action::Dropped);
    assert_eq!(program.count(Counter::Short).expect("a counter"), 1);
    let long = frame(&vec![0; DATAGRAM_BYTES_MAX + 1]);
    assert_eq!(run(long), Action::Dropped);
    assert_eq!(program.count(Counter::Oversize).expect("a counter"), 1);
}

#[test]
fn a_program_of_another_view_takes_no_old_question() {
    let Some(old) = decider(&[]) else { return };
    let config = tarn_xdp::config::Config { view: CONFIG.view.next(), ..CONFIG };
    let new = Program::load(Kind::Decider, &config, &[]).expect("it loads");
    let mut datagram = Datagram::new(CONFIG.view, Machine(1), DECIDER);
    let lane = LaneId { machine: Machine(1), thread: Thread(0) };
    let question =
        Question { view: CONFIG.view, lane, number: 1, lock: LockId(0), ask: Ask::BarReaders };
    datagram.question(&question);
    let frame = frame(datagram.seal(&CONFIG.key));
    assert_eq!(old.run(&mut frame.clone()).expect("it runs").action, Action::Sent);
    assert_eq!(new.run(&mut frame.clone()).expect("it runs").action, Action::Dropped);
    assert_eq!(new.count(Counter::View).expect("a counter"), 1);
}
