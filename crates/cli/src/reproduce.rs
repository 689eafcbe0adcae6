//! The command `tarn reproduce` compares published figures with the results of a simulated cluster.
//!
//! Invariant: if the simulation misses a published value, the command shows this and does not fail. A check that
//! fails is a failure of the command.

use super::complaint::{about, only_with};
use super::progress::Progress;
use super::sim::{load_profile, with_settings};
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say, verdict};
use std::path::PathBuf;
use tarn_lab::reproduce::figure::{ALL, Figure};
use tarn_lab::reproduce::locks::data as locks;
use tarn_lab::reproduce::locks::{LockOrder, evaluate as run_locks};
use tarn_lab::reproduce::page;
use tarn_lab::reproduce::paper::data::{ALL as PAPERS, Paper, by_name};
use tarn_lab::reproduce::paper::page::page as page_of;
use tarn_lab::reproduce::paper::{Asked, evaluate as run_evaluation};

/// Runs a published figure again on a simulated cluster of the paper's hardware. The command prints a row for each
/// published value, with the simulated value, their ratio and the busiest part. Then the command prints the verbs of
/// a transaction and the verbs of the public code, and all curves.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The figure, or lotus, oocc or fisslock for the whole evaluation of LOTUS, OOCC or FissLock; without a name the
    /// command lists the figures
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,
    /// List the figures that the command can run
    #[arg(long, conflicts_with_all = ["figure", "quick", "html", "only", "set", "what_if", "table", "seed"])]
    list: bool,
    /// Run only this section of lotus, oocc or fisslock; repeat the flag for several sections; an unknown name lists
    /// the sections
    #[arg(long, value_name = "SECTION")]
    only: Vec<String>,
    /// For lotus, oocc and fisslock: set a constant of the hardware for this run, as in tarn sim, to see the
    /// constant's effect
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// For lotus and oocc: change a suspected cause for all systems, to see its effect; an unknown key lists the keys
    #[arg(long, value_name = "KEY=VALUE")]
    what_if: Vec<String>,
    /// Use a smaller database and fewer, shorter points; the report says so
    #[arg(long)]
    quick: bool,
    /// Seed of every random generator [default: 1]
    #[arg(long, value_name = "SEED", value_parser = super::scenario::whole, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Write the figure as a page with its curves to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// For fisslock: print only the rows and the verdict, as a table in Markdown
    #[arg(long, conflicts_with = "json")]
    table: bool,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn reproduce
  tarn reproduce lotus-fig-2 --quick
  tarn reproduce lotus-fig-2 --html lotus-fig-2.html --json
  tarn repro lotus --quick --html lotus.html
  tarn repro oocc --quick --html oocc.html
  tarn repro fisslock --quick
  tarn repro fisslock --quick --table
  tarn repro lotus --only fig-2 --set nic.atomic_mops=25 --json

A value agrees if it differs from the published one by at most a quarter. Exit code 0: the figure was run
and its checks passed, whether or not its values agree. 1: a check failed. 2: bad input.";

impl Arguments {
    /// Returns whether the user gave no argument: then the command lists the figures.
    fn is_bare(&self) -> bool {
        let Arguments { figure, only, set, what_if, quick, html, table, seed, .. } = self;
        let flags = [only, set, what_if].into_iter().all(Vec::is_empty);
        figure.is_none() && flags && !quick && !table && html.is_none() && seed.is_none()
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// Runs the command `tarn reproduce`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if arguments.list || arguments.is_bare() {
        list(arguments.json)?;
        return Ok(Verdict::Good);
    }
    if let Some(paper) = arguments.figure.as_deref().and_then(locks::by_name) {
        return evaluate_locks(paper, arguments);
    }
    if arguments.table {
        let figure = arguments.figure.as_deref().unwrap_or("nothing");
        return Err(Stop::Input(format!(
            "--table = {figure}; allowed: only together with fisslock"
        )));
    }
    if let Some(paper) = arguments.figure.as_deref().and_then(by_name) {
        return evaluate(paper, arguments);
    }
    let figure = figure_of(arguments)?;
    let scale = if arguments.quick { &figure.quick } else { &figure.full };
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let report = figure.run(scale, arguments.seed(), &Progress::new())?;
    if let Some(file) = html {
        file.finish(&page::page(&report))?;
    }
    verdict::print(&report, arguments.json)?;
    Ok(told(&report.failed()))
}

