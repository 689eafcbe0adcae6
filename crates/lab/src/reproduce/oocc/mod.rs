//! OOCC's whole evaluation on one page: every published figure beside what the model says.
//!
//! Hao Wu, Mingxing Zhang, Kang Chen, Xia Liao, Yingdi Shan, Yongwei Wu, "OOCC: One-round Optimistic Concurrency
//! Control for Read-Only Disaggregated Transactions".
//!
//! Map: [`targets`] are the published figures; [`entrant`] is who runs, [`extent`] how much; a file of `figures` is one
//! section; [`supposition`] is a what-if. The rest is every paper's ([`paper`]).
//!
//! Invariant: as [`paper`]'s. Whoever is not registered yet has rows without figures, and no other runs in its
//! place.

pub mod entrant;
pub mod extent;
mod figures;
pub mod supposition;
pub mod targets;

use super::paper::sheet::Columns;
use super::paper::target::Party;
use super::paper::{self, Paper};
use super::stage::{System, Testbed};
use entrant::{Form, Who};
use extent::Extent;
use supposition::Supposition;
use tarn_sim::profile::Profile;
use tarn_store::ids::THREADS_MAX;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Oocc;

/// What is asked for.
pub type Order = paper::Order<Oocc>;
/// What a section fills.
pub type Sheet = paper::sheet::Sheet<Form>;

impl Columns for Form {
    const NAMES: &'static [&'static str] = &["literal", "corrected"];
    const JUDGES_ALL: bool = true;

    fn of(_: Party) -> Vec<Option<Form>> {
        Form::ALL.map(Some).into()
    }

    fn decides(_: Party) -> usize {
        1
    }
}

impl Paper for Oocc {
    type Extent = Extent;
    type Form = Form;
    type Supposition = Supposition;
    const NAME: &'static str = "oocc";
    const TITLE: &'static str = "OOCC, OCC, DrTM and DSLR: OOCC's evaluation again";
    const SOURCE: &'static str = "Wu, Zhang, Chen, Liao, Shan, Wu: OOCC: One-round Optimistic Concurrency Control for \
                                  Read-Only Disaggregated Transactions";
    const PROFILE: &'static str = "cx6-200g";
    const LEGEND: &'static str = "2 compute nodes of up to 64 threads, 2 memory nodes, one copy of every record. Literal: \
                                  everybody as papers and public code have it, whatever histories that makes; \
                                  corrected: as this engine corrects it, which decides. Throughputs are those of the best number of coordinators \
                                  that was run, latencies those there. The ratio is the simulated value over the published one, \
                                  percentages as the factors that they stand for; a row agrees within 25 %, the headline \
                                  (read-only throughput over OCC's) within 15 %, if the published winner wins.";
    const ASSUMED: &'static [&'static str] = entrant::ASSUMED;
    const SECTIONS: &'static [paper::section::Section<Oocc>] = figures::ALL;

    fn entrants() -> Vec<System> {
        Form::ALL.iter().flat_map(|form| Who::ALL.map(|who| who.system(*form))).collect()
    }

    /// Four machines of 96 cores, of which a node's threads here can use as many as their tags can tell apart; four coroutines a thread, as it
    /// says of TPC-C.
    fn testbed(profile: Profile) -> Testbed {
        Testbed {
            profile,
            compute_nodes: 2,
            memory_nodes: 2,
            replicas: 1,
            threads_max: THREADS_MAX,
            coroutines_min: 4,
        }
    }

    fn must_be_sound(system: &System) -> bool {
        system.variant.starts_with("corrected")
    }
}

#[cfg(test)]
mod tests;
