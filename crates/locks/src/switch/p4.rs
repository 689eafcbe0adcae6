//! The decider as a P4_16 program for a Tofino switch, written from the table of transitions. The program
//! was never compiled.
//!
//! Invariant: the entries of its match-action tables are the stages of the table ([`Program`]). A test reads
//! them back from the file that is checked in, and compares them with the table for every input. The rest of
//! the source is a fixed text around them.

use super::program::{CountOp, Program};
use super::table::{AskKind, Key, NewCell, Old, Sends};
use crate::packet::Verdict;
use crate::value::Mode;
use std::fmt::Write as _;

/// The path of the source in the repository's folder of this crate.
pub const PATH: &str = "p4/decider.p4";

/// Banks of the counts: 2^18 registers of 16 bits fit a match-action unit of 560 KB.
const COUNT_BANKS: u32 = 6;
/// Banks of the cells: 2^19 registers of 8 bits fit a unit.
const CELL_BANKS: u32 = 3;
/// Bits of a lock within a bank of counts.
const COUNT_BITS: u32 = 18;

/// Writes the source.
#[must_use]
pub fn source(program: &Program) -> String {
    let mut text = HEAD.to_owned();
    let locks = u64::from(COUNT_BANKS) << COUNT_BITS;
    _ = writeln!(text, "const bit<32> LOCKS = {locks};\n");
    text += HEADERS;
    for bank in 0..COUNT_BANKS {
        text += &COUNT_ARRAY.replace("BANK", &bank.to_string());
    }
    for bank in 0..CELL_BANKS {
        text += &CELL_ARRAY.replace("BANK", &bank.to_string());
    }
    text += ACTIONS;
    text += &table("count_step", ["hdr.lock.ask: exact"], &COUNT_OPS, &count_entries(program));
    let keys = [
        "hdr.lock.ask: ternary",
        "hdr.lock.exclusive: ternary",
        "hdr.lock.bars_readers: ternary",
        "meta.is_equal: ternary",
    ];
    text += &table("cell_step", keys, &["cell_enter", "cell_write"], &cell_entries(program));
    let keys = ["meta.old_cell: ternary"].into_iter().chain(keys);
    text += &table("outcome", keys, &SENDS.map(|(_, name)| name), &outcome_entries(program));
    text += APPLY;
    for bank in 0..COUNT_BANKS {
        text += &COUNT_APPLY.replace("BANK", &bank.to_string());
    }
    text += COMPARE;
    for bank in 0..CELL_BANKS {
        text += &CELL_APPLY.replace("BANK", &bank.to_string());
    }
    text + TAIL
}

