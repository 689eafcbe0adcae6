//! The command `tarn trace` draws chosen transactions of a simulated run.
//!
//! Invariant: the flags of the cluster are the flags of `tarn sim`, and the run is the same run. The output file
//! appears only when the file is complete.

use super::own_input::refuse_own_input;
use super::progress::Progress;
use super::scenario::Routing;
use super::sim::{Settings, Verify, chosen, plan_of};
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tarn_lab::trace::{Pick, TRANSACTIONS_MAX, Trace, Wanted, svg, text};

/// Draws transactions of a simulated run as time-space diagrams. A diagram has a lane for the coordinator and for
/// each node, and an arrow for each verb and message. The diagram shows the protocol's phases, retries, aborts and
/// waits. The run is the run that `tarn sim --no-verify` measures with the same flags and seed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Number of transactions to draw
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = super::scenario::whole,
          allow_negative_numbers = true)]
    transactions: u64,
    /// Transactions to draw: those that began first, took longest, were aborted, or were tried most often
    #[arg(long, value_name = "WHICH", default_value = "first")]
    pick: Which,
    /// Draw only transactions of this kind, as `tarn sim` lists the kinds under `mix run`
    #[arg(long, value_name = "NAME")]
    procedure: Option<String>,
    /// Form of the drawing: text for 100 columns, svg, or json with all times
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The values of `--pick`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Which {
    First,
    Slowest,
    Aborted,
    Contended,
}

/// The values of `--format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Svg,
    Json,
}

const EXAMPLES: &str = "Examples:
  tarn trace kvs --mix-profile wo --replicas 3
  tarn trace smallbank --procedure send_payment --replicas 3 --pick slowest --transactions 3
  tarn trace smallbank --records 100 --coordinators 64 --pick contended
  tarn trace smallbank --replicas 3 --format svg --output payment.svg

Exit code 0: transactions were drawn. 1: the run had no such transaction. 2: bad input.";

/// Runs the command `tarn trace`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    super::bench::within("transactions", Some(arguments.transactions), 1..=TRANSACTIONS_MAX)?;
    let file = arguments.output.as_deref();
    let profile = ("--profile", arguments.settings.profile.as_deref().map(Path::new));
    refuse_own_input(("--output", file), &[profile])?;
    let file = file.map(|path| WholeFile::create("--output", path)).transpose()?;
    let trace = trace(arguments)?;
    if trace.transactions.is_empty() {
        let kind = arguments.procedure.as_deref().unwrap_or("transactions");
        let what = match arguments.pick {
            Which::First | Which::Slowest => "ended in the measured phase",
            Which::Aborted => "had an aborted try",
            Which::Contended => "were tried more than once",
        };
        return Err(Stop::Failed(format!("0 of {} {kind} {what}", trace.of)));
    }
    let drawn = match arguments.format {
        Format::Text => text::draw(&trace),
        Format::Svg => svg::draw(&trace),
        Format::Json if file.is_none() => return print_object(&trace).map(|()| Verdict::Good),
        Format::Json => {
            let object = serde_json::to_string(&trace);
            object.map_err(|error| {
                Stop::Failed(format!(
                    "the trace cannot be written as JSON: \
                                                         {error}"
                ))
            })? + "\n"
        }
    };
    match file {
        Some(file) => file.finish(&drawn)?,
        None => say(&drawn)?,
    }
    Ok(Verdict::Good)
}

fn trace(arguments: &Arguments) -> Result<Trace, Stop> {
    let settings = &arguments.settings;
    let wanted = Wanted {
        transactions: arguments.transactions as usize,
        pick: match arguments.pick {
            Which::First => Pick::First,
            Which::Slowest => Pick::Slowest,
            Which::Aborted => Pick::Aborted,
            Which::Contended => Pick::Contended,
        },
        procedure: arguments.procedure.clone(),
    };
    let Some(name) = &settings.workload else {
        let allowed = tarn_workloads::NAMES.join(", ");
        return Err(Stop::Input(format!("WORKLOAD = nothing; allowed: {allowed}")));
    };
    let workload = chosen(name, settings)?;
    if settings.routing == Some(Routing::ByShard) {
        return Err(Stop::Input("--routing = by-shard; allowed: only none, in a trace".into()));
    }
    let plan = plan_of(settings, &Verify::none())?;
    Ok(workload.trace(&plan, &wanted, &Progress::new())?)
}
