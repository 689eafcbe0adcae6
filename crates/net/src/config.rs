//! The configuration of a cluster of locks: one TOML file for all its processes.
//!
//! Invariant: a [`Config`] is valid. Each refusal names the field, its value, and the values that are allowed.
//!
//! ```toml
//! decider = "10.0.0.1:7400"          # UDP, and TCP for control
//! standby = ["10.0.0.2:7400"]        # other places of the decider, on the same state folder
//! locks = 1000000
//! secret = "secret.key"              # 32 hexadecimal digits, in a file of mode 0600
//! lease_ms = 1000
//! policy = "in-order"                # or reads-first, writes-first
//! switch = false                     # true: at most 63 machines
//! xdp = false                        # true: the decider is a program in the driver of an interface
//!
//! [clients]                          # ids for clients that join
//! first = 100
//! last = 199
//!
//! [[machines]]                       # ids with addresses
//! id = 1
//! address = "10.0.0.3:7401"
//! ```

use crate::faults::BadNetwork;
use crate::os::MS_NS;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tarn_locks::value::{Machine, Policy, View};
use tarn_locks::wire::{Key, WAITERS_MAX};

/// The greatest machine beside a switch. Source: 6 bits of its cells.
pub const SWITCH_MACHINE_MAX: u16 = 63;
/// The greatest machine elsewhere. Source: 14 bits of a word.
pub const MACHINE_MAX: u16 = 16_383;
/// Lanes of a machine. Source: 8 lanes with a window of 64 have 512 questions under way.
pub const LANES: u16 = 8;
/// The greatest number of locks. Source: 16 bytes each, in 2 GB.
pub const LOCKS_MAX: u32 = 1 << 27;
/// The greatest number of requests of one machine for one lock.
pub const WAITERS_PER_MACHINE_MAX: usize = 1_024;
const LEASE_MS: u64 = 1_000;
const LEASE_MS_LEAST: u64 = 50;
const LEASE_MS_MOST: u64 = 3_600_000;
const SPIN_US: u64 = 50;
const SPIN_US_MOST: u64 = 1_000_000;

/// The flag that names the file.
const CONFIG: &str = "--config";

/// A value of a configuration that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The field.
    pub field: String,
    /// Its value.
    pub value: String,
    /// The values that are allowed.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { file, field, value, allowed } = self;
        let file = file.display();
        match field.as_str() {
            CONFIG => write!(f, "{CONFIG} = {file}{value}; allowed: {allowed}"),
            _ => write!(f, "{field} = {value} in {file}; allowed: {allowed}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub file: PathBuf,
    /// The addresses at which a decider may be, the usual one first.
    pub deciders: Vec<SocketAddr>,
    /// The number of locks.
    pub locks: u32,
    /// The secret of the cluster.
    pub key: Key,
    /// How long a machine may act without an answer of the decider.
    pub lease: Duration,
    /// Which waiter comes next.
    pub policy: Policy,
    /// The machines that have an address of their own.
    pub machines: BTreeMap<Machine, SocketAddr>,
    /// The decider answers in the driver of an interface, so machines send copies and agents on themselves.
    pub xdp: bool,
    /// The ids of clients that join: the first and the last.
    pub clients: Option<(Machine, Machine)>,
    /// How long a thread looks for packets before it sleeps.
    pub spin: Duration,
    /// The faults of the network, for tests.
    pub bad_network: Option<BadNetwork>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    decider: String,
    #[serde(default)]
    standby: Vec<String>,
    locks: u64,
    secret: PathBuf,
    lease_ms: Option<u64>,
    policy: Option<String>,
    #[serde(default)]
    switch: bool,
    #[serde(default)]
    xdp: bool,
    spin_us: Option<u64>,
    clients: Option<RawClients>,
    #[serde(default)]
    machines: Vec<RawMachine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClients {
    first: u64,
    last: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    id: u64,
    address: String,
}

/// Refuses values of one file.
struct Refuses<'a>(&'a Path);

impl Refuses<'_> {
    fn refuse<T>(
        &self,
        field: impl Into<String>,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Result<T, ConfigError> {
        let (value, allowed) = (value.to_string(), allowed.into());
        Err(ConfigError { file: self.0.to_owned(), field: field.into(), value, allowed })
    }

    fn number(
        &self,
        field: &str,
        value: u64,
        (least, most): (u64, u64),
    ) -> Result<u64, ConfigError> {
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => self.refuse(field, value, format!("{least} to {most}")),
        }
    }

    fn address(&self, field: &str, text: &str) -> Result<SocketAddr, ConfigError> {
        match text.parse::<SocketAddr>() {
            Ok(at) if !at.ip().is_unspecified() && at.port() != 0 => Ok(at),
            _ => self.refuse(
                field,
                text,
                "an IP address of one machine and a port, as 10.0.0.1:7400",
            ),
        }
    }
}

