//! The measurements.
//!
//! Invariant: a pause of the same kind and length is before each round trip and before each acquire.

use super::cluster::{LOCKS, spawn};
use super::{Latency, TURNS, Waits};
use crate::lock::LockClient;
use crate::os::{self, MS_NS};
use serde::Serialize;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tarn_locks::service::{LockService, Patience, Refusal};
use tarn_locks::value::{LockId, Mode};
use tarn_locks::wire::{HEADER_BYTES, Key, PACKET_BYTES, seal_of};

/// The bytes of a datagram with one lock packet.
const DATAGRAM_BYTES: usize = HEADER_BYTES + PACKET_BYTES;
/// The pause before each measured round trip or acquire.
const PAUSE_NS: u64 = 20_000;
/// A datagram that has not come back after this time is lost.
const LOST: Duration = Duration::from_millis(200);
/// Seals in a measurement.
const SEALS: u32 = 100_000;

/// Quantiles of latencies.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 are faster.
    pub p99_ns: u64,
    /// How many were measured.
    pub count: usize,
}

impl Quantiles {
    fn of(mut samples: Vec<u64>) -> Quantiles {
        samples.sort_unstable();
        let at = |share: f64| {
            let place = (samples.len() as f64 * share) as usize;
            samples.get(place).or(samples.last()).copied().unwrap_or(0)
        };
        Quantiles { p50_ns: at(0.5), p99_ns: at(0.99), count: samples.len() }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "p50 {:.2} µs, p99 {:.2} µs ({} times)",
            us(self.p50_ns),
            us(self.p99_ns),
            self.count
        )
    }
}

/// Locks taken and released.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pairs {
    /// Pairs of an acquire and a release in a second.
    pub per_s: f64,
    /// Lock packets in a datagram that the client sends.
    pub packets_per_datagram: f64,
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pairs { per_s, packets_per_datagram } = self;
        write!(f, "{per_s:.0} pairs/s, {packets_per_datagram:.1} lock packets a datagram")
    }
}

