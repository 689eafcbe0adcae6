//! Figure 15: three of nine compute nodes crash at once under SmallBank.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::extent::Extent;
use super::super::targets::OUTAGE;
use super::{Done, Jobs, Section};
use crate::reproduce::paper::case::Missing;
use crate::reproduce::paper::occasion::{Crash, Crashed};
use crate::reproduce::paper::sheet::{Answer, Found, Picture};
use crate::sweep::chart::{Chart, Line, Mark, Scale};

pub(super) const SECTION: Section = Section {
    name: "fig-15",
    title: "Figure 15: three of nine compute nodes crash",
    targets: OUTAGE,
    jobs,
    fill,
};

const NODES: usize = 3;
/// Watched before the crash, and after the machines are back; the paper's crash is at 3 s.
const BEFORE_MS: f64 = 10.0;
const AFTER_MS: f64 = 10.0;

/// LOTUS in its forms, and FORD beside it, for which nothing was published.
fn crashes(extent: &Extent) -> [(Form, Crash); 4] {
    let of = |who: Who, form: Form| {
        let (threads, coroutines) = extent.crash_threads;
        let (bench, system) = (extent.bank(), who.system(form));
        let (at_ms, after_ms) = (BEFORE_MS, AFTER_MS);
        (form, Crash { bench, system, threads, coroutines, nodes: NODES, at_ms, after_ms })
    };
    [
        of(Who::Lotus, Form::Literal),
        of(Who::Lotus, Form::Corrected),
        of(Who::Lotus, Form::Best),
        of(Who::Ford, Form::Best),
    ]
}

fn jobs(extent: &Extent) -> Jobs {
    let crashes = crashes(extent).into_iter().map(|(_, crash)| crash).collect();
    Jobs { crashes, ..Jobs::default() }
}

/// A figure of a crash, if there is one.
type OfCrash = fn(&Crashed) -> Option<f64>;

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    let wanted = crashes(done.extent);
    let crashed = |form: Form| -> Result<&Crashed, Missing> {
        let (_, crash) = wanted.iter().find(|(it, _)| *it == form).expect("all forms are there");
        let found = done.runs.crashes.iter().find(|(it, _)| it == crash);
        let (_, crashed) = found.ok_or_else(|| Missing("it was not asked for".into()))?;
        crashed.as_ref().map_err(Clone::clone)
    };
    let answer = |form, of: fn(&Crashed) -> Option<f64>| -> Answer {
        let crashed = crashed(form)?;
        let why = || Missing("throughput did not come back in this run".into());
        let outage = &crashed.outage;
        if let Some(failure) = outage.failed().first() {
            return Err(Missing(format!("{}, which failed: {failure}", crashed.system)));
        }
        let busy = format!(
            "machines back after {:.0} ms (assumed), dead recovered after {}",
            outage.shape.restart_ms,
            outage.recovered_after_ms.map_or("never".into(), |ms| format!("{ms:.2} ms"))
        );
        Ok(Found { value: of(crashed).ok_or_else(why)?, busy })
    };
    let metrics: [(&str, OfCrash); 4] = [
        ("throughput before the crash", |it| Some(it.outage.before_per_s / 1e6)),
        ("throughput after the crash", |it| Some(it.outage.after_per_s / 1e6)),
        ("drop at the crash", |it| Some(it.outage.after_per_s / it.outage.before_per_s)),
        ("until throughput is back", |it| it.outage.back_after_ms),
    ];
    for (metric, of) in metrics {
        sheet.fill("SmallBank", metric, &|form| answer(form, of));
    }
    draw(done, sheet);
    sheet.note(format!(
        "the crash comes {BEFORE_MS} ms after the start instead of 3 s; all compute nodes are known to be \
         dead at once, as in the paper. Until when the machines are back is assumed: \
         cluster.reregister_ms and cluster.reconnect_ms of the profile, which nobody measured"
    ));
}

fn draw(done: &Done<'_>, sheet: &mut Sheet) {
    let ran = done.runs.crashes.iter().filter_map(|(_, crashed)| crashed.as_ref().ok());
    let line = |(colour, crashed): (usize, &Crashed)| {
        let outage = &crashed.outage;
        let mark = |(at, per_s): (usize, &f64)| {
            let ms = at as f64 * outage.shape.interval_ms;
            let events = outage.events.iter();
            let events =
                events.filter(|it| it.at_ms >= ms && it.at_ms < ms + outage.shape.interval_ms);
            let told: Vec<&str> = events.map(|it| it.what.as_str()).collect();
            let title =
                format!("{ms} ms: {:.3} M transactions/s\n{}", per_s / 1e6, told.join("\n"));
            Mark { x: ms, y: per_s / 1e6, title }
        };
        let marks = outage.throughput_per_s.iter().enumerate().map(mark).collect();
        Line { name: crashed.system.to_owned(), colour, dashed: false, marks }
    };
    sheet.draw(Picture::Lines(Chart {
        title: "Throughput in intervals of 1 ms".into(),
        x_name: "virtual time, ms".into(),
        y_name: "M transactions/s".into(),
        x_scale: Scale::Number,
        y_may_be_logarithmic: false,
        lines: ran.enumerate().map(line).collect(),
    }));
}
