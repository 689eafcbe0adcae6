//! Every figure of LOTUS's evaluation that is held against a simulated one: one list, by the paper's figure.
//!
//! Zhisheng Hu, Pengfei Zuo, Junliang Hu, Yizou Chen, Yingjia Wang, Ming-Chang Yang, "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks". All values are said in its text; none was read off
//! a plot. A range over ratios or workloads is two figures, its lowest and its highest.
//!
//! Invariant: each stands here once, and every page has each once.

use crate::reproduce::paper::target::{Target, Unit, stated};
use crate::reproduce::row::Relation::{Above, Below};
use Unit::{CutPercent, GainPercent, Of, Times};

const TATP: &str = "TATP";
const TPCC: &str = "TPC-C";
const BANK: &str = "SmallBank";
const ALL_THREE: &str = "TATP, TPC-C, SmallBank";

const S22: &str = "section 2.2";
const S23: &str = "section 2.3";
const S43: &str = "section 4.3";
const S82: &str = "section 8.2";
const S83: &str = "section 8.3";
const S84: &str = "section 8.4";
const S85: &str = "section 8.5";

/// What one NIC answers.
pub const NIC: &[Target] = &[
    stated(("Section 2.2", "one NIC"), "inbound WRITE of 8 B", Of("M/s"), 35.0, S22).of_baselines(),
    stated(("Section 2.2", "one NIC"), "inbound CAS of 8 B", Of("M/s"), 2.5, S22).of_baselines(),
];

const COORDINATORS: Unit = Of("concurrent transactions");
const MTXN: Unit = Of("M transactions/s");

/// Saturation, and what CAS costs.
pub const CAS: &[Target] = &[
    stated(("Figure 2", BANK), "Motor saturates at", COORDINATORS, 45.0, S22).of_baselines(),
    stated(("Figure 2", BANK), "FORD saturates at", COORDINATORS, 45.0, S22).of_baselines(),
    stated(("Figure 2", BANK), "Motor's peak", MTXN, 1.08, "section 2.3: 2.6 M over 2.4")
        .derived()
        .of_baselines(),
    stated(("Figure 3", BANK), "Motor without CAS", MTXN, 2.6, S23).of_baselines(),
    stated(("Figure 3", BANK), "Motor without CAS over its peak", Times, 2.4, S23).of_baselines(),
    stated(
        ("Figure 3", BANK),
        "FORD without CAS over its peak",
        Times,
        2.4,
        "section 2.3: smaller gains than Motor's, bound by bandwidth",
    )
    .bound(Below)
    .of_baselines(),
];

const MS: Unit = Of("ms");

/// How long a shard is served by nobody while it moves, and when it does.
pub const RESHARDING: &[Target] = &[
    stated(("Section 4.3", TATP), "interruption of a moving shard", MS, 0.19, S43),
    stated(("Section 4.3", TPCC), "interruption of a moving shard", MS, 0.86, S43),
    stated(("Section 4.3", BANK), "interruption of a moving shard", MS, 4.67, S43),
    stated(("Section 4.3", "policy"), "interval", MS, 100.0, S43),
    stated(
        ("Section 4.3", "policy"),
        "latency over the mean that counts as overload",
        GainPercent,
        50.0,
        S43,
    ),
    stated(("Section 4.3", "policy"), "intervals in a row", Of("intervals"), 3.0, S43),
    stated(
        ("Section 4.3", "policy"),
        "wait before running transactions are aborted",
        MS,
        10.0,
        S43,
    ),
];

const SKEWED: (&str, &str) = ("Figure 12", "KVS, Zipf .99");
const UNIFORM: (&str, &str) = ("Figure 12", "KVS, uniform");

/// One record a transaction, at all ratios of updates.
pub const KVS: &[Target] = &[
    stated(SKEWED, "throughput over Motor's, lowest of all ratios", Times, 1.6, S82),
    stated(SKEWED, "throughput over Motor's, highest of all ratios", Times, 2.9, S82),
    stated(SKEWED, "throughput over FORD's, lowest of all ratios", Times, 3.5, S82),
    stated(SKEWED, "throughput over FORD's, highest of all ratios", Times, 5.3, S82),
    stated(SKEWED, "median latency below Motor's, lowest of all ratios", CutPercent, 44.0, S82),
    stated(SKEWED, "median latency below Motor's, highest of all ratios", CutPercent, 64.0, S82),
    stated(SKEWED, "median latency below FORD's, lowest of all ratios", CutPercent, 66.0, S82),
    stated(SKEWED, "median latency below FORD's, highest of all ratios", CutPercent, 83.0, S82),
    stated(UNIFORM, "throughput over Motor's, lowest of all ratios", Times, 1.9, S82),
    stated(UNIFORM, "throughput over Motor's, highest of all ratios", Times, 2.3, S82),
    stated(UNIFORM, "throughput over FORD's, lowest of all ratios", Times, 3.1, S82),
    stated(UNIFORM, "throughput over FORD's, highest of all ratios", Times, 10.6, S82),
    stated(UNIFORM, "median latency below Motor's, lowest of all ratios", CutPercent, 40.0, S82),
    stated(UNIFORM, "median latency below Motor's, highest of all ratios", CutPercent, 66.0, S82),
    stated(UNIFORM, "median latency below FORD's, lowest of all ratios", CutPercent, 66.0, S82),
    stated(UNIFORM, "median latency below FORD's, highest of all ratios", CutPercent, 90.0, S82),
];

