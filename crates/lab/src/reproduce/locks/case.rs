//! One run of a lock service: the service, the load and its settings.
//!
//! The text of a case: the service, the load, then settings. Loads: `uniform`, `zipf`, `hotspot`, `tatp`,
//! `tpcc`, `granules`. Settings: `uh`, `rm` or `ro` (the share of writes), `locks=NUMBER`, `theta=NUMBER`,
//! `by-id` (machines share locks by number, not by ranges), `on-switch=NUMBER` (the switch decides so many locks).
//! A setting that a load does not have is refused: `uh`, `rm`, `ro` and `theta` belong to `uniform`, `zipf` and
//! `granules`, and `locks` to these and to `hotspot`. For `granules`, `locks`
//! divides the ten million objects.
//!
//! Invariant: equal cases are run only once. Two services with the same load replay the same trace.

use super::LockOrder;
use crate::locks::cluster::Setup;
use crate::locks::plan::Shares;
use crate::locks::run::{Measured, Pace, hottest, run};
use crate::locks::system::System;
use crate::locks::{HOSTS, REQUEST_NS};
use std::fmt;
use std::rc::Rc;
use tarn_fabric::rng::seeded;
use tarn_locks::switch::budget::{LockLayout, SwitchBudget};
use tarn_locks::trace::{
    Hotspot, LOCKS_MAX, Micro, Mix, Picker, Skew, Tatp, Tpcc, Trace, Workload,
};
use tarn_locks::value::LockId;
use tarn_store::ids::UsageError;

/// How the parameters that the sources of the paper state differently are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// As the public code: θ = .90, and lock 0 is the hottest. TATP works for 1 µs.
    Code,
    /// As the text: θ = .99, as YCSB scatters its ranks. TATP works for 2 µs.
    Text,
    /// As the text's shares of requests need it: θ = .73, and lock 0 is the hottest.
    Shares,
}

impl Form {
    /// Returns the form with a name.
    pub fn by_name(name: &str) -> Option<Form> {
        match name {
            "code" => Some(Form::Code),
            "text" => Some(Form::Text),
            "shares" => Some(Form::Shares),
            _ => None,
        }
    }
}

/// The kind of a load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Load {
    /// One request a transaction, all locks alike.
    Uniform,
    /// One request a transaction, by Zipf.
    Zipf,
    /// Half of the requests for a hotspot that moves.
    Hotspot,
    /// TATP.
    Tatp,
    /// TPC-C.
    Tpcc,
    /// Ten million objects, with one lock for several.
    Granules,
}

/// The goal of reading a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// The load runs on a cluster: `by-id` and `on-switch` are settings of the cluster.
    Run,
    /// A trace of the load is drawn, which has no settings of a cluster.
    Trace,
}

/// Locks of the micro workload. Source: section 7.3, one million.
const LOCKS: u32 = 1_000_000;
/// Objects of the granularity experiment. Source: section 7.7.
const OBJECTS: u32 = 10_000_000;
/// Hot locks that NetLock keeps in the switch. Derived: 1 % of a million locks (section 2.3).
pub(super) const HOT: usize = 10_000;
/// Shares of the locks that NetLock keeps, in millionths: TATP .09 %, TPC-C .3 %. Source: section 7.4.
const HOT_TATP: u64 = 900;
const HOT_TPCC: u64 = 3_000;
/// Warehouses of one machine. Source: the public traces, 1,200 for each of 8 machines.
const WAREHOUSES: u32 = 1_200;
/// Clients of an issuing thread for TPC-C. Source: 1,200 clients on 40 threads.
const TPCC_CLIENTS: usize = 30;
/// The time of a transaction's work. Source: the instructions of the public code.
const TATP_WORK_NS: u64 = 1_000;
/// The same, as the text has it. Source: section 7.1.
const TATP_TEXT_WORK_NS: u64 = 2_000;
/// Source: both.
const TPCC_WORK_NS: u64 = 10_000;
/// Units of the switch for control. Source: section 7.2.
const CONTROL_UNITS: u64 = 4;
/// Buckets of a timeline.
const BUCKETS: f64 = 20.0;

