//! Figure 13 and section VII: longer leases, and one that is raised at run time.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::LEASE;
use super::{
    Answer, Bench, Case, Done, Found, Jobs, Missing, OfPoint, Section, bars, best, busy, drawn,
    extreme, less, median, millions, more, over, p99, quotient, throughput,
};
use crate::reproduce::paper::adjusting::{Adjusted, Adjusting};
use tarn_engine::cluster::lease::LEASE_NS_MAX;

/// Of runs whose phases are short and whose parts are not looked at.
const NOT_LOOKED_AT: &str = "not looked at";

pub(super) const SECTION: Section = Section {
    name: "fig-13",
    title: "Figure 13 and section VII: the length of leases",
    targets: LEASE,
    jobs,
    fill,
};

/// From shortest to longest, with names by form.
const LEASES: [(u32, [&str; 2]); 4] = [
    (4_000, ["OOCC, literal, 4 µs", "OOCC, 4 µs"]),
    (7_000, ["OOCC, literal, 7 µs", "OOCC, 7 µs"]),
    (10_000, ["OOCC, literal, 10 µs", "OOCC, 10 µs"]),
    (14_000, ["OOCC, literal, 14 µs", "OOCC, 14 µs"]),
];

/// OOCC with one of these leases.
fn leased(bench: Bench, (at, form): (usize, Form), coordinators: &[usize]) -> Case {
    let (lease_ns, names) = LEASES[at];
    let case = Case::of(bench, (Who::Oocc, form), coordinators).leasing(lease_ns);
    let variant = case.system.variant;
    case.with(names[form as usize], variant, variant)
}

fn occ(bench: Bench, form: Form, coordinators: &[usize]) -> Case {
    Case::of(bench, (Who::Occ, form), coordinators)
}

fn benches(extent: &Extent) -> Vec<Bench> {
    extent.writes.iter().map(|writes| extent.ycsb(Extent::MOST_SKEWED, *writes)).collect()
}

fn jobs(extent: &Extent) -> Jobs {
    let few = &extent.few_coordinators;
    let (mut cases, mut adjustments) = (Vec::new(), Vec::new());
    for form in Form::ALL {
        for bench in benches(extent) {
            cases.extend((0..LEASES.len()).map(|at| leased(bench, (at, form), few)));
            cases.push(occ(bench, form, few));
            adjustments.push(adjusting(extent, form, bench));
        }
        // Of reads alone it is counted who looks twice.
        cases.push(Case::of(reads(extent), (Who::Oocc, form), extent.coordinators()));
    }
    Jobs { cases, adjustments, ..Jobs::default() }
}

/// The shortest of the paper's leases, raised at run time by the manager, who may choose any length.
fn adjusting(extent: &Extent, form: Form, bench: Bench) -> Adjusting {
    let most = extent.few_coordinators.iter().copied().max().unwrap_or(1);
    Adjusting { case: leased(bench, (0, form), &[most]), bounds_ns: (1, LEASE_NS_MAX) }
}

/// What came of it, of each benchmark that could be run.
fn adjusted<'a>(done: &Done<'a>, form: Form) -> Result<Vec<&'a Adjusted>, Missing> {
    let each = |bench: Bench| {
        let wanted = adjusting(done.extent, form, bench);
        let found = done.runs.adjustments.iter().find(|(it, _)| *it == wanted);
        let (_, came) = found.ok_or_else(|| Missing("it was not asked for".into()))?;
        came.as_ref().map_err(Clone::clone)
    };
    benches(done.extent).into_iter().map(each).collect()
}

/// What is told of one: the length that was chosen, and how fast it was before, while, and after.
fn told(adjusted: &Adjusted) -> Option<String> {
    let manager = adjusted.leases.manager.as_ref()?;
    let change = manager.first.first()?;
    let millions = |per_s: f64| format!("{:.2}", per_s / 1e6);
    Some(format!(
        "{} % writes: {} → {} ns in {:.1} µs; {}, {}, {} M transactions/s before, while, after",
        adjusted.bench.updates.unwrap_or(0),
        change.from_ns,
        change.to_ns,
        change.took_us,
        millions(adjusted.before_per_s),
        millions(adjusted.during_per_s),
        millions(adjusted.after_per_s)
    ))
}

/// The phase of looking again.
const VALIDATE: &str = "validate";

