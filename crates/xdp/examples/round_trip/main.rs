//! Measures an acquire at the XDP decider against a bare XDP echo, in two network namespaces on this machine.
//!
//! Invariant: both are measured in one run, in turns, by the same client, with datagrams of the same size.
//! Where the machine does not allow the measurement, one line says why, and the program ends well. It
//! removes the namespaces that it made.

#![allow(clippy::disallowed_methods, reason = "measures a real network")]

mod client;
mod server;
mod setting;

use setting::{PAIRS, Parts, ROLE};
use std::process::ExitCode;
use tarn_xdp::kernel::{Kind, Program};
use tarn_xdp::namespaces::Namespaces;

fn main() -> ExitCode {
    let result = match std::env::var(ROLE).as_deref() {
        Ok("server") => server::run(),
        Ok("client") => client::run(),
        _ => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    if let Err(error) = Program::load(Kind::Pass, &setting::CONFIG, &[]) {
        println!("skipped: the kernel loads no XDP program for this user: {error}");
        return Ok(());
    }
    let namespaces = match Namespaces::new(&PAIRS) {
        Ok(namespaces) => namespaces,
        Err(reason) => {
            println!("skipped: no network namespaces: {reason}");
            return Ok(());
        }
    };
    Parts(namespaces).run()
}
