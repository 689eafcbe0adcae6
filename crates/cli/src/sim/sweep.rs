//! The command `tarn sim --sweep` turns flags into points, and the points' reports into a table, a JSON object and a
//! page.
//!
//! Invariant: before the first point runs, the command reads and plans every point and computes its memory. So it
//! refuses a grid with an impossible point before any point runs. The page appears only when all points have ended.

use super::{Arguments, chosen, plan_of};
use crate::bench::within;
use crate::own_input::refuse_own_input;
use crate::progress::Sweeping;
use crate::whole_file::WholeFile;
use crate::{Stop, Verdict, complaint, interrupt, verdict};
use clap::{CommandFactory as _, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tarn_lab::machine;
use tarn_lab::sweep::pool::{Done, JOBS_MAX, Pool, PoolError};
use tarn_lab::sweep::report::SweepReport;
use tarn_lab::sweep::{Axis, Point, grid, page};

/// The flags that make a run a sweep.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SweepFlags {
    /// Run a grid of points over the values of one of these flags; commas separate the values, or semicolons if a
    /// value contains commas; repeat this flag for several flags
    #[arg(long, value_name = "FLAG=VALUE,VALUE")]
    pub sweep: Vec<String>,
    /// Number of points that run in parallel, each in a process of its own [default: as many as processors]
    #[arg(long, value_name = "COUNT", value_parser = crate::scenario::whole,
          allow_negative_numbers = true)]
    pub jobs: Option<u64>,
    /// Write the sweep as a page with figures to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl SweepFlags {
    /// Refuses flags of a sweep, if the command line contains no `--sweep`.
    pub(super) fn check_alone(&self) -> Result<(), Stop> {
        let jobs = self.jobs.map(|jobs| ("--jobs", jobs.to_string()));
        let html = self.html.as_ref().map(|path| ("--html", path.display().to_string()));
        match jobs.or(html) {
            Some((flag, value)) => Err(complaint::only_with(flag, value, "--sweep")),
            None => Ok(()),
        }
    }
}

/// The flags that belong to the whole sweep, and whether a value follows each flag.
const OURS: [(&str, bool); 4] =
    [("--sweep", true), ("--jobs", true), ("--html", true), ("--json", false)];

/// Flags whose value a sweep cannot vary, because every point would write the same file.
const FIXED: [&str; 4] = ["sweep", "jobs", "html", "history"];

/// The arguments of one point of the sweep, which are parsed in the same way as the program's command line.
#[derive(Parser)]
#[command(name = "tarn sim")]
struct PointArguments {
    #[command(flatten)]
    arguments: Arguments,
}

/// Prints a notice if points with more replicas also have more memory nodes, which is the default. Then the points
/// differ not only in replicas.
fn notice_unlike(arguments: &Arguments, axes: &[Axis]) {
    let varies = |name: &str| axes.iter().find(|axis| axis.name == name);
    let is_set = arguments.settings.memory_nodes.is_some() || varies("memory-nodes").is_some();
    let Some(replicas) = varies("replicas").filter(|axis| !is_set && axis.values.len() > 1) else {
        return;
    };
    let values = replicas.values.join(", ");
    remark!(
        "notice: points with {values} replicas have as many memory nodes; --memory-nodes COUNT \
         gives all points the same number"
    );
}

/// Runs the sweep that the flags request.
pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let axes = axes(&arguments.sweep.sweep)?;
    if let Some(path) = &arguments.history {
        let path = path.display();
        return Err(Stop::Input(format!("--history = {path}; allowed: without --sweep")));
    }
    refuse_own_inputs(arguments, &axes)?;
    let jobs = within("jobs", arguments.sweep.jobs, 1..=JOBS_MAX as u64)?;
    let jobs = jobs.map_or_else(machine::processors, |jobs| jobs as usize).min(JOBS_MAX);
    notice_unlike(arguments, &axes);
    let base = base(std::env::args_os().skip(1))?;
    let mut points = grid(&base, &axes)?;
    for point in &mut points {
        point.memory_bytes =
            look_at(&point.arguments).map_err(|stop| in_point(&stop_text(stop), &point.name()))?;
    }
    // After a signal, the program removes its files and ends the running points in order.
    let stop = interrupt::flag()?;
    let html = arguments.sweep.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let done = run_points(&points, jobs, &stop)?;
    let report = SweepReport::new(&base, &axes, &points, done);
    if let Some(file) = html {
        file.finish(&page::page(&report))?;
    }
    verdict::print(&report, arguments.json)?;
    let failed = report.failed();
    if failed.is_empty() {
        return Ok(Verdict::Good);
    }
    remark!("checks failed in {} of {} points: {}", failed.len(), points.len(), failed.join("; "));
    Ok(Verdict::Bad)
}