const ON_TATP: (&str, &str) = ("Figure 13", TATP);
const ON_TPCC: (&str, &str) = ("Figure 13", TPCC);
const ON_BANK: (&str, &str) = ("Figure 13", BANK);

/// Highest throughput, and latencies there.
pub const BENCHMARKS: &[Target] = &[
    stated(ON_TATP, "highest throughput over Motor's", Times, 1.3, S83),
    stated(ON_TATP, "median latency there below Motor's", CutPercent, 36.7, S83),
    stated(ON_TATP, "99th percentile there below Motor's", CutPercent, 10.4, S83),
    stated(ON_TATP, "highest throughput over FORD's", Times, 2.0, S83),
    stated(ON_TATP, "median latency there below FORD's", CutPercent, 42.5, S83),
    stated(ON_TATP, "99th percentile there below FORD's", CutPercent, 48.9, S83),
    stated(ON_TPCC, "highest throughput over Motor's", Times, 1.5, S83),
    stated(ON_TPCC, "median latency there below Motor's", CutPercent, -5.2, S83),
    stated(ON_TPCC, "99th percentile there below Motor's", CutPercent, 33.8, S83),
    stated(ON_TPCC, "highest throughput over FORD's", Times, 2.9, S83),
    stated(ON_TPCC, "median latency there below FORD's", CutPercent, 51.3, S83),
    stated(ON_TPCC, "99th percentile there below FORD's", CutPercent, 29.1, S83),
    stated(ON_BANK, "highest throughput over Motor's", Times, 2.1, S83).within(0.15),
    stated(ON_BANK, "median latency there below Motor's", CutPercent, 49.4, S83),
    stated(ON_BANK, "99th percentile there below Motor's", CutPercent, 28.5, S83),
    stated(ON_BANK, "highest throughput over FORD's", Times, 3.3, S83),
    stated(ON_BANK, "median latency there below FORD's", CutPercent, 68.5, S83),
    stated(ON_BANK, "99th percentile there below FORD's", CutPercent, 59.9, S83),
];

const STEPS_TATP: (&str, &str) = ("Figure 14", TATP);
const STEPS_TPCC: (&str, &str) = ("Figure 14", TPCC);
const STEPS_BANK: (&str, &str) = ("Figure 14", BANK);

/// From Motor to LOTUS, each step over the one before it.
pub const ABLATION: &[Target] = &[
    stated(STEPS_TATP, "throughput with full records", GainPercent, 9.0, S84),
    stated(STEPS_TPCC, "throughput with full records", GainPercent, 14.2, S84),
    stated(STEPS_BANK, "throughput with full records", GainPercent, 13.9, S84),
    stated(STEPS_TATP, "throughput with log and visible", GainPercent, -6.8, S84),
    stated(STEPS_TPCC, "throughput with log and visible", GainPercent, -1.1, S84),
    stated(STEPS_BANK, "throughput with log and visible", GainPercent, -8.9, S84),
    stated(STEPS_TATP, "throughput with lock sharding", GainPercent, -10.8, S84),
    stated(STEPS_TPCC, "throughput with lock sharding", GainPercent, 9.9, S84),
    stated(STEPS_BANK, "throughput with lock sharding", GainPercent, 29.7, S84),
    stated(STEPS_BANK, "99th percentile with lock sharding", GainPercent, 21.1, S84),
    stated(STEPS_TATP, "throughput with two-level load balancing", GainPercent, 25.7, S84),
    stated(STEPS_TPCC, "throughput with two-level load balancing", GainPercent, 8.4, S84),
    stated(STEPS_BANK, "throughput with two-level load balancing", GainPercent, 36.5, S84),
    stated(STEPS_TATP, "throughput with the version table cache", GainPercent, 5.9, S84),
    stated(STEPS_TPCC, "throughput with the version table cache", GainPercent, 7.6, S84),
    stated(STEPS_BANK, "throughput with the version table cache", GainPercent, 20.1, S84),
];

