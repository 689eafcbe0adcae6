//! Rules and phases that several systems share, each described once.
//!
//! Invariant: a system lists the rules that one of its variants may turn off, and the phases of its transactions. The
//! number of a rule or phase is its index in that list. Shared code refers to a rule or a phase by its name in this
//! file. A system always keeps a shared rule that it does not list.

use super::info::Switch;

/// A rule that several systems share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A commit compares the records that it read without locks with their present versions.
    ValidateReads,
    /// A transaction neither reads nor validates a record that another transaction has locked.
    RefuseLocked,
    /// A commit releases its locks only when all replicas have the data.
    UnlockLate,
    /// An abort releases only the locks that the transaction was granted.
    ReleaseGranted,
    /// A transaction that found no record under a key also protects the absence of this record.
    ProtectAbsent,
    /// An abort releases the locks of its transaction.
    ReleaseOnAbort,
    /// A transaction takes its locks by CAS.
    LockCas,
    /// Recovery revokes the dead node's access before it reads memory.
    FenceBeforeRecovery,
    /// A coordinator uses a log area again only when the area's last entry is no longer needed.
    SettleBeforeLog,
    /// Recovery releases only the dead transaction's locks.
    ReleaseOwn,
    /// If a deleted record is inserted again, its version continues the old count.
    KeepVersion,
    /// A commit notices changes of a range that the transaction scanned.
    ProtectRanges,
    /// A leaf states which keys it covers, and readers check this statement.
    CheckFences,
    /// A split of an index node writes both nodes in one transaction.
    SiblingWithSplit,
    /// A reader compares the versions of all lines of a record.
    CheckLines,
    /// A commit checks whether its leases are still valid.
    ConfirmLeases,
    /// A writer waits until readers' leases have ended.
    WaitOutLeases,
    /// A lease that another transaction requested also protects this transaction.
    ShareLeases,
    /// A round requests all locks that it can.
    LockTogether,
    /// A transaction holds the lock of a ticket only when the ticket is the next to be served.
    WaitTurn,
    /// A ticket that a transaction abandons is passed on when it is the next to be served.
    PassInTurn,
    /// The counts of tickets are reset only when all tickets have been served.
    ResetAtRest,
    /// Counts of tickets reach a high limit before they are reset.
    WideCounts,
    /// A round rings one doorbell for each memory node.
    ShareDoorbells,
    /// A look-up that read a bucket whole and found no record reads the bucket once more.
    ProveAbsent,
}

/// Each rule's name and effect, in the order of [`Rule`].
const RULES: [(&str, &str); 25] = [
    ("validate-reads", "a commit re-reads the version of every record that it read without a lock"),
    (
        "refuse-locked",
        "a transaction neither reads nor validates a record that another \
                       transaction has locked",
    ),
    (
        "unlock-late",
        "a transaction releases its locks when every replica has acknowledged its data; off: in \
         one batch with the primary's data",
    ),
    (
        "release-granted",
        "an abort releases the locks that were granted, by CAS of its own tag; off: it clears every lock that it asked for",
    ),
    (
        "protect-absent",
        "an absent read, an insert and a delete protect the bucket's directory record",
    ),
    ("release-on-abort", "an abort releases its locks; off: the locks outlive the transaction"),
    (
        "lock-cas",
        "a transaction takes a lock by CAS; off: it only assumes the lock, and transactions are \
         not isolated",
    ),
    (
        "fence-before-recovery",
        "recovery reads nothing before the dead node's access is revoked everywhere; off: a node \
         that still runs goes on writing beside recovery",
    ),
    (
        "settle-before-log",
        "a log area is used again only when its last entry is no longer needed: earlier unlocks \
         have settled, and the recovery of a dead coordinator of the same number is over; off: at \
         once",
    ),
    (
        "release-own",
        "recovery takes away only locks that carry the dead transaction's tag, by CAS; off: it \
         clears the LOCK of every record in the log, even if another transaction holds it by now",
    ),
    (
        "keep-version",
        "a record that comes back continues the VERSION of its slot and its directory; off: its \
         VERSION begins anew",
    ),
    (
        "protect-ranges",
        "a commit validates the leaves that its scans have read; off: it does not notice new \
         records in their ranges",
    ),
    (
        "check-fences",
        "a leaf says by its fences which keys it covers; off: a reader trusts the inner nodes \
         that led to the leaf",
    ),
    (
        "sibling-with-split",
        "a split writes the new node and the old one in one transaction; off: it writes the old \
         one first, in a transaction of its own",
    ),
    (
        "check-lines",
        "a reader compares the versions of a record's lines; off: it takes the lines of one READ \
         as consistent",
    ),
    (
        "confirm-leases",
        "a commit checks that its leases still hold, and validates its reads if they do not; off: \
         it assumes that they hold",
    ),
    (
        "wait-out-leases",
        "a writer waits until the leases on its records have ended; off: it takes the lock at \
         once",
    ),
    (
        "share-leases",
        "a reader uses a lease of another transaction while that lease holds; off: each \
         transaction asks for its own",
    ),
    (
        "lock-together",
        "a fetch locks its records in one round; off: one after the other, each in a round of its \
         own",
    ),
    (
        "wait-turn",
        "a transaction holds a lock when all earlier tickets have been served; off: as soon as it \
         has a ticket",
    ),
    (
        "pass-in-turn",
        "a transaction that gives up passes its ticket on when its turn has come; off: at once, \
         as if it had been served",
    ),
    (
        "reset-at-rest",
        "counts that have ended are set back when every ticket is served; off: at \
                       once",
    ),
    (
        "wide-counts",
        "counts end at 32768; off: at 32, so that lock words are set back all the \
                     time",
    ),
    (
        "share-doorbells",
        "a round rings one doorbell for each memory node; off: one for each lock with its READ, each \
         other READ, each record's WRITEs at a replica, each log and each release",
    ),
    (
        "prove-absent",
        "where a look-up reads buckets whole, a missing key and the bucket of an insert or delete are \
         read between two READs of the directory record; off: one READ shows all of it",
    ),
];