/// The names of loads.
const LOADS: [(&str, Load); 6] = [
    ("uniform", Load::Uniform),
    ("zipf", Load::Zipf),
    ("hotspot", Load::Hotspot),
    ("tatp", Load::Tatp),
    ("tpcc", Load::Tpcc),
    ("granules", Load::Granules),
];
/// The names of mixes: half, a tenth or none of the requests are exclusive.
const MIXES: [(&str, Mix); 3] =
    [("uh", Mix::UPDATE_HEAVY), ("rm", Mix::READ_MOSTLY), ("ro", Mix::READ_ONLY)];
/// The largest exponent of a Zipf distribution, in hundredths.
const THETA_PERCENT_MAX: u32 = 400;

impl Load {
    /// All names of loads, in the order of the help text.
    pub fn names() -> [&'static str; 6] {
        LOADS.map(|(name, _)| name)
    }

    /// Returns the load's name.
    pub fn name(self) -> &'static str {
        let known = LOADS.iter().find(|(_, load)| *load == self);
        known.map_or("", |(name, _)| name)
    }
}

/// Refuses a value.
pub(super) fn refuse<T>(
    field: &str,
    value: impl ToString,
    allowed: impl Into<String>,
) -> Result<T, UsageError> {
    Err(UsageError { field: field.into(), value: value.to_string(), allowed: allowed.into() })
}

fn whole(field: &str, text: &str, (least, most): (u32, u32)) -> Result<u32, UsageError> {
    match text.parse::<u32>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => refuse(field, text, format!("whole numbers from {least} to {most}")),
    }
}

/// Reads a number of locks for the objects of the granularity experiment: each lock has as many objects as another.
fn granules(text: &str) -> Result<u32, UsageError> {
    match text.parse::<u32>() {
        Ok(locks) if locks > 0 && OBJECTS.is_multiple_of(locks) => Ok(locks),
        _ => {
            let allowed = format!("numbers that divide {OBJECTS}");
            refuse("locks of the load", text, allowed)
        }
    }
}

/// Reads a number with at most two digits after the point.
fn hundredths(field: &str, text: &str, most: u32) -> Result<u32, UsageError> {
    let number = text.parse::<f64>().ok().map(|number| number * 100.0);
    match number.filter(|it| (0.0..=f64::from(most)).contains(it)) {
        Some(number) if (number - number.round()).abs() < 1e-6 => Ok(number.round() as u32),
        _ => {
            let most = f64::from(most) / 100.0;
            refuse(field, text, format!("0 to {most}, in hundredths"))
        }
    }
}

/// A run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Case {
    /// The service.
    pub system: System,
    /// The load.
    pub load: Load,
    /// Exclusive requests of 100.
    pub writes_percent: u8,
    /// The number of locks, for loads whose number can be chosen.
    pub locks: u32,
    /// The form of Zipf's distribution and of TATP's work; other loads have [`Form::Code`].
    pub form: Form,
    /// The exponent in hundredths, in place of the form's.
    pub theta_percent: Option<u32>,
    /// Machines share locks by number, in place of ranges.
    pub by_id: bool,
    /// The number of locks that the switch decides, in place of the number that fits the switch.
    pub on_switch: Option<u32>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.system.name(), self.load.name())?;
        if matches!(self.load, Load::Uniform | Load::Zipf | Load::Granules) {
            write!(f, " {} % writes, {} locks", self.writes_percent, self.locks)?;
        }
        match (self.load, self.theta_percent) {
            (_, Some(percent)) => write!(f, ", theta {}", f64::from(percent) / 100.0)?,
            (Load::Zipf | Load::Tatp, None) => {
                write!(f, ", {}", format!("{:?}", self.form).to_lowercase())?;
            }
            _ => {}
        }
        if let Some(locks) = self.on_switch {
            write!(f, ", {locks} on the switch")?;
        }
        if self.by_id { write!(f, ", shared by number") } else { Ok(()) }
    }
}

/// The result of a run.
pub type Ran = Measured;

impl Case {
    /// Reads the text at the top of this file.
    ///
    /// # Errors
    /// A word that is none, or that does not belong to the load.
    pub fn read(text: &str, form: Form) -> Result<Case, UsageError> {
        let (name, load) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
        let Some(system) = System::by_name(name) else {
            return refuse("service", name, System::ALL.map(System::name).join(", "));
        };
        Case::read_load(system, load, (form, Goal::Run))
    }

