//! A cluster on loopback: a configuration in a folder of its own, and a decider in a thread.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tarn_net::config::Config;
use tarn_net::decider::{DeciderError, DeciderProcess};
use tarn_net::faults::BadNetwork;
use tarn_net::lock::LockClient;

pub const LOCKS: u32 = 1_000;

/// A port that is free for both protocols now.
pub fn free_port() -> u16 {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = tcp.local_addr().expect("its address").port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Writes a configuration and its secret, with a decider on loopback. Returns the file.
pub fn write_config(folder: &Path, more: &str) -> PathBuf {
    write_config_at(folder, "127.0.0.1", more)
}

/// The same, with a decider on another address.
pub fn write_config_at(folder: &Path, ip: &str, more: &str) -> PathBuf {
    let secret = folder.join("secret.key");
    std::fs::write(&secret, "00112233445566778899aabbccddeeff\n").expect("a secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let file = folder.join("locks.toml");
    let port = free_port();
    let text =
        format!("decider = \"{ip}:{port}\"\nlocks = {LOCKS}\nsecret = \"secret.key\"\n{more}");
    std::fs::write(&file, text).expect("a configuration");
    file
}

/// A decider in a thread.
pub struct Decider {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), DeciderError>>>,
}

impl Decider {
    pub fn start(config: &Config, state: &Path) -> Decider {
        let state = (state, !state.exists());
        let mut process = DeciderProcess::open(config, None, state).expect("an address, a folder");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || process.run(&seen, &mut |line| println!("{line}")));
        Decider { stop, thread: Some(thread) }
    }

    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic").expect("it stops when it is told to");
        }
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A decider and its configuration.
pub struct Cluster {
    pub decider: Decider,
    pub config: Config,
    pub folder: tempfile::TempDir,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::with("lease_ms = 300\n[clients]\nfirst = 1\nlast = 40\n", None)
    }

    pub fn with(more: &str, bad_network: Option<BadNetwork>) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let file = write_config(folder.path(), more);
        let mut config = Config::read(&file).expect("a configuration");
        config.bad_network = bad_network;
        let decider = Decider::start(&config, &folder.path().join("state"));
        Cluster { decider, config, folder }
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn client(&self) -> LockClient {
        LockClient::connect(&self.config).expect("a client joins")
    }
}
