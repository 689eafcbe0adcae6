//! Switches: half of a round trip, line rate, order, and the same run for the same seed.

use crate::common::{compute, config, fabric, port};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::clock::Nanos;
use tarn_fabric::port::Port;
use tarn_sim::config::{Chaos, Mode};
use tarn_sim::fabric::SimFabric;
use tarn_sim::scheduler::{Ended, Scheduler};
use tarn_sim::switch::{Pass, Program, SwitchConfig};
use tarn_sim::usage::Part;

/// A program of a few lines.
struct Run<F>(F);

impl<F: FnMut(Endpoint, &[u8], &mut Pass, &mut dyn FnMut(Endpoint, &[u8]))> Program for Run<F> {
    fn process(
        &mut self,
        from: Endpoint,
        packet: &[u8],
        pass: &mut Pass,
        send: &mut dyn FnMut(Endpoint, &[u8]),
    ) {
        (self.0)(from, packet, pass, send);
    }
}

/// Adds a switch that sends each packet back.
fn echo(fabric: &SimFabric) -> Endpoint {
    let program =
        Run(|from, packet: &[u8], _pass: &mut Pass, send: &mut dyn FnMut(Endpoint, &[u8])| {
            send(from, packet);
        });
    let node = fabric.add_switch(SwitchConfig::TOFINO, program).unwrap();
    Endpoint { node: node.slot, thread: 0 }
}

/// Waits for so many datagrams, and returns their first bytes.
async fn take(port: &Port, count: usize) -> Vec<u8> {
    let mut first = Vec::new();
    loop {
        port.receive(64, &mut |_, bytes| first.push(bytes[0]));
        if first.len() >= count {
            return first;
        }
        port.yield_now().await;
    }
}

/// The time from the sending of a datagram to its answer.
async fn round_trip(port: &Port, to: Endpoint) -> Nanos {
    let start = port.now();
    port.send(to, &[1; 64]).unwrap();
    take(port, 1).await;
    port.now() - start
}

#[test]
fn a_switch_answers_in_about_half_of_the_time_of_a_node() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let switch = echo(&fabric);
    let (asker, node) = (port(&fabric, 0, 0), port(&fabric, 1, 0));
    let to_node = node.endpoint();
    let stop = Rc::new(Cell::new(false));
    let mut scheduler = Scheduler::new(&fabric);
    let stopped = Rc::clone(&stop);
    scheduler.spawn(&node.clone(), async move {
        while !stopped.get() {
            let mut from = None;
            node.receive(1, &mut |sender, _| from = Some(sender));
            if let Some(from) = from {
                node.send(from, &[1; 64]).unwrap();
            }
            node.yield_now().await;
        }
    });
    let (by_switch, by_node) = scheduler.block_on(&asker.clone(), async move {
        let both = (round_trip(&asker, switch).await, round_trip(&asker, to_node).await);
        stop.set(true);
        both
    });
    // Both ways of a node pass the switch, two NICs and a processor; the switch's way passes one NIC.
    let ratio = by_switch.0 as f64 / by_node.0 as f64;
    assert!((0.45..0.62).contains(&ratio), "{by_switch} by the switch, {by_node} by a node");
}

#[test]
fn a_slow_pipeline_takes_its_packets_one_after_the_other() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let count = 100;
    let program =
        Run(|from, packet: &[u8], pass: &mut Pass, send: &mut dyn FnMut(Endpoint, &[u8])| {
            pass.touch(0);
            pass.resubmit();
            pass.touch(0);
            send(from, packet);
        });
    let config = SwitchConfig { packets_mpps: 1, passes_max: 2 };
    let node = fabric.add_switch(config, program).unwrap();
    let (asker, to) = (port(&fabric, 0, 0), Endpoint { node: node.slot, thread: 0 });
    let mut scheduler = Scheduler::new(&fabric);
    let took = scheduler.block_on(&asker.clone(), async move {
        let start = asker.now();
        (0..count).for_each(|number| asker.send(to, &[number; 8]).unwrap());
        // The switch keeps the order of its packets.
        assert_eq!(take(&asker, usize::from(count)).await, (0..count).collect::<Vec<u8>>());
        asker.now() - start
    });
    // Two slots of 1 µs for each packet.
    assert!((200_000..203_000).contains(&took.0), "{took}");
    let usage = fabric.usage();
    let busy: Vec<_> = usage.parts.iter().filter(|used| used.part == Part::Switch).collect();
    assert_eq!(busy.len(), 1);
    assert_eq!((busy[0].of.as_str(), busy[0].busy_ps), ("switch 4", 200_000_000));
}

