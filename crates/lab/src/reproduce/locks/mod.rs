//! The evaluation of a lock service: the figures of a paper beside the simulated figures.
//!
//! Map:
//! - [`data`]: the paper as its data file describes it. [`case`]: one run, from a text of the file.
//! - [`recorded`]: traces in files, which are drawn once and replayed on any service.
//! - `value`: simulated values of rows. [`report`]: the whole result, for programs, readers, and as a page.
//!
//! Invariant: all figures use one hardware profile and the same traces for all services. Every row of the data
//! file has a row in the result. A row that misses tells the counters of the runs behind it. Except for `wall`,
//! the result depends only on the order.

pub mod case;
pub mod data;
pub mod recorded;
pub mod report;
mod value;

use crate::locks::cluster::check_datagrams;
use crate::machine;
use crate::reproduce::paper::sheet::Row;
use crate::reproduce::report::Wall;
use case::{Case, Ran};
use data::{LockPaper, Section};
use report::{LockEvaluation, Part};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;
use value::Done;

/// The settings of a requested evaluation.
#[derive(Clone, Debug)]
pub struct LockOrder {
    /// The paper.
    pub paper: &'static LockPaper,
    /// Whether the user wants only a quick test run.
    pub is_quick: bool,
    /// The seed of every random generator.
    pub seed: u64,
    /// The hardware profile.
    pub profile: Profile,
    /// The names of the sections to run; an empty list means all sections.
    pub only: Vec<String>,
}

impl LockOrder {
    /// Returns the lengths of runs.
    pub(crate) fn lengths(&self) -> data::Lengths {
        if self.is_quick { self.paper.quick } else { self.paper.full }
    }

    /// Returns the requested sections.
    fn sections(&self) -> Result<Vec<&'static Section>, UsageError> {
        let all = &self.paper.sections;
        let is_it = |name: &String, section: &Section| &*section.name == name.as_str();
        if let Some(name) = self.only.iter().find(|name| !all.iter().any(|it| is_it(name, it))) {
            let allowed: Vec<&str> = all.iter().map(|it| it.name.0).collect();
            let (value, allowed) = (name.clone(), allowed.join(", "));
            return Err(UsageError { field: "only".into(), value, allowed });
        }
        let wanted = all.iter().filter(|section| {
            self.only.is_empty() || self.only.iter().any(|name| is_it(name, section))
        });
        Ok(wanted.collect())
    }
}

/// Runs the evaluation and makes its report.
///
/// # Errors
/// A section that does not exist, or a network that carries no lock packet.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn evaluate(order: &LockOrder) -> Result<LockEvaluation, UsageError> {
    let start = Instant::now();
    let sections = order.sections()?;
    check_datagrams(&order.profile)?;
    let rows = sections.iter().flat_map(|section| &section.rows);
    let mut cases: Vec<Case> = rows.flat_map(|row| row.cases(&order.paper.columns)).collect();
    cases.sort_unstable();
    cases.dedup();
    let ran = run_all(&cases, order);
    let done = Done { order, ran: &ran };
    let parts = sections.iter().map(|section| {
        let row = |stated: &'static data::Stated| -> Row { done.row(stated) };
        Part {
            name: section.name.0,
            title: section.title.0,
            rows: section.rows.iter().map(row).collect(),
            notes: section.notes.iter().map(|note| note.0).collect(),
        }
    });
    let parts: Vec<Part> = parts.collect();
    let mut evaluation = LockEvaluation::of(order, parts, ran);
    evaluation.wall = Wall { machine: machine::describe(), seconds: start.elapsed().as_secs_f64() };
    Ok(evaluation)
}

/// Runs all cases, each on one thread; a case's result does not depend on the others.
fn run_all(cases: &[Case], order: &LockOrder) -> BTreeMap<Case, Result<Ran, String>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..machine::processors().min(cases.len().max(1)) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let ran = case.run(order);
                    found.lock().expect("no panic under this lock").insert(case.clone(), ran);
                }
            });
        }
    });
    found.into_inner().expect("no panic under this lock")
}

#[cfg(test)]
mod tests;
