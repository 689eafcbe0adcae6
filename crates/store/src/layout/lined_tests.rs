//! Tests of records with a version in every line. These tests check the shape of records, the copying of rows, and
//! the copies that a reader or a recovery can find.
//!
//! Invariant: one line is read and written atomically. Different lines of a reader's image may be from different
//! moments. Any subset of a verb's lines may have landed. No line of a later verb lands before all lines of an
//! earlier verb.

use super::*;
use crate::schema::ColumnType;
use proptest::prelude::*;

fn lined(payload: u16, key_bytes: u8) -> Lined {
    let mut schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload));
    if key_bytes > 0 {
        schema = schema.key_bytes(key_bytes);
    }
    Lined::new(&schema, false)
}

/// Creates a record whose row bytes and version are all the number `number`.
fn version(of: Lined, number: u64) -> Vec<u8> {
    let mut record = vec![0; of.record_bytes()];
    of.scatter(&vec![number as u8; of.row_bytes()], 0, &mut record);
    of.stamp(&mut record, Version::from_word(number), number << 8);
    record
}

fn half() -> Lined {
    Lined::new(&TableSchema::new("t", 1).column("c", ColumnType::U64), true)
}

fn line(record: &[u8], line: usize) -> &[u8] {
    &record[line * LINE_BYTES..][..LINE_BYTES]
}

#[test]
fn a_row_of_32_bytes_is_a_line_and_56_more_are_another() {
    let lines = |payload, key| lined(payload, key).lines();
    assert_eq!([lines(1, 0), lines(32, 0), lines(33, 0), lines(88, 0)], [1, 1, 2, 2]);
    assert_eq!([lines(89, 0), lines(1000, 0), lines(24, 8), lines(24, 9)], [3, 19, 1, 2]);
    let last = |payload| lined(payload, 0).writes().last().map(|range| range.end);
    assert_eq!([last(8), last(32), last(33), last(88)], [Some(40), Some(64), Some(80), Some(128)]);
}

#[test]
fn a_row_of_eight_bytes_takes_half_a_line_if_allowed() {
    let of = |payload, key, halves| {
        let mut schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload));
        if key > 0 {
            schema = schema.key_bytes(key);
        }
        Lined::new(&schema, halves)
    };
    let bytes = |payload, key, halves| of(payload, key, halves).record_bytes();
    assert_eq!([bytes(8, 0, true), bytes(1, 0, true), bytes(8, 0, false)], [32, 32, 64]);
    assert_eq!([bytes(9, 0, true), bytes(1, 8, true)], [64, 64], "a full key is part of the row");
    let (half, mut record) = (half(), vec![0xee; 32]);
    half.scatter_payload(&7_u64.to_le_bytes(), &mut record);
    half.stamp(&mut record, Version::from_word(5), 9);
    assert_eq!(
        [LOCK_AT, VERSION_AT, KEY_AT, HEADER_BYTES].map(|at| word(&record, at) & 0xff),
        [0xee, 5, 0xee, 7]
    );
    assert_eq!((half.lines(), half.writer(&record), half.is_whole(&record)), (1, 0, true));
    let mut writes = half.writes();
    assert_eq!((writes.next(), writes.next()), (Some(VERSION_AT..32), None), "all but LOCK");
    let mut payload = [0; 8];
    half.gather_payload(&record, &mut payload);
    assert_eq!(u64::from_le_bytes(payload), 7);
}

#[test]
fn a_write_covers_every_line_except_lock() {
    for payload in 1..400 {
        let of = lined(payload, 0);
        let mut touched = vec![false; of.record_bytes()];
        for range in of.writes() {
            touched[range].iter_mut().for_each(|it| *it = true);
        }
        assert!(!touched[..VERSION_AT].iter().any(|&it| it), "LOCK is no data");
        let first = of.writes().next().expect("a record has a first line");
        assert!(first.end <= LINE_BYTES, "the first line is a verb of its own");
        for part in of.parts(0, of.row_bytes()) {
            assert!(touched[part.record_at..part.record_at + part.len_bytes].iter().all(|&it| it));
        }
        for line in 1..of.lines() {
            assert!(touched[line * LINE_BYTES..][..LVER_BYTES].iter().all(|&it| it));
        }
    }
}

