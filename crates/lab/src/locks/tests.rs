//! Tests of lock services on the simulated network: messages, exclusion, determinism.

use super::client::{Task, rest};
use super::cluster::{Cluster, Setup};
use super::plan::Shares;
use super::run::{Measured, Pace, hottest, run};
use super::seat::Seat;
use super::system::System;
use super::tally::Sent;
use super::view::change_view;
use super::{HOSTS, ISSUING};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::seeded;
use tarn_locks::service::{LockService, Patience, Refusal};
use tarn_locks::trace::{Micro, Mix, Picker, Skew, Tpcc, Trace, Wanted, Workload};
use tarn_locks::value::{LockId, Machine, Mode, Policy};
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;

const LOCK: LockId = LockId(7);
/// Long enough for all packets of an event.
const QUIET_NS: u64 = 20_000;

fn profile() -> Profile {
    Profile::load("cx5-100g").unwrap()
}

fn setup(name: &str) -> Setup {
    Setup::new(System::by_name(name).unwrap(), 1_000, profile())
}

/// Longer than any run.
const FOREVER_NS: u64 = 1_000_000_000_000;

/// The cluster and the tasks of a script.
struct Stage {
    cluster: Cluster,
    tasks: Vec<(usize, Task<'static>)>,
}

impl Stage {
    fn new(name: &str) -> Stage {
        Stage::with(&setup(name))
    }

    fn with(setup: &Setup) -> Stage {
        Stage { cluster: Cluster::new(setup).unwrap(), tasks: Vec::new() }
    }

    /// A thread holds [`LOCK`] between two times.
    fn hold(&mut self, thread: usize, mode: Mode, (from_ns, to_ns): (u64, u64)) -> Rc<Cell<u64>> {
        let seat = self.cluster.seat(thread);
        let granted_at = Rc::new(Cell::new(0));
        let told = Rc::clone(&granted_at);
        self.tasks.push((
            thread,
            Box::pin(async move {
                rest(seat.port(), from_ns).await;
                let grant = seat.acquire(LOCK, mode, Patience::Forever).await.unwrap();
                told.set(seat.port().now().0);
                let left = to_ns.saturating_sub(seat.port().now().0);
                rest(seat.port(), left).await;
                seat.release(grant);
                rest(seat.port(), QUIET_NS).await;
            }),
        ));
        granted_at
    }

