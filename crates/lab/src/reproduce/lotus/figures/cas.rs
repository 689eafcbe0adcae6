//! Figures 2 and 3: where Motor and FORD saturate on SmallBank, and how much faster they are without the CAS
//! of their locks, which isolates nothing.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::CAS;
use super::{
    Done, Jobs, Place, Section, busy, curves, median, name_of, over, peak, throughput,
    throughput_latency,
};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::{Case, Missing};
use crate::reproduce::paper::sheet::{Answer, Found};

pub(super) const SECTION: Section = Section {
    name: "fig-2",
    title: "Figures 2 and 3: saturation on SmallBank, with and without the CAS of locks",
    targets: CAS,
    jobs,
    fill,
};

fn case(extent: &Extent, who: Who, form: Form) -> Case {
    Case::of(extent.bank(), (who, form), &extent.scale.coordinators)
}

fn without_cas(extent: &Extent, who: Who, form: Form) -> Case {
    let about = "the same without the CAS of locks";
    let (name, variant) = match (who, form) {
        (Who::Ford, Form::Best) => ("FORD, corrected, no CAS", "corrected,unsafe-no-lock-cas"),
        (Who::Ford, _) => ("FORD, no CAS", "measured,unsafe-no-lock-cas"),
        (_, Form::Best) => ("Motor, corrected, no CAS", "corrected,unsafe-no-lock-cas"),
        (..) => ("Motor, no CAS", "measured,unsafe-no-lock-cas"),
    };
    case(extent, who, form).with(name, about, variant)
}

const BASELINES: [Who; 2] = [Who::Motor, Who::Ford];

fn jobs(extent: &Extent) -> Jobs {
    let forms = [Form::Literal, Form::Best];
    let each = |who| forms.map(|form| [case(extent, who, form), without_cas(extent, who, form)]);
    let cases = BASELINES.into_iter().flat_map(each).flatten().collect();
    Jobs { cases, ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let Done { extent, runs, .. } = *done;
    let peak_of = |case: &Case| -> Answer {
        let series = runs.series(case)?;
        let point = peak(series)?;
        Ok(Found { value: throughput(point) / 1e6, busy: busy(series.name, point) })
    };
    for who in BASELINES {
        let saturates = |form| -> Answer {
            let series = runs.series(&case(extent, who, form))?;
            peak(series)?;
            let point = series
                .saturation()
                .ok_or_else(|| Missing(format!("{} does not saturate", series.name)))?;
            Ok(Found { value: point.coordinators as f64, busy: busy(series.name, point) })
        };
        let name = name_of(who);
        sheet.fill("SmallBank", &format!("{name} saturates at"), &saturates);
        sheet.fill("SmallBank", &format!("{name} without CAS over its peak"), &|form| {
            let pair = (&without_cas(extent, who, form), &case(extent, who, form));
            over(runs, pair, throughput)
        });
    }
    sheet.fill("SmallBank", "Motor's peak", &|form| peak_of(&case(extent, Who::Motor, form)));
    sheet.fill("SmallBank", "Motor without CAS", &|form| {
        peak_of(&without_cas(extent, Who::Motor, form))
    });
    let cases = jobs(extent).cases;
    let coordinators = |_: &Case, point: &Point| point.coordinators as f64;
    let across = ("coordinators", &coordinators as Place<'_>);
    let millions = |point: &Point| point.throughput_per_s / 1e6;
    let title = "Throughput over concurrent transactions".to_owned();
    sheet.draw(curves(runs, &cases, title, across, ("M transactions/s", millions)));
    let title = "Median latency over concurrent transactions".to_owned();
    sheet.draw(curves(runs, &cases, title, across, ("median latency, µs", median)));
    sheet.draw(throughput_latency(runs, &cases, "Median latency over throughput"));
    sheet.note(
        "saturated: the fewest coordinators, among those that were run, with 95 % of the highest \
         throughput. Series without CAS are unsafe: transactions are not isolated, and nothing of them is \
         checked. More on FORD alone: tarn reproduce lotus-fig-2",
    );
}
