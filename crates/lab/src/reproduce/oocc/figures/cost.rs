//! Table I: what a read-only transaction costs, in rounds and verbs, with nobody beside it.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::COST;
use super::{Case, Done, Jobs, Section, median, of_one, quotient};
use crate::reproduce::curve::Point;

pub(super) const SECTION: Section = Section {
    name: "table-1",
    title: "Table I: rounds and verbs of a read-only transaction",
    targets: COST,
    jobs,
    fill,
};

/// One transaction at a time on each compute node.
const ALONE: [usize; 1] = [2];
/// Keys of a transaction: with one alone nobody needs a second look.
const KEYS: usize = 4;

/// Two-phase locking as the paper counts it: a lock is released by an atomic of its own.
const LOCKING: Who = Who::Dslr;

fn case(extent: &Extent, who: (Who, Form), coordinators: &[usize]) -> Case {
    let bench = super::Bench { operations: Some(KEYS), ..extent.ycsb(0.0, 0) };
    Case::of(bench, who, coordinators)
}

fn jobs(extent: &Extent) -> Jobs {
    let all = [Who::Oocc, Who::Occ, LOCKING];
    let each = |form: &Form| all.map(|who| case(extent, (who, *form), &ALONE));
    Jobs { cases: Form::ALL.iter().flat_map(each).collect(), ..Jobs::default() }
}

fn reads(point: &Point) -> f64 {
    point.verbs_of("read") / KEYS as f64
}

fn atomics(point: &Point) -> f64 {
    super::atomics_of(point) / KEYS as f64
}

fn rounds(point: &Point) -> f64 {
    point.rounds
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let of = |who, form, of: fn(&Point) -> f64| {
        of_one(done.runs, &case(done.extent, (who, form), &[]), &of)
    };
    sheet.fill("read-only", "OCC's round trips", &|form| of(Who::Occ, form, rounds));
    sheet.fill("read-only", "OCC's READs", &|form| of(Who::Occ, form, reads));
    sheet.fill("read-only", "2PL's round trips over OOCC's", &|form| {
        quotient(of(LOCKING, form, median), of(Who::Oocc, form, median))
    });
    sheet.fill("read-only", "2PL's atomics", &|form| of(LOCKING, form, atomics));
    sheet.fill("read-only", "2PL's READs", &|form| of(LOCKING, form, reads));
    sheet.fill("read-only", "OOCC's round trips", &|form| of(Who::Oocc, form, rounds));
    sheet.fill("read-only", "OOCC's READs", &|form| of(Who::Oocc, form, reads));
    sheet.note(format!(
        "transactions of {KEYS} keys, one at a time on each compute node: a record that is read in a round of its own needs no \
         second look, whoever reads it. Rounds are those that are posted; of 2PL, whose release nobody waits for, the median \
         over OOCC's. 2PL is DSLR"
    ));
}