/// Says which published descriptions of a system keep a rule: the paper's text, and the public code that other authors
/// measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Whether the paper's text keeps the rule.
    pub in_literal: bool,
    /// Whether the public code keeps the rule.
    pub in_measured: bool,
}

/// Both the paper's text and the public code keep the rule.
pub const PUBLISHED: Published = Published { in_literal: true, in_measured: true };
/// The paper's text keeps the rule, and the public code does not.
pub const IN_TEXT: Published = Published { in_literal: true, in_measured: false };
/// The public code keeps the rule, and the paper's text does not.
pub const IN_CODE: Published = Published { in_literal: false, in_measured: true };
/// Only our corrected protocol keeps the rule; the paper's text and the public code do not.
pub const OURS: Published = Published { in_literal: false, in_measured: false };

/// Creates a switch for a rule of one system, or for a shared rule that has another effect in this system.
pub const fn rule(name: &'static str, effect: &'static str, published: Published) -> Switch {
    let Published { in_literal, in_measured } = published;
    Switch { name, effect, in_literal, in_measured, simulated_only: false }
}

/// The value that marks a rule which a system's list does not contain.
const NONE: u8 = u8::MAX;

impl Rule {
    /// The number of shared rules.
    const COUNT: usize = RULES.len();

    /// Returns the shared rule as an entry of a system's list.
    pub const fn of(self, published: Published) -> Switch {
        let (name, effect) = RULES[self as usize];
        let simulated_only = matches!(self, Rule::LockCas);
        Switch { simulated_only, ..rule(name, effect, published) }
    }

    /// Returns a system's list of these rules, if all of them have the same published forms.
    pub const fn all_of<const N: usize>(rules: [Rule; N], published: Published) -> [Switch; N] {
        let (mut list, mut at) = ([rules[0].of(published); N], 1);
        while at < N {
            list[at] = rules[at].of(published);
            at += 1;
        }
        list
    }
}

/// The numbers that shared rules have in a system's list.
#[derive(Clone, Copy, Debug)]
pub struct RuleNumbers([u8; Rule::COUNT]);

impl RuleNumbers {
    /// Finds the numbers of the shared rules in this list.
    pub const fn of(list: &[Switch]) -> RuleNumbers {
        let (mut numbers, mut at) = ([NONE; Rule::COUNT], 0);
        while at < list.len() {
            let mut shared = 0;
            while shared < Rule::COUNT {
                if is_same(RULES[shared].0, list[at].name) {
                    numbers[shared] = at as u8;
                }
                shared += 1;
            }
            at += 1;
        }
        RuleNumbers(numbers)
    }

