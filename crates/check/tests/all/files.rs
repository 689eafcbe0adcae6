//! Tests of history files. The reader reads a written file back, and refuses a broken file with an
//! error that names the broken place.

use std::fs;
use std::path::PathBuf;

use crate::common::{X, Z, at, history};
use tarn_check::WriteKind::{Delete, Insert};
use tarn_check::{History, HistoryWriter, NEVER_NS, Outcome, Problem};
use tempfile::TempDir;

fn sample() -> History {
    let mut never = at(3, 30, NEVER_NS).with_outcome(Outcome::Unknown);
    never.id.0 = u64::MAX;
    let mut sample = history(vec![
        at(1, 0, 10).read(X, 1).read_absent(Z, 0).write(Z, u64::MAX, Insert),
        at(2, 20, 30).write(X, 2, Delete).with_outcome(Outcome::Aborted),
        never,
    ]);
    sample.transactions[0].reads[0].fingerprint = 0xdead_beef;
    sample.meta.insert("workload".to_owned(), "bank \"small\"".to_owned());
    sample
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history.jsonl");
    (folder, path)
}

/// Returns the text of the sample's history file.
fn text() -> String {
    let (_folder, path) = folder();
    sample().write_to(&path).expect("written");
    fs::read_to_string(path).expect("read")
}

fn refusal(text: &str) -> String {
    History::parse("history.jsonl", text.as_bytes()).expect_err("broken").to_string()
}

#[test]
fn round_trip() {
    let (_folder, path) = folder();
    sample().write_to(&path).expect("written");
    assert_eq!(History::read_from(&path).expect("read"), sample());
}

