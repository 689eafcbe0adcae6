//! The exhaustive search: the protocol that ships passes, and each fault that is planted is found.

use tarn_locks::model::plan::{Case, Verdict, quick};
use tarn_locks::model::{Limits, search};

fn run(case: &Case) -> Verdict {
    let outcome =
        search(&case.bounds, Limits { threads: 2, is_over: &|states| states > 20_000_000 });
    if let Some(found) = outcome.found.as_ref().filter(|_| !case.finds) {
        println!("{}: {}", case.name, found.violation);
        found.path.iter().for_each(|action| println!("  {action:?}"));
    }
    case.verdict(&outcome)
}

/// Each search of a few seconds has the outcome that it has to have.
#[test]
fn small_clusters_pass_and_planted_faults_are_found() {
    for case in quick() {
        assert_eq!(run(&case), Verdict::Passed, "{}", case.name);
    }
}

/// A search that is cut off says so.
#[test]
fn a_search_that_is_cut_off_is_unfinished() {
    let case = quick().remove(0);
    let outcome = search(&case.bounds, Limits { threads: 1, is_over: &|_| true });
    assert_eq!(case.verdict(&outcome), Verdict::Unfinished);
}
