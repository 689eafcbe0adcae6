//! One curve of a page: a benchmark, a system, and how many transactions run at once.
//!
//! Invariant: equal cases are run once, whoever asks for them; cases whose database is the same are run on
//! one load of it, one after the other.

use super::entrant::{Form, Who};
use crate::bench::run::RunError;
use crate::reproduce::stage::{Layout, System};
use serde::{Serialize, Serializer};
use tarn_engine::outcome::UsageError;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::tpcc::{CriticalField, Tpcc};
use tarn_workloads::{Settings, Workload};

/// Which benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One record a transaction.
    Kvs,
    /// Telecommunication.
    Tatp,
    /// Orders.
    Tpcc,
    /// Banking.
    SmallBank,
}

impl Kind {
    /// As the paper calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kvs => "KVS",
            Kind::Tatp => "TATP",
            Kind::Tpcc => "TPC-C",
            Kind::SmallBank => "SmallBank",
        }
    }
}

/// A benchmark with its sizes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bench {
    /// Which.
    pub kind: Kind,
    /// Its profile.
    pub mix: &'static str,
    /// Accounts, subscribers, warehouses, pairs.
    pub records: u64,
    /// Skew, where it can be chosen.
    pub zipf: Option<f64>,
    /// Share of updates in percent, of KVS.
    pub updates: Option<u32>,
    /// What shards the locks, of TPC-C; none: its warehouse.
    #[serde(serialize_with = "field_name")]
    pub critical: Option<CriticalField>,
}

fn field_name<S: Serializer>(field: &Option<CriticalField>, to: S) -> Result<S::Ok, S::Error> {
    field.map(CriticalField::name).serialize(to)
}

impl Bench {
    /// What decides about the database alone.
    pub fn loads_as(self) -> Bench {
        match self.kind {
            Kind::Kvs => Bench { zipf: None, updates: None, ..self },
            Kind::Tatp | Kind::Tpcc | Kind::SmallBank => self,
        }
    }

    fn settings(&self) -> Settings {
        Settings { profile: Some(self.mix.into()), records: Some(self.records), zipf: self.zipf }
    }

    /// The benchmark.
    ///
    /// # Errors
    /// A profile or a size that there is not.
    pub fn make<W: Workload>(&self) -> Result<W, UsageError> {
        W::new(&self.settings())
    }

    /// TPC-C with its critical field.
    ///
    /// # Errors
    /// As [`Bench::make`].
    pub fn make_tpcc(&self) -> Result<Tpcc, UsageError> {
        let tpcc = self.make::<Tpcc>()?;
        Ok(match self.critical {
            Some(field) => tpcc.sharded_by(field),
            None => tpcc,
        })
    }

    /// KVS with its share of updates.
    ///
    /// # Errors
    /// As [`Bench::make`].
    pub fn make_kvs(&self) -> Result<Kvs, UsageError> {
        let kvs = self.make::<Kvs>()?;
        match self.updates {
            Some(percent) => kvs.updating(percent),
            None => Ok(kvs),
        }
    }
}

/// See the module's text.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// What runs.
    pub bench: Bench,
    /// Who runs it.
    pub system: System,
    /// On what.
    pub layout: Layout,
    /// How many at once, a point each.
    pub coordinators: Vec<usize>,
}

impl Case {
    /// A system in one of its forms.
    pub fn of(bench: Bench, (who, form): (Who, Form), coordinators: &[usize]) -> Case {
        let (system, layout) = (who.system(form), who.layout(form, bench.kind));
        Case { bench, system, layout, coordinators: coordinators.into() }
    }

    /// The same under another name and variant.
    pub fn with(mut self, name: &'static str, about: &'static str, variant: &'static str) -> Case {
        (self.system.name, self.system.about, self.system.variant) = (name, about, variant);
        self
    }

    /// The same whose transactions run where they are drawn.
    pub fn unrouted(mut self) -> Case {
        self.system.is_routed = false;
        self
    }

    /// Whether it differs in nothing but its points.
    pub fn is_like(&self, other: &Case) -> bool {
        (self.bench, self.system, self.layout) == (other.bench, other.system, other.layout)
    }
}

/// Why there is no figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

impl From<UsageError> for Missing {
    fn from(error: UsageError) -> Missing {
        Missing(error.to_string())
    }
}

impl From<RunError> for Missing {
    fn from(error: RunError) -> Missing {
        Missing(error.to_string())
    }
}
