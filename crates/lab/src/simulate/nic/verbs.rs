//! Measures verbs at one memory node. Threads post these verbs in a closed loop.
//!
//! Invariant: a thread posts new verbs as soon as it has the responses to its earlier verbs, and it does no other
//! work.

use super::{Found, Loop, Verbs, Watch, count, fabric, port};
use tarn_fabric::address::{Address, GroupId, NodeSlot};
use tarn_fabric::backend::Detached;
use tarn_fabric::port::Port;
use tarn_fabric::round::{Round, VerbKind};
use tarn_sim::config::ConfigError;
use tarn_sim::profile::{Doorbells, Profile};
use tarn_sim::scheduler::Scheduler;

/// The number of different addresses that the verbs access.
const WORDS: u64 = 2048;
const FIRST_BYTE: u64 = 4096;
const ALIVE: &str = "the memory node lives";

/// Adds `count` verbs to the round. The verbs access different words, beginning with the word number `first`.
fn add(round: &mut Round, verb: VerbKind, payload_bytes: u16, first: u64, count: u16) {
    let bytes = usize::from(payload_bytes);
    for index in first..first + u64::from(count) {
        let stride = bytes.next_multiple_of(64) as u64;
        let address = Address::new(GroupId(0), FIRST_BYTE + index % WORDS * stride);
        let target = address.at(NodeSlot(0));
        match verb {
            VerbKind::Read => _ = round.read(target, bytes),
            VerbKind::Write => {
                let from = round.reserve(bytes);
                round.write(target, from, bytes);
            }
            VerbKind::CompareAndSwap => _ = round.cas(target, 0, 0),
            _ => _ = round.faa(target, 1),
        }
    }
}

async fn batches(port: Port, verbs: Verbs, first: u64, watch: &Watch) {
    let (mut round, depth) = (Round::new(), u64::from(verbs.depth));
    for turn in 0.. {
        round.clear();
        add(&mut round, verbs.verb, verbs.payload_bytes, first + turn * depth, verbs.depth);
        let start = port.now();
        port.execute(&mut round).await.expect(ALIVE);
        watch.note(port.now() - start, depth);
    }
}

async fn ring_each(port: Port, verbs: Verbs, first: u64, watch: &Watch) {
    let (mut round, depth) = (Round::new(), u64::from(verbs.depth));
    let mut posted: Vec<Detached> = Vec::new();
    for turn in 0.. {
        let start = port.now();
        for index in 0..depth {
            round.clear();
            add(&mut round, verbs.verb, verbs.payload_bytes, first + turn * depth + index, 1);
            posted.push(port.post_detached(&mut round).expect(ALIVE));
        }
        for detached in posted.drain(..) {
            port.settle(detached).await.expect(ALIVE);
        }
        watch.note(port.now() - start, depth);
    }
}

/// Runs the verbs and returns the measured rate and latency.
pub(super) fn run(profile: &Profile, verbs: Verbs) -> Result<Found, ConfigError> {
    let alone = verbs.posting == Loop::RingEachAlone;
    let fabric = match alone {
        false => fabric(profile, verbs.clients)?,
        true => fabric(&with_own_registers(profile), verbs.clients)?,
    };
    let watch = Watch::new();
    let mut scheduler = Scheduler::new(&fabric);
    for slot in 0..verbs.clients {
        for thread in 0..verbs.threads {
            let port = port(&fabric, slot, thread);
            let first = (u64::from(slot) * 131 + u64::from(thread) * 17) * 37;
            match verbs.posting {
                Loop::RingEach | Loop::RingEachAlone => {
                    scheduler.spawn(&port, ring_each(port.clone(), verbs, first, &watch));
                }
                Loop::Batches(count) => {
                    for batch in 0..u64::from(count) {
                        let first = first + batch * 509;
                        scheduler.spawn(&port, batches(port.clone(), verbs, first, &watch));
                    }
                }
            }
        }
    }
    Ok(count(&fabric, &mut scheduler, &watch))
}

/// Returns the hardware profile with a doorbell register for each thread.
fn with_own_registers(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.form.doorbells.value = Doorbells::OneAThread;
    profile
}
