//! Papers by their names, for callers that know no paper's type.
//!
//! Invariant: a crate above this one calls nothing generic over a paper, so that every evaluation is compiled in
//! this crate.

use super::report::Evaluation;
use super::{Order, Paper, Portion as _, Suppose as _, check, evaluate, page};
use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use crate::reproduce::lotus::Lotus;
use crate::reproduce::oocc::Oocc;
use std::fmt::Display;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;

/// A paper's evaluation as it is asked for on a command line.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whether a smoke run is enough.
    pub quick: bool,
    /// Of every generator.
    pub seed: u64,
    /// The hardware: that of the testbed, or a counterfactual one.
    pub profile: Profile,
    /// Sections by name; none: all.
    pub only: Vec<String>,
    /// Suppositions as `KEY=VALUE`.
    pub suppositions: Vec<String>,
}

/// An evaluation that nothing refuses any more, not yet run.
pub type Prepared = Box<dyn FnOnce(&dyn Watch) -> Result<Box<dyn Evaluated>, RunError>>;

/// A paper whose evaluation can be run.
#[derive(Clone, Copy)]
pub struct Named {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Authors and title of the paper.
    pub source: &'static str,
    /// The testbed's hardware.
    pub profile: &'static str,
    /// Checks that it can be run as it is asked for.
    pub prepare: fn(&Asked) -> Result<Prepared, UsageError>,
}

/// Every paper there is.
pub const ALL: [Named; 2] = [Named::of::<Lotus>(), Named::of::<Oocc>()];

impl Named {
    const fn of<P: Paper>() -> Named {
        let (name, title, source) = (P::NAME, P::TITLE, P::SOURCE);
        Named { name, title, source, profile: P::PROFILE, prepare: prepare::<P> }
    }
}

fn prepare<P: Paper>(asked: &Asked) -> Result<Prepared, UsageError> {
    let extent = if asked.quick { P::Extent::quick() } else { P::Extent::full() };
    let suppositions = asked.suppositions.iter().map(|text| P::Supposition::parse(text));
    let suppositions = suppositions.collect::<Result<_, _>>()?;
    let (profile, only) = (asked.profile.clone(), asked.only.clone());
    let order = Order::<P> { extent, seed: asked.seed, profile, only, suppositions };
    check(&order)?;
    Ok(Box::new(move |watch| Ok(Box::new(evaluate(&order, watch)?))))
}

/// An evaluation that has been run. As text it is the table.
pub trait Evaluated: Display {
    /// The page with its drawings.
    fn page(&self) -> String;
    /// The object as JSON.
    ///
    /// # Errors
    /// A value that JSON has no form for.
    fn json(&self) -> serde_json::Result<String>;
    /// What the checks found wrong.
    fn failed(&self) -> Vec<String>;
}

impl<P: Paper> Evaluated for Evaluation<P> {
    fn page(&self) -> String {
        page::page(self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn failed(&self) -> Vec<String> {
        Evaluation::failed(self)
    }
}
