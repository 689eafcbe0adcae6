//! Figure 23: fewer warehouses.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::CONTENTION;
use super::{
    Done, Jobs, SYSTEMS, Section, aborted, extreme, in_all_forms, less, more, over, throughput,
};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::{Case, Kind};
use crate::reproduce::paper::sheet::{Answer, Picture};
use crate::sweep::chart::{Chart, Line, Mark, Scale};

pub(super) const SECTION: Section = Section {
    name: "fig-23",
    title: "Figure 23: TPC-C with fewer warehouses",
    targets: CONTENTION,
    jobs,
    fill,
};

/// All points are at the most coordinators: contention is what is asked.
fn coordinators(extent: &Extent) -> Vec<usize> {
    extent.most(Kind::Tpcc)
}

fn jobs(extent: &Extent) -> Jobs {
    let sizes = extent.fewer_warehouses.iter();
    let of = |size: &u64| in_all_forms(extent.tpcc_of(*size), &SYSTEMS, &coordinators(extent));
    Jobs { cases: sizes.flat_map(of).collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let (extent, runs) = (done.extent, done.runs);
    let case = |who, form, size| Case::of(extent.tpcc_of(size), (who, form), &[]);
    let sizes = &extent.fewer_warehouses;
    let (most, fewest) = (sizes[0], sizes[sizes.len() - 1]);
    sheet.fill("TPC-C", "LOTUS's aborted tries, fewest warehouses over most", &|form| {
        let of = |size| case(Who::Lotus, form, size);
        over(runs, (&of(fewest), &of(most)), aborted)
    });
    let others = |form, of: fn(&Point) -> f64, is_better: fn(f64, f64) -> bool, size| -> Answer {
        let answers = [Who::Motor, Who::Ford]
            .map(|other| over(runs, (&case(Who::Lotus, form, size), &case(other, form, size)), of));
        extreme(answers.into_iter(), is_better)
    };
    // Over the better of two is the lower of two ratios.
    sheet.fill("TPC-C", "throughput over the better of the others, lowest", &|form| {
        extreme(sizes.iter().map(|size| others(form, throughput, less, *size)), less)
    });
    sheet.fill("TPC-C", "aborted tries over the fewer of the others, highest", &|form| {
        extreme(sizes.iter().map(|size| others(form, aborted, more, *size)), more)
    });
    for form in [Form::Corrected, Form::Best] {
        draw(done, sheet, form, ("Throughput", "M transactions/s"), &|it| {
            it.throughput_per_s / 1e6
        });
        draw(done, sheet, form, ("Aborted tries", "%"), &|it| it.conflict_rate * 100.0);
    }
    sheet.note(format!(
        "every point at {} coordinators",
        coordinators(extent).iter().sum::<usize>()
    ));
}

fn draw(
    done: &Done<'_>,
    sheet: &mut Sheet,
    form: Form,
    (what, unit): (&str, &str),
    of: &dyn Fn(&Point) -> f64,
) {
    let mark = |who, size: &u64| {
        let case = Case::of(done.extent.tpcc_of(*size), (who, form), &[]);
        let series = done.runs.series(&case).ok()?;
        let point = series.peak()?;
        let title = format!("{}, {size} warehouses\n{}", series.name, point.limits());
        Some(Mark { x: *size as f64, y: of(point), title })
    };
    let line = |(colour, who): (usize, Who)| {
        let marks = done.extent.fewer_warehouses.iter().rev();
        let marks = marks.filter_map(|size| mark(who, size)).collect();
        Line { name: who.system(form).name.to_owned(), colour, dashed: false, marks }
    };
    sheet.draw(Picture::Lines(Chart {
        title: format!("{what} over warehouses"),
        x_name: "warehouses".into(),
        y_name: unit.into(),
        x_scale: Scale::Number,
        y_may_be_logarithmic: false,
        lines: SYSTEMS.into_iter().enumerate().map(line).collect(),
    }));
}
