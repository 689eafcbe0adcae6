//! Tests the RTT budget of two-phase locking over a lock service: the number of round trips to memory of its
//! transactions.
//!
//! Invariant checked: the costs in the table in `protocol/serviced/mod.rs`, for each number of copies and each service.
//! A lock on a record costs no verb and no round of memory. The file `lock_service.rs` counts the messages of locks.

use super::*;
use By::{Cold, Other, Warm};
use Step::*;

const READ: &str = "read, address known";
const WRITE: &str = "write, address known";
const UNKNOWN: &str = "address unknown";
const AWAY: &str = "record away from its home, or absent";
const UPGRADED: &str = "read, then written";
const FOUND: &str = "absence found beside other reads, or several leaves read";
const ABORT: &str = "abort";
const SERVICES: [&str; 5] =
    ["2pl/fisslock", "2pl/fisslock-local", "2pl/srvlock", "2pl/parlock", "2pl/netlock"];

/// The cost of updating `records` records of one line: log and data are written to every copy.
fn writing(copies: usize, rounds: u64, reads: u64, records: u64) -> Cost {
    cost(rounds, 0, reads, (1 + records) * copies as u64, 0)
}

fn rows(copies: usize) -> Vec<Row<'static>> {
    let mut rows = vec![unmeasured(Warm, [Read(NARROW, &[1, 2, 3])])];
    for keys in [&[1][..], &[1, 2, 3]] {
        let (read, add, count) = ([Read(NARROW, keys)], [Add(NARROW, keys)], keys.len() as u64);
        rows.extend([
            row([READ], Warm, read, cost(1, 0, count, 0, 0)).phase("wait_turn", 0),
            row([READ, UNKNOWN], Cold, read, cost(2, 0, 2 * count, 0, 0)),
            row([WRITE], Warm, add, writing(copies, 3, count, count)),
            row([WRITE, UNKNOWN], Cold, add, writing(copies, 4, 2 * count, count)),
        ]);
    }
    let (refused, own) = (AbortReason::LockRefused, AbortReason::User);
    rows.extend([
        row([WRITE], Warm, [Ask(&[3]), Add(NARROW, &[1])], cost(3, 0, 2, 2 * copies as u64, 0)),
        row([AWAY], Cold, [Absent(&[777])], cost(2, 0, 4, 0, 0)).phase("validate", 0),
        row([AWAY, FOUND], Cold, [Absent(&[777, 778])], cost(3, 0, 10, 0, 0)).phase("validate", 1),
        // The transaction waits for the lock of record 2 and gives up. It has sent no round to memory.
        row([ABORT], Warm, [Add(NARROW, &[1, 2])], cost(0, 0, 0, 0, 0))
            .holding(2)
            .phase("wait_turn", 1)
            .aborts(refused),
        row([ABORT], Warm, [Read(NARROW, &[2])], cost(0, 0, 0, 0, 0))
            .holding(2)
            .phase("wait_turn", 1)
            .aborts(AbortReason::ReadLocked),
        row([ABORT], Warm, [Add(NARROW, &[1]), Abort], cost(1, 0, 1, 0, 0)).aborts(own),
        row([ABORT], Cold, [Read(NARROW, &[1, 2]), Abort], cost(2, 0, 4, 0, 0)).aborts(own),
        row(
            [WRITE, UPGRADED],
            Warm,
            [Read(NARROW, &[1]), Add(NARROW, &[1])],
            writing(copies, 4, 2, 1),
        ),
        // Buckets keep their LOCK words in memory, so inserts and deletes take and release these locks by CAS.
        row(VARIANT, Cold, [Insert(NARROW, 500, true)], cost(4, 1, 5, 3 * copies as u64, 2)),
        row(VARIANT, Cold, [Delete(NARROW, 500, true)], cost(4, 1, 5, 3 * copies as u64, 2)),
    ]);
    rows
}

#[test]
fn the_table_of_locking_over_a_service() {
    let mut budget = Budget::of(include_str!("../../../src/protocol/serviced/mod.rs"));
    for service in SERVICES {
        for copies in COPIES {
            budget.run(&Scene::of(service, copies), rows(copies));
        }
    }
    let scans = vec![
        row(VARIANT, Other, [Scan(0, 20)], cost(2, 0, 6, 0, 0)),
        row(VARIANT, Other, [Scan(0, 160)], cost(2, 0, 3 * 3 + 3, 0, 0)),
    ];
    budget.run(&Scene::ordered(SERVICES[0], 1, 200), scans);
    budget.end();
}
