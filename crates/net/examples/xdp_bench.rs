//! Measures the decider as a process and as a program in a driver, in the same two network namespaces, in turns.
//!
//! Invariant: both have the same client, the same configuration but for `xdp`, and no other cluster beside them. Where this machine does not
//! allow the measurement, one line says why, and the program ends well.

#![allow(clippy::disallowed_methods, reason = "measures real processes")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use tarn_locks::value::View;
use tarn_locks::wire::Key;
use tarn_net::{bench, program};
use tarn_xdp::config::Config;
use tarn_xdp::kernel::{Kind, Program};
use tarn_xdp::namespaces::{Namespaces, Side};

const ROLE: &str = "TARN_XDP_BENCH";
const INTERFACE: &str = "lock";
const NETWORK: &str = "10.79.1";
/// Turns of each kind of decider.
const TURNS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    match std::env::var(ROLE) {
        Err(_) => measure(),
        Ok(role) => play(&role.split(' ').collect::<Vec<_>>()),
    }
}

fn pass() -> Result<Program> {
    let (view, key) = (View(0), Key([0; 16]));
    let config = Config { view, key, port: 1, locks: 1, machines: 1, threads: 1 };
    Ok(Program::load(Kind::Pass, &config, &[])?)
}

fn play(words: &[&str]) -> Result<()> {
    let never = AtomicBool::new(false);
    match words {
        ["decider", config, state, interface @ ..] => {
            let place = (None, interface.first().copied());
            program::decider(config.as_ref(), (state.as_ref(), true), place, &never, |_| {})?;
        }
        ["client", config, millis] => {
            // A virtual interface takes what a program sends only if it has a program.
            let mut program = pass()?;
            program.attach(INTERFACE)?;
            print!("{}", bench::run(millis.parse()?, Some(config.as_ref()))?);
            let status = program::status(config.as_ref())?;
            print!("{}", program::status_text(&status));
        }
        _ => unreachable!("the roles are those of `measure`"),
    }
    Ok(())
}

fn write(folder: &Path, xdp: bool) -> Result<PathBuf> {
    let secret = folder.join("secret.key");
    std::fs::write(&secret, "00112233445566778899aabbccddeeff\n")?;
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))?;
    let file = folder.join(format!("locks-{xdp}.toml"));
    let text = format!(
        "decider = \"{NETWORK}.2:7400\"\nlocks = 10000\nxdp = {xdp}\nspin_us = 1000\nsecret = \"secret.key\"\n\
         [clients]\nfirst = 1\nlast = 9\n"
    );
    std::fs::write(&file, text)?;
    Ok(file)
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn measure() -> Result<()> {
    if let Err(error) = pass() {
        println!("skipped: the kernel loads no XDP program for this user: {error}");
        return Ok(());
    }
    let namespaces = match Namespaces::new(&[(INTERFACE, NETWORK)]) {
        Ok(namespaces) => namespaces,
        Err(reason) => {
            println!("skipped: no network namespaces: {reason}");
            return Ok(());
        }
    };
    let millis = std::env::args().nth(1).unwrap_or_else(|| "300".to_owned());
    let folder = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    for turn in 0..TURNS {
        for xdp in [false, true] {
            let config = write(folder.path(), xdp)?;
            let state = folder.path().join(format!("state-{turn}-{xdp}"));
            let interface = if xdp { INTERFACE } else { "" };
            let role = format!("decider {} {} {interface}", config.display(), state.display());
            let mut decider = namespaces.command(Side::Server, &own);
            let _decider = Ends(decider.env(ROLE, role.trim()).stdout(Stdio::null()).spawn()?);
            let mut client = namespaces.command(Side::Client, &own);
            let output =
                client.env(ROLE, format!("client {} {millis}", config.display())).output()?;
            println!("== turn {}, {}", turn + 1, if xdp { "XDP" } else { "UDP process" });
            print!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(())
}
