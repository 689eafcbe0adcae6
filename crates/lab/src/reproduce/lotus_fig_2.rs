//! LOTUS, Figures 2 and 3: how fast FORD is on SmallBank over the number of concurrent transactions, and
//! how much faster without the CAS of its locks.
//!
//! Zhisheng Hu, Pengfei Zuo, Junliang Hu, Yizou Chen, Yingjia Wang, Ming-Chang Yang, "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks".
//!
//! Invariant: the measured system's switches, layout and placement are those of FORD's public code; what
//! the paper does not say of it (how many buckets) is run in both ways. What is not run (Motor) has its
//! rows all the same.

use super::curve::{Point, Series};
use super::ford_software::SOFTWARE;
use super::report::{Reproduction, Sent};
use super::row::{Published, Relation, Row, Standing};
use super::stage::{Layout, Stage, System, Testbed};
use super::{Figure, Scale};
use crate::bench::run::RunError;
use crate::machine;
use crate::harness::watch::Watch;
use crate::simulate::stamps::Source;
use std::time::Instant;
use tarn_store::placement::catalog::Placement;
use tarn_engine::session::coordinator::Retry;
use tarn_store::layout::BucketShape;
use tarn_engine::services::lock::versions::VERSION_CACHE_ENTRIES_DEFAULT;
use tarn_sim::profile::Profile;
use tarn_workloads::Settings;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::Workload as _;

/// Its line in the list of figures.
pub const FIGURE: Figure = Figure {
    name: "lotus-fig-2",
    title: "FORD on SmallBank over concurrent transactions, with and without CAS (Figures 2, 3)",
    source: "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS: Optimizing Disaggregated Transactions with \
             Disaggregated Locks, sections 2.2, 2.3, 8.1, 8.3",
    full,
    quick,
    run,
};

const COMPUTE_NODES: usize = 9;

/// 9 to 90 threads of one coroutine, then up to six of each.
fn full() -> Scale {
    let coordinators = vec![9, 18, 27, 36, 45, 63, 90, 135, 180, 270, 360, 540];
    Scale { name: "full", sizes: vec![20_000_000], virtual_ms: 20.0, warm_up_ms: 4.0, soak_ms: 0.0, coordinators }
}

fn quick() -> Scale {
    let coordinators = vec![9, 18, 27, 45, 90, 270, 540];
    Scale { name: "quick", sizes: vec![1_000_000], virtual_ms: 5.0, warm_up_ms: 2.0, soak_ms: 0.0, coordinators }
}

/// FORD's hash node: 22 items of 64 bytes (48 of header, 8 of SmallBank's value, 2 of anchors, padded)
/// and the address of the next one, read by one READ.
const FORD_BUCKET: BucketShape = BucketShape { slots: 22, slot_bytes_min: 64, read_whole: true };

/// 200,000 buckets for 20 M accounts, as in the public code: 22 slots for 100 records.
const STOCK: Layout = Layout {
    name: "stock buckets",
    placement: Placement::Table,
    bucket: FORD_BUCKET,
    slots_per_100_records: 22,
    address_cache_entries: 0,
    warmth: None,
    versions: 2,
};
const SIZED: Layout =
    Layout { name: "sized buckets", slots_per_100_records: 200, ..STOCK };
const SPREAD: Layout =
    Layout { name: "sized buckets, hash placement", placement: Placement::Hash, ..SIZED };

