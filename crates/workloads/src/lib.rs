//! Standard benchmarks: each benchmark has one folder. The folder has its schema, its loader, its
//! invariants, and one file per transaction.
//!
//! Map: [`workload`] defines the interface of a benchmark. [`distribution`] draws keys. [`routes`]
//! returns the facts by which transactions are routed. [`untold`] describes transactions that may
//! have committed without being counted. Each benchmark has one module: [`kvs`], [`smallbank`],
//! [`taobench`], [`tatp`], [`tpcc`], [`ycsb`]. [`NAMES`] lists the benchmarks, and [`with_workload!`]
//! runs code for the benchmark that a command line names:
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
//! Invariant: a workload never names a protocol or a fabric. A workload draws its inputs from a
//! seeded generator. Its invariants are checked on the contents of memory after the run, not on the
//! results that transactions returned.

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

        /// The names of all workloads on the command line.
        pub const NAMES: &[&str] = &[$(<$module::$name as Workload>::NAME),+];

        /// `with_workload!(name, W => body)`: evaluates `body` with `W` naming the type of the
        /// workload called `name`. The result is `Ok(body)`, or the usage error that lists all names.
        /// `W` is an alias of a type, so write associated types as `<W as Workload>::Input`.
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

// The list of workloads, with one line per workload.
workloads! { $;
    kvs::Kvs,
    smallbank::SmallBank,
    taobench::TaoBench,
    tatp::Tatp,
    tpcc::Tpcc,
    ycsb::Ycsb,
}

/// Returns the usage error that lists all workloads.
#[cold]
pub fn unknown_workload(name: &str) -> UsageError {
    UsageError { field: "workload".into(), value: name.into(), allowed: NAMES.join(", ") }
}
