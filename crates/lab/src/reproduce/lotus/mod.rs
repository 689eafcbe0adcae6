//! LOTUS's whole evaluation on one page: every published figure beside what the model says.
//!
//! Zhisheng Hu, Pengfei Zuo, Junliang Hu, Yizou Chen, Yingjia Wang, Ming-Chang Yang, "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks".
//!
//! Map: [`targets`] are the published figures; [`entrant`] is who runs, [`extent`] how much; a file of `figures` is one
//! section; [`supposition`] is a what-if. The rest is every paper's ([`paper`]).
//!
//! Invariant: as [`paper`]'s.

pub mod entrant;
pub mod extent;
mod figures;
pub mod supposition;
pub mod targets;

use super::paper::{self, Paper};
use super::stage::{System, Testbed};
use entrant::Form;
use extent::Extent;
use supposition::Supposition;
use tarn_sim::profile::Profile;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Lotus;

/// What is asked for.
pub type Order = paper::Order<Lotus>;
/// What a section fills.
pub type Sheet = paper::sheet::Sheet<Form>;

impl Paper for Lotus {
    type Extent = Extent;
    type Form = Form;
    type Supposition = Supposition;
    const NAME: &'static str = "lotus";
    const TITLE: &'static str = "LOTUS, Motor and FORD: LOTUS's evaluation again";
    const SOURCE: &'static str = "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS: Optimizing Disaggregated Transactions with \
                                  Disaggregated Locks";
    const PROFILE: &'static str = "cx3-56g";
    const LEGEND: &'static str = "9 compute nodes of up to 10 threads, 3 memory nodes, 3 replicas. Literal: LOTUS as its \
                                  text says, the others as they were measured. Corrected: LOTUS corrected over the same \
                                  others; where only the others are in a row, these corrected. Best: everybody \
                                  corrected, records spread by hash. The ratio is the corrected value over the \
                                  published one (of rows without LOTUS the literal one), percentages as the factors \
                                  that they stand for; a row agrees within 25 %, SmallBank's headline within 15 %, if \
                                  the published winner wins.";
    const ASSUMED: &'static [&'static str] = entrant::ASSUMED;
    const SECTIONS: &'static [paper::section::Section<Lotus>] = figures::ALL;

    /// Machines as in section 8.1.
    fn testbed(profile: Profile) -> Testbed {
        Testbed {
            profile,
            compute_nodes: 9,
            memory_nodes: 3,
            replicas: 3,
            threads_max: 10,
            coroutines_min: 1,
        }
    }

    fn must_be_sound(system: &System) -> bool {
        entrant::must_be_sound(system)
    }
}

#[cfg(test)]
mod tests;
