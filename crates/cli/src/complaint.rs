//! Formats an error about bad input as one line: `--FLAG = VALUE; allowed: …`.
//!
//! Invariant: the line names the flag, its value, and the allowed values, in this order.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use tarn_store::ids::UsageError;

/// Formats an error about a value that the engine, a workload or a cluster refuses.
pub fn about(error: &UsageError) -> String {
    let UsageError { field, value, allowed } = error;
    // A workload's tables have as many records as the flag or the profile states, or a multiple of this number.
    if let Some(table) = field.strip_prefix("records of table ") {
        return format!("--records = {value} in table {table}; allowed: {allowed}");
    }
    let name = match field.as_str() {
        "workload" => "WORKLOAD".to_owned(),
        "figure" => "FIGURE".to_owned(),
        "litmus" => "LITMUS".to_owned(),
        // This field is the total number of coordinators, however the command counts coordinators.
        "coordinators_max" => "coordinators".to_owned(),
        // This field is a property of the data, for which there is no flag.
        words if words.contains(' ') => words.to_owned(),
        field => flag_of(field),
    };
    let value = if value.is_empty() { "nothing" } else { value };
    format!("{name} = {value}; allowed: {allowed}")
}

/// Returns the flag that sets a field. If a field has no flag, the function returns the field's own name: a key of a
/// scenario, or a part of a plan.
fn flag_of(field: &str) -> String {
    let name = field.replace('_', "-");
    let is_flag = |command: &clap::Command| has_flag(command, &name);
    match super::Cli::command().get_subcommands().any(is_flag) {
        true => format!("--{name}"),
        false => name,
    }
}

fn has_flag(command: &clap::Command, name: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(name))
        || command.get_subcommands().any(|below| has_flag(below, name))
}

/// Formats an error about a flag that has a meaning only together with another flag. clap would name the other flag,
/// which the user did not give.
pub fn only_with(flag: &str, value: impl std::fmt::Display, other: &str) -> super::Stop {
    super::Stop::Input(format!("{flag} = {value}; allowed: only together with {other}"))
}

/// Formats an error about an argument that clap refuses.
pub fn of_clap(error: &clap::Error) -> String {
    let (command, path) = command_of(std::env::args_os().skip(1));
    let argument = text_of(error, ContextKind::InvalidArg).unwrap_or_default();
    let name = argument.split([' ', '=']).next().unwrap_or_default();
    let name = name.trim_matches(['<', '>', '[', ']', '.']);
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text_of(error, ContextKind::InvalidValue).unwrap_or_default();
            let value = if value.is_empty() { "nothing" } else { &value };
            let listed = text_of(error, ContextKind::ValidValue);
            let said = || error.source().map(ToString::to_string);
            let allowed = listed.or_else(said).unwrap_or_else(|| "a value".to_owned());
            format!("{name} = {value}; allowed: {allowed}")
        }
        ErrorKind::UnknownArgument => {
            let meant = text_of(error, ContextKind::SuggestedArg);
            let meant = meant.map(|flag| format!("; did you mean {flag}?")).unwrap_or_default();
            format!("argument = {name}; allowed: the flags that {path} --help lists{meant}")
        }
        ErrorKind::InvalidSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let value = text_of(error, ContextKind::InvalidSubcommand);
            let value = value.unwrap_or_else(|| "nothing".to_owned());
            let below = command.get_subcommands().filter(|below| !below.is_hide_set());
            let names: Vec<&str> = below.map(clap::Command::get_name).collect();
            format!("COMMAND = {value}; allowed: {} (see {path} --help)", names.join(", "))
        }
        // A flag without a value got one: --FLAG=VALUE.
        ErrorKind::TooManyValues => {
            let value = text_of(error, ContextKind::InvalidValue).unwrap_or_default();
            format!("{name} = {value}; allowed: no value")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("{name} = nothing; allowed: a value (see --help)")
        }
        ErrorKind::ArgumentConflict => {
            let other = text_of(error, ContextKind::PriorArg).unwrap_or_default();
            let name = if name.is_empty() { "COMMAND" } else { name };
            format!("{name} = given together with {other}; allowed: one of them, once")
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    }
}

/// Returns the command that the arguments name, and the words that name it. The words of a command come before its
/// flags.
fn command_of(arguments: impl Iterator<Item = std::ffi::OsString>) -> (clap::Command, String) {
    let mut command = super::Cli::command();
    let mut path = command.get_name().to_owned();
    for word in arguments {
        let Some(below) = command.find_subcommand(&word).cloned() else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    (command, path)
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) if !texts.is_empty() => Some(texts.join(", ")),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        _ => None,
    }
}
