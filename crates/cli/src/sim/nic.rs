//! The command `tarn sim nic` compares the behaviour of the simulated hardware with measurements of real hardware.
//!
//! Invariant: figures of the model come from runs of the simulator. The command shows a published figure with its
//! source. If a constant of the model was taken from the figure, the command shows this constant too.

use super::{DEFAULT_PROFILE, load_profile, with_settings};
use crate::{Stop, Verdict, print_object, say};
use serde::Serialize;
use std::fmt::Write as _;
use tarn_lab::simulate::nic::published::Beside;
use tarn_lab::simulate::nic::requester::{self, Compared, Row};
use tarn_lab::simulate::nic::{CURVES, Curve, Measurement, Share, name_of};
use tarn_sim::profile::{Change, Profile};

/// Measures one simulated NIC and the processors around it. The command shows rates and latencies of verbs and calls
/// as curves, and compares them with published figures.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Hardware: a name that `tarn profiles` lists, or a TOML file
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PROFILE)]
    profile: String,
    /// Only these curves: latency, clients, depth, payload, doorbell, inline, batching, calls, timestamps, requester;
    /// repeat the flag for several
    #[arg(long, value_name = "NAME")]
    curve: Vec<String>,
    /// Set one constant of the hardware for this run, for example nic.read_mops=20; repeat the flag for several
    /// constants
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One JSON object on standard output instead of the tables
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn sim nic --profile cx3-56g
  tarn sim nic --profile cx6-200g --curve doorbell
  tarn sim nic --profile cx6-200g --curve requester
  tarn sim nic --profile cx5-100g --curve batching --set nic.second_dma_ns=10 --json

A ratio is the model's figure divided by the published one. `predicted`: no constant of the profile was
taken from the published figure. Otherwise the constant is named with its standing, and the figures agree
because the constant was taken from the publication. Where a figure differs by more than a tenth, all parts
that were used are listed with their shares of the time, and the reason if it is known. `requester` is a table
of a published microbenchmark, row by row, for the profile of its machines.";

#[derive(Serialize)]
struct Object<'a> {
    profile: &'a str,
    profile_modified: bool,
    overrides: &'a [Change],
    hardware: &'a str,
    measurements: &'a [Measurement],
    #[serde(skip_serializing_if = "<[Compared]>::is_empty")]
    requester: &'a [Compared],
}

/// Runs the command `tarn sim nic`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let profile = load_profile("--profile", &arguments.profile)?;
    let profile = with_settings(profile, &arguments.set)?;
    let curves = curves(&arguments.curve)?;
    let rows = rows(&profile, &arguments.curve)?;
    let mut measured = Vec::new();
    for curve in &curves {
        let points = curve.measure(&profile).map_err(|error| Stop::Input(error.to_string()))?;
        measured.extend(points);
    }
    let compared: Result<Vec<Compared>, _> =
        rows.iter().map(|row| requester::compare(&profile, *row)).collect();
    let compared = compared.map_err(|error| Stop::Input(error.to_string()))?;
    if !arguments.json {
        say(&(tables(&profile, &curves, &measured) + &table(&compared)))?;
        return Ok(Verdict::Good);
    }
    let object = Object {
        profile: &profile.name,
        profile_modified: !profile.changes.is_empty(),
        overrides: &profile.changes,
        hardware: &profile.hardware,
        measurements: &measured,
        requester: &compared,
    };
    print_object(&object)?;
    Ok(Verdict::Good)
}

/// The name under which the user requests the table of the published microbenchmark.
const REQUESTER: &str = "requester";

/// Returns the curves that the user requested. If the user requested none, returns all curves.
fn curves(names: &[String]) -> Result<Vec<&'static Curve>, Stop> {
    let known: Vec<&str> = CURVES.iter().map(|curve| &*curve.name).chain([REQUESTER]).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Stop::Input(format!("--curve = {name}; allowed: {}", known.join(", "))));
    }
    let asked = |curve: &&Curve| names.is_empty() || names.contains(&curve.name);
    Ok(CURVES.iter().filter(asked).collect())
}

