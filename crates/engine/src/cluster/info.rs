//! The constants by which a protocol describes itself: its guarantees, its switches and variants, its phases.
//!
//! Invariant: everything in this file is constant. Checkers, coverage and tests read these constants. So only the
//! protocol itself defines its name and its numbers.

use tarn_locks::service::Kind;
use tarn_store::history::{Undone, WriteKind};
use tarn_store::ids::{AbortReason, UsageError};

/// The services that a protocol needs from compute nodes, in addition to threads that run coordinators.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needs {
    /// The protocol needs locks in the memory of compute nodes.
    pub locks: bool,
    /// The protocol needs timestamps, in one order for all nodes.
    pub timestamps: bool,
    /// The protocol needs implicit leases: a reader relies on its lease without a message, and a writer waits until
    /// the lease has ended ([`crate::cluster::lease`]).
    pub read_leases: bool,
    /// The protocol needs explicit leases: each node counts its readers ([`crate::services::readers`]).
    pub readers: bool,
    /// A lock service beside memory ([`crate::services::lock_stations`]).
    pub lock_service: Option<LockServiceNeed>,
}

/// A protocol's lock service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockServiceNeed {
    /// The service.
    pub kind: Kind,
    /// Planted bug: the locks of a dead incarnation are free as soon as it is declared dead, before its transactions
    /// are settled.
    pub frees_at_once: bool,
    /// Planted bug: a copier of memory takes no lock of the service, and compares LOCK words that are always 0.
    pub copies_unlocked: bool,
}

impl Needs {
    /// The services of a protocol that needs no service.
    pub const NONE: Needs = Needs {
        locks: false,
        timestamps: false,
        read_leases: false,
        readers: false,
        lock_service: None,
    };
    /// The services of a protocol that needs timestamps.
    pub const TIMESTAMPS: Needs = Needs { timestamps: true, ..Needs::NONE };
    /// The services of a protocol that needs locks and timestamps.
    pub const LOCKS_AND_TIMESTAMPS: Needs = Needs { locks: true, ..Needs::TIMESTAMPS };
    /// The services of a protocol that needs implicit leases.
    pub const READ_LEASES: Needs = Needs { read_leases: true, ..Needs::NONE };
    /// The services of a protocol that needs leases, and counts of readers.
    pub const EXPLICIT_LEASES: Needs = Needs { readers: true, ..Needs::READ_LEASES };
}

/// The guarantees that a protocol gives beyond its [`Isolation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCaps {
    /// The protocol offers snapshot isolation in addition to strict serializability.
    pub snapshot_isolation: bool,
    /// Range reads of the protocol are free of phantoms.
    pub ranges: bool,
    /// The protocol's hash indexes grow. Without this guarantee, the chains of overflow blocks grow instead.
    pub growth: bool,
    /// The protocol survives crashes of compute nodes.
    pub crash_recovery: bool,
    /// The protocol survives deaths of memory nodes: a backup is promoted, and new copies are made while transactions
    /// run.
    pub memory_recovery: bool,
    /// If a caller drops a transaction before its end, no lock of the transaction remains.
    pub survives_drops: bool,
}

impl ProtocolCaps {
    /// The guarantees of a protocol that gives all of them.
    pub const ALL: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: true,
        ranges: true,
        growth: true,
        crash_recovery: true,
        memory_recovery: true,
        survives_drops: true,
    };
    /// The guarantees of a protocol that gives none of them.
    pub const NONE: ProtocolCaps = ProtocolCaps {
        snapshot_isolation: false,
        ranges: false,
        growth: false,
        crash_recovery: false,
        memory_recovery: false,
        survives_drops: false,
    };
}

/// A switch: a deviation from a paper's text, or a rule whose absence is a planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The name of the switch on the command line.
    pub name: &'static str,
    /// The effect of the switch while it is on.
    pub effect: &'static str,
    /// Whether the switch is on in the paper's text. `--variant literal` keeps exactly the switches that are on in
    /// the paper's text.
    pub in_literal: bool,
    /// Whether the switch is on in the public code, which later papers measured. `--variant measured` keeps exactly
    /// the switches that are on in the public code.
    pub in_measured: bool,
    /// Whether only simulations may turn this switch off. Without the switch transactions are not isolated at all. A
    /// simulation turns it off with `unsafe-no-NAME`, to measure the speed of transactions without the switch.
    pub simulated_only: bool,
}

/// The isolation that transactions can rely on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Strict serializability: a serial order of transactions that respects real time explains all reads.
    StrictSerializable,
    /// Each transaction reads the state that was committed at one moment, its snapshot. The moment of the snapshot
    /// lies between the transaction's beginning and its end. If two transactions write one record, one of them takes
    /// its snapshot after the other's commit. So write skew and its consequences may happen, but no other anomaly.
    SnapshotIsolation,
}

