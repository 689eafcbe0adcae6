//! Machines take and release locks through the program: their packets are bytes, between them as well.
//!
//! Invariant: an exclusive holder is alone, whatever is lost, repeated or reordered; at the end all locks
//! are free. Packets to the decider and its answers are run through the kernel.

use crate::frames::{Draws, HEADERS, frame};
use crate::{CONFIG, decider};
use std::collections::BTreeMap;
use tarn_locks::agent::Conduct;
use tarn_locks::host::{Host, HostSetup};
use tarn_locks::links::{Moment, Output, Pace, Packet};
use tarn_locks::place::Here;
use tarn_locks::rules::Rules;
use tarn_locks::value::{LockId, Machine, Mode, Policy, RequestId};
use tarn_locks::wire::{self, Datagram, Item};
use tarn_xdp::kernel::{Action, Program};
use tarn_xdp::{SETUP, WINDOW};

const MACHINES: u16 = 3;
const THREADS: u16 = 2;
const DECIDER: Machine = Machine(0);
const GRANTS: u64 = 5_000;

/// Numbers of packets by kind, as a wire would see them: answers are counted as packets.
#[derive(Default, Debug, PartialEq, Eq)]
struct Sent {
    questions: u64,
    answers: u64,
    notices: u64,
    acknowledgements: u64,
}

struct Cluster {
    program: Program,
    hosts: Vec<Host>,
    /// Datagrams under way, with their destinations.
    flights: Vec<(Machine, Vec<u8>)>,
    now: u64,
    sent: Sent,
    /// Requests that hold a lock, in their modes.
    holders: BTreeMap<RequestId, (LockId, Mode)>,
    waiters: BTreeMap<RequestId, (LockId, Mode)>,
    granted: u64,
}

impl Cluster {
    fn new(program: Program) -> Cluster {
        let host = |machine| {
            let conduct =
                Conduct { policy: Policy::InOrder, rules: Rules::ALL, width: SETUP.width };
            let here = Here { machine: Machine(machine), conduct, decider_sends: false };
            Host::new(HostSetup { here, threads: THREADS, window: WINDOW }, CONFIG.view)
        };
        Cluster {
            program,
            hosts: (1..=MACHINES).map(host).collect(),
            flights: Vec::new(),
            now: 0,
            sent: Sent::default(),
            holders: BTreeMap::new(),
            waiters: BTreeMap::new(),
            granted: 0,
        }
    }

    fn host(&mut self, machine: Machine) -> &mut Host {
        &mut self.hosts[usize::from(machine.0 - 1)]
    }

    /// Sends the packets of an event, and takes note of its grants.
    fn carry_out(&mut self, from: Machine, output: Output) {
        for packet in &output.packets {
            let to = match packet {
                Packet::Question(_) => DECIDER,
                Packet::Notice { to, .. } | Packet::Acknowledgement { to, .. } => *to,
            };
            *match packet {
                Packet::Question(_) => &mut self.sent.questions,
                Packet::Notice { .. } => &mut self.sent.notices,
                Packet::Acknowledgement { .. } => &mut self.sent.acknowledgements,
            } += 1;
            let mut datagram = Datagram::new(CONFIG.view, from, to);
            match packet {
                Packet::Question(question) => datagram.question_alone(question),
                _ => datagram.packet(packet),
            }
            self.flights.push((to, datagram.seal(&CONFIG.key).to_vec()));
        }
        for (lock, request, _) in output.granted {
            let (of, mode) = self.waiters.remove(&request).expect("a request that waits");
            assert_eq!(of, lock);
            for (other, (held, its)) in &self.holders {
                let is_beside = (mode, *its) == (Mode::Shared, Mode::Shared);
                assert!(*held != lock || is_beside, "{request:?} beside {other:?} on {lock:?}");
            }
            self.holders.insert(request, (lock, mode));
            self.granted += 1;
        }
    }

    fn acquire(&mut self, (machine, thread): (u16, u16), lock: LockId, mode: Mode) -> RequestId {
        let (mut output, machine) = (Output::default(), Machine(machine));
        let at = Moment { now: self.now, lane: usize::from(thread) };
        let request = self.host(machine).acquire(at, lock, mode, &mut output);
        self.waiters.insert(request, (lock, mode));
        self.carry_out(machine, output);
        request
    }

    fn release(&mut self, request: RequestId) {
        let (lock, _) = self.holders.remove(&request).expect("a holder");
        let mut output = Output::default();
        let at = Moment { now: self.now, lane: usize::from(request.thread.0) };
        assert!(self.host(request.machine).release(at, lock, request, &mut output));
        self.carry_out(request.machine, output);
    }

    fn resend(&mut self) {
        for machine in (1..=MACHINES).map(Machine) {
            let (mut output, now) = (Output::default(), self.now);
            self.host(machine).resend(Pace { least: 50, most: 400 }, now, &mut output);
            self.carry_out(machine, output);
        }
    }