#[test]
fn the_datagrams_of_a_thread_reach_the_switch_in_their_order_whatever_their_lengths() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&seen);
    let program = Run(move |_, packet: &[u8], _: &mut Pass, _: &mut dyn FnMut(Endpoint, &[u8])| {
        told.borrow_mut().push(packet[0]);
    });
    let node = fabric.add_switch(SwitchConfig::TOFINO, program).unwrap();
    let (sender, to) = (port(&fabric, 0, 0), Endpoint { node: node.slot, thread: 0 });
    let mut scheduler = Scheduler::new(&fabric);
    scheduler.block_on(&sender.clone(), async move {
        for number in 0..20u8 {
            // A long datagram is followed by a short one at once.
            let bytes = if number.is_multiple_of(2) { 4_000 } else { 8 };
            sender.send(to, &vec![number; bytes]).unwrap();
            sender.sleep(Nanos(1)).await;
        }
        sender.sleep(Nanos(10_000)).await;
    });
    assert_eq!(*seen.borrow(), (0..20).collect::<Vec<u8>>());
}

#[test]
fn a_program_may_send_one_packet_to_several_nodes() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let all = [1, 2, 3].map(|slot| Endpoint { node: NodeSlot(slot), thread: 0 });
    let program =
        Run(move |_, packet: &[u8], _: &mut Pass, send: &mut dyn FnMut(Endpoint, &[u8])| {
            all.iter().for_each(|to| send(*to, packet));
        });
    let node = fabric.add_switch(SwitchConfig::TOFINO, program).unwrap();
    let (asker, to) = (port(&fabric, 0, 0), Endpoint { node: node.slot, thread: 0 });
    let ports = [1, 2, 3].map(|slot| port(&fabric, slot, 0));
    let mut scheduler = Scheduler::new(&fabric);
    let arrived = Rc::new(RefCell::new(Vec::new()));
    for port in ports {
        let arrived = Rc::clone(&arrived);
        scheduler.spawn(&port.clone(), async move {
            take(&port, 1).await;
            arrived.borrow_mut().push(port.now());
        });
    }
    scheduler.spawn(&asker.clone(), async move { asker.send(to, &[7]).unwrap() });
    assert_eq!(scheduler.run_until(Nanos(100_000)), Ended::Finished);
    let arrived = arrived.borrow();
    assert!(arrived.len() == 3 && arrived.iter().all(|at| *at == arrived[0]), "{arrived:?}");
}

#[test]
#[should_panic(expected = "array 2 = touched again in one pass")]
fn a_program_that_touches_an_array_twice_is_refused_when_it_runs() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let program = Run(|_, _: &[u8], pass: &mut Pass, _: &mut dyn FnMut(Endpoint, &[u8])| {
        pass.touch(2);
        pass.touch(2);
    });
    let node = fabric.add_switch(SwitchConfig::TOFINO, program).unwrap();
    let (asker, to) = (port(&fabric, 0, 0), Endpoint { node: node.slot, thread: 0 });
    Scheduler::new(&fabric).block_on(&asker.clone(), async move {
        asker.send(to, &[1]).unwrap();
        asker.sleep(Nanos(10_000)).await;
    });
}

/// Eight packets through a switch that may lose and double them.
fn run(seed: u64, mode: Mode) -> (u64, usize) {
    let fabric = SimFabric::new(&config("cx5-100g", mode, seed)).unwrap();
    let switch = echo(&fabric);
    let asker = fabric.port(compute(0), 0, seed);
    let arrived = Scheduler::new(&fabric).block_on(&asker.clone(), async move {
        let mut arrived = 0;
        for number in 0..8u8 {
            asker.send(switch, &[number; 32]).unwrap();
            asker.sleep(Nanos(1_000)).await;
        }
        for _ in 0..200 {
            arrived += asker.receive(64, &mut |_, _| ());
            asker.sleep(Nanos(1_000)).await;
        }
        arrived
    });
    (fabric.digest(), arrived)
}

#[test]
fn the_same_seed_gives_the_same_run_and_random_mode_loses_and_doubles_packets() {
    assert_eq!(run(1, Mode::Timed), run(1, Mode::Timed));
    assert_eq!(run(1, Mode::Timed).1, 8);
    let lossy = Chaos { loss_percent: 30, duplicate_percent: 30, ..Chaos::CALM };
    let runs: Vec<_> = (0..20).map(|seed| run(seed, Mode::Random(lossy))).collect();
    assert_eq!(runs[3], run(3, Mode::Random(lossy)));
    assert!(runs.iter().any(|it| it.1 < 8) && runs.iter().any(|it| it.1 > 8), "{runs:?}");
}

#[test]
fn an_impossible_pipeline_is_refused_by_name() {
    let fabric = fabric("cx5-100g", Mode::Timed, 1);
    let nothing = || Run(|_, _: &[u8], _: &mut Pass, _: &mut dyn FnMut(Endpoint, &[u8])| ());
    for (config, text) in [
        (
            SwitchConfig { packets_mpps: 0, passes_max: 1 },
            "packets_mpps = 0; allowed: 1 to 1000000",
        ),
        (SwitchConfig { packets_mpps: 1, passes_max: 65 }, "passes_max = 65; allowed: 1 to 64"),
    ] {
        let error = fabric.add_switch(config, nothing()).expect_err("refused");
        assert_eq!(error.to_string(), text);
    }
}