    /// Runs, and returns the counts of messages until each of these times.
    fn sent_until(self, times_ns: &[u64]) -> Vec<Sent> {
        let Stage { cluster, tasks } = self;
        let mut scheduler = Scheduler::new(&cluster.fabric);
        cluster.script(&mut scheduler, tasks);
        let read = |time_ns: &u64| {
            scheduler.run_until(Nanos(*time_ns));
            cluster.tally.sent.get()
        };
        times_ns.iter().map(read).collect()
    }
}

/// The first thread of a machine that counts from 0.
fn of(host: u16) -> usize {
    usize::from(host * ISSUING)
}

fn messages(sent: &[Sent]) -> Vec<u64> {
    let mut before = 0;
    let each = sent.iter().map(|it| it.messages - std::mem::replace(&mut before, it.messages));
    each.collect()
}

#[test]
fn a_free_acquire_takes_two_messages_and_the_last_release_two() {
    let mut stage = Stage::new("fisslock");
    stage.hold(of(0), Mode::Exclusive, (1_000, 40_000));
    let sent = stage.sent_until(&[30_000, 80_000]);
    assert_eq!(messages(&sent), [2, 2]);
    assert_eq!((sent[1].acknowledgements, sent[1].refused), (0, 0));
}

#[test]
fn a_shared_acquire_on_a_shared_lock_takes_three_messages_and_is_released_by_one() {
    let mut stage = Stage::new("fisslock");
    stage.hold(of(0), Mode::Shared, (1_000, 200_000));
    stage.hold(of(1), Mode::Shared, (30_000, 80_000));
    let sent = stage.sent_until(&[29_000, 70_000, 150_000, 260_000]);
    // The release goes to the agent, which goes on holding; the copy and the release are acknowledged.
    assert_eq!(messages(&sent), [2, 3, 1, 2]);
    assert_eq!(sent[3].acknowledgements, 2);
}

#[test]
fn a_queued_acquire_takes_two_messages_and_its_transfer_two() {
    let mut stage = Stage::new("fisslock");
    stage.hold(of(0), Mode::Exclusive, (1_000, 80_000));
    let granted_at = stage.hold(of(1), Mode::Exclusive, (30_000, 150_000));
    let sent = stage.sent_until(&[29_000, 70_000, 120_000, 200_000]);
    assert!((80_000..90_000).contains(&granted_at.get()), "granted at {granted_at:?}");
    assert_eq!(messages(&sent), [2, 2, 2, 2]);
}

#[test]
fn a_local_acquire_and_its_release_take_no_message() {
    let mut stage = Stage::new("fisslock");
    stage.hold(of(0), Mode::Shared, (1_000, 150_000));
    stage.hold(of(0) + 1, Mode::Shared, (30_000, 80_000));
    let sent = stage.sent_until(&[29_000, 120_000, 200_000]);
    assert_eq!(messages(&sent), [2, 0, 2]);
    assert_eq!(sent[2].local, 1);
}

#[test]
fn a_queue_at_a_server_takes_two_messages_for_an_acquire_and_one_for_a_release() {
    for (name, hot) in [("srvlock", None), ("netlock", None), ("netlock", Some(LOCK))] {
        let mut stage = Stage::with(&Setup { hot: Vec::from_iter(hot), ..setup(name) });
        stage.hold(of(0), Mode::Exclusive, (1_000, 80_000));
        stage.hold(of(1), Mode::Exclusive, (30_000, 150_000));
        let sent = stage.sent_until(&[29_000, 70_000, 120_000, 200_000]);
        // The second request waits without an answer, and is granted by the release.
        assert_eq!(messages(&sent), [2, 1, 2, 1], "{name}");
        assert_eq!(sent[3].acknowledgements, 2, "{name}");
        let by_switch = if hot.is_some() { 2 } else { 0 };
        assert_eq!(sent[3].by_switch, by_switch, "{name} with {hot:?} in the switch");
    }
}

#[test]
fn a_share_of_the_locks_on_the_same_machine_takes_no_message() {
    let mut stage = Stage::new("parlock");
    let home = (LOCK.0 / 1_000u32.div_ceil(u32::from(HOSTS))) as u16;
    stage.hold(of(home), Mode::Exclusive, (1_000, 40_000));
    stage.hold(of(home + 1), Mode::Exclusive, (60_000, 90_000));
    let sent = stage.sent_until(&[55_000, 150_000]);
    assert_eq!(messages(&sent), [0, 3]);
}

#[test]
fn an_acquire_at_the_switch_takes_half_of_the_time_on_the_network() {
    let took = |name: &str| {
        let mut stage = Stage::new(name);
        let granted_at = stage.hold(of(0), Mode::Exclusive, (10_000, 40_000));
        stage.sent_until(&[60_000]);
        granted_at.get() - 10_000
    };
    let (switch, server) = (took("fisslock"), took("srvlock"));
    // Each includes one request of the issuing core; the server serves another.
    let request = super::REQUEST_NS;
    let ratio = (switch - request) as f64 / (server - 2 * request) as f64;
    assert!((0.3..0.75).contains(&ratio), "{switch} ns at the switch, {server} at a server");
}

#[test]
fn a_request_that_is_tried_is_busy_and_a_patient_one_times_out() {
    let mut stage = Stage::new("fisslock");
    stage.hold(of(0), Mode::Exclusive, (1_000, 100_000));
    let seat: Rc<Seat> = stage.cluster.seat(of(2));
    let told = Rc::new(RefCell::new(Vec::new()));
    let found = Rc::clone(&told);
    stage.tasks.push((
        of(2),
        Box::pin(async move {
            rest(seat.port(), 20_000).await;
            let bad = LockId(1_000);
            for (lock, patience) in
                [(LOCK, Patience::Try), (LOCK, Patience::Nanos(10_000)), (bad, Patience::Forever)]
            {
                let end = seat.acquire(lock, Mode::Shared, patience).await;
                found.borrow_mut().push(end.map(|_| ()));
            }
            let granted = seat.acquire(LOCK, Mode::Exclusive, Patience::Forever).await;
            found.borrow_mut().push(granted.map(|_| ()));
        }),
    ));
    stage.sent_until(&[200_000]);
    let out_of_range = Refusal::OutOfRange { lock: LockId(1_000), locks: 1_000 };
    let expected = [Err(Refusal::Busy), Err(Refusal::TimedOut), Err(out_of_range), Ok(())];
    assert_eq!(*told.borrow(), expected);
}

/// Runs until something is so, or for a time that is long enough.
fn run_until(scheduler: &mut Scheduler<'_>, is_so: impl Fn() -> bool) {
    let mut now = Nanos(0);
    while !is_so() && now < Nanos(50_000_000) {
        now = now + Nanos(100_000);
        scheduler.run_until(now);
    }
}

fn trace(workload: Workload, seed: u64) -> Rc<Trace> {
    let mut rng = seeded(seed, 1);
    let mut workload = workload;
    let words: &mut dyn FnMut() -> u64 = &mut || rand::RngExt::random(&mut rng);
    Rc::new(Trace::drawn(&mut workload, (20_000, HOSTS), words))
}

fn micro(locks: u32, mix: Mix) -> Workload {
    Workload::Micro(Micro { mix, picker: Picker::new(locks, Skew::CODE), granule: 1 })
}

fn short(name: &str, trace: &Rc<Trace>) -> Measured {
    let mut setup = Setup { locks: trace.locks(), on_switch: trace.locks(), ..setup(name) };
    setup.hot = hottest(trace, trace.len(), 10);
    if trace.locks() == Tpcc::LOCKS * 16 {
        setup.shares = Shares::ByWarehouse(Tpcc::new(HOSTS, 2));
    }
    run(&setup, trace, Pace { work_ns: 500, ..Pace::new(50_000, 200_000) }).unwrap()
}

#[test]
fn the_same_trace_gives_the_same_run_and_another_trace_another() {
    for system in System::ALL {
        let workload = || match system.name() {
            "fisslock-local" => Workload::Tpcc(Tpcc::new(HOSTS, 2)),
            _ => micro(1_000, Mix::UPDATE_HEAVY),
        };
        let [one, again, other] =
            [1, 1, 2].map(|seed| short(system.name(), &trace(workload(), seed)));
        assert_eq!(one, again, "{}", system.name());
        assert_ne!(one.digest, other.digest, "{}", system.name());
        assert!(one.acquires > 60, "{}: {} acquires", system.name(), one.acquires);
    }
}

#[test]
fn work_occupies_the_core_so_more_clients_of_a_core_do_not_work_more() {
    let (work_ns, measured_ns) = (20_000, 400_000);
    let trace = trace(micro(1_000_000, Mix::READ_ONLY), 4);
    for clients in [2, 4] {
        let pace = Pace { clients, work_ns, ..Pace::new(50_000, measured_ns) };
        let setup = Setup { locks: trace.locks(), on_switch: trace.locks(), ..setup("fisslock") };
        let ran = run(&setup, &trace, pace).unwrap();
        let most = u64::from(HOSTS * ISSUING) * (measured_ns / work_ns + 1);
        assert!((most / 2..=most).contains(&ran.transactions), "{} of {most}", ran.transactions);
        assert!(ran.issuing_busy > 0.95, "{}", ran.counters());
    }
}

/// Every request is granted at once, on the client's machine: no client waits, and yet the run ends.
#[test]
fn clients_of_local_locks_give_way_so_the_run_ends() {
    let mut trace = Trace::new(u32::from(HOSTS));
    for machine in 1..=HOSTS {
        let wanted = Wanted::new(LockId(u32::from(machine - 1)), Mode::Shared);
        (0..4).for_each(|kind| trace.push(Machine(machine), kind, &[wanted]));
    }
    let setup = Setup { locks: trace.locks(), on_switch: trace.locks(), ..setup("parlock") };
    let ran = run(&setup, &Rc::new(trace), Pace::new(50_000, 200_000)).unwrap();
    assert_eq!(ran.sent.local, ran.acquires, "{}", ran.counters());
    assert!(ran.issuing_busy > 0.95 && ran.acquires > 2_000, "{}", ran.counters());
}

#[test]
fn a_recorded_trace_is_replayed_with_the_same_run() {
    let drawn = trace(micro(1_000, Mix::READ_MOSTLY), 3);
    let replayed = Rc::new(Trace::from_bytes(&drawn.to_bytes()).unwrap());
    let [one, again] = [drawn, replayed].map(|trace| short("fisslock", &trace));
    assert_eq!(one, again);
}

/// The holders of a lock, and the pairs that excluded each other and held it at once.
#[derive(Default)]
struct Holders {
    readers: Cell<u32>,
    writers: Cell<u32>,
    rounds: Cell<u32>,
    /// Times at which a writer found a reader or a writer.
    writer_met: Cell<u32>,
    /// Times at which a reader found a writer.
    reader_met: Cell<u32>,
    /// Times at which a reader found a reader: nothing excludes these.
    shared: Cell<u32>,
}

fn add(to: &Cell<u32>, is_so: bool) {
    to.set(to.get() + u32::from(is_so));
}

const THREADS: usize = 24;
const ROUNDS: u32 = 30;

/// Lets 24 threads acquire a lock 30 times each, every third time exclusively.
fn contend(name: &str, lock: LockId) -> Rc<Holders> {
    let mut setup = Setup { hot: vec![lock], ..setup(name) };
    if name == "fisslock-local" {
        let tpcc = Workload::Tpcc(Tpcc::new(HOSTS, 2));
        setup.locks = tpcc.locks();
        (setup.on_switch, setup.shares) = (setup.locks, Shares::ByWarehouse(Tpcc::new(HOSTS, 2)));
    }
    let cluster = Cluster::new(&setup).unwrap();
    let holders = Rc::new(Holders::default());
    let tasks = (0..THREADS).map(|thread| {
        let (seat, all) = (cluster.any_seat(thread), Rc::clone(&holders));
        let task: Task<'static> = Box::pin(async move {
            for round in 0..ROUNDS {
                let is_write = (round + thread as u32).is_multiple_of(3);
                let mode = if is_write { Mode::Exclusive } else { Mode::Shared };
                let grant = seat.acquire(lock, mode, Patience::Forever).await.unwrap();
                let own = if is_write { &all.writers } else { &all.readers };
                own.set(own.get() + 1);
                for _ in 0..2 {
                    let (readers, writers) = (all.readers.get(), all.writers.get());
                    add(&all.writer_met, is_write && (readers > 0 || writers > 1));
                    add(&all.reader_met, !is_write && writers > 0);
                    add(&all.shared, !is_write && readers > 1);
                    rest(seat.port(), 700).await;
                }
                own.set(own.get() - 1);
                seat.release(grant);
                add(&all.rounds, true);
            }
            rest(seat.port(), FOREVER_NS).await;
        });
        (thread, task)
    });
    let tasks = tasks.collect();
    let mut scheduler = Scheduler::new(&cluster.fabric);
    cluster.script(&mut scheduler, tasks);
    run_until(&mut scheduler, || holders.rounds.get() == THREADS as u32 * ROUNDS);
    assert_eq!(holders.rounds.get(), THREADS as u32 * ROUNDS, "{name}");
    holders
}