const FORD_STOCK: System = System {
    name: "FORD, stock buckets",
    about: "public code; a table on one node; 200,000 buckets for 20 M accounts, so chains",
    protocol: "ford",
    variant: "measured",
    charges: &[],
    retry: Retry::PATIENT,
    timestamps: Source::Counter,
    is_routed: false,
    version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
    read_lease_ns: 0,
};
const FORD_STOCK_SOFTWARE: System = System {
    name: "FORD, stock buckets, its software",
    about: "the same, charged for what the public code spends and waits for beside its verbs",
    charges: SOFTWARE,
    ..FORD_STOCK
};
const FORD_STOCK_NO_CAS: System = System {
    name: "FORD, stock buckets, no CAS",
    about: "the same without the CAS of locks",
    protocol: "ford",
    variant: "measured,unsafe-no-lock-cas",
    charges: &[],
    retry: Retry::PATIENT,
    timestamps: Source::Counter,
    is_routed: false,
    version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
    read_lease_ns: 0,
};
const FORD_SIZED: System = System {
    name: "FORD, sized buckets",
    about: "public code; a table on one node; half of all slots in use, so one bucket a lookup",
    ..FORD_STOCK
};
const FORD_SIZED_NO_CAS: System =
    System { name: "FORD, sized buckets, no CAS", ..FORD_STOCK_NO_CAS };
const FORD_SPREAD: System = System {
    name: "FORD, sized, hash placement",
    about: "public code, but records spread over all nodes by their keys' hash",
    ..FORD_STOCK
};
const OURS: System = System {
    name: "ours, hash placement",
    about: "corrected protocol, our buckets: a lookup reads a bin of two slots; log with the data",
    protocol: "ford",
    variant: "corrected",
    charges: &[],
    retry: Retry::PATIENT,
    timestamps: Source::Counter,
    is_routed: false,
    version_cache_entries: VERSION_CACHE_ENTRIES_DEFAULT,
    read_lease_ns: 0,
};

const OWN: Layout = Layout {
    name: "our buckets, hash placement",
    bucket: BucketShape { slots: 8, slot_bytes_min: 0, read_whole: false },
    ..SPREAD
};

/// Layouts, each with its systems.
const PLAN: [(Layout, &[System]); 4] = [
    (STOCK, &[FORD_STOCK, FORD_STOCK_SOFTWARE, FORD_STOCK_NO_CAS]),
    (SIZED, &[FORD_SIZED, FORD_SIZED_NO_CAS]),
    (SPREAD, &[FORD_SPREAD]),
    (OWN, &[OURS]),
];

/// Runs it.
///
/// # Errors
/// What cannot be, or could not be done.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn run(scale: &Scale, seed: u64, watch: &dyn Watch) -> Result<Reproduction, RunError> {
    let start = Instant::now();
    let profile = Profile::load("cx3-56g").map_err(|error| RunError::Failed(error.to_string()))?;
    let testbed = Testbed {
        profile,
        compute_nodes: COMPUTE_NODES,
        memory_nodes: 3,
        replicas: 3,
        threads_max: 10,
        coroutines_min: 1,
    };
    let mut report = Reproduction::of(&FIGURE, &testbed.profile, (scale, seed), CONFIG);
    for (layout, systems) in &PLAN {
        let settings =
            Settings { profile: Some("lotus".into()), records: Some(scale.largest()), zipf: None };
        let workload = SmallBank::new(&settings)?;
        let mut stage = Stage::load(workload, &testbed, (layout, &systems[0]), (scale, seed), watch)?;
        let (safe, others): (Vec<&System>, Vec<&System>) =
            systems.iter().partition(|system| !system.variant.contains("unsafe"));
        for system in safe {
            report.series.push(stage.series(system, scale, watch)?);
        }
        report.judged.push(stage.judge(watch)?);
        for system in others {
            report.series.push(stage.series(system, scale, watch)?);
        }
    }
    add_rows(&mut report);
    add_verbs(&mut report);
    add_notes(&mut report, scale);
    report.wall.machine = machine::describe();
    report.wall.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

const CONFIG: &[(&str, &str)] = &[
    ("compute", "9 compute nodes, 1 to 10 threads each, 1 to 6 coordinators a thread"),
    ("memory", "3 memory nodes, 3 replicas"),
    ("workload", "SmallBank, mix profile lotus: uniform, 15/15/15/25/15/15"),
    ("addresses", "no address cache: lookups are cold"),
    ("saturated", "fewest coordinators with 95 % of the series' highest throughput"),
    ("agrees", "within 25 % of the published value or range; a bound: on its side"),
];

