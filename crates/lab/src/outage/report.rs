//! Reports the cost of an outage: the throughput of each interval, the drop of throughput, and the time until
//! throughput has recovered.
//!
//! Invariant: *before* is the mean throughput of the intervals between warm-up and crash. The
//! *drop* compares *before* with the mean of the first five intervals after the crash. Throughput
//! is *back* at the first of five consecutive intervals whose mean is at least 95 % of *before*. No
//! figure is smoothed.

use super::{Plan, Shape};
use crate::harness::checks::{AuditReport, Invariants};
use crate::harness::lines::put;
use crate::sweep::chart::escape;
use serde::Serialize;
use std::fmt::{self, Write as _};
use tarn_workloads::Workload;

/// The number of consecutive intervals over which the report takes a mean.
const MEAN_OF: usize = 5;
/// The share of the time before the crash that counts as warm-up.
const WARM_UP: f64 = 0.25;
/// Throughput is *back* when it reaches this share of *before*.
const BACK: f64 = 0.95;
const BAR: usize = 50;

/// An event of the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Event {
    /// The event's virtual time in milliseconds, since the phase began.
    pub at_ms: f64,
    /// A description of the event.
    pub what: String,
}

/// The state of the memory after the outage.
#[derive(Clone, Debug, Serialize)]
pub struct Checks {
    /// The engine's audit of the memory.
    pub audit: AuditReport,
    /// The verdicts on the workload's rules, given the acknowledged transactions.
    pub rules: Invariants,
    /// The number of transactions in doubt: the rules hold whether such a transaction committed or not.
    pub unknown: u64,
    /// The number of locks of dead nodes that remained although the sweep had reported that it removed all of them.
    pub locks_missed: u64,
    /// The number of members of the smallest replica group.
    pub copies: usize,
    /// Whether every coroutine of the nodes that did not crash has ended.
    pub all_ended: bool,
    /// The failures of transactions that no crash explains.
    pub failures: Vec<String>,
}

/// The results of one outage.
#[derive(Clone, Debug, Serialize)]
pub struct Outage {
    /// The workload's name.
    pub workload: &'static str,
    /// The number of records loaded.
    pub records: u64,
    /// The protocol's name.
    pub protocol: String,
    /// The protocol's variant.
    pub variant: String,
    /// The hardware profile's name.
    pub profile: String,
    /// The shape of the cluster, and the crashes in it.
    pub shape: Shape,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The number of acknowledged transactions per second, in each interval.
    pub throughput_per_s: Vec<f64>,
    /// The mean throughput before the crash.
    pub before_per_s: f64,
    /// The mean throughput in the first intervals after the crash.
    pub after_per_s: f64,
    /// The drop of the mean throughput after the crash, in percent of the mean before the crash.
    pub drop_percent: f64,
    /// The throughput of the slowest interval after the crash.
    pub lowest_per_s: f64,
    /// The time from the crash until throughput is *back*, as the top of this file defines it; `None` if throughput
    /// did not recover.
    pub back_after_ms: Option<f64>,
    /// The time from the crash until the last dead compute node is recovered.
    pub recovered_after_ms: Option<f64>,
    /// The time from the crash until the sweep has removed all locks of dead nodes.
    pub swept_after_ms: Option<f64>,
    /// The time from the crash until backups have replaced the primaries that were lost.
    pub promoted_after_ms: Option<f64>,
    /// The time from the crash until every replica group has all its copies again.
    pub whole_after_ms: Option<f64>,
    /// The events, in the order of their times.
    pub events: Vec<Event>,
    /// The verdicts on the memory after the outage.
    pub checks: Checks,
}

