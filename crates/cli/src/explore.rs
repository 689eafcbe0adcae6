//! The command `tarn explore` runs litmuses in every order that the contract allows.
//!
//! Invariant: for each violation the program prints one command that runs the violation again. Two runs of that
//! command print the same bytes. A file appears only when the file is complete.

use super::bench::within;
use super::own_input::refuse_own_input;
use super::progress::Progress;
use super::scenario::{number, whole};
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tarn_lab::explore::diagram::{Scene, svg, text};
use tarn_lab::explore::litmus::Litmus;
use tarn_lab::explore::order::{CRASHES_MAX, FaultKind, Item, Order};
use tarn_lab::explore::run::{replay_item, run as explore};
use tarn_lab::explore::shape::Shape;
use tarn_lab::machine;
use tarn_lab::schedules::mixture::Layout;
use tarn_sim::explore::{Bounds, Schedule};
use tarn_store::ids::UsageError;

const JOBS_MAX: u64 = 1_024;
const SECONDS: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// Explores litmuses: a few small transactions that reveal an error of a wrong protocol. The transactions run in
/// every order that the fabric's contract allows, line by line. With --crashes, one node fails at every point. Either
/// a compute node dies, or it is only declared dead, or a memory node dies and its backup is promoted. With --crashes
/// 2, the node that recovers and repairs may die, too. The command judges each final state. The history is checked
/// against the variant's isolation level. The values that were read and that remain are compared with every order of
/// the transactions. The memory is checked for remaining locks and for replicas that differ.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The litmuses: all, a name, or a file whose name ends in .toml
    #[arg(value_name = "LITMUS")]
    litmus: Vec<String>,
    /// List the litmuses that come with the program
    #[arg(long, conflicts_with_all = ["litmus", "replay"])]
    list: bool,
    /// Name of the protocol
    #[arg(long, value_name = "NAME", default_value = "ford")]
    protocol: String,
    /// Variant: corrected, literal or measured, then ,-SWITCH, ,+SWITCH or ,unsafe-no-SWITCH of the switches that
    /// `tarn rules` lists
    #[arg(long, value_name = "VARIANT", default_value = "corrected", allow_hyphen_values = true)]
    variant: String,
    /// Number of crashes of one execution, each at any point [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    crashes: Option<u64>,
    /// The kind of crash: compute, zombie or memory [default: each kind by itself]
    #[arg(long, value_name = "KIND", value_parser = str::parse::<FaultKind>)]
    fault: Option<FaultKind>,
    /// Memory nodes x copies of each record, + empty nodes that replace lost copies, for example 2x2+1 [default: each
    /// litmus's first shape]
    #[arg(long, value_name = "NxR", value_parser = str::parse::<Shape>)]
    shape: Option<Shape>,
    /// Explore every shape of each litmus
    #[arg(long, conflicts_with = "shape")]
    deep: bool,
    /// Layout of records, for litmuses that do not name a layout: narrow, double, apart or half [default: narrow]
    #[arg(long, value_name = "LAYOUT", value_parser = str::parse::<Layout>)]
    layout: Option<Layout>,
    /// Real time for all litmuses together; a litmus that has used up its share starts again with the time that other
    /// litmuses left
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Greatest number of executions of one litmus
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    executions: Option<u64>,
    /// Greatest number of states of one litmus
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    states: Option<u64>,
    /// Greatest number of steps of one execution
    #[arg(long, value_name = "STEPS", value_parser = whole, allow_negative_numbers = true)]
    depth: Option<u64>,
    /// Number of litmuses that run in parallel [default: one for each processor]
    #[arg(long, value_name = "COUNT", value_parser = whole, allow_negative_numbers = true)]
    jobs: Option<u64>,
    /// Run and draw only this schedule of one litmus; the last line of a violation shows the schedule
    #[arg(long, value_name = "SCHEDULE", value_parser = schedule,
          conflicts_with_all = ["json", "deep", "budget", "executions", "states", "depth", "jobs"])]
    replay: Option<Schedule>,
    /// Draw the replayed schedule into this file, as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn explore write-skew
  tarn explore all --crashes 1 --budget 60
  tarn explore lost-update --variant corrected,-unlock-late
  tarn explore fractured-read --shape 2x1 --json

Exit code 0: nothing is wrong. 1: a check failed, and the last line of each violation is the command that
runs it again; or all orders without faults were explored, and one right result never came about.
2: bad input.";

