//! Holds the source that is checked in equal to the generator, and its entries equal to the table, read back
//! from the text.
//!
//! Invariant: the reader of entries knows nothing of the generator. It evaluates them as a switch does: the
//! first that matches counts.

use super::super::table::Table;
use super::*;
use std::path::Path;

fn generated() -> String {
    source(&Program::of(&Table::shipped()).expect("it fits"))
}

/// The first line of a table that matches: the keys between brackets against values, and the action with its
/// arguments.
fn action_of<'a>(source: &'a str, table: &str, values: &[String]) -> Option<&'a str> {
    let from = source.find(&format!("table {table} {{"))?;
    let entries = source[from..].split_once("const entries = {")?.1.split_once('}')?.0;
    entries.lines().map(str::trim).filter(|line| !line.is_empty()).find_map(|line| {
        let (keys, action) = line.trim_end_matches(';').rsplit_once(": ")?;
        let keys = keys.trim_start_matches('(').trim_end_matches(')').split(", ");
        keys.zip(values).all(|(key, value)| matches_key(key, value)).then_some(action)
    })
}

fn matches_key(key: &str, value: &str) -> bool {
    let hex = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).expect("hex");
    match key.split_once(" &&& ") {
        Some((bits, mask)) => hex(value) & hex(mask) == hex(bits),
        None => key == "_" || key == value,
    }
}

/// The first input for which the entries of a source differ from the table.
fn difference(source: &str, table: &Table) -> Option<(Old, Key)> {
    let bit = |bit: bool| u8::from(bit).to_string();
    for key in Key::all() {
        let ask = ["ACQUIRE", "FREE", "TRANSFER", "BAR_READERS"][key.ask as usize].to_owned();
        let keys = [
            ask.clone(),
            bit(key.mode == Mode::Exclusive),
            bit(key.bars_readers),
            bit(key.is_equal),
        ];
        // Cells of machine 5; the exclusive ones with and without the flag that bars readers.
        let cells = [(Old::Free, 0), (Old::Open, 20), (Old::Barred, 22), (Old::Exclusive, 21)];
        for (old, cell) in cells.into_iter().chain([(Old::Exclusive, 23)]) {
            let row = table.row(old, key).expect("one row");
            let counts = match action_of(source, "count_step", std::slice::from_ref(&ask)) {
                Some("count_read()") => false,
                Some("count_add()") => true,
                Some("count_add_if_equal()") => key.is_equal,
                _ => return Some((old, key)),
            };
            let cell_action = action_of(source, "cell_step", &keys).unwrap_or("");
            let new = match (cell_action, cell) {
                ("cell_enter(FIRST, 0)" | "cell_enter(FIRST, BARS_READERS)", 0) => NewCell::First,
                ("cell_enter(NONE, 0)" | "cell_enter(NONE, BARS_READERS)", 0) => NewCell::Same,
                ("cell_enter(FIRST, 0)" | "cell_enter(NONE, 0)", _) => NewCell::Same,
                ("cell_enter(FIRST, BARS_READERS)" | "cell_enter(NONE, BARS_READERS)", _) => {
                    NewCell::Bar
                }
                ("cell_write(NEXT)", _) => NewCell::Next,
                ("cell_write(NONE)", _) => NewCell::Free,
                _ => return Some((old, key)),
            };
            let values: Vec<String> =
                [format!("{cell:#04x}")].into_iter().chain(keys.clone()).collect();
            let (sends, verdict) = match row.sends {
                Sends::Reply => ("reply", row.verdict),
                Sends::ReplyAndCopy => ("reply_and_copy", row.verdict),
                Sends::Copy => ("copy", row.verdict),
                Sends::Install => ("install", row.verdict),
            };
            let outcome = format!("{sends}({})", format!("{verdict:?}").to_uppercase());
            let same = counts == row.counts
                && new == row.cell
                && action_of(source, "outcome", &values) == Some(&outcome);
            if !same {
                return Some((old, key));
            }
        }
    }
    None
}

#[test]
fn the_file_is_the_generators() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    if std::env::var_os("TARN_BLESS").is_some() {
        std::fs::write(&path, generated()).expect("the folder is writable");
    }
    let file = std::fs::read_to_string(&path).expect("the source is checked in");
    assert!(file.starts_with("// never compiled"), "{:?}", file.lines().next());
    assert!(file == generated(), "TARN_BLESS=1 cargo test -p tarn-locks p4 writes it again");
}

#[test]
fn the_entries_of_the_file_say_the_same_as_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PATH);
    let file = std::fs::read_to_string(path).expect("the source is checked in");
    assert_eq!(difference(&file, &Table::shipped()), None);
}

#[test]
fn a_changed_entry_is_found() {
    let source = generated();
    let table = Table::shipped();
    let begin = source.find("table count_step").expect("a table");
    assert_eq!(difference(&source, &table), None);
    let mut changed = 0;
    for (from, to) in [
        ("count_add();", "count_read();"),
        ("count_add_if_equal();", "count_add();"),
        ("cell_enter(FIRST, BARS_READERS)", "cell_enter(FIRST, 0)"),
        ("cell_write(NONE)", "cell_enter(NONE, 0)"),
        ("cell_write(NEXT)", "cell_write(NONE)"),
        ("): reply_and_copy(JOINED)", "): copy(QUEUED)"),
        ("): install(DONE)", "): reply(DONE)"),
        ("(0x00 &&& 0x03, ACQUIRE, 0", "(0x00 &&& 0x03, ACQUIRE, 1"),
        ("(0x02 &&& 0x03, FREE, _, _, 1)", "(0x02 &&& 0x03, FREE, _, _, 0)"),
    ] {
        for (at, _) in source.match_indices(from).filter(|(at, _)| *at > begin) {
            let one = format!("{}{to}{}", &source[..at], &source[at + from.len()..]);
            assert!(difference(&one, &table).is_some(), "{from} changed to {to}");
            changed += 1;
        }
    }
    assert_eq!(changed, 12);
}

#[test]
fn each_array_is_touched_once_a_packet() {
    let source = generated();
    let apply = source.split_once("count_step.apply();").expect("the way of a fresh packet").1;
    // One unit of one array runs in each branch; no array has another place in the program.
    for array in ["sequence_", "token_low_", "token_high_"] {
        let touches = source.matches(&format!("{array}a")).count()
            + source.matches(&format!("{array}c")).count();
        assert_eq!(touches, 2, "{array}: defined, and executed once");
    }
    assert_eq!(source.matches("answers_read.execute").count(), 1);
    assert_eq!(apply.matches("answers_read.execute").count(), 0);
    assert_eq!(source.matches("answers_write.execute").count(), 1);
    for bank in 0..COUNT_BANKS {
        let of_bank = format!("if (hdr.lock.lock[31:18] == {bank}) {{");
        assert_eq!(apply.matches(&of_bank).count(), 1);
        assert_eq!(apply.matches(&format!("count_{bank}_")).count(), 4);
    }
    for bank in 0..CELL_BANKS {
        assert_eq!(apply.matches(&format!("cell_{bank}_")).count(), 2);
    }
    // A bank of cells has 2^19 locks: counts and cells are of the same locks.
    assert_eq!(u64::from(COUNT_BANKS) << COUNT_BITS, u64::from(CELL_BANKS) << 19);
}
