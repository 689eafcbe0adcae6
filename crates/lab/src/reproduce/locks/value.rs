//! Simulated values of rows: measures of runs, of the switch's memory and of new views, and ratios of them.
//!
//! Invariant: a value is a measure or a ratio of two, and contains no constant of its own. A measure that a run
//! does not have is missing, with the reason.
//!
//! | measure | |
//! |---|---|
//! | `acquires`, `transactions` | millions a second |
//! | `grant:SHARE` | the time in µs below which this percentage of the grants took |
//! | `took:KIND:SHARE` | the same of transactions of a kind, by its number |
//! | `below:KIND:TIME` | the percentage of a kind's transactions that took less than so many µs |
//! | `by-switch`, `local`, `busiest` | the percentage of the acquires that the switch decided, that left no message, that the busiest server decided |
//! | `lowest`, `lowest-before`, `highest-before`, `lowest-after` | millions of acquires a second in one of the buckets of a timeline: of all, of those before the hotspot moves, of those after it |
//! | `switch-locks`, `own-switch-locks` | millions of locks that fit the switch: as published, and in the layout of this program with its lanes |
//! | `view-growth` | the time of S1 and S2 with the larger number of locks over that with the smaller one |

use super::LockOrder;
use super::case::{Case, Form, Ran, switch_locks};
use super::data::{Best, Stated, case_of};
use crate::locks::HOSTS;
use crate::locks::host::{LANES, WINDOW};
use crate::locks::view::{ViewChange, change_view};
use crate::reproduce::paper::case::Missing;
use crate::reproduce::paper::sheet::{Answer, Found, Row};
use std::collections::BTreeMap;
use tarn_locks::switch::budget::{LaneShape, LockLayout, SwitchBudget};

/// Everything that rows need after all runs.
pub(super) struct Done<'a> {
    pub order: &'a LockOrder,
    pub ran: &'a BTreeMap<Case, Result<Ran, String>>,
}

/// Units of control of this program's layout, at best.
const OWN_CONTROL_UNITS: u64 = 2;

fn missing<T>(why: impl Into<String>) -> Result<T, Missing> {
    Err(Missing(why.into()))
}

