//! The command `tarn check` gives a verdict on a recorded history.
//!
//! Invariant: if the command cannot read the whole history, it gives no verdict. An exported file appears under its
//! name only when the file is complete.

use super::own_input::refuse_own_input;
use super::whole_file::WholeFile;
use super::{Stop, Verdict, complaint, verdict};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tarn_check::{ElleModel, History, Isolation, check, elle};

/// Reads a history and decides whether the history is strictly serializable, or satisfies a weaker level.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A history file, as `tarn bench --history FILE` writes it
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    /// The isolation level against which the history is checked [default: strict-serializable]
    #[arg(long, value_name = "LEVEL")]
    isolation: Option<Level>,
    /// One JSON object on standard output instead of text
    #[arg(long)]
    json: bool,
    /// Also write the history in the format EDN for the checker Elle
    #[arg(long, value_name = "FILE")]
    elle: Option<PathBuf>,
    /// The form of reads and writes in the file for Elle [default: list-append]
    #[arg(long, value_name = "MODEL")]
    elle_model: Option<Model>,
}

const EXAMPLES: &str = "Examples:
  tarn bench smallbank --records 1000 --history bank.jsonl
  tarn check bank.jsonl
  tarn check bank.jsonl --isolation si
  tarn check bank.jsonl --elle bank.edn --elle-model rw-register

Exit code 0: the history is accepted. 1: it is violated, and a counterexample is shown; or a line that
begins with error says that the verdict could not be written. 2: the file is not a history.";

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    StrictSerializable,
    Serializable,
    /// Snapshots in real time: the check accepts write skew and its consequences
    #[value(name = "si")]
    Snapshot,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    ListAppend,
    RwRegister,
}

/// Runs the command `tarn check`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    if let (Some(model), None) = (arguments.elle_model, &arguments.elle) {
        let model = model.to_possible_value();
        let model = model.as_ref().map_or("", |model| model.get_name());
        return Err(complaint::only_with("--elle-model", model, "--elle"));
    }
    let input = ("HISTORY", Some(arguments.history.as_path()));
    refuse_own_input(("--elle", arguments.elle.as_deref()), &[input])?;
    let history = History::read_from(&arguments.history).map_err(|error| {
        let file = &error.file;
        Stop::Input(format!("HISTORY = {file}; allowed: a whole history file; {}", error.problem))
    })?;
    if let Some(out) = &arguments.elle {
        let model = match arguments.elle_model.unwrap_or(Model::ListAppend) {
            Model::ListAppend => ElleModel::ListAppend,
            Model::RwRegister => ElleModel::RwRegister,
        };
        export(&history, model, out)?;
    }
    let isolation = match arguments.isolation.unwrap_or(Level::StrictSerializable) {
        Level::StrictSerializable => Isolation::StrictSerializable,
        Level::Serializable => Isolation::Serializable,
        Level::Snapshot => Isolation::SnapshotIsolation,
    };
    let report = check(&history, isolation);
    verdict::print(&report, arguments.json)?;
    Ok(if report.is_accepted() { Verdict::Good } else { Verdict::Bad })
}

fn export(history: &History, model: ElleModel, out: &Path) -> Result<(), Stop> {
    let file = WholeFile::create("--elle", out)?;
    file.finish_with(|file| elle::export(history, model, file))
}
