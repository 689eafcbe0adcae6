//! A part of a page: what to run, and how it becomes rows and drawings.
//!
//! Invariant: a section fills each of its published figures once, whether or not anything could be run for
//! it; it computes ratios of what ran and no constant of its own.

use super::Paper;
use super::adjusting::Adjusting;
use super::case::Case;
use super::occasion::{Crash, Heating};
use super::runs::Runs;
use super::sheet::Sheet;
use super::target::Target;
use tarn_sim::profile::Profile;

/// What a section runs.
#[derive(Default)]
pub struct Jobs {
    /// Curves.
    pub cases: Vec<Case>,
    /// Crashes.
    pub crashes: Vec<Crash>,
    /// Hotspots.
    pub hotspots: Vec<Heating>,
    /// Leases that are adjusted.
    pub adjustments: Vec<Adjusting>,
}

/// What a section looks at when all has run.
pub struct Done<'a, P: Paper> {
    /// How much was run.
    pub extent: &'a P::Extent,
    /// On what.
    pub profile: &'a Profile,
    /// What came of it.
    pub runs: &'a Runs,
}

/// See the module's text.
pub struct Section<P: Paper> {
    /// Its name on the command line.
    pub name: &'static str,
    /// Above it.
    pub title: &'static str,
    /// Its published figures.
    pub targets: &'static [Target],
    /// What it runs.
    pub jobs: fn(&P::Extent) -> Jobs,
    /// Fills its rows.
    pub fill: fn(&Done<'_, P>, &mut Sheet<P::Form>),
}
