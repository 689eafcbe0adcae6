//! `tarn reproduce`: published figures beside what a simulated cluster gives.
//!
//! Invariant: a published value that is missed is shown and is no failure; a check that fails is.

use super::progress::Progress;
use super::{Stop, Verdict, say};
use tarn::bench::run::RunError;
use tarn::reproduce::{ALL, Figure};

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
    #[arg(long, conflicts_with_all = ["figure", "quick"])]
    list: bool,
    /// A smaller database, shorter points and fewer of them; the report says so
    #[arg(long)]
    quick: bool,
    /// Seed of every generator
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = super::scenario::whole,
          allow_negative_numbers = true)]
    seed: u64,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn reproduce --list
  tarn reproduce lotus-fig-2 --quick
  tarn reproduce lotus-fig-2 --json

A value agrees if it is within a quarter of the published one. Exit code 0: the figure was run and its
checks passed, whether or not its values agree. 1: a check failed. 2: bad input.";

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if arguments.list {
        say(&list(arguments.json)?);
        return Ok(Verdict::Good);
    }
    let figure = Figure::by_name(arguments.figure.as_deref().unwrap_or("nothing"))
        .map_err(|error| Stop::Input(super::complaint::about(&error)))?;
    let scale = if arguments.quick { (figure.quick)() } else { (figure.full)() };
    let report =
        (figure.run)(&scale, arguments.seed, &Progress::new()).map_err(|error| match error {
            RunError::Usage(error) => error.into(),
            RunError::Failed(text) => Stop::Failed(text),
        })?;
    match arguments.json {
        false => say(&report.to_string()),
        true => say(&line_of(&report)?),
    }
    let failed = report.failed();
    if failed.is_empty() {
        return Ok(Verdict::Good);
    }
    eprintln!("checks failed: {}", failed.join("; "));
    Ok(Verdict::Bad)
}

fn line_of(object: &impl serde::Serialize) -> Result<String, Stop> {
    let text = serde_json::to_string(object);
    let text = text.map_err(|error| Stop::Failed(format!("the report: {error}")))?;
    Ok(format!("{text}\n"))
}

fn list(json: bool) -> Result<String, Stop> {
    if json {
        let figure = |figure: &Figure| {
            let Figure { name, title, source, .. } = figure;
            serde_json::json!({ "figure": name, "title": title, "source": source })
        };
        return line_of(&ALL.iter().map(figure).collect::<Vec<_>>());
    }
    let lines = ALL.iter().map(|figure| format!("{:<14} {}\n", figure.name, figure.title));
    Ok(lines.collect())
}
