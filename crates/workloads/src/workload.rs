//! The interface of a benchmark.
//!
//! Invariant: `draw` decides everything about a transaction before the transaction runs. So a retry
//! runs the same transaction again. `run` may keep only the effects of the committed try.

use crate::untold::Untold;
use tarn_engine::admin::load::Loader;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::site::Context;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::Rng;
use tarn_store::ids::{Failure, Mode, UsageError};
use tarn_store::placement::catalog::Options;
use tarn_store::schema::procedure::{Access, Procedure};
use tarn_store::schema::{Cells, TableId, TableSchema};

/// A named way to run a benchmark: the benchmark's own definition, or a paper's variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The profile's name on the command line.
    pub name: &'static str,
    /// The profile's source, and every deviation from the benchmark's own definition.
    pub note: &'static str,
}

/// The user's choices for a benchmark.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// The name of a profile. `None` means the first profile.
    pub profile: Option<String>,
    /// The number of records (accounts, subscribers …); `None` means the number of the profile.
    pub records: Option<u64>,
    /// The Zipf exponent. The value 0 means uniform, and `None` means the exponent of the profile.
    pub zipf: Option<f64>,
}

/// The verdict on one invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invariant {
    /// The condition that must hold.
    pub name: &'static str,
    /// Whether the condition holds.
    pub ok: bool,
    /// The numbers on which the verdict is based, as text.
    pub detail: String,
    /// Whether the condition must also hold if the tallies of some coordinators are lost because
    /// their node died. This is so if the verdict depends only on memory, or if a missing tally
    /// cannot cause a violation.
    pub of_memory: bool,
}

/// A benchmark.
#[expect(async_fn_in_trait, reason = "used by generic code of this workspace only")]
pub trait Workload: Sized {
    /// The benchmark's name on the command line.
    const NAME: &'static str;
    /// The benchmark's profiles. The first profile is the default.
    const PROFILES: &'static [Profile];
    /// The names of the benchmark's transactions, in the order of [`Workload::kind`].
    const TRANSACTIONS: &'static [&'static str];
    /// The reason why the benchmark's transactions abort by their own decision, as text for reports.
    /// The text is empty if they never do so.
    const GIVES_UP: &'static str = "";

    /// The input of a transaction.
    type Input;
    /// The sums over the committed transactions of one coordinator (money paid in, versions written
    /// …).
    type Tally: Default + Clone;

    /// Creates the benchmark with the user's choices.
    ///
    /// # Errors
    /// A choice is not allowed. The error names the field, its value, and the allowed values.
    fn new(settings: &Settings) -> Result<Self, UsageError>;

    /// Returns the chosen profile.
    fn profile(&self) -> Profile;

    /// Returns the chosen number of records and the chosen skew, for reports.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// Returns the schemas of the benchmark's tables. The position of a schema is the id of its
    /// table.
    fn schemas(&self) -> Vec<TableSchema>;

    /// Returns the procedures that a database registers for the benchmark's transactions. The names
    /// and the order are those of [`Workload::TRANSACTIONS`]. Routing uses the table of a procedure's
    /// first access.
    fn procedures(&self) -> Vec<Procedure>;

    /// Returns the approximate number of cachelines that one transaction touches. This number decides
    /// how many coroutines a thread should run.
    fn lines_per_transaction(&self) -> usize;

    /// Returns the size, in bytes, of a log area that can hold the undo images of the benchmark's
    /// longest transaction.
    fn log_bytes(&self) -> u64 {
        Options::default().log_bytes
    }

    /// Returns `options` with log areas that are long enough for the benchmark's transactions. Use
    /// these options to plan a database for the benchmark.
    fn sized(&self, options: &Options) -> Options {
        Options { log_bytes: options.log_bytes.max(self.log_bytes()), ..options.clone() }
    }

    /// Passes every record to the loader. The loader inserts only the records of its part.
    ///
    /// # Errors
    /// The errors of the loader.
    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure>;

    /// Returns the number of records that `load` passes to the loader.
    fn records(&self) -> u64;

    /// Draws the input of a transaction.
    fn draw(&self, rng: &mut Rng) -> Self::Input;

    /// Returns the transaction's position in [`Workload::TRANSACTIONS`].
    fn kind(input: &Self::Input) -> usize;

    /// Returns a key in the shard of the transaction's first record. This record is in the table of
    /// the procedure's first access. The returned key is the record's own key, unless only an index
    /// can find the record. Routing uses the returned key.
    fn first_key(input: &Self::Input) -> Option<u64>;

    /// Reports the keys of the records that the input names after the first record. The caller
    /// remembers the locations of these records.
    #[inline]
    fn further_keys(_: &Self::Input, _: &mut dyn FnMut(TableId, u64)) {}

    /// Returns the length of the user's pause for keying and thinking before this transaction. The
    /// pause is 0 unless the profile has pauses.
    #[inline]
    fn pause(&self, _: &Self::Input, _: &mut Rng) -> Option<Nanos> {
        None
    }

    /// Runs the transaction to its end. The result is also `Ok` if the benchmark itself rolls the
    /// transaction back (an unknown number, too low a balance).
    ///
    /// # Errors
    /// A failure that `transact` could not resolve by retries.
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Self::Input,
        tally: &mut Self::Tally,
    ) -> Result<(), Failure>;

    /// Records a transaction that was in doubt and that [`Workload::run`] did not count.
    /// [`Workload::check`] compares memory with the tally. Only recorded uncounted transactions may
    /// cause differences.
    fn untold(&self, input: &Self::Input, ended: Untold, tally: &mut Self::Tally);

    /// Adds another coordinator's tally to `into`.
    fn merge(into: &mut Self::Tally, other: Self::Tally);

    /// Returns further facts of the tally, for example success rates or the number of refused
    /// payments.
    fn outcomes(&self, _: &Self::Tally) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Checks the contents of memory after the run, when no transaction runs.
    ///
    /// # Errors
    /// The errors of the fabric.
    async fn check(&self, cx: &Context, tally: &Self::Tally) -> Result<Vec<Invariant>, Failure>;
}

/// Creates a procedure with these accesses. The procedure is read-only if all its accesses only read.
pub(crate) fn procedure(name: &'static str, accesses: &[(TableId, Mode, Cells)]) -> Procedure {
    let read_only = accesses.iter().all(|&(_, mode, _)| mode == Mode::Read);
    let accesses =
        accesses.iter().map(|&(table, mode, cells)| Access { table, mode, cells }).collect();
    Procedure { name, read_only, accesses }
}

/// Creates a constant slice with the profiles of a constant slice of variants.
macro_rules! profiles_of {
    ($variants:expr) => {
        &{
            let mut profiles = [$variants[0].profile; $variants.len()];
            let mut index = 0;
            while index < profiles.len() {
                profiles[index] = $variants[index].profile;
                index += 1;
            }
            profiles
        }
    };
}
pub(crate) use profiles_of;

/// Returns the variant that the settings name, or the first variant if the settings name no profile.
///
/// # Errors
/// The profile is unknown. The error names the unknown profile and the known profiles.
pub(crate) fn choose<V>(
    variants: &'static [V],
    name_of: impl Fn(&V) -> &'static str,
    settings: &Settings,
) -> Result<&'static V, UsageError> {
    let Some(name) = &settings.profile else { return Ok(&variants[0]) };
    variants.iter().find(|variant| name_of(variant) == name).ok_or_else(|| UsageError {
        field: "mix-profile".into(),
        value: name.clone(),
        allowed: variants.iter().map(&name_of).collect::<Vec<_>>().join(", "),
    })
}
