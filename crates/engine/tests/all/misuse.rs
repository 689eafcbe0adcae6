//! Tests that a mistake of a transaction's caller ends in an error that describes the mistake, and that nothing is
//! written.
//!
//! Invariant checked: under every protocol, the error comes at the commit at the latest. Afterwards no lock is held,
//! and the same coordinator can run further transactions. If a mistake follows from an outdated read, it does not
//! count, and the transaction is tried again.

use crate::common::*;
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{Explanation, Failure};
use tarn_store::schema::{Cells, TableId};

const LAYOUTS: [TableId; 3] = [TableId(0), TableId(1), TableId(2)];

fn world(protocol: &'static str) -> World {
    let schemas = [narrow("narrow", 64), double("double", 64), apart("apart", 64)];
    World::new(&Shape::of(&schemas).protocol(protocol).nodes(2, 2))
}

/// Runs a body that must fail by its own mistake. Returns the error's text. The body may also change record 9, and
/// this record must stay unchanged.
#[track_caller]
fn refused<R: std::fmt::Debug>(
    world: &World,
    by: &mut Coordinator,
    body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
) -> String {
    let result = block_on(by.transact(body));
    assert_eq!(result.unwrap_err(), Failure::Usage);
    let told = match by.context().explanation(Failure::Usage) {
        Some(Explanation::Usage(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    for table in LAYOUTS {
        assert_eq!(value_of(by, table, 9), Some(9));
    }
    world.assert_clean();
    told
}

async fn change_nine(tx: &mut Transaction<'_>, table: TableId) -> Result<(), Failure> {
    let nine = tx.update(table, 9u64, Cells::ALL);
    tx.fetch().await?;
    tx.set(nine, A, 90u64);
    Ok(())
}

/// Runs `check` for every layout under every protocol. Each check also tries a change that must not take
/// effect.
fn in_every_layout(check: impl Fn(&World, &mut Coordinator, TableId)) {
    for info in ALL {
        let world = world(info.name);
        let mut by = world.coordinator(0, 0);
        for table in LAYOUTS {
            fill(&mut by, table, [1, 9]);
        }
        for table in LAYOUTS {
            check(&world, &mut by, table);
        }
    }
}

#[test]
fn a_set_of_a_missing_row_is_an_error() {
    in_every_layout(|world, by, table| {
        let told = refused(world, by, async |tx| {
            change_nine(tx, table).await?;
            let row = tx.update(table, 5u64, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 50u64);
            Ok(())
        });
        assert!(told.contains("key 5 that the update did not find"), "{told}");
        let told = refused(world, by, async |tx| {
            change_nine(tx, table).await?;
            let row = tx.insert(table, 1u64);
            tx.fetch().await?;
            tx.set(row, A, 50u64);
            Ok(())
        });
        assert!(told.contains("key 1 that the insert found present"), "{told}");
        for first in [0u64, 1] {
            // In this case the test changes the row by the handle of an update or of an insert, and then deletes the
            // row.
            let told = refused(world, by, async |tx| {
                change_nine(tx, table).await?;
                let key = if first == 0 { 5u64 } else { 1 };
                let row = match first {
                    0 => tx.insert(table, key),
                    _ => tx.update(table, key, Cells::ALL),
                };
                tx.fetch().await?;
                tx.set(row, A, 50u64);
                tx.delete(table, key);
                tx.fetch().await?;
                tx.set(row, A, 51u64);
                Ok(())
            });
            assert!(told.contains("deleted") || told.contains("taken back"), "{told}");
        }
        assert_eq!((value_of(by, table, 1), value_of(by, table, 5)), (Some(1), None));
    });
}

#[test]
fn further_operations_report_mistakes_by_their_own_handles() {
    in_every_layout(|world, by, table| {
        let told = refused(world, by, async |tx| {
            let row = tx.update(table, 1u64, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 10u64);
            let again = tx.insert(table, 1u64);
            tx.fetch().await?;
            assert!(tx.existed(again));
            tx.set(again, A, 50u64);
            assert_eq!(tx.get(again).unwrap().u64(A), 10);
            Ok(())
        });
        assert!(told.contains("key 1 that the insert found present"), "{told}");
        let told = refused(world, by, async |tx| {
            tx.delete(table, 1u64);
            let row = tx.update(table, 1u64, Cells::ALL);
            tx.fetch().await?;
            assert!(!tx.existed(row));
            tx.set(row, A, 50u64);
            Ok(())
        });
        assert!(told.contains("key 1 that the update did not find"), "{told}");
        assert_eq!(value_of(by, table, 1), Some(1));
    });
}

#[test]
fn a_row_without_a_set_column_is_inserted_only_by_insert_zeros() {
    in_every_layout(|world, by, table| {
        for fetches in [false, true] {
            let told = refused(world, by, async |tx| {
                change_nine(tx, table).await?;
                tx.insert(table, 5u64);
                if fetches {
                    tx.fetch().await?;
                }
                Ok(())
            });
            assert!(told.contains("key 5 without a column that is set"), "{told}");
            assert!(told.contains("insert_zeros"), "{told}");
            // If the body deletes the row first, the same error must come.
            let told = refused(world, by, async |tx| {
                tx.delete(table, 1u64);
                if fetches {
                    tx.fetch().await?;
                }
                tx.insert(table, 1u64);
                Ok(())
            });
            assert!(told.contains("key 1 without a column that is set"), "{told}");
        }
        assert_eq!(value_of(by, table, 1), Some(1));
        block_on(by.transact(async |tx| {
            tx.insert_zeros(table, 5u64);
            tx.delete(table, 1u64);
            tx.insert_zeros(table, 1u64);
            tx.insert(table, 9u64); // record 9 exists, so nothing is inserted
            tx.insert(table, 6u64);
            tx.delete(table, 6u64);
            Ok(())
        }))
        .unwrap();
        let values = [1, 5, 6, 9].map(|key| value_of(by, table, key));
        assert_eq!(values, [Some(0), Some(0), None, Some(9)]);
        world.assert_clean();
    });
}

#[test]
fn a_handle_of_another_transaction_is_refused() {
    in_every_layout(|world, by, table| {
        let mut kept: Option<Handle> = None;
        block_on(by.transact(async |tx| {
            kept = Some(tx.read(table, 1u64, Cells::ALL));
            tx.fetch().await
        }))
        .unwrap();
        let kept = kept.unwrap();
        for handle in [kept, Handle::default()] {
            for what in ["existed", "get", "set"] {
                let told = refused(world, by, async |tx| {
                    change_nine(tx, table).await?;
                    match what {
                        "existed" => assert!(!tx.existed(handle)),
                        "get" => assert!(tx.get(handle).is_none()),
                        _ => tx.set(handle, A, 50u64),
                    }
                    Ok(())
                });
                assert!(told.starts_with(what) && told.contains("another transaction"), "{told}");
            }
        }
        // A second try is another transaction, so a handle of the first try is invalid in the second try.
        let (mut other, mut first) = (world.coordinator(1, 0), None);
        let told = refused(world, by, async |tx| {
            let row = tx.update(table, 1u64, Cells::ALL);
            let handle = *first.get_or_insert(row);
            match handle == row {
                true => {
                    let _ = tx.fetch().await;
                    Err(Failure::Abort(tarn_store::ids::AbortReason::LockRefused))
                }
                false => {
                    tx.fetch().await?;
                    tx.set(handle, A, 50u64);
                    Ok(())
                }
            }
        });
        assert!(told.contains("another transaction"), "{told}");
        assert_eq!(value_of(&mut other, table, 1), Some(1));
    });
}

/// Tests a first try that sees a row and later does not find it, because another transaction has deleted the row
/// meanwhile. No serial order shows both results.
#[test]
fn a_mistake_on_a_state_that_never_was_is_retried() {
    // These protocols lock the records that they read, so no such record changes meanwhile.
    let lock_reads = ["2pl", "lotus", "drtm", "dslr", "2pl/fisslock"];
    println!("without what never was, for they lock what they read: {lock_reads:?}");
    for info in ALL.iter().filter(|info| !lock_reads.contains(&info.name)) {
        let world = world(info.name);
        let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
        let table = TableId(0);
        fill(&mut by, table, [1, 2]);
        let mut tries = 0;
        let result = block_on(by.transact(async |tx| {
            tries += 1;
            let one = tx.read(table, 1u64, Cells::ALL);
            tx.fetch().await?;
            let is_there = tx.existed(one);
            if tries == 1 {
                let delete = async |tx: &mut Transaction<'_>| {
                    tx.delete(table, 1u64);
                    tx.delete(table, 2u64);
                    tx.fetch().await
                };
                other.transact(delete).await?;
            }
            let two = tx.update(table, 2u64, Cells::ALL);
            tx.fetch().await?;
            if is_there {
                tx.set(two, A, 20u64);
            }
            Ok(())
        }));
        assert_eq!(result, Ok(()), "{}", info.name);
        assert_eq!(tries, 2, "{}: the first try saw one of two that go together", info.name);
        world.assert_clean();
    }
}

#[test]
fn further_cells_of_a_changed_row_keep_the_set_ones() {
    in_every_layout(|world, by, table| {
        block_on(by.transact(async |tx| {
            let row = tx.update(table, 1u64, Cells::one(A));
            tx.fetch().await?;
            tx.set(row, A, 10u64);
            let again = tx.update(table, 1u64, Cells::one(B));
            tx.fetch().await?;
            assert_eq!(tx.get(row).unwrap().u64(A), 10);
            match table.0 {
                0 => tx.set(again, B, 11u64),
                _ => tx.set(again, B, &[11; 8]),
            }
            Ok(())
        }))
        .unwrap();
        let (a, b) = block_on(by.transact(async |tx| {
            let row = tx.get_row(table, 1u64).await?.unwrap();
            Ok((row.u64(A), row.bytes(B)[0]))
        }))
        .unwrap();
        assert_eq!((a, b), (10, 11));
        world.assert_clean();
    });
}
