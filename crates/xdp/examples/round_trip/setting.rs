//! Two namespaces with two pairs of virtual interfaces: one pair for the decider, one for the echo.
//!
//! Invariant: the two parts are processes of this program, one in each namespace.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use tarn_locks::value::View;
use tarn_locks::wire::Key;
use tarn_xdp::config::Config;
use tarn_xdp::namespaces::{Namespaces, Side};

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

/// Runs the two parts.
pub(crate) struct Parts(pub(crate) Namespaces);

impl Parts {
    fn start(&self, side: Side, role: &str) -> Result<Child, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = self.0.command(side, &own);
        command.env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|error| format!("`ip netns exec`: {error}"))
    }

    /// Starts the server, then the client, and passes the client's wishes on to the server.
    pub(crate) fn run(&self) -> Result<(), String> {
        let mut server = self.start(Side::Server, "server")?;
        let ends = (server.stdin.take(), server.stdout.take());
        let (Some(mut wishes), Some(answers)) = ends else { return Err("no pipes".to_owned()) };
        let mut answers = BufReader::new(answers).lines();
        let mut next = || answers.next().and_then(Result::ok).ok_or("the server ended early");
        next()?;
        let mut client = self.start(Side::Client, "client")?;
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
