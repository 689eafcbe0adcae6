//! What a protocol says of itself without running: its promises, its switches and variants, its phases.
//!
//! Invariant: constants. Judges, coverage and tests believe them, so that nobody but the protocol knows its
//! name or its numbers: what is here is read by one of them.

use tarn_store::history::{Undone, WriteKind};
use tarn_store::ids::{AbortReason, UsageError};

/// What a protocol needs of compute nodes beside threads that run coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// Locks in their memory.
    pub locks: bool,
    /// Timestamps, in one order for all nodes.
    pub timestamps: bool,
    /// Implicit leases: a reader holds one and a writer waits it out, without a message ([`crate::cluster::lease`]).
    pub read_leases: bool,
    /// Explicit ones: each node counts what is read ([`crate::services::readers`]).
    pub readers: bool,
}

impl Needs {
    /// Nothing.
    pub const NONE: Needs =
        Needs { locks: false, timestamps: false, read_leases: false, readers: false };
    /// Timestamps.
    pub const TIMESTAMPS: Needs = Needs { timestamps: true, ..Needs::NONE };
    /// Locks and timestamps.
    pub const LOCKS_AND_TIMESTAMPS: Needs = Needs { locks: true, ..Needs::TIMESTAMPS };
    /// Leases.
    pub const READ_LEASES: Needs = Needs { read_leases: true, ..Needs::NONE };
    /// Leases, and readers that are counted.
    pub const EXPLICIT_LEASES: Needs = Needs { readers: true, ..Needs::READ_LEASES };
}

/// What a protocol promises beyond its [`Isolation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCaps {
    /// Offers snapshot isolation as well.
    pub snapshot_isolation: bool,
    /// Range reads are free of phantoms.
    pub ranges: bool,
    /// Its hash indexes grow; else chains of blocks do.
    pub growth: bool,
    /// Survives crashes of compute nodes.
    pub crash_recovery: bool,
    /// Survives deaths of memory nodes: a backup is promoted, and copies are made again beside transactions.
    pub memory_recovery: bool,
    /// Nothing is left locked of a transaction whose caller drops it half-way.
    pub survives_drops: bool,
}

impl ProtocolCaps {
    /// Everything.
    pub const ALL: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: true,
        ranges: true,
        growth: true,
        crash_recovery: true,
        memory_recovery: true,
        survives_drops: true,
    };
    /// Nothing.
    pub const NONE: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: false,
        ranges: false,
        growth: false,
        crash_recovery: false,
        memory_recovery: false,
        survives_drops: false,
    };
}

/// One deviation from a paper's text, or one rule whose absence is a planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does while it is on.
    pub effect: &'static str,
    /// Whether the paper's text has it: `--variant literal` keeps exactly those.
    pub in_literal: bool,
    /// Whether the public code, which later papers measured, has it: `--variant measured` keeps
    /// exactly those.
    pub in_measured: bool,
    /// Without it transactions are not isolated at all, and what is asked is only how fast they would
    /// be: it can be taken away by `unsafe-no-NAME`, and in simulations alone.
    pub simulated_only: bool,
}

/// What transactions can rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Some serial order explains all reads, and it respects real time.
    StrictSerializable,
    /// Each transaction reads what was committed at one moment, its snapshot, which lies between its beginning
    /// and its end; of two that write one record, one has its snapshot after the other's commit. So write
    /// skew may happen, and what follows from it, but nothing else.
    SnapshotIsolation,
}

/// When a phase can be reached at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// In this variant, and not in the corrected one.
    InVariant(&'static str),
    /// While no memory node dies.
    WithoutMemoryDeath,
    /// In passing: nothing is awaited in it, so that no death finds a transaction there.
    InPassing,
    /// On tables with ordered indexes.
    WithOrderedIndexes,
    /// Where memory is reached by loads and stores, which simulated memory is not.
    WhereMemoryIsNear,
}

/// A phase that cannot be reached always: who asks that everything be reached does not ask for it elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// One of the protocol's phases.
    pub phase: &'static str,
    /// When it can.
    pub only: Only,
    /// Why.
    pub why: &'static str,
}