#[test]
fn a_writer_holds_a_lock_alone_and_readers_share_it() {
    let local_lock = (0..Tpcc::LOCKS).map(LockId).find(|lock| Tpcc::is_local(*lock)).unwrap();
    let other_lock = (0..Tpcc::LOCKS).map(LockId).find(|lock| !Tpcc::is_local(*lock)).unwrap();
    for (name, lock) in [
        ("fisslock", LOCK),
        ("fisslock-local", local_lock),
        ("fisslock-local", other_lock),
        ("srvlock", LOCK),
        ("parlock", LOCK),
        ("netlock", LOCK),
        ("dslr", LOCK),
        ("cas", LOCK),
    ] {
        let holders = contend(name, lock);
        let met = (holders.writer_met.get(), holders.reader_met.get());
        assert_eq!(met, (0, 0), "{name}, lock {}: holders that exclude each other", lock.0);
        assert!(holders.shared.get() > 0, "{name}: no two readers at once");
    }
}

/// The check above finds a service that excludes no holder, so the check can fail.
#[test]
fn the_check_of_holders_finds_a_service_that_excludes_none() {
    let holders = contend("ideal-faa", LOCK);
    assert!(holders.writer_met.get() > 0 && holders.reader_met.get() > 0);
}

#[test]
fn a_ticket_that_timed_out_is_passed_on_and_later_requests_are_served() {
    let mut stage = Stage::new("dslr");
    let told = Rc::new(RefCell::new(Vec::new()));
    for (thread, wait_ns, patience) in [
        (of(0), 1_000, Patience::Forever),
        (of(1), 10_000, Patience::Nanos(20_000)),
        (of(2), 20_000, Patience::Forever),
    ] {
        let (seat, told) = (stage.cluster.any_seat(thread), Rc::clone(&told));
        stage.tasks.push((
            thread,
            Box::pin(async move {
                rest(seat.port(), wait_ns).await;
                let got = seat.acquire(LOCK, Mode::Exclusive, patience).await;
                told.borrow_mut().push((thread, got.map(|_| ())));
                if let Ok(grant) = got {
                    rest(seat.port(), 60_000).await;
                    seat.release(grant);
                }
                rest(seat.port(), FOREVER_NS).await;
            }),
        ));
    }
    stage.sent_until(&[400_000]);
    let expected = [(of(0), Ok(())), (of(1), Err(Refusal::TimedOut)), (of(2), Ok(()))];
    assert_eq!(*told.borrow(), expected);
}

