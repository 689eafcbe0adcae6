//! The time of a new view after the switch and one machine have died together.
//!
//! Invariant: the machines' submissions, the rebuilding and the resumption are the shipped functions, run on the
//! state of machines that really hold the locks. The datagrams have as many bytes as the records that they stand
//! for; the records themselves are handed over in memory. Each record costs a core one look-up of the profile
//! where it is read, sorted or installed. S1 and S2 are therefore proportional to the number of locks held, and the
//! share of S3 follows from `RECORD_BYTES`, `ENTRY_BYTES` and two costs of the profile: no run decides these two.
//! After Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024,
//! section 7.8: S1 collects the states of the servers, S2 repairs them, S3 repairs the switch.

use super::HOSTS;
use super::cluster::{BadSetup, check_datagrams};
use super::host::{VIEW, fission};
use super::plan::{Plan, Shares};
use super::programs::staged;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::{Cost, Endpoint};
use tarn_fabric::port::Port;
use tarn_locks::client::{Client, Outcome};
use tarn_locks::decider::Sent;
use tarn_locks::host::Incoming;
use tarn_locks::links::{Moment, Packet};
use tarn_locks::queue::Profile as HotProfile;
use tarn_locks::recovery::{Seat, Submission, rebuild};
use tarn_locks::service::Kind;
use tarn_locks::value::{LockId, Machine, Mode, Policy};
use tarn_sim::config::{Mode as SimMode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::switch::{Pass, Program, SwitchConfig};

/// Bytes of a hold or of a seat in a datagram: lock, request, mode, token.
const RECORD_BYTES: usize = 24;
/// Bytes of a lock's entry in a write to the switch: lock, count, cell.
const ENTRY_BYTES: usize = 8;
/// The thread of the machine that rebuilds the view; it follows the thread of that machine's own part.
const COORDINATOR: u16 = 1;

/// How long a new view took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewChange {
    /// Locks that live machines held.
    pub held: u32,
    /// S1: the live machines' states arrive at the one that rebuilds.
    pub collect_ns: u64,
    /// S2: the view is rebuilt, and the machines have resumed in it.
    pub repair_ns: u64,
    /// S3: the new switch has the entries of the locks that are held.
    pub switch_ns: u64,
    /// Holds that the new view kept.
    pub kept: u32,
    /// The digest of the run's events.
    pub digest: u64,
}

/// A switch's control plane: it acknowledges writes of entries.
struct ControlPlane;

impl Program for ControlPlane {
    fn process(
        &mut self,
        from: Endpoint,
        packet: &[u8],
        _pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    ) {
        send(from, &packet[..1]);
    }
}

/// Lets each machine acquire its share of the locks.
fn hold(clients: &mut [Client], plan: &Plan) -> Result<(), BadSetup> {
    let mut decider = staged(plan).map_err(BadSetup::Switch)?;
    let at = Moment { now: 0, lane: 0 };
    for lock in 0..plan.locks {
        let client = &mut clients[(lock % u32::from(HOSTS)) as usize];
        let request = client.acquire(at, LockId(lock), Mode::Exclusive);
        let packets: Vec<Packet> = client.packets().collect();
        for packet in packets {
            let Packet::Question(question) = packet else { continue };
            let taken = decider.receive(&question, &mut |sent| {
                if let Sent::Reply(reply) = sent {
                    let taken = client.receive(at, Incoming::Reply(reply));
                    assert!(taken.is_ok(), "one view");
                }
            });
            assert!(taken.is_ok(), "a question of the shape");
        }
        assert!(matches!(client.outcome(request), Some(Outcome::Holds(_))), "a free lock");
    }
    Ok(())
}

/// The part of the view change that live machines share in memory, beside the datagrams that stand for it.
#[derive(Default)]
struct Table {
    submissions: RefCell<Vec<(Machine, Submission)>>,
    seats: RefCell<Vec<(Machine, Vec<Seat>)>>,
    is_rebuilt: Cell<bool>,
}

/// Charges a look-up for each record.
fn look_up(port: &Port, records: usize) {
    (0..records).for_each(|_| port.charge(Cost::LocalLookup));
}

/// Sends records in as few datagrams as hold them. Returns the number of datagrams.
fn send_records(port: &Port, to: Endpoint, (records, each_bytes): (usize, usize)) -> usize {
    let room = port.caps().datagram_bytes_max / each_bytes;
    let bytes = vec![0; room * each_bytes];
    let datagrams = records.div_ceil(room).max(1);
    for number in 0..datagrams {
        let here = (records - number * room).min(room);
        port.send(to, &bytes[..(here * each_bytes).max(1)]).expect("records that fit");
    }
    datagrams
}

/// Waits for datagrams, and looks up each of their records.
async fn take_records(port: &Port, datagrams: usize) {
    let mut left = datagrams;
    while left > 0 {
        let mut records = 0;
        left -= port.receive(left, &mut |_, bytes| records += bytes.len() / RECORD_BYTES);
        look_up(port, records);
        port.yield_now().await;
    }
}

