//! Random schedules: the engine under every order that the contract allows, by seed.
//!
//! Map: [`drawn`] is what a seed means: cluster, workload, trouble and fault. [`mixture`] is a workload
//! of everything that a transaction can ask for. [`cluster`] builds what was drawn, [`run`] runs one
//! seed: `play` is its course, `work` what a coordinator does, `faults` what dies and who looks after it, `life` the coroutines that
//! die with their node, `slots` what becomes of its slot, `probe` whether transactions still work at the
//! end, [`messages`] calls beside the transactions. [`judge`] decides. [`many`] runs seeds side by side,
//! [`report`] says what came of them, [`coverage`] what they reached.
//!
//! Invariant: what a seed does is a function of the seed and the [`Subject`] alone, event for event: the
//! digest of its trace is the same whoever runs it, beside whatever else. A sum over seeds does not
//! depend on how many were run at a time.

pub mod cluster;
pub mod coverage;
pub mod drawn;
mod faults;
pub mod judge;
mod layout;
mod life;
pub mod many;
pub mod messages;
pub mod mixture;
pub mod ordered;
pub(crate) mod panics;
mod play;
mod probe;
pub mod report;
pub mod run;
mod slots;
mod work;

use drawn::Drawn;
use tarn_engine::protocol::{ALL, ProtocolInfo};

/// What is tested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    /// The protocol's name.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// The only workload, instead of the one that each seed draws.
    pub workload: Option<String>,
    /// A planted bug of the fabric: lines are torn.
    pub torn_lines: bool,
}

impl Subject {
    /// This protocol in this variant.
    pub fn of(protocol: &str, variant: &str) -> Subject {
        let (protocol, variant) = (protocol.to_owned(), variant.to_owned());
        Subject { protocol, variant, workload: None, torn_lines: false }
    }

    /// The command that runs one seed again.
    pub fn replay(&self, seed: u64) -> String {
        let mut command = format!("tarn sim random --seed {seed}");
        if self.protocol != "ford" {
            command += &format!(" --protocol {}", self.protocol);
        }
        if self.variant != "corrected" {
            command += &format!(" --variant {}", self.variant);
        }
        if let Some(workload) = &self.workload {
            command += &format!(" --workload {workload}");
        }
        if self.torn_lines {
            command += " --plant torn-lines";
        }
        command
    }

    /// What a seed means for it: nothing that its protocol does not promise to survive is asked of it.
    pub fn drawn(&self, seed: u64) -> Drawn {
        let drawn = Drawn::of(seed, self.workload.as_deref());
        self.info().map_or(drawn.clone(), |info| drawn.within(info.caps))
    }

    /// What there is to know about the protocol.
    pub fn info(&self) -> Option<&'static ProtocolInfo> {
        ALL.iter().find(|info| info.name == self.protocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_names_what_differs_from_the_default() {
        assert_eq!(Subject::of("ford", "corrected").replay(7), "tarn sim random --seed 7");
        let subject = Subject {
            workload: Some("tatp".into()),
            torn_lines: true,
            ..Subject::of("ford", "literal,-refuse-locked")
        };
        assert_eq!(
            subject.replay(8),
            "tarn sim random --seed 8 --variant literal,-refuse-locked --workload tatp --plant torn-lines"
        );
    }
}
