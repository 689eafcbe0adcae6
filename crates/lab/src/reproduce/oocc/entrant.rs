//! Who runs: OOCC, in steps from its baseline, and OCC, DrTM and DSLR, all on one layout.
//!
//! Invariant: whether a protocol, a variant or a switch is there is asked when a page is made, never assumed. Where the
//! paper leaves something open all systems have the same, and the page says what was assumed.

use crate::reproduce::charge::Charge;
use crate::reproduce::paper::case::{Bench, Case, Entrant, Kind};
use crate::reproduce::stage::{Layout, System};
use crate::simulate::stamps::Source;
use crate::simulate::warmth::Warmth;
use tarn_engine::session::coordinator::Retry;
use tarn_sim::profile::Standing;
use tarn_store::layout::BucketShape;
use tarn_store::placement::catalog::Placement;

/// Which system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Readers of one round, writers that wait.
    Oocc,
    /// Readers that look twice.
    Occ,
    /// Locks that readers share for a time.
    Drtm,
    /// Locks that are waited for in order.
    Dslr,
}

/// In whose words everybody runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As papers and public code have it.
    Literal,
    /// As this engine corrects it.
    Corrected,
}

impl Form {
    /// Both.
    pub const ALL: [Form; 2] = [Form::Literal, Form::Corrected];

    /// The variant's name.
    pub fn variant(self) -> &'static str {
        match self {
            Form::Literal => "literal",
            Form::Corrected => "corrected",
        }
    }
}

/// An aborted transaction is dropped and another one drawn: "following the methodology of existing disaggregated transaction
/// works", FORD among them (section VIII-B), whose public code does that.
const DROPPED: Retry = Retry { tries_max: 1, ..Retry::PATIENT };

const OOCC: System = System {
    name: "OOCC",
    about: "corrected: leases, write unlock, delayed lock",
    protocol: "oocc",
    variant: "corrected",
    charges: &[],
    retry: DROPPED,
    timestamps: Source::Counter,
    is_routed: false,
    version_cache_entries: 0,
    read_lease_ns: 0,
};

const OCC: System = System {
    name: "OCC",
    about: "optimistic in four rounds, reads validated by a second look",
    protocol: "occ",
    ..OOCC
};
const DRTM: System = System {
    name: "DrTM",
    about: "two-phase locking, shared locks that end by themselves after 400 µs",
    protocol: "drtm",
    ..OOCC
};
const DSLR: System = System {
    name: "DSLR",
    about: "two-phase locking, shared and exclusive locks taken in order by FAA",
    protocol: "dslr",
    ..OOCC
};
const OOCC_LITERAL: System = System {
    name: "OOCC, literal",
    about: "as its text: a writer in lease does not look again",
    ..OOCC
};
const OCC_LITERAL: System = System { name: "OCC, literal", ..OCC };
const DRTM_LITERAL: System = System {
    name: "DrTM, literal",
    about: "as its public code: one record after the other",
    ..DRTM
};
const DSLR_LITERAL: System = System { name: "DSLR, literal", ..DSLR };

impl Who {
    /// All of them.
    pub const ALL: [Who; 4] = [Who::Oocc, Who::Occ, Who::Drtm, Who::Dslr];
    /// Those that OOCC is compared with.
    pub(super) const OTHERS: [Who; 3] = [Who::Occ, Who::Drtm, Who::Dslr];

    /// This system in a form, its leases apart.
    pub fn system(self, form: Form) -> System {
        let (literal, corrected) = match self {
            Who::Oocc => (OOCC_LITERAL, OOCC),
            Who::Occ => (OCC_LITERAL, OCC),
            Who::Drtm => (DRTM_LITERAL, DRTM),
            Who::Dslr => (DSLR_LITERAL, DSLR),
        };
        match form {
            Form::Literal => System { variant: form.variant(), ..literal },
            Form::Corrected => corrected,
        }
    }

    /// Its name in rows.
    pub fn name(self) -> &'static str {
        self.system(Form::Corrected).name
    }

    /// Whether its readers have leases of a length that is an option of the run.
    fn has_leases(self) -> bool {
        self == Who::Oocc
    }
}

/// "The lease is set to be 12us due to the longer execution phase" (section VIII-C).
const UNKNOWN_LEASE_NS: u32 = 12_000;
/// "80us since the progress of the transaction is very complicated" (section VIII-E).
const TPCC_LEASE_NS: u32 = 80_000;
/// Where nothing is said: that of the experiment on offsets (section VIII-B), which section VIII-F finds above OCC, too.
const UNSAID_LEASE_NS: u32 = 10_000;

/// "The lease of DrTM is set to be 400us as set in the origin paper" (section VIII-A).
const DRTM_LEASE_NS: u32 = 400_000;

