//! How much of a page is run: sizes of databases, lengths of points, numbers of coordinators.
//!
//! Invariant: what is smaller than published is said on the page, whichever extent it is.

use crate::reproduce::Scale;
use crate::reproduce::paper::case::{Bench, Kind};
use crate::reproduce::paper::{Portion, QUICK};
use serde::Serialize;

/// TPC-C as the systems' public code has it: the paper's largest record, 672 bytes, is its customer.
const TPCC_MIX: &str = "lotus-code";

/// See the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Extent {
    /// Length and coordinators of points.
    pub scale: Scale,
    /// Of SmallBank; published 20 M.
    pub accounts: u64,
    /// Of TATP; published 3 M.
    pub subscribers: u64,
    /// Of TPC-C; published 105.
    pub warehouses: u64,
    /// Its profile, which decides how large a warehouse is.
    pub tpcc_mix: &'static str,
    /// Coordinators of its points: as many a warehouse as published, whatever the number of warehouses.
    pub tpcc_coordinators: Vec<usize>,
    /// Virtual milliseconds of its points: before counting, and counted. Its transactions are longer.
    pub tpcc_ms: (f64, f64),
    /// Fewer warehouses, for contention: from most to fewest.
    pub fewer_warehouses: Vec<u64>,
    /// Of KVS; published 20 M.
    pub pairs: u64,
    /// Percent of updates of KVS.
    pub updates: Vec<u32>,
    /// Of the crash: threads of a compute node and coordinators of each.
    pub crash_threads: (usize, usize),
}

impl Extent {
    /// 9 to 90 threads of one coroutine, then up to six of each; sizes as published where this machine's
    /// memory allows: of KVS, beside the addresses that nine nodes remember.
    pub fn full() -> Extent {
        let coordinators = vec![9, 18, 27, 36, 45, 63, 90, 135, 180, 270, 360, 540];
        Extent {
            scale: Scale {
                name: "full",
                sizes: Vec::new(),
                virtual_ms: 20.0,
                warm_up_ms: 4.0,
                soak_ms: 0.0,
                coordinators,
            },
            accounts: 20_000_000,
            subscribers: 3_000_000,
            warehouses: 105,
            tpcc_mix: TPCC_MIX,
            tpcc_coordinators: vec![9, 45, 90, 135, 270, 540],
            tpcc_ms: (5.0, 40.0),
            fewer_warehouses: vec![105, 80, 60, 40, 20],
            pairs: 1_000_000,
            updates: vec![0, 20, 40, 60, 80, 100],
            crash_threads: (10, 6),
        }
    }

    /// In some minutes. A transaction of 540 at once takes up to a millisecond, so that no point is shorter than some.
    pub fn quick() -> Extent {
        let coordinators = vec![9, 45, 180, 540];
        Extent {
            scale: Scale {
                name: QUICK,
                sizes: Vec::new(),
                virtual_ms: 2.0,
                warm_up_ms: 1.0,
                soak_ms: 0.0,
                coordinators,
            },
            accounts: 100_000,
            subscribers: 20_000,
            warehouses: 18,
            tpcc_mix: TPCC_MIX,
            tpcc_coordinators: vec![18, 90],
            tpcc_ms: (1.0, 5.0),
            fewer_warehouses: vec![18, 6],
            pairs: 100_000,
            updates: vec![0, 100],
            crash_threads: (2, 2),
        }
    }

    /// What is smaller than published, in words.
    pub fn scaled_down(&self) -> Vec<String> {
        let mut said = Vec::new();
        let mut less = |what: &str, is: u64, published: u64| {
            if is < published {
                said.push(format!("{is} {what} instead of {published}"));
            }
        };
        less("accounts of SmallBank", self.accounts, 20_000_000);
        less("subscribers of TATP", self.subscribers, 3_000_000);
        less("warehouses of TPC-C", self.warehouses, 105);
        less("pairs of KVS", self.pairs, 20_000_000);
        let customers = match self.tpcc_mix {
            "tiny" => Some("30 customers a district and 100 items"),
            TPCC_MIX => Some("30 customers a district and 1,000 items"),
            _ => None,
        };
        said.extend(customers.map(|it| {
            format!("{it} instead of 3,000 and 100,000 (Motor's public code: 300 and 10,000)")
        }));
        let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
        let (tpcc, others) = (most(&self.tpcc_coordinators), most(&self.scale.coordinators));
        if tpcc < others {
            said.push(format!(
                "{tpcc} transactions at once of TPC-C instead of 540: {:.1} a warehouse instead of 5.1",
                tpcc as f64 / self.warehouses as f64
            ));
        }
        said.push(format!(
            "points of {} ms of virtual time, TPC-C's of {}, instead of 10 s",
            self.scale.virtual_ms, self.tpcc_ms.1
        ));
        said
    }

    /// How many at once, a point each.
    pub fn coordinators(&self, kind: Kind) -> &[usize] {
        match kind {
            Kind::Tpcc => &self.tpcc_coordinators,
            _ => &self.scale.coordinators,
        }
    }

    /// The most at once alone.
    pub fn most(&self, kind: Kind) -> Vec<usize> {
        self.coordinators(kind).iter().copied().max().into_iter().collect()
    }

    /// The length of a benchmark's points.
    pub fn scale_of(&self, kind: Kind) -> Scale {
        let mut scale = self.scale.clone();
        if kind == Kind::Tpcc {
            (scale.warm_up_ms, scale.virtual_ms) = self.tpcc_ms;
        }
        scale
    }

    /// SmallBank as published.
    pub fn bank(&self) -> Bench {
        Bench::new(Kind::SmallBank, "lotus", self.accounts)
    }

    /// TATP as published.
    pub fn tatp(&self) -> Bench {
        Bench::new(Kind::Tatp, "lotus", self.subscribers)
    }

    /// TPC-C of so many warehouses.
    pub fn tpcc_of(&self, warehouses: u64) -> Bench {
        Bench::new(Kind::Tpcc, self.tpcc_mix, warehouses)
    }

    /// TPC-C as published.
    pub fn tpcc(&self) -> Bench {
        self.tpcc_of(self.warehouses)
    }

    /// The three of them, in the paper's order.
    pub fn benchmarks(&self) -> [Bench; 3] {
        [self.tatp(), self.tpcc(), self.bank()]
    }

    /// KVS with this skew and share of updates.
    pub fn kvs(&self, zipf: f64, updates: u32) -> Bench {
        let (zipf, updates) = (Some(zipf), Some(updates));
        Bench { zipf, updates, ..Bench::new(Kind::Kvs, "lotus-uniform", self.pairs) }
    }
}

impl Portion for Extent {
    fn full() -> Extent {
        Extent::full()
    }

    fn quick() -> Extent {
        Extent::quick()
    }

    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn scale_of(&self, kind: Kind) -> Scale {
        Extent::scale_of(self, kind)
    }

    fn scaled_down(&self) -> Vec<String> {
        Extent::scaled_down(self)
    }
}
