//! The client of the lock service, with an agent inside the caller's process.
//!
//! Invariant: a guard's lock is held until the guard is dropped or the machine's lease has ended. The holder learns of the end by
//! [`LockGuard::is_valid`] or the callback of [`Options::on_lost`]; others may hold the lock from then on, and only a resource that checks
//! the token is safe from a holder that has not noticed yet.
//!
//! ```no_run
//! use tarn_net::config::Config;
//! use tarn_net::lock::LockClient;
//! use tarn_locks::value::{LockId, Mode};
//!
//! let config = Config::read("locks.toml".as_ref())?;
//! let client = LockClient::connect(&config)?;
//! let guard = client.acquire_blocking(LockId(7), Mode::Exclusive)?;
//! println!("token {}.{}", guard.token().view.0, guard.token().order);
//! drop(guard); // releases
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod core;
mod guard;
mod keeper;
mod shared;
mod slot;

pub use guard::{Acquire, LockGuard};

use self::core::Core;
use crate::config::Config;
use crate::counters::Counters;
use crate::faults::Faults;
use crate::os;
use crate::udp::Socket;
use keeper::{Keeper, OnLost};
use shared::Shared;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tarn_locks::host::Host;
use tarn_locks::service::{Grant, LockService, Patience, Refusal};
use tarn_locks::value::{LockId, Machine, Mode, View};
use tarn_locks::wire::Key;

/// How long a client waits for its first lease.
const CONNECT: Duration = Duration::from_secs(10);

