//! Servers of others, started for one measurement: on a free loopback port, in a temporary folder, and stopped with it.
//!
//! Invariant: a server that this file starts ends with its [`Private`], and its folder is removed. Other servers are left alone.

use crate::clock;
use crate::connection::Connection;
use crate::resp::Value;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(10);
/// How often a starting server is asked.
const ASK: Duration = Duration::from_millis(10);

/// A server that cannot be measured, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server of our own.
#[derive(Debug)]
pub struct Private {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
    /// The program's version, as it states it.
    pub version: String,
}

impl Private {
    /// Starts `redis-server` without persistence.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn redis() -> Result<Private, Skipped> {
        let version = version_of("redis-server")?;
        let folder = folder().map_err(|error| not_started("redis-server", &error))?;
        let address = free_port().map_err(|error| not_started("redis-server", &error))?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.args(["--loglevel", "warning", "--dir"]).arg(&folder);
        Private::start("redis-server", command, (folder, address, version), |address| {
            let answer = Connection::open(address).ok().map(|mut it| it.call(&[b"PING"]));
            matches!(answer, Some(Ok(Value::Simple(text))) if text == "PONG")
        })
    }

    /// Starts `etcd` as a cluster of one, with its log in the temporary folder.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn etcd() -> Result<Private, Skipped> {
        let version = version_of("etcd")?;
        let folder = folder().map_err(|error| not_started("etcd", &error))?;
        let address = free_port().map_err(|error| not_started("etcd", &error))?;
        let peer = free_port().map_err(|error| not_started("etcd", &error))?;
        let (here, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let mut command = Command::new("etcd");
        command.args(["--name", "peer", "--data-dir"]).arg(&folder);
        command.args(["--listen-client-urls", &here, "--advertise-client-urls", &here]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("peer={peer}")]);
        Private::start("etcd", command, (folder, address, version), |address| {
            crate::etcd::Gateway::open(address).is_ok_and(|mut gateway| gateway.lease().is_ok())
        })
    }

    fn start(
        name: &str,
        mut command: Command,
        (folder, address, version): (PathBuf, SocketAddr, String),
        is_ready: impl Fn(SocketAddr) -> bool,
    ) -> Result<Private, Skipped> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                _ = std::fs::remove_dir_all(&folder);
                return Err(not_started(name, &error));
            }
        };
        let mut server = Private { child, folder, address, version };
        let start = clock::now();
        while clock::now().duration_since(start) < START {
            if TcpStream::connect(address).is_ok() && is_ready(address) {
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(not_started(name, &status));
            }
            clock::sleep(ASK);
        }
        Err(not_started(name, &format_args!("no answer in {} s", START.as_secs())))
    }

    /// Nanoseconds of processors that the server has used, in steps of 10 ms; 0 where the system does not tell.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.child.id());
        std::fs::read_to_string(path).map_or(0, |text| cpu_ns(&text))
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // A server that has ended already cannot be ended again; its folder is removed all the same.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The processors' time in Linux's description of a process: fields 14 and 15, in hundredths of a second. The second field is the name, in
/// brackets, and may hold blanks.
fn cpu_ns(stat: &str) -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |place: usize| {
        let text = after_name.split_whitespace().nth(place - 3);
        text.and_then(|it| it.parse::<u64>().ok()).unwrap_or_default()
    };
    (field(14) + field(15)) * TICK_NS
}

fn not_started(name: &str, why: &dyn std::fmt::Display) -> Skipped {
    Skipped(format!("skipped: {name} did not start: {why}"))
}

fn version_of(name: &str) -> Result<String, Skipped> {
    let missing = |error| Skipped(format!("skipped: {name} is not on the PATH ({error})"));
    let output = Command::new(name).arg("--version").output().map_err(missing)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.split(" sha=").next().unwrap_or_default().to_owned())
}

/// A port of the loopback interface that was free a moment ago.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

fn folder() -> io::Result<PathBuf> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("tarn-peers-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_time_is_found_behind_a_name_with_blanks() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 99 0 0 0 12 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ns(stat), 420_000_000);
        assert_eq!(cpu_ns(""), 0);
    }

    #[test]
    fn a_server_that_is_not_installed_is_skipped_in_one_line() {
        let Skipped(line) = version_of("tarn-no-such-server").unwrap_err();
        assert!(line.starts_with("skipped: tarn-no-such-server is not on the PATH"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_server_that_ends_at_once_is_skipped_and_leaves_no_folder() {
        let made = folder().unwrap();
        let address = free_port().unwrap();
        let command = Command::new("false");
        let setup = (made.clone(), address, String::new());
        let Skipped(line) = Private::start("false", command, setup, |_| true).unwrap_err();
        assert!(line.starts_with("skipped: false did not start: exit status: 1"), "{line}");
        assert!(!made.exists());
    }
}