/// Returns the published rows, if the user requested them. A run without requests shows them for their own hardware.
fn rows(profile: &Profile, names: &[String]) -> Result<&'static [Row], Stop> {
    let is_theirs = profile.name == requester::PROFILE;
    match names.iter().any(|name| name == REQUESTER) {
        true if !is_theirs => Err(Stop::Input(format!(
            "--curve = {REQUESTER} with --profile = {}; allowed: --profile {}",
            profile.name,
            requester::PROFILE
        ))),
        asked if asked || (names.is_empty() && is_theirs) => Ok(&requester::ROWS),
        _ => Ok(&[]),
    }
}

/// Returns the table of the published rows beside the model.
fn table(compared: &[Compared]) -> String {
    if compared.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n{REQUESTER}: rows of SMART (ASPLOS 2024), 8 bytes, a doorbell for each verb\n");
    let _ = writeln!(
        text,
        "  {:<7} {:<6} {:<15} {:>7} {:>6} {:>10} {:>8} {:>6}",
        "figure", "verb", "way", "threads", "depth", "published", "model", "ratio"
    );
    for each in compared {
        let Row { figure, verb, way, threads, depth, published_mops } = each.row;
        let model = match each.model_mops.zip(each.ratio()) {
            Some((model, ratio)) => format!("{model:>8.2} {ratio:>6.2}"),
            None => " outside the model".to_owned(),
        };
        let (verb, way) = (name_of(verb), way.name());
        let _ = writeln!(
            text,
            "  {figure:<7} {verb:<6} {way:<15} {threads:>7} {depth:>6} {published_mops:>10.2} {model}"
        );
    }
    let fitted = compared.iter().filter(|each| each.row.way.is_fitted());
    let misses: Vec<f64> =
        fitted.filter_map(Compared::ratio).map(|ratio| (ratio - 1.0).abs()).collect();
    let within = |limit: f64| misses.iter().filter(|miss| **miss <= limit).count();
    let _ = writeln!(
        text,
        "  per-qp and per-doorbell, to which constants were fitted: {} rows, {} within 15 %, {} within 8 %",
        misses.len(),
        within(0.15),
        within(0.08)
    );
    text
}

fn tables(profile: &Profile, curves: &[&Curve], measured: &[Measurement]) -> String {
    let mut text = format!("{}: {}\n", profile.name, profile.hardware);
    for Change { key, value, was } in &profile.changes {
        let _ = writeln!(text, "modified: {key} = {value} instead of {was}");
    }
    for curve in curves {
        let _ = writeln!(text, "\n{}: {}", curve.name, curve.about);
        let (what, rate, p50, p99) = ("", "M/s", "p50 µs", "p99 µs");
        let _ = writeln!(text, "  {what:<27} {rate:>8} {p50:>9} {p99:>9}  busiest");
        for measurement in measured.iter().filter(|each| each.curve == curve.name) {
            line(&mut text, curve, measurement);
        }
    }
    text
}

fn line(text: &mut String, curve: &Curve, measurement: &Measurement) {
    let Measurement { point, rate_mops, latency_us, busy, beside, .. } = measurement;
    let busiest = shares(&busy[..busy.len().min(2)]);
    let line = format!(
        "  {:<27} {rate_mops:>8.2} {:>9.2} {:>9.2}  {busiest}",
        curve.varied(*point),
        latency_us.p50,
        latency_us.p99,
    );
    let _ = writeln!(text, "{}", line.trim_end());
    for each in beside {
        let Beside { quantity, model, published, ratio, source, standing, rests_on, miss } = each;
        let standing = match rests_on {
            None => (*standing).to_owned(),
            Some(constant) => format!("{constant}, {standing}"),
        };
        let _ = writeln!(
            text,
            "      {model:.2} {quantity}, published {published}, ratio {ratio:.2} ({standing}): {source}"
        );
        if !(0.9..=1.1).contains(ratio) {
            let _ = writeln!(text, "      used: {}", shares(busy));
        }
        if let Some(why) = miss {
            let _ = writeln!(text, "      why: {why}");
        }
    }
}

fn shares(busy: &[Share]) -> String {
    let share = |Share { part, share }: &Share| format!("{part} {:.1} %", share * 100.0);
    busy.iter().map(share).collect::<Vec<_>>().join(", ")
}
