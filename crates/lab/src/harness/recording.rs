//! Handles the history of the verification phase: writes the history's file with its header, and returns the
//! checker's verdict.
//!
//! Invariant: a path that cannot be written is refused before the run starts. The file appears
//! under its name only when it is whole.

use super::checks::HistoryReport;
use super::error::RunError;
use super::history::{create, history_of, write_all};
use super::phase::Phase;
use std::collections::BTreeMap;
use std::path::Path;
use tarn::cluster::ClusterConfig;
use tarn_check::{HistoryWriter, Isolation};
use tarn_store::ids::UsageError;
use tarn_store::schema::TableSchema;
use tarn_workloads::Workload;

/// The recording of one history: the header, and the file if the caller named one.
pub(crate) struct Recording {
    meta: BTreeMap<String, String>,
    schemas: Vec<TableSchema>,
    writer: Option<HistoryWriter>,
    /// The name of the file in reports.
    file: Option<String>,
}

/// Returns the header of a run's history; `own` has the header's entries that only this fabric needs.
fn meta<W: Workload>(
    workload: &W,
    cluster: &ClusterConfig,
    own: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let described = workload.describe().into_iter();
    let described = described.map(|(name, value)| (format!("workload.{name}"), value));
    let common = [
        ("workload", W::NAME.to_owned()),
        ("mix_profile", workload.profile().name.to_owned()),
        ("protocol", cluster.protocol.clone()),
        ("variant", cluster.variant.clone()),
        ("seed", cluster.seed.to_string()),
        ("memory_nodes", cluster.memory_nodes.to_string()),
        ("replicas", cluster.replicas.to_string()),
    ];
    let common = common.map(|(name, value)| (name.to_owned(), value));
    described.chain(common).chain(own).collect()
}

impl Recording {
    /// Opens the history file, if the caller gave a path; `is_recorded` says whether the run has a
    /// phase to record.
    ///
    /// # Errors
    /// Fails if the path cannot be written, or if the run has no phase to record.
    pub(crate) fn open<W: Workload>(
        workload: &W,
        cluster: &ClusterConfig,
        own: impl IntoIterator<Item = (String, String)>,
        (path, is_recorded): (Option<&Path>, bool),
    ) -> Result<Recording, UsageError> {
        let (meta, schemas) = (meta(workload, cluster, own), workload.schemas());
        let writer = path.map(|path| create(path, is_recorded, &meta, &schemas)).transpose()?;
        let file = path.map(|path| path.display().to_string());
        Ok(Recording { meta, schemas, writer, file })
    }

    /// Writes the transactions that the phase recorded, if the caller gave a path, and lets the
    /// checker judge them.
    ///
    /// # Errors
    /// Returns the operating system's error if the file cannot be written.
    pub(crate) fn judge(
        self,
        phase: &Phase,
        isolation: Isolation,
    ) -> Result<HistoryReport, RunError> {
        if let Some(writer) = self.writer {
            write_all(writer, &phase.history)
                .map_err(|error| RunError::Failed(error.to_string()))?;
        }
        let history = history_of(self.meta, &self.schemas, &phase.history);
        Ok(HistoryReport::judge((&history, isolation), phase.seconds, self.file))
    }
}
