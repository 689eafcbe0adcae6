//! Tests windows and waits on the machine's own clock.
//!
//! Invariant checked: if the window of a reader on another thread was shorter than the writer's wait, the reader has
//! seen all of the writes or none. Windows and waits allocate no memory.

use crate::one_core;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot, Target};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_fabric::local::probe::allocations_of_this_thread;
use tarn_fabric::local::{LocalConfig, LocalFabric};
use tarn_fabric::port::Port;
use tarn_fabric::round::Round;
use tarn_fabric::window::Drift;

const LEASE: Nanos = Nanos(20_000);

fn compute(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

/// Returns two words that serve as records. The word of a record is even if the record is free, and odd if it is
/// locked.
fn records() -> [Target; 2] {
    [4096, 8192].map(|offset| Address::new(GroupId(0), offset).at(NodeSlot(0)))
}

async fn add_to_both(port: &Port) {
    let mut round = Round::new();
    for record in records() {
        round.faa(record, 1);
    }
    port.execute(&mut round).await.expect("nothing breaks");
}

async fn read(port: &Port, record: Target) -> u64 {
    let mut round = Round::new();
    let found = round.read(record, 8);
    port.execute(&mut round).await.expect("nothing breaks");
    round.word(found)
}

#[test]
fn a_reader_in_lease_has_seen_all_of_a_writer_or_nothing() {
    if one_core() {
        return;
    }
    let fabric = LocalFabric::new(&LocalConfig::default()).expect("a small one");
    let is_over = AtomicBool::new(false);
    let (fabric, is_over) = (&fabric, &is_over);
    let (mut in_lease, mut apart) = (0, 0);
    thread::scope(|threads| {
        threads.spawn(move || {
            let port = fabric.port(compute(1), 0, 1);
            block_on(async {
                for _ in 0..4_000 {
                    add_to_both(&port).await;
                    let wait = port.begin_wait().await;
                    port.end_wait(wait, LEASE).await;
                    add_to_both(&port).await;
                    port.sleep(LEASE).await;
                }
            });
            is_over.store(true, Ordering::SeqCst);
        });
        let port = fabric.port(compute(0), 0, 1);
        block_on(async {
            while !is_over.load(Ordering::SeqCst) {
                let window = port.open_window().await;
                let one = read(&port, records()[0]).await;
                port.sleep(Nanos(in_lease % LEASE.0)).await;
                let other = read(&port, records()[1]).await;
                let is_free = one % 2 == 0 && other % 2 == 0;
                apart += u64::from(is_free && one != other);
                if port.close_window(window, LEASE).await.is_shorter && is_free {
                    in_lease += 1;
                    assert_eq!(one, other, "read {in_lease} in lease");
                }
            }
        });
    });
    println!("{in_lease} in lease; {apart} apart, all of them longer");
    assert!(in_lease > 0);
}

#[test]
fn nothing_is_allocated_and_a_wait_takes_its_time() {
    let fabric = LocalFabric::new(&LocalConfig::default()).expect("a small one");
    let port = fabric.port(compute(0), 0, 1);
    assert_eq!(port.drift(), Drift::ONE_CLOCK);
    block_on(async {
        let before = allocations_of_this_thread();
        for _ in 0..100 {
            let window = port.open_window().await;
            assert!(port.close_window(window, Nanos(u64::MAX)).await.is_shorter);
            let begun = port.now();
            let wait = port.begin_wait().await;
            port.end_wait(wait, Nanos(1_000)).await;
            assert!(port.now() - begun >= Nanos(1_000));
            let window = port.open_window().await;
            assert!(!port.close_window(window, Nanos(0)).await.is_shorter);
        }
        assert_eq!(allocations_of_this_thread(), before);
    });
}
