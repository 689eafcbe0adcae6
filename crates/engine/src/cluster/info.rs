//! The constants that a protocol declares about itself: its promises, its switches and variants, its phases.
//!
//! Invariant: everything here is constant. Judges, coverage and tests read these constants, so that only the protocol
//! itself knows its name and its numbers.

use tarn_store::history::{Undone, WriteKind};
use tarn_store::ids::{AbortReason, UsageError};

/// The services that a protocol needs of compute nodes, beside threads that run coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// Locks in the memory of compute nodes.
    pub locks: bool,
    /// Timestamps, in one order for all nodes.
    pub timestamps: bool,
    /// Implicit leases: a reader holds one and a writer waits it out, without a message ([`crate::cluster::lease`]).
    pub read_leases: bool,
    /// Explicit leases: each node counts its readers ([`crate::services::readers`]).
    pub readers: bool,
}

impl Needs {
    /// No service.
    pub const NONE: Needs =
        Needs { locks: false, timestamps: false, read_leases: false, readers: false };
    /// Timestamps.
    pub const TIMESTAMPS: Needs = Needs { timestamps: true, ..Needs::NONE };
    /// Locks and timestamps.
    pub const LOCKS_AND_TIMESTAMPS: Needs = Needs { locks: true, ..Needs::TIMESTAMPS };
    /// Implicit leases.
    pub const READ_LEASES: Needs = Needs { read_leases: true, ..Needs::NONE };
    /// Leases, and readers that are counted.
    pub const EXPLICIT_LEASES: Needs = Needs { readers: true, ..Needs::READ_LEASES };
}

/// The promises of a protocol beyond its [`Isolation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCaps {
    /// It offers snapshot isolation as well.
    pub snapshot_isolation: bool,
    /// Range reads are free of phantoms.
    pub ranges: bool,
    /// Its hash indexes grow; otherwise chains of blocks grow.
    pub growth: bool,
    /// It survives crashes of compute nodes.
    pub crash_recovery: bool,
    /// It survives deaths of memory nodes: a backup is promoted, and new copies are made while transactions run.
    pub memory_recovery: bool,
    /// If a caller drops a transaction half-way, no lock of it is left.
    pub survives_drops: bool,
}

impl ProtocolCaps {
    /// All promises.
    pub const ALL: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: true,
        ranges: true,
        growth: true,
        crash_recovery: true,
        memory_recovery: true,
        survives_drops: true,
    };
    /// No promise.
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
    /// The name on the command line.
    pub name: &'static str,
    /// The effect while the switch is on.
    pub effect: &'static str,
    /// Whether the paper's text has it. `--variant literal` keeps exactly the switches that it has.
    pub in_literal: bool,
    /// Whether the public code, which later papers measured, has it. `--variant measured` keeps exactly the switches
    /// that it has.
    pub in_measured: bool,
    /// Without this switch transactions are not isolated at all. It is taken away only to ask how fast they would then
    /// be, by `unsafe-no-NAME` and in simulations alone.
    pub simulated_only: bool,
}

/// The isolation that transactions can rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Some serial order explains all reads, and it respects real time.
    StrictSerializable,
    /// Each transaction reads the state that was committed at one moment, its snapshot, which lies between its
    /// beginning and its end. If two transactions write one record, one takes its snapshot after the other's commit. So
    /// write skew and its consequences may happen, but nothing else.
    SnapshotIsolation,
}

/// The conditions under which a phase can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// In this variant, and not in the corrected one.
    InVariant(&'static str),
    /// While no memory node dies.
    WithoutMemoryDeath,
    /// In passing: the phase awaits nothing, so no death finds a transaction in it.
    InPassing,
    /// On tables with ordered indexes.
    WithOrderedIndexes,
    /// Where memory is reached by loads and stores. Simulated memory is not.
    WhereMemoryIsNear,
}

/// A phase that can be reached only under a condition. A check that every phase is reached excuses it where the
/// condition does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// One of the protocol's phases.
    pub phase: &'static str,
    /// The condition under which it can be reached.
    pub only: Only,
    /// The reason.
    pub why: &'static str,
}

impl Limit {
    /// The phase of scans.
    pub const SCAN: Limit = Limit {
        phase: "scan",
        only: Only::WithOrderedIndexes,
        why: "the phase reads an ordered \
            index",
    };
    /// The phase that changes leaves.
    pub const LOCK_LEAF: Limit = Limit {
        phase: "lock_leaf",
        only: Only::WithOrderedIndexes,
        why: "only ordered indexes have leaves",
    };
    /// The commit in one batch.
    pub const UNLOCK_WITH_DATA: Limit = Limit {
        phase: "unlock_with_data",
        only: Only::WithoutMemoryDeath,
        why: "locks are released with the data only where records have one copy, and there no \
              memory node dies",
    };
}

