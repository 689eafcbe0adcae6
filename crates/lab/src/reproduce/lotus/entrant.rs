//! Who runs: LOTUS, Motor and FORD, each in its forms, and how each lays its database out.
//!
//! Invariant: whether a protocol, a variant or a switch is there is asked when a page is made, never
//! assumed: what is not there has rows without figures. A form is one choice for all figures. Where the
//! paper leaves something open all systems have the same, and the page says what was assumed.

use crate::reproduce::paper::case::{Bench, Entrant, Kind};
use crate::reproduce::paper::sheet::Columns;
use crate::reproduce::paper::target::Party;
use crate::reproduce::stage::{Layout, System};
use crate::simulate::stamps::Source;
use crate::simulate::warmth::Warmth;
use serde::Serialize;
use tarn_engine::services::lock::versions::VERSION_CACHE_ENTRIES_DEFAULT;
use tarn_engine::session::coordinator::Retry;
use tarn_store::layout::BucketShape;
use tarn_store::placement::catalog::Placement;

/// Whose figures stand in a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// LOTUS as its text says; the others as they were measured.
    Literal,
    /// LOTUS corrected; the others as they were measured.
    Corrected,
    /// Everybody corrected, records spread by their keys' hash.
    Best,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Literal, Form::Corrected, Form::Best];
}

impl Columns for Form {
    const NAMES: &'static [&'static str] = &["literal", "corrected", "best_form"];

    /// Where only baselines are in a row, the second column is theirs corrected.
    fn of(party: Party) -> Vec<Option<Form>> {
        match party {
            Party::Own => Form::ALL.map(Some).into(),
            Party::Baselines => vec![Some(Form::Literal), Some(Form::Best), None],
        }
    }

    /// Its own system corrected; baselines as they were measured.
    fn decides(party: Party) -> usize {
        match party {
            Party::Own => 1,
            Party::Baselines => 0,
        }
    }
}

impl Entrant for (Who, Form) {
    fn system(self, _: &Bench) -> System {
        self.0.system(self.1)
    }

    fn layout(self, kind: Kind) -> Layout {
        self.0.layout(self.1, kind)
    }
}

/// Which system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Locks in compute nodes.
    Lotus,
    /// Several versions, locks in memory nodes.
    Motor,
    /// One version, locks in memory nodes.
    Ford,
}

/// An aborted transaction is dropped and another one drawn: FORD's and Motor's public code.
const DROPPED: Retry = Retry { tries_max: 1, ..Retry::PATIENT };

const LOTUS_LITERAL: System = System {
    name: "LOTUS, literal",
    about: "the paper's text; a table on one node",
    protocol: "lotus",
    variant: "literal",
    charges: &[],
    retry: DROPPED,
    timestamps: Source::Service,
    is_routed: true,
    version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
    read_lease_ns: 0,
};
const LOTUS: System = System {
    name: "LOTUS",
    about: "corrected; a table on one node",
    variant: "corrected",
    ..LOTUS_LITERAL
};
const LOTUS_BEST: System = System {
    name: "LOTUS, hash placement",
    about: "corrected; records spread by hash",
    retry: Retry::PATIENT,
    ..LOTUS
};
const MOTOR: System = System {
    name: "Motor",
    about: "as its public code; a table on one node",
    protocol: "motor",
    variant: "measured",
    charges: &[],
    retry: DROPPED,
    timestamps: Source::Counter,
    is_routed: false,
    version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
    read_lease_ns: 0,
};
const MOTOR_BEST: System = System {
    name: "Motor, corrected, hash placement",
    about: "corrected; records spread by hash",
    variant: "corrected",
    retry: Retry::PATIENT,
    timestamps: Source::Service,
    ..MOTOR
};
const FORD: System = System {
    name: "FORD",
    about: "as its public code; a table on one node",
    protocol: "ford",
    ..MOTOR
};
const FORD_BEST: System = System {
    name: "FORD, corrected, hash placement",
    about: "corrected, our buckets; records spread by hash",
    variant: "corrected",
    retry: Retry::PATIENT,
    ..FORD
};

impl Who {
    /// All of them.
    pub(super) const ALL: [Who; 3] = [Who::Lotus, Who::Motor, Who::Ford];

