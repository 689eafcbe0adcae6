//! Several processors run the program at once, on the same locks: each acquire gets a number of its own, and
//! none is lost.
//!
//! Invariant: a thread is one lane, and sends the next number only after an answer, as a machine does.

use crate::frames::{HEADERS, frame};
use crate::{CONFIG, decider};
use std::collections::BTreeSet;
use tarn_locks::host::Incoming;
use tarn_locks::packet::{Ask, LaneId, Question, Verdict, Waiter};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread};
use tarn_locks::wire::{self, Datagram, Item};
use tarn_xdp::counters::Counter;
use tarn_xdp::kernel::{Action, Program};

const ACQUIRES: u32 = 20_000;
const THREADS: u16 = 4;
const LOCK: LockId = LockId(0);

/// The numbers of a lane's acquires, and the number of grants.
fn acquires(program: &Program, thread: u16) -> (Vec<u64>, u64) {
    let lane = LaneId { machine: Machine(1), thread: Thread(thread) };
    let (mut numbers, mut granted) = (Vec::new(), 0);
    for number in 1..=ACQUIRES {
        let request = RequestId { machine: Machine(1), thread: lane.thread, seq: number };
        let waiter = Waiter { request, mode: Mode::Exclusive };
        let ask = Ask::Acquire { waiter, bars_readers: false };
        let question = Question { view: CONFIG.view, lane, number, lock: LOCK, ask };
        let mut datagram = Datagram::new(CONFIG.view, Machine(1), Machine(0));
        datagram.question(&question);
        let sent = frame(datagram.seal(&CONFIG.key));
        let mut got = sent.clone();
        // A question that was dropped for its lock's word is sent again.
        while program.run(&mut got).expect("it runs").action != Action::Sent {
            got.clone_from(&sent);
        }
        let to = (Machine(1), &CONFIG.key);
        wire::open(&got[HEADERS..], to, &mut |_, item| match item {
            Item::Incoming(Incoming::Reply(reply)) => {
                assert_eq!(reply.number, number);
                numbers.push(reply.answer.number);
                granted += u64::from(reply.answer.verdict == Verdict::Granted);
            }
            other => panic!("not an answer: {other:?}"),
        })
        .expect("a sealed answer");
    }
    (numbers, granted)
}

#[test]
fn each_acquire_has_its_own_number() {
    let Some(mut program) = decider(&[]) else { return };
    let lanes: Vec<(Vec<u64>, u64)> = std::thread::scope(|scope| {
        let program = &program;
        let run = |thread| scope.spawn(move || acquires(program, thread));
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        threads.into_iter().map(|it| it.join().expect("a thread without a panic")).collect()
    });
    let all = u64::from(ACQUIRES) * u64::from(THREADS);
    let numbers: BTreeSet<u64> = lanes.iter().flat_map(|(numbers, _)| numbers).copied().collect();
    assert_eq!(numbers.len() as u64, all, "no number was given twice");
    assert_eq!(numbers.last(), Some(&all), "none was left out");
    assert_eq!(lanes.iter().map(|(_, granted)| granted).sum::<u64>(), 1, "one holder");
    for (numbers, _) in &lanes {
        assert!(numbers.is_sorted(), "a lane's numbers go up");
    }
    assert_eq!(program.entry(LOCK).expect("a lock").count, all);
    let contended = program.count(Counter::Contended).expect("a counter");
    println!("{all} acquires in {THREADS} threads, {contended} dropped and sent again");
}
