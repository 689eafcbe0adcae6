//! Figure 22: TPC-C with its locks sharded by warehouse, district or customer.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::CRITICAL_FIELD;
use super::{Done, Jobs, Section, in_all_forms, over, throughput};
use crate::reproduce::paper::bars::Bars;
use crate::reproduce::paper::case::{Bench, Case, Kind};
use crate::reproduce::paper::sheet::Picture;
use tarn_workloads::tpcc::CriticalField;

pub(super) const SECTION: Section = Section {
    name: "fig-22",
    title: "Figure 22: TPC-C by the critical field",
    targets: CRITICAL_FIELD,
    jobs,
    fill,
};

const FIELDS: [CriticalField; 3] =
    [CriticalField::Warehouse, CriticalField::District, CriticalField::Customer];

fn bench(extent: &Extent, field: CriticalField) -> Bench {
    Bench { critical: Some(field), ..extent.tpcc() }
}

fn jobs(extent: &Extent) -> Jobs {
    let coordinators = extent.coordinators(Kind::Tpcc);
    let of = |field| in_all_forms(bench(extent, field), &[Who::Lotus], coordinators);
    let mut cases: Vec<Case> = FIELDS.into_iter().flat_map(of).collect();
    // Motor has no shards.
    cases.extend(in_all_forms(extent.tpcc(), &[Who::Motor], coordinators));
    Jobs { cases, ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let motor = |form| Case::of(extent.tpcc(), (Who::Motor, form), &[]);
    let lotus = |field, form| Case::of(bench(extent, field), (Who::Lotus, form), &[]);
    for field in FIELDS {
        let name = field.name();
        sheet.fill("TPC-C", &format!("throughput over Motor's, by {name}"), &|form| {
            over(runs, (&lotus(field, form), &motor(form)), throughput)
        });
    }
    let value = |case: &Case| runs.series(case).ok()?.peak().map(|it| it.throughput_per_s / 1e6);
    let series = Form::ALL.map(|form| {
        let fields = FIELDS.map(|field| value(&lotus(field, form)));
        let values = fields.into_iter().chain([value(&motor(form))]).collect();
        (Who::Lotus.system(form).name.to_owned(), values)
    });
    let names = FIELDS.map(|field| format!("LOTUS by {}", field.name()));
    sheet.draw(Picture::Bars(Bars {
        title: "Highest throughput by the critical field".into(),
        y_name: "M transactions/s".into(),
        groups: names.into_iter().chain(["Motor".to_owned()]).collect(),
        series: series.into(),
    }));
}