#[test]
fn the_format_is_stable() {
    let text = text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..2],
        [
            r#"{"tarn_history":1,"meta":{"workload":"bank \"small\""},"tables":["savings","checking"]}"#,
            r#"{"id":1,"coordinator":1,"invoked_ns":0,"completed_ns":10,"outcome":"committed","reads":[[0,1,1,true,3735928559],[1,1,0,false,0]],"writes":[[1,1,18446744073709551615,"insert",0]]}"#,
        ]
    );
    assert!(lines[3].contains(r#""completed_ns":null,"outcome":"unknown""#), "{}", lines[3]);
    assert_eq!(lines[4..], [r#"{"end":true,"transactions":3}"#]);
}

#[test]
fn a_file_has_its_name_only_when_it_is_whole() {
    let (folder, path) = folder();
    let names = || {
        let files = fs::read_dir(folder.path()).expect("a folder");
        let mut names: Vec<String> = files
            .map(|file| file.expect("a file").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    };
    let sample = sample();
    let mut writer = HistoryWriter::create(&path, &sample.meta, &sample.tables).expect("created");
    writer.write(&sample.transactions[0]).expect("written");
    assert_eq!(names(), ["history.jsonl.partial"]);
    drop(writer);
    assert_eq!(names(), [""; 0]);
    let mut writer = HistoryWriter::create(&path, &sample.meta, &sample.tables).expect("created");
    writer.write(&sample.transactions[0]).expect("written");
    writer.finish().expect("finished");
    assert_eq!(names(), ["history.jsonl"]);
}

#[test]
fn a_missing_file_is_named() {
    let (_folder, path) = folder();
    let error = History::read_from(&path).expect_err("not there");
    assert!(error.to_string().starts_with(&format!("{}: cannot open: ", path.display())));
    assert!(matches!(error.problem, Problem::Io { .. }));
    let nowhere = path.join("history.jsonl");
    let error = sample().write_to(&nowhere).expect_err("nowhere to write");
    assert!(error.to_string().contains("history.jsonl: cannot create: "), "{error}");
}

#[test]
fn not_a_history() {
    assert_eq!(refusal(""), "history.jsonl: empty file, not a history");
    assert_eq!(refusal("\n\n"), "history.jsonl: empty file, not a history");
    for text in ["hello\n", "[1,2]\n", "{\"end\":true}\n", "{\"tarn_history\":\"x\"}\n", "\u{fffd}"]
    {
        let refusal = refusal(text);
        assert!(refusal.starts_with("history.jsonl: not a history: line 1 must be"), "{refusal}");
    }
    assert_eq!(
        refusal("{\"tarn_history\":2,\"news\":[]}\n"),
        "history.jsonl: history format = 2; allowed: 1"
    );
    let binary = History::parse("x", [0xff, 0xfe, b'\n'].as_slice()).expect_err("binary");
    assert!(matches!(binary.problem, Problem::NotAHistory { .. }));
}

#[test]
fn a_history_cut_anywhere_is_never_accepted_as_whole() {
    let text = text();
    let end = text.trim_end().len();
    for cut in 0..end {
        let error = History::parse("h", &text.as_bytes()[..cut]).expect_err("cut short");
        let first_line = text.find('\n').expect("lines");
        let expected = match cut {
            0 => matches!(error.problem, Problem::Empty),
            _ if cut < first_line => matches!(error.problem, Problem::NotAHistory { .. }),
            _ => matches!(error.problem, Problem::CutShort { .. }),
        };
        assert!(expected, "cut at {cut}: {error}");
    }
    History::parse("h", &text.as_bytes()[..end]).expect("the last line end is not needed");
}

#[test]
fn a_cut_history_names_the_last_whole_transaction() {
    let text = text();
    let without_footer = &text[..text.rfind("{\"end\"").expect("a footer")];
    assert_eq!(
        refusal(without_footer),
        "history.jsonl: cut short: no footer line after 3 transactions"
    );
    assert_eq!(
        refusal(&without_footer[..without_footer.len() - 9]),
        "history.jsonl: cut short: no footer line after 2 transactions; line 4 breaks off"
    );
}

#[test]
fn the_footer_must_agree_and_be_last() {
    let text = text();
    assert_eq!(
        refusal(&text.replace("\"transactions\":3", "\"transactions\":4")),
        "history.jsonl: the footer counts 4 transactions, the file holds 3"
    );
    assert_eq!(
        refusal(&format!("{text}{text}")),
        "history.jsonl: line 6: text after the footer; were two histories written into one file?"
    );
    assert!(refusal(&text.replace("\"end\":true", "\"end\":1")).contains("line 5: field `end`"));
}

#[test]
fn a_wrong_field_is_named_with_its_allowed_values() {
    let text = text();
    let cases = [
        (
            "\"aborted\"",
            "\"foo\"",
            "line 3: field `outcome`: found \"foo\", allowed: committed, aborted, unknown",
        ),
        (
            "\"id\":2",
            "\"id\":-2",
            "line 3: field `id`: found -2, allowed: a whole number from 0 to 18446744073709551615",
        ),
        ("\"id\":2,", "", "line 3: field `id`: found nothing, allowed: a value"),
        (
            "\"id\":2,",
            "\"id\":2,\"idd\":3,",
            "line 3: field `idd`: found 3, allowed: only the fields id, ",
        ),
        (
            "\"coordinator\":2",
            "\"coordinator\":4294967296",
            "line 3: field `coordinator`: found 4294967296, allowed: a whole number from 0 to 4294967295",
        ),
        (
            "\"completed_ns\":30",
            "\"completed_ns\":19",
            "line 3: field `completed_ns`: found 19, allowed: null or at least invoked_ns = 20",
        ),
        ("\"completed_ns\":30,", "", "line 3: field `completed_ns`: found nothing"),
        (
            "[1,1,0,false,0]",
            "[1,1,0,0,0]",
            "line 2: field `reads[1].present`: found 0, allowed: true, false",
        ),
        (
            "[1,1,0,false,0]",
            "[1,1,0,false]",
            "line 2: field `reads[1]`: found [1,1,0,false], allowed: an array [table, key, version, present, fingerprint]",
        ),
        (
            "[1,1,0,false,0]",
            "[2,1,0,false,0]",
            "line 2: field `reads[1].table`: found 2, allowed: 0 to 1 (the header names 2 tables)",
        ),
        (
            "[0,1,2,\"delete\",0]",
            "[0,1,2,\"drop\",0]",
            "line 3: field `writes[0].kind`: found \"drop\", allowed: insert, update, delete",
        ),
        (
            "[0,1,2,\"delete\",0]",
            "[0,1.5,2,\"delete\",0]",
            "line 3: field `writes[0].key`: found 1.5, allowed: a whole number",
        ),
        ("\"reads\":[]", "\"reads\":null", "line 3: field `reads`: found null, allowed: an array"),
    ];
    for (from, to, expected) in cases {
        assert!(text.contains(from), "{from}");
        let refusal = refusal(&text.replacen(from, to, 1));
        assert!(refusal.starts_with(&format!("history.jsonl: {expected}")), "{refusal}");
    }
}

#[test]
fn other_broken_lines() {
    let text = text();
    let refused = refusal(&text.replacen("{\"id\":2", "{id:2", 1));
    assert!(
        refused.starts_with("history.jsonl: line 3: cannot be parsed: key must be"),
        "{refused}"
    );
    let refused = refusal(&text.replacen("\"id\":2", "\"id\":2,\"id\":2", 1));
    assert!(refused.contains("line 3: cannot be parsed: duplicate field `id`"), "{refused}");
    let refused = refusal(&text.replacen("\"id\":2", "\"id\":1", 1));
    assert!(refused.contains("two transactions have the id 1"), "{refused}");
}
