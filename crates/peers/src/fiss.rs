//! FissLock through its client over UDP: a decider in a thread of its own, and a client, with its agents, for each thread with clients.
//!
//! Invariant: the client is the one that programs use. A thread's turns run inside the client, which sends and receives between them, so that
//! the packets of one turn share datagrams.

use crate::connection::PeerError;
use crate::locker::{Locker, Turn, Turns};
use crate::store::{Slot, Store};
use std::future::Future as _;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use tarn_locks::service::Patience;
use tarn_locks::value::{LockId, Machine, Mode, Policy};
use tarn_locks::wire::Key;
use tarn_net::config::Config;
use tarn_net::decider::DeciderProcess;
use tarn_net::lock::{Acquire, LockClient, LockGuard};
use tarn_net::os;

/// A decider grants nothing before a lease has passed: a short one starts sooner.
const LEASE: Duration = Duration::from_millis(500);
/// A thread that looks for packets does so for this time before it sleeps, if each thread may have a processor. Source: the default of the
/// configuration.
const SPIN: Duration = Duration::from_micros(50);
/// A client, the decider and Redis are busy at once, and the client's keeper now and then. On fewer processors a thread that looks for packets
/// keeps the processor from the thread that has to answer: pairs fell from 400,000 a second to 190,000 on two.
const SPIN_PROCESSORS: usize = 4;
/// The greatest machine.
const MACHINE_MAX: Machine = Machine(63);

/// A decider in a thread, with a temporary folder.
#[derive(Debug)]
pub struct Cluster {
    config: Config,
    folder: PathBuf,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts a decider of `locks` locks on loopback.
    ///
    /// # Errors
    /// The network of this machine, or the folder for temporary files.
    #[expect(clippy::disallowed_methods, reason = "the decider runs beside its clients")]
    pub fn start(locks: u32) -> io::Result<Cluster> {
        let folder = std::env::temp_dir().join(format!("tarn-peers-{:016x}", os::random_u64()?));
        let config = Config {
            file: PathBuf::from("the configuration of the measurement"),
            deciders: vec![free_address()?],
            locks,
            key: Key(os::random()?),
            lease: LEASE,
            policy: Policy::InOrder,
            machines: std::collections::BTreeMap::new(),
            clients: Some((Machine(1), MACHINE_MAX)),
            spin: spin(),
            xdp: false,
            bad_network: None,
        };
        let stops = Arc::new(AtomicBool::new(false));
        // From here on the folder is removed with the cluster.
        let mut cluster = Cluster { config, folder, stops: Arc::clone(&stops), thread: None };
        let state = (cluster.folder.as_path(), true);
        let mut process =
            DeciderProcess::open(&cluster.config, None, state).map_err(io::Error::other)?;
        let builder = std::thread::Builder::new().name("decider".to_owned());
        // A decider that fails leaves its clients without a lease, which ends the measurement.
        cluster.thread = Some(builder.spawn(move || _ = process.run(&stops, &mut |_| {}))?);
        Ok(cluster)
    }

    /// A client, which is a machine of its own, for the virtual clients of a thread.
    ///
    /// # Errors
    /// The decider gives no lease.
    pub fn client(&self, slots: usize) -> io::Result<Fiss> {
        let client = LockClient::connect(&self.config).map_err(io::Error::other)?;
        let thread = Arc::new(Mutex::new(None));
        let seat = |_| {
            let flag = Flag { is_raised: AtomicBool::new(false), thread: Arc::clone(&thread) };
            Seat { acquire: None, flag: Arc::new(flag), held: Vec::new() }
        };
        let seats = (0..slots).map(seat).collect();
        Ok(Fiss { client, seats, ready: Vec::new(), thread })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How long a thread of the measured cluster looks for packets before it sleeps.
#[must_use]
pub fn spin() -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < SPIN_PROCESSORS { Duration::ZERO } else { SPIN }
}

/// An address of loopback that is free for both protocols.
fn free_address() -> io::Result<SocketAddr> {
    loop {
        let at = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        if UdpSocket::bind(at).is_ok() {
            return Ok(at);
        }
    }
}

/// Says that a request may have ended, and wakes the thread.
#[derive(Debug)]
struct Flag {
    is_raised: AtomicBool,
    thread: Arc<Mutex<Option<Waker>>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_raised.store(true, Ordering::Release);
        let thread = self.thread.lock().expect("no thread panics here");
        thread.iter().for_each(Waker::wake_by_ref);
    }
}

