//! Compares the simulated requester (its doorbells, work queues and processor) with a published microbenchmark, row by
//! row.
//!
//! Invariant: the published rows are the files in the folder `smart`, unchanged. Each row that the model can express is
//! run, and no row is left out of the table. The constants of the profile `cx6-200g` that `smart/README.md` lists were
//! fitted to the rows `per-qp` and `per-doorbell`; all other rows are only shown.
//!
//! Source: Ren et al., "Scaling up memory disaggregated applications with SMART", ASPLOS 2024, raw data of the artifact
//! (MIT licence).

use super::{Loop, Verbs, verbs};
use serde::Serialize;
use std::sync::LazyLock;
use tarn_fabric::round::VerbKind;
use tarn_sim::config::ConfigError;
use tarn_sim::profile::Profile;

/// The profile of the machines on which the rows were measured.
pub const PROFILE: &str = "cx6-200g";

const FILES: [(&str, &str); 6] = [
    ("fig3a", include_str!("smart/fig3a.csv")),
    ("fig3b", include_str!("smart/fig3b.csv")),
    ("fig4a", include_str!("smart/fig4a.csv")),
    ("fig4b", include_str!("smart/fig4b.csv")),
    ("fig13a", include_str!("smart/fig13a.csv")),
    ("fig13b", include_str!("smart/fig13b.csv")),
];

/// The way in which the threads of a row use queue pairs and doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// One queue pair for each thread, and the doorbell registers of the stock driver.
    PerQp,
    /// One doorbell register for each thread.
    PerDoorbell,
    /// As `PerDoorbell`, and the number of outstanding work requests is limited.
    WorkReqThrot,
    /// All threads share one queue pair.
    SharedQp,
    /// Two threads share a queue pair.
    #[serde(rename = "mul-2")]
    Mul2,
    /// Four threads share a queue pair.
    #[serde(rename = "mul-4")]
    Mul4,
}

impl Way {
    const ALL: [(&'static str, Way); 6] = [
        ("per-qp", Way::PerQp),
        ("per-doorbell", Way::PerDoorbell),
        ("work-req-throt", Way::WorkReqThrot),
        ("shared-qp", Way::SharedQp),
        ("mul-2", Way::Mul2),
        ("mul-4", Way::Mul4),
    ];

    /// Returns the way's name in the published files.
    pub fn name(self) -> &'static str {
        Way::ALL.iter().find(|(_, way)| *way == self).map_or("", |(name, _)| name)
    }

    /// Returns whether constants of the profile were fitted to the rows of this way.
    pub fn is_fitted(self) -> bool {
        matches!(self, Way::PerQp | Way::PerDoorbell)
    }
}

/// A published row: 8-byte verbs of one machine at one memory node, one doorbell for each verb.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The name of the figure.
    pub figure: &'static str,
    /// The verb.
    #[serde(serialize_with = "super::verb_name")]
    pub verb: VerbKind,
    /// The way in which the threads use queue pairs and doorbells.
    pub way: Way,
    /// The number of threads.
    pub threads: u16,
    /// The number of outstanding work requests of a thread.
    pub depth: u16,
    /// The published rate, in millions of verbs per second.
    pub published_mops: f64,
}

/// A published row beside the model.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// The published row.
    pub row: Row,
    /// The model's rate, in millions of verbs per second. The model has no queue pairs that threads share.
    pub model_mops: Option<f64>,
}

impl Compared {
    /// Returns the model's rate divided by the published rate.
    pub fn ratio(&self) -> Option<f64> {
        self.model_mops.map(|model| model / self.row.published_mops)
    }
}

/// All published rows, in the order of the figures.
pub static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let all = FILES.iter().flat_map(|(figure, text)| {
        text.lines()
            .map(move |line| row(figure, line).unwrap_or_else(|| panic!("{figure}: {line}")))
    });
    all.collect()
});

/// Reads one line: the name, threads, outstanding work requests, bytes, MB/s, millions of operations per second, and a
/// counter that is not used.
fn row(figure: &'static str, line: &str) -> Option<Row> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [name, threads, depth, _, _, rate, _] = fields[..] else { return None };
    let (verb, way) = name.strip_prefix("rdma-")?.split_once('-')?;
    let verb = match verb {
        "read" => VerbKind::Read,
        "write" => VerbKind::Write,
        _ => return None,
    };
    let &(_, way) = Way::ALL.iter().find(|(known, _)| *known == way)?;
    let (threads, depth) = (threads.parse().ok()?, depth.parse().ok()?);
    Some(Row { figure, verb, way, threads, depth, published_mops: rate.parse().ok()? })
}

/// Runs a row on this hardware, if the model can express it.
///
/// # Errors
/// Fails if this configuration of the hardware is not possible.
pub fn compare(profile: &Profile, row: Row) -> Result<Compared, ConfigError> {
    let posting = match row.way {
        Way::PerQp => Some(Loop::RingEach),
        Way::PerDoorbell => Some(Loop::RingEachAlone),
        Way::WorkReqThrot | Way::SharedQp | Way::Mul2 | Way::Mul4 => None,
    };
    let Row { verb, threads, depth, .. } = row;
    let found = posting.map(|posting| {
        verbs::run(profile, Verbs { verb, clients: 1, threads, depth, payload_bytes: 8, posting })
    });
    Ok(Compared { row, model_mops: found.transpose()?.map(|found| found.rate_mops) })
}
