//! The checker of histories checks the real reads and writes of every workload's transactions. A
//! workload's own invariants cannot show that a read was not repeatable.
//!
//! Invariant: the tests record the histories of threads that really run at the same time.

use crate::common::{Cluster, Shape, protocols_in_turn, recorded, scaled_down, small};
use tarn_store::ids::UsageError;
use tarn_workloads::{NAMES, with_workload};

#[test]
fn every_profile_is_strictly_serializable() -> Result<(), UsageError> {
    for (turn, &name) in NAMES.iter().enumerate() {
        for (protocol, replicas) in protocols_in_turn(turn) {
            let shape = Shape::new(protocol.name, replicas);
            with_workload!(name, W => for (profile, records) in scaled_down::<W>(30) {
                let workload: W = small(profile, records);
                let cluster = Cluster::loaded(&workload, shape, 5);
                let history = cluster.record_threads(&workload, 2, 100, 5);
                assert!(history.len() >= 1000, "{} of 1600 recorded", history.len());
                let verdict = recorded::verdict(&history);
                assert_eq!(verdict, Ok(()), "{name} {profile}, {shape:?}");
            })?;
        }
    }
    Ok(())
}