#[derive(Debug)]
struct Seat {
    acquire: Option<Acquire>,
    flag: Arc<Flag>,
    held: Vec<LockGuard>,
}

/// A client, with the machine's agents.
#[derive(Debug)]
pub struct Fiss {
    client: LockClient,
    seats: Vec<Seat>,
    /// Clients whose request was granted at once.
    ready: Vec<Slot>,
    /// Wakes the thread between its turns.
    thread: Arc<Mutex<Option<Waker>>>,
}

impl Fiss {
    /// Polls the request of a client. Returns whether it was granted.
    fn look(&mut self, slot: usize) -> Result<bool, PeerError> {
        let Seat { acquire, flag, held } = &mut self.seats[slot];
        let Some(request) = acquire else { return Ok(false) };
        let waker = Waker::from(Arc::clone(flag));
        match Pin::new(request).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(refusal)) => Err(io::Error::other(refusal).into()),
            Poll::Ready(Ok(guard)) => {
                held.push(guard);
                *acquire = None;
                Ok(true)
            }
        }
    }
}

impl Locker for Fiss {
    fn request(
        &mut self,
        slot: Slot,
        lock: LockId,
        mode: Mode,
        _: &mut Store,
    ) -> Result<(), PeerError> {
        self.seats[slot.0].acquire = Some(self.client.acquire(lock, mode, Patience::Forever));
        // The first look sends the request.
        if self.look(slot.0)? {
            self.ready.push(slot);
        }
        Ok(())
    }

    fn release(&mut self, slot: Slot, lock: LockId, _: &mut Store) -> Result<(), PeerError> {
        let held = &mut self.seats[slot.0].held;
        let at = held.iter().position(|guard| guard.lock() == lock);
        let guard = held.swap_remove(at.expect("a client releases a lock that it holds"));
        if !guard.is_valid() {
            return Err(io::Error::other("the lease has ended while a lock was held").into());
        }
        Ok(())
    }

    fn poll(&mut self, granted: &mut Vec<Slot>) -> Result<bool, PeerError> {
        granted.append(&mut self.ready);
        for slot in 0..self.seats.len() {
            let is_raised = self.seats[slot].flag.is_raised.swap(false, Ordering::AcqRel);
            if is_raised && self.look(slot)? {
                granted.push(Slot(slot));
            }
        }
        Ok(!granted.is_empty())
    }

    fn is_busy(&self) -> bool {
        !self.ready.is_empty()
    }

    fn turns(&self) -> Box<dyn Turns> {
        Box::new(Inside { client: self.client.clone(), thread: Arc::clone(&self.thread) })
    }
}

/// Turns inside the client.
struct Inside {
    client: LockClient,
    thread: Arc<Mutex<Option<Waker>>>,
}

impl Turns for Inside {
    fn run(&self, turn: &mut dyn FnMut() -> Turn) {
        let mut is_known = false;
        let turns = std::future::poll_fn(|context| {
            if !std::mem::replace(&mut is_known, true) {
                let mut thread = self.thread.lock().expect("no thread panics here");
                *thread = Some(context.waker().clone());
            }
            match turn() {
                Turn::Over => return Poll::Ready(()),
                Turn::Again => context.waker().wake_by_ref(),
                // A request that ends wakes the thread.
                Turn::Idle => {}
            }
            Poll::Pending
        });
        self.client.block_on(turns);
    }
}
