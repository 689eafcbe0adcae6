//! The interface of a benchmark.
//!
//! Invariant: `draw` decides everything about a transaction before it runs, so that a retry runs
//! the same transaction again; `run` may keep only the effects of the committed try.

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
    /// Its name on the command line.
    pub name: &'static str,
    /// Its source, and every deviation from the benchmark's own definition.
    pub note: &'static str,
}

/// The user's choices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// A profile's name; `None` is the first profile.
    pub profile: Option<String>,
    /// The number of records (accounts, subscribers …); `None` is the profile's number.
    pub records: Option<u64>,
    /// Zipf exponent, 0 for uniform; `None` is the profile's.
    pub zipf: Option<f64>,
}

/// One invariant's verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invariant {
    /// The condition that must hold.
    pub name: &'static str,
    /// Whether it holds.
    pub ok: bool,
    /// The numbers.
    pub detail: String,
    /// Whether it must hold also if the tallies of some coordinators are lost, with the node that
    /// they died with. That is so if memory decides it, or if a tally can only add violations.
    pub of_memory: bool,
}

/// A benchmark.
#[expect(async_fn_in_trait, reason = "used by generic code of this workspace only")]
pub trait Workload: Sized {
    /// Its name on the command line.
    const NAME: &'static str;
    /// Its profiles; the first is the default.
    const PROFILES: &'static [Profile];
    /// Its transactions' names, in the order of [`Workload::kind`].
    const TRANSACTIONS: &'static [&'static str];
    /// The reason why its transactions give up by their own decision, in words for reports; empty
    /// if they never do.
    const GIVES_UP: &'static str = "";

    /// A transaction's inputs.
    type Input;
    /// The sum of committed transactions (money paid in, versions written …), per coordinator.
    type Tally: Default + Clone;

    /// Makes the benchmark with the user's choices.
    ///
    /// # Errors
    /// Names the field, the value, and the allowed values.
    fn new(settings: &Settings) -> Result<Self, UsageError>;

    /// The chosen profile.
    fn profile(&self) -> Profile;

    /// Returns the number of records, and the skew, as chosen: for reports.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// Returns its tables; their ids are their positions.
    fn schemas(&self) -> Vec<TableSchema>;

    /// Returns its transactions as a database registers them: named and ordered as
    /// [`Workload::TRANSACTIONS`]. Routing uses the key of the first access.
    fn procedures(&self) -> Vec<Procedure>;

    /// Returns about how many cachelines one transaction touches, which decides how many coroutines
    /// are worth while.
    fn lines_per_transaction(&self) -> usize;

    /// Returns the size of a log area, in bytes, that the undo images of its longest transaction
    /// fit into.
    fn log_bytes(&self) -> u64 {
        Options::default().log_bytes
    }

    /// Returns `options` with log areas that are no shorter than its transactions need. A database
    /// that is to run them is planned with these options.
    fn sized(&self, options: &Options) -> Options {
        Options { log_bytes: options.log_bytes.max(self.log_bytes()), ..options.clone() }
    }

    /// Gives every record to the loader, which takes those of its part.
    ///
    /// # Errors
    /// The loader's.
    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure>;

    /// Returns the number of records that `load` gives.
    fn records(&self) -> u64;

    /// Draws a transaction.
    fn draw(&self, rng: &mut Rng) -> Self::Input;

    /// Returns the transaction's position in [`Workload::TRANSACTIONS`].
    fn kind(input: &Self::Input) -> usize;

    /// Returns a key in the shard of its first record, which is in the table of its procedure's
    /// first access. It is that record's own key, unless only an index knows it. Routing uses this
    /// key.
    fn first_key(input: &Self::Input) -> Option<u64>;

    /// Reports the keys of further records that its input contains, beyond the first. The caller
    /// remembers where the records lie.
    #[inline]
    fn further_keys(_: &Self::Input, _: &mut dyn FnMut(TableId, u64)) {}

    /// Returns the user's pause before this transaction: keying, thinking. There is none, unless a
    /// profile has pauses.
    #[inline]
    fn pause(&self, _: &Self::Input, _: &mut Rng) -> Option<Nanos> {
        None
    }

    /// Runs the transaction to its end. A transaction that the benchmark rolls back (an unknown
    /// number, too low a balance) has ended normally: `Ok`.
    ///
    /// # Errors
    /// A failure that `transact` could not overcome.
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Self::Input,
        tally: &mut Self::Tally,
    ) -> Result<(), Failure>;

    /// Notes a transaction that was in doubt and that [`Workload::run`] did not count.
    /// [`Workload::check`] compares memory with the tally, and allows for these transactions and
    /// for nothing else.
    fn untold(&self, input: &Self::Input, ended: Untold, tally: &mut Self::Tally);

    /// Adds another coordinator's tally.
    fn merge(into: &mut Self::Tally, other: Self::Tally);

    /// Returns facts of the tally beyond counts of transactions: success rates, refused payments.
    fn outcomes(&self, _: &Self::Tally) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Judges the memory that is left when no transaction runs.
    ///
    /// # Errors
    /// The fabric's.
    async fn check(&self, cx: &Context, tally: &Self::Tally) -> Result<Vec<Invariant>, Failure>;
}

/// Makes a procedure that uses these records; it is read-only if it only reads.
pub(crate) fn procedure(name: &'static str, accesses: &[(TableId, Mode, Cells)]) -> Procedure {
    let read_only = accesses.iter().all(|&(_, mode, _)| mode == Mode::Read);
    let accesses =
        accesses.iter().map(|&(table, mode, cells)| Access { table, mode, cells }).collect();
    Procedure { name, read_only, accesses }
}

/// Makes a constant slice of the profiles of a constant slice of variants.
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

/// Returns the variant that the settings name; the first if they name none.
///
/// # Errors
/// Names the unknown profile and the known ones.
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