fn told(failed: &[String]) -> Verdict {
    if failed.is_empty() {
        return Verdict::Good;
    }
    remark!("checks failed: {}", failed.join("; "));
    Verdict::Bad
}

/// Returns the figure that the user requested. Refuses flags that the figure does not have.
fn figure_of(arguments: &Arguments) -> Result<&'static Figure, Stop> {
    let mut error = match Figure::by_name(arguments.figure.as_deref().unwrap_or("nothing")) {
        Err(error) => error,
        Ok(figure) => {
            let flags = [
                ("--only", &arguments.only, evaluations(" or ")),
                ("--set", &arguments.set, evaluations(" or ")),
                ("--what-if", &arguments.what_if, papers(" or ")),
            ];
            for (flag, given, with) in flags {
                if let Some(value) = given.first() {
                    return Err(only_with(flag, value, &with));
                }
            }
            return Ok(figure);
        }
    };
    error.allowed = format!("{}, {}", evaluations(", "), error.allowed);
    Err(Stop::Input(about(&error)))
}

/// Returns the names of all evaluations.
fn evaluations(between: &str) -> String {
    let locks = locks::ALL.iter().map(|paper| paper.name.0);
    let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name.0).chain(locks).collect();
    names.join(between)
}

/// Runs the whole evaluation of a paper.
fn evaluate(paper: &'static Paper, arguments: &Arguments) -> Result<Verdict, Stop> {
    let Arguments { quick, ref only, ref what_if, .. } = *arguments;
    let seed = arguments.seed();
    let profile = with_settings(load_profile("--profile", &paper.profile)?, &arguments.set)?;
    let (only, suppositions) = (only.clone(), what_if.clone());
    let order = paper.order(Asked { quick, seed, profile, only, suppositions })?;
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let evaluation = run_evaluation(&order, &Progress::new())?;
    if let Some(file) = html {
        file.finish(&page_of(&evaluation))?;
    }
    verdict::print(&evaluation, arguments.json)?;
    Ok(told(&evaluation.failed()))
}

/// Runs a paper's evaluation of a lock service.
fn evaluate_locks(
    paper: &'static locks::LockPaper,
    arguments: &Arguments,
) -> Result<Verdict, Stop> {
    if let Some(value) = arguments.what_if.first() {
        return Err(only_with("--what-if", value, &papers(" or ")));
    }
    let Arguments { quick: is_quick, ref only, .. } = *arguments;
    let seed = arguments.seed();
    let profile = with_settings(load_profile("--profile", &paper.profile)?, &arguments.set)?;
    let order = LockOrder { paper, is_quick, seed, profile, only: only.clone() };
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let evaluation = run_locks(&order)?;
    if let Some(file) = html {
        file.finish(&evaluation.page())?;
    }
    match arguments.table {
        true => say(&evaluation.table())?,
        false => verdict::print(&evaluation, arguments.json)?,
    }
    Ok(told(&evaluation.failed))
}

/// Prints the name of every figure.
fn list(json: bool) -> Result<(), Stop> {
    if json {
        let listed = |name: &str, title: &str, source: &str| serde_json::json!({ "figure": name, "title": title, "source": source });
        let figure = |it: &Figure| listed(&it.name, &it.title, &it.source);
        let papers = PAPERS.iter().map(|it| listed(&it.name, &it.title, &it.source));
        let locks = locks::ALL.iter().map(|it| listed(&it.name, &it.title, &it.source));
        return print_object(
            &ALL.iter().map(figure).chain(papers).chain(locks).collect::<Vec<_>>(),
        );
    }
    let figures = ALL.iter().map(|it| (it.name.0, it.title.0));
    let papers = PAPERS.iter().map(|it| (it.name.0, it.title.0));
    let locks = locks::ALL.iter().map(|it| (it.name.0, it.title.0));
    for (name, title) in figures.chain(papers).chain(locks) {
        say(&format!("{name:<14} {title}\n"))?;
    }
    Ok(())
}

/// Returns the names of the papers, separated by `between`.
fn papers(between: &str) -> String {
    PAPERS.iter().map(|paper| paper.name.0).collect::<Vec<&str>>().join(between)
}
