//! The programs of the switch: FissLock's decider in registers, and NetLock's queues.
//!
//! Invariant: each packet of the decider goes through the stages of [`tarn_locks::switch::staged`] once, which
//! the types of its registers hold. The program announces all arrays of the stages to the simulated switch for
//! every packet, so the simulator's count of touches adds no proof to the types.
//! NetLock's queues are a model: [`Server`] is an ordinary data structure, and no check holds it to the rules of
//! a switch. It removes a request that was given up from the middle of a queue, which no switch could do. The
//! program announces the touches and the passes of the published design: a release is resubmitted once for each
//! grant that it causes, because the slot of the next waiter lies in an array that has passed.

use super::MANAGER;
use super::host::{LANES, VIEW, WINDOW};
use super::plan::Plan;
use super::tally::Tally;
use std::rc::Rc;
use tarn_fabric::backend::Endpoint;
use tarn_locks::decider::{Fanout, Sent};
use tarn_locks::packet::{Ask, Notice, Question, Verdict};
use tarn_locks::queue::{Addressed, Content, Message, Server};
use tarn_locks::switch::program::Program as Stages;
use tarn_locks::switch::staged::{Shape, Staged, Unfit};
use tarn_locks::switch::table::Table;
use tarn_locks::value::{Machine, Width};
use tarn_locks::wire::{Datagram, Item, Key, open};
use tarn_sim::switch::{Pass, Program};

/// The key of datagrams. No stranger reaches a simulated cluster.
pub(crate) const KEY: Key = Key([0; 16]);
/// The addressee of datagrams for the decider.
pub(crate) const DECIDER: Machine = Machine(0);
/// Register arrays of the decider, in the order of the stages: last number of the lane, number of packets in
/// two halves, count, cell, answers.
const ARRAYS: u32 = 6;

/// FissLock's decider.
pub(crate) struct Decider {
    pub staged: Staged,
    plan: Rc<Plan>,
    tally: Rc<Tally>,
    datagram: Datagram,
}

impl Decider {
    /// A decider of the plan's locks on the switch, all of them free.
    ///
    /// # Errors
    /// The shape is none of a switch.
    pub(crate) fn new(plan: &Rc<Plan>, tally: &Rc<Tally>) -> Result<Decider, Unfit> {
        let datagram = Datagram::new(VIEW, DECIDER, DECIDER);
        let staged = staged(plan)?;
        Ok(Decider { staged, plan: Rc::clone(plan), tally: Rc::clone(tally), datagram })
    }
}

/// A decider in registers, for the machines and lanes of a cluster.
pub(crate) fn staged(plan: &Plan) -> Result<Staged, Unfit> {
    let shape = Shape {
        locks: plan.on_switch,
        machines: plan.hosts.len() as u16,
        threads: LANES,
        window: WINDOW,
        width: Width::SWITCH,
        fanout: Fanout::Sends,
    };
    let stages = Stages::of(&Table::shipped()).expect("the shipped table fits the stages");
    Staged::new(shape, VIEW, stages)
}

impl Program for Decider {
    fn process(
        &mut self,
        _from: Endpoint,
        packet: &[u8],
        pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    ) {
        let mut question: Option<Question> = None;
        let opened = open(packet, (DECIDER, &KEY), &mut |_, item| {
            if let Item::Question(it) = item {
                question = Some(it);
            }
        });
        let Some(question) = question.filter(|_| opened.is_ok()) else { return };
        (0..ARRAYS).for_each(|array| pass.touch(array));
        let Decider { staged, plan, tally, datagram } = self;
        let is_acquire = matches!(question.ask, Ask::Acquire { .. });
        tally.count(|sent| sent.by_switch += u64::from(is_acquire));
        // A question that the decider does not take comes again, or its sender is of another view.
        let _ = staged.receive(&question, &mut |sent| {
            if let Sent::Notice { lock, notice: Notice::Copy { .. }, .. } = &sent {
                tally.copy_leaves(*lock);
            }
            let (machine, thread) = match &sent {
                Sent::Reply(reply) => {
                    let is_refused = reply.answer.verdict == Verdict::Refused;
                    tally.count(|sent| sent.refused += u64::from(is_refused));
                    (reply.lane.machine, reply.lane.thread.0)
                }
                Sent::Notice { to, notice, .. } => (*to, thread_of(*to, notice)),
            };
            datagram.begin(VIEW, DECIDER, machine);
            datagram.sent(&sent);
            tally.count(|sent| sent.messages += 1);
            send(plan.agent_place(machine, thread), datagram.seal(&KEY));
        });
    }
}

/// Returns the thread of the machine `to` that takes a notice: the thread of the request that now holds the
/// lock, or the thread of the agents.
pub(crate) fn thread_of(to: Machine, notice: &Notice) -> u16 {
    let request = notice.request();
    match notice {
        Notice::Grant { .. } | Notice::Install { .. } if request.machine == to => request.thread.0,
        _ => MANAGER,
    }
}

/// Arrays of NetLock: heads, tails and modes of the queues; the slots.
const QUEUES: u32 = 0;
const SLOTS: u32 = 1;
/// A queue needs the time only to send grants again, and this switch never does: no datagram is lost.
const NO_CLOCK: u64 = 0;

/// NetLock's queues of hot locks.
pub(crate) struct HotQueues {
    pub server: Server,
    plan: Rc<Plan>,
    tally: Rc<Tally>,
    addressed: Vec<Addressed>,
}

impl HotQueues {
    pub(crate) fn new(plan: &Rc<Plan>, tally: &Rc<Tally>) -> HotQueues {
        let server = Server::new(super::plan::SWITCH, VIEW, plan.homes(), &[]);
        HotQueues { server, plan: Rc::clone(plan), tally: Rc::clone(tally), addressed: Vec::new() }
    }
}

impl Program for HotQueues {
    fn process(
        &mut self,
        _from: Endpoint,
        packet: &[u8],
        pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    ) {
        let Some(message) = Message::decode(packet) else { return };
        let HotQueues { server, plan, tally, addressed } = self;
        let is_acquire = matches!(message.content, Content::Acquire(_));
        tally.count(|sent| sent.by_switch += u64::from(is_acquire));
        server.receive(NO_CLOCK, &message, addressed);
        pass.touch(QUEUES);
        if matches!(message.content, Content::Release(_)) {
            let is_grant = |(_, it): &&Addressed| matches!(it.content, Content::Grant(..));
            for _ in addressed.iter().filter(is_grant) {
                pass.resubmit();
                pass.touch(SLOTS);
            }
        } else {
            pass.touch(SLOTS);
        }
        for (to, message) in addressed.drain(..) {
            count(tally, &message);
            send(plan.place(to, message.lock), &message.encode());
        }
    }
}

/// Counts a message of queues that is sent.
pub(crate) fn count(tally: &Tally, message: &Message) {
    tally.count(|sent| match message.content {
        Content::Released(_) => sent.acknowledgements += 1,
        _ => sent.messages += 1,
    });
}