impl Config {
    /// Reads a file, and the secret that it names.
    ///
    /// # Errors
    /// A file that cannot be read, or a value that is not allowed.
    pub fn read(file: &Path) -> Result<Config, ConfigError> {
        let refuses = Refuses(file);
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                return refuses.refuse(CONFIG, "", format!("a file that can be read ({error})"));
            }
        };
        Config::parse(&text, file)
    }

    /// Takes the text of a file. Relative paths in it begin at the file's folder.
    ///
    /// # Errors
    /// A value that is not allowed, or a secret that cannot be read.
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let refuses = Refuses(file);
        let raw: Raw = match toml::from_str(text) {
            Ok(raw) => raw,
            Err(error) => {
                let at = place_in(text, error.span());
                let allowed = format!("a lock service's configuration ({})", error.message());
                return refuses.refuse(CONFIG, format!(", {at}"), allowed);
            }
        };
        let machine_max = if raw.switch { SWITCH_MACHINE_MAX } else { MACHINE_MAX };
        let (machines, clients) = ids(&refuses, &raw, machine_max)?;
        let mut deciders = vec![refuses.address("decider", &raw.decider)?];
        for standby in &raw.standby {
            deciders.push(refuses.address("standby", standby)?);
        }
        let lease_ms = raw.lease_ms.unwrap_or(LEASE_MS);
        let spin_us = raw.spin_us.unwrap_or(SPIN_US);
        let policy = match raw.policy.as_deref() {
            None | Some("in-order") => Policy::InOrder,
            Some("reads-first") => Policy::ReadsFirst,
            Some("writes-first") => Policy::WritesFirst,
            Some(other) => {
                return refuses.refuse("policy", other, "in-order, reads-first, writes-first");
            }
        };
        let lease_ms = refuses.number("lease_ms", lease_ms, (LEASE_MS_LEAST, LEASE_MS_MOST))?;
        let spin_us = refuses.number("spin_us", spin_us, (0, SPIN_US_MOST))?;
        let locks = refuses.number("locks", raw.locks, (1, u64::from(LOCKS_MAX)))? as u32;
        let folder = file.parent().unwrap_or(Path::new(""));
        let config = Config {
            file: file.to_owned(),
            deciders,
            locks,
            key: secret(&refuses, &folder.join(&raw.secret))?,
            lease: Duration::from_millis(lease_ms),
            policy,
            machines,
            xdp: raw.xdp,
            clients,
            spin: Duration::from_micros(spin_us),
            bad_network: None,
        };
        if raw.xdp {
            fits_program(&refuses, &raw, &config)?;
        }
        Ok(config)
    }

    /// The program in a driver that answers in a view at an address.
    #[must_use]
    pub fn program(&self, view: View, at: SocketAddr) -> tarn_xdp::config::Config {
        let last = self.clients.map_or(0, |(_, last)| last.0);
        let machines = self.machines.keys().map(|machine| machine.0).fold(last, u16::max);
        tarn_xdp::config::Config {
            view,
            key: self.key,
            port: at.port(),
            locks: self.locks,
            machines: machines.into(),
            threads: LANES.into(),
        }
    }

    /// The lease in nanoseconds.
    #[must_use]
    pub fn lease_ns(&self) -> u64 {
        self.lease.as_nanos() as u64
    }

    /// The lease as the decider counts it: the clocks of two machines drift apart by less than 1 %, and are read within 10 ms.
    #[must_use]
    pub fn lease_with_drift_ns(&self) -> u64 {
        let lease = self.lease_ns();
        lease + lease / 100 + 10 * MS_NS
    }

    /// The greatest number of requests of one machine for one lock: the waiters of all machines fit one datagram.
    #[must_use]
    pub fn waiters_max(&self) -> usize {
        (WAITERS_MAX / self.ids().max(1)).clamp(1, WAITERS_PER_MACHINE_MAX)
    }

    fn ids(&self) -> usize {
        let clients = self.clients.map_or(0, |(first, last)| usize::from(last.0 - first.0) + 1);
        self.machines.len() + clients
    }
}

