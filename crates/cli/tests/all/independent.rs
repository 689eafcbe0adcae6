//! A second opinion on histories: the tests compare `tarn check` with a checker of linearizability by other authors.
//!
//! A database as a whole is one object, and a transaction is one operation on this object. The database's history is
//! strictly serializable if and only if the object's history is linearizable (Herlihy and Wing, "Linearizability",
//! TOPLAS 1990, section 3.3). The other checker is `todc-utils`: the search of Wing and Gong with Lowe's cache of
//! visited states. The other checker gets only the values that were read and written, and the times. Where our
//! checker follows version numbers, the other checker must search.
//!
//! Invariant checked: both checkers give the same verdict. The checkers judge 20 histories of the corrected engine.
//! For each planted bug the checkers judge histories, including accepted ones, until 20 histories are violated. Each
//! history comes from a seed of random schedules and is written to a file. No verdict decides which histories are
//! judged. Only the two verdicts use our checker: the test itself reads the file as plain JSON, and skips versions.
//!
//! The test takes a history if values tell its versions apart: it has whole rows, no deletes (two absences look
//! alike), and no undone transaction, whose values were not recorded. The history has at most `COORDINATORS`
//! coordinators and `COMMITTED` transactions, because the search is exponential in the number of coordinators.
//!
//! Only our checker judges seeds with faults or dropped callers. Our checker knows which of their transactions never
//! happened. The other checker takes the first value that is read of a record for the loaded value of the record.
//!
//! `tarn check` is stricter in one respect. If a version was read with two different values, this is a violation. Two
//! different values of a version are a violation even if the second value is the value of the next version. A checker
//! without version numbers would put the reader of that value after the next version's writer. (A read that ignores a
//! lock can return such a value, if half of a record was new.) If `tarn check` objects to a history only for that
//! reason, the test counts the history and does not compare the verdicts.

use crate::common::tarn;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tarn_check::{AnomalyKind, Isolation, Outcome, WriteKind, check};
use tarn_lab::schedules::drawn::Drawn;
use tarn_lab::schedules::run::{Ran, run_seed};
use tarn_lab::schedules::{Subject, mixture};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

const COORDINATORS: usize = 6;
const COMMITTED: std::ops::RangeInclusive<usize> = 12..=70;
/// The number of seeds that the test tries for each subject.
const SEEDS: u64 = 20_000;

/// The tested variants, and the number of histories of each that are judged: accepted histories of the corrected
/// engine, violated histories of a planted bug.
const SUBJECTS: [(&str, &str, usize); 6] = [
    ("corrected", "nothing", 20),
    ("corrected,-validate-reads", "skipped validation", 4),
    ("corrected,-refuse-locked", "read past a lock", 4),
    ("corrected,-release-granted", "foreign locks cleared", 4),
    ("corrected,-write-after-validation", "lost rollback", 4),
    ("corrected,unsafe-no-lock-cas", "locks only assumed", 4),
];

type Record = (u64, u64);
/// The hash of a value. `None`: the record is absent.
type Seen = Option<u64>;

/// One transaction, as an operation on the database.
#[derive(Clone, Debug)]
struct Operation {
    reads: Vec<(Record, Seen)>,
    writes: Vec<(Record, Seen)>,
    /// Whether the outcome of the transaction is unknown. If its reads are right, it takes effect. If a read is
    /// wrong, the transaction changes nothing.
    is_unknown: bool,
}

/// The database as a map from records to their contents. A record that was not read yet may have any content, since
/// loaded values are in no history. The first read of a record determines its content.
struct Database;

impl Specification for Database {
    type State = BTreeMap<Record, Seen>;
    type Operation = Operation;

    fn init() -> Self::State {
        BTreeMap::new()
    }

    fn apply(operation: &Operation, state: &Self::State) -> (bool, Self::State) {
        let mut after = state.clone();
        let is_right = operation
            .reads
            .iter()
            .all(|(record, seen)| *after.entry(*record).or_insert(*seen) == *seen);
        if !is_right {
            return (operation.is_unknown, state.clone());
        }
        after.extend(operation.writes.iter().copied());
        (true, after)
    }
}

