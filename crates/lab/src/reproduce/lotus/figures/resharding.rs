//! Section 4.3: how long a shard is served by nobody while it moves, under a hotspot.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::RESHARDING;
use super::{Done, Jobs, Section};
use crate::reproduce::paper::case::{Bench, Missing};
use crate::reproduce::paper::occasion::Heating;
use crate::reproduce::paper::sheet::{Answer, Found};
use tarn_engine::services::shard_rule::Terms;

pub(super) const SECTION: Section = Section {
    name: "resharding",
    title: "Section 4.3: interruption of a shard that moves",
    targets: RESHARDING,
    jobs,
    fill,
};

const FORMS: [Form; 3] = [Form::Literal, Form::Corrected, Form::Best];

fn heating(extent: &Extent, bench: Bench, form: Form) -> Heating {
    let (threads, coroutines) = extent.crash_threads;
    Heating { bench, system: Who::Lotus.system(form), threads, coroutines }
}

fn jobs(extent: &Extent) -> Jobs {
    let of = |bench: Bench| FORMS.map(|form| heating(extent, bench, form));
    Jobs {
        hotspots: [extent.tatp(), extent.bank()].into_iter().flat_map(of).collect(),
        ..Jobs::default()
    }
}

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let interrupted = |bench: Bench, form: Form| -> Answer {
        let wanted = heating(done.extent, bench, form);
        let found = done.runs.hotspots.iter().find(|(it, _)| *it == wanted);
        let (_, heated) = found.ok_or_else(|| Missing("it was not asked for".into()))?;
        let hotspot = &heated.as_ref().map_err(Clone::clone)?.hotspot;
        let Some([mean, longest]) = hotspot.interruption_us else {
            return Err(Missing("no shard moved in this run".into()));
        };
        let moved = hotspot.cases.last().map_or(0, |case| case.moved.len());
        let back = hotspot.of_balanced.last().map_or(0.0, |share| share * 100.0);
        let busy = format!(
            "{moved} shards moved, {longest:.0} µs at most; throughput {back:.0} % of the balanced case"
        );
        Ok(Found { value: mean / 1e3, busy })
    };
    let metric = "interruption of a moving shard";
    sheet.fill("TATP", metric, &|form| interrupted(done.extent.tatp(), form));
    sheet.fill("SmallBank", metric, &|form| interrupted(done.extent.bank(), form));
    sheet.fill("TPC-C", metric, &|_| {
        Err(Missing("one shard is a warehouse: too few for a hotspot to be dealt out".into()))
    });
    let terms = Terms::default();
    let policy = [
        ("interval", terms.interval.0 as f64 / 1e6),
        (
            "latency over the mean that counts as overload",
            f64::from(terms.overload_percent) / 100.0,
        ),
        ("intervals in a row", f64::from(terms.intervals)),
    ];
    for (metric, value) in policy {
        sheet.fill("policy", metric, &|form| {
            // By what ran, and not by what is written down.
            interrupted(done.extent.bank(), form)
                .map(|_| Found { value, busy: "the default".into() })
        });
    }
    let waited_ms = terms.patience.0 as f64 / 1e6;
    sheet.fill("policy", "wait before running transactions are aborted", &|_| {
        Err(Missing(format!("nobody is aborted: the move is taken back after {waited_ms} ms")))
    });
    sheet.note(
        "an interruption is from closing the shard to the first lock at its new owner; changes of the map of record take no \
         time here. Asked beside what was published: throughput after shards have moved is at least 90 % of the balanced case",
    );
}