/// Reasons to abort, for protocols whose records have one version and keep their locks beside the records.
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

/// The phases of a protocol whose records have one version in place.
pub const IN_PLACE_PHASES: [&str; 15] = [
    "locate",
    "read_direct",
    "lock",
    "lock_direct",
    "lock_directory",
    "read_body",
    "validate",
    "log",
    "write",
    "unlock",
    "release",
    "resolve",
    "restructure",
    "scan",
    "lock_leaf",
];

/// Adds a protocol's own phases to [`IN_PLACE_PHASES`].
///
/// # Panics
/// If the result has not room for exactly all of them.
pub const fn in_place_phases_and<const N: usize>(own: &[&'static str]) -> [&'static str; N] {
    assert!(N == IN_PLACE_PHASES.len() + own.len());
    let (mut all, mut at) = ([""; N], 0);
    while at < N {
        all[at] = match at < IN_PLACE_PHASES.len() {
            true => IN_PLACE_PHASES[at],
            false => own[at - IN_PLACE_PHASES.len()],
        };
        at += 1;
    }
    all
}

/// The constants that describe a protocol.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolInfo {
    /// Its name on the command line.
    pub name: &'static str,
    /// The publication that it implements.
    pub citation: &'static str,
    /// Its promises.
    pub caps: ProtocolCaps,
    /// Its switches; all are on unless a variant says otherwise.
    pub switches: &'static [Switch],
    /// Its phases, in the order of [`crate::site::metrics::Tally::phases`].
    pub phases: &'static [&'static str],
    /// The phases that can be reached only under a condition.
    pub limits: &'static [Limit],
    /// The reasons for which it may abort a transaction. It never gives another one.
    pub aborts: &'static [AbortReason],
    /// The version of a record that has its old value again after a transaction that wrote it was undone. The arguments
    /// are the kind of the write and the counter of its version. `None` if undoing leaves no trace that a reader sees.
    pub undone: fn(WriteKind, u64) -> Option<u64>,
    /// The version of an ordered index's node after a transaction was undone. The transaction had found the node at the
    /// first version and written the second. `None` if undoing leaves no trace that a reader sees.
    pub undone_node: fn(u64, u64) -> Option<Undone>,
}

impl ProtocolInfo {
    /// Whether a phase is reached only on tables with ordered indexes.
    pub fn needs_ordered_indexes(&self, phase: &str) -> bool {
        let needs = |it: &Limit| it.phase == phase && it.only == Only::WithOrderedIndexes;
        self.limits.iter().any(needs)
    }
}

/// A variant: the switches that are on, and the isolation that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    bits: u64,
    isolation: Isolation,
}

impl Switches {
    /// Reads a variant: `corrected` (everything on), `literal` (the switches of the paper's text) or `measured` (those
    /// of the public code), then any number of `,-name` and `,+name`. `,unsafe-no-name` takes away a switch that may be
    /// missing in simulations alone. `,si` asks for snapshot isolation in place of strict serializability.
    ///
    /// # Errors
    /// Names the part that is unknown or that the protocol does not offer, and the allowed values.
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

    /// The isolation that transactions rely on.
    #[inline]
    pub fn isolation(self) -> Isolation {
        self.isolation
    }

    /// Whether the switch at this position is on.
    #[inline]
    pub fn is_on(self, index: usize) -> bool {
        self.bits & (1 << index) != 0
    }

    /// The name of a missing switch that may be missing in simulations alone, if there is one.
    pub fn unsafe_without(self, info: &ProtocolInfo) -> Option<&'static str> {
        let missing =
            |(index, switch): &(usize, &Switch)| switch.simulated_only && !self.is_on(*index);
        info.switches.iter().enumerate().find(missing).map(|(_, switch)| switch.name)
    }
}

/// The part of a variant that asks for snapshot isolation.
const SNAPSHOT: &str = "si";

/// Snapshot isolation, if the protocol offers it.
fn snapshot_of(info: &ProtocolInfo) -> Result<Isolation, UsageError> {
    if info.caps.snapshot_isolation {
        return Ok(Isolation::SnapshotIsolation);
    }
    Err(UsageError {
        field: "variant".into(),
        value: SNAPSHOT.into(),
        allowed: format!(
            "{} without si: the protocol offers strict serializability only",
            info.name
        ),
    })
}

/// The prefix that takes away a switch which only a simulation may run without.
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
            "corrected, literal or measured, then ,-NAME or ,+NAME of {} ({}){snapshot}; in \
             simulations only ,{UNSAFE_PREFIX}NAME ({})",
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
    fn si_is_a_part_of_a_variant_but_no_switch() {
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
