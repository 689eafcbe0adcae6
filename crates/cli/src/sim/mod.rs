//! The command `tarn sim` runs a workload on a simulated cluster.
//!
//! Invariant: the command refuses wrong settings before it simulates anything.

mod hotspot;
mod layout;
mod nic;
mod outage;
mod plan;
mod random;
mod settings;
mod sweep;

use super::own_input::refuse_own_input;
use super::progress::Progress;
use super::scenario::number;
use super::verdict::{self, Expected};
use super::{Stop, Verdict};
pub(super) use plan::Verify;
pub(super) use settings::Settings;
use std::path::{Path, PathBuf};
use tarn_lab::chosen::Chosen;
use tarn_lab::simulate::report::SimReport;
use tarn_lab::simulate::run::Plan;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;

/// Runs a workload on a simulated cluster, in virtual time. The command loads the database while no transaction runs.
/// Then the command runs a verification phase, and checks the history of this phase for strict serializability. Then
/// the command runs the measured phase and checks the memory. The same flags and seed give the same report, except
/// for the figures under `wall`. Time is as regular as in the model of the hardware. To search for rare orders, run
/// `tarn sim random` instead.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Length of the verification phase in virtual milliseconds; the phase ends earlier after 100,000 transactions
    /// [default: a fifth of the measured phase, at most 5]
    #[arg(long, value_name = "MS", value_parser = number, allow_negative_numbers = true)]
    verify_ms: Option<f64>,
    /// Run no verification phase
    #[arg(long, conflicts_with = "verify_ms")]
    no_verify: bool,
    /// Write the verification phase's history to this file
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    #[command(flatten)]
    sweep: sweep::SweepFlags,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
    /// The instrument that the command runs instead of a workload.
    #[command(subcommand)]
    instrument: Option<Instrument>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Instrument {
    /// Send more requests to some shards than to others, and show how these shards move
    Hotspot(Box<hotspot::Arguments>),
    /// Measure a simulated NIC: rates and latencies of verbs, compared with published figures
    Nic(nic::Arguments),
    /// Let nodes crash under load, and show throughput until it is normal again
    Outage(Box<outage::Arguments>),
    /// Run the engine under random schedules, one for each seed, and check each schedule
    Random(Box<random::Arguments>),
}

const EXAMPLES: &str = "Examples:
  tarn sim smallbank
  tarn sim nic --profile cx3-56g
  tarn sim tatp --profile cx6-200g --set nic.atomic_mops=25 --set cpu.switch_ns=40
  tarn sim random --schedules 10000
  tarn sim kvs --mix-profile wo --compute-nodes 4 --memory-nodes 3 --replicas 3
  tarn sim smallbank --profile cx3-56g --compute-nodes 9 --memory-nodes 3 --replicas 3 \\
      --coordinators 540 --records 1000000 --virtual-ms 50 --json
  tarn sim smallbank --memory-nodes 3 --sweep coordinators=9,18,45 --sweep replicas=1,3 --html report.html
  tarn sim ycsb --sweep 'variant=literal;corrected,-fuse-log' --jobs 1 --json

Exit code 0: all checks passed. 1: one failed. 2: bad input.";

/// Runs the command `tarn sim`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    match &arguments.instrument {
        Some(Instrument::Hotspot(arguments)) => return hotspot::run(arguments),
        Some(Instrument::Nic(arguments)) => return nic::run(arguments),
        Some(Instrument::Outage(arguments)) => return outage::run(arguments),
        Some(Instrument::Random(arguments)) => return random::run(arguments),
        None => {}
    }
    let profile = ("--profile", arguments.settings.profile.as_deref().map(Path::new));
    refuse_own_input(("--history", arguments.history.as_deref()), &[profile])?;
    if !arguments.sweep.sweep.is_empty() {
        return sweep::run(arguments);
    }
    arguments.sweep.check_alone()?;
    let workload = named(arguments.settings.workload.as_deref())?;
    let report = simulate(workload, arguments)?;
    verdict::print(&report, arguments.json)?;
    Ok(verdict::judge(&report.checks, Expected::Clean))
}

