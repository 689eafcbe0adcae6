//! One curve of a page: a benchmark, a system, and how many transactions run at once.
//!
//! Invariant: equal cases are run once, whichever sections ask for them; cases whose database is the same are run on
//! one load of it, one after the other.

use crate::bench::run::RunError;
use crate::reproduce::stage::{Layout, System};
use serde::{Deserialize, Serialize, Serializer};
use tarn_store::ids::UsageError;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::tpcc::{CriticalField, Tpcc};
use tarn_workloads::ycsb::Ycsb;
use tarn_workloads::{Settings, Workload};

/// A kind of benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Some records a transaction.
    Ycsb,
    /// A graph of objects.
    TaoBench,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Kvs, Kind::Tatp, Kind::Tpcc, Kind::SmallBank, Kind::Ycsb, Kind::TaoBench];

    /// As the paper calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kvs => "KVS",
            Kind::Tatp => "TATP",
            Kind::Tpcc => "TPC-C",
            Kind::SmallBank => "SmallBank",
            Kind::Ycsb => "YCSB",
            Kind::TaoBench => "TAOBench",
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
    /// Share of updates in percent, of KVS; of transactions that write, of YCSB.
    pub updates: Option<u32>,
    /// The field that shards the locks, of TPC-C; none: its warehouse.
    #[serde(serialize_with = "field_name")]
    pub critical: Option<CriticalField>,
    /// Operations of a transaction, of YCSB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<usize>,
    /// Bytes of a record, of YCSB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<u16>,
}

fn field_name<S: Serializer>(field: &Option<CriticalField>, to: S) -> Result<S::Ok, S::Error> {
    field.map(CriticalField::name).serialize(to)
}

impl Bench {
    /// A benchmark as a profile of it has it, of so many accounts, subscribers, warehouses, pairs.
    pub fn new(kind: Kind, mix: &'static str, records: u64) -> Bench {
        let (zipf, updates, critical) = (None, None, None);
        let (operations, record_bytes) = (None, None);
        Bench { kind, mix, records, zipf, updates, critical, operations, record_bytes }
    }

    /// The part that decides about the database alone.
    pub fn loads_as(self) -> Bench {
        match self.kind {
            Kind::Kvs => Bench { zipf: None, updates: None, ..self },
            // Whatever it reads and writes: all of its profiles here have the same table.
            Kind::Ycsb => Bench {
                record_bytes: self.record_bytes,
                ..Bench::new(Kind::Ycsb, "", self.records)
            },
            Kind::Tatp | Kind::Tpcc | Kind::SmallBank | Kind::TaoBench => self,
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

    /// YCSB with its share of writing transactions, its operations and the length of its records.
    ///
    /// # Errors
    /// As [`Bench::make`].
    pub fn make_ycsb(&self) -> Result<Ycsb, UsageError> {
        let mut ycsb = self.make::<Ycsb>()?;
        if let Some(percent) = self.updates {
            ycsb = ycsb.writing(percent)?;
        }
        if let Some(operations) = self.operations {
            ycsb = ycsb.of_operations(operations)?;
        }
        match self.record_bytes {
            Some(bytes) => ycsb.of_bytes(bytes),
            None => Ok(ycsb),
        }
    }
}

/// See the module's text.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The benchmark.
    pub bench: Bench,
    /// The system that runs it.
    pub system: System,
    /// The layout of its tables.
    pub layout: Layout,
    /// How many at once, a point each.
    pub coordinators: Vec<usize>,
}

impl Case {
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
