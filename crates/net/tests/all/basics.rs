//! Grants, refusals, time-outs and views of a cluster on loopback.

use super::common::{Cluster, Decider, LOCKS};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_locks::service::{Patience, Refusal};
use tarn_locks::value::{LockId, Mode};

const LOCK: LockId = LockId(7);

#[test]
fn a_lock_passes_between_clients() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let mut last = None;
    for _ in 0..200 {
        for client in [&one, &two] {
            let guard = client.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
            assert!(guard.is_valid());
            assert!(last < Some(guard.token()), "{last:?} {:?}", guard.token());
            last = Some(guard.token());
        }
    }
}

#[test]
fn refusals_have_their_reasons() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let beyond = one.acquire_blocking(LockId(LOCKS), Mode::Shared).expect_err("no such lock");
    assert_eq!(beyond, Refusal::OutOfRange { lock: LockId(LOCKS), locks: LOCKS });
    let held = one.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    for client in [&one, &two] {
        let busy = client.acquire_blocking_for(LOCK, Mode::Shared, Patience::Try);
        assert_eq!(busy.expect_err("it is held"), Refusal::Busy);
        let begun = Instant::now();
        let late = client.acquire_blocking_for(LOCK, Mode::Exclusive, Patience::Nanos(30_000_000));
        assert_eq!(late.expect_err("it is held"), Refusal::TimedOut);
        assert!((30..80).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
        let late = client.block_on(client.acquire(LOCK, Mode::Shared, Patience::Nanos(5_000_000)));
        assert_eq!(late.expect_err("it is held"), Refusal::TimedOut);
    }
    drop(held);
    // Requests that were given up release the lock as soon as it is granted.
    let guard = two.acquire_blocking_for(LOCK, Mode::Exclusive, Patience::Nanos(500_000_000));
    drop(guard.expect("all others have given up"));
    let shared: Vec<_> = [&one, &two]
        .map(|client| client.acquire_blocking_for(LOCK, Mode::Shared, Patience::Try))
        .into();
    assert!(shared.iter().all(Result::is_ok), "{shared:?}");
    one.close();
    let closed = one.acquire_blocking_for(LOCK, Mode::Shared, Patience::Nanos(1_000_000));
    assert!(closed.is_err());
}

/// Threads of several machines add to counters, each of which a lock guards.
fn count_under_locks(cluster: &Cluster, machines: usize, threads: usize, rounds: u64) -> Duration {
    let clients: Vec<_> = (0..machines).map(|_| cluster.client()).collect();
    let counters: Arc<Vec<(AtomicU64, AtomicU64)>> =
        Arc::new((0..4).map(|_| Default::default()).collect());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in &clients {
            for thread in 0..threads {
                let counters = &counters;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let at = (thread as u64 + round) % 4;
                        let guard = client.acquire_blocking(LockId(at as u32), Mode::Exclusive);
                        let guard = guard.expect("granted");
                        let (count, inside) = &counters[at as usize];
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        count.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
                        drop(guard);
                    }
                });
            }
        }
    });
    let total: u64 = counters.iter().map(|(count, _)| count.load(Ordering::SeqCst)).sum();
    assert_eq!(total, machines as u64 * threads as u64 * rounds);
    begun.elapsed()
}

#[test]
fn threads_exclude_each_other() {
    let cluster = Cluster::start();
    let took = count_under_locks(&cluster, 2, 3, 300);
    println!("1,800 pairs under contention took {took:?}");
}

#[test]
fn a_bad_network_loses_no_lock() {
    let bad = tarn_net::faults::BadNetwork { lost: 30, repeated: 50, overtaken: 50, seed: 7 };
    let cluster = Cluster::with("lease_ms = 1000\n[clients]\nfirst = 1\nlast = 40\n", Some(bad));
    let took = count_under_locks(&cluster, 3, 2, 60);
    println!("360 pairs in a bad network took {took:?}");
}

