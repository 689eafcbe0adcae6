//! Every figure of OOCC's evaluation that is held against a simulated one: one list, by the paper's figure.
//!
//! All values are said in its text; none was read off a plot. A range over workloads and systems is two figures, its lowest
//! and its highest; a trend is a bound on a ratio. What is said to be the same (×1) has no winner.
//!
//! Invariant: each stands here once, and every page has each once.

use crate::reproduce::paper::target::{Target, Unit, stated};
use crate::reproduce::row::Relation::{Above, Below};
use Unit::{CutPercent, GainPercent, Of, Times};

const COSTS: (&str, &str) = ("Table I", "read-only");
const TABLE: &str = "table I";
const S7: &str = "section VII-A";
const C: &str = "section VIII-C";
const D: &str = "section VIII-D";
const E: &str = "section VIII-E";
const F: &str = "section VIII-F";
const G: &str = "section VIII-G";

const ROUNDS: Unit = Of("round trips");
const A_RECORD: Unit = Of("a record");
const MTXN: Unit = Of("M transactions/s");
/// A factor that is said to be one.
const SAME: Unit = Of("×, the same");

/// What a read-only transaction costs.
pub const COST: &[Target] = &[
    stated(COSTS, "OCC's round trips", ROUNDS, 2.0, TABLE).of_baselines(),
    stated(COSTS, "OCC's READs", A_RECORD, 2.0, TABLE).of_baselines(),
    stated(COSTS, "2PL's round trips over OOCC's", SAME, 1.0, TABLE).of_baselines(),
    stated(COSTS, "2PL's atomics", A_RECORD, 2.0, TABLE).of_baselines(),
    stated(COSTS, "2PL's READs", A_RECORD, 1.0, TABLE).of_baselines(),
    stated(COSTS, "OOCC's round trips", ROUNDS, 1.0, TABLE),
    stated(COSTS, "OOCC's READs", A_RECORD, 1.0, TABLE),
];

const READ_ONLY: (&str, &str) = ("Figure 10", "YCSB, read-only, uniform");
const ALL_THREE: (&str, &str) = ("Figure 10", "YCSB read-intensive, TAOBench, TATP");
const READ_INTENSIVE: (&str, &str) = ("Figure 10", "YCSB, read-intensive, uniform");
const TATP: (&str, &str) = ("Figure 10", "TATP");

/// Where most transactions read.
pub const READ_HEAVY: &[Target] = &[
    stated(READ_ONLY, "OOCC's throughput", MTXN, 41.0, C),
    stated(READ_ONLY, "throughput over OCC's", Times, 2.0, C).within(0.15),
    stated(READ_ONLY, "throughput over DrTM's", Times, 3.3, C),
    stated(READ_ONLY, "throughput over DSLR's", Times, 2.8, C),
    stated(READ_ONLY, "median latency below OCC's", CutPercent, 40.0, C),
    stated(READ_ONLY, "median latency below DrTM's", CutPercent, 70.6, C),
    stated(READ_ONLY, "median latency below DSLR's", CutPercent, 60.0, C),
    stated(ALL_THREE, "throughput over the others', lowest", Times, 1.2, C),
    stated(ALL_THREE, "throughput over the others', highest", Times, 4.0, C),
    stated(ALL_THREE, "median or 99th percentile below the others', lowest", CutPercent, 39.0, C),
    stated(ALL_THREE, "median or 99th percentile below the others', highest", CutPercent, 87.0, C),
    stated(READ_INTENSIVE, "99th percentile over OCC's", Times, 1.0, C).bound(Below),
    stated(READ_INTENSIVE, "OCC's 99th percentile over DrTM's", Times, 1.0, C)
        .bound(Below)
        .of_baselines(),
    stated(READ_INTENSIVE, "OCC's 99th percentile over DSLR's", Times, 1.0, C)
        .bound(Below)
        .of_baselines(),
    stated(TATP, "median latency over DrTM's", Times, 1.0, C).bound(Below),
    stated(TATP, "DrTM's median latency over OCC's", Times, 1.0, C).bound(Below).of_baselines(),
];

const UNKNOWN: (&str, &str) = ("Section VIII-C", "YCSB, half of the keys unknown");

/// What is read decides about what is read next.
pub const UNKNOWN_KEYS: &[Target] = &[
    stated(UNKNOWN, "throughput over OCC's", Times, 1.7, C),
    stated(UNKNOWN, "throughput over DrTM's", Times, 2.3, C),
    stated(UNKNOWN, "throughput over DSLR's", Times, 2.1, C),
    stated(UNKNOWN, "median latency over the lowest of the others", Times, 1.0, C).bound(Below),
    stated(UNKNOWN, "99th percentile over the lowest of the others", Times, 1.0, C).bound(Below),
];

