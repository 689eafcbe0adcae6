//! What a benchmark is.
//!
//! Invariant: `draw` decides everything about a transaction before it runs, so that a retry runs
//! the same transaction again; `run` may keep only what committed.

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

/// A named way to run a benchmark: the benchmark's own definition, or what one paper did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// On the command line.
    pub name: &'static str,
    /// Where it is from, and every deviation from the benchmark's own definition.
    pub note: &'static str,
}

/// What the user chose.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// A profile's name; `None` is the first profile.
    pub profile: Option<String>,
    /// How many records (accounts, subscribers …); `None` is the profile's number.
    pub records: Option<u64>,
    /// Zipf exponent, 0 for uniform; `None` is the profile's.
    pub zipf: Option<f64>,
}

/// One invariant's verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invariant {
    /// What must hold.
    pub name: &'static str,
    /// Whether it does.
    pub ok: bool,
    /// The numbers.
    pub detail: String,
    /// Whether it must hold also if the tally of some coordinators is lost, with the node that they died
    /// with: memory decides it, or what a tally may only make worse.
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
    /// Why its transactions give up by their own decision, in words for reports; empty: they never do.
    const GIVES_UP: &'static str = "";

    /// A transaction's inputs.
    type Input;
    /// What committed transactions add up to (money paid in, versions written …), per coordinator.
    type Tally: Default + Clone;

    /// The benchmark as the user chose it.
    ///
    /// # Errors
    /// Names the field, the value, and what is allowed.
    fn new(settings: &Settings) -> Result<Self, UsageError>;

    /// The chosen profile.
    fn profile(&self) -> Profile;

    /// How many records, and the skew, as chosen: for reports.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// Its tables; their ids are their positions.
    fn schemas(&self) -> Vec<TableSchema>;

    /// Its transactions as a database registers them: named and ordered as
    /// [`Workload::TRANSACTIONS`]. The key of the first access is what routing goes by.
    fn procedures(&self) -> Vec<Procedure>;

    /// About how many cachelines one transaction touches: decides how many coroutines are worth
    /// while.
    fn lines_per_transaction(&self) -> usize;

    /// Log area, in bytes, that the undo images of its longest transaction fit into.
    fn log_bytes(&self) -> u64 {
        Options::default().log_bytes
    }

    /// `options` with log areas that are no shorter than its transactions need: what a database is
    /// planned with that is to run them.
    fn sized(&self, options: &Options) -> Options {
        Options { log_bytes: options.log_bytes.max(self.log_bytes()), ..options.clone() }
    }

    /// Gives every record to the loader, which takes those of its part.
    ///
    /// # Errors
    /// The loader's.
    async fn load(&self, loader: &mut Loader<'_>) -> Result<(), Failure>;

    /// How many records `load` gives.
    fn records(&self) -> u64;

    /// Draws a transaction.
    fn draw(&self, rng: &mut Rng) -> Self::Input;

    /// Which of [`Workload::TRANSACTIONS`] it is.
    fn kind(input: &Self::Input) -> usize;

    /// A key in the shard of its first record, which is in the table of its procedure's first access: that
    /// record's own, unless only an index knows it. What routing goes by.
    fn first_key(input: &Self::Input) -> Option<u64>;

    /// Tells further records whose keys its input says, beyond the first. Who ran it remembers where they lie.
    #[inline]
    fn further_keys(_: &Self::Input, _: &mut dyn FnMut(TableId, u64)) {}

    /// How long whoever asks for this transaction waits before: keying, thinking. Nobody does, unless a
    /// profile says so.
    #[inline]
    fn pause(&self, _: &Self::Input, _: &mut Rng) -> Option<Nanos> {
        None
    }

    /// Runs it to its end. A transaction that the benchmark rolls back (an unknown number, too low
    /// a balance) has ended normally: `Ok`.
    ///
    /// # Errors
    /// What `transact` could not overcome.
    async fn run(
        &self,
        coordinator: &mut Coordinator,
        input: &Self::Input,
        tally: &mut Self::Tally,
    ) -> Result<(), Failure>;

    /// Notes a transaction that was in doubt and that [`Workload::run`] did not count: what
    /// [`Workload::check`] holds against the tally allows for it, and for nothing else.
    fn untold(&self, input: &Self::Input, ended: Untold, tally: &mut Self::Tally);

    /// Adds another coordinator's tally.
    fn merge(into: &mut Self::Tally, other: Self::Tally);

    /// What the tally tells beyond counts of transactions: success rates, refused payments.
    fn outcomes(&self, _: &Self::Tally) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Judges the memory that is left when no transaction runs.
    ///
    /// # Errors
    /// The fabric's.
    async fn check(&self, cx: &Context, tally: &Self::Tally) -> Result<Vec<Invariant>, Failure>;
}

/// A procedure that uses these records; it is read-only if it only reads.
pub(crate) fn procedure(name: &'static str, accesses: &[(TableId, Mode, Cells)]) -> Procedure {
    let read_only = accesses.iter().all(|&(_, mode, _)| mode == Mode::Read);
    let accesses =
        accesses.iter().map(|&(table, mode, cells)| Access { table, mode, cells }).collect();
    Procedure { name, read_only, accesses }
}

/// The profiles of a constant slice of variants, as a constant slice.
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

/// The variant that the settings name; the first if they name none.
///
/// # Errors
/// Names the profile that is not known and those that are.
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
