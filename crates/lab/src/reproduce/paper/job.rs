//! Collects the jobs of the wanted sections. A job is a curve, a crash, a hotspot, or a run that adjusts read leases.
//!
//! Invariant: jobs keep the order of the data file, because cases with the same database run in this order on one
//! loaded database.

use super::adjusting::Adjusting;
use super::case::Case;
use super::data::{Cases, Paper, Section, combinations, filled};
use super::extent::Extent;
use super::occasion::{Crash, Heating};
use crate::reproduce::text::Text;
use tarn_engine::cluster::lease::LEASE_NS_MAX;

/// All jobs of an evaluation: curves, crashes, hotspots, and runs that adjust read leases.
#[derive(Default)]
pub(super) struct Jobs {
    pub cases: Vec<Case>,
    pub crashes: Vec<Crash>,
    pub hotspots: Vec<Heating>,
    pub adjustments: Vec<Adjusting>,
}

impl Jobs {
    /// Adds the jobs of one section.
    ///
    /// # Panics
    /// Panics if the program cannot read the text of a case: this is a mistake in a data file, which the tests find.
    pub(super) fn add(&mut self, paper: &Paper, extent: &Extent, section: &Section) {
        self.cases.extend(section.run.iter().flat_map(|cases| all(paper, extent, cases)));
        if let Some(crashes) = &section.crashes {
            let (threads, coroutines) = seats(extent);
            self.crashes.extend(crashes.cases.iter().map(|text| {
                let Case { bench, system, .. } = case(paper, extent, text);
                let (nodes, at_ms, after_ms) = (crashes.nodes, crashes.before_ms, crashes.after_ms);
                Crash { bench, system, threads, coroutines, nodes, at_ms, after_ms }
            }));
        }
        self.hotspots.extend(
            section.hotspots.iter().flat_map(|cases| all(paper, extent, cases)).map(
                |Case { bench, system, .. }| {
                    let (threads, coroutines) = seats(extent);
                    Heating { bench, system, threads, coroutines }
                },
            ),
        );
        let adjusted = section.adjusted.iter().flat_map(|cases| all(paper, extent, cases));
        self.adjustments.extend(adjusted.map(|mut case| {
            case.coordinators = case.coordinators.into_iter().max().into_iter().collect();
            Adjusting { case, bounds_ns: (1, LEASE_NS_MAX) }
        }));
    }
}

fn case(paper: &Paper, extent: &Extent, text: &str) -> Case {
    paper.case(extent, text).unwrap_or_else(|error| panic!("{}: {error}", paper.name))
}

/// Returns the number of threads of a compute node and the number of coordinators of each thread,
/// for crashes and hotspots.
fn seats(extent: &Extent) -> (usize, usize) {
    match extent.numbers("crash_threads")[..] {
        [threads, coroutines] => (threads, coroutines),
        _ => panic!("crash_threads: threads, and coordinators of each"),
    }
}

/// Returns all cases that an entry of the data file describes, with their numbers of coordinators.
fn all(paper: &Paper, extent: &Extent, cases: &Cases) -> Vec<Case> {
    let of = |values: Vec<(Text, Text)>| {
        let mut case = case(paper, extent, &filled(&cases.case, &values));
        case.coordinators = match cases.coordinators.is_empty() {
            true => paper.coordinators(extent, case.bench.kind, cases.at),
            false => cases.coordinators.clone(),
        };
        case
    };
    combinations(&cases.each, extent).into_iter().map(of).collect()
}
