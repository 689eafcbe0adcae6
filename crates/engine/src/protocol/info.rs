//! What a protocol says of itself without running: its promises, its switches and variants, its phases.
//!
//! Invariant: constants. Judges, coverage and tests believe them, so that nobody but the protocol knows its
//! name or its numbers: what is here is read by one of them.

use crate::history::WriteKind;
use crate::outcome::{AbortReason, UsageError};

/// What a protocol promises beyond its [`Isolation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolCaps {
    /// Offers snapshot isolation as well.
    pub snapshot_isolation: bool,
    /// Range reads are free of phantoms.
    pub ranges: bool,
    /// Survives crashes of compute nodes.
    pub crash_recovery: bool,
    /// Survives deaths of memory nodes: a backup is promoted, and copies are made again beside transactions.
    pub memory_recovery: bool,
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
}

/// When a phase can be reached at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// In this variant, and not in the corrected one.
    InVariant(&'static str),
    /// While no memory node dies.
    WithoutMemoryDeath,
    /// On tables with ordered indexes.
    WithOrderedIndexes,
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
    /// Its phases, in the order of [`crate::metrics::Tally::phases`].
    pub phases: &'static [&'static str],
    /// Those that cannot be reached always.
    pub limits: &'static [Limit],
    /// Why it may abort a transaction: no other reason is ever given.
    pub aborts: &'static [AbortReason],
    /// The version under which a record has its old value once a transaction was undone that had written
    /// it, by its kind and its version's counter; `None` if undoing leaves no trace that a reader sees.
    pub undone: fn(WriteKind, u64) -> Option<u64>,
}

impl ProtocolInfo {
    /// Whether a phase is reached on tables with ordered indexes alone.
    pub fn needs_ordered_indexes(&self, phase: &str) -> bool {
        let needs = |it: &Limit| it.phase == phase && it.only == Only::WithOrderedIndexes;
        self.limits.iter().any(needs)
    }
}

/// Which switches are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches(u64);

impl Switches {
    /// Reads a variant: `corrected` (everything on), `literal` (what the paper's text has) or
    /// `measured` (what the public code has), then any number of `,-name` and `,+name`. What may be
    /// missing in simulations alone is taken away by `,unsafe-no-name`.
    ///
    /// # Errors
    /// Names the part that is not known and what is allowed.
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
        for part in parts {
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
        Ok(Switches(bits))
    }

    /// Whether the switch at this position is on.
    #[inline]
    pub fn is_on(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// What is missing that may be missing in simulations alone.
    pub fn unsafe_without(self, info: &ProtocolInfo) -> Option<&'static str> {
        let missing =
            |(index, switch): &(usize, &Switch)| switch.simulated_only && !self.is_on(*index);
        info.switches.iter().enumerate().find(missing).map(|(_, switch)| switch.name)
    }
}

/// What takes a switch away that nobody but a simulation may miss.
pub(super) const UNSAFE_PREFIX: &str = "unsafe-no-";

fn unknown_variant(info: &ProtocolInfo, part: &str) -> UsageError {
    let names = |simulated_only: bool| {
        let those = info.switches.iter().filter(|it| it.simulated_only == simulated_only);
        those.map(|switch| switch.name).collect::<Vec<&str>>().join(", ")
    };
    UsageError {
        field: "variant".into(),
        value: part.to_owned(),
        allowed: format!(
            "corrected, literal or measured, then ,-NAME or ,+NAME of {} ({}); in simulations alone \
             ,{UNSAFE_PREFIX}NAME ({})",
            info.name,
            names(false),
            names(true)
        ),
    }
}