/// The conditions under which a transaction can reach a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// Transactions have this phase only in this variant, not in the corrected variant.
    InVariant(&'static str),
    /// Transactions reach this phase only while no memory node dies.
    WithoutMemoryDeath,
    /// A transaction awaits nothing in this phase, so a node's death never finds a transaction in the phase.
    InPassing,
    /// Only transactions on tables with ordered indexes have this phase.
    WithOrderedIndexes,
    /// Only transactions that access memory by loads and stores have this phase. Simulated memory is not accessed in
    /// this way.
    WhereMemoryIsNear,
}

/// A phase that transactions reach only under a condition. A check requires that tests reach every phase. If the
/// condition does not hold, the check ignores this phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The name of the phase to which the condition applies.
    pub phase: &'static str,
    /// The condition under which transactions reach the phase.
    pub only: Only,
    /// The reason for the condition.
    pub why: &'static str,
}

impl Limit {
    /// The condition of the phase that scans ordered indexes.
    pub const SCAN: Limit = Limit {
        phase: "scan",
        only: Only::WithOrderedIndexes,
        why: "the phase reads an ordered \
            index",
    };
    /// The condition of the phase that changes leaves of ordered indexes.
    pub const LOCK_LEAF: Limit = Limit {
        phase: "lock_leaf",
        only: Only::WithOrderedIndexes,
        why: "only ordered indexes have leaves",
    };
    /// The condition of the phase that commits and releases locks in one batch.
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
    /// The protocol's switches. All switches are on unless a variant turns some of them off.
    pub switches: &'static [Switch],
    /// The protocol's phases, in the order of [`crate::site::metrics::Tally::phases`].
    pub phases: &'static [&'static str],
    /// The phases that transactions reach only under a condition.
    pub limits: &'static [Limit],
    /// The reasons for which the protocol may abort a transaction. The protocol aborts transactions for no other
    /// reason.
    pub aborts: &'static [AbortReason],
    /// The version of a record after the transaction that wrote it was undone. The record then has its old value
    /// again. The arguments are the kind of the write and the counter of the record's version. `None` if undoing
    /// leaves no trace that readers see.
    pub undone: fn(WriteKind, u64) -> Option<u64>,
    /// The version of an ordered index's node after a transaction was undone. The first argument is the version at
    /// which the transaction had found the node. The second argument is the version that the transaction had written.
    /// `None` if undoing leaves no trace that readers see.
    pub undone_node: fn(u64, u64) -> Option<Undone>,
}

impl ProtocolInfo {
    /// Whether transactions reach a phase only on tables with ordered indexes.
    pub fn needs_ordered_indexes(&self, phase: &str) -> bool {
        let needs = |it: &Limit| it.phase == phase && it.only == Only::WithOrderedIndexes;
        self.limits.iter().any(needs)
    }
}

/// A variant of a protocol: the switches that are on, and the requested isolation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    bits: u64,
    isolation: Isolation,
}

impl Switches {
    /// Parses the text of a variant. The text begins with `corrected` (all switches on), `literal` (the switches of
    /// the paper's text) or `measured` (the switches of the public code). Any number of `,-name` (turn a switch off)
    /// and `,+name` (turn a switch on) may follow. `,unsafe-no-NAME` turns off the switch NAME, which only
    /// simulations may turn off. `,si` requests snapshot isolation in place of strict serializability. A variant names
    /// each switch at most once.
    ///
    /// # Errors
    /// The error names the part of the text that is unknown or that the protocol does not offer, and the allowed
    /// values.
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
        let mut named = Vec::new();
        for part in parts {
            let about = part.trim_start_matches(['+', '-']);
            let about = about.strip_prefix(UNSAFE_PREFIX).unwrap_or(about);
            if named.contains(&about) {
                let allowed = format!("each switch of a variant once, unlike {about} in {variant}");
                let (field, value) = ("variant".into(), part.to_owned());
                return Err(UsageError { field, value, allowed });
            }
            named.push(about);
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

    /// The name of a switch that is off although only simulations may turn it off; `None` if there is no such switch.
    pub fn unsafe_without(self, info: &ProtocolInfo) -> Option<&'static str> {
        let missing =
            |(index, switch): &(usize, &Switch)| switch.simulated_only && !self.is_on(*index);
        info.switches.iter().enumerate().find(missing).map(|(_, switch)| switch.name)
    }
}

/// The part of a variant's text that requests snapshot isolation.
const SNAPSHOT: &str = "si";

/// Returns snapshot isolation, if the protocol offers it.
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

/// The prefix in a variant's text that turns off a switch which only a simulation may turn off.
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
    fn a_variant_names_a_switch_once() {
        let info = snapshots();
        for variant in [
            "corrected,-validate-reads,+validate-reads",
            "corrected,+validate-reads, +validate-reads",
            "literal,unsafe-no-lock-cas,unsafe-no-lock-cas",
            "corrected,si,si",
        ] {
            let error = Switches::parse(&info, variant).expect_err(variant);
            let last = variant.rsplit(',').next().expect("a part").trim();
            assert_eq!((error.field.as_str(), error.value.as_str()), ("variant", last));
        }
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