/// Returns the transactions of a file, with the times of their invocation and their end. Aborted transactions are
/// `None`.
fn transactions(path: &Path) -> Vec<(Operation, u64, u64)> {
    let text = std::fs::read_to_string(path).expect("a history");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line.get("id").is_some()).filter_map(|line| transaction(&line)).collect()
}

fn transaction(line: &Value) -> Option<(Operation, u64, u64)> {
    let number = |value: &Value| value.as_u64().expect("a number");
    let is_unknown = match line["outcome"].as_str().expect("an outcome") {
        "aborted" => return None,
        "unknown" => true,
        _ => false,
    };
    let list = |name: &str, seen: &dyn Fn(&Value) -> Seen| {
        let all = line[name].as_array().expect("a list").iter();
        all.map(|each| ((number(&each[0]), number(&each[1])), seen(each))).collect()
    };
    // The file contains reads as [table, key, version, present, fingerprint] and writes as [table, key, version,
    // kind, fingerprint].
    let read = |each: &Value| each[3].as_bool().expect("a flag").then(|| number(&each[4]));
    let written = |each: &Value| (each[3] != "delete").then(|| number(&each[4]));
    let (reads, writes) = (list("reads", &read), list("writes", &written));
    // If the client did not learn the outcome, the transaction may take effect at any later time.
    let completed = line["completed_ns"].as_u64().filter(|_| !is_unknown).unwrap_or(u64::MAX);
    let invoked = number(&line["invoked_ns"]);
    Some((Operation { reads, writes, is_unknown }, invoked, completed))
}

/// Returns the verdict of the other checker.
fn is_linearizable(transactions: &[(Operation, u64, u64)]) -> bool {
    let mut events = Vec::new();
    for (process, (operation, invoked, completed)) in transactions.iter().enumerate() {
        // If two events have the same time, a call comes before an end, so the two transactions overlap.
        events.push((*invoked, 0, process, Action::Call(operation.clone())));
        events.push((*completed, 1, process, Action::Response(operation.clone())));
    }
    events.sort_by_key(|(at, order, process, _)| (*at, *order, *process));
    let actions = events.into_iter().map(|(_, _, process, action)| (process, action));
    WGLChecker::<Database>::is_linearizable(History::from_actions(actions.collect()))
}

/// Whether the values of a history tell its versions apart, and the history is small enough for the search.
fn is_suitable(ran: &Ran) -> bool {
    let txns = &ran.history.transactions;
    let taken = || txns.iter().filter(|txn| txn.outcome != Outcome::Aborted);
    let has_values = |present: bool, fingerprint: u64| !present || fingerprint != 0;
    let mut written = BTreeSet::new();
    COMMITTED.contains(&taken().count())
        && taken().flat_map(|txn| &txn.reads).all(|it| has_values(it.present, it.fingerprint))
        && taken().flat_map(|txn| &txn.writes).all(|it| {
            it.fingerprint != 0
                && it.kind != WriteKind::Delete
                && written.insert((it.record, it.fingerprint))
        })
}

/// Returns our checker's verdict on a history, as an observer without version numbers would give it. `None`: our
/// checker objects only to two values of one version.
fn our_verdict(ran: &Ran) -> Option<bool> {
    let report = check(&ran.history, Isolation::StrictSerializable);
    if report.is_accepted() {
        return Some(true);
    }
    let others = report.totals.keys().any(|kind| *kind != AnomalyKind::ValueMismatch);
    others.then_some(false)
}

/// Returns histories that can be judged, in the order of their seeds. No verdict decides which histories are
/// returned.
fn runs(subject: &Subject) -> impl Iterator<Item = Ran> {
    let is_small = |seed: &u64| {
        let drawn = Drawn::of(*seed, None);
        drawn.workload == mixture::NAME
            && drawn.mix.tells_by_value()
            && drawn.coordinators() <= COORDINATORS
            && !drawn.has_faults()
            && drawn.drop_one_in == 0
    };
    let run = |seed| run_seed(subject, seed).expect("a subject");
    (0..SEEDS).filter(is_small).map(run).filter(is_suitable)
}

