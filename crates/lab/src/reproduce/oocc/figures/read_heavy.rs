//! Figure 10: where most transactions read: YCSB, TAOBench, TATP.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::READ_HEAVY;
use super::{
    Answer, Bench, Case, Done, Jobs, OfPoint, Section, bars, drawn, everybody, everybody_as,
    extreme, less, median, millions, more, of_one, over, p99, throughput, throughput_latency,
    versus,
};

pub(super) const SECTION: Section = Section {
    name: "fig-10",
    title: "Figure 10: read-heavy benchmarks",
    targets: READ_HEAVY,
    jobs,
    fill,
};

/// Uniform, as section VIII-C says.
const UNIFORM: f64 = 0.0;
/// Of the read-intensive workload.
const WRITES: u32 = 10;

fn read_only(extent: &Extent) -> Bench {
    extent.ycsb(UNIFORM, 0)
}

fn read_intensive(extent: &Extent) -> Bench {
    extent.ycsb(UNIFORM, WRITES)
}

/// The three of which a range is told.
fn others(extent: &Extent) -> [(&'static str, Bench); 3] {
    [
        ("YCSB read-intensive", read_intensive(extent)),
        ("TAOBench", extent.tao()),
        ("TATP", extent.tatp()),
    ]
}

fn jobs(extent: &Extent) -> Jobs {
    let benches = [read_only(extent)].into_iter().chain(others(extent).map(|(_, bench)| bench));
    let cases = benches.flat_map(|bench| everybody(bench, extent.coordinators()));
    Jobs { cases: cases.collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let alone = read_only(extent);
    let reads = "YCSB, read-only, uniform";
    sheet.fill(reads, "OOCC's throughput", &|form| {
        of_one(runs, &Case::of(alone, (Who::Oocc, form), &[]), &millions)
    });
    for other in Who::OTHERS {
        let name = other.name();
        let metric = format!("throughput over {name}'s");
        sheet.fill(reads, &metric, &|form| versus(runs, alone, (other, form), throughput));
        let metric = format!("median latency below {name}'s");
        sheet.fill(reads, &metric, &|form| versus(runs, alone, (other, form), median));
    }
    let each = |form, of: OfPoint| -> Vec<Answer> {
        let each = |(_, bench)| Who::OTHERS.map(|other| versus(runs, bench, (other, form), of));
        others(extent).into_iter().flat_map(each).collect()
    };
    let three = "YCSB read-intensive, TAOBench, TATP";
    type Better = fn(f64, f64) -> bool;
    let ends: [(&str, Better, Better); 2] = [("lowest", less, more), ("highest", more, less)];
    for (end, is_better, is_lower_cut) in ends {
        sheet.fill(three, &format!("throughput over the others', {end}"), &|form| {
            extreme(each(form, throughput).into_iter(), is_better)
        });
        // The lowest cut is the largest factor.
        let metric = format!("median or 99th percentile below the others', {end}");
        sheet.fill(three, &metric, &|form| {
            extreme(each(form, median).into_iter().chain(each(form, p99)), is_lower_cut)
        });
    }
    orders(done, sheet);
    draw(done, sheet);
    sheet.note(
        "TAOBench's and TATP's factors are within the range of all three; the paper's text has no others. The order of the tails is \
         told of the read-intensive workloads, that of TATP's medians of TATP",
    );
}

/// Who is before whom.
fn orders(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let tails = "YCSB, read-intensive, uniform";
    let intensive = read_intensive(extent);
    let of = |bench, form, (one, other), of| {
        let case = |who| Case::of(bench, (who, form), &[]);
        over(runs, (&case(one), &case(other)), of)
    };
    sheet.fill(tails, "99th percentile over OCC's", &|form| {
        of(intensive, form, (Who::Oocc, Who::Occ), p99)
    });
    for slow in [Who::Drtm, Who::Dslr] {
        let metric = format!("OCC's 99th percentile over {}'s", slow.name());
        sheet.fill(tails, &metric, &|form| of(intensive, form, (Who::Occ, slow), p99));
    }
    let tatp = extent.tatp();
    sheet.fill("TATP", "median latency over DrTM's", &|form| {
        of(tatp, form, (Who::Oocc, Who::Drtm), median)
    });
    sheet.fill("TATP", "DrTM's median latency over OCC's", &|form| {
        of(tatp, form, (Who::Drtm, Who::Occ), median)
    });
}

fn draw(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let benches: Vec<(&str, Bench)> =
        [("YCSB read-only", read_only(extent))].into_iter().chain(others(extent)).collect();
    let groups = || benches.iter().map(|(name, _)| (*name).to_owned()).collect();
    let drawn = |of: OfPoint| -> Vec<(String, Vec<Option<f64>>)> {
        let of = |who: Who| {
            let case = |bench| Case::of(bench, (who, Form::Corrected), &[]);
            let value = |(_, bench): &(&str, Bench)| drawn(runs, &case(*bench), &of);
            (who.name().to_owned(), benches.iter().map(value).collect())
        };
        Who::ALL.map(of).into()
    };
    sheet.draw(bars("Highest throughput", "M transactions/s", groups(), drawn(millions)));
    sheet.draw(bars("Median latency there", "µs", groups(), drawn(median)));
    sheet.draw(bars("99th percentile there", "µs", groups(), drawn(p99)));
    let cases = everybody_as(Form::Corrected, read_only(extent), &[]);
    sheet.draw(throughput_latency(runs, &cases, "YCSB read-only, uniform"));
}
