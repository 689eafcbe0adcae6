//! Lines of the tables in reports for human readers.
//!
//! Invariant: every line of every report has the same form: a name, then the figures.

use std::collections::BTreeMap;
use std::fmt;
use tarn_store::placement::catalog::Placement;

/// Writes one line of formatted text: `row!(f, "name" => "{} of {}", done, all)`.
macro_rules! formatted_row {
    ($f:expr, $name:expr => $($text:tt)+) => { row($f, $name, format_args!($($text)+)) };
}
pub(crate) use formatted_row as row;

/// Writes a line of formatted text: `put!(to => "{} of {}", done, all)`.
macro_rules! put {
    ($to:expr => $($text:tt)+) => { writeln!($to, $($text)+) };
}
/// Writes formatted text like `put!`, but without the end of the line.
macro_rules! put_part {
    ($to:expr => $($text:tt)+) => { write!($to, $($text)+) };
}
pub(crate) use {put, put_part};

/// Writes one line: a name and its value.
pub(crate) fn row(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<18} {value}")
}

/// Returns the rule that places records on nodes, as one word.
pub(crate) fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Hash => "hash",
        Placement::Table => "table",
    }
}

/// Returns one word for the verdict on a check.
pub(crate) fn verdict(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

/// Returns the names and values of the map as text, in the map's order.
pub(crate) fn named_values(map: &BTreeMap<&'static str, String>) -> String {
    let all: Vec<String> = map.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.join(", ")
}

/// Returns the map's entries whose value is not zero as text, in the map's order.
pub(crate) fn parts<V: Copy + PartialOrd + Default>(
    map: &BTreeMap<&'static str, V>,
    show: impl Fn(V) -> String,
) -> String {
    let parts: Vec<String> = map
        .iter()
        .filter(|(_, value)| **value > V::default())
        .map(|(name, value)| format!("{name} {}", show(*value)))
        .collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Returns a duration in the unit that fits its size.
pub(crate) fn length(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.2} µs", seconds * 1e6),
    }
}
