//! `tarn sim nic`: what the simulated NIC does, beside what was measured on real ones.
//!
//! Invariant: figures of the model come from runs of the simulator; a published one is shown with its
//! source, and with the constant that was taken from it, if one was.

use super::{DEFAULT_PROFILE, load_profile};
use crate::cli::{Stop, Verdict, say};
use serde::Serialize;
use std::fmt::Write as _;
use tarn::simulate::nic::{Latency, Loop, Measurement, Point, Rate, measure, name_of, points};
use tarn::simulate::published::Beside;
use tarn_sim::profile::Profile;

/// Measures one simulated NIC: unloaded latencies, and rates at one memory node by client machines,
/// verbs a batch, payload, and threads that share doorbells.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Hardware: a name that `tarn profiles` lists, or a TOML file
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PROFILE)]
    profile: String,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn sim nic --profile cx3-56g
  tarn sim nic --profile cx6-200g --json

A ratio is the model's figure over the published one. `predicted`: no constant of the profile was
taken from the published figure. Otherwise the constant is named, with its standing: the model
agrees because it was told.";

#[derive(Serialize)]
struct Object<'a> {
    profile: &'a str,
    hardware: &'a str,
    measurements: &'a [Measurement],
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let profile = load_profile("--profile", &arguments.profile)?;
    let each = points().into_iter().map(|(series, point)| measure(&profile, series, point));
    let measurements: Vec<Measurement> =
        each.collect::<Result<_, _>>().map_err(|error| Stop::Input(error.to_string()))?;
    if !arguments.json {
        say(&table(&profile, &measurements));
        return Ok(Verdict::Good);
    }
    let object =
        Object { profile: &profile.name, hardware: &profile.hardware, measurements: &measurements };
    let text = serde_json::to_string(&object);
    let text = text.map_err(|error| Stop::Failed(format!("the measurements: {error}")))?;
    say(&format!("{text}\n"));
    Ok(Verdict::Good)
}

/// What each series is.
fn title(series: &str) -> &'static str {
    match series {
        "latency" => "unloaded latency of 8 bytes, µs",
        "clients" => {
            "M/s by client machines: one thread each, four batches of 8 in flight, 8 bytes"
        }
        "depth" => "M/s by verbs a batch: one thread of one machine, one batch in flight, 8 bytes",
        "payload" => {
            "M/s by payload: 8 client machines, one thread each, four batches of 8 in flight"
        }
        _ => "M/s by threads of one machine: 8 READs each, a doorbell for each READ, 8 bytes",
    }
}

fn table(profile: &Profile, measurements: &[Measurement]) -> String {
    let mut text = format!("{}: {}\n", profile.name, profile.hardware);
    let mut series = "";
    for measurement in measurements {
        if measurement.series != series {
            series = measurement.series;
            let _ = writeln!(text, "{}", title(series));
        }
        let _ = writeln!(text, "{}", line(measurement));
    }
    text
}

fn line(measurement: &Measurement) -> String {
    let Measurement { series, point, model, busiest, beside } = measurement;
    let (verb, varied) = match point {
        Point::Latency(Latency { verb, .. }) => (verb, String::new()),
        Point::Rate(rate) => (&rate.verb, varied(series, rate)),
    };
    let mut line = format!("  {:<6} {varied:>11} {model:>8.2}", name_of(*verb));
    match busiest {
        Some((part, share)) => {
            let _ = write!(line, "  {part:<12} {:>5.1} %", share * 100.0);
        }
        None => line.push_str(&" ".repeat(21)),
    }
    if let Some(Beside { published, ratio, source, standing, rests_on }) = beside {
        let standing = match rests_on {
            None => (*standing).to_owned(),
            Some(constant) => format!("{constant}, {standing}"),
        };
        let _ =
            write!(line, "  published {published:>5.2}, ratio {ratio:.2} ({standing}): {source}");
    }
    line.trim_end().to_owned()
}

fn varied(series: &str, rate: &Rate) -> String {
    match (series, rate.posting) {
        ("clients", _) => format!("clients {}", rate.clients),
        ("depth", _) => format!("batch {}", rate.depth),
        ("payload", _) => format!("{} B", rate.payload_bytes),
        (_, Loop::RingEach | Loop::Batches(_)) => format!("threads {}", rate.threads),
    }
}