/// The line of a TOML text in which an error is, and the line's key.
#[must_use]
pub fn place_in(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let at = span.map_or(0, |span| span.start.min(text.len()));
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = 1 + text[..start].matches('\n').count();
    let whole = text[start..].lines().next().unwrap_or_default();
    // An error in a value begins after the key; an error in a key names it anyway.
    match whole.split_once('=') {
        Some((key, _)) if at - start > key.trim_end().len() => {
            format!("line {line}, {}", key.trim())
        }
        _ => format!("line {line}"),
    }
}

/// A program in a driver has maps of limited sizes, and takes IPv4 alone.
fn fits_program(refuses: &Refuses<'_>, raw: &Raw, config: &Config) -> Result<(), ConfigError> {
    if raw.switch {
        return refuses.refuse("xdp", "true", "false where switch = true: a lock has one decider");
    }
    for at in &config.deciders {
        if !at.is_ipv4() {
            let field = if *at == config.deciders[0] { "decider" } else { "standby" };
            return refuses.refuse(field, at, "an address of IPv4, because xdp = true");
        }
        if let Err(error) = config.program(View(0), *at).checked() {
            let allowed = format!("{} to {}, because xdp = true", error.least, error.greatest);
            return refuses.refuse(error.field, error.value, allowed);
        }
    }
    Ok(())
}

type Ids = (BTreeMap<Machine, SocketAddr>, Option<(Machine, Machine)>);

fn ids(refuses: &Refuses<'_>, raw: &Raw, max: u16) -> Result<Ids, ConfigError> {
    let range = (1, u64::from(max));
    let mut machines = BTreeMap::new();
    for RawMachine { id, address } in &raw.machines {
        let machine = Machine(refuses.number("machines.id", *id, range)? as u16);
        let at = refuses.address("machines.address", address)?;
        if machines.values().any(|other| *other == at) {
            return refuses.refuse("machines.address", at, "an address of one machine alone");
        }
        if machines.insert(machine, at).is_some() {
            return refuses.refuse("machines.id", id, "an id of one machine alone");
        }
    }
    let clients = match &raw.clients {
        None => None,
        Some(RawClients { first, last }) => {
            let first = refuses.number("clients.first", *first, range)?;
            let last = refuses.number("clients.last", *last, (first, range.1))?;
            Some((Machine(first as u16), Machine(last as u16)))
        }
    };
    if let Some((first, last)) = clients
        && let Some((machine, _)) = machines.range(first..=last).next()
    {
        let allowed = format!("an id outside of clients, {} to {}", first.0, last.0);
        return refuses.refuse("machines.id", machine.0, allowed);
    }
    let count =
        machines.len() + clients.map_or(0, |(first, last)| usize::from(last.0 - first.0) + 1);
    if count == 0 {
        return refuses.refuse("machines", "nothing", "machines, or a range of clients");
    }
    if count > WAITERS_MAX {
        // Each machine may wait for one lock, and the waiters of a lock move in one datagram.
        return refuses.refuse(
            "machines",
            format!("{count} ids"),
            format!("{WAITERS_MAX} ids in all"),
        );
    }
    Ok((machines, clients))
}

fn secret(refuses: &Refuses<'_>, path: &Path) -> Result<Key, ConfigError> {
    let digits = "32 hexadecimal digits in a file of mode 0600";
    let shown = path.display();
    let read = || Ok((std::fs::metadata(path)?, std::fs::read_to_string(path)?));
    let (meta, text) = match read() {
        Ok(read) => read,
        Err::<_, std::io::Error>(error) => {
            return refuses.refuse("secret", format!("{shown} ({error})"), digits);
        }
    };
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o177 != 0 {
        return refuses.refuse(
            "secret",
            format!("{shown} of mode {mode:04o}"),
            "a file of mode 0600",
        );
    }
    let text = text.trim();
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return refuses.refuse("secret", format!("the text of {shown}"), digits);
    }
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or(0);
    Ok(Key(std::array::from_fn(byte)))
}
