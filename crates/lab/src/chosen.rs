//! A workload that the caller names, and functions that start each kind of run of the laboratory with this workload.
//!
//! Invariant: a crate that depends on this one names no workload's type and calls no function that is generic over
//! workloads. So only this crate contains generated code of the runs, once for each workload and protocol.

use crate::harness::error::RunError;
use crate::harness::watch::Watch;
use crate::simulate::hotspot::report::HotspotReport;
use crate::simulate::hotspot::run::HotspotPlan;
use crate::simulate::report::SimReport;
use crate::sweep::estimate;
use crate::trace::{Trace, Wanted};
use crate::{bench, outage, simulate, trace};
use tarn_store::ids::UsageError;
use tarn_workloads::{Settings, Workload as _, with_workload};

/// A workload's name with settings that the workload has accepted.
#[derive(Clone, Debug)]
pub struct Chosen {
    name: String,
    settings: Settings,
    lines_per_transaction: usize,
}

impl Chosen {
    /// Makes the workload once, so that the workload can refuse its settings.
    ///
    /// # Errors
    /// Fails if no workload has this name, or if the workload refuses its settings.
    pub fn new(name: &str, settings: Settings) -> Result<Chosen, UsageError> {
        let lines_per_transaction =
            with_workload!(name, W => W::new(&settings)?.lines_per_transaction())?;
        Ok(Chosen { name: name.to_owned(), settings, lines_per_transaction })
    }

    /// The average number of cachelines that one transaction uses: see [`bench::coroutines_for`].
    pub fn lines_per_transaction(&self) -> usize {
        self.lines_per_transaction
    }

    /// Runs the workload on an embedded cluster.
    ///
    /// # Errors
    /// Returns the same errors as [`bench::run::run`].
    pub fn bench(
        &self,
        plan: &bench::run::Plan,
        watch: &dyn Watch,
    ) -> Result<bench::report::Report, RunError> {
        with_workload!(&self.name, W => bench::run::run(W::new(&self.settings)?, plan, watch))?
    }

    /// Runs the workload on a simulated cluster.
    ///
    /// # Errors
    /// Returns the same errors as [`simulate::run::run`].
    pub fn simulate(
        &self,
        plan: &simulate::run::Plan,
        watch: &dyn Watch,
    ) -> Result<SimReport, RunError> {
        with_workload!(&self.name, W => simulate::run::run(W::new(&self.settings)?, plan, watch))?
    }

    /// The number of bytes of this machine's memory that a simulated run will take.
    ///
    /// # Errors
    /// Returns the same errors as [`estimate::memory_bytes`].
    pub fn simulated_bytes(&self, plan: &simulate::run::Plan) -> Result<u64, UsageError> {
        with_workload!(&self.name, W => estimate::memory_bytes(&W::new(&self.settings)?, plan))?
    }

    /// Runs the workload on a simulated cluster with hot shards, three times.
    ///
    /// # Errors
    /// Returns the same errors as [`simulate::hotspot::run::run`].
    pub fn hotspot(&self, plan: &HotspotPlan) -> Result<HotspotReport, RunError> {
        with_workload!(&self.name, W => {
            let make = || Ok(W::new(&self.settings)?);
            simulate::hotspot::run::run(make, plan, &|_| {})
        })?
    }

    /// Runs the workload on a simulated cluster in which nodes crash.
    ///
    /// # Errors
    /// Returns the same errors as [`outage::run::run`].
    pub fn outage(&self, plan: &outage::Plan) -> Result<outage::report::Outage, RunError> {
        with_workload!(&self.name, W => outage::run::run(W::new(&self.settings)?, plan, &|_| {}))?
    }

    /// Runs the workload on a simulated cluster and keeps records of some of its transactions.
    ///
    /// # Errors
    /// Returns the same errors as [`trace::run::run`].
    pub fn trace(
        &self,
        plan: &simulate::run::Plan,
        wanted: &Wanted,
        watch: &dyn Watch,
    ) -> Result<Trace, RunError> {
        with_workload!(&self.name, W => {
            trace::run::run(W::new(&self.settings)?, plan, wanted, watch)
        })?
    }
}
