//! Section 4.3: how long a shard is served by nobody while it moves, under a hot spot that moves.

use super::super::case::Missing;
use super::super::entrant::{Form, Who};
use super::super::sheet::{Answer, Sheet};
use super::super::targets::RESHARDING;
use super::{Done, Jobs, Section};
use tarn_engine::protocol::AnyProtocol;

pub(super) const SECTION: Section = Section {
    name: "resharding",
    title: "Section 4.3: interruption of a shard that moves",
    targets: RESHARDING,
    jobs: |_| Jobs::default(),
    fill,
};

/// The switch that a protocol has whose shards move.
const SWITCH: &str = "resharding";

fn answer(form: Form) -> Answer {
    let system = Who::Lotus.system(form);
    let protocol = AnyProtocol::by_name(system.protocol, system.variant)?;
    let info = protocol.info();
    let moves = info.switches.iter().any(|switch| switch.name == SWITCH);
    Err(Missing(match moves {
        false => format!("{} has no switch {SWITCH} yet", info.name),
        true => "no hot spot that moves is run here yet".into(),
    }))
}

fn fill(_: &Done<'_>, sheet: &mut Sheet) {
    for target in RESHARDING {
        sheet.fill(target.workload, target.metric, &answer);
    }
    sheet.note(
        "asked beside what was published: throughput after a shard has moved is at least 90 % of the \
         balanced case",
    );
}