impl Outage {
    pub(super) fn new<W: Workload>(
        plan: &Plan,
        records: u64,
        counts: Vec<u64>,
        mut events: Vec<Event>,
        checks: Checks,
    ) -> Outage {
        events.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
        let shape = plan.shape.clone();
        let per_s = 1e3 / shape.interval_ms;
        let throughput_per_s: Vec<f64> = counts.iter().map(|&it| it as f64 * per_s).collect();
        // The interval that contains the crash counts as an interval after the crash. Rounding may give a quotient a
        // little below a whole number, and the small addend corrects this error.
        let crash = (shape.crash_at_ms / shape.interval_ms + 1e-6) as usize;
        let crash = crash.min(throughput_per_s.len());
        let warm = (crash as f64 * WARM_UP) as usize;
        let before_per_s = mean(&throughput_per_s[warm..crash]);
        let later = &throughput_per_s[crash..];
        let after_per_s = mean(&later[..MEAN_OF.min(later.len())]);
        let is_back = |window: &[f64]| mean(window) >= BACK * before_per_s;
        let back = later.windows(MEAN_OF).position(is_back);
        let since = |what: &dyn Fn(&Event) -> bool| {
            let last = events.iter().rev().find(|event| what(event));
            last.map(|event| event.at_ms - shape.crash_at_ms)
        };
        let has = |part: &'static str| move |event: &Event| event.what.contains(part);
        let promoted = events.iter().find(|event| event.what.starts_with("configuration"));
        Outage {
            workload: W::NAME,
            records,
            protocol: plan.protocol.0.clone(),
            variant: plan.protocol.1.clone(),
            profile: plan.profile.name.clone(),
            seed: plan.seed,
            before_per_s,
            after_per_s,
            drop_percent: 100.0 * (1.0 - after_per_s / before_per_s),
            lowest_per_s: later.iter().copied().fold(f64::INFINITY, f64::min),
            back_after_ms: back.map(|at| at as f64 * shape.interval_ms),
            recovered_after_ms: since(&has("recovered")),
            swept_after_ms: since(&has("sweep over")),
            promoted_after_ms: promoted.map(|event| event.at_ms - shape.crash_at_ms),
            whole_after_ms: since(&has("copies complete")),
            throughput_per_s,
            events,
            checks,
            shape,
        }
    }

    /// Returns the errors that the checks of the memory found.
    pub fn failed(&self) -> Vec<String> {
        let Checks { audit, rules, locks_missed, copies, all_ended, failures, .. } = &self.checks;
        let mut failed = failures.clone();
        let mut check = |ok: bool, text: String| failed.extend((!ok).then_some(text));
        check(audit.ok, audit.detail.clone());
        for rule in &rules.each {
            check(rule.ok, format!("{}: {}", rule.name, rule.detail));
        }
        let missed = format!("a sweep was over, and {locks_missed} locks of the dead were left");
        check(*locks_missed == 0, missed);
        check(*all_ended, "transactions did not end".into());
        let lost = self.shape.crash_memory.saturating_sub(self.shape.spare_nodes);
        let wanted = self.shape.replicas - lost;
        check(*copies >= wanted, format!("{copies} copies of some group, {wanted} wanted"));
        failed
    }

    /// Draws the throughput over time as a picture.
    pub fn picture(&self) -> String {
        let (width, height, left, top) = (760.0, 250.0, 52.0, 34.0);
        let most = self.throughput_per_s.iter().copied().fold(1.0, f64::max);
        let columns = self.throughput_per_s.len().max(1) as f64;
        let x = |ms: f64| left + ms / self.shape.interval_ms * width / columns;
        let y = |per_s: f64| top + height * (1.0 - per_s / most);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\">\n{STYLE}\
             <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"soft\" x=\"{left}\" y=\"18\">{}</text>\n",
            left + width + 16.0,
            top + height + 44.0,
            left + width + 16.0,
            escape(&self.title())
        );
        for tick in 0..=4 {
            let per_s = most * f64::from(tick) / 4.0;
            let _ = put!(svg =>
                "<path class=\"rule\" d=\"M{left} {:.1}H{:.1}\"/><text class=\"soft\" x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{:.2} M/s</text>",
                y(per_s), left + width, left - 4.0, y(per_s) + 4.0, per_s / 1e6);
        }
        let mut line = String::new();
        for (index, per_s) in self.throughput_per_s.iter().enumerate() {
            let from = index as f64 * self.shape.interval_ms;
            let start = if index == 0 { 'M' } else { 'L' };
            let _ = write!(line, "{start}{:.1} {:.1}", x(from), y(*per_s));
            let _ = write!(line, "H{:.1}", x(from + self.shape.interval_ms));
        }
        let _ = writeln!(svg, "<path class=\"line\" d=\"{line}\"/>");
        let mut last = f64::NEG_INFINITY;
        for event in &self.events {
            let at = x(event.at_ms);
            let _ = put!(svg =>
                "<path class=\"event\" d=\"M{at:.1} {top}V{:.1}\"><title>{:.3} ms: \
                 {}</title></path>", top + height, event.at_ms, escape(&event.what));
            if at - last > 48.0 {
                let _ = put!(svg =>
                    "<text class=\"soft\" x=\"{at:.1}\" y=\"{:.1}\">{:.1} ms</text>",
                    top + height + 16.0, event.at_ms);
                last = at;
            }
        }
        let _ = put!(svg =>
            "<text class=\"soft\" x=\"{left}\" y=\"{:.1}\">virtual time; a mark is something that \
             happened</text>\n</svg>", top + height + 36.0);
        svg
    }

    fn title(&self) -> String {
        let shape = &self.shape;
        format!(
            "{} on {} ({}), simulated, profile {}, seed {}: {} of {} compute nodes and {} of \
             {} memory nodes crash",
            self.workload,
            self.protocol,
            self.variant,
            self.profile,
            self.seed,
            shape.crash_compute,
            shape.compute_nodes,
            shape.crash_memory,
            shape.memory_nodes
        )
    }
}