    /// The protocol's name.
    pub(super) fn protocol(self) -> &'static str {
        self.system(Form::Corrected).protocol
    }

    /// This system in a form.
    pub fn system(self, form: Form) -> System {
        match (self, form) {
            (Who::Lotus, Form::Literal) => LOTUS_LITERAL,
            (Who::Lotus, Form::Corrected) => LOTUS,
            (Who::Lotus, Form::Best) => LOTUS_BEST,
            (Who::Motor, Form::Literal | Form::Corrected) => MOTOR,
            (Who::Motor, Form::Best) => MOTOR_BEST,
            (Who::Ford, Form::Literal | Form::Corrected) => FORD,
            (Who::Ford, Form::Best) => FORD_BEST,
        }
    }

    /// How it lays a benchmark's tables out.
    pub fn layout(self, form: Form, kind: Kind) -> Layout {
        let layout = match (self, form, kind) {
            (_, Form::Best, _) => SPREAD,
            (Who::Ford, _, Kind::SmallBank) => FORD_STOCK,
            (Who::Ford, _, Kind::Kvs) => FORD_KVS,
            (Who::Ford, _, Kind::Tatp) => FORD_TATP,
            (Who::Ford, ..) => FORD_SIZED,
            (Who::Motor, ..) => MOTOR_TABLES,
            (Who::Lotus, ..) => BY_TABLE,
        };
        // Only of KVS does the paper say how much ran before.
        let warmth = (kind == Kind::Kvs).then(|| self.remembers(kind));
        Layout { warmth, ..layout }
    }

    /// Who remembers addresses: "each CN maintains an address cache" (LOTUS, §5); each thread in the public code of
    /// the others. None is bounded. As after half of a run.
    pub(super) fn remembers(self, kind: Kind) -> Warmth {
        let (transactions, records) = match kind {
            Kind::Kvs => KVS_RUN,
            Kind::Tatp => TATP_RUN,
            Kind::Tpcc => TPCC_RUN,
            Kind::SmallBank => BANK_RUN,
            Kind::Ycsb | Kind::TaoBench => unreachable!("no benchmark of LOTUS's evaluation"),
        };
        let transactions_per_record = transactions / 2.0 / records;
        Warmth { by_node: self == Who::Lotus, transactions_per_record }
    }
}

/// Whether a system's histories and memory must be sound: what keeps to the text of a paper, or to public
/// code, may have its holes, which are shown and are no failure of ours.
pub fn must_be_sound(system: &System) -> bool {
    system.variant.starts_with("corrected")
        || (system.protocol == FORD.protocol && system.variant == FORD.variant)
}

/// Transactions of a whole run, and records: half of them have run at half time. "100–200M transactions" in 10 s of
/// KVS, on 20 M records (§8.1, §8.2).
const KVS_RUN: (f64, f64) = (150e6, 20e6);
/// Of the others, if anything is supposed to have run: so many tries of each of 90 threads in the public code of FORD and
/// Motor (`config`, `attempted_num`).
const BANK_RUN: (f64, f64) = (90.0 * 1e6, 40e6);
/// As of SmallBank; 3 M subscribers have 10.75 records each.
const TATP_RUN: (f64, f64) = (90.0 * 1e6, 32e6);
/// 50,000 of TPC-C; a warehouse of 300 customers a district and 10,000 items, as there, has 50,000 records.
const TPCC_RUN: (f64, f64) = (90.0 * 50e3, 5.25e6);

/// FORD's hash node: 22 items of 64 bytes, read whole.
const FORD_BUCKET: BucketShape = BucketShape { slots: 22, slot_bytes_min: 64, read_whole: true };
/// "A few consecutive CVTs" (LOTUS, §5.1), which a look-up reads whole: taken for eight, in Motor, too, whose index LOTUS
/// has ("following previous studies", §7.1).
const CVT_BUCKET: BucketShape = BucketShape { slots: 8, slot_bytes_min: 0, read_whole: true };

