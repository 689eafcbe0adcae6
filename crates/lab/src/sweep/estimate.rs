//! Estimates the amount of this machine's memory that a simulated run will take.
//!
//! Invariant: the estimate is an upper bound for the large parts of a run's memory, so that simultaneous runs fit
//! into the machine's memory. Large parts are the loaded records, the tables of pages, and the lines that a run can
//! change. Other large parts are a recorded history with its graph, and the addresses that threads remember. A test
//! compares the estimate with the memory that runs take.

use crate::simulate::run::Plan;
use tarn::memory::caches_bytes;
use tarn_engine::protocol::AnyProtocol;
use tarn_sim::memory::{PAGE_BYTES, TABLE_ENTRY_BYTES};
use tarn_store::ids::UsageError;
use tarn_workloads::workload::Workload;

/// The number of bytes that are reserved for the program, one report, and the caches of one thread.
const PROGRAM_BYTES: u64 = 32 << 20;
/// The number of bytes of a slot's nonzero words beside its payload.
const HEAD_BYTES: u64 = 24;
/// The number of bytes of a coordinator's coroutine, rounds and buffers.
const COORDINATOR_BYTES: u64 = 32 << 10;
/// The number of lines of one replica that a transaction changes, including lines of its log.
const LINES_CHANGED: u64 = 8;
const LINE_BYTES: u64 = 64;
/// The least duration of a transaction, in virtual nanoseconds: two round trips.
const TRANSACTION_NS: f64 = 4_000.0;
/// The number of bytes of a recorded transaction: the engine's record of it, the checker's form of it, and its node
/// in the checker's graph.
const RECORDED_BYTES: u64 = 1_200;

/// Returns the number of bytes of memory that `plan` will take with this workload.
///
/// # Errors
/// Fails if the memory of the database cannot be laid out.
pub fn memory_bytes<W: Workload>(workload: &W, plan: &Plan) -> Result<u64, UsageError> {
    let (schemas, records) = (workload.schemas(), workload.records());
    let shape = &plan.config.cluster;
    let mut options = workload.sized(&shape.options);
    options.coordinators_max = plan.config.coordinators as u32;
    let protocol = AnyProtocol::by_name(&shape.protocol, &shape.variant)?;
    let catalog = protocol.catalog(&schemas, &options, shape.memory_nodes)?;
    let replicas = shape.replicas as u64;

    let pages = (catalog.group_bytes() * shape.memory_nodes as u64).div_ceil(PAGE_BYTES as u64);
    let page_tables = pages * TABLE_ENTRY_BYTES as u64 * (1 + replicas);
    let expected: u64 = schemas.iter().map(|schema| schema.expected_records).sum();
    let tables = catalog.tables().iter();
    let payloads: u64 =
        tables.map(|table| table.schema.expected_records * table.slot.payload_bytes as u64).sum();
    // The workload may plan tables with more space than its records need.
    let mean = payloads.div_ceil(expected.max(1));
    let image = records.max(expected).saturating_mul(HEAD_BYTES + mean);

    let coordinators = plan.config.coordinators as u64;
    let ms = plan.virtual_ms * 1.1 + plan.verify_ms.unwrap_or_default() + 5.0;
    let transactions = coordinators as f64 * ms * 1e6 / TRANSACTION_NS;
    let all_lines = image.div_ceil(LINE_BYTES) * 2 + coordinators * LINES_CHANGED;
    let lines = (transactions as u64).saturating_mul(LINES_CHANGED).min(all_lines);
    let copies = lines.saturating_mul(replicas * LINE_BYTES);

    let recorded = plan.verify_ms.map_or(0, |_| plan.verify_transactions_max);
    let recorded = recorded.min(transactions as u64) * RECORDED_BYTES;
    let threads = plan.config.threads * shape.compute_nodes;
    let caches = caches_bytes(shape.address_cache_entries, threads);
    let fixed = PROGRAM_BYTES + coordinators * COORDINATOR_BYTES + recorded;
    let fixed = fixed.saturating_add(caches);
    Ok(fixed.saturating_add(page_tables).saturating_add(image).saturating_add(copies))
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