const CRASH: (&str, &str) = ("Figure 15", BANK);

/// Three of nine compute nodes crash.
pub const OUTAGE: &[Target] = &[
    stated(CRASH, "throughput before the crash", MTXN, 2.06, S84),
    stated(CRASH, "throughput after the crash", MTXN, 1.43, S84),
    stated(CRASH, "drop at the crash", CutPercent, 30.6, S84),
    stated(CRASH, "until throughput is back", MS, 233.0, S84),
];

/// What a memory node holds after a minute.
pub const MEMORY: &[Target] = &[
    stated(("Figure 16", TATP), "memory over Motor's", GainPercent, 10.3, S84),
    stated(("Figure 16", TPCC), "memory over Motor's", GainPercent, 4.7, S84),
    stated(("Figure 16", BANK), "memory over Motor's", GainPercent, 8.5, S84),
];

/// Counters of locks in compute nodes, told to the memory nodes by FAA.
pub const IDEAL_LOCK: &[Target] = &[
    stated(("Figure 17", ALL_THREE), "throughput over the ideal lock's, lowest", Times, 1.3, S84),
    stated(("Figure 17", ALL_THREE), "throughput over the ideal lock's, highest", Times, 1.9, S84),
];

/// A larger version table cache.
pub const CACHE: &[Target] = &[
    stated(("Figure 18", TATP), "hit rate, largest cache over smallest", Times, 1.0, S85)
        .bound(Above),
    stated(("Figure 18", TATP), "throughput, largest cache over smallest", Times, 1.0, S85)
        .bound(Above),
    stated(("Figure 18", TATP), "99th percentile, largest cache over smallest", Times, 1.0, S85)
        .bound(Below),
];

/// More versions of a record.
pub const VERSIONS: &[Target] = &[
    stated(("Figure 19", TATP), "LOTUS's throughput, most versions over fewest", Times, 1.0, S85)
        .bound(Below),
    stated(("Figure 19", TATP), "Motor's throughput, most versions over fewest", Times, 1.0, S85)
        .bound(Below)
        .of_baselines(),
    stated(("Figure 19", TATP), "throughput over Motor's, lowest", Times, 1.0, S85).bound(Above),
    stated(("Figure 20", TPCC), "LOTUS's peak is at", Of("versions"), 3.0, S85),
    stated(("Figure 20", TPCC), "Motor's peak is at", Of("versions"), 2.0, S85).of_baselines(),
    stated(("Figure 20", TPCC), "throughput over Motor's, lowest", Times, 1.0, S85).bound(Above),
    stated(("Figure 20", TPCC), "Stock-Levels aborted, fewest versions", Of("%"), 51.3, S85),
    stated(("Figure 20", TPCC), "Stock-Levels aborted, most versions", Of("%"), 4.4, S85),
];

/// Snapshot isolation.
pub const ISOLATION: &[Target] = &[
    stated(
        ("Figure 21", TPCC),
        "highest throughput, snapshot over serializable",
        GainPercent,
        9.3,
        S85,
    ),
    stated(("Figure 21", TPCC), "throughput over Motor's, serializable", Times, 1.0, S85)
        .bound(Above),
    stated(("Figure 21", TPCC), "throughput over Motor's, snapshot isolation", Times, 1.0, S85)
        .bound(Above),
];

/// Locks sharded by the warehouse, the district, the customer.
pub const CRITICAL_FIELD: &[Target] = &[
    stated(("Figure 22", TPCC), "throughput over Motor's, by W_ID", Times, 1.0, S85).bound(Above),
    stated(("Figure 22", TPCC), "throughput over Motor's, by D_ID", Times, 1.0, S85).bound(Above),
    stated(("Figure 22", TPCC), "throughput over Motor's, by C_ID", Times, 1.0, S85).bound(Above),
];

/// Fewer warehouses.
pub const CONTENTION: &[Target] = &[
    stated(
        ("Figure 23", TPCC),
        "LOTUS's aborted tries, fewest warehouses over most",
        Times,
        1.0,
        S85,
    )
    .bound(Above),
    stated(
        ("Figure 23", TPCC),
        "throughput over the better of the others, lowest",
        Times,
        1.0,
        S85,
    )
    .bound(Above),
    stated(
        ("Figure 23", TPCC),
        "aborted tries over the fewer of the others, highest",
        Times,
        1.0,
        S85,
    )
    .bound(Below),
];