    /// A datagram arrives.
    fn arrive(&mut self, at: usize) {
        let (to, bytes) = self.flights.swap_remove(at);
        self.now += 1;
        if to == DECIDER {
            let mut frame = frame(&bytes);
            if self.program.run(&mut frame).expect("it runs").action == Action::Sent {
                self.sent.answers += 1;
                let answer = frame.split_off(HEADERS);
                let to = Machine(u16::from_le_bytes([answer[10], answer[11]]));
                self.flights.push((to, answer));
            }
            return;
        }
        let mut items = Vec::new();
        wire::open(&bytes, (to, &CONFIG.key), &mut |_, item| items.push(item)).expect("sealed");
        for item in items {
            let Item::Incoming(incoming) = item else { panic!("a question to a machine") };
            let mut output = Output::default();
            let at = Moment { now: self.now, lane: 0 };
            self.host(to).receive(at, incoming, &mut output).expect("one view");
            self.carry_out(to, output);
        }
    }

    /// Delivers all that is under way, in order.
    fn settle(&mut self) -> Sent {
        while !self.flights.is_empty() {
            let next = self.flights.remove(0);
            self.flights.push(next);
            self.arrive(self.flights.len() - 1);
        }
        std::mem::take(&mut self.sent)
    }
}

#[test]
fn locks_are_exclusive_whatever_happens_to_packets() {
    let Some(program) = decider(&[]) else { return };
    let mut cluster = Cluster::new(program);
    let mut draws = Draws(5);
    while cluster.granted < GRANTS {
        match draws.below(10) {
            0 | 1 if cluster.waiters.len() < 12 => {
                let thread =
                    (draws.below(MACHINES.into()) as u16 + 1, draws.below(THREADS.into()) as u16);
                let lock = LockId(draws.below(3) as u32);
                let mode = if draws.one_in(2) { Mode::Shared } else { Mode::Exclusive };
                cluster.acquire(thread, lock, mode);
            }
            2 if !cluster.holders.is_empty() => {
                let at = draws.below(cluster.holders.len() as u64) as usize;
                let request = *cluster.holders.keys().nth(at).expect("in range");
                cluster.release(request);
            }
            3 => cluster.resend(),
            _ if !cluster.flights.is_empty() => {
                let at = draws.below(cluster.flights.len() as u64) as usize;
                match draws.below(20) {
                    0 => _ = cluster.flights.swap_remove(at),
                    1 => cluster.flights.push(cluster.flights[at].clone()),
                    _ => cluster.arrive(at),
                }
            }
            _ => cluster.now += 1,
        }
    }
    // Nothing is lost from here on: all waiters are granted, and all locks released.
    for _ in 0..1_000 {
        cluster.now += 100;
        cluster.resend();
        cluster.settle();
        let holders: Vec<RequestId> = cluster.holders.keys().copied().collect();
        holders.into_iter().for_each(|request| cluster.release(request));
        if cluster.waiters.is_empty() && cluster.hosts.iter().all(|it| it.links().is_quiet()) {
            break;
        }
    }
    assert!(cluster.waiters.is_empty(), "{:?} wait for ever", cluster.waiters);
    for lock in (0..CONFIG.locks).map(LockId) {
        let entry = cluster.program.entry(lock).expect("a lock");
        assert_eq!(entry.held, None, "{lock:?} is free at the end");
    }
    println!("{} grants through the program", cluster.granted);
}

/// A queue of more requests than a frame has room for.
const MANY: u32 = 300;

#[test]
fn a_transfer_with_many_waiters_reaches_the_program() {
    let Some(program) = decider(&[]) else { return };
    let mut cluster = Cluster::new(program);
    let lock = LockId(0);
    let first = cluster.acquire((1, 0), lock, Mode::Exclusive);
    cluster.settle();
    for _ in 0..MANY {
        cluster.acquire((2, 0), lock, Mode::Exclusive);
        cluster.settle();
    }
    cluster.release(first);
    cluster.settle();
    assert_eq!(cluster.granted, 2, "the first waiter has the lock, and its machine the queue");
}

#[test]
fn packets_of_the_usual_ways() {
    let Some(program) = decider(&[]) else { return };
    let mut cluster = Cluster::new(program);
    let sent = |questions, answers, notices, acknowledgements| Sent {
        questions,
        answers,
        notices,
        acknowledgements,
    };
    let lock = LockId(0);
    let first = cluster.acquire((1, 0), lock, Mode::Exclusive);
    assert_eq!(cluster.settle(), sent(1, 1, 0, 0), "a free lock");
    let second = cluster.acquire((2, 0), lock, Mode::Exclusive);
    assert_eq!(
        cluster.settle(),
        sent(1, 1, 1, 1),
        "a lock that is held: 3, and the copy's receipt"
    );
    cluster.release(first);
    assert_eq!(cluster.settle(), sent(1, 1, 1, 1), "a transfer: 3, and the agent's receipt");
    assert!(cluster.holders.contains_key(&second));
    cluster.release(second);
    assert_eq!(cluster.settle(), sent(1, 1, 0, 0), "the last release");
    let one = cluster.acquire((1, 0), lock, Mode::Shared);
    assert_eq!(cluster.settle(), sent(1, 1, 0, 0));
    let other = cluster.acquire((2, 0), lock, Mode::Shared);
    assert_eq!(cluster.settle(), sent(1, 1, 1, 1), "shared beside shared: 3, and a receipt");
    let local = cluster.acquire((1, 1), lock, Mode::Shared);
    assert_eq!(cluster.settle(), Sent::default(), "where the agent is: none");
    for request in [local, other, one] {
        cluster.release(request);
        cluster.settle();
    }
    assert_eq!(cluster.program.entry(lock).expect("a lock").held, None);
}