/// Returns both verdicts on a run, through a file that its printed command writes. `tarn check` gives our verdict.
fn verdicts_by_command(subject: &Subject, seed: u64, file: &Path) -> (bool, bool) {
    let name = file.to_str().expect("text");
    let replay = format!("{} --history {name}", subject.replay(seed));
    let ended = tarn(&replay.split(' ').skip(1).collect::<Vec<_>>());
    assert!(ended.code.is_some_and(|code| code < 2), "{replay}: {}", ended.err);
    (tarn(&["check", name]).code == Some(0), is_linearizable(&transactions(file)))
}

#[test]
fn both_checkers_agree_on_correct_and_on_planted_histories() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.jsonl");
    let mut judged = [0, 0];
    println!("{:<34} {:>9} {:>9} {:>9}", "variant", "accepted", "violated", "stricter");
    for (variant, bug, count) in SUBJECTS {
        let (subject, is_planted) = (Subject::of("ford", variant), bug != "nothing");
        let (mut accepted, mut violated, mut stricter) = (0, 0, 0);
        for ran in runs(&subject) {
            ran.history.write_to(&file).expect("written");
            let Some(ours) = our_verdict(&ran) else {
                stricter += 1;
                continue;
            };
            let theirs = is_linearizable(&transactions(&file));
            assert_eq!(ours, theirs, "{} ({bug})", subject.replay(ran.seed));
            assert!(ours || is_planted, "{}", subject.replay(ran.seed));
            *(if ours { &mut accepted } else { &mut violated }) += 1;
            if ours != is_planted {
                assert_eq!(verdicts_by_command(&subject, ran.seed, &file), (ours, ours));
                judged[usize::from(is_planted)] += 1;
            }
            if (if is_planted { violated } else { accepted }) == count {
                break;
            }
        }
        println!("{variant:<34} {accepted:>9} {violated:>9} {stricter:>9}");
        assert_eq!(
            if is_planted { violated } else { accepted },
            count,
            "{variant}: of {SEEDS} seeds"
        );
    }
    assert_eq!(judged, [20, 20]);
}

#[test]
fn the_translation_knows_real_time_absence_and_the_unknown() {
    let operation = |reads: &[(u64, Seen)], writes: &[(u64, Seen)]| Operation {
        reads: reads.iter().map(|(key, seen)| ((0, *key), *seen)).collect(),
        writes: writes.iter().map(|(key, seen)| ((0, *key), *seen)).collect(),
        is_unknown: false,
    };
    let insert = operation(&[(1, None)], &[(1, Some(5))]);
    let reads_absent = operation(&[(1, None)], &[]);
    let reads_present = operation(&[(1, Some(5))], &[]);
    let over = |first: &Operation, second: &Operation| {
        is_linearizable(&[(first.clone(), 0, 10), (second.clone(), 20, 30)])
    };
    assert!(over(&insert, &reads_present) && over(&reads_absent, &insert));
    assert!(!over(&insert, &reads_absent));
    // A transaction of unknown outcome may have happened or not happened.
    let unknown = Operation { is_unknown: true, ..insert.clone() };
    for read in [&reads_absent, &reads_present] {
        assert!(is_linearizable(&[(unknown.clone(), 0, u64::MAX), (read.clone(), 20, 30)]));
    }
    let backwards = [(reads_present, 20, 30), (reads_absent, 40, 50)];
    assert!(!is_linearizable(&[&[(unknown, 0, u64::MAX)], &backwards[..]].concat()));
    // These two transactions form write skew: each of them read the record that the other wrote.
    let skew = [
        (operation(&[(1, Some(1)), (2, Some(1))], &[(1, Some(2))]), 0, 9),
        (operation(&[(1, Some(1)), (2, Some(1))], &[(2, Some(2))]), 0, 9),
    ];
    assert!(!is_linearizable(&skew));
}