/// A thread that sends back whatever it receives.
struct Echo {
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(waits: Waits) -> io::Result<Echo> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        prepare(&socket, waits)?;
        let (at, stop) = (socket.local_addr()?, Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&stop);
        let thread = spawn(move || {
            let mut bytes = [0; 2 * DATAGRAM_BYTES];
            while !seen.load(Ordering::Relaxed) {
                if let Ok((count, from)) = socket.recv_from(&mut bytes) {
                    _ = socket.send_to(&bytes[..count], from);
                }
            }
        })?;
        Ok(Echo { at, stop, thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

fn prepare(socket: &UdpSocket, waits: Waits) -> io::Result<()> {
    match waits {
        Waits::Spinning => socket.set_nonblocking(true),
        Waits::Sleeping => socket.set_read_timeout(Some(LOST)),
    }
}

/// Measures round trips and acquires in turns.
pub(super) fn latency(client: &LockClient, waits: Waits, millis: u64) -> io::Result<Latency> {
    let (mut round_trips, mut acquires) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let turn_ns = millis * MS_NS / TURNS;
        round_trips.extend(round_trips_of(waits, turn_ns)?);
        let until_ns = os::now_ns() + turn_ns;
        while os::now_ns() < until_ns {
            pause(waits, || _ = client.poll());
            let lock = LockId(acquires.len() as u32 % LOCKS);
            let begun_ns = os::now_ns();
            let guard = client.acquire_blocking(lock, Mode::Exclusive);
            let took_ns = os::now_ns() - begun_ns;
            drop(guard.map_err(io::Error::other)?);
            acquires.push(took_ns);
        }
    }
    let (round_trip, acquire) = (Quantiles::of(round_trips), Quantiles::of(acquires));
    Ok(Latency { waits, round_trip, acquire })
}

fn round_trips_of(waits: Waits, turn_ns: u64) -> io::Result<Vec<u64>> {
    let echo = Echo::start(waits)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    prepare(&socket, waits)?;
    let mut bytes = [7; DATAGRAM_BYTES];
    let mut samples = Vec::new();
    let until_ns = os::now_ns() + turn_ns;
    while os::now_ns() < until_ns {
        pause(waits, std::hint::spin_loop);
        let begun_ns = os::now_ns();
        socket.send_to(&bytes, echo.at)?;
        while socket.recv_from(&mut bytes).is_err() {
            if os::now_ns() - begun_ns > LOST.as_nanos() as u64 {
                break;
            }
        }
        samples.push(os::now_ns() - begun_ns);
    }
    Ok(samples)
}

#[expect(clippy::disallowed_methods, reason = "a measured thread sleeps")]
fn pause(waits: Waits, mut spin: impl FnMut()) {
    if waits == Waits::Sleeping {
        return std::thread::sleep(Duration::from_nanos(PAUSE_NS));
    }
    let until_ns = os::now_ns() + PAUSE_NS;
    while os::now_ns() < until_ns {
        spin();
    }
}

/// Takes and releases locks one after the other.
pub(super) fn one_by_one(client: &LockClient, millis: u64) -> Result<Pairs, Refusal> {
    let mut lock = 0;
    pairs(client, millis, |until_ns| {
        let mut count = 0;
        while os::now_ns() < until_ns {
            lock = (lock + 1) % LOCKS;
            drop(client.acquire_blocking(LockId(lock), Mode::Exclusive)?);
            count += 1;
        }
        Ok(count)
    })
}

/// Takes and releases `depth` locks at a time.
pub(super) fn many(client: &LockClient, depth: usize, millis: u64) -> Result<Pairs, Refusal> {
    pairs(client, millis, |until_ns| {
        let task = |first: usize| async move {
            let (mut count, mut lock) = (0, first as u32);
            while os::now_ns() < until_ns {
                drop(client.acquire(LockId(lock), Mode::Exclusive, Patience::Forever).await?);
                lock = (lock + depth as u32) % LOCKS;
                count += 1;
            }
            Ok(count)
        };
        client.block_on(all((0..depth).map(task).collect()))
    })
}

fn pairs(
    client: &LockClient,
    millis: u64,
    run: impl FnOnce(u64) -> Result<u64, Refusal>,
) -> Result<Pairs, Refusal> {
    let before = client.status().counters;
    let begun_ns = os::now_ns();
    let count = run(begun_ns + millis * MS_NS)?;
    let took_ns = os::now_ns() - begun_ns;
    let after = client.status().counters;
    let packets = (after.packets_out - before.packets_out) as f64;
    let datagrams = (after.datagrams_out - before.datagrams_out).max(1) as f64;
    Ok(Pairs {
        per_s: count as f64 * 1e9 / took_ns as f64,
        packets_per_datagram: packets / datagrams,
    })
}

/// Runs tasks together, and adds their results.
async fn all<F: Future<Output = Result<u64, Refusal>>>(tasks: Vec<F>) -> Result<u64, Refusal> {
    let mut tasks: Vec<Pin<Box<F>>> = tasks.into_iter().map(Box::pin).collect();
    let mut total = 0;
    std::future::poll_fn(|context| {
        let mut at = 0;
        while at < tasks.len() {
            match tasks[at].as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(Err(refusal)) => return Poll::Ready(Err(refusal)),
                Poll::Ready(Ok(count)) => {
                    total += count;
                    drop(tasks.swap_remove(at));
                }
            }
        }
        if tasks.is_empty() { Poll::Ready(Ok(total)) } else { Poll::Pending }
    })
    .await
}

/// Takes and releases a shared lock that another request of the machine holds.
pub(super) fn local(client: &LockClient, millis: u64) -> Result<f64, Refusal> {
    /// Pairs between two looks at the clock.
    const PAIRS: u64 = 1_000;
    let lock = LockId(0);
    let held = client.acquire_blocking(lock, Mode::Shared)?;
    let begun_ns = os::now_ns();
    let (mut count, mut now_ns) = (0, begun_ns);
    while now_ns < begun_ns + millis * MS_NS {
        for _ in 0..PAIRS {
            drop(client.acquire_blocking(lock, Mode::Shared)?);
        }
        count += PAIRS;
        now_ns = os::now_ns();
    }
    drop(held);
    Ok(count as f64 * 1e9 / (now_ns - begun_ns) as f64)
}

/// Nanoseconds of a seal over a datagram.
pub(super) fn seal_ns(bytes: usize) -> f64 {
    let (datagram, key) = (vec![7; bytes], Key([9; 16]));
    let begun_ns = os::now_ns();
    for _ in 0..SEALS {
        std::hint::black_box(seal_of(std::hint::black_box(&datagram), &key));
    }
    (os::now_ns() - begun_ns) as f64 / f64::from(SEALS)
}
