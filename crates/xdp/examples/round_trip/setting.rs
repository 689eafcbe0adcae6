//! Two namespaces with two pairs of virtual interfaces: one pair for the decider, one for the echo.
//!
//! Invariant: all commands go to namespaces that this program made; dropping [`Namespaces`] removes them,
//! and their interfaces with them.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use tarn_locks::value::View;
use tarn_locks::wire::Key;
use tarn_xdp::config::Config;

/// The variable that tells this program's children their part.
pub(crate) const ROLE: &str = "TARN_XDP_ROLE";

/// The decider's config; the echo answers on the same port.
pub(crate) const CONFIG: Config = Config {
    view: View(1),
    key: Key(*b"round trip bench"),
    port: 4040,
    locks: 100_000,
    machines: 8,
    threads: 8,
};

/// The interface of each pair, in both namespaces, and its network.
pub(crate) const PAIRS: [(&str, &str); 2] = [("lock", "10.77.1"), ("echo", "10.77.2")];
/// The last number of the client's address, and of the server's.
pub(crate) const CLIENT: u8 = 1;
pub(crate) const SERVER: u8 = 2;

/// Two namespaces.
pub(crate) struct Namespaces {
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
    /// Makes the namespaces and the pairs.
    pub(crate) fn new() -> Result<Namespaces, String> {
        let id = std::process::id();
        let names = [format!("tarn-xdp-client-{id}"), format!("tarn-xdp-server-{id}")];
        let namespaces = Namespaces { names };
        let [client, server] = &namespaces.names;
        ip(&format!("netns add {client}"))?;
        ip(&format!("netns add {server}"))?;
        for (name, network) in PAIRS {
            ip(&format!("-n {client} link add {name} type veth peer name {name} netns {server}"))?;
            for (namespace, last) in [(client, CLIENT), (server, SERVER)] {
                ip(&format!("-n {namespace} address add {network}.{last}/24 dev {name}"))?;
                ip(&format!("-n {namespace} link set {name} up"))?;
            }
        }
        Ok(namespaces)
    }

    fn start(&self, namespace: &str, role: &str) -> Result<Child, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(own).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|error| format!("`ip netns exec`: {error}"))
    }

    /// Starts the server, then the client, and passes the client's wishes on to the server.
    pub(crate) fn run(&self) -> Result<(), String> {
        let [client, server] = &self.names;
        let mut server = self.start(server, "server")?;
        let ends = (server.stdin.take(), server.stdout.take());
        let (Some(mut wishes), Some(answers)) = ends else { return Err("no pipes".to_owned()) };
        let mut answers = BufReader::new(answers).lines();
        let mut next = || answers.next().and_then(Result::ok).ok_or("the server ended early");
        next()?;
        let mut client = self.start(client, "client")?;
        let ends = (client.stdin.take(), client.stdout.take());
        let (Some(mut replies), Some(lines)) = ends else { return Err("no pipes".to_owned()) };
        for line in BufReader::new(lines).lines().map_while(Result::ok) {
            use std::io::Write as _;
            match line.strip_prefix('!') {
                Some(wish) => {
                    writeln!(wishes, "{wish}").map_err(|error| error.to_string())?;
                    writeln!(replies, "{}", next()?).map_err(|error| error.to_string())?;
                }
                None => println!("{line}"),
            }
        }
        drop((wishes, replies));
        let ended = [client.wait(), server.wait()];
        match ended.iter().all(|it| it.as_ref().is_ok_and(|status| status.success())) {
            true => Ok(()),
            false => Err(format!("a process failed: {ended:?}")),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
    }
}