impl Limit {
    /// A phase of scans.
    pub const SCAN: Limit =
        Limit { phase: "scan", only: Only::WithOrderedIndexes, why: "it reads an ordered index" };
    /// A phase of changes of leaves.
    pub const LOCK_LEAF: Limit = Limit {
        phase: "lock_leaf",
        only: Only::WithOrderedIndexes,
        why: "leaves are of ordered indexes",
    };
    /// A commit in one batch.
    pub const UNLOCK_WITH_DATA: Limit = Limit {
        phase: "unlock_with_data",
        only: Only::WithoutMemoryDeath,
        why: "locks are released together with the data where there is one copy, and where there is one \
              copy no memory node dies",
    };
}

/// Why transactions abort whose records have one version, and locks beside them.
pub const IN_PLACE_ABORTS: &[AbortReason] = &[
    AbortReason::LockRefused,
    AbortReason::ReadLocked,
    AbortReason::VersionChanged,
    AbortReason::ValidationLocked,
    AbortReason::IndexChanged,
    AbortReason::StaleAddress,
    AbortReason::LeafFull,
    AbortReason::UniqueViolation,
    AbortReason::User,
];

/// What there is to know about a protocol without running it.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// Who published it.
    pub citation: &'static str,
    /// What it promises.
    pub caps: ProtocolCaps,
    /// Its switches; all are on unless a variant says otherwise.
    pub switches: &'static [Switch],
    /// Its phases, in the order of [`crate::site::metrics::Tally::phases`].
    pub phases: &'static [&'static str],
    /// Those that cannot be reached always.
    pub limits: &'static [Limit],
    /// Why it may abort a transaction: no other reason is ever given.
    pub aborts: &'static [AbortReason],
    /// The version under which a record has its old value once a transaction was undone that had written
    /// it, by its kind and its version's counter; `None` if undoing leaves no trace that a reader sees.
    pub undone: fn(WriteKind, u64) -> Option<u64>,
    /// The version of a node of an ordered index once a transaction was undone that had found it at the first of
    /// these and written the second; `None` likewise.
    pub undone_node: fn(u64, u64) -> Option<Undone>,
}

impl ProtocolInfo {
    /// Whether a phase is reached on tables with ordered indexes alone.
    pub fn needs_ordered_indexes(&self, phase: &str) -> bool {
        let needs = |it: &Limit| it.phase == phase && it.only == Only::WithOrderedIndexes;
        self.limits.iter().any(needs)
    }
}

/// A variant: which switches are on, and which isolation is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    bits: u64,
    isolation: Isolation,
}

impl Switches {
    /// Reads a variant: `corrected` (everything on), `literal` (what the paper's text has) or
    /// `measured` (what the public code has), then any number of `,-name` and `,+name`. What may be
    /// missing in simulations alone is taken away by `,unsafe-no-name`. `,si` asks for snapshot isolation
    /// in place of strict serializability.
    ///
    /// # Errors
    /// Names the part that is not known, or that the protocol does not offer, and what is allowed.
    pub fn parse(info: &ProtocolInfo, variant: &str) -> Result<Switches, UsageError> {
        let mut parts = variant.split(',').map(str::trim);
        let those = |keeps: fn(&Switch) -> bool| {
            let kept = info.switches.iter().enumerate().filter(|(_, switch)| keeps(switch));
            kept.fold(0u64, |bits, (index, _)| bits | (1 << index))
        };
        let mut bits = match parts.next() {
            Some("corrected") => those(|_| true),
            Some("literal") => those(|switch| switch.in_literal),
            Some("measured") => those(|switch| switch.in_measured),
            other => return Err(unknown_variant(info, other.unwrap_or(""))),
        };
        let mut isolation = Isolation::StrictSerializable;
        for part in parts {
            if part == SNAPSHOT {
                isolation = snapshot_of(info)?;
                continue;
            }
            let (on, name, unsafely) = if let Some(name) = part.strip_prefix('+') {
                (true, name, false)
            } else if let Some(name) = part.strip_prefix('-') {
                (false, name, false)
            } else if let Some(name) = part.strip_prefix(UNSAFE_PREFIX) {
                (false, name, true)
            } else {
                return Err(unknown_variant(info, part));
            };
            let index = info
                .switches
                .iter()
                .position(|switch| switch.name == name)
                .filter(|&index| on || info.switches[index].simulated_only == unsafely)
                .ok_or_else(|| unknown_variant(info, part))?;
            bits = if on { bits | (1 << index) } else { bits & !(1 << index) };
        }
        Ok(Switches { bits, isolation })
    }

