//! Standard benchmarks: one folder each, with schema, load, one file a transaction, invariants.
//!
//! Map: [`workload`] defines a benchmark; [`distribution`] draws keys; [`routes`] says where a
//! transaction belongs; [`untold`] describes transactions that committed uncounted. Then there is
//! one module a benchmark: [`kvs`], [`smallbank`], [`taobench`], [`tatp`], [`tpcc`], [`ycsb`].
//! [`NAMES`] lists them, and [`with_workload!`] runs code for the one that a command line names:
//!
//! ```
//! use tarn_workloads::{Settings, Workload, with_workload};
//!
//! let settings = Settings { records: Some(1000), ..Settings::default() };
//! let tables = with_workload!("smallbank", W => W::new(&settings)?.schemas())?;
//! assert_eq!(tables.len(), 2);
//! # Ok::<(), tarn_store::ids::UsageError>(())
//! ```
//!
//! Invariant: a workload never names a protocol or a fabric. Its inputs are drawn from a seeded
//! generator, and its invariants are judged on the memory that is left, not on the answers it got.

#![forbid(unsafe_code)]

pub mod distribution;
mod field;
pub mod routes;
pub mod untold;
pub mod workload;

pub use untold::{Slack, Untold};
pub use workload::{Invariant, Profile, Settings, Workload};

use tarn_store::ids::UsageError;

macro_rules! workloads {
    ($d:tt; $($module:ident :: $name:ident),+ $(,)?) => {
        $(pub mod $module;)+

        /// Every workload's name on the command line.
        pub const NAMES: &[&str] = &[$(<$module::$name as Workload>::NAME),+];

        /// `with_workload!(name, W => body)`: evaluates `body` with `W` naming the type of the
        /// workload called `name`. It is `Ok(body)`, or the usage error that lists all names.
        /// `W` is an alias of a type: associated types are `<W as Workload>::Input`.
        #[macro_export]
        macro_rules! with_workload {
            ($d name:expr, $d workload:ident => $d body:expr) => {{
                let name: &str = $d name;
                $(if name == <$d crate::$module::$name as $d crate::Workload>::NAME {
                    type $d workload = $d crate::$module::$name;
                    Ok($d body)
                } else)+ {
                    Err($d crate::unknown_workload(name))
                }
            }};
        }
    };
}

// One line a workload.
workloads! { $;
    kvs::Kvs,
    smallbank::SmallBank,
    taobench::TaoBench,
    tatp::Tatp,
    tpcc::Tpcc,
    ycsb::Ycsb,
}

/// The usage error that lists all workloads.
#[cold]
pub fn unknown_workload(name: &str) -> UsageError {
    UsageError { field: "workload".into(), value: name.into(), allowed: NAMES.join(", ") }
}
