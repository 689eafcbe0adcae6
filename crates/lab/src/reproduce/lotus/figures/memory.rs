//! Figure 16: what a memory node holds.
//!
//! Taken from the layouts: what is laid out for a record of each table, times the records that are loaded.
//! The paper measures after 60 s; here nothing is added for old versions that wait to be freed.

use super::super::Sheet;
use super::super::entrant::{Form, Who};
use super::super::targets::MEMORY;
use super::{Done, Jobs, Section};
use crate::reproduce::paper::bars::Bars;
use crate::reproduce::paper::case::{Bench, Case, Kind};
use crate::reproduce::paper::runs::catalog_of;
use crate::reproduce::paper::sheet::{Answer, Found, Picture};

pub(super) const SECTION: Section = Section {
    name: "fig-16",
    title: "Figure 16: memory of a memory node",
    targets: MEMORY,
    jobs: |_| Jobs::default(),
    fill,
};

const MIB: f64 = (1 << 20) as f64;

/// MiB of all records with their share of the index, one copy, over all memory nodes.
fn laid_out(bench: Bench, (who, form): (Who, Form)) -> Answer {
    let case = Case::of(bench, (who, form), &[1]);
    let catalog = catalog_of(&case, MEMORY_NODES)?;
    let options = catalog.options();
    let bytes = |table: &tarn_store::placement::catalog::Table| {
        let slots = u64::from(options.bucket.slots);
        let slot = options.bucket.bucket_bytes(&table.slot) as u64 / slots;
        let slots = slot * u64::from(options.slots_per_100_records) / 100;
        table.schema.expected_records * (slots + table.slot.body_bytes() as u64)
    };
    let bytes: u64 = catalog.tables().iter().map(bytes).sum();
    Ok(Found { value: bytes as f64 / MIB, busy: format!("{} MiB", bytes >> 20) })
}

/// The layout does not depend on them.
const MEMORY_NODES: usize = 3;

fn fill(done: &Done<'_>, sheet: &mut Sheet) {
    for bench in done.extent.benchmarks() {
        sheet.fill(bench.kind.name(), "memory over Motor's", &|form| {
            let of = |who| laid_out(bench, (who, form));
            let (lotus, motor) = (of(Who::Lotus)?, of(Who::Motor)?);
            let busy = format!("LOTUS {}, Motor {}", lotus.busy, motor.busy);
            Ok(Found { value: lotus.value / motor.value, busy })
        });
    }
    let value = |who, bench| laid_out(bench, (who, Form::Corrected)).ok().map(|it| it.value);
    let series = super::SYSTEMS.map(|who| {
        let values = done.extent.benchmarks().map(|bench| value(who, bench));
        (super::name_of(who).to_owned(), values.into())
    });
    sheet.draw(Picture::Bars(Bars {
        title: "Laid out for records, one copy".into(),
        y_name: "MiB".into(),
        groups: [Kind::Tatp, Kind::Tpcc, Kind::SmallBank].map(|it| it.name().to_owned()).into(),
        series: series.into(),
    }));
    sheet.note(
        "arithmetic on the layouts, not a measurement: slots and record memory of the loaded records, one \
         copy; nothing is added for versions that wait to be freed, which the paper's 60 s contain",
    );
}
