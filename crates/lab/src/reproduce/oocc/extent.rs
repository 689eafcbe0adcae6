//! How much of the page is run: sizes of databases, lengths of points, numbers of coordinators.
//!
//! Invariant: what is smaller than published is said on the page, whichever extent it is.

use crate::reproduce::Scale;
use crate::reproduce::paper::case::{Bench, Kind};
use crate::reproduce::paper::{Portion, QUICK};
use serde::Serialize;

/// See the module's text.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Extent {
    /// Length of points, and coordinators of those whose best is looked for.
    pub scale: Scale,
    /// Coordinators where one curve of several is looked at: beside others of its kind the best number moves little.
    pub few_coordinators: Vec<usize>,
    /// Of YCSB; the paper does not say.
    pub records: u64,
    /// Of TAOBench, of which objects are twice as many; published 500 K.
    pub edges: u64,
    /// Of TATP; the paper does not say.
    pub subscribers: u64,
    /// TPC-C's profile, which decides how large a warehouse is.
    pub tpcc_mix: &'static str,
    /// Of TPC-C.
    pub warehouses: u64,
    /// Coordinators of TPC-C.
    pub tpcc_coordinators: Vec<usize>,
    /// Virtual milliseconds of its points that are counted.
    pub tpcc_ms: f64,
    /// Virtual milliseconds of its series before the first point.
    pub tpcc_soak_ms: f64,
    /// Percent of transactions that write, from fewest to most.
    pub writes: Vec<u32>,
    /// Skews, from least to most.
    pub skews: Vec<f64>,
    /// Bytes of a record, from fewest to most.
    pub lengths: Vec<u16>,
}

/// Of the figures that compare many forms of the same.
const MOST_SKEWED: f64 = 0.99;

/// Of every point: two of the longest leases that anybody has, which are DrTM's (400 µs). What a point before it has left is over then.
const WARM_UP_MS: f64 = 0.8;
/// Of a series of a tenth of the records: until whoever reads has had nearly all of them, some of whose LOCK words remember that
/// (DrTM's leases, which nobody gives back).
const SOAK_MS: f64 = 6.0;

impl Portion for Extent {
    /// As published, where it is said.
    fn full() -> Extent {
        Extent {
            scale: Scale {
                name: "full",
                sizes: Vec::new(),
                virtual_ms: 2.0,
                warm_up_ms: WARM_UP_MS,
                soak_ms: SOAK_MS * 10.0,
                coordinators: vec![8, 32, 64, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1536],
            },
            few_coordinators: vec![64, 128, 224, 256, 320, 512],
            records: 1_000_000,
            edges: 500_000,
            subscribers: 100_000,
            tpcc_mix: "oocc",
            warehouses: 8,
            tpcc_coordinators: vec![32],
            tpcc_ms: 40.0,
            tpcc_soak_ms: 40.0,
            writes: vec![0, 5, 10, 15, 20],
            skews: vec![0.6, 0.7, 0.8, 0.9, MOST_SKEWED],
            lengths: vec![8, 64, 256, 512, 1024],
        }
    }

    fn quick() -> Extent {
        Extent {
            scale: Scale {
                name: QUICK,
                sizes: Vec::new(),
                virtual_ms: 1.0,
                warm_up_ms: WARM_UP_MS,
                soak_ms: SOAK_MS,
                coordinators: vec![8, 128, 160, 192, 224, 256, 320, 512],
            },
            few_coordinators: vec![128, 224, 256],
            records: 100_000,
            edges: 20_000,
            subscribers: 20_000,
            tpcc_mix: "lotus-code",
            tpcc_ms: 20.0,
            tpcc_soak_ms: 10.0,
            writes: vec![0, 5, 20],
            skews: vec![MOST_SKEWED],
            lengths: vec![8, 256, 1024],
            ..Extent::full()
        }
    }

    fn scale(&self) -> &Scale {
        &self.scale
    }

    fn scale_of(&self, kind: Kind) -> Scale {
        let mut scale = self.scale.clone();
        if kind == Kind::Tpcc {
            (scale.soak_ms, scale.virtual_ms) = (self.tpcc_soak_ms, self.tpcc_ms);
        }
        scale
    }

    fn scaled_down(&self) -> Vec<String> {
        let full = Extent::full();
        let mut said = Vec::new();
        let mut less = |what: &str, is: u64, whole: u64| {
            if is < whole {
                said.push(format!("{is} {what} instead of {whole}"));
            }
        };
        less("records of YCSB", self.records, full.records);
        less("edges of TAOBench", self.edges, full.edges);
        less("subscribers of TATP", self.subscribers, full.subscribers);
        if self.tpcc_mix != full.tpcc_mix {
            said.push(format!(
                "TPC-C as its profile {} instead of {}",
                self.tpcc_mix, full.tpcc_mix
            ));
        }
        said.push(format!(
            "points of {} ms of virtual time, TPC-C's of {}; how long the paper's are it does not say",
            self.scale.virtual_ms, self.tpcc_ms
        ));
        said
    }
}

impl Extent {
    /// The most skewed of all.
    pub const MOST_SKEWED: f64 = MOST_SKEWED;

    /// How many at once, a point each.
    pub fn coordinators(&self) -> &[usize] {
        &self.scale.coordinators
    }

    /// YCSB, of which so many percent of the transactions write.
    pub fn ycsb(&self, zipf: f64, updates: u32) -> Bench {
        let (zipf, updates) = (Some(zipf), Some(updates));
        Bench { zipf, updates, ..Bench::new(Kind::Ycsb, "oocc-ri", self.records) }
    }

    /// With records of so many bytes.
    pub fn ycsb_of_bytes(&self, bytes: u16) -> Bench {
        Bench { record_bytes: Some(bytes), ..self.ycsb(0.0, 10) }
    }

    /// With keys that others tell; one transaction of twenty writes.
    pub fn ycsb_unknown(&self) -> Bench {
        Bench { mix: "oocc-unknown", ..self.ycsb(0.0, 5) }
    }

    /// TAOBench as published.
    pub fn tao(&self) -> Bench {
        Bench::new(Kind::TaoBench, "oocc", self.edges)
    }

    /// TATP as published.
    pub fn tatp(&self) -> Bench {
        Bench::new(Kind::Tatp, "oocc", self.subscribers)
    }

    /// TPC-C as published.
    pub fn tpcc(&self) -> Bench {
        Bench::new(Kind::Tpcc, self.tpcc_mix, self.warehouses)
    }
}