    /// What transactions are to rely on.
    #[inline]
    pub fn isolation(self) -> Isolation {
        self.isolation
    }

    /// Whether the switch at this position is on.
    #[inline]
    pub fn is_on(self, index: usize) -> bool {
        self.bits & (1 << index) != 0
    }

    /// What is missing that may be missing in simulations alone.
    pub fn unsafe_without(self, info: &ProtocolInfo) -> Option<&'static str> {
        let missing =
            |(index, switch): &(usize, &Switch)| switch.simulated_only && !self.is_on(*index);
        info.switches.iter().enumerate().find(missing).map(|(_, switch)| switch.name)
    }
}

/// The part of a variant that asks for snapshot isolation.
const SNAPSHOT: &str = "si";

/// Snapshot isolation, of a protocol that offers it.
fn snapshot_of(info: &ProtocolInfo) -> Result<Isolation, UsageError> {
    if info.caps.snapshot_isolation {
        return Ok(Isolation::SnapshotIsolation);
    }
    Err(UsageError {
        field: "variant".into(),
        value: SNAPSHOT.into(),
        allowed: format!("{} without it: it is strictly serializable only", info.name),
    })
}

/// What takes a switch away that nobody but a simulation may miss.
pub(crate) const UNSAFE_PREFIX: &str = "unsafe-no-";

fn unknown_variant(info: &ProtocolInfo, part: &str) -> UsageError {
    let names = |simulated_only: bool| {
        let those = info.switches.iter().filter(|it| it.simulated_only == simulated_only);
        those.map(|switch| switch.name).collect::<Vec<&str>>().join(", ")
    };
    let snapshot = match info.caps.snapshot_isolation {
        true => format!(", or ,{SNAPSHOT} for snapshot isolation"),
        false => String::new(),
    };
    UsageError {
        field: "variant".into(),
        value: part.to_owned(),
        allowed: format!(
            "corrected, literal or measured, then ,-NAME or ,+NAME of {} ({}){snapshot}; in simulations \
             alone ,{UNSAFE_PREFIX}NAME ({})",
            info.name,
            names(false),
            names(true)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ALL;

    fn snapshots() -> ProtocolInfo {
        let caps = ProtocolCaps { snapshot_isolation: true, ..ALL[0].caps };
        ProtocolInfo { name: "snapshots", caps, ..ALL[0] }
    }

    #[test]
    fn si_is_part_of_a_variant_and_no_switch() {
        let info = snapshots();
        let strict = Switches::parse(&info, "corrected").expect("a variant");
        assert_eq!(strict.isolation(), Isolation::StrictSerializable);
        for variant in ["corrected,si", "corrected, si", "literal,-validate-reads,si"] {
            let switches = Switches::parse(&info, variant).expect(variant);
            assert_eq!(switches.isolation(), Isolation::SnapshotIsolation, "{variant}");
        }
        let si = Switches::parse(&info, "corrected,si").expect("a variant");
        assert_eq!(si.bits, strict.bits);
        let error = Switches::parse(&info, "corrected,ssi").expect_err("unknown");
        assert!(error.allowed.contains("or ,si for snapshot isolation"), "{error}");
    }

    #[test]
    fn si_is_refused_where_it_is_not_offered() {
        for info in ALL.iter().filter(|info| !info.caps.snapshot_isolation) {
            let error = Switches::parse(info, "corrected,si").expect_err("not offered");
            assert_eq!((error.field.as_str(), error.value.as_str()), ("variant", "si"));
            assert!(error.allowed.contains(info.name), "{error}");
            let unknown = Switches::parse(info, "corrected,ssi").expect_err("unknown");
            assert!(!unknown.allowed.contains(",si"), "{unknown}");
        }
    }
}
