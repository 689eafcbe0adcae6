//! The command `tarn sim hotspot` sends more requests to some shards than to others. After a while other shards
//! become the hot shards.
//!
//! Invariant: the command fails only if a check fails, whatever the measured figures are.

use super::{Settings, Verify, chosen, plan_of};
use crate::bench::within;
use crate::scenario::{number, whole};
use crate::verdict::{self, Expected};
use crate::{Stop, Verdict};
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::requests::resharding::balance::NODES_MAX;
use tarn_engine::services::shard_rule::Terms;
use tarn_fabric::clock::Nanos;
use tarn_lab::simulate::hotspot::Hotspot;
use tarn_lab::simulate::hotspot::run::HotspotPlan;
use tarn_lab::simulate::virtual_ms;
use tarn_store::ids::UsageError;

/// Runs a workload with some hot shards, which change from time to time. The owner of a transaction's first record
/// runs the transaction. Three runs differ in the place of the hot shards: distributed over all compute nodes, all at
/// one node, and all at one node with resharding. The command shows throughput by interval and every move of a shard.
/// The command checks the memory and the history of a phase with many moves, so that a lost acknowledged transaction
/// is found.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Number of hot shards
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = whole,
          allow_negative_numbers = true)]
    hot_shards: u64,
    /// Percentage of the transactions that write which access hot shards
    #[arg(long, value_name = "PERCENT", default_value_t = 60, value_parser = whole,
          allow_negative_numbers = true)]
    hot_share: u64,
    /// Time after which other shards become hot
    #[arg(long, value_name = "MS", default_value_t = 2_000.0, value_parser = number,
          allow_negative_numbers = true)]
    hot_ms: f64,
    /// Interval at which nodes publish their load and read the loads of other nodes
    #[arg(long, value_name = "MS", default_value_t = 100.0, value_parser = number,
          allow_negative_numbers = true)]
    interval_ms: f64,
    /// A node is overloaded if its average latency is more than this percentage of the mean latency
    #[arg(long, value_name = "PERCENT", default_value_t = 150, value_parser = whole,
          allow_negative_numbers = true)]
    overload: u64,
    /// Number of successive such intervals after which a node is overloaded
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole,
          allow_negative_numbers = true)]
    intervals: u64,
    /// Longest time that a shard's move waits for transactions that hold its locks
    #[arg(long, value_name = "MS", default_value_t = 10.0, value_parser = number,
          allow_negative_numbers = true)]
    patience_ms: f64,
    /// Number of clients, each with one transaction at a time [default: as many as coordinators]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    clients: Option<u64>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn sim hotspot
  tarn sim hotspot kvs --mix-profile wo --hot-shards 12 --hot-share 50
  tarn sim hotspot --interval-ms 10 --hot-ms 200 --virtual-ms 400 --json

Without flags: smallbank of 200,000 accounts on lotus, 3 compute nodes of 1 thread and 16 coordinators, 4,000 virtual ms.

Exit code 0: all checks passed. 1: one failed. 2: bad input.";

const CLIENTS_MAX: u64 = 1 << 16;
const MS_MAX: f64 = 60_000.0;
const RECORDED_MS: f64 = 10.0;

/// Runs the command `tarn sim hotspot`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let mut settings = arguments.settings.clone();
    settings.workload.get_or_insert_with(|| "smallbank".into());
    settings.protocol.get_or_insert_with(|| "lotus".into());
    settings.records.get_or_insert(200_000);
    settings.compute_nodes.get_or_insert(3);
    settings.threads.get_or_insert(1);
    settings.coordinators.get_or_insert(settings.compute_nodes.unwrap_or(1).saturating_mul(16));
    settings.virtual_ms.get_or_insert(4_000.0);
    let plan = plan(arguments, &settings)?;
    let workload = settings.workload.clone().unwrap_or_default();
    let report = chosen(&workload, &settings)?.hotspot(&plan)?;
    verdict::print(&report, arguments.json)?;
    Ok(verdict::judge(&report.checks, Expected::Clean))
}

fn plan(it: &Arguments, settings: &Settings) -> Result<HotspotPlan, Stop> {
    let plan = plan_of(settings, &Verify::none())?;
    let cluster = &plan.config.cluster;
    let refuse = |field: &str, value: String, allowed: String| -> Stop {
        UsageError { field: field.into(), value, allowed }.into()
    };
    let protocol = AnyProtocol::by_name(&cluster.protocol, &cluster.variant)?;
    if !protocol.needs().locks {
        let allowed = "a protocol whose locks have shards: lotus".to_owned();
        return Err(refuse("protocol", cluster.protocol.clone(), allowed));
    }
    let nodes = cluster.compute_nodes;
    if !(2..=NODES_MAX).contains(&nodes) {
        return Err(refuse("compute-nodes", nodes.to_string(), format!("2 to {NODES_MAX}")));
    }
    let ms = |field: &str, value: f64| match (0.001..=MS_MAX).contains(&value) {
        true => Ok(virtual_ms(value)),
        false => Err(refuse(field, value.to_string(), format!("0.001 to {MS_MAX}"))),
    };
    let count = |field: &str, value: u64, least: u64, most: u64| -> Result<u32, Stop> {
        Ok(within(field, Some(value), least..=most)?.unwrap_or(value) as u32)
    };
    let terms = Terms {
        interval: ms("interval-ms", it.interval_ms)?,
        overload_percent: count("overload", it.overload, 101, 10_000)?,
        intervals: count("intervals", it.intervals, 1, 1_000)?,
        patience: ms("patience-ms", it.patience_ms)?,
    };
    let hotspot = Hotspot {
        share_percent: count("hot-share", it.hot_share, 1, 100)?,
        shards: count("hot-shards", it.hot_shards, 1, 4_096)?,
        stride: nodes as u32,
        nodes: nodes as u32,
        every: ms("hot-ms", it.hot_ms)?,
    };
    terms.validate()?;
    hotspot.validate()?;
    if hotspot.every < terms.interval || plan.virtual_ms < it.interval_ms {
        let allowed = format!("{} or more, which is --interval-ms", it.interval_ms);
        let (field, value) = match hotspot.every < terms.interval {
            true => ("hot-ms", it.hot_ms),
            false => ("virtual-ms", plan.virtual_ms),
        };
        return Err(refuse(field, value.to_string(), allowed));
    }
    let clients = within("clients", it.clients, 1..=CLIENTS_MAX)?;
    let clients = clients.map_or(plan.config.coordinators, |clients| clients as usize);
    let recorded = Nanos(virtual_ms(RECORDED_MS).0);
    Ok(HotspotPlan { plan, hotspot, terms, clients, recorded })
}