    /// Reads the text at the top of this file without its first word, the service.
    ///
    /// # Errors
    /// A word that is none, or that does not belong to the load.
    pub(super) fn read_load(
        system: System,
        text: &str,
        (form, goal): (Form, Goal),
    ) -> Result<Case, UsageError> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or("");
        let Some((_, load)) = LOADS.iter().find(|(known, _)| *known == name) else {
            return refuse("load", name, Load::names().join(", "));
        };
        let load = *load;
        let is_micro = matches!(load, Load::Uniform | Load::Zipf | Load::Granules);
        let locks_min = if load == Load::Hotspot { Hotspot::HOT + 1 } else { 1 };
        let mut case = Case {
            system,
            load,
            writes_percent: Mix::READ_MOSTLY.writes_percent,
            locks: LOCKS,
            form: if matches!(load, Load::Zipf | Load::Tatp) { form } else { Form::Code },
            theta_percent: None,
            by_id: false,
            on_switch: None,
        };
        let mut kinds = Vec::new();
        for word in words {
            let mix = MIXES.iter().find(|(name, _)| is_micro && *name == word);
            let kind = mix.map_or(word.split('=').next().unwrap_or(word), |_| "uh, rm or ro");
            if kinds.contains(&kind) {
                let allowed = format!("{kind} once in {text}");
                return refuse(&format!("setting of {name}"), word, allowed);
            }
            kinds.push(kind);
            if let Some((_, mix)) = mix {
                case.writes_percent = mix.writes_percent;
                continue;
            }
            match word.split_once('=') {
                Some(("locks", value)) if load == Load::Granules => {
                    case.locks = granules(value)?;
                }
                Some(("locks", value)) if is_micro || load == Load::Hotspot => {
                    case.locks = whole("locks of the load", value, (locks_min, LOCKS_MAX))?;
                }
                Some(("on-switch", value)) if goal == Goal::Run => {
                    let locks = whole("on-switch of the load", value, (1, LOCKS_MAX))?;
                    case.on_switch = Some(locks);
                }
                Some(("theta", value)) if is_micro => {
                    // A given exponent is no form's.
                    let percent = hundredths("theta of the load", value, THETA_PERCENT_MAX)?;
                    case.theta_percent = Some(percent);
                    case.form = Form::Code;
                }
                None if word == "by-id" && goal == Goal::Run => case.by_id = true,
                _ => {
                    let settings = [
                        (is_micro, "uh, rm, ro, theta=NUMBER"),
                        (is_micro || load == Load::Hotspot, "locks=NUMBER"),
                        (goal == Goal::Run, "by-id, on-switch=NUMBER"),
                    ];
                    let those = settings.into_iter().filter(|(has, _)| *has);
                    let allowed: Vec<&str> = those.map(|(_, words)| words).collect();
                    let allowed = match allowed.is_empty() {
                        true => "no setting in a trace".to_owned(),
                        false => allowed.join(", "),
                    };
                    return refuse(&format!("setting of {name}"), word, allowed);
                }
            }
        }
        Ok(case)
    }

    fn skew(&self) -> Skew {
        match (self.load, self.theta_percent, self.form) {
            (_, Some(percent), _) => {
                Skew::Zipf { theta: f64::from(percent) / 100.0, scattered: false }
            }
            (Load::Zipf, None, Form::Code) => Skew::CODE,
            (Load::Zipf, None, Form::Text) => Skew::TEXT,
            (Load::Zipf, None, Form::Shares) => Skew::SHARES,
            _ => Skew::Uniform,
        }
    }

    fn workload(&self, seed: u64, hotspot_moves_after: u64) -> Workload {
        let mut rng = seeded(seed, POPULATION_STREAM);
        let micro = |objects: u32, granule: u32| {
            let mix = Mix { writes_percent: self.writes_percent };
            Workload::Micro(Micro { mix, picker: Picker::new(objects, self.skew()), granule })
        };
        match self.load {
            Load::Uniform | Load::Zipf => micro(self.locks, 1),
            Load::Granules => micro(OBJECTS, OBJECTS / self.locks),
            Load::Hotspot => {
                Workload::Hotspot(Hotspot::new(self.locks, Hotspot::HOT, hotspot_moves_after))
            }
            Load::Tatp => {
                let words: &mut dyn FnMut() -> u64 = &mut || rand::RngExt::random(&mut rng);
                Workload::Tatp(Box::new(Tatp::new(Tatp::SUBSCRIBERS, words)))
            }
            Load::Tpcc => Workload::Tpcc(Tpcc::new(HOSTS, WAREHOUSES)),
        }
    }

    /// Draws the trace of the load.
    pub(super) fn trace(&self, order: &LockOrder, stream: u64) -> Trace {
        let lengths = order.lengths();
        self.drawn(order.seed, stream, (lengths.transactions, lengths.hotspot_moves_after))
    }

    /// Draws a trace with a number of transactions. A hotspot moves after a number of requests.
    pub(super) fn drawn(
        &self,
        seed: u64,
        stream: u64,
        (transactions, hotspot_moves_after): (usize, u64),
    ) -> Trace {
        let mut rng = seeded(seed, stream);
        let words: &mut dyn FnMut() -> u64 = &mut || rand::RngExt::random(&mut rng);
        let mut workload = self.workload(seed, hotspot_moves_after);
        Trace::drawn(&mut workload, (transactions, HOSTS), words)
    }

    fn pace(&self, order: &LockOrder) -> Pace {
        let lengths = order.lengths();
        let is_patient = self.load == Load::Tpcc;
        let (warm_up_ms, virtual_ms) = match is_patient {
            true => (lengths.patient_warm_up_ms, lengths.patient_virtual_ms),
            false => (lengths.warm_up_ms, lengths.virtual_ms),
        };
        let ns = |ms: f64| (ms * 1e6) as u64;
        let mut pace = Pace::new(ns(warm_up_ms), ns(virtual_ms));
        match self.load {
            Load::Tatp if self.form == Form::Text => pace.work_ns = TATP_TEXT_WORK_NS,
            Load::Tatp => pace.work_ns = TATP_WORK_NS,
            Load::Tpcc => (pace.work_ns, pace.clients) = (TPCC_WORK_NS, TPCC_CLIENTS),
            Load::Hotspot => pace.bucket_ns = ns(virtual_ms / BUCKETS),
            Load::Uniform | Load::Zipf | Load::Granules => {}
        }
        pace
    }

    /// The hot locks that NetLock's operator finds in a run before: the same load, drawn anew.
    pub(super) fn hot(&self, order: &LockOrder) -> Vec<LockId> {
        let trace = &self.trace(order, BEFORE_STREAM);
        let of = |millionths: u64| (u64::from(trace.locks()) * millionths / 1_000_000) as usize;
        match self.load {
            Load::Tatp => hottest(trace, trace.len(), of(HOT_TATP)),
            Load::Tpcc => hottest(trace, trace.len(), of(HOT_TPCC)),
            // The operator profiles the time before the hotspot moves.
            Load::Hotspot => {
                let before = order.lengths().hotspot_moves_after as usize;
                hottest(trace, before, Hotspot::HOT as usize)
            }
            Load::Uniform | Load::Zipf | Load::Granules => hottest(trace, trace.len(), HOT),
        }
    }

    /// Runs the case.
    ///
    /// # Errors
    /// The cluster cannot be made.
    pub fn run(&self, order: &LockOrder) -> Result<Ran, String> {
        let trace = Rc::new(self.trace(order, TRACE_STREAM));
        let mut setup = Setup::new(self.system, trace.locks(), order.profile.clone());
        setup.seed = order.seed;
        let fit = self.on_switch.map_or(switch_locks(), u64::from);
        setup.on_switch = fit.min(u64::from(trace.locks())) as u32;
        if self.system.name() == "netlock" {
            setup.hot = self.hot(order);
        }
        setup.shares = match self.load {
            Load::Tpcc => Shares::ByWarehouse(Tpcc::new(HOSTS, WAREHOUSES)),
            _ if self.by_id => Shares::ById,
            _ => setup.shares,
        };
        run(&setup, &trace, self.pace(order)).map_err(|error| error.to_string())
    }
}

/// Names of the streams of random numbers.
const POPULATION_STREAM: u64 = 0x706f_7075;
pub(super) const TRACE_STREAM: u64 = 0x7472_6163;
pub(super) const BEFORE_STREAM: u64 = 0x6265_666f;

/// Returns the locks that fit the published switch as published.
pub fn switch_locks() -> u64 {
    SwitchBudget::published(CONTROL_UNITS).locks_alone(&LockLayout::PUBLISHED)
}

/// Says how long a request takes a core.
pub fn request_cost() -> String {
    format!(
        "{REQUEST_NS} ns of a core for each request, at its sender and at the core that serves it"
    )
}