fn table<'a>(
    name: &str,
    keys: impl IntoIterator<Item = &'a str>,
    actions: &[&str],
    entries: &[String],
) -> String {
    let lines = |lines: &[String]| lines.iter().map(|it| format!("            {it};\n")).collect();
    let keys: String = lines(&keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let actions: String = lines(&actions.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    let entries: String = lines(entries);
    format!(
        "    table {name} {{\n        key = {{\n{keys}        }}\n        actions = {{\n{actions}        }}\n        \
         const entries = {{\n{entries}        }}\n        size = 32;\n    }}\n\n"
    )
}

const COUNT_OPS: [&str; 4] =
    ["count_read", "count_add", "count_add_if_equal", "count_add_if_other"];
const SENDS: [(Sends, &str); 4] = [
    (Sends::Reply, "reply"),
    (Sends::ReplyAndCopy, "reply_and_copy"),
    (Sends::Copy, "copy"),
    (Sends::Install, "install"),
];
const VERDICTS: [(Verdict, &str); 5] = [
    (Verdict::Granted, "GRANTED"),
    (Verdict::Joined, "JOINED"),
    (Verdict::Queued, "QUEUED"),
    (Verdict::Done, "DONE"),
    (Verdict::Refused, "REFUSED"),
];
const ASKS: [(AskKind, &str); 4] = [
    (AskKind::Acquire, "ACQUIRE"),
    (AskKind::Free, "FREE"),
    (AskKind::Transfer, "TRANSFER"),
    (AskKind::BarReaders, "BAR_READERS"),
];
/// The states of a cell by the bits {machine 6, bars readers 1, exclusive 1}, in the order in which a switch
/// tries them.
const OLDS: [(Old, &str); 4] = [
    (Old::Free, "0x00 &&& 0xff"),
    (Old::Open, "0x00 &&& 0x03"),
    (Old::Barred, "0x02 &&& 0x03"),
    (Old::Exclusive, "0x01 &&& 0x01"),
];

fn name_of<K: PartialEq, const N: usize>(names: &[(K, &'static str); N], of: &K) -> &'static str {
    names.iter().find(|(key, _)| key == of).expect("all are named").1
}

fn count_name(op: CountOp) -> &'static str {
    COUNT_OPS[match op {
        CountOp::Read => 0,
        CountOp::Add => 1,
        CountOp::AddIfEqual => 2,
        CountOp::AddIfOther => 3,
    }]
}

fn count_entries(program: &Program) -> Vec<String> {
    let of = |ask| Key { ask, mode: Mode::Shared, bars_readers: false, is_equal: false };
    ASKS.iter()
        .map(|(ask, name)| format!("{name}: {}()", count_name(program.count(of(*ask)))))
        .collect()
}

/// The parts of a key that a value depends on are written, the others are left open.
fn merged<V: PartialEq>(value: impl Fn(Key) -> V) -> Vec<(String, V)> {
    let mut merged = Vec::new();
    for (ask, name) in ASKS {
        let mut keys: Vec<Key> = Key::all().filter(|key| key.ask == ask).collect();
        let flips: [fn(Key) -> Key; 3] = [
            |key| match key.mode {
                Mode::Shared => Key { mode: Mode::Exclusive, ..key },
                Mode::Exclusive => Key { mode: Mode::Shared, ..key },
            },
            |key| Key { bars_readers: !key.bars_readers, ..key },
            |key| Key { is_equal: !key.is_equal, ..key },
        ];
        let parts = |key: Key| [key.mode == Mode::Exclusive, key.bars_readers, key.is_equal];
        let matters = flips.map(|flip| keys.iter().any(|key| value(*key) != value(flip(*key))));
        keys.retain(|key| parts(*key).iter().zip(matters).all(|(part, matters)| matters || !part));
        for key in keys {
            let parts = parts(key).into_iter().zip(matters);
            let parts = parts.map(|(part, matters)| match (matters, part) {
                (false, _) => ", _",
                (true, true) => ", 1",
                (true, false) => ", 0",
            });
            merged.push((format!("{name}{}", parts.collect::<String>()), value(key)));
        }
    }
    merged
}

/// A cell's operation as the operands of its unit: the value for a free cell, and the bits added to a held
/// one; or one value for both.
fn cell_name(program: &Program, key: Key) -> String {
    let op = program.cell(key);
    let holder = |cell| match cell {
        NewCell::First => "FIRST",
        NewCell::Next => "NEXT",
        _ => "NONE",
    };
    match (op.free, op.held) {
        (free, NewCell::Same) => format!("cell_enter({}, 0)", holder(free)),
        (free, NewCell::Bar) => format!("cell_enter({}, BARS_READERS)", holder(free)),
        (free, held) if free == held => format!("cell_write({})", holder(held)),
        _ => unreachable!("the arithmetic unit of a register has no such operation"),
    }
}

fn cell_entries(program: &Program) -> Vec<String> {
    let entries = merged(|key| cell_name(program, key));
    entries.into_iter().map(|(keys, action)| format!("({keys}): {action}")).collect()
}

fn outcome_entries(program: &Program) -> Vec<String> {
    let mut entries = Vec::new();
    for (old, bits) in OLDS {
        for (keys, outcome) in merged(|key| program.outcome(old, key)) {
            let action = name_of(&SENDS, &outcome.sends);
            let verdict = name_of(&VERDICTS, &outcome.verdict);
            entries.push(format!("({bits}, {keys}): {action}({verdict})"));
        }
    }
    entries
}

const HEAD: &str = include_str!("p4/head.p4");
const HEADERS: &str = include_str!("p4/headers.p4");
const COUNT_ARRAY: &str = include_str!("p4/count_array.p4");
const CELL_ARRAY: &str = include_str!("p4/cell_array.p4");
const ACTIONS: &str = include_str!("p4/actions.p4");
const APPLY: &str = include_str!("p4/apply.p4");
const COUNT_APPLY: &str = include_str!("p4/count_apply.p4");
const COMPARE: &str = include_str!("p4/compare.p4");
const CELL_APPLY: &str = include_str!("p4/cell_apply.p4");
const TAIL: &str = include_str!("p4/tail.p4");

#[cfg(test)]
mod tests;