/// Refuses an output page that is one of the input profiles: the profile of all points or of one point.
fn refuse_own_inputs(arguments: &Arguments, axes: &[Axis]) -> Result<(), Stop> {
    let of_all = ("--profile", arguments.settings.profile.as_deref().map(Path::new));
    let of_points = axes.iter().filter(|axis| axis.name == "profile").flat_map(|axis| &axis.values);
    let of_points = of_points.map(|value| ("--sweep profile", Some(Path::new(value))));
    let inputs: Vec<_> = std::iter::once(of_all).chain(of_points).collect();
    refuse_own_input(("--html", arguments.sweep.html.as_deref()), &inputs)
}

fn run_points(points: &[Point], jobs: usize, stop: &AtomicBool) -> Result<Vec<Done>, Stop> {
    let pool = Pool::of_this_program(jobs)
        .map_err(|error| Stop::Failed(format!("the path of this program is unknown: {error}")))?;
    pool.run(points, &Sweeping::new(points.len()), stop).map_err(|error| match &error {
        PoolError::Failed { is_usage: true, .. } => Stop::Input(error.to_string()),
        _ => Stop::Failed(error.to_string()),
    })
}

/// Returns the axes of the sweep, if the user may vary the flags that they name.
fn axes(texts: &[String]) -> Result<Vec<Axis>, Stop> {
    let command = PointArguments::command();
    let allowed: Vec<&str> = command
        .get_arguments()
        .filter(|argument| argument.get_action().takes_values())
        .filter_map(|argument| argument.get_long())
        .filter(|name| !FIXED.contains(name))
        .collect();
    let mut axes = Vec::new();
    for text in texts {
        let axis = Axis::parse(text)?;
        if !allowed.contains(&axis.name.as_str()) {
            let (name, allowed) = (&axis.name, allowed.join(", "));
            return Err(Stop::Input(format!("--sweep = {name}; allowed: {allowed}")));
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// Returns this program's arguments without the arguments of the sweep.
fn base(given: impl Iterator<Item = OsString>) -> Result<Vec<String>, Stop> {
    let mut base = Vec::new();
    let mut skip = false;
    for argument in given {
        let argument = argument.into_string().map_err(|argument| {
            Stop::Input(format!("argument = {}; allowed: text", argument.to_string_lossy()))
        })?;
        if std::mem::take(&mut skip) {
            continue;
        }
        let name = argument.split('=').next().unwrap_or_default();
        match OURS.iter().find(|(ours, _)| *ours == name) {
            Some((_, takes_value)) => skip = *takes_value && !argument.contains('='),
            None => base.push(argument),
        }
    }
    Ok(base)
}

/// Reads and plans a point. Returns the number of bytes of memory that the point will take.
fn look_at(arguments: &[String]) -> Result<u64, Stop> {
    let point = PointArguments::try_parse_from(arguments)
        .map_err(|error| Stop::Input(complaint::of_clap(&error)))?;
    let arguments = &point.arguments;
    let settings = &arguments.settings;
    let name = super::named(settings.workload.as_deref())?;
    let workload = chosen(name, settings)?;
    let plan = plan_of(settings, &arguments.verify())?;
    Ok(workload.simulated_bytes(&plan)?)
}

fn stop_text(stop: Stop) -> String {
    match stop {
        Stop::Input(text) | Stop::Failed(text) => text,
    }
}

fn in_point(text: &str, point: &str) -> Stop {
    Stop::Input(format!("{text} (in point {point})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_the_command_without_the_sweep() {
        let given = "sim --sweep a=1,2 kvs --jobs=3 --json --replicas 3 --html x --variant -x";
        let base = base(given.split(' ').map(OsString::from)).expect("text");
        assert_eq!(base, ["sim", "kvs", "--replicas", "3", "--variant", "-x"]);
    }

    #[test]
    fn every_flag_with_a_value_can_be_varied_but_files() {
        for name in ["coordinators", "profile", "variant", "zipf", "seed", "virtual-ms"] {
            assert!(axes(&[format!("{name}=1,2")]).is_ok(), "{name}");
        }
        for name in ["history", "html", "json", "no-verify", "coordinator"] {
            assert!(axes(&[format!("{name}=1,2")]).is_err(), "{name}");
        }
    }
}
