//! How much of a page is run: sizes of databases, lengths of points, numbers of coordinators.
//!
//! Invariant: what is smaller than published is said on the page, whichever extent it is.

use super::case::{Bench, Kind};
use crate::reproduce::Scale;
use serde::Serialize;

/// The name of a smoke run's scale.
pub const QUICK: &str = "quick";

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
                coordinators,
            },
            accounts: 20_000_000,
            subscribers: 3_000_000,
            warehouses: 105,
            tpcc_mix: "crest",
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
                coordinators,
            },
            accounts: 100_000,
            subscribers: 20_000,
            warehouses: 9,
            tpcc_mix: "tiny",
            fewer_warehouses: vec![9, 3],
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
            "crest" => Some("300 customers a district and 10,000 items"),
            "tiny" => Some("30 customers a district and 100 items"),
            _ => None,
        };
        said.extend(customers.map(|it| format!("{it} instead of 3,000 and 100,000")));
        said.push(format!(
            "points of {} ms of virtual time instead of 10 s",
            self.scale.virtual_ms
        ));
        said
    }

    /// SmallBank as published.
    pub fn bank(&self) -> Bench {
        bench(Kind::SmallBank, "lotus", self.accounts)
    }

    /// TATP as published.
    pub fn tatp(&self) -> Bench {
        bench(Kind::Tatp, "lotus", self.subscribers)
    }

    /// TPC-C of so many warehouses.
    pub fn tpcc_of(&self, warehouses: u64) -> Bench {
        bench(Kind::Tpcc, self.tpcc_mix, warehouses)
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
        Bench { zipf, updates, ..bench(Kind::Kvs, "lotus-uniform", self.pairs) }
    }
}

fn bench(kind: Kind, mix: &'static str, records: u64) -> Bench {
    Bench { kind, mix, records, zipf: None, updates: None, critical: None }
}
