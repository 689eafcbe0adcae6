//! `tarn reproduce`: published figures beside what a simulated cluster gives.
//!
//! Invariant: a published value that is missed is shown and is no failure; a check that fails is.

use super::progress::Progress;
use super::whole_file::WholeFile;
use super::{Stop, Verdict, print_object, say, verdict};
use std::path::PathBuf;
use tarn::reproduce::{ALL, Figure, page};

/// Runs a published figure again on a simulated cluster of the paper's hardware: one row for each
/// published value, with the simulated one, their ratio, and what was busiest; then the verbs of a
/// transaction beside those of the public code, and all curves.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Which figure: a name that --list shows
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,
    /// List the figures that can be run
    #[arg(long, conflicts_with_all = ["figure", "quick", "html"])]
    list: bool,
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
  tarn reproduce --list
  tarn reproduce lotus-fig-2 --quick
  tarn reproduce lotus-fig-2 --html lotus-fig-2.html --json

A value agrees if it is within a quarter of the published one. Exit code 0: the figure was run and its
checks passed, whether or not its values agree. 1: a check failed. 2: bad input.";

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if arguments.list {
        list(arguments.json)?;
        return Ok(Verdict::Good);
    }
    let figure = Figure::by_name(arguments.figure.as_deref().unwrap_or("nothing"))
        .map_err(|error| Stop::Input(super::complaint::about(&error)))?;
    let scale = if arguments.quick { (figure.quick)() } else { (figure.full)() };
    let html = arguments.html.as_deref();
    let html = html.map(|path| WholeFile::create("--html", path)).transpose()?;
    let report = (figure.run)(&scale, arguments.seed, &Progress::new())?;
    if let Some(file) = html {
        file.finish(&page::page(&report))?;
    }
    verdict::print(&report, arguments.json)?;
    let failed = report.failed();
    if failed.is_empty() {
        return Ok(Verdict::Good);
    }
    eprintln!("checks failed: {}", failed.join("; "));
    Ok(Verdict::Bad)
}

/// Prints every figure's name.
fn list(json: bool) -> Result<(), Stop> {
    if json {
        let figure = |figure: &Figure| {
            let Figure { name, title, source, .. } = figure;
            serde_json::json!({ "figure": name, "title": title, "source": source })
        };
        return print_object(&ALL.iter().map(figure).collect::<Vec<_>>());
    }
    for figure in ALL {
        say(&format!("{:<14} {}\n", figure.name, figure.title))?;
    }
    Ok(())
}
