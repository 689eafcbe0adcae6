//! A decider for measurements: in a thread, or a process that runs.
//!
//! Invariant: the folder of a decider in a thread is removed with it.

use super::Waits;
use crate::config::Config;
use crate::decider::DeciderProcess;
use crate::lock::LockClient;
use crate::os;
use crate::program::ProgramError;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tarn_locks::value::{Machine, Policy};
use tarn_locks::wire::Key;

/// Locks of the measured cluster.
pub(super) const LOCKS: u32 = 10_000;
/// A decider grants nothing before a lease has passed: a short one starts sooner.
const LEASE: Duration = Duration::from_millis(500);
/// Threads that spin do so for longer than the pause before an acquire and than most interruptions by other programs. Much longer, and they
/// would not notice that they share a processor with the thread that is to answer.
const SPIN: Duration = Duration::from_millis(1);

/// A decider in a thread, or one that runs already.
#[derive(Debug)]
pub struct Cluster {
    config: Config,
    folder: Option<PathBuf>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// A decider in a thread, with a folder and a key of its own, on a free port of loopback.
    ///
    /// # Errors
    /// The network, or the folder for temporary files, cannot be used.
    pub fn start(waits: Waits) -> Result<Cluster, ProgramError> {
        let failed = |error: io::Error| ProgramError::Failed(error.to_string());
        let unique = os::random_u64().map_err(failed)?;
        let folder = std::env::temp_dir().join(format!("tarn-lock-{unique:016x}"));
        let config = Config {
            file: PathBuf::from("the configuration of the measurement"),
            deciders: vec![free_address().map_err(failed)?],
            locks: LOCKS,
            key: Key(os::random().map_err(failed)?),
            lease: LEASE,
            policy: Policy::InOrder,
            machines: std::collections::BTreeMap::new(),
            clients: Some((Machine(1), Machine(16))),
            spin: if waits == Waits::Spinning { SPIN } else { Duration::ZERO },
            xdp: false,
            bad_network: None,
        };
        let mut process = DeciderProcess::open(&config, None, (&folder, true))?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        // A decider that fails leaves the client without a lease, which ends the measurement.
        let thread = spawn(move || _ = process.run(&seen, &mut |_| {})).map_err(failed)?;
        Ok(Cluster { config, folder: Some(folder), stop, thread: Some(thread) })
    }

    /// A decider that runs already.
    pub(super) fn running(config: Config) -> Result<Cluster, ProgramError> {
        if config.locks < LOCKS {
            let (field, file) = (config.locks, config.file.display());
            let text = format!("locks = {field} in {file}; allowed: {LOCKS} or more");
            return Err(ProgramError::Usage(text));
        }
        Ok(Cluster { config, folder: None, stop: Arc::default(), thread: None })
    }

    /// How the threads wait.
    pub(super) fn waits(&self) -> Waits {
        if self.config.spin.is_zero() { Waits::Sleeping } else { Waits::Spinning }
    }

    /// A client of the decider, which is a machine of its own.
    ///
    /// # Errors
    /// The decider gives no lease in time.
    pub fn client(&self) -> Result<LockClient, ProgramError> {
        Ok(LockClient::connect(&self.config)?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
        _ = self.folder.as_ref().map(std::fs::remove_dir_all);
    }
}

/// An address of loopback that is free for both protocols.
fn free_address() -> io::Result<SocketAddr> {
    loop {
        let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        if UdpSocket::bind(at).is_ok() {
            return Ok(at);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the measured processes are threads")]
pub(super) fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().spawn(run)
}
