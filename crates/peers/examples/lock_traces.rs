//! Draws the lock traces of the benchmarks, and prints their sizes, their shares and their digests; records and replays one of them.
//!
//! Invariant: the same seed prints the same digests on every machine. `--record=FILE` writes the last trace, and `--replay=FILE` prints a
//! recorded one.

use std::process::ExitCode;
use tarn_locks::trace::{Hotspot, Micro, Mix, Picker, Skew, Tatp, Tpcc, Trace, Workload};
use tarn_locks::value::Mode;
use tarn_peers::dice::Dice;

const MACHINES: u16 = 8;
const LOCKS: u32 = 1_000_000;
const TRANSACTIONS: usize = 200_000;
const WAREHOUSES: u32 = 1_200;
const SEED: u64 = 1;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref().map(|it| it.split_once('=')) {
        None => print_all().map(|_| ()),
        Some(Some(("--record", file))) => print_all()
            .and_then(|trace| std::fs::write(file, trace.to_bytes()).map_err(|it| it.to_string())),
        Some(Some(("--replay", file))) => replay(file),
        _ => {
            eprintln!("error: argument = {argument:?}; allowed: --record=FILE, --replay=FILE");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_all() -> Result<Trace, String> {
    println!("seed {SEED}, {TRANSACTIONS} transactions of {MACHINES} machines each");
    let micro = |mix, locks, skew, granule| {
        Workload::Micro(Micro { mix, picker: Picker::new(locks, skew), granule })
    };
    let tatp = Tatp::new(Tatp::SUBSCRIBERS, &mut words(0));
    let workloads = [
        ("UH uniform", micro(Mix::UPDATE_HEAVY, LOCKS, Skew::Uniform, 1)),
        ("RM uniform", micro(Mix::READ_MOSTLY, LOCKS, Skew::Uniform, 1)),
        ("RM zipf, text", micro(Mix::READ_MOSTLY, LOCKS, Skew::TEXT, 1)),
        ("RM zipf, code", micro(Mix::READ_MOSTLY, LOCKS, Skew::CODE, 1)),
        ("RM zipf, shares", micro(Mix::READ_MOSTLY, LOCKS, Skew::SHARES, 1)),
        ("RO zipf, code", micro(Mix::READ_ONLY, LOCKS, Skew::CODE, 1)),
        ("RM 10 M objects, 1 M locks", micro(Mix::READ_MOSTLY, 10 * LOCKS, Skew::Uniform, 10)),
        ("hotspot", Workload::Hotspot(Hotspot::new(LOCKS, Hotspot::HOT, 50_000))),
        ("TATP", Workload::Tatp(Box::new(tatp))),
        ("TPC-C", Workload::Tpcc(Tpcc::new(MACHINES, WAREHOUSES))),
    ];
    let mut last = None;
    for (stream, (name, mut workload)) in workloads.into_iter().enumerate() {
        let size = (TRANSACTIONS, MACHINES);
        let trace = Trace::drawn(&mut workload, size, &mut words(1 + stream as u64));
        print(name, &trace);
        last = Some(trace);
    }
    last.ok_or_else(|| "no workload".to_owned())
}

fn words(stream: u64) -> impl FnMut() -> u64 {
    let mut dice = Dice::new(SEED, stream);
    move || dice.word()
}

fn print(name: &str, trace: &Trace) {
    let homes = usize::from(MACHINES);
    let (mut by_rest, mut by_range, mut writes) = (vec![0; homes], vec![0; homes], 0);
    for wanted in trace.transactions().flat_map(|it| it.wanted) {
        let lock = wanted.lock().0 as usize;
        by_rest[lock % homes] += 1;
        by_range[lock * homes / trace.locks() as usize] += 1;
        writes += usize::from(wanted.mode() == Mode::Exclusive);
    }
    let percent = |part: usize| part as f64 * 100.0 / trace.requests().max(1) as f64;
    let most = |of: &[usize]| percent(of.iter().copied().max().unwrap_or_default());
    println!(
        "{name:<28} {:>9} locks, {:>4.1} requests each, {:>4.1} % exclusive, busiest of {homes} homes \
         {:>4.1} % by remainder, {:>4.1} % by range, digest {:016x}",
        trace.locks(),
        trace.requests() as f64 / trace.len().max(1) as f64,
        percent(writes),
        most(&by_rest),
        most(&by_range),
        trace.digest()
    );
}

fn replay(file: &str) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let trace = Trace::from_bytes(&bytes).map_err(|error| format!("{file}: {error}"))?;
    print(file, &trace);
    Ok(())
}