/// Runs the command `tarn explore`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if arguments.list {
        return list();
    }
    if arguments.litmus.is_empty() {
        let names: Vec<&str> = Litmus::names().collect();
        let allowed = format!("all, {} or a .toml file", names.join(", "));
        return Err(Stop::Input(format!("LITMUS = nothing; allowed: {allowed}")));
    }
    let litmuses = arguments.litmus.iter().map(|name| ("LITMUS", Some(Path::new(name))));
    refuse_own_input(("--svg", arguments.svg.as_deref()), &litmuses.collect::<Vec<_>>())?;
    if let (Some(path), None) = (&arguments.svg, &arguments.replay) {
        return Err(super::complaint::only_with("--svg", path.display(), "--replay"));
    }
    let order = order(arguments)?;
    if let Some(schedule) = &arguments.replay {
        return replay(arguments, &order, schedule);
    }
    let progress = Progress::new();
    let sum = explore(&order, &|now| progress.exploring(now))?;
    progress.end();
    match arguments.json {
        false => say(&sum.to_string())?,
        true => print_object(&sum)?,
    }
    for (row, found) in sum.violations() {
        remark!("{} is violated; replay: {}", row.litmus, found.replay);
    }
    for row in sum.litmus.iter().filter(|row| !row.not_reached.is_empty()) {
        remark!("{} on {} never reached: {}", row.litmus, row.shape, row.not_reached.join("; "));
    }
    Ok(if sum.is_good() { Verdict::Good } else { Verdict::Bad })
}

/// Reads a schedule that the user gave. An empty schedule would mean the first execution, which no user intends.
fn schedule(text: &str) -> Result<Schedule, String> {
    match text.trim() {
        "" => Err("a schedule that a violation printed, for example 3*0-1".to_owned()),
        text => text.parse().map_err(|error: tarn_sim::explore::ScheduleError| {
            let problem = error.to_string();
            let problem = problem.trim_start_matches("schedule: ");
            format!("a schedule that a violation printed, for example 3*0-1; {problem}")
        }),
    }
}

fn list() -> Result<Verdict, Stop> {
    for name in Litmus::names() {
        let litmus = Litmus::load(name)?;
        let shapes: Vec<String> = litmus.shapes.iter().map(Shape::to_string).collect();
        say(&format!("{name:<18} {:<14} {}\n", shapes.join(" "), litmus.wrong))?;
    }
    Ok(Verdict::Good)
}

fn replay(arguments: &Arguments, order: &Order, schedule: &Schedule) -> Result<Verdict, Stop> {
    let items = order.items()?;
    let [item] = &items[..] else {
        let allowed = "only with one litmus, and with --fault if there are crashes";
        return Err(Stop::Input(format!("--replay = {schedule}; allowed: {allowed}")));
    };
    let file = arguments.svg.as_deref();
    let file = file.map(|path| WholeFile::create("--svg", path)).transpose()?;
    let (model, replayed) = replay_item(order, item, schedule).map_err(|error| {
        let allowed = format!("a schedule that {} printed", order.replay(item, "SCHEDULE"));
        let UsageError { field, value, allowed: there } = error;
        match field.as_str() {
            "replay" => Stop::Input(format!("--replay = {value}; allowed: {there} ({allowed})")),
            _ => UsageError { field, value, allowed: there }.into(),
        }
    })?;
    let scene = Scene::of(title(order, item), &model, &replayed);
    match file {
        Some(file) => file.finish(&svg::draw(&scene))?,
        None => say(&text::draw(&scene))?,
    }
    Ok(if replayed.verdict.is_ok() { Verdict::Good } else { Verdict::Bad })
}

fn title(order: &Order, item: &Item) -> String {
    let Item { litmus, shape, fault } = item;
    let layout = order.layout.map_or(String::new(), |it| format!(", records {}", it.name()));
    let Order { protocol, variant, .. } = order;
    format!("{} on {shape}, {protocol} ({variant}{layout}), fault: {fault}", litmus.title)
}

fn order(arguments: &Arguments) -> Result<Order, Stop> {
    let crashes = within("crashes", arguments.crashes, 0..=u64::from(CRASHES_MAX))?;
    let jobs = within("jobs", arguments.jobs, 1..=JOBS_MAX)?;
    if let Some(seconds) = arguments.budget
        && !SECONDS.contains(&seconds)
    {
        let allowed = format!("{} to {}", SECONDS.start(), SECONDS.end());
        let (field, value) = ("budget".to_owned(), seconds.to_string());
        return Err(UsageError { field, value, allowed }.into());
    }
    let mut bounds = Bounds::NONE;
    let depth = within("depth", arguments.depth, 1..=u64::from(bounds.depth))?;
    bounds.executions =
        within("executions", arguments.executions, 1..=u64::MAX)?.unwrap_or(bounds.executions);
    bounds.states = within("states", arguments.states, 1..=u64::MAX)?.unwrap_or(bounds.states);
    bounds.depth = depth.map_or(bounds.depth, |depth| depth as u32);
    Ok(Order {
        litmuses: arguments.litmus.clone(),
        protocol: arguments.protocol.clone(),
        variant: arguments.variant.clone(),
        shape: arguments.shape,
        deep: arguments.deep,
        layout: arguments.layout,
        crashes: crashes.unwrap_or(0) as u32,
        fault: arguments.fault,
        bounds,
        budget: arguments.budget.map(Duration::from_secs_f64),
        jobs: jobs.unwrap_or(machine::processors() as u64) as usize,
    })
}
