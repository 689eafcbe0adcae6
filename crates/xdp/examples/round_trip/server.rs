//! The server's namespace: the decider on one interface, the echo on another. No datagram reaches this process.
//!
//! Invariant: it reads one wish a line and writes one line for it, until its input ends.

use crate::setting::{CONFIG, PAIRS};
use std::io::BufRead as _;
use tarn_xdp::config::Config;
use tarn_xdp::counters::Counter;
use tarn_xdp::kernel::{Failed, Kind, Program};

pub(crate) fn run() -> Result<(), String> {
    serve().map_err(|error| format!("server: {error}"))
}

fn serve() -> Result<(), Failed> {
    let mut decider = Program::load(Kind::Decider, &CONFIG, &[])?;
    let mut echo = Program::load(Kind::Echo, &CONFIG, &[])?;
    decider.attach(PAIRS[0].0)?;
    echo.attach(PAIRS[1].0)?;
    println!("ready");
    for wish in std::io::stdin().lock().lines().map_while(Result::ok) {
        match wish.as_str() {
            "next view" => {
                let config = Config { view: CONFIG.view.next(), ..CONFIG };
                let mut next = Program::load(Kind::Decider, &config, &[])?;
                next.replace(decider)?;
                decider = next;
                println!("ok");
            }
            _ => println!("{}", counters(&decider)?),
        }
    }
    Ok(())
}

/// The counters that are not 0.
fn counters(program: &Program) -> Result<String, Failed> {
    let mut text = Vec::new();
    for counter in Counter::ALL {
        let count = program.count(counter)?;
        if count > 0 {
            text.push(format!("{} {count}", counter.name()));
        }
    }
    Ok(text.join(", "))
}