proptest! {
    #[test]
    fn a_row_comes_out_as_it_went_in(
        (payload, key, from, len) in (1u16..600, 0u8..=64).prop_flat_map(|(payload, key)| {
            let bytes = lined(payload, key).row_bytes();
            (Just(payload), Just(key), 0..bytes).prop_flat_map(move |(payload, key, from)| {
                (Just(payload), Just(key), Just(from), 0..=bytes - from)
            })
        }),
    ) {
        let of = lined(payload, key);
        let row: Vec<u8> = (0..of.row_bytes()).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut record = version(of, 9);
        of.scatter(&row, 0, &mut record);
        prop_assert!(of.is_whole(&record), "a row touches no version");
        let part = &row[from..from + len];
        let mut out = vec![0; len];
        of.gather(&record, from, &mut out);
        prop_assert_eq!(&out[..], part);
        prop_assert!(of.is_there(&record, from, part));
        if len > 0 {
            out[len / 2] ^= 1;
            prop_assert!(!of.is_there(&record, from, &out));
            // A write in the middle of the row does not change the other bytes.
            of.scatter(&out, from, &mut record);
            out[len / 2] ^= 1;
            of.scatter(&out, from, &mut record);
            let mut all = vec![0; row.len()];
            of.gather(&record, 0, &mut all);
            prop_assert_eq!(all, row);
        }
    }

    /// A READ may return each line at another moment. An image whose lines have different versions is never accepted
    /// as whole.
    #[test]
    fn lines_of_different_versions_are_never_whole(
        (payload, moments) in (1u16..600).prop_flat_map(|payload| {
            let lines = lined(payload, 0).lines();
            (Just(payload), prop::collection::vec(1u64..5, lines))
        }),
    ) {
        let of = lined(payload, 0);
        let seen: Vec<u8> = moments
            .iter()
            .enumerate()
            .flat_map(|(at, &moment)| line(&version(of, moment), at).to_vec())
            .collect();
        let is_one = moments.iter().all(|&moment| moment == moments[0]);
        prop_assert_eq!(of.is_whole(&seen), is_one);
        prop_assert_eq!(newest_line(&seen, of.lines()).word(), moments.iter().copied().max().unwrap_or(0));
        if is_one {
            prop_assert_eq!(seen, version(of, moments[0]));
        }
    }
}

/// For records of three or more lines, versions only in the first and the last line are not enough, because a torn
/// record can look whole.
#[test]
fn versions_at_both_ends_are_not_enough() {
    let of = lined(100, 0);
    assert_eq!(of.lines(), 3);
    let (old, new) = (version(of, 1), version(of, 2));
    let torn = [line(&new, 0), line(&old, 1), line(&new, 2)].concat();
    assert_eq!(word(&torn, VERSION_AT), word(&torn, 2 * LINE_BYTES), "both ends agree");
    assert!(!of.is_whole(&torn));
}

/// Calls `each` with every copy that a dead writer may leave behind. The writer's verbs are executed in order. Of the
/// last executed verb, any subset of lines has landed.
fn left_by(of: Lined, verbs: &[Range<usize>], mut each: impl FnMut(Vec<u8>)) {
    let (old, new) = (version(of, 1), version(of, 2));
    for (begun, verb) in verbs.iter().enumerate() {
        let lines = verb.start / LINE_BYTES..verb.end.div_ceil(LINE_BYTES);
        for landed in 0u32..1 << lines.len() {
            let mut copy = old.clone();
            for done in &verbs[..begun] {
                copy[done.clone()].copy_from_slice(&new[done.clone()]);
            }
            for (_, line) in lines.clone().enumerate().filter(|(bit, _)| landed >> bit & 1 == 1) {
                let (from, to) = (line * LINE_BYTES, (line + 1) * LINE_BYTES);
                let part = from.max(verb.start)..to.min(verb.end);
                copy[part.clone()].copy_from_slice(&new[part]);
            }
            each(copy);
        }
    }
}

/// Recovery decides by VERSION and WRITER. If any line of a transaction's write has landed at a copy, VERSION and
/// WRITER must have landed there too.
#[test]
fn any_part_of_a_writer_comes_with_its_name() {
    for payload in [8, 32, 33, 100, 300] {
        let of = lined(payload, 0);
        let (old, writes) = (version(of, 1), of.writes().collect::<Vec<_>>());
        let mut seen = 0;
        left_by(of, &writes, |copy| {
            let named = word(&copy, VERSION_AT) == 2 && lined_writer(&copy) == 2 << 8;
            assert_eq!(named, copy != old, "{} lines", of.lines());
            assert!(
                is_whole_at(&copy, of.lines(), Version::from_word(2)) == (copy == version(of, 2))
            );
            seen += 1;
        });
        assert!(seen >= 2);
    }
}

/// If one WRITE wrote all lines, some changed copies would not name their writer.
#[test]
fn one_write_for_all_lines_would_leave_nameless_copies() {
    let of = lined(100, 0);
    let end = of.writes().last().map_or(0, |range| range.end);
    let (old, mut nameless) = (version(of, 1), 0);
    left_by(of, std::slice::from_ref(&(VERSION_AT..end)), |copy| {
        nameless += u32::from(copy != old && lined_writer(&copy) != 2 << 8);
    });
    assert_eq!(nameless, 3, "either later line alone, or both");
}
