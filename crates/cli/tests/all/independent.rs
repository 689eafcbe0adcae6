//! A second opinion on histories: `tarn check` beside a checker of linearizability by other
//! authors.
//!
//! A database as a whole is one object, and a transaction is one operation on it. The database's
//! history is strictly serializable if and only if that object's is linearizable (Herlihy and Wing,
//! "Linearizability", TOPLAS 1990, section 3.3). The other checker is `todc-utils`: the search of
//! Wing and Gong with Lowe's cache of visited states. It gets only the values that were read and
//! written, and the times. Where our checker follows version numbers, it has to search.
//!
//! Invariant checked: both checkers give the same verdict. They judge 20 histories of the corrected
//! engine, and histories of planted bugs, accepted ones included, until 20 are violated. Each
//! history is from a seed of random schedules and goes through a file. No verdict decides which
//! histories are judged. Nothing of our checker is used in between: the file is read here as plain
//! JSON, versions are skipped.
//!
//! A history is taken if values tell its versions apart: whole rows, no deletes (two absences look
//! alike), and no undone transaction, whose values were not recorded. It has at most `COORDINATORS`
//! coordinators and `COMMITTED` transactions, since the search is exponential in the former.
//!
//! Seeds with faults or dropped callers are left to our checker. It knows which of their
//! transactions never happened, while the other checker takes the first value that is read of a
//! record for the loaded one.
//!
//! `tarn check` is stricter in one thing. A version that was read with two values is a violation,
//! also if the second value is that of the next version. An outsider would put the reader of that
//! value behind the next version's writer. (A read past a lock can do that: half of a record was
//! new.) Histories to which `tarn check` objects only for that reason are counted and not compared.

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
/// Number of seeds that are looked at for each subject.
const SEEDS: u64 = 20_000;

/// The variants that are run, and how many histories of each are judged: accepted ones of the
/// corrected engine, violated ones of a planted bug.
const SUBJECTS: [(&str, &str, usize); 6] = [
    ("corrected", "nothing", 20),
    ("corrected,-validate-reads", "skipped validation", 4),
    ("corrected,-refuse-locked", "read past a lock", 4),
    ("corrected,-release-granted", "foreign locks cleared", 4),
    ("corrected,-write-after-validation", "lost rollback", 4),
    ("corrected,unsafe-no-lock-cas", "locks only assumed", 4),
];

type Record = (u64, u64);
/// A value's hash; `None`: the record is absent.
type Seen = Option<u64>;

/// One transaction.
#[derive(Clone, Debug)]
struct Operation {
    reads: Vec<(Record, Seen)>,
    writes: Vec<(Record, Seen)>,
    /// It is unknown whether it took effect. If its reads are right it does, otherwise it does
    /// nothing.
    is_unknown: bool,
}

/// The database: the content of each record. A record that was not read yet may hold anything,
/// since loaded values are in no history; its first read decides its content.
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

/// Returns the transactions of a file, with the times of their invocation and end; `None` for
/// aborted ones.
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
    // [table, key, version, present, fingerprint] and [table, key, version, kind, fingerprint].
    let read = |each: &Value| each[3].as_bool().expect("a flag").then(|| number(&each[4]));
    let written = |each: &Value| (each[3] != "delete").then(|| number(&each[4]));
    let (reads, writes) = (list("reads", &read), list("writes", &written));
    // A transaction whose client was never told may take effect at any later time.
    let completed = line["completed_ns"].as_u64().filter(|_| !is_unknown).unwrap_or(u64::MAX);
    let invoked = number(&line["invoked_ns"]);
    Some((Operation { reads, writes, is_unknown }, invoked, completed))
}

/// Returns the other checker's verdict.
fn is_linearizable(transactions: &[(Operation, u64, u64)]) -> bool {
    let mut events = Vec::new();
    for (process, (operation, invoked, completed)) in transactions.iter().enumerate() {
        // If two events have one time, a call is first: the two transactions overlap.
        events.push((*invoked, 0, process, Action::Call(operation.clone())));
        events.push((*completed, 1, process, Action::Response(operation.clone())));
    }
    events.sort_by_key(|(at, order, process, _)| (*at, *order, *process));
    let actions = events.into_iter().map(|(_, _, process, action)| (process, action));
    WGLChecker::<Database>::is_linearizable(History::from_actions(actions.collect()))
}

/// Whether its values tell versions apart, and it is small enough to be searched.
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

/// Returns our checker's verdict on it, as seen by an outsider without version numbers. `None`: our
/// checker objects only to two values of one version.
fn our_verdict(ran: &Ran) -> Option<bool> {
    let report = check(&ran.history, Isolation::StrictSerializable);
    if report.is_accepted() {
        return Some(true);
    }
    let others = report.totals.keys().any(|kind| *kind != AnomalyKind::ValueMismatch);
    others.then_some(false)
}

/// Returns histories that can be judged, in the order of their seeds; no verdict decides which.
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

/// Returns both verdicts on a run, through a file written by its printed command; ours by
/// `tarn check`.
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
    // A transaction of unknown outcome may have happened, or not.
    let unknown = Operation { is_unknown: true, ..insert.clone() };
    for read in [&reads_absent, &reads_present] {
        assert!(is_linearizable(&[(unknown.clone(), 0, u64::MAX), (read.clone(), 20, 30)]));
    }
    let backwards = [(reads_present, 20, 30), (reads_absent, 40, 50)];
    assert!(!is_linearizable(&[&[(unknown, 0, u64::MAX)], &backwards[..]].concat()));
    // Write skew: each read the record that the other wrote.
    let skew = [
        (operation(&[(1, Some(1)), (2, Some(1))], &[(1, Some(2))]), 0, 9),
        (operation(&[(1, Some(1)), (2, Some(1))], &[(2, Some(2))]), 0, 9),
    ];
    assert!(!is_linearizable(&skew));
}