#[test]
fn tasks_share_datagrams() {
    let cluster = Cluster::start();
    let client = cluster.client();
    let before = client.status().counters;
    const TASKS: u32 = 32;
    const ROUNDS: u32 = 100;
    let task = |task: u32| {
        let client = &client;
        async move {
            for _ in 0..ROUNDS {
                let lock = LockId(task);
                drop(client.acquire(lock, Mode::Exclusive, Patience::Forever).await?);
            }
            Ok::<(), Refusal>(())
        }
    };
    let mut tasks: Vec<_> = (0..TASKS).map(|it| Some(Box::pin(task(it)))).collect();
    client.block_on(std::future::poll_fn(|context| {
        for task in &mut tasks {
            let Some(running) = task else { continue };
            if let std::task::Poll::Ready(result) = running.as_mut().poll(context) {
                result.expect("granted");
                *task = None;
            }
        }
        if tasks.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    }));
    let after = client.status().counters;
    let packets = after.packets_out - before.packets_out;
    let datagrams = after.datagrams_out - before.datagrams_out;
    assert!(packets >= u64::from(2 * TASKS * ROUNDS), "{packets}");
    assert!(packets >= 8 * datagrams, "{packets} packets in {datagrams} datagrams");
}

#[test]
fn any_executor_runs_requests() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let held = one.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    let waits = std::thread::spawn(move || {
        // An executor that only parks: the client's own thread receives.
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = std::task::Context::from_waker(&waker);
        let mut request = Box::pin(two.acquire(LOCK, Mode::Exclusive, Patience::Forever));
        loop {
            match request.as_mut().poll(&mut context) {
                std::task::Poll::Ready(result) => return result.map(|guard| guard.token()),
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    });
    std::thread::sleep(Duration::from_millis(20));
    let first = held.token();
    drop(held);
    let second = waits.join().expect("no panic").expect("granted");
    assert!(first < second);
}

#[test]
fn holds_survive_a_new_decider() {
    let mut cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let held = one.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    let first = held.token();
    cluster.decider.stop();
    cluster.decider = Decider::start(&cluster.config, &cluster.state());
    let waits = std::thread::spawn(move || {
        two.acquire_blocking(LOCK, Mode::Exclusive).map(|guard| guard.token())
    });
    std::thread::sleep(Duration::from_millis(600));
    assert!(held.is_valid(), "a lease that is renewed survives a restart");
    assert!(!waits.is_finished(), "two holders");
    drop(held);
    let second = waits.join().expect("no panic").expect("granted");
    assert!(second.view > first.view, "{first:?} {second:?}");
}

#[test]
fn a_lost_lease_is_told_and_its_locks_go_on() {
    let mut cluster = Cluster::start();
    let lost = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lost);
    let options = tarn_net::lock::Options {
        on_lost: Some(Box::new(move |grant| {
            assert_eq!(grant.lock, LOCK);
            counted.fetch_add(1, Ordering::SeqCst);
        })),
        ..Default::default()
    };
    let client = tarn_net::lock::LockClient::connect_with(&cluster.config, options);
    let client = client.expect("it joins");
    let held = client.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    cluster.decider.stop();
    std::thread::sleep(Duration::from_millis(400));
    assert!(!held.is_valid());
    assert_eq!(lost.load(Ordering::SeqCst), 1);
    cluster.decider = Decider::start(&cluster.config, &cluster.state());
    let next = client.acquire_blocking(LOCK, Mode::Exclusive).expect("granted in a new life");
    assert!(next.is_valid() && !held.is_valid() && next.token() > held.token());
    drop(held);
    assert!(next.is_valid(), "a lost guard releases nothing");
    let busy = client.acquire_blocking_for(LOCK, Mode::Exclusive, Patience::Try);
    assert_eq!(busy.expect_err("it is held"), Refusal::Busy);
}

#[test]
fn ids_of_clients_that_left_are_used_again() {
    let cluster = Cluster::with("lease_ms = 300\n[clients]\nfirst = 1\nlast = 2\n", None);
    for _ in 0..5 {
        let client = cluster.client();
        drop(client.acquire_blocking(LOCK, Mode::Exclusive).expect("granted"));
    }
    let both = [cluster.client(), cluster.client()];
    let none = tarn_net::lock::LockClient::connect(&cluster.config).expect_err("no id is left");
    assert!(none.to_string().starts_with("clients = 1 to 2; allowed: "), "{none}");
    drop(both);
}

/// Runs futures together until all have ended.
fn together<T>(client: &tarn_net::lock::LockClient, tasks: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut tasks: Vec<_> = tasks.into_iter().map(Box::pin).collect();
    let mut results = Vec::new();
    client.block_on(std::future::poll_fn(|context| {
        tasks.retain_mut(|task| match task.as_mut().poll(context) {
            std::task::Poll::Ready(result) => {
                results.push(result);
                false
            }
            std::task::Poll::Pending => true,
        });
        if tasks.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }));
    results
}