fn datagrams_of(port: &Port, records: usize, each_bytes: usize) -> usize {
    records.div_ceil(port.caps().datagram_bytes_max / each_bytes).max(1)
}

/// A live machine: submits, waits for the view, resumes.
async fn survive(port: Port, client: Rc<RefCell<Client>>, coordinator: Endpoint, table: Rc<Table>) {
    let machine = client.borrow().host().machine();
    look_up(&port, client.borrow().host().places());
    let paused = client.borrow_mut().pause(VIEW.next());
    let submission = paused.expect("a later view");
    let records = submission.holds.len() + submission.waits.len();
    table.submissions.borrow_mut().push((machine, submission));
    send_records(&port, coordinator, (records, RECORD_BYTES));
    while !table.is_rebuilt.get() {
        port.yield_now().await;
    }
    let seats = {
        let all = table.seats.borrow();
        let own = all.iter().find(|(own, _)| *own == machine);
        own.map_or_else(Vec::new, |(_, seats)| seats.clone())
    };
    take_records(&port, datagrams_of(&port, seats.len(), RECORD_BYTES)).await;
    client.borrow_mut().resume(port.now().0, &seats);
    port.send(coordinator, &[0]).expect("one byte");
}

/// Lets all machines but the last hold their shares of `locks` locks, lets the last one and the switch die, and
/// measures the new view of the others.
///
/// # Errors
/// The setup is impossible.
pub fn change_view(locks: u32, profile: &Profile) -> Result<ViewChange, BadSetup> {
    check_datagrams(profile)?;
    let fabric = SimFabric::new(&SimConfig {
        memory_nodes: 1,
        replicas: 1,
        compute_nodes: usize::from(HOSTS),
        group_bytes: 4096,
        profile: profile.clone(),
        mode: SimMode::Timed,
        seed: 1,
    })?;
    let switch =
        Endpoint { node: fabric.add_switch(SwitchConfig::TOFINO, ControlPlane)?.slot, thread: 0 };
    let plan = Plan {
        kind: Kind::FissLock,
        locks,
        on_switch: locks,
        shares: Shares::ById,
        profile: HotProfile::default(),
        hosts: (0..HOSTS).map(NodeSlot).collect(),
        switch,
        server: None,
    };
    let mut clients: Vec<Client> = (0..HOSTS).map(|it| fission(it, Policy::InOrder)).collect();
    hold(&mut clients, &plan)?;
    clients.pop();
    let live = clients.len();
    let node = |slot| NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) };
    let port = fabric.port(node(0), COORDINATOR, 1);
    let coordinator = port.endpoint();
    let table = Rc::new(Table::default());
    let held = clients.iter().map(|client| client.host().places() as u32).sum();
    let mut scheduler = Scheduler::new(&fabric);
    for (slot, client) in clients.into_iter().enumerate() {
        let own = fabric.port(node(slot as u16), 0, 1);
        let client = Rc::new(RefCell::new(client));
        let task = survive(own.clone(), client, coordinator, Rc::clone(&table));
        scheduler.spawn(&own, task);
    }
    let shared = Rc::clone(&table);
    let places = plan.hosts.clone();
    let change = scheduler.block_on(&port.clone(), async move {
        let began = port.now();
        let expected = |table: &Table| {
            let all = table.submissions.borrow();
            let each = all.iter().map(|(_, it)| it.holds.len() + it.waits.len());
            (
                all.len(),
                each.map(|records| datagrams_of(&port, records, RECORD_BYTES)).sum::<usize>(),
            )
        };
        while expected(&shared).0 < live {
            port.yield_now().await;
        }
        take_records(&port, expected(&shared).1).await;
        let collected = port.now();
        let submissions = shared.submissions.take();
        look_up(&port, submissions.iter().map(|(_, it)| it.holds.len() + it.waits.len()).sum());
        let rebuilt = rebuild(Policy::InOrder, &submissions);
        let kept = rebuilt.entries.len();
        *shared.seats.borrow_mut() = rebuilt.seats;
        for (machine, seats) in shared.seats.borrow().iter() {
            let to = Endpoint { node: places[usize::from(machine.0) - 1], thread: 0 };
            send_records(&port, to, (seats.len(), RECORD_BYTES));
        }
        shared.is_rebuilt.set(true);
        take_records(&port, live).await;
        let repaired = port.now();
        let writes = send_records(&port, switch, (kept, ENTRY_BYTES));
        (0..kept).for_each(|_| port.charge(Cost::LocalAtomic));
        take_records(&port, writes).await;
        let written = port.now();
        ViewChange {
            held,
            collect_ns: (collected - began).0,
            repair_ns: (repaired - collected).0,
            switch_ns: (written - repaired).0,
            kept: kept as u32,
            digest: 0,
        }
    });
    Ok(ViewChange { digest: fabric.digest(), ..change })
}