const SATURATES_AT: usize = 45;
const SATURATES: Published = Published::stated(
    SATURATES_AT as f64,
    "section 2.2: 3 MNs can only efficiently serve up to 45 concurrent transactions",
);
/// 2.06 M transactions/s (Figure 15, before the crash) or 2.1 × 1.08 M (Figure 13, over Motor), by 3.3.
const FORD_PEAK: Published = Published {
    range: (0.62, 0.69),
    standing: Standing::Derived,
    ..Published::stated(0.0, "LOTUS 2.06 M (Figure 15) or 2.1 × Motor's 1.08 M, over 3.3 (Figure 13)")
};
const FORD_GAIN: Published = Published {
    relation: Relation::Below,
    ..Published::stated(2.4, "section 2.3: FORD shows smaller gains than Motor's 2.4×, bandwidth-bound")
};
const MOTOR_PEAK: Published = Published {
    standing: Standing::Derived,
    ..Published::stated(1.08, "section 2.3: 2.6 M over 2.4")
};
const MOTOR_NO_CAS: Published =
    Published::stated(2.6, "section 2.3: 2.6 million transactions per second without CAS");
const MOTOR_GAIN: Published = Published::stated(2.4, "section 2.3: 2.4× its previous peak");
const LATENCY_RISES: Published = Published {
    relation: Relation::Above,
    ..Published::stated(2.0, "section 2.2: beyond it latency increases significantly (taken as doubled)")
};

fn add_rows(report: &mut Reproduction) {
    let pairs = [(FORD_STOCK, FORD_STOCK_NO_CAS), (FORD_SIZED, FORD_SIZED_NO_CAS)];
    let mut rows = Vec::new();
    for (system, no_cas) in pairs {
        if let (Some(with), Some(without)) =
            (report.series(system.name), report.series(no_cas.name))
        {
            add_rows_of(with, without, &mut rows);
        }
    }
    if let Some(series) = report.series(FORD_STOCK_SOFTWARE.name) {
        rows.extend(saturation_row(series));
    }
    let none = "only FORD is run here";
    rows.push(Row::not_simulated("Motor: peak, M transactions/s", MOTOR_PEAK, none));
    rows.push(Row::not_simulated("Motor: without CAS, M transactions/s", MOTOR_NO_CAS, none));
    rows.push(Row::not_simulated("Motor: peak without CAS over peak", MOTOR_GAIN, none));
    report.rows = rows;
}

/// Where a series saturates, and how long a transaction would take if the published point were as exact
/// as its number looks.
fn saturation_row(series: &Series) -> Option<Row> {
    let (peak, saturation) = (series.peak()?, series.saturation()?);
    let implied_us = SATURATES.value() / peak.throughput_per_s * 1e6;
    let why = format!(
        "at {} coordinators: {}; {:.0} transactions in flight would fill it, by peak and shortest \
         latency, {:.1} µs; {SATURATES_AT} would take {implied_us:.1} µs each",
        saturation.coordinators,
        saturation.limits(),
        series.full_at(),
        series.shortest_us(),
    );
    let metric = format!("{}: saturates at coordinators", series.name);
    Some(Row::of(&metric, SATURATES, series.name, saturation.coordinators as f64, why))
}

/// The rows of one sizing but for those; none of a series that has no points.
fn add_rows_of(with: &Series, without: &Series, rows: &mut Vec<Row>) {
    rows.extend(saturation_row(with));
    let (Some(peak), Some(saturation), Some(last), Some(peak_without)) =
        (with.peak(), with.saturation(), with.points.last(), without.peak())
    else {
        return;
    };
    let mut add = |metric: &str, published, simulated, why| {
        let metric = format!("{}: {metric}", with.name);
        rows.push(Row::of(&metric, published, with.name, simulated, why));
    };
    let at = |point: &Point| format!("at {} coordinators: {}", point.coordinators, point.limits());
    let millions = |point: &Point| point.throughput_per_s / 1e6;
    add("peak, M transactions/s", FORD_PEAK, millions(peak), at(peak));
    if let Some(point) = with.at(SATURATES_AT) {
        let metric = "at the published saturation point, M transactions/s";
        let why = format!("median {:.1} µs, {}", point.latency_us.p50, at(point));
        add(metric, FORD_PEAK, millions(point), why);
    }
    let gain = peak_without.throughput_per_s / peak.throughput_per_s;
    let why = format!("without CAS {:.2} M {}", millions(peak_without), at(peak_without));
    add("peak without CAS over peak", FORD_GAIN, gain, why);
    let (late, early) = (last.latency_us.p50, saturation.latency_us.p50);
    let why = format!(
        "{late:.1} µs at {}, {early:.1} µs at {}",
        last.coordinators, saturation.coordinators
    );
    let metric = "median latency at most coordinators over that at saturation";
    add(metric, LATENCY_RISES, late / early, why);
}

