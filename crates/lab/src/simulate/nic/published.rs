//! What was measured on real NICs: figures with their citations.
//!
//! Invariant: nothing here is used by the model. A figure that a constant of the profile was taken from
//! says so, because the model cannot miss it; the others test it. A miss that is understood is explained
//! where the figure stands.

use super::{Calls, Found, Loop, Point, Verbs};
use serde::Serialize;
use tarn_fabric::round::VerbKind;
use tarn_sim::profile::{Profile, Standing};

/// What of a point was published.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Millions a second.
    Rate,
    /// Median latency, in microseconds.
    Latency,
    /// So many times the rate of another point.
    Gain(Point),
}

/// A published figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// On which hardware.
    pub profile: &'static str,
    /// Of what.
    pub of: Point,
    /// What of it.
    pub quantity: Quantity,
    /// In the quantity's unit.
    pub value: f64,
    /// Who measured it.
    pub source: &'static str,
    /// The constant of the profile that was taken from it, or fitted to it.
    pub rests_on: Option<&'static str>,
    /// Why the model misses it, if that is known.
    pub miss: Option<&'static str>,
}

/// A published figure beside the model's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Beside {
    /// What is compared.
    pub quantity: &'static str,
    /// The model's figure.
    pub model: f64,
    /// The published one.
    pub published: f64,
    /// The model's figure over the published one.
    pub ratio: f64,
    /// Who measured it.
    pub source: &'static str,
    /// `measured`, `derived` or `assumed`, as the constant that rests on it; else `predicted`.
    pub standing: &'static str,
    /// That constant.
    pub rests_on: Option<&'static str>,
    /// Why the model misses it, if it does and that is known.
    pub miss: Option<&'static str>,
}

const RDMA_BENCH: &str = "rdma_bench on CloudLab ConnectX-3 machines";
const LOTUS: &str = "LOTUS, Motivation: rates of one ConnectX-3 56G NIC";
const SMART: &str = "Ren et al., \"Scaling up memory disaggregated applications with SMART\", \
                     ASPLOS 2024, raw data of the artifact";
const DANDELION: &str =
    "Dandelion, measurements of network batching on ConnectX-5 100G: almost twice";
const DANDELION_LITTLE: &str =
    "the same: from 4 to 8 is underwhelming, here taken as nothing gained";
const FASST: &str = "Kalia et al., \"FaSST\", OSDI 2016, public benchmarks: 10.7 to 10.9 M unsignalled \
                     READs a second and thread";
const ERPC_NIC: &str = "the public repository of eRPC: 60 to 80 M calls a second and NIC";
const ERPC: &str = "Kalia et al., \"Datacenter RPCs can be general and fast\" (eRPC), NSDI 2019";

const fn rate(profile: &'static str, of: Point, value: f64, source: &'static str) -> Figure {
    let quantity = Quantity::Rate;
    Figure { profile, of, quantity, value, source, rests_on: None, miss: None }
}

const fn by_clients(verb: VerbKind, clients: u16, value: f64) -> Figure {
    rate("cx3-56g", Point::Verbs(Verbs { verb, ..Verbs::clients(clients) }), value, RDMA_BENCH)
}

const fn by_threads(threads: u16, value: f64, rests_on: Option<&'static str>) -> Figure {
    let of = Point::Verbs(Verbs::doorbell(threads));
    Figure { rests_on, ..rate("cx6-200g", of, value, SMART) }
}

/// An inbound rate that saturates the responder.
const fn saturated(verb: VerbKind, value: f64, rests_on: &'static str) -> Figure {
    Figure { source: LOTUS, rests_on: Some(rests_on), ..by_clients(verb, 8, value) }
}

/// The same, with more threads.
const fn cx6(verb: VerbKind, value: f64, rests_on: &'static str) -> Figure {
    let of = Point::Verbs(Verbs { verb, ..Verbs::many() });
    Figure { rests_on: Some(rests_on), ..rate("cx6-200g", of, value, SMART) }
}

const fn unloaded(profile: &'static str, verb: VerbKind, us: f64, source: &'static str) -> Figure {
    let of = Point::Verbs(Verbs::batch(verb, 1));
    Figure { quantity: Quantity::Latency, ..rate(profile, of, us, source) }
}

const fn gain(from: u16, to: u16, value: f64) -> Figure {
    let quantity = Quantity::Gain(Point::Calls(Calls::packed(from)));
    Figure { quantity, ..rate("cx5-100g", Point::Calls(Calls::packed(to)), value, DANDELION) }
}

const ISSUE: Option<&str> = Some("nic.issue_ns");
const SHARED: Option<&str> = Some("cpu.doorbell_shared_ns");
const HANDOFF: Option<&str> = Some("cpu.doorbell_handoff_ns");
const POST: Option<&str> = Some("cpu.post_verb_ns");

const CLIENT_LOOP: Option<&str> = Some(
    "the published loop is not known: 156 ns a READ and machine at one client. Here a thread rings once \
     for eight READs and is its own limit",
);
const ATOMIC_LATENCY: Option<&str> = Some(
    "an atomic holds its unit for 400 ns (2.5 M/s), all of which its latency contains here; the NIC \
     seems to answer before the unit is free again",
);
const TWO_SOURCES: Option<&str> = Some(
    "57 ns were measured for receiving and sending together; the profile takes them for sending, and \
     what eRPC leaves of its 100 ns for receiving",
);
const OWN_DOORBELL: Option<&str> = Some(
    "the profile's 100 ns for sending and receiving are all that eRPC takes; doorbell, handler and \
     switch come on top here",
);
const SECOND_DMA: Option<&str> = Some(
    "the second DMA costs a packet 25 ns here (assumed), three times what sending it does: more \
     than doubling the look-ups a packet makes good",
);