/// Returns the workload that the user named. The error also lists the instruments, which the user may name instead of
/// a workload.
fn named(workload: Option<&str>) -> Result<&str, Stop> {
    let given = workload.unwrap_or("nothing");
    if workload.is_some() && tarn_workloads::NAMES.contains(&given) {
        return Ok(given);
    }
    let allowed = tarn_workloads::NAMES.join(", ");
    let instruments = "or hotspot, nic, outage, random";
    Err(Stop::Input(format!("WORKLOAD = {given}; allowed: {allowed}, {instruments}")))
}

/// Returns the workload of this name with these settings.
pub(super) fn chosen(workload: &str, settings: &Settings) -> Result<Chosen, UsageError> {
    let Settings { mix_profile, records, zipf, .. } = settings;
    super::bench::chosen(workload, (mix_profile.as_ref(), *records, *zipf))
}

/// Plans the run. At this point the length of its verification phase is not known.
pub(super) fn plan_of(settings: &Settings, verify: &Verify) -> Result<Plan, Stop> {
    let profile = settings.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
    let profile = with_settings(load_profile("--profile", profile)?, &settings.set)?;
    Ok(plan::plan(settings, verify, profile)?)
}

fn simulate(workload: &str, arguments: &Arguments) -> Result<SimReport, Stop> {
    let workload = chosen(workload, &arguments.settings)?;
    let plan = plan_of(&arguments.settings, &arguments.verify())?;
    Ok(workload.simulate(&plan, &Progress::new())?)
}

impl Arguments {
    fn verify(&self) -> Verify {
        let Arguments { verify_ms, no_verify, history, .. } = self;
        Verify { ms: *verify_ms, is_left_out: *no_verify, history: history.clone() }
    }
}

const DEFAULT_PROFILE: &str = "cx5-100g";

/// Returns the profile with the constants that `--set` changes.
pub(super) fn with_settings(mut profile: Profile, settings: &[String]) -> Result<Profile, Stop> {
    for (at, setting) in settings.iter().enumerate() {
        let refused = |allowed: &str| Stop::Input(format!("--set = {setting}; allowed: {allowed}"));
        let Some((key, value)) = setting.split_once('=') else {
            return Err(refused("KEY=VALUE, for example nic.read_mops=20"));
        };
        let is_key = |other: &String| other.split_once('=').is_some_and(|(it, _)| it == key);
        if let Some(other) = settings[..at].iter().find(|other| is_key(other)) {
            return Err(refused(&format!("each key once, unlike after --set {other}")));
        }
        profile = profile.set(key, value).map_err(|error| {
            let text = error.to_string();
            let allowed = text.split_once("; allowed: ").map_or(&*text, |(_, allowed)| allowed);
            match text.contains("no constant") {
                true => refused(&format!("KEY=VALUE with one of these keys: {allowed}")),
                false => refused(allowed),
            }
        })?;
    }
    Ok(profile)
}

/// Loads a profile by its name or from its file. `argument` is the flag or argument that contained the name.
pub(super) fn load_profile(argument: &str, name: &str) -> Result<Profile, Stop> {
    Profile::load(name).map_err(|error| {
        let text = error.to_string();
        if let Some(problem) = text.strip_prefix("profile = ") {
            return Stop::Input(format!("{argument} = {problem}"));
        }
        // For an error inside a file, the first line of the text contains its place, and the last line contains its
        // reason.
        let problem = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        let lines: Vec<&str> = problem.lines().map(str::trim).collect();
        let problem = match lines.as_slice() {
            [first, .., last] => {
                let at = first.strip_prefix("TOML parse error at ").unwrap_or(first);
                format!("{at}: {last}")
            }
            _ => problem.to_owned(),
        };
        Stop::Input(format!("{argument} = {name}; allowed: a whole profile; {problem}"))
    })
}
