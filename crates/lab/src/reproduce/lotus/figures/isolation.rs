//! Figure 21: TPC-C under snapshot isolation.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::ISOLATION;
use super::{Done, Jobs, Section, over, throughput, throughput_latency};
use crate::reproduce::paper::case::{Case, Kind};

pub(super) const SECTION: Section = Section {
    name: "fig-21",
    title: "Figure 21: TPC-C under snapshot isolation",
    targets: ISOLATION,
    jobs,
    fill,
};

/// A system at a level of isolation.
type Level = fn(&Extent, Who, Form) -> Case;

fn serializable(extent: &Extent, who: Who, form: Form) -> Case {
    Case::of(extent.tpcc(), (who, form), extent.coordinators(Kind::Tpcc))
}

fn snapshot(extent: &Extent, who: Who, form: Form) -> Case {
    let case = serializable(extent, who, form);
    let about = "the same under snapshot isolation";
    match (who, form) {
        (Who::Lotus, Form::Literal) => case.with("LOTUS, literal, SI", about, "literal,si"),
        (Who::Lotus, Form::Corrected) => case.with("LOTUS, SI", about, "corrected,si"),
        (Who::Lotus, Form::Best) => case.with("LOTUS, hash placement, SI", about, "corrected,si"),
        (_, Form::Best) => case.with("Motor, corrected, SI", about, "corrected,si"),
        (..) => case.with("Motor, SI", about, "measured,si"),
    }
}

fn jobs(extent: &Extent) -> Jobs {
    let all =
        |who| Form::ALL.map(|form| [serializable(extent, who, form), snapshot(extent, who, form)]);
    let cases = [Who::Lotus, Who::Motor].into_iter().flat_map(all).flatten().collect();
    Jobs { cases, ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let Done { extent, runs, .. } = *done;
    sheet.fill("TPC-C", "highest throughput, snapshot over serializable", &|form| {
        let of = |case: fn(&Extent, Who, Form) -> Case| case(extent, Who::Lotus, form);
        over(runs, (&of(snapshot), &of(serializable)), throughput)
    });
    let levels: [(&str, Level); 2] =
        [("serializable", serializable), ("snapshot isolation", snapshot)];
    for (level, case) in levels {
        sheet.fill("TPC-C", &format!("throughput over Motor's, {level}"), &|form| {
            let of = |who| case(extent, who, form);
            over(runs, (&of(Who::Lotus), &of(Who::Motor)), throughput)
        });
    }
    let form = Form::Corrected;
    let cases = [Who::Lotus, Who::Motor]
        .map(|who| [serializable(extent, who, form), snapshot(extent, who, form)]);
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    sheet.draw(throughput_latency(runs, &cases, "TPC-C, serializable and snapshot isolation"));
}
