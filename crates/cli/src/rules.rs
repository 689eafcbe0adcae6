//! The command `tarn rules` lists the rules that a variant can turn off.
//!
//! Invariant: the command prints the protocol's own list. So the output has every switch that `--variant` takes, in
//! the same form.

use super::{Stop, Verdict, print_object, say};
use serde::Serialize;
use tarn_engine::cluster::info::Switch;
use tarn_engine::protocol::AnyProtocol;

/// Lists the switches of a protocol. A switch is a rule or a deviation from the paper's text. The command shows the
/// effect of each switch while the switch is on. All switches are on in the variant corrected.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the protocol
    #[arg(long, value_name = "NAME", default_value = "ford")]
    protocol: String,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  tarn rules
  tarn bench ycsb --mix-profile f --variant corrected,-validate-reads
  tarn sim smallbank --variant literal,+fuse-log

A variant begins with corrected (every switch is on), literal (the switches of the paper's text) or measured
(those of its public code). Then ,-SWITCH or ,+SWITCH follows for each switch that differs. In simulations
only, ,unsafe-no-SWITCH takes away a switch that is listed so. ,si asks for snapshot isolation, if the
protocol offers it.";

#[derive(Serialize)]
struct Row {
    switch: &'static str,
    off: String,
    literal: bool,
    measured: bool,
    effect: &'static str,
}

impl Row {
    fn of(switch: &Switch) -> Row {
        let prefix = if switch.simulated_only { "unsafe-no-" } else { "-" };
        Row {
            switch: switch.name,
            off: format!("{prefix}{}", switch.name),
            literal: switch.in_literal,
            measured: switch.in_measured,
            effect: switch.effect,
        }
    }
}

/// Runs the command `tarn rules`.
pub fn run(arguments: &Arguments) -> Result<Verdict, Stop> {
    let info = AnyProtocol::by_name(&arguments.protocol, "corrected")?.info();
    let rows: Vec<Row> = info.switches.iter().map(Row::of).collect();
    let si = info.caps.snapshot_isolation;
    if arguments.json {
        let name = info.name;
        let rules =
            serde_json::json!({ "protocol": name, "snapshot_isolation": si, "rules": rows });
        return print_object(&rules).map(|()| Verdict::Good);
    }
    let mut text = format!("{:<26} {:<7} {:<8} effect\n", "off by", "literal", "measured");
    for Row { off, literal, measured, effect, .. } in rows {
        let [literal, measured] = [literal, measured].map(|on| if on { "on" } else { "off" });
        text += &format!("{off:<26} {literal:<7} {measured:<8} {effect}\n");
    }
    if si {
        text += "\n,si asks for snapshot isolation in place of strict serializability\n";
    }
    say(&text)?;
    Ok(Verdict::Good)
}
