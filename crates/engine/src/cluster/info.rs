//! The constants that a protocol declares about itself: its guarantees, its switches and variants, its phases.
//!
//! Invariant: everything in this file is constant. Checkers, coverage and tests read these constants, so that only
//! the protocol itself defines its name and its numbers.

use tarn_store::history::{Undone, WriteKind};
use tarn_store::ids::{AbortReason, UsageError};

/// The services that a protocol needs from compute nodes, in addition to threads that run coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// Locks in the memory of compute nodes.
    pub locks: bool,
    /// Timestamps, in one order for all nodes.
    pub timestamps: bool,
    /// Implicit leases: a reader relies on one and a writer waits until it has ended, without a message
    /// ([`crate::cluster::lease`]).
    pub read_leases: bool,
    /// Explicit leases: each node counts its readers ([`crate::services::readers`]).
    pub readers: bool,
}

impl Needs {
    /// The protocol needs no service.
    pub const NONE: Needs =
        Needs { locks: false, timestamps: false, read_leases: false, readers: false };
    /// The protocol needs timestamps.
    pub const TIMESTAMPS: Needs = Needs { timestamps: true, ..Needs::NONE };
    /// The protocol needs locks and timestamps.
    pub const LOCKS_AND_TIMESTAMPS: Needs = Needs { locks: true, ..Needs::TIMESTAMPS };
    /// The protocol needs implicit leases.
    pub const READ_LEASES: Needs = Needs { read_leases: true, ..Needs::NONE };
    /// The protocol needs leases, and counts of readers.
    pub const EXPLICIT_LEASES: Needs = Needs { readers: true, ..Needs::READ_LEASES };
}

/// The guarantees of a protocol beyond its [`Isolation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCaps {
    /// The protocol offers snapshot isolation as well.
    pub snapshot_isolation: bool,
    /// Range reads are free of phantoms.
    pub ranges: bool,
    /// The protocol's hash indexes grow; without this guarantee, chains of blocks grow.
    pub growth: bool,
    /// The protocol survives crashes of compute nodes.
    pub crash_recovery: bool,
    /// The protocol survives deaths of memory nodes: a backup is promoted, and new copies are made while transactions
    /// run.
    pub memory_recovery: bool,
    /// If a caller drops a transaction before its end, the transaction leaves no lock.
    pub survives_drops: bool,
}

impl ProtocolCaps {
    /// The protocol gives all these guarantees.
    pub const ALL: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: true,
        ranges: true,
        growth: true,
        crash_recovery: true,
        memory_recovery: true,
        survives_drops: true,
    };
    /// The protocol gives none of these guarantees.
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
    /// Whether the paper's text follows this switch. `--variant literal` keeps exactly the switches that the paper's
    /// text follows.
    pub in_literal: bool,
    /// Whether the public code, which later papers measured, follows this switch. `--variant measured` keeps exactly
    /// the switches that the public code follows.
    pub in_measured: bool,
    /// Without this switch transactions are not isolated at all. Only simulations may drop it, by `unsafe-no-NAME`,
    /// to measure how fast transactions would be without the switch.
    pub simulated_only: bool,
}

/// The isolation that transactions can rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// A serial order that respects real time explains all reads.
    StrictSerializable,
    /// Each transaction reads the state that was committed at one moment, its snapshot. The moment of the snapshot
    /// lies between the transaction's beginning and its end. If two transactions write one record, one of them takes
    /// its snapshot after the other's commit. So write skew and its consequences may happen, but no other anomaly.
    SnapshotIsolation,
}

/// The conditions under which a phase can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// The phase exists in this variant, and not in the corrected one.
    InVariant(&'static str),
    /// The phase exists while no memory node dies.
    WithoutMemoryDeath,
    /// The phase awaits nothing, so no death can find a transaction in it.
    InPassing,
    /// The phase exists on tables with ordered indexes.
    WithOrderedIndexes,
    /// The phase exists where memory is reached by loads and stores, which is not so for simulated memory.
    WhereMemoryIsNear,
}

/// A phase that can be reached only under a condition. A check that tests reach every phase ignores this phase if the
/// condition does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// One of the protocol's phases.
    pub phase: &'static str,
    /// The condition under which the phase can be reached.
    pub only: Only,
    /// The reason for the condition.
    pub why: &'static str,
}

impl Limit {
    /// The phase that scans ordered indexes.
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
    /// The phase that commits and releases locks in one batch.
    pub const UNLOCK_WITH_DATA: Limit = Limit {
        phase: "unlock_with_data",
        only: Only::WithoutMemoryDeath,
        why: "locks are released with the data only where records have one copy, and there no \
              memory node dies",
    };
}

/// The reasons to abort, for protocols whose records have one version and keep their locks beside the records.
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
/// If the array's length `N` differs from the number of all phases.
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
    /// The protocol's name on the command line.
    pub name: &'static str,
    /// The publication that the protocol implements.
    pub citation: &'static str,
    /// The protocol's guarantees.
    pub caps: ProtocolCaps,
    /// The protocol's switches; all are on unless a variant says otherwise.
    pub switches: &'static [Switch],
    /// The protocol's phases, in the order of [`crate::site::metrics::Tally::phases`].
    pub phases: &'static [&'static str],
    /// The phases that can be reached only under a condition.
    pub limits: &'static [Limit],
    /// The reasons for which the protocol may abort a transaction. The protocol never aborts a transaction for
    /// another reason.
    pub aborts: &'static [AbortReason],
    /// The version that a record has after a transaction that wrote it was undone, when the record has its old value
    /// again. The arguments are the kind of the write and the counter of the record's version. `None` if undoing
    /// leaves no trace that a reader sees.
    pub undone: fn(WriteKind, u64) -> Option<u64>,
    /// The version of an ordered index's node after a transaction was undone. The transaction had found the node at
    /// the first argument's version and written the second argument's version. `None` if undoing leaves no trace that
    /// a reader sees.
    pub undone_node: fn(u64, u64) -> Option<Undone>,
}

impl ProtocolInfo {
    /// Whether a phase is reached only on tables with ordered indexes.
    pub fn needs_ordered_indexes(&self, phase: &str) -> bool {
        let needs = |it: &Limit| it.phase == phase && it.only == Only::WithOrderedIndexes;
        self.limits.iter().any(needs)
    }
}

/// A variant: the switches that are on, and the requested isolation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    bits: u64,
    isolation: Isolation,
}

impl Switches {
    /// Reads a variant. The text of a variant begins with `corrected` (all switches on), `literal` (the switches of
    /// the paper's text) or `measured` (the switches of the public code). Any number of `,-name` (drop a switch) and
    /// `,+name` (keep a switch) may follow. `,unsafe-no-NAME` turns off the switch NAME, which only simulations may
    /// turn off. `,si`
    /// requests snapshot isolation in place of strict serializability.
    ///
    /// # Errors
    /// The error names the part that is unknown or that the protocol does not offer, and the allowed values.
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

    /// The name of a dropped switch that only simulations may drop, if there is one.
    pub fn unsafe_without(self, info: &ProtocolInfo) -> Option<&'static str> {
        let missing =
            |(index, switch): &(usize, &Switch)| switch.simulated_only && !self.is_on(*index);
        info.switches.iter().enumerate().find(missing).map(|(_, switch)| switch.name)
    }
}

/// The part of a variant that requests snapshot isolation.
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

/// The prefix that removes a switch which only a simulation may drop.
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