/// The lease that a benchmark is run with: the one place where it is set. Who varies it says [`Case::leasing`].
fn read_lease_ns(who: Who, bench: &Bench) -> u32 {
    match bench.kind {
        _ if who == Who::Drtm => DRTM_LEASE_NS,
        _ if !who.has_leases() => 0,
        Kind::Tpcc => TPCC_LEASE_NS,
        Kind::Ycsb if bench.mix == "oocc-unknown" => UNKNOWN_LEASE_NS,
        _ => UNSAID_LEASE_NS,
    }
}

impl Entrant for (Who, Form) {
    fn system(self, bench: &Bench) -> System {
        let (who, form) = self;
        System { read_lease_ns: read_lease_ns(who, bench), ..who.system(form) }
    }

    fn layout(self, _: Kind) -> Layout {
        HASHED
    }
}

/// From OCC to OOCC, one technique after the other.
pub(super) const STEPS: [&str; 4] = ["OCC", "+ lease", "+ write unlock", "+ delayed lock"];

/// OOCC's baseline with so many of its techniques.
pub(super) fn step(bench: Bench, (at, form): (usize, Form), coordinators: &[usize]) -> Case {
    let of = |who| Case::of(bench, (who, form), coordinators);
    let by_form = |literal, corrected| match form {
        Form::Literal => literal,
        Form::Corrected => corrected,
    };
    match at {
        0 => of(Who::Occ),
        1 => of(Who::Oocc).with(
            by_form("OCC + lease, literal", "OCC + lease"),
            "leases alone",
            by_form("literal,-write-unlock,-intent", "corrected,-write-unlock,-intent"),
        ),
        2 => of(Who::Oocc).with(
            by_form("OCC + lease + write unlock, literal", "OCC + lease + write unlock"),
            "and data and unlock in one batch where all is on one node",
            by_form("literal,-intent", "corrected,-intent"),
        ),
        _ => of(Who::Oocc),
    }
}

/// A lease is shorter for readers and longer for writers by an offset, as by a drift of so many ppm of 10 µs.
const fn offset(value: f64) -> [Charge; 1] {
    let source =
        "section VIII-G: an offset of a lease of 10 µs, as the drift that comes to it in that time";
    [Charge { key: "clock.drift_ppm", value, standing: Standing::Derived, source }]
}
const HALF: &[Charge] = &offset(50_000.0);
const WHOLE: &[Charge] = &offset(100_000.0);

/// OOCC that allows for an offset of half a microsecond, or of a whole one.
pub(super) fn with_offset(mut case: Case, is_whole: bool) -> Case {
    case.system.charges = if is_whole { WHOLE } else { HALF };
    let name = if is_whole { "OOCC, offset 1 µs" } else { "OOCC, offset 0.5 µs" };
    let variant = case.system.variant;
    case.with(name, "clocks believed to drift so much within a lease", variant)
}

/// A global cache of addresses in each machine (section VIII-A): tens of millions of transactions a second have met all
/// records after some seconds.
const REMEMBERED: Warmth = Warmth { by_node: true, transactions_per_record: f64::INFINITY };

/// "The coordinator needs to … retrieve the whole bucket" (section VIII-A).
const HASHED: Layout = Layout {
    name: "buckets of eight read whole, records spread by hash",
    placement: Placement::Hash,
    bucket: BucketShape { slots: 8, slot_bytes_min: 0, read_whole: true },
    slots_per_100_records: 200,
    address_cache_entries: 0,
    warmth: Some(REMEMBERED),
    versions: 2,
};

/// What the paper leaves open and this page decides.
pub const ASSUMED: &[&str] = &[
    "one copy of every record: the paper measures no replication, and its write unlock, which is one WRITE, has room for \
     none",
    "records are spread over the two memory nodes by their keys' hash; buckets have eight slots, half of them in use",
    "YCSB: a transaction of 4 operations on 1 M records; the text says \"single random tuples\" and, of unknown \
     keys, two that tell two others. One record is read in one round by whoever reads a line whole, OCC, too \
     (--suppose operations=1). A writer updates all of its 4",
    "leases are 10 µs where nothing is said (YCSB, TAOBench, TATP), those of unknown keys 12 µs, TPC-C's 80 µs, DrTM's 400 µs \
     (--suppose lease=7)",
    "four coordinators a thread, as in its TPC-C (8 threads of 4 coroutines), until all threads run; the best number of \
     coordinators is the best of those that were run",
    "a machine has 64 threads at the most, where the paper's has 96 cores: a lock's tag tells no more apart. Every system's best number of \
     coordinators has fewer",
    "each machine remembers the addresses of all records that were loaded, as after some seconds of such rates",
    "an aborted transaction is dropped and another one drawn, as in the public code of FORD, whose methodology the paper \
     follows (--suppose dropped=off: it is tried until it commits)",
    "TATP's read-only transactions read two keys, its subscribers and TAOBench's sizes are our reading of it: see the profiles \
     that are called oocc",
    "an offset of clocks is taken for a drift that comes to it within 10 µs; 1.5 µs of 10 are more than a profile allows",
];