const STYLE: &str = "<style>svg{--back:#fff;--soft:#60646c;--rule:#dfe1e5;--line:#0072b2;--event:#c43c00;\
    font:11px sans-serif}@media(prefers-color-scheme:dark){svg{--back:#15171a;--soft:#a0a4ab;\
    --rule:#33363b;--line:#56b4e9;--event:#ff8a5c}}.back{fill:var(--back)}.soft{fill:var(--soft)}\
    .rule{stroke:var(--rule)}.line{stroke:var(--line);fill:none;stroke-width:1.5}\
    .event{stroke:var(--event);stroke-dasharray:3 3}</style>\n";

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "not in this run".into(), |ms| format!("{ms:.3} ms"))
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = &self.shape;
        writeln!(f, "{}", self.title())?;
        put!(f =>
            "{} records, {} replicas, {} spare memory nodes, {} coordinators; crash at {} ms, \
             noticed {}; machines are back after {} ms",
            self.records, shape.replicas, shape.spare_nodes,
            shape.compute_nodes * shape.threads * shape.coroutines, shape.crash_at_ms,
            if shape.lease_ms > 0.0 { format!("by leases of {} ms", shape.lease_ms) } else { "at once".into() },
            shape.restart_ms)?;
        let most = self.throughput_per_s.iter().copied().fold(1.0, f64::max);
        for (index, per_s) in self.throughput_per_s.iter().enumerate() {
            let from = index as f64 * shape.interval_ms;
            let bar = "#".repeat((per_s / most * BAR as f64) as usize);
            writeln!(f, "{from:>8.2} ms {:>9.3} M/s {bar}", per_s / 1e6)?;
            let within =
                |event: &&Event| event.at_ms >= from && event.at_ms < from + shape.interval_ms;
            for event in self.events.iter().filter(within) {
                writeln!(f, "   {:>9.3} ms: {}", event.at_ms, event.what)?;
            }
        }
        writeln!(f, "before the crash   {:.3} M transactions/s", self.before_per_s / 1e6)?;
        put!(f =>
            "after it           {:.3} M transactions/s, {:.1} % less (first {MEAN_OF} intervals; \
             lowest {:.3})", self.after_per_s / 1e6, self.drop_percent, self.lowest_per_s / 1e6)?;
        writeln!(f, "backups promoted   {}", ms(self.promoted_after_ms))?;
        writeln!(f, "dead recovered     {}", ms(self.recovered_after_ms))?;
        writeln!(f, "throughput back    {}", ms(self.back_after_ms))?;
        writeln!(f, "their locks swept  {}", ms(self.swept_after_ms))?;
        writeln!(f, "all copies again   {}", ms(self.whole_after_ms))?;
        let failed = self.failed();
        let Checks { audit, rules, unknown, .. } = &self.checks;
        if failed.is_empty() {
            let count = rules.each.len();
            return put!(f =>
                "memory             sound: {}; {count} rules of the workload, held against what \
                 was acknowledged ({unknown} transactions in doubt)", audit.detail);
        }
        writeln!(f, "memory             {}", failed.join("; "))
    }
}