/// Verbs that FORD's public code sends for a SmallBank transaction without remembered addresses, by the
/// mix: 1.40 records are written, .45 only read, 85 % of the transactions write.
const PUBLIC_CODE: [(&str, f64, &str); 3] = [
    ("cas", 1.40, "one a written record"),
    ("read", 5.40, "1.85 buckets, 1.40 under the lock, .45 validated, 1.70 flushes"),
    ("write", 15.15, "2.55 logs; LOCK, item and LOCK of 1.40 records at 3 replicas"),
];
/// READs that are not of buckets; and lookups.
const OTHER_READS: f64 = 3.55;
const LOOKUPS: f64 = 1.85;

fn add_verbs(report: &mut Reproduction) {
    let mut verbs = Vec::new();
    if let Some(point) = report.series(FORD_SIZED.name).and_then(|series| series.saturation()) {
        for (verb, counted, of) in PUBLIC_CODE {
            let simulated = point.verbs_of(verb);
            verbs.push(Sent { verb, series: FORD_SIZED.name, counted, of, simulated });
        }
    }
    if let Some(point) = report.series(FORD_STOCK.name).and_then(|series| series.saturation()) {
        verbs.push(Sent {
            verb: "read",
            series: FORD_STOCK.name,
            counted: LOOKUPS * CHAIN_BLOCKS + OTHER_READS,
            of: "as above with 2.8 blocks a lookup: 100 records in blocks of 22",
            simulated: point.verbs_of("read"),
        });
    }
    report.verbs = verbs;
}

/// Blocks read until a record is found that is one of 100 in blocks of 22.
const CHAIN_BLOCKS: f64 = (22.0 * (1.0 + 2.0 + 3.0 + 4.0) + 12.0 * 5.0) / 100.0;

fn add_notes(report: &mut Reproduction, scale: &Scale) {
    report.notes.extend(NOTES.iter().map(|&note| note.to_owned()));
    if scale.name != full().name {
        report.notes.push(format!(
            "SHORTENED ({}): {} accounts instead of {}, {} instead of {} ms a point",
            scale.name,
            scale.largest(),
            full().largest(),
            scale.virtual_ms,
            full().virtual_ms
        ));
    }
}

const NOTES: [&str; 8] = [
    "saturation: 45 in flight at 0.66 M/s are 69 µs a transaction; the modelled hardware takes about a \
     quarter of that before it queues, with all that the public code's software spends a good third",
    "its software: FORD's public code waits for nothing but its verbs' answers; what it spends on top is \
     charged to one series, the larger value wherever the code leaves it open",
    "the saturation point is one of the points that were run; which ones the paper ran is not said, and 45 \
     is 9 machines by 5: of 9, 45, 90, … coordinators alone, 45 would be the saturation point here as well",
    "sizes: the paper does not say how large FORD's buckets and their number were; both are run",
    "a bucket is 1,472 bytes here (a line of directory and 22 slots), 1,416 in the public code",
    "the locked record is read again whole, 64 bytes; the public code reads its version, 8 bytes",
    "the log comes after the lock and before validation, in a round of its own; the public code posts it \
     before the lock, waits for it just before the data are written, and so saves the round",
    "an aborted transaction is tried again; in the public code it is dropped; series without CAS are \
     UNSAFE: transactions are not isolated, histories are not checked",
];
