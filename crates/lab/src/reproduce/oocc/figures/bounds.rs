//! Figure 14: what clocks are believed to be off by, and the length of records.

use super::super::Sheet;
use super::super::entrant::{Form, Who, with_offset};
use super::super::extent::Extent;
use super::super::targets::BOUNDS;
use super::{
    Bench, Case, Done, Jobs, Missing, Section, bars, drawn, everybody, millions, of_one, over,
    throughput,
};

pub(super) const SECTION: Section = Section {
    name: "fig-14",
    title: "Figure 14: offsets of clocks, and longer records",
    targets: BOUNDS,
    jobs,
    fill,
};

/// Of the read-intensive workload.
const WRITES: u32 = 10;

fn read_intensive(extent: &Extent, form: Form, coordinators: &[usize]) -> Case {
    Case::of(extent.ycsb(0.0, WRITES), (Who::Oocc, form), coordinators)
}

/// Records whose length is chosen: with 8 bytes, too, since they are written whole.
fn of_bytes(extent: &Extent) -> Vec<(u16, Bench)> {
    extent.lengths.iter().map(|bytes| (*bytes, extent.ycsb_of_bytes(*bytes))).collect()
}

fn jobs(extent: &Extent) -> Jobs {
    let few = &extent.few_coordinators;
    let offsets = |form: &Form| {
        let case = read_intensive(extent, *form, few);
        [with_offset(case.clone(), false), with_offset(case.clone(), true), case]
    };
    let offsets = Form::ALL.iter().flat_map(offsets);
    let lengths = of_bytes(extent).into_iter().flat_map(|(_, bench)| everybody(bench, few));
    Jobs { cases: offsets.chain(lengths).collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let workload = "YCSB, read-intensive";
    for (metric, is_whole) in
        [("offset of 0.5 µs over none", false), ("offset of 1 µs over none", true)]
    {
        sheet.fill(workload, metric, &|form| {
            let none = read_intensive(extent, form, &[]);
            over(runs, (&with_offset(none.clone(), is_whole), &none), throughput)
        });
    }
    sheet.fill(workload, "offset of 1.5 µs below none", &|form| {
        of_one(runs, &read_intensive(extent, form, &[]), &throughput)?;
        Err(Missing("1.5 µs of 10 are a drift of 150,000 ppm; a profile allows 100,000".into()))
    });
    let over_shortest = |bytes: u16, form| {
        let case = |bytes| Case::of(extent.ycsb_of_bytes(bytes), (Who::Oocc, form), &[]);
        over(runs, (&case(bytes), &case(8)), throughput)
    };
    sheet.fill(workload, "records of 256 B over 8 B", &|form| over_shortest(256, form));
    sheet.fill(workload, "records of 1024 B over 8 B", &|form| over_shortest(1024, form));
    let benches = of_bytes(extent);
    let value = |who: Who| {
        let case = |bench| Case::of(bench, (who, Form::Corrected), &[]);
        let value = |(_, bench): &(u16, Bench)| drawn(runs, &case(*bench), &millions);
        (who.name().to_owned(), benches.iter().map(value).collect())
    };
    sheet.draw(bars(
        "Throughput by length of records",
        "M transactions/s",
        benches.iter().map(|(bytes, _)| format!("{bytes} B")).collect(),
        Who::ALL.map(value).into(),
    ));
    sheet.note(
        "an offset of half a microsecond in a lease of 10 is a drift of 5 % that clocks are believed, and drawn, to have: readers trust so \
         much less, writers wait so much longer. All offsets are held against a drift of 100 ppm",
    );
}