/// The reason why a client cannot take part.
#[derive(Debug)]
pub enum ConnectError {
    /// The configuration or the decider refuses a value.
    Refused {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// No decider has given a lease in time.
    Unavailable {
        /// The addresses of the deciders.
        deciders: Vec<SocketAddr>,
        /// How long the client has waited.
        waited: Duration,
    },
    /// The network of this machine.
    Network(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Refused { field, value, allowed } => {
                write!(f, "{field} = {value}; allowed: {allowed}")
            }
            ConnectError::Unavailable { deciders, waited } => {
                let deciders: Vec<_> = deciders.iter().map(ToString::to_string).collect();
                let (deciders, ms) = (deciders.join(", "), waited.as_millis());
                write!(f, "no decider at {deciders} has given a lease within {ms} ms")
            }
            ConnectError::Network(error) => write!(f, "the network cannot be used: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        ConnectError::Network(error)
    }
}

/// How a client takes part.
#[derive(Default)]
pub struct Options {
    /// The machine's configured id; `None`: a free one of the clients' range.
    pub machine: Option<Machine>,
    /// How long to wait for the first lease; `None`: 10 s.
    pub wait: Option<Duration>,
    /// Called by a thread of the client with each grant that is lost because the machine's lease has ended.
    pub on_lost: Option<OnLost>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// How a keeper reaches the decider.
#[derive(Clone, Debug)]
struct Settings {
    machine: Option<Machine>,
    deciders: Vec<SocketAddr>,
    address: SocketAddr,
    key: Key,
}

/// The client's thread, which ends with the last copy of the client and the last guard.
#[derive(Debug)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn close(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring();
        let keeper = self.keeper.lock().expect("no thread panics here").take();
        let is_keeper = |it: &JoinHandle<()>| it.thread().id() == std::thread::current().id();
        _ = keeper.filter(|it| !is_keeper(it)).map(JoinHandle::join);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// A client of the lock service. Its copies are the same machine.
#[derive(Clone, Debug)]
pub struct LockClient {
    handle: Arc<Handle>,
}

/// The state of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientStatus {
    /// The machine and its view; `None`: it has no life now.
    pub life: Option<(Machine, View)>,
    /// How long the lease runs.
    pub lease_left: Duration,
    /// Locks of which the machine knows something.
    pub locks: usize,
    /// It waits for a view to begin.
    pub is_paused: bool,
    /// The machine's counters.
    pub counters: Counters,
}

impl LockClient {
    /// Joins the cluster under a free id, and waits for a lease.
    ///
    /// # Errors
    /// No lease within 10 s, or a refusal.
    pub fn connect(config: &Config) -> Result<LockClient, ConnectError> {
        LockClient::connect_with(config, Options::default())
    }

    /// Joins the cluster, and waits for a lease.
    ///
    /// # Errors
    /// No lease in time, or a refusal.
    pub fn connect_with(config: &Config, options: Options) -> Result<LockClient, ConnectError> {
        let at = match options.machine {
            None => SocketAddr::new(local_ip(config.deciders[0])?, 0),
            Some(machine) => match config.machines.get(&machine) {
                Some(at) => *at,
                None => {
                    let ids: Vec<_> = config.machines.keys().map(|it| it.0.to_string()).collect();
                    let file = config.file.display();
                    let allowed = match ids.is_empty() {
                        true => format!("none, because {file} has no [[machines]]"),
                        false => format!("the ids in {file}: {}", ids.join(", ")),
                    };
                    return Err(ConnectError::Refused {
                        field: "machine".to_owned(),
                        value: machine.0.to_string(),
                        allowed,
                    });
                }
            },
        };
        let salt = os::random_u64()?;
        let faults = config.bad_network.map(|network| Faults::new(network, salt));
        let socket = Socket::bind(at, faults)?;
        let address = socket.address()?;
        let (spin_ns, lease_ns) = (config.spin.as_nanos() as u64, config.lease_ns());
        let shared = Arc::new(Shared::new(Core::new(config), socket, spin_ns, lease_ns)?);
        let settings = Settings {
            machine: options.machine,
            deciders: config.deciders.clone(),
            address,
            key: config.key,
        };
        let (ready, is_ready) = mpsc::channel();
        let on_lost = options.on_lost.unwrap_or_else(|| Box::new(|_| {}));
        let keeper = Keeper::new(Arc::clone(&shared), settings, (ready, on_lost))?;
        let thread = spawn(move || keeper.run())?;
        let handle = Arc::new(Handle { shared, keeper: Mutex::new(Some(thread)) });
        let wait = options.wait.unwrap_or(CONNECT);
        match is_ready.recv_timeout(wait) {
            Ok(Ok(())) => Ok(LockClient { handle }),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let deciders = config.deciders.clone();
                Err(ConnectError::Unavailable { deciders, waited: wait })
            }
        }
    }

    /// Acquires a lock in this thread, however long that takes.
    ///
    /// # Errors
    /// The lock does not exist, too many requests wait for it, or the client is closed.
    pub fn acquire_blocking(&self, lock: LockId, mode: Mode) -> Result<LockGuard, Refusal> {
        self.acquire_blocking_for(lock, mode, Patience::Forever)
    }

    /// Acquires a lock in this thread.
    ///
    /// # Errors
    /// The lock is not held, and will not be.
    pub fn acquire_blocking_for(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<LockGuard, Refusal> {
        let grant = self.handle.shared.acquire_blocking(lock, mode, patience)?;
        Ok(LockGuard::new(&self.handle, grant))
    }

    /// Requests a lock. The future runs in any executor; in [`LockClient::block_on`] many of them share datagrams.
    pub fn acquire(&self, lock: LockId, mode: Mode, patience: Patience) -> Acquire {
        Acquire::new(&self.handle, (lock, mode, patience))
    }

    /// Runs a future to its end in this thread, which sends and receives for all requests meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.shared.block_on(future)
    }

    /// The state of the client.
    #[must_use]
    pub fn status(&self) -> ClientStatus {
        let core = self.handle.shared.core();
        let host = core.host.as_ref();
        let left_ns = core.lease_until_ns.unwrap_or(0).saturating_sub(os::now_ns());
        ClientStatus {
            life: host.map(|host| (host.machine(), host.view())),
            lease_left: Duration::from_nanos(left_ns),
            locks: host.map_or(0, Host::places),
            is_paused: host.is_some_and(Host::is_paused),
            counters: core.counters.clone(),
        }
    }

    /// Leaves the cluster. Guards are lost, and requests that wait end.
    pub fn close(&self) {
        self.handle.close();
    }
}

impl LockService for LockClient {
    async fn acquire(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        Ok(LockClient::acquire(self, lock, mode, patience).await?.pass_on())
    }

    fn release(&self, grant: Grant) {
        self.handle.shared.release(&grant);
    }

    fn poll(&self) -> bool {
        self.handle.shared.poll()
    }
}

/// The address of this machine from which it reaches another.
fn local_ip(to: SocketAddr) -> io::Result<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let probe = UdpSocket::bind(any)?;
    probe.connect(to)?;
    Ok(probe.local_addr()?.ip())
}

#[expect(clippy::disallowed_methods, reason = "a client keeps its lease in a thread of its own")]
fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("tarn-lock".to_owned()).spawn(run)
}
