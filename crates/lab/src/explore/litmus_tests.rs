//! Tests of litmus files.
//!
//! Invariant checked: each file of the litmus folder is part of the program and can be read. A litmus file with a
//! mistake is refused, and the error names the place of the mistake.

use super::*;

const SMALL: &str = "title = 't'\nwrong = 'w'\nshapes = ['1x1']\nrecords = { x = 0, y = 0 }\n\
                     [[coordinator]]\nnode = 0\ntransactions = [['read x', 'update y = x + 1']]\n";

#[test]
fn every_file_of_the_folder_is_part_of_the_program_and_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/litmus");
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| {
        let name = file.expect("a file").file_name().into_string().expect("a name");
        name.strip_suffix(".toml").expect("a TOML file").to_owned()
    });
    let mut files: Vec<String> = files.collect();
    files.sort_unstable();
    assert_eq!(files, Litmus::names().collect::<Vec<_>>());
    for name in Litmus::names() {
        let litmus = Litmus::load(name).expect("it can be read");
        assert!(!litmus.wrong.is_empty() && litmus.coordinators.len() <= 3, "{name}");
    }
}

#[test]
fn bad_files_say_where_and_what_is_allowed() {
    assert!(Litmus::parse("small", SMALL).is_ok());
    for (from, to, part) in [
        ("node = 0", "node = 9", "allowed: 0 to 2"),
        ("node = 0", "nod = 0", "line 6: unknown field `nod`"),
        ("title = 't'", "titel = 't'", "line 1: unknown field `titel`"),
        ("x + 1", "z + 1", "records x, y"),
        ("y = 0 }", "y = 'gone' }", "\"absent\""),
        ("'1x1'", "'1x2'", "allowed: "),
        ("[[coord", "layout = 'wide'\n[[coord", "allowed: narrow, double"),
        ("node = 0", "node = 65535", "allowed: 0 to 2"),
        ("[[coord", "mortal = [2]\n[[coord", "mortal = 2; allowed: compute nodes of"),
        ("[[coord", "mortal = [0, 0]\n[[coord", "mortal = 0; allowed: compute nodes of"),
        ("node = 0", "node = 0\nsucceeds = 0", "allowed: a coordinator of another"),
        ("[[coord", "tries = 9\n[[coord", "allowed: 1 to 3"),
        ("[[coord", "together = [['z']]\n[[coord", "allowed: x, y"),
        ("'read x'", "'read x', 'scan 1..2'", "allowed: with an ordered index"),
        ("[[coord", "ordered = { unique = true }\n[[coord", "records that say the same"),
        ("[[coord", "ordered = { fillers = [[2, 1]] }\n[[coord", "allowed: ranges apart"),
        ("[[coord", "[[outcome]]\nx = 0\ny = 2\n[[coord", "allowed: x = 0, y = 1"),
    ] {
        let said = Litmus::parse("bad", &SMALL.replace(from, to)).expect_err("refused");
        assert!(said.contains(part), "{to}: {said}");
    }
    let many = "['read x', 'update y = x + 1'], ".repeat(12);
    let many = SMALL.replace("['read x', 'update y = x + 1']", &many);
    let many = many.replace("[[coord", "[[outcome]]\nx = 0\ny = 1\n[[coord");
    let said = Litmus::parse("many", &many).expect_err("refused");
    assert!(said.contains("12 transactions; allowed: 1 to 6"), "{said}");
    let said = Litmus::load("none").expect_err("refused").to_string();
    assert!(said.contains("litmus = none; allowed: all, aba"), "{said}");
}