/// All of them.
pub const FIGURES: &[Figure] = &[
    Figure { miss: CLIENT_LOOP, ..by_clients(VerbKind::Read, 1, 6.4) },
    Figure { miss: CLIENT_LOOP, ..by_clients(VerbKind::Read, 2, 12.9) },
    Figure { miss: CLIENT_LOOP, ..by_clients(VerbKind::Read, 4, 24.2) },
    Figure { rests_on: Some("nic.read_mops"), ..by_clients(VerbKind::Read, 8, 26.5) },
    by_clients(VerbKind::FetchAndAdd, 8, 2.7),
    saturated(VerbKind::Write, 35.0, "nic.write_mops"),
    saturated(VerbKind::CompareAndSwap, 2.5, "nic.atomic_mops"),
    Figure {
        rests_on: POST,
        ..rate("cx3-56g", Point::Verbs(Verbs::posting_alone(VerbKind::Read)), 10.8, FASST)
    },
    by_threads(1, 1.92, POST),
    by_threads(8, 14.8, POST),
    by_threads(16, 29.0, POST),
    by_threads(24, 39.0, None),
    by_threads(32, 39.1, SHARED),
    by_threads(48, 29.4, HANDOFF),
    by_threads(64, 23.0, HANDOFF),
    by_threads(96, 19.2, HANDOFF),
    Figure {
        of: Point::Verbs(Verbs { posting: Loop::RingEachAlone, ..Verbs::doorbell(96) }),
        ..by_threads(96, 111.2, Some("nic.transmit_mops"))
    },
    cx6(VerbKind::Read, 111.2, "nic.read_mops"),
    cx6(VerbKind::Write, 92.7, "nic.write_mops"),
    Figure { rests_on: ISSUE, ..unloaded("cx3-56g", VerbKind::Read, 1.92, RDMA_BENCH) },
    Figure { miss: ATOMIC_LATENCY, ..unloaded("cx3-56g", VerbKind::FetchAndAdd, 1.89, RDMA_BENCH) },
    Figure { rests_on: ISSUE, ..unloaded("cx6-200g", VerbKind::Read, 2.35, SMART) },
    unloaded("cx6-200g", VerbKind::Write, 2.40, SMART),
    Figure {
        miss: TWO_SOURCES,
        ..rate("cx3-56g", Point::Calls(Calls::saturated(1, 1)), 6.8, RDMA_BENCH)
    },
    Figure {
        miss: TWO_SOURCES,
        rests_on: Some("cpu.send_message_ns"),
        ..rate("cx3-56g", Point::Calls(Calls::saturated(1, 16)), 17.5, RDMA_BENCH)
    },
    Figure {
        miss: OWN_DOORBELL,
        rests_on: Some("cpu.receive_message_ns"),
        ..rate("cx5-100g", Point::Calls(Calls::saturated(1, 16)), 10.0, ERPC)
    },
    rate("cx5-100g", Point::Calls(Calls::saturated(16, 16)), 70.0, ERPC_NIC),
    Figure {
        quantity: Quantity::Latency,
        ..rate("cx5-100g", Point::Calls(Calls::alone(32)), 2.3, ERPC)
    },
    gain(1, 2, 2.0),
    Figure { miss: SECOND_DMA, source: DANDELION_LITTLE, ..gain(4, 8, 1.0) },
];

/// A standing in one word.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Measured => "measured",
        Standing::Derived => "derived",
        Standing::Assumed => "assumed",
    }
}

/// Within this a figure is met.
const MET: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// What was published of `point` on this hardware, beside what was found; `rate_of` runs another point.
pub(super) fn beside<E>(
    profile: &Profile,
    point: Point,
    found: &Found,
    rate_of: impl Fn(Point) -> Result<f64, E>,
) -> Result<Vec<Beside>, E> {
    let of_point = |figure: &&Figure| figure.profile == profile.name && figure.of == point;
    let figures = FIGURES.iter().filter(of_point);
    let each = figures.map(|figure| {
        let (quantity, model) = match figure.quantity {
            Quantity::Rate => ("M/s", found.rate_mops),
            Quantity::Latency => ("µs", found.latency_us.p50),
            Quantity::Gain(other) => {
                ("times the rate of half as many", found.rate_mops / rate_of(other)?)
            }
        };
        Ok(compare(profile, figure, quantity, model))
    });
    each.collect()
}

fn compare(profile: &Profile, figure: &Figure, quantity: &'static str, model: f64) -> Beside {
    let constants = profile.constants();
    let named = constants
        .iter()
        .find(|listed| Some(&*format!("{}.{}", listed.section, listed.name)) == figure.rests_on);
    let ratio = model / figure.value;
    Beside {
        quantity,
        model,
        published: figure.value,
        ratio,
        source: figure.source,
        standing: named.map_or("predicted", |listed| standing_name(listed.constant.standing)),
        rests_on: figure.rests_on,
        miss: figure.miss.filter(|_| !MET.contains(&ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_name_profiles_and_constants_that_there_are() {
        for figure in FIGURES {
            let profile = Profile::load(figure.profile).expect("a profile");
            let beside = compare(&profile, figure, "", figure.value);
            assert_eq!((beside.ratio, beside.miss), (1.0, None));
            assert_eq!(beside.standing == "predicted", figure.rests_on.is_none(), "{figure:?}");
        }
    }
}