impl Done<'_> {
    /// Makes a row.
    pub(super) fn row(&self, stated: &Stated) -> Row {
        let columns = &self.order.paper.columns;
        let row = Row::of(columns, &stated.target(), &|form| self.answer(stated, form));
        Row { apart: stated.apart(), cause: stated.because.map(|text| text.0), ..row }
    }

    fn answer(&self, stated: &Stated, form: &str) -> Answer {
        if Form::by_name(form).is_some_and(|form| !stated.has_form(form)) {
            return missing("the load has no such form");
        }
        if let Some(why) = stated.not_simulated {
            return missing(why.0);
        }
        let mut best: Option<Found> = None;
        for (one, over) in stated.pairs() {
            let mut found = self.measured(&stated.of, &one, form)?;
            if let Some(over) = over {
                let below = self.measured(&stated.of, &over, form)?;
                found =
                    Found::of(found.value / below.value, format!("{}; {}", found.busy, below.busy));
            }
            let is_better = best.as_ref().is_none_or(|known| match stated.best {
                Some(Best::Lowest) => found.value < known.value,
                Some(Best::Highest) | None => found.value > known.value,
            });
            if is_better {
                best = Some(found);
            }
        }
        best.ok_or_else(|| Missing("no case".into()))
    }

    fn measured(&self, measure: &str, case: &str, form: &str) -> Answer {
        if case.is_empty() {
            return self.apart(measure);
        }
        let case = case_of(case, form);
        let ran = match self.ran.get(&case) {
            Some(Ok(ran)) => ran,
            Some(Err(why)) => return missing(why),
            None => return missing("was not run"),
        };
        let parts: Vec<&str> = measure.split(':').collect();
        let number =
            |text: &str| text.parse::<f64>().map_err(|_| Missing(format!("{measure}: {text}")));
        let kind =
            |text: &str| text.parse::<usize>().map_err(|_| Missing(format!("{measure}: {text}")));
        let none = || Missing("no transaction ended".into());
        let in_bucket = |acquires: Option<u64>| {
            let seconds = ran.bucket_ns as f64 / 1e9;
            let none = || Missing("the run has no whole bucket there".into());
            acquires.map(|it| it as f64 / seconds / 1e6).ok_or_else(none)
        };
        let [before, after] = around_move(ran, self.order.lengths().hotspot_moves_after);
        let value = match parts[..] {
            ["acquires"] => ran.acquires_millions(),
            ["transactions"] => ran.transactions_millions(),
            ["grant", share] => ran.granted_us(number(share)? / 100.0).ok_or_else(none)?,
            ["took", of, share] => {
                ran.took_us(kind(of)?, number(share)? / 100.0).ok_or_else(none)?
            }
            ["below", of, time] => {
                100.0 * ran.share_below(kind(of)?, number(time)?).ok_or_else(none)?
            }
            ["by-switch"] => 100.0 * ran.share_of(ran.sent.by_switch),
            ["local"] => 100.0 * ran.share_of(ran.sent.local),
            ["busiest"] => 100.0 * ran.busiest_share(),
            ["lowest"] => in_bucket(full(ran).iter().min().copied())?,
            ["lowest-before"] => in_bucket(before.iter().min().copied())?,
            ["highest-before"] => in_bucket(before.iter().max().copied())?,
            ["lowest-after"] => in_bucket(after.iter().min().copied())?,
            _ => return missing(format!("measure = {measure}")),
        };
        Ok(Found::of(value, ran.counters()))
    }

    /// Measures that need no run of clients.
    fn apart(&self, measure: &str) -> Answer {
        let millions = |locks: u64| locks as f64 / 1e6;
        match measure {
            "switch-locks" => {
                Ok(Found::of(millions(switch_locks()), "memory of the switch".into()))
            }
            "own-switch-locks" => {
                let lanes = LaneShape { machines: HOSTS, threads: LANES, window: WINDOW };
                let switch = SwitchBudget::published(OWN_CONTROL_UNITS);
                let fit = switch.locks_beside(&LockLayout::CELL8, lanes);
                let fit = fit.map_err(|why| Missing(why.to_string()))?;
                let told = format!(
                    "24 bits a lock in {} units, {OWN_CONTROL_UNITS} for control, {} bytes for lanes and answers",
                    fit.lock_maus,
                    fit.sequence_bytes + fit.answer_bytes
                );
                Ok(Found::of(millions(fit.locks), told))
            }
            "view-growth" => {
                let [few, many] = self.views()?;
                let time = |it: &ViewChange| (it.collect_ns + it.repair_ns) as f64;
                Ok(Found::of(time(&many) / time(&few), format!("{}; {}", told(&few), told(&many))))
            }
            _ => missing(format!("measure = {measure}")),
        }
    }

    fn views(&self) -> Result<[ViewChange; 2], Missing> {
        let [few, many] = self.order.lengths().held;
        let change =
            |locks| change_view(locks, &self.order.profile).map_err(|why| Missing(why.to_string()));
        Ok([change(few)?, change(many)?])
    }
}

/// The buckets that lie wholly in the run.
fn full(ran: &Ran) -> &[u64] {
    let whole = (ran.seconds * 1e9).round() as u64 / ran.bucket_ns.max(1);
    &ran.timeline[..ran.timeline.len().min(whole as usize)]
}

/// The buckets before the one in which the hotspot moves for the first time, and those after it. Clients draw the
/// requests in order, so it moves when so many requests are granted, but for those that wait.
fn around_move(ran: &Ran, moves_after: u64) -> [&[u64]; 2] {
    let all = full(ran);
    let mut granted = ran.acquires_before;
    let at = all.iter().position(|acquires| {
        granted += acquires;
        granted >= moves_after
    });
    at.map_or([all, &[]], |at| [&all[..at], &all[at + 1..]])
}

fn told(view: &ViewChange) -> String {
    format!(
        "{} locks held: S1 {:.0} µs, S2 {:.0} µs, S3 {:.0} µs",
        view.held,
        view.collect_ns as f64 / 1e3,
        view.repair_ns as f64 / 1e3,
        view.switch_ns as f64 / 1e3
    )
}
