//! Fits the constants of the requester to the published rows `per-qp` and `per-doorbell`, and to nothing else.
//!
//! Invariant: a run changes no file. Without arguments it shows the error of every eighth row. With `--sensitivity` it
//! shows how this error changes if one constant is made a tenth larger or smaller. With `--descend` the program changes
//! one constant after the other while the error on all rows falls, in steps of 6 % and then of 3 %, and prints the
//! constants to put into the profile.
//!
//! The error is the root of the mean square of the logarithms of model over published, plus 0.01 for each row that is
//! more than 15 % off and 0.002 for each row that is more than 8 % off.
//!
//! Source: Ren et al., "Scaling up memory disaggregated applications with SMART", ASPLOS 2024, raw data of the artifact.

use tarn_lab::simulate::nic::requester::{PROFILE, ROWS, Row, compare};
use tarn_sim::profile::Profile;

/// The constants that were fitted, without `cpu.doorbell_waiting_max`: this small whole number was tried value by value.
/// Each other constant of the profile has another source.
const FITTED: [&str; 17] = [
    "nic.work_queue_entries",
    "nic.work_queue_write_spread",
    "nic.work_queue_write_miss_ns",
    "nic.work_queue_read_spread",
    "nic.work_queue_read_miss_ns",
    "nic.response_entries",
    "nic.response_spread",
    "nic.response_miss_ns",
    "nic.issue_ns",
    "nic.complete_ns",
    "cpu.post_verb_ns",
    "cpu.post_write_ns",
    "cpu.far_doorbell_ns",
    "cpu.far_completion_ns",
    "cpu.doorbell_handoff_ns",
    "cpu.doorbell_shared_ns",
    "cpu.hyperthread_slowdown",
];

fn error(profile: &Profile, rows: &[Row]) -> f64 {
    let (mut squares, mut off) = (0.0, 0.0);
    for row in rows {
        let compared = compare(profile, *row).expect("a shape that can be");
        let ratio = compared.ratio().expect("a row that the model expresses");
        squares += ratio.ln().powi(2);
        let miss = (ratio - 1.0).abs();
        off += 0.01 * f64::from(u8::from(miss > 0.15)) + 0.002 * f64::from(u8::from(miss > 0.08));
    }
    (squares / rows.len() as f64).sqrt() + off
}

fn value(profile: &Profile, key: &str) -> f64 {
    let constants = profile.constants();
    let named = constants.iter().find(|it| format!("{}.{}", it.section, it.name) == key);
    named.expect("a constant of the profile").constant.value
}

fn main() {
    let mut profile = Profile::load(PROFILE).expect("a profile of this program");
    let fitted = ROWS.iter().copied().filter(|row| row.way.is_fitted());
    let all: Vec<Row> = fitted.collect();
    let scaled = |profile: &Profile, key: &str, factor: f64| {
        let value = (value(profile, key) * factor * 100.0).round() / 100.0;
        profile.clone().with(key, value)
    };
    let mode = std::env::args().nth(1);
    if mode.as_deref() != Some("--descend") {
        let few: Vec<Row> = all.into_iter().step_by(8).collect();
        println!("{} rows: error {:.4}", few.len(), error(&profile, &few));
        let is_shown = mode.as_deref() == Some("--sensitivity");
        for key in FITTED.into_iter().filter(|_| is_shown) {
            let at = |factor| scaled(&profile, key, factor).map_or(f64::NAN, |it| error(&it, &few));
            println!(
                "{key} = {}: smaller {:.4}, larger {:.4}",
                value(&profile, key),
                at(0.9),
                at(1.1)
            );
        }
        return;
    }
    let mut best = error(&profile, &all);
    for (step, key) in [0.06, 0.03].iter().flat_map(|step| FITTED.map(|key| (step, key))) {
        for factor in [1.0 + step, 1.0 / (1.0 + step)] {
            while let Ok(other) = scaled(&profile, key, factor) {
                let found = error(&other, &all);
                if found >= best {
                    break;
                }
                (best, profile) = (found, other);
                println!("{key} = {}: error {best:.4}", value(&profile, key));
            }
        }
    }
    FITTED.iter().for_each(|key| println!("{key} = {}", value(&profile, key)));
}
