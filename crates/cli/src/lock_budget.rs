//! `tarn lock budget`: the locks that fit a switch, beside the arrays of its lanes.
//!
//! Invariant: this file has only the command line. `tarn-locks` computes the numbers (`switch::budget`).

use super::scenario::whole_in;
use super::{Stop, Verdict, print_object, say};
use serde::Serialize;
use tarn_locks::switch::budget::{LaneShape, LockLayout, SwitchBudget, report};

/// Prints the locks that fit a switch of 12 match-action units: a table, then the lanes that the flags describe
#[derive(clap::Args)]
#[command(after_help = "Example:
  tarn lock budget --machines 8 --threads 6 --window 64 --control 2")]
pub struct Arguments {
    /// The number of machines that send requests
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = whole_in::<u16>(1..=u16::MAX.into()))]
    machines: u16,
    /// Threads of a machine that send requests; each has a lane
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = whole_in::<u16>(1..=u16::MAX.into()))]
    threads: u16,
    /// Answers that the switch records for each lane
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole_in::<u32>(1..=u32::MAX.into()))]
    window: u32,
    /// Match-action units of the control logic
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = whole_in::<u64>(1..=11))]
    control: u64,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
}

/// The locks of one layout.
#[derive(Serialize)]
struct Row {
    registers: &'static str,
    locks: u64,
    lock_units: u64,
    control_units: u64,
    extra_lane_units: u64,
    sequence_bytes: u64,
    answer_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let Arguments { machines, threads, window, control, json } = *arguments;
    let switch = SwitchBudget::published(control);
    let lanes = LaneShape { machines, threads, window };
    // A cell of 8 bits names fewer machines than a cell of 16 bits, but its answers take less room.
    let layouts = [LockLayout::CELL8, LockLayout::CELL16];
    let most = LockLayout::CELL16.machines_max;
    if machines > most {
        return Err(Stop::Input(format!("--machines = {machines}; allowed: 1 to {most}")));
    }
    let row = |layout: LockLayout| {
        let fit = switch.locks_beside(&layout, lanes).ok()?;
        Some(Row {
            registers: layout.name,
            locks: fit.locks,
            lock_units: fit.lock_maus,
            control_units: control,
            extra_lane_units: fit.extra_maus,
            sequence_bytes: fit.sequence_bytes,
            answer_bytes: fit.answer_bytes,
        })
    };
    let rows: Vec<Row> = layouts.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return Err(Stop::Input(format!(
            "--machines, --threads, --window = {machines}, {threads}, {window}; allowed: lanes that leave a unit of {} to \
             the locks",
            switch.maus
        )));
    }
    if json {
        print_object(&rows)?;
        return Ok(Verdict::Good);
    }
    let mut text = format!(
        "{}\n{} units of {} bytes; {machines} machines with {threads} lanes each, {window} answers a lane:\n",
        report(),
        switch.maus,
        switch.mau_bytes
    );
    for it in rows {
        text += &format!(
            "{}: {} locks in {} units; control {} units, lanes {} more units; sequence numbers {} bytes, answers {} \
             bytes\n",
            it.registers,
            it.locks,
            it.lock_units,
            it.control_units,
            it.extra_lane_units,
            it.sequence_bytes,
            it.answer_bytes
        );
    }
    say(&text)?;
    Ok(Verdict::Good)
}
