//! Figure 18: TATP by the size of the version table cache. Run are none and the standard size.

use super::super::case::{Case, Missing};
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::sheet::Sheet;
use super::super::targets::CACHE;
use super::{Done, Jobs, Section, over, p99, throughput, throughput_latency};

pub(super) const SECTION: Section = Section {
    name: "fig-18",
    title: "Figure 18: TATP by the size of the version table cache",
    targets: CACHE,
    jobs,
    fill,
};

fn none(extent: &Extent, form: Form) -> Case {
    let about = "no version table is remembered";
    let case = Case::of(extent.tatp(), (Who::Lotus, form), &extent.scale.coordinators);
    match form {
        Form::Literal => case.with("LOTUS, literal, no cache", about, "literal,-version-cache"),
        Form::Corrected => case.with("LOTUS, no cache", about, "corrected,-version-cache"),
        Form::Best => {
            case.with("LOTUS, hash placement, no cache", about, "corrected,-version-cache")
        }
    }
}

fn standard(extent: &Extent, form: Form) -> Case {
    Case::of(extent.tatp(), (Who::Lotus, form), &extent.scale.coordinators)
}

fn jobs(extent: &Extent) -> Jobs {
    let both = |form| [none(extent, form), standard(extent, form)];
    Jobs { cases: Form::ALL.into_iter().flat_map(both).collect(), ..Jobs::default() }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let Done { extent, runs, .. } = *done;
    let compared = |form, of| over(runs, (&standard(extent, form), &none(extent, form)), of);
    sheet.fill("TATP", "throughput, largest cache over smallest", &|form| {
        compared(form, throughput)
    });
    sheet.fill("TATP", "99th percentile, largest cache over smallest", &|form| compared(form, p99));
    sheet.fill("TATP", "hit rate, largest cache over smallest", &|form| {
        runs.series(&standard(extent, form))?;
        Err(Missing("hits of the cache are not counted yet".into()))
    });
    let cases = [none(extent, Form::Corrected), standard(extent, Form::Corrected)];
    sheet.draw(throughput_latency(runs, &cases, "TATP with and without the cache"));
    sheet.note("run are no cache at all and the cache of standard size, in place of several sizes");
}
