//! Motor: several versions of each record, with locks beside the records; Motor uses only one-sided verbs.
//!
//! This implementation follows Zhang, Hua, Yang, "Motor: Enabling Multi-Versioning for Distributed Transactions on
//! Disaggregated Memory", OSDI 2024. The variants `literal` and `measured` follow Motor's public code, which later
//! papers measured (Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS: Optimizing Disaggregated Transactions with Disaggregated
//! Locks", among them). The authors of this implementation had no copy of Motor's paper. If the paper's text says
//! more than the public code, this implementation lacks it. docs/protocols/motor.md describes the data that the
//! public code loses under crashes and concurrency, and the corrections in the variant `corrected`.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | declared read-only, address unknown | 2: head, value | |
//! | declared read-only, address remembered | 1 | |
//! | write, address unknown, nothing else read | 3: head, lock + head + value, log + write | unlock |
//! | write, address remembered | 2: lock + head + value, log + write | unlock |
//! | the same, and others read | + 1: validate | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | a declared reader finds a chain without it | + 1: the directory's head once more | |
//! | a timestamp from elsewhere than this process | + 1 to start a snapshot, + 1 to commit | |
//! | write, all of it on one node, which has the only copy | as above | nothing |
//! | abort | 1 or 2 at lock, + 1 at validation | release |
//! | own abort | + 1: validate, as a commit would: none after one record that was only read, or if all that was read is locked or of a snapshot | release |
//! | scan, its way remembered | 1 for eight leaves; declared read-only nothing more | |
//! | entries of ordered indexes that come or go | + 1: lock + leaf | |
//! | split of buckets, before the next transaction | 4: header, buckets, slots, log + write; + 1 for each overflow block | unlock |
//!
//! # Deviations from the published system, each a switch
//! See [`Motor::INFO`](crate::protocol::Protocol::INFO).

mod absorb;
mod commit;
mod execute;
mod nodes;
mod prepare;
mod switches;
mod validate;
mod value;

use super::Protocol;
use crate::cluster::info::{Isolation, Needs, ProtocolCaps, ProtocolInfo, Switches};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::RecordAccess;
use crate::steps::settle::undo::{UndoLog, undone_node};
use crate::transaction::working_set::{Added, Handle, Intent, Txn, Upgrade};
use switches::{ABORTS, LIMITS, PHASES, SWITCHES, on};
use tarn_store::history::WriteKind;
use tarn_store::ids::Failure;
use tarn_store::layout::LayoutKind;
use tarn_store::placement::catalog::{Options, Table};

/// The number of versions of a record, if the database's options do not set another number.
const VERSIONS: u8 = 2;

/// The undo of a write does not change the version by which readers name the record.
fn undone(_: WriteKind, _: u64) -> Option<u64> {
    None
}

/// The protocol Motor with its switches.
pub struct Motor {
    switches: Switches,
}

impl Motor {
    /// Returns whether all reads of the transaction belong to one moment, T_start. The function returns true for
    /// transactions that were declared read-only, and for all transactions under snapshot isolation.
    fn reads_snapshot(&self, txn: &Txn) -> bool {
        txn.intent == Intent::ReadOnly || self.switches.isolation() == Isolation::SnapshotIsolation
    }
}

#[inline]
fn enter(cx: &Context, phase: usize) {
    cx.metrics.phase(phase);
}

impl Described for Motor {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "motor",
        citation: "Zhang, Hua, Yang: Motor, OSDI 2024",
        caps: ProtocolCaps::ALL,
        switches: SWITCHES,
        phases: PHASES,
        limits: LIMITS,
        aborts: ABORTS,
        undone,
        undone_node,
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

/// Access to records with several versions. A transaction reads the newest version of a record, or the version of the
/// transaction's snapshot.
pub struct Versions;

impl RecordAccess<Motor> for Versions {
    fn add(_: &Motor, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
        execute::add(cx, txn, table, added)
    }

    fn upgrade(_: &Motor, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
        execute::upgrade(cx, txn, index, further);
    }

    fn fetch(
        motor: &Motor,
        cx: &Context,
        txn: &mut Txn,
    ) -> impl Future<Output = Result<(), Failure>> {
        execute::fetch(motor, cx, txn)
    }

    fn is_committed(motor: &Motor, txn: &Txn) -> bool {
        commit::is_committed(motor, txn)
    }

    async fn validate(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        match motor.reads_snapshot(txn) {
            true => Ok(()),
            false => validate::validate(motor, cx, txn).await,
        }
    }
}

impl Protocol for Motor {
    type Records = Versions;
    type Log = UndoLog;

    fn new(switches: Switches) -> Motor {
        Motor { switches }
    }

    fn layout(&self, asked: &Options) -> LayoutKind {
        let cells = match asked.layout {
            LayoutKind::MultiVersion { cells, .. }
            | LayoutKind::Deltas { cells }
            | LayoutKind::Wholes { cells } => cells,
            LayoutKind::SingleVersion | LayoutKind::Ticketed | LayoutKind::Lined { .. } => VERSIONS,
        };
        match self.switches.is_on(on::DELTAS) {
            true => LayoutKind::Deltas { cells },
            false => LayoutKind::Wholes { cells },
        }
    }

    fn needs(&self) -> Needs {
        Needs::TIMESTAMPS
    }
}