/// 200,000 buckets for 20 M accounts, as in FORD's public code for this benchmark.
const FORD_STOCK: Layout = Layout {
    name: "FORD's buckets in their stock number, a table on one node",
    placement: Placement::Table,
    bucket: FORD_BUCKET,
    slots_per_100_records: 22,
    address_cache_entries: 0,
    warmth: None,
    versions: 2,
};
const FORD_SIZED: Layout = Layout {
    name: "FORD's buckets, half in use, a table on one node",
    slots_per_100_records: 200,
    ..FORD_STOCK
};
/// An item of FORD's has room for the benchmark's largest value (`core/flags.h`, `MAX_ITEM_SIZE`), whatever its table: 96
/// bytes for 40, in slots of whole lines: 33 of 64 for 22.
const FORD_TATP: Layout = Layout { bucket: BucketShape { slots: 33, ..FORD_BUCKET }, ..FORD_SIZED };
/// 200,000 buckets in FORD's public code (`workload/micro`), for 20 M pairs, as on SmallBank.
const FORD_KVS: Layout = Layout { bucket: FORD_TATP.bucket, ..FORD_STOCK };
/// A table of two versions is 112 bytes in Motor's public code; a slot is whole lines.
const MOTOR_TABLES: Layout =
    Layout { bucket: BucketShape { slot_bytes_min: 112, ..CVT_BUCKET }, ..BY_TABLE };
const BY_TABLE: Layout = Layout {
    name: "buckets of eight read whole, a table on one node",
    bucket: CVT_BUCKET,
    ..FORD_SIZED
};
const SPREAD: Layout = Layout {
    name: "bins of two slots, records spread by hash",
    placement: Placement::Hash,
    bucket: BucketShape { slots: 8, slot_bytes_min: 0, read_whole: false },
    ..FORD_SIZED
};

/// What the paper leaves open and this page decides.
pub const ASSUMED: &[&str] = &[
    "a table lies on one memory node, KVS's only one, too (FORD's and Motor's public code, `LoadTable`; taken for LOTUS as \
     well)",
    "a look-up of LOTUS's and Motor's reads a bucket of eight slots whole (the paper: \"a few consecutive CVTs\", in an index \
     \"following previous studies\"; Motor's public code, `SLOT_NUM`, has one on KVS, SmallBank and TATP's subscribers, \
     five on TATP's others, 1 to 15 on TPC-C). A slot is whole lines: 128 bytes for both, where a table of two versions \
     has 72 in LOTUS (64 K of them are 4.5 MB) and 112 in Motor's public code",
    "FORD has 200,000 buckets for 20 M accounts on SmallBank and for 20 M pairs on KVS, the numbers of its public code; on the \
     others, where that has 12,500 for subscribers, too few for 3 M, half of all slots are in use. A benchmark's items are as large as its largest there (`MAX_ITEM_SIZE`): 96 bytes on KVS and \
     TATP, of which 22 are 33 slots of 64 here; on TPC-C 720, which ours are not",
    "KVS: addresses are remembered, without bound, by node in LOTUS (its section 5) and by thread in FORD and Motor \
     (their public code), as after half of \"100–200M transactions\" on 20 M records. On the others they are not: \
     nothing is said of how much ran",
    "TPC-C's transactions are those of FORD's and Motor's public code, but for what needs an order, which ours look for in \
     ordered indexes: its largest record is the paper's",
    "timestamps: LOTUS asks a service on a node of its own, with as many cores as the others; Motor as measured has a \
     free counter (its public code counts in each process), corrected it asks the service; FORD takes none",
    "read-write transactions of LOTUS come to the owner of their first record's shard, others anywhere, in no time; \
     shards stay where they are",
    "an aborted transaction is dropped and another one drawn (FORD's and Motor's public code; taken for LOTUS \
     as well); in the best forms it is tried until it commits",
];

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_engine::protocol::AnyProtocol;

    #[test]
    fn systems_have_names_of_their_own_and_only_those_that_are_measured_may_be_unsound() {
        let mut seen: Vec<System> = Vec::new();
        for who in Who::ALL {
            for form in Form::ALL {
                let system = who.system(form);
                assert!(seen.iter().all(|it| it.name != system.name || *it == system));
                assert!(form != Form::Best || must_be_sound(&system), "{}", system.name);
                seen.push(system);
            }
        }
        assert!(!must_be_sound(&LOTUS_LITERAL) && !must_be_sound(&MOTOR) && must_be_sound(&FORD));
        assert!(AnyProtocol::by_name(FORD.protocol, FORD.variant).is_ok());
    }
}
