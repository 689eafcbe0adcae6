//! The command `tarn profiles` lists the hardware that can be simulated, and the constants of its model.
//!
//! Invariant: the command shows every constant with its source and with how certain it is.

use super::sim::load_profile;
use super::{Stop, Verdict, say};
use serde::Serialize;
use std::fmt::Write as _;
use tarn_lab::simulate::nic::published::standing_name;
use tarn_sim::profile::{Constant, Profile};

/// Lists the hardware profiles of the simulator. With the name of a profile, lists all its constants.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A profile's name, or a TOML file
    #[arg(value_name = "PROFILE")]
    profile: Option<String>,
    /// JSON on standard output instead of text
    #[arg(long)]
    json: bool,
}

/// The name of the command's argument in the usage text.
const ARGUMENT: &str = "PROFILE";

const EXAMPLES: &str = "Examples:
  tarn profiles
  tarn profiles cx3-56g
  tarn profiles cx6-200g --json

Standings. measured: read in a publication. derived: computed from measured ones. assumed: not verified;
try half and twice the value before you rely on it.";

#[derive(Serialize)]
struct Row<'a> {
    section: &'static str,
    name: &'static str,
    value: serde_json::Value,
    standing: &'static str,
    source: &'a str,
}

#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    hardware: &'a str,
    constants: usize,
    measured: usize,
    derived: usize,
    assumed: usize,
}

#[derive(Serialize)]
struct Whole<'a> {
    name: &'a str,
    hardware: &'a str,
    constants: Vec<Row<'a>>,
}

/// Runs the command `tarn profiles`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let text = match &arguments.profile {
        Some(name) => one(&load_profile(ARGUMENT, name)?, arguments.json)?,
        None => all(arguments.json)?,
    };
    say(&text)?;
    Ok(Verdict::Good)
}

fn all(json: bool) -> Result<String, Stop> {
    let profiles: Vec<Profile> =
        Profile::names().map(|name| load_profile(ARGUMENT, name)).collect::<Result<_, _>>()?;
    let summaries: Vec<Summary<'_>> = profiles.iter().map(summary).collect();
    if json {
        return object(&summaries);
    }
    let mut text = String::new();
    for Summary { name, hardware, constants, measured, derived, assumed } in summaries {
        let _ = writeln!(
            text,
            "{name:<10} {hardware}\n{:10} {constants} constants: {measured} measured, {derived} \
             derived, {assumed} assumed",
            ""
        );
    }
    Ok(text)
}

fn one(profile: &Profile, json: bool) -> Result<String, Stop> {
    let whole =
        Whole { name: &profile.name, hardware: &profile.hardware, constants: rows(profile) };
    if json {
        return object(&whole);
    }
    let mut text = format!("{}: {}\n", whole.name, whole.hardware);
    for Row { section, name, value, standing, source } in &whole.constants {
        let name = format!("{section}.{name}");
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "  {name:<24} {value:>12}  {standing:<8}  {source}");
    }
    Ok(text)
}

fn object(value: &impl Serialize) -> Result<String, Stop> {
    let text = serde_json::to_string(value);
    text.map(|text| text + "\n").map_err(|error| {
        Stop::Failed(format!(
            "the list cannot be written \
        as JSON: {error}"
        ))
    })
}

fn summary(profile: &Profile) -> Summary<'_> {
    let rows = rows(profile);
    let count = |standing| rows.iter().filter(|row| row.standing == standing).count();
    Summary {
        name: &profile.name,
        hardware: &profile.hardware,
        constants: rows.len(),
        measured: count("measured"),
        derived: count("derived"),
        assumed: count("assumed"),
    }
}

fn rows(profile: &Profile) -> Vec<Row<'_>> {
    let form = &profile.form;
    let mut rows =
        vec![row("form", "atomic_unit", &form.atomic_unit), row("form", "framing", &form.framing)];
    let numbers = profile.constants();
    rows.extend(numbers.iter().map(|listed| row(listed.section, listed.name, listed.constant)));
    rows
}

fn row<'a, T: Serialize>(
    section: &'static str,
    name: &'static str,
    constant: &'a Constant<T>,
) -> Row<'a> {
    let Constant { value, source, standing } = constant;
    let value = serde_json::to_value(value).unwrap_or_default();
    // Whole numbers are printed without a fraction.
    let whole = value.as_f64().filter(|number| number.fract() == 0.0);
    let value = whole.map_or(value, |number| (number as i64).into());
    Row { section, name, value, standing: standing_name(*standing), source }
}