/// The queue of an agent that moves is larger than a frame of Ethernet, and reaches the next holder whole.
#[test]
fn long_queues_move_with_the_agent() {
    const WAITERS: usize = 120;
    let cluster = Cluster::start();
    let first = cluster.client();
    let held = first.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    let last = std::sync::Mutex::new(held.token());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = cluster.client();
                let task = |_| async {
                    let guard = client.acquire(LOCK, Mode::Exclusive, Patience::Forever).await;
                    let token = guard.as_ref().expect("granted").token();
                    let before = std::mem::replace(&mut *last.lock().expect("no panic"), token);
                    assert!(before < token, "{before:?} {token:?}");
                };
                together(&client, (0..WAITERS).map(task).collect());
                assert_eq!(client.status().counters.too_large, 0);
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
}

#[test]
fn more_requests_than_a_datagram_takes_are_refused() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let held = one.acquire_blocking(LOCK, Mode::Exclusive).expect("granted");
    let max = cluster.config.waiters_max();
    let task = |_| async {
        two.acquire(LOCK, Mode::Exclusive, Patience::Nanos(300_000_000)).await.map(|_| ())
    };
    let results = together(&two, (0..max + 3).map(task).collect());
    let refused = results.iter().filter(|it| **it == Err(Refusal::TooManyWaiters { max })).count();
    let late = results.iter().filter(|it| **it == Err(Refusal::TimedOut)).count();
    assert_eq!((refused, late), (3, max));
    drop(held);
}

/// Packets so far that all processes have sent and received, when none is under way: those of the protocol, acknowledgements, and those that
/// were sent again.
fn packets(cluster: &Cluster, clients: &[&tarn_net::lock::LockClient]) -> (u64, u64, u64) {
    loop {
        let decider = tarn_net::program::status(&cluster.config.file).expect("an answer").counters;
        let (mut sent, mut received) = (decider.packets_out, decider.packets_in);
        let (mut acknowledgements, mut resent) = (0, 0);
        for client in clients {
            let counters = client.status().counters;
            sent += counters.packets_out;
            received += counters.packets_in;
            acknowledgements += counters.acknowledgements_out;
            resent += counters.resent;
        }
        if sent == received {
            return (sent - acknowledgements, acknowledgements, resent);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The packets and acknowledgements of each step. `None`: a packet was sent again, because the machine is busy.
fn costs(xdp: bool) -> Option<Vec<(u64, u64)>> {
    let more = format!("xdp = {xdp}\nlease_ms = 300\n[clients]\nfirst = 1\nlast = 40\n");
    let cluster = Cluster::with(&more, None);
    let (one, two) = (cluster.client(), cluster.client());
    let mut last = (0, 0, 0);
    let mut costs = Vec::new();
    let mut step = || {
        let now = packets(&cluster, &[&one, &two]);
        costs.push((now.0 - last.0, now.1 - last.1));
        last = now;
    };
    let held = one.acquire_blocking(LOCK, Mode::Shared).expect("granted");
    step();
    let beside = two.acquire_blocking(LOCK, Mode::Shared).expect("granted");
    step();
    drop(one.acquire_blocking(LOCK, Mode::Shared).expect("granted"));
    step();
    drop(beside);
    step();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.acquire_blocking(LOCK, Mode::Exclusive));
        while two.status().locks == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        step();
        drop(held);
        let held = waits.join().expect("no panic").expect("granted");
        step();
        drop(held);
        step();
    });
    (last.2 == 0).then_some(costs)
}

#[test]
fn each_step_costs_the_packets_that_the_protocol_names() {
    let costs = |xdp| (0..50).find_map(|_| costs(xdp)).expect("a run without a packet sent again");
    let mut names = [
        ("a free lock", (2, 0)),
        ("a shared lock beside a shared one", (3, 1)),
        ("a lock whose agent is here", (0, 0)),
        ("a release to the agent", (1, 1)),
        ("a request that waits", (2, 1)),
        ("a transfer", (2, 1)),
        ("the last release", (2, 0)),
    ];
    let expected = |names: &[(&str, (u64, u64))]| names.iter().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(expected(&names), costs(false), "{names:?}");
    // A decider that answers its sender alone: the sender sends the copy of its acquire, or the agent, on.
    (names[4].1, names[5].1) = ((3, 1), (3, 1));
    assert_eq!(expected(&names), costs(true), "{names:?}");
}
