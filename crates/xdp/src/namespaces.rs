//! Two network namespaces of this machine with pairs of virtual interfaces between them, for tests and measurements.
//!
//! Invariant: all commands go to namespaces that this value made; dropping it removes them, and their interfaces with them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Namespaces that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The last number of the client's addresses.
pub const CLIENT: u8 = 1;
/// The last number of the server's addresses.
pub const SERVER: u8 = 2;

/// One of the two namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Its addresses end with [`CLIENT`].
    Client,
    /// Its addresses end with [`SERVER`].
    Server,
}

/// Two namespaces.
#[derive(Debug)]
pub struct Namespaces {
    names: [String; 2],
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("`ip` (package iproute2): {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("`ip {arguments}`: {}", text.trim()))
        }
    }
}

impl Namespaces {
    /// Makes the namespaces and the pairs: an interface of the same name on both sides, and the first three numbers of its addresses.
    ///
    /// # Errors
    /// The command `ip` is missing, or this user may not use it so.
    pub fn new(pairs: &[(&str, &str)]) -> Result<Namespaces, String> {
        let id = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let names = [format!("tarn-client-{id}"), format!("tarn-server-{id}")];
        let namespaces = Namespaces { names };
        let [client, server] = &namespaces.names;
        for namespace in [client, server] {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        for (name, network) in pairs {
            ip(&format!("-n {client} link add {name} type veth peer name {name} netns {server}"))?;
            for (namespace, last) in [(client, CLIENT), (server, SERVER)] {
                ip(&format!("-n {namespace} address add {network}.{last}/24 dev {name}"))?;
                ip(&format!("-n {namespace} link set {name} up"))?;
            }
        }
        Ok(namespaces)
    }

    /// A program that will run in one of the namespaces.
    #[must_use]
    pub fn command(&self, side: Side, program: &Path) -> Command {
        let namespace = &self.names[usize::from(side == Side::Server)];
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
    }
}
