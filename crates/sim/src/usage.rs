//! The resources that a run used: how long NICs, links and processors were busy.
//!
//! Invariant: each reading is at least as large as the reading before. The difference of two readings
//! is the use of the hardware between the two readings. A reservation for a time after a reading is
//! counted in a later reading. So no part is busy for longer than the time between two readings.
//! Readings are exact at the times at which a run was told to stop
//! ([`crate::scheduler::Scheduler::run_until`]).

use crate::nic::Nic;
use crate::service::NodeKind;
use crate::world::World;
use tarn_fabric::clock::Nanos;

/// A part of the hardware that can limit the throughput of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A compute node's thread.
    Processor,
    /// A core of a timestamp node.
    TimestampCore,
    /// A core of a control node.
    ControlCore,
    /// The busiest doorbell register of a compute node.
    Doorbell,
    /// The transmit side of a compute node's NIC.
    Transmit,
    /// The receive side of a compute node's NIC.
    Receive,
    /// The pipeline of a memory node's NIC.
    Pipeline,
    /// The atomics of a memory node's NIC. If atomics run in parallel, they can be busy for longer than
    /// the time that passed.
    Atomics,
    /// The pipeline of a switch.
    Switch,
    /// The link on which a node sends.
    LinkOut,
    /// The link on which a node receives.
    LinkIn,
}

impl Part {
    /// All parts, in the order of a verb's path.
    pub const ALL: [Part; 11] = [
        Part::Processor,
        Part::TimestampCore,
        Part::ControlCore,
        Part::Doorbell,
        Part::Transmit,
        Part::Receive,
        Part::Pipeline,
        Part::Atomics,
        Part::Switch,
        Part::LinkOut,
        Part::LinkIn,
    ];

    /// Returns the name under which reports print the part.
    pub fn name(self) -> &'static str {
        match self {
            Part::Processor => "cpu",
            Part::TimestampCore => "timestamp cpu",
            Part::ControlCore => "control cpu",
            Part::Doorbell => "doorbell",
            Part::Transmit => "nic transmit",
            Part::Receive => "nic receive",
            Part::Pipeline => "nic pipeline",
            Part::Atomics => "nic atomics",
            Part::Switch => "switch pipeline",
            Part::LinkOut => "link out",
            Part::LinkIn => "link in",
        }
    }
}

/// How long one part of the hardware was busy.
#[derive(Clone, PartialEq, Debug)]
pub struct PartUse {
    /// The kind of the part.
    pub part: Part,
    /// The owner of the part, for example `memory node 2`, `compute node 0` or `node 0.1 thread 3`.
    pub of: String,
    /// The busy time, in picoseconds.
    pub busy_ps: u64,
}

/// The resources that were used up to one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Usage {
    /// The virtual time of the reading.
    pub at: Nanos,
    /// The number of verbs executed.
    pub verbs: u64,
    /// The number of completions delivered. Each batch has one completion.
    pub completions: u64,
    /// The number of messages sent.
    pub messages: u64,
    /// The number of messages that were lost because of `Chaos`.
    pub messages_lost: u64,
    /// The number of turns of coroutines.
    pub turns: u64,
    /// The busy time of every part.
    pub parts: Vec<PartUse>,
}

impl Usage {
    pub(crate) fn of(world: &World) -> Usage {
        let mut parts = Vec::new();
        for (index, node) in world.memory_nodes.iter().enumerate() {
            let of = format!("memory node {index}");
            push(&mut parts, &of, &node.nic, &[Part::Pipeline, Part::Atomics]);
        }
        let mut switches = world.switches.iter();
        for (index, node) in world.compute_nodes.iter().enumerate() {
            let of = format!("{} {index}", node.kind.name());
            if node.kind == NodeKind::Switch {
                // Switches join in the order of their nodes.
                let busy_ps = switches.next().map_or(0, |switch| switch.pipeline.busy_ps());
                parts.push(PartUse { part: Part::Switch, of, busy_ps });
                continue;
            }
            push(&mut parts, &of, &node.nic, &[Part::Transmit, Part::Receive]);
            let busy_ps = node.registers.busy_ps();
            parts.push(PartUse { part: Part::Doorbell, of, busy_ps });
        }
        for thread in &world.threads {
            let part = match world.compute_nodes[usize::from(thread.node.slot.0)].kind {
                NodeKind::Compute => Part::Processor,
                NodeKind::Timestamp => Part::TimestampCore,
                NodeKind::Control | NodeKind::Switch => Part::ControlCore,
            };
            let of = format!("{} thread {}", thread.node, thread.number);
            parts.push(PartUse { part, of, busy_ps: thread.busy_before(world.now_ps) });
        }
        let tallies = world.tallies;
        Usage {
            at: Nanos(world.now_ps / 1_000),
            verbs: tallies.verbs,
            completions: tallies.completions,
            messages: tallies.messages,
            messages_lost: tallies.messages_lost,
            turns: tallies.turns,
            parts,
        }
    }

    /// Returns the number of events. An event is a verb executed, a completion delivered or a message
    /// sent.
    pub fn events(&self) -> u64 {
        self.verbs + self.completions + self.messages
    }

    /// Returns the use since an earlier reading of the same cluster.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        let mut used = self.clone();
        used.at = self.at - earlier.at;
        used.verbs -= earlier.verbs;
        used.completions -= earlier.completions;
        used.messages -= earlier.messages;
        used.messages_lost -= earlier.messages_lost;
        used.turns -= earlier.turns;
        // A part keeps its position in the list. The parts of threads that joined later are at the end
        // of the list.
        for (part, before) in used.parts.iter_mut().zip(&earlier.parts) {
            assert!(
                part.part == before.part && part.of == before.of,
                "the two readings are of \
                different clusters"
            );
            part.busy_ps -= before.busy_ps;
        }
        used
    }

    /// Returns the busiest part of a kind. The result has the share of the time for which this part was
    /// busy, and the owner of the part.
    pub fn busiest(&self, part: Part) -> Option<(f64, &str)> {
        let of_kind = self.parts.iter().filter(|used| used.part == part);
        let busiest = of_kind.max_by_key(|used| used.busy_ps)?;
        Some((self.share(busiest), &busiest.of))
    }

    /// Returns the part that was busy for the largest share of the time. If its share is near 1, this
    /// part limits the throughput of the cluster.
    pub fn bottleneck(&self) -> Option<(f64, &PartUse)> {
        let one_at_a_time = self.parts.iter().filter(|used| used.part != Part::Atomics);
        let busiest = one_at_a_time.max_by_key(|used| used.busy_ps)?;
        Some((self.share(busiest), busiest))
    }

    fn share(&self, used: &PartUse) -> f64 {
        used.busy_ps as f64 / (self.at.0.max(1) as f64 * 1e3)
    }
}

fn push(parts: &mut Vec<PartUse>, of: &str, nic: &Nic, own: &[Part]) {
    for part in own.iter().chain(&[Part::LinkOut, Part::LinkIn]) {
        let busy_ps = match part {
            Part::Processor
            | Part::TimestampCore
            | Part::ControlCore
            | Part::Doorbell
            | Part::Switch => continue,
            Part::Transmit => nic.transmit.busy_ps(),
            Part::Receive => nic.receive.busy_ps(),
            Part::Pipeline => nic.pipeline.busy_ps(),
            Part::Atomics => nic.atomics_busy_ps(),
            Part::LinkOut => nic.link_out.busy_ps(),
            Part::LinkIn => nic.link_in.busy_ps(),
        };
        parts.push(PartUse { part: *part, of: of.to_owned(), busy_ps });
    }
}