fn refused(setup: &Setup, clients: usize, trace: &Rc<Trace>) -> String {
    let pace = Pace { clients, ..Pace::new(10_000, 3_000_000) };
    run(setup, trace, pace).map(|_| ()).expect_err("refused").to_string()
}

#[test]
fn a_run_that_comes_to_a_limit_ends_with_field_value_and_allowed() {
    let one_lock = trace(micro(1, Mix::UPDATE_HEAVY), 5);
    let of_one = |name: &str| Setup { locks: 1, on_switch: 1, ..setup(name) };
    // 1,600 clients of one lock: the queue of its agent does not fit a datagram.
    let error = refused(&of_one("fisslock"), 40, &one_lock);
    assert!(error.starts_with("requests that wait for one lock = "), "{error}");
    assert!(error.contains("; allowed: 0 to 335"), "{error}");
    let narrow = profile().with("link.mtu_bytes", 64.0).unwrap();
    for name in ["fisslock", "srvlock"] {
        let error = refused(&Setup { profile: narrow.clone(), ..of_one(name) }, 1, &one_lock);
        assert!(error.ends_with("(link.mtu_bytes) = 64; allowed: 84 or more"), "{error}");
    }
    let tpcc = Workload::Tpcc(Tpcc::new(HOSTS, 2));
    let few = Setup { locks: tpcc.locks(), on_switch: 7, ..setup("fisslock-local") };
    let error = refused(&few, 1, &one_lock);
    assert!(
        error.starts_with("locks of fisslock-local on the switch = 7; allowed: all"),
        "{error}"
    );
}

