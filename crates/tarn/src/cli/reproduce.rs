//! `tarn reproduce`: published figures beside what a simulated cluster gives.
//!
//! Invariant: a published value that is missed is shown and is no failure; a check that fails is.

use super::complaint::{about, only_with};
use super::progress::Progress;
use super::sim::{load_profile, with_settings};
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say, verdict};
use crate::reproduce::lotus::Lotus;
use crate::reproduce::oocc::Oocc;
use crate::reproduce::paper::{self, Order, Paper, Portion, Suppose};
use crate::reproduce::{ALL, Figure, page};
use std::path::PathBuf;

/// Runs a published figure again on a simulated cluster of the paper's hardware: one row for each
/// published value, with the simulated one, their ratio, and what was busiest; then the verbs of a
/// transaction beside those of the public code, and all curves.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Which figure, or lotus or oocc for the whole evaluation of LOTUS or OOCC; without one the names are listed
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,
    /// List the figures that can be run
    #[arg(long, conflicts_with_all = ["figure", "quick", "html", "only", "set", "suppose"])]
    list: bool,
    /// Of lotus and oocc, this section alone: a name that an unknown one shows; may be given several times
    #[arg(long, value_name = "SECTION")]
    only: Vec<String>,
    /// Of lotus and oocc, a constant of the hardware set for this run, as in tarn sim: what would be if
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Of lotus and oocc, a suspected cause changed for all systems, by what an unknown one shows: what would be if
    #[arg(long, value_name = "KEY=VALUE")]
    suppose: Vec<String>,
    /// A smaller database, shorter points and fewer of them; the report says so
    #[arg(long)]
    quick: bool,
    /// Seed of every generator
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = super::scenario::whole,
          allow_negative_numbers = true)]
    seed: u64,
    /// Write the figure as a page with its curves to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
  tarn repro lotus --only fig-2 --set nic.atomic_mops=25 --json

A value agrees if it is within a quarter of the published one. Exit code 0: the figure was run and its
checks passed, whether or not its values agree. 1: a check failed. 2: bad input.";

impl Arguments {
    /// Whether nothing is asked for: then the answer is what there is to ask for.
    fn is_bare(&self) -> bool {
        let Arguments { figure, only, set, suppose, quick, html, .. } = self;
        let flags = [only, set, suppose].into_iter().all(Vec::is_empty);
        figure.is_none() && flags && !quick && html.is_none()
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if arguments.list || arguments.is_bare() {
        list(arguments.json)?;
        return Ok(Verdict::Good);
    }
    match arguments.figure.as_deref() {
        Some(Lotus::NAME) => return evaluate::<Lotus>(arguments),
        Some(Oocc::NAME) => return evaluate::<Oocc>(arguments),
        _ => {}
    }
    let figure = figure_of(arguments)?;
    let scale = if arguments.quick { (figure.quick)() } else { (figure.full)() };
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let report = (figure.run)(&scale, arguments.seed, &Progress::new())?;
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

/// The figure that is asked for, by flags that it has.
fn figure_of(arguments: &Arguments) -> Result<&'static Figure, Stop> {
    let mut error = match Figure::by_name(arguments.figure.as_deref().unwrap_or("nothing")) {
        Err(error) => error,
        Ok(figure) => {
            let flags = [
                ("--only", &arguments.only),
                ("--set", &arguments.set),
                ("--suppose", &arguments.suppose),
            ];
            for (flag, given) in flags {
                if let Some(value) = given.first() {
                    return Err(only_with(flag, value, &papers()));
                }
            }
            return Ok(figure);
        }
    };
    error.allowed = format!("{}, {}, {}", Lotus::NAME, Oocc::NAME, error.allowed);
    Err(Stop::Input(about(&error)))
}

/// A paper's whole evaluation.
fn evaluate<P: Paper>(arguments: &Arguments) -> Result<Verdict, Stop> {
    let extent = if arguments.quick { P::Extent::quick() } else { P::Extent::full() };
    let profile = with_settings(load_profile("--profile", P::PROFILE)?, &arguments.set)?;
    let (seed, only) = (arguments.seed, arguments.only.clone());
    let suppositions = arguments.suppose.iter().map(|text| P::Supposition::parse(text));
    let suppositions = suppositions.collect::<Result<_, _>>()?;
    let order = Order::<P> { extent, seed, profile, only, suppositions };
    paper::check(&order)?;
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let evaluation = paper::evaluate(&order, &Progress::new())?;
    if let Some(file) = html {
        file.finish(&paper::page::page(&evaluation))?;
    }
    verdict::print(&evaluation, arguments.json)?;
    Ok(told(&evaluation.failed()))
}

/// Prints every figure's name.
fn list(json: bool) -> Result<(), Stop> {
    if json {
        let figure = |figure: &Figure| {
            let Figure { name, title, source, .. } = figure;
            serde_json::json!({ "figure": name, "title": title, "source": source })
        };
        let papers = [whole::<Lotus>(), whole::<Oocc>()];
        return print_object(&ALL.iter().map(figure).chain(papers).collect::<Vec<_>>());
    }
    for figure in ALL {
        say(&format!("{:<14} {}\n", figure.name, figure.title))?;
    }
    say(&format!("{:<14} {}\n", Lotus::NAME, Lotus::TITLE))?;
    say(&format!("{:<14} {}\n", Oocc::NAME, Oocc::TITLE))
}

/// A paper as the list shows it.
fn whole<P: Paper>() -> serde_json::Value {
    serde_json::json!({ "figure": P::NAME, "title": P::TITLE, "source": P::SOURCE })
}

/// Names of the papers.
fn papers() -> String {
    format!("{} or {}", Lotus::NAME, Oocc::NAME)
}
