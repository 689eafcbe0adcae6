//! Two-phase locking over a lock service: `2pl/fisslock` and its rivals. A transaction locks each record at the
//! service before it reads the record, shared for reads and exclusive for writes. It waits for its locks, and
//! keeps all of them until it has committed.
//!
//! The data are in place, the log contains old bytes. LOCK words of records are not used; buckets and nodes of
//! ordered indexes keep theirs. Services: FissLock (Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network
//! Lock Management Using Lock Fission", OSDI 2024), a lock server, lock servers by id, NetLock (SIGCOMM 2020).
//!
//! Invariant: the locks of a dead incarnation stay held until its transactions are settled. A fencing token would not
//! do: memory nodes check no tokens. The revocation of the dead node's access does. A copier that fills a joining
//! memory node takes the shared lock of each record that it writes there.
//!
//! Limit: an insert that finds its record reads that record without a lock, and locks it before it validates. So until
//! the transaction has committed, its caller may see bytes of a transaction that is undone later. Such a transaction
//! does not commit.
//!
//! # Round trips of memory
//!
//! A grant costs no round of memory, but messages: tests/all/lock_service.rs asserts their number.
//!
//! | transaction | rounds until the reply | then |
//! |---|---|---|
//! | read, address known | 1: read, after the grant | release |
//! | write, address known | 3: read after the grant, log, write | release |
//! | address unknown | + 1: the record's bin | |
//! | record away from its home, or absent | + 1: its bucket; + 1 for each overflow block | |
//! | read, then written | + 1: read, after another grant | |
//! | absence found beside other reads, or several leaves read | + 1: validate | |
//! | abort | as far as it came | release |

use super::Protocol;
use crate::cluster::info::{
    LockServiceNeed, Needs, ProtocolCaps, ProtocolInfo, Switch, Switches, in_place_phases_and,
};
use crate::cluster::rules::{OURS, PUBLISHED, Rule, rule, rule_number};
use crate::site::Context;
use crate::steps::Described;
use crate::steps::access::{Access, Locked, Which, validate_those};
use crate::steps::commit::{change_leaves, log, prepare, unlock, write};
use crate::steps::locks::Locks as _;
use crate::steps::locks::service::{ByService, release_all};
use crate::steps::node_locks::{self, put_shares_away};
use crate::steps::settle::undo::{IN_PLACE, UndoLogApart};
use crate::steps::structure::Structure;
use crate::transaction::working_set::Txn;
use tarn_locks::service::Kind;
use tarn_store::ids::Failure;

/// The name of the rule that dead holds stay.
const HOLDS_STAY: &str = "dead-holds-stay";
/// The name of the rule that copiers take locks.
const COPY_LOCKED: &str = "copy-under-locks";

const SWITCHES: &[Switch] = &[
    rule(
        HOLDS_STAY,
        "the locks of a dead node's transactions stay held until these transactions are settled; off: they are free \
         as soon as the node is declared dead",
        PUBLISHED,
    ),
    rule(
        COPY_LOCKED,
        "a copier that fills a joining memory node holds a record's lock at the service while it writes the record \
         there; off: it compares LOCK words, which no writer sets",
        OURS,
    ),
    Rule::ValidateReads.of(OURS),
    Rule::ProtectAbsent.of(OURS),
    Rule::ReleaseOnAbort.of(OURS),
    Rule::FenceBeforeRecovery.of(OURS),
    Rule::KeepVersion.of(OURS),
    Rule::ProtectRanges.of(OURS),
];

/// The names, in the order of [`Kind::ALL`].
const NAMES: &[&str] =
    &["2pl/fisslock", "2pl/fisslock-local", "2pl/srvlock", "2pl/parlock", "2pl/netlock"];

/// The protocol with its service and its switches.
pub struct Serviced {
    kind: Kind,
    switches: Switches,
}

impl Described for Serviced {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "2pl/fisslock",
        citation: "two-phase locking over FissLock (OSDI 2024), corrected",
        caps: ProtocolCaps { snapshot_isolation: false, growth: false, ..ProtocolCaps::ALL },
        switches: SWITCHES,
        phases: &in_place_phases_and::<16>(&["wait_turn"]),
        ..IN_PLACE
    };

    #[inline(always)]
    fn switches(&self) -> Switches {
        self.switches
    }
}

impl Structure for Serviced {
    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        let is_read_only = txn.is_read_only();
        if !is_read_only {
            put_shares_away(txn);
            change_leaves(self, cx, txn).await?;
            prepare(self, cx, txn, true).await?;
        }
        if ByService::has_to_cover(txn) {
            ByService::cover(self, cx, txn).await?;
        }
        validate_those(self, cx, txn, Which::Apart).await?;
        if !is_read_only {
            log(self, cx, txn).await?;
            write(self, cx, txn).await?;
        }
        release_all(cx, txn);
        unlock(self, cx, txn);
        Ok(())
    }
}

impl Access for Serviced {
    type Locks = ByService;
    const VALIDATES: Which = Which::Apart;
}

impl Protocol for Serviced {
    type Records = Locked;
    type Log = UndoLogApart;

    const NAMES: &'static [&'static str] = NAMES;

    fn new(switches: Switches) -> Serviced {
        Serviced { kind: Kind::FissLock, switches }
    }

    fn named(name: &str, switches: Switches) -> Serviced {
        let kind =
            NAMES.iter().position(|it| *it == name).map_or(Kind::FissLock, |at| Kind::ALL[at]);
        Serviced { kind, switches }
    }

    fn name(&self) -> &'static str {
        let at = Kind::ALL.iter().position(|kind| *kind == self.kind);
        at.map_or(NAMES[0], |at| NAMES[at])
    }

    fn needs(&self) -> Needs {
        let holds_stay = const { rule_number(SWITCHES, HOLDS_STAY) };
        let frees_at_once = !self.switches.is_on(holds_stay);
        let copies_unlocked = !self.switches.is_on(const { rule_number(SWITCHES, COPY_LOCKED) });
        let lock_service =
            Some(LockServiceNeed { kind: self.kind, frees_at_once, copies_unlocked });
        Needs { lock_service, ..Needs::NONE }
    }

    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        if self.keeps(Rule::ReleaseOnAbort) {
            release_all(cx, txn);
        }
        node_locks::give_up(self, cx, txn);
    }
}
