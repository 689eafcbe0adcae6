//! Two-phase locking in which no transaction waits for a lock. A transaction locks each record, beside the record,
//! before it reads or writes it, and keeps all locks until it has committed. If another transaction holds a lock, the
//! lock request is refused and the requesting transaction aborts.
//!
//! Eswaran, Gray, Lorie, Traiger, "The notions of consistency and predicate locks in a database system", CACM 1976;
//! without waiting: Bernstein and Goodman, "Concurrency control in distributed database systems", ACM Computing
//! Surveys 1981. A lock of this protocol has only one mode, so a reader's lock also keeps other readers away. This
//! protocol is the simplest system that consists of the parts which protocols have in common. A lock word contains
//! its holder's tag, the log contains old bytes, and recovery is the same as for all logs of old bytes.
//!
//! # Round trips (the RTT budget, asserted by tests/all/rtt_budget.rs)
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known | 1: lock + read | unlock |
//! | write, address known | 3: lock + read, log, write | unlock |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | a range, its way remembered | 1: its leaves | |
//! | absence found beside other reads, or several leaves read | + 1: validate | |
//! | abort | as far as it came | release |

use super::Protocol;
use crate::cluster::info::{ProtocolInfo, Switches};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Access, Locked, Which, validate_those};
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::locks::Locks;
use crate::steps::node_locks;
use crate::steps::settle::undo::{IN_PLACE, UndoLog};
use crate::steps::structure::Structure;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{Leases, NO_LOCK, Txn};
use tarn_fabric::address::Address;
use tarn_store::ids::Failure;

/// The protocol for two-phase locking, with its switches.
pub struct TwoPhase {
    switches: Switches,
}

/// A kind of lock with only one mode, which readers take, too.
pub struct ReadsToo;

impl Locks for ReadsToo {
    const GIVES_SHARES_BACK: bool = true;

    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        true
    }

    fn share_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        node_locks::ask(cx, txn, address, LockKind::Record)
    }
}

impl Described for TwoPhase {
    const INFO: ProtocolInfo =
        ProtocolInfo { name: "2pl", citation: "two-phase locking without waiting", ..IN_PLACE };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for TwoPhase {
    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        // If an entry's record may be written, the field `lock` of the entry names a lock; a structural transaction
        // has no entries.
        let writes =
            txn.entries.is_empty() || txn.entries.iter().any(|entry| entry.lock != NO_LOCK);
        if writes {
            change_leaves(self, cx, txn).await?;
            prepare(self, cx, txn, true).await?;
        }
        validate_those(self, cx, txn, Which::Apart).await?;
        if writes {
            log(self, cx, txn).await?;
            write(self, cx, txn).await?;
        }
        unlock(self, cx, txn);
        Ok(())
    }
}

impl Access for TwoPhase {
    type Locks = ReadsToo;
    const VALIDATES: Which = Which::Apart;
}

impl Protocol for TwoPhase {
    type Records = Locked;
    type Log = UndoLog;

    fn new(switches: Switches) -> TwoPhase {
        TwoPhase { switches }
    }
}