#[test]
fn a_lock_whose_tickets_are_used_up_ends_the_run() {
    let reads = trace(micro(1, Mix::READ_ONLY), 6);
    let setup = Setup { locks: 1, on_switch: 1, ..setup("dslr") };
    let pace = Pace::new(10_000, 100_000_000);
    let error = run(&setup, &reads, pace).map(|_| ()).expect_err("used up").to_string();
    assert!(error.starts_with("tickets of lock 0 = 32768; allowed: less than"), "{error}");
}

#[test]
fn services_of_verbs_pay_the_same_time_of_a_request_as_services_of_messages() {
    let reads = trace(micro(1_000_000, Mix::READ_ONLY), 7);
    // An issuing core sends an acquire and a release, whatever the service.
    let most = f64::from(HOSTS * ISSUING) * 1e3 / (2.0 * super::REQUEST_NS as f64);
    for name in ["fisslock", "dslr", "cas", "ideal-faa"] {
        let setup = Setup { locks: reads.locks(), on_switch: reads.locks(), ..setup(name) };
        let ran = run(&setup, &reads, Pace::new(100_000, 300_000)).unwrap();
        assert!(ran.acquires_millions() < 1.15 * most, "{name}: {} of {most}", ran.counters());
    }
}

#[test]
fn a_new_view_takes_longer_with_more_locks_and_keeps_all_holds_of_live_machines() {
    let [few, many] = [400, 8_000].map(|locks| change_view(locks, &profile()).unwrap());
    assert_eq!((few.kept, many.kept), (350, 7_000));
    assert!(many.collect_ns > 5 * few.collect_ns, "{few:?} {many:?}");
    assert!(many.repair_ns > 5 * few.repair_ns, "{few:?} {many:?}");
    assert!(many.switch_ns < many.repair_ns / 2, "{many:?}");
    assert_eq!(change_view(400, &profile()).unwrap(), few);
}