const SKEWED_READS: (&str, &str) = ("Figure 11", "YCSB, Zipf .99, read-only");
const SKEWED_FEW: (&str, &str) = ("Figure 11", "YCSB, Zipf .99, 5 % write");
const SKEWED: (&str, &str) = ("Figure 11", "YCSB, Zipf .99, read-intensive");

/// From OCC to OOCC in three steps.
pub const ABLATION: &[Target] = &[
    stated(SKEWED_READS, "+ lease over OCC", Times, 1.46, D),
    stated(SKEWED_FEW, "+ lease over OCC", SAME, 1.0, D),
    stated(SKEWED_FEW, "+ write unlock over + lease", Times, 1.2, D),
    stated(SKEWED_FEW, "+ delayed lock over + write unlock", Times, 1.1, D),
    stated(SKEWED, "+ lease over OCC", Times, 1.28, D),
    stated(SKEWED, "+ write unlock over + lease", GainPercent, 5.0, D),
    stated(SKEWED, "aborted tries with + lease", Of("%"), 70.0, D),
    stated(SKEWED, "aborted tries with + lease below OCC's", CutPercent, 10.0, D),
    stated(SKEWED, "aborted tries with + delayed lock below OCC's", CutPercent, 17.0, D),
];

const TPCC: (&str, &str) = ("Figure 12", "TPC-C");
const PARTS: (&str, &str) = ("Figure 12d", "TPC-C");
const PER_S: Unit = Of("K transactions/s");

/// Where most transactions write.
pub const ORDERS: &[Target] = &[
    stated(TPCC, "throughput over OCC's", Times, 1.1, E),
    stated(TPCC, "throughput over DrTM's", Times, 3.1, E),
    stated(TPCC, "throughput below DSLR's", CutPercent, 30.0, E),
    stated(TPCC, "median latency below DSLR's", CutPercent, 40.0, E),
    stated(TPCC, "median latency over the lowest of the others", Times, 1.0, E).bound(Below),
    stated(PARTS, "Order-Status over OCC's", Times, 1.3, E),
    stated(PARTS, "Order-Status over DrTM's", Times, 1.6, E),
    stated(PARTS, "Order-Status over DSLR's", Times, 1.8, E),
    stated(PARTS, "New-Order over OCC's", Times, 1.2, E),
    stated(PARTS, "New-Order over DrTM's", Times, 15.3, E),
    stated(PARTS, "New-Order over DSLR's", Times, 1.52, E),
    stated(PARTS, "Delivery over OCC's", Times, 1.1, E),
    stated(PARTS, "Delivery over DrTM's", Times, 4.6, E),
    stated(PARTS, "Delivery over DSLR's", Times, 1.46, E),
    stated(PARTS, "Order-Status", PER_S, 282.0, E),
    stated(PARTS, "Payment", PER_S, 1.5, E),
    stated(PARTS, "Payment over DSLR's", Times, 0.5, E),
];

const LEASES: (&str, &str) = ("Figure 13", "YCSB, Zipf .99");
const ADJUSTED: (&str, &str) = ("Section VII", "YCSB");

/// Longer leases.
pub const LEASE: &[Target] = &[
    stated(LEASES, "4 µs over OCC", SAME, 1.0, F),
    stated(LEASES, "7 µs over OCC, lowest of all write ratios", Times, 1.0, F).bound(Above),
    stated(LEASES, "10 µs over OCC, lowest of all write ratios", Times, 1.0, F).bound(Above),
    stated(LEASES, "what most writes leave of 14 µs over the same of 4 µs", Times, 1.0, F)
        .bound(Below),
    stated(LEASES, "99th percentile at 7 µs over OCC's, most writes", Times, 1.0, F).bound(Below),
    stated(LEASES, "4 µs raised at run time, highest gain", Times, 1.5, F),
    stated(ADJUSTED, "time of a change", Of("µs"), 20.0, S7),
    stated(ADJUSTED, "read-only transactions without validation", Of("%"), 80.0, S7).bound(Above),
];

const OFFSETS: (&str, &str) = ("Figure 14a", "YCSB, read-intensive");
const LENGTHS: (&str, &str) = ("Figure 14b", "YCSB, read-intensive");

/// What clocks are believed, and longer records.
pub const BOUNDS: &[Target] = &[
    stated(OFFSETS, "offset of 0.5 µs over none", SAME, 1.0, G),
    stated(OFFSETS, "offset of 1 µs over none", SAME, 1.0, G),
    stated(OFFSETS, "offset of 1.5 µs below none", CutPercent, 10.0, G),
    stated(LENGTHS, "records of 256 B over 8 B", SAME, 1.0, G),
    stated(LENGTHS, "records of 1024 B over 8 B", Times, 1.0, G).bound(Below),
];
