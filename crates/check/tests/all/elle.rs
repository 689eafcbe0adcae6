//! Compares the export for Elle with lines written by hand.

use crate::common::{X, Y, at, history};
use tarn_check::WriteKind::{Delete, Insert, Update};
use tarn_check::elle::{ElleModel, export};
use tarn_check::{History, NEVER_NS, Outcome, Transaction};

fn lines(transactions: Vec<Transaction>, model: ElleModel) -> Vec<String> {
    lines_of(&history(transactions), model)
}

fn lines_of(history: &History, model: ElleModel) -> Vec<String> {
    let mut out = Vec::new();
    export(history, model, &mut out).expect("memory takes anything");
    String::from_utf8(out).expect("text").lines().map(str::to_owned).collect()
}

fn run() -> Vec<Transaction> {
    vec![
        at(1, 0, 10).read(X, 1).write(X, 2, Update),
        at(2, 10, 20).read(X, 2).read_absent(Y, 0).write(Y, 3, Insert),
        at(3, 30, 40).write(X, 4, Delete),
        at(4, 50, 60).read_absent(X, 5),
    ]
}

#[test]
fn list_append() {
    assert_eq!(
        lines(run(), ElleModel::ListAppend),
        [
            r#"{:index 0, :type :invoke, :process 0, :f :txn, :time 0, :value [[:r "savings:1" nil] [:append "savings:1" 2]]}"#,
            r#"{:index 1, :type :invoke, :process 1, :f :txn, :time 10, :value [[:r "savings:1" nil] [:r "savings:2" nil] [:append "savings:2" 3]]}"#,
            r#"{:index 2, :type :ok, :process 0, :f :txn, :time 10, :value [[:r "savings:1" []] [:append "savings:1" 2]]}"#,
            r#"{:index 3, :type :ok, :process 1, :f :txn, :time 20, :value [[:r "savings:1" [2]] [:r "savings:2" []] [:append "savings:2" 3]]}"#,
            r#"{:index 4, :type :invoke, :process 0, :f :txn, :time 30, :value [[:append "savings:1" 4]]}"#,
            r#"{:index 5, :type :ok, :process 0, :f :txn, :time 40, :value [[:append "savings:1" 4]]}"#,
            r#"{:index 6, :type :invoke, :process 0, :f :txn, :time 50, :value [[:r "savings:1" nil]]}"#,
            r#"{:index 7, :type :ok, :process 0, :f :txn, :time 60, :value [[:r "savings:1" [2 4]]]}"#,
        ]
    );
}

#[test]
fn rw_register() {
    let lines = lines(run(), ElleModel::RwRegister);
    assert!(lines[2].ends_with(r#":value [[:r "savings:1" nil] [:w "savings:1" 2]]}"#));
    assert!(lines[7].ends_with(r#":value [[:r "savings:1" 4]]}"#));
}

#[test]
fn outcomes_and_processes() {
    let lines = lines(
        vec![
            at(1, 0, 10).write(X, 2, Update).with_outcome(Outcome::Aborted),
            at(2, 20, 30).write(X, 3, Update).with_outcome(Outcome::Unknown),
            at(3, 40, 50).read(X, 2),
            at(4, 60, NEVER_NS).write(Y, 2, Update),
        ],
        ElleModel::ListAppend,
    );
    let starts = [
        "{:index 0, :type :invoke, :process 0, :f :txn, :time 0,",
        "{:index 1, :type :fail, :process 0, :f :txn, :time 10,",
        "{:index 2, :type :invoke, :process 0, :f :txn, :time 20,",
        // Process 0 has no further event until its :info at the end.
        "{:index 3, :type :invoke, :process 1, :f :txn, :time 40,",
        "{:index 4, :type :ok, :process 1, :f :txn, :time 50,",
        "{:index 5, :type :invoke, :process 1, :f :txn, :time 60,",
        "{:index 6, :type :info, :process 0, :f :txn, :time 60,",
        "{:index 7, :type :ok, :process 1, :f :txn, :time 60,",
    ];
    assert_eq!(lines.len(), starts.len());
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    // The read by an aborted transaction shows the version that was read. The unobserved write of the
    // unknown transaction is in no list.
    assert!(lines[4].ends_with(r#":value [[:r "savings:1" [2]]]}"#), "{}", lines[4]);
}

#[test]
fn an_observed_unknown_write_is_in_the_lists() {
    let lines = lines(
        vec![
            at(1, 0, 10).write(X, 2, Update).with_outcome(Outcome::Unknown),
            at(2, 20, 30).read(X, 2).write(X, 3, Update),
            at(3, 40, 50).read(X, 3),
        ],
        ElleModel::ListAppend,
    );
    assert!(lines[4].ends_with(r#":value [[:r "savings:1" [2 3]]]}"#), "{}", lines[4]);
}

#[test]
fn names_and_numbers_are_valid_edn() {
    let mut history = history(vec![at(1, 0, 10).write(X, u64::MAX, Insert)]);
    history.tables[0] = "a\"b\\c".to_owned();
    let lines = lines_of(&history, ElleModel::RwRegister);
    assert!(
        lines[1].ends_with(r#":value [[:w "a\"b\\c:1" 18446744073709551615N]]}"#),
        "{}",
        lines[1]
    );
}