    /// The number of a rule in the list; `None` if the rule is not in the list.
    #[inline(always)]
    pub const fn number(&self, rule: Rule) -> Option<usize> {
        match self.0[rule as usize] {
            NONE => None,
            number => Some(number as usize),
        }
    }
}

/// The number that a system's own rule has in its list.
///
/// # Panics
/// If the list has no such rule.
pub const fn rule_number(list: &[Switch], name: &str) -> usize {
    let mut at = 0;
    while at < list.len() {
        if is_same(list[at].name, name) {
            return at;
        }
        at += 1;
    }
    panic!("a protocol names a rule that its list of switches does not have")
}

/// A phase that several systems share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// In this phase the transaction looks up a record's address.
    Locate,
    /// In this phase the transaction reads a record at the address where the record was last seen.
    ReadDirect,
    /// In this phase the transaction requests the lock on a record.
    Lock,
    /// In this phase the transaction requests the lock on a record at the address where the record was last seen.
    LockDirect,
    /// In this phase the transaction requests the lock on a directory record.
    LockDirectory,
    /// In this phase the transaction reads a payload that is stored apart from its record.
    ReadBody,
    /// In this phase the transaction validates its reads.
    Validate,
    /// In this phase the transaction sends its log.
    Log,
    /// In this phase the transaction sends its data.
    Write,
    /// In this phase the transaction releases its locks.
    Unlock,
    /// In this phase the transaction releases its locks in the same batch as it writes its data.
    UnlockWithData,
    /// In this phase the transaction is rolled back.
    Release,
    /// In this phase the outcome of a transaction is determined.
    Resolve,
    /// In this phase a structural transaction begins.
    Restructure,
    /// In this phase the transaction reads index nodes for a scan or look-up.
    Scan,
    /// In this phase the transaction requests the lock on a leaf.
    LockLeaf,
    /// A transaction reaches this phase if its leases were valid until the commit.
    InLease,
    /// In this phase a writer waits until readers' leases have ended.
    WaitOut,
    /// In this phase the transaction waits until its tickets are the next to be served.
    WaitTurn,
    /// In this phase the transaction passes tickets on.
    PassOn,
    /// In this phase the counts of tickets are reset.
    SetBack,
}

/// Each phase's name, in the order of [`Phase`].
const PHASES: [&str; 21] = [
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
    "unlock_with_data",
    "release",
    "resolve",
    "restructure",
    "scan",
    "lock_leaf",
    "in_lease",
    "wait_out",
    "wait_turn",
    "pass_on",
    "set_back",
];

/// The numbers that shared phases have in a system's list.
#[derive(Clone, Copy, Debug)]
pub struct PhaseNumbers([u8; PHASES.len()]);

impl PhaseNumbers {
    /// Finds the numbers of the shared phases in this list.
    pub const fn of(list: &[&str]) -> PhaseNumbers {
        let (mut numbers, mut at) = ([NONE; PHASES.len()], 0);
        while at < list.len() {
            let mut shared = 0;
            while shared < PHASES.len() {
                if is_same(PHASES[shared], list[at]) {
                    numbers[shared] = at as u8;
                }
                shared += 1;
            }
            at += 1;
        }
        PhaseNumbers(numbers)
    }

    /// The number of a phase in the list; `None` if the phase is not in the list.
    #[inline(always)]
    pub const fn number(&self, phase: Phase) -> Option<usize> {
        match self.0[phase as usize] {
            NONE => None,
            number => Some(number as usize),
        }
    }
}

/// The number that a system's own phase has in its list.
///
/// # Panics
/// If the list has no such phase.
pub const fn phase_number(list: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < list.len() {
        if is_same(list[at], name) {
            return at;
        }
        at += 1;
    }
    panic!("a protocol names a phase that its list of phases does not have")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_number_shared_rules_and_phases() {
        const LIST: &[Switch] = &[rule("own", "", OURS), Rule::ReleaseOwn.of(PUBLISHED)];
        let numbers = const { RuleNumbers::of(LIST) };
        assert_eq!(numbers.number(Rule::ReleaseOwn), Some(1));
        assert_eq!(numbers.number(Rule::LockCas), None);
        assert_eq!(rule_number(LIST, "own"), 0);
        assert!(Rule::LockCas.of(OURS).simulated_only && !LIST[1].simulated_only);
        let phases = PhaseNumbers::of(&["own", "scan"]);
        assert_eq!([phases.number(Phase::Scan), phases.number(Phase::Lock)], [Some(1), None]);
    }
}
