//! What was measured on real NICs: figures with their citations.
//!
//! Invariant: nothing here is used by the model. A figure that a constant of the profile was taken from
//! says so, because the model cannot miss it; the others test it.

use super::nic::{Latency, Point, Rate};
use serde::Serialize;
use tarn_fabric::round::VerbKind;
use tarn_sim::profile::{Profile, Standing};

/// A published figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// On which hardware.
    pub profile: &'static str,
    /// Of what.
    pub of: Point,
    /// Millions a second, or microseconds.
    pub value: f64,
    /// Who measured it.
    pub source: &'static str,
    /// The constant of the profile that was taken from it, or fitted to it.
    pub rests_on: Option<&'static str>,
}

/// A published figure beside the model's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// Millions a second, or microseconds.
    pub published: f64,
    /// The model's figure over the published one.
    pub ratio: f64,
    /// Who measured it.
    pub source: &'static str,
    /// `measured`, `derived` or `assumed`, as the constant that rests on it; else `predicted`.
    pub standing: &'static str,
    /// That constant.
    pub rests_on: Option<&'static str>,
}

const RDMA_BENCH: &str = "rdma_bench on CloudLab ConnectX-3 machines";
const LOTUS: &str = "LOTUS, Motivation: rates of one ConnectX-3 56G NIC";
const SMART: &str = "Ren et al., \"Scaling up memory disaggregated applications with SMART\", \
                     ASPLOS 2024, raw data of the artifact";

const fn by_clients(verb: VerbKind, clients: u16, value: f64) -> Figure {
    let of = Point::Rate(Rate { verb, ..Rate::clients(clients) });
    Figure { profile: "cx3-56g", of, value, source: RDMA_BENCH, rests_on: None }
}

const fn by_threads(threads: u16, value: f64, rests_on: Option<&'static str>) -> Figure {
    let of = Point::Rate(Rate::doorbell(threads));
    Figure { profile: "cx6-200g", of, value, source: SMART, rests_on }
}

/// An inbound rate that saturates the responder.
const fn saturated(verb: VerbKind, value: f64, rests_on: &'static str) -> Figure {
    Figure { source: LOTUS, rests_on: Some(rests_on), ..by_clients(verb, 8, value) }
}

const fn unloaded(profile: &'static str, value: f64, source: &'static str) -> Figure {
    let of = Point::Latency(Latency { verb: VerbKind::Read, payload_bytes: 8 });
    Figure { profile, of, value, source, rests_on: Some("nic.issue_ns") }
}

const SHARED: Option<&str> = Some("cpu.doorbell_shared_ns");
const HANDOFF: Option<&str> = Some("cpu.doorbell_handoff_ns");
const POST: Option<&str> = Some("cpu.post_verb_ns");

/// All of them.
pub const FIGURES: &[Figure] = &[
    by_clients(VerbKind::Read, 1, 6.4),
    by_clients(VerbKind::Read, 2, 12.9),
    by_clients(VerbKind::Read, 4, 24.2),
    Figure { rests_on: Some("nic.read_mops"), ..by_clients(VerbKind::Read, 8, 26.5) },
    by_clients(VerbKind::FetchAndAdd, 8, 2.7),
    saturated(VerbKind::Write, 35.0, "nic.write_mops"),
    saturated(VerbKind::CompareAndSwap, 2.5, "nic.atomic_mops"),
    by_threads(1, 1.92, POST),
    by_threads(8, 14.8, POST),
    by_threads(16, 29.0, POST),
    by_threads(24, 39.0, None),
    by_threads(32, 39.1, SHARED),
    by_threads(48, 29.4, HANDOFF),
    by_threads(64, 23.0, HANDOFF),
    by_threads(96, 19.2, HANDOFF),
    unloaded("cx3-56g", 1.92, RDMA_BENCH),
    unloaded("cx6-200g", 2.35, SMART),
];

/// A standing in one word.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Measured => "measured",
        Standing::Derived => "derived",
        Standing::Assumed => "assumed",
    }
}

/// What was published of `point` on this hardware, if anything.
pub fn beside(profile: &Profile, point: Point, model: f64) -> Option<Beside> {
    let same = |figure: &&Figure| figure.profile == profile.name && figure.of == point;
    let figure = FIGURES.iter().find(same)?;
    let constants = profile.constants();
    let named = constants
        .iter()
        .find(|listed| Some(&*format!("{}.{}", listed.section, listed.name)) == figure.rests_on);
    Some(Beside {
        published: figure.value,
        ratio: model / figure.value,
        source: figure.source,
        standing: named.map_or("predicted", |listed| standing_name(listed.constant.standing)),
        rests_on: figure.rests_on,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_name_profiles_and_constants_that_there_are() {
        for figure in FIGURES {
            let profile = Profile::load(figure.profile).expect("a profile");
            let beside = beside(&profile, figure.of, figure.value).expect("found again");
            assert_eq!(beside.ratio, 1.0);
            assert_eq!(beside.standing == "predicted", figure.rests_on.is_none(), "{figure:?}");
        }
    }
}