/// Readers and writers of one lock, without any loss: all of them make progress to the end.
#[test]
fn readers_and_writers_of_one_lock_never_stop() {
    for policy in [Policy::ReadsFirst, Policy::InOrder, Policy::WritesFirst] {
        let cluster = Cluster::new(&Setup { policy, ..setup("fisslock") }).unwrap();
        let done = Rc::new(Cell::new(0));
        let (threads, rounds) = (160, 20u32);
        let tasks = (0..threads).map(|thread| {
            let (seat, done) = (cluster.seat(thread % 40), Rc::clone(&done));
            let task: Task<'static> = Box::pin(async move {
                for round in 0..rounds {
                    let is_write = (round + thread as u32).is_multiple_of(2);
                    let mode = if is_write { Mode::Exclusive } else { Mode::Shared };
                    let grant = seat.acquire(LOCK, mode, Patience::Forever).await.unwrap();
                    seat.release(grant);
                    done.set(done.get() + 1);
                }
                // Its thread still handles mail.
                rest(seat.port(), FOREVER_NS).await;
            });
            (thread % 40, task)
        });
        let tasks = tasks.collect();
        let mut scheduler = Scheduler::new(&cluster.fabric);
        cluster.script(&mut scheduler, tasks);
        run_until(&mut scheduler, || done.get() == threads as u32 * rounds);
        assert_eq!(cluster.tally.sent.get().resends, 0, "{policy:?}");
        assert_eq!(done.get(), threads as u32 * rounds, "{policy:?}");
    }
}