fn reads(extent: &Extent) -> Bench {
    extent.ycsb(0.0, 0)
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let benches = benches(extent);
    let (fewest, most) = (benches[0], benches[benches.len() - 1]);
    let over_occ = |at, form, is_better| {
        let each = |bench: &Bench| {
            let cases = (&leased(*bench, (at, form), &[]), &occ(*bench, form, &[]));
            over(runs, cases, throughput)
        };
        extreme(benches.iter().map(each), is_better)
    };
    let workload = "YCSB, Zipf .99";
    sheet.fill(workload, "4 µs over OCC", &|form| over_occ(0, form, more));
    sheet.fill(workload, "7 µs over OCC, lowest of all write ratios", &|form| {
        over_occ(1, form, less)
    });
    sheet.fill(workload, "10 µs over OCC, lowest of all write ratios", &|form| {
        over_occ(2, form, less)
    });
    sheet.fill(workload, "what most writes leave of 14 µs over the same of 4 µs", &|form| {
        let left = |at| {
            let case = |bench| leased(bench, (at, form), &[]);
            over(runs, (&case(most), &case(fewest)), throughput)
        };
        quotient(left(LEASES.len() - 1), left(0))
    });
    sheet.fill(workload, "99th percentile at 7 µs over OCC's, most writes", &|form| {
        over(runs, (&leased(most, (1, form), &[]), &occ(most, form, &[])), p99)
    });
    sheet.fill(workload, "4 µs raised at run time, highest gain", &|form| {
        let gain = |it: &&Adjusted| it.after_per_s / it.before_per_s;
        let all = adjusted(done, form)?;
        let value = all.iter().map(gain).reduce(f64::max);
        let none = || Missing("no write ratio was run".into());
        Ok(Found { value: value.ok_or_else(none)?, busy: NOT_LOOKED_AT.into() })
    });
    sheet.fill("YCSB", "time of a change", &|form| {
        let longest = |it: &&Adjusted| it.leases.manager.as_ref()?.time_to_adjust_us;
        let all = adjusted(done, form)?;
        let value = all.iter().filter_map(longest).reduce(f64::max);
        let none = || Missing("the manager found no reason to change a length".into());
        Ok(Found { value: value.ok_or_else(none)?, busy: NOT_LOOKED_AT.into() })
    });
    sheet.fill("YCSB", "read-only transactions without validation", &|form| {
        without_validation(done, form)
    });
    draw(done, sheet, &benches);
    for text in adjusted(done, Form::Corrected).into_iter().flatten().filter_map(told) {
        sheet.note(text);
    }
    sheet.note(
        "each lease of a bar is a run of its own. The one that is raised at run time is one run for each write ratio, with the largest \
         number of coordinators of those, whose manager looks every millisecond where the paper's looks every second. Its membership \
         service answers without a message, so that a change takes two looks of the slowest node and none of the paper's two rounds of \
         WRITEs. Of 4 µs the write ratio farthest above OCC is held",
    );
}

/// Of read-only transactions those that do not look again; in a protocol whose phases tell.
fn without_validation(done: &Done<'_>, form: Form) -> Answer {
    let case = Case::of(reads(done.extent), (Who::Oocc, form), &[]);
    let (series, point) = best(done.runs, &case)?;
    let none = || Missing(format!("no phase of {}'s is called {VALIDATE}", series.name));
    let validated = *point.phases.get(VALIDATE).ok_or_else(none)?;
    Ok(Found { value: (1.0 - validated) * 100.0, busy: busy(series.name, point) })
}

fn draw(done: &Done<'_>, sheet: &mut Sheet, benches: &[Bench]) {
    let groups = || done.extent.writes.iter().map(|writes| format!("{writes} %")).collect();
    let series = |of: OfPoint| -> Vec<(String, Vec<Option<f64>>)> {
        let value = |case: Case| drawn(done.runs, &case, &of);
        let of_occ = benches.iter().map(|bench| value(occ(*bench, Form::Corrected, &[]))).collect();
        let of_lease = |at: usize| {
            let values =
                benches.iter().map(|bench| value(leased(*bench, (at, Form::Corrected), &[])));
            (LEASES[at].1[Form::Corrected as usize].to_owned(), values.collect())
        };
        [("OCC".to_owned(), of_occ)].into_iter().chain((0..LEASES.len()).map(of_lease)).collect()
    };
    let unit = "M transactions/s";
    sheet.draw(bars("Zipf .99: throughput by share of writes", unit, groups(), series(millions)));
    sheet.draw(bars("Zipf .99: median latency", "µs", groups(), series(median)));
    sheet.draw(bars("Zipf .99: 99th percentile", "µs", groups(), series(p99)));
}
