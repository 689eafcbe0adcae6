//! A case gives one curve of a page. The case names a benchmark, a system, and the numbers of concurrent
//! transactions.
//!
//! Invariant: equal cases are run only once, even if several sections request them. Cases with the same database run
//! one after the other, so that the database is loaded only once.

use crate::bench::run::RunError;
use crate::reproduce::stage::{Layout, System};
use serde::{Deserialize, Serialize, Serializer};
use tarn_store::ids::UsageError;
use tarn_workloads::kvs::Kvs;
use tarn_workloads::tpcc::{CriticalField, Tpcc};
use tarn_workloads::ycsb::Ycsb;
use tarn_workloads::{Settings, Workload};

/// The kind of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A key-value store: each transaction uses one record.
    Kvs,
    /// TATP: transactions of a telecommunication provider.
    Tatp,
    /// TPC-C: transactions on orders of a wholesaler.
    Tpcc,
    /// SmallBank: transactions of a bank.
    SmallBank,
    /// YCSB: each transaction uses several records.
    Ycsb,
    /// TaoBench: transactions on a graph of objects.
    TaoBench,
}

impl Kind {
    /// All kinds of benchmarks.
    pub const ALL: [Kind; 6] =
        [Kind::Kvs, Kind::Tatp, Kind::Tpcc, Kind::SmallBank, Kind::Ycsb, Kind::TaoBench];

    /// Returns the benchmark's name as the paper writes it.
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

/// A benchmark with its profile, its sizes and its other settings.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bench {
    /// The kind of the benchmark.
    pub kind: Kind,
    /// The name of the benchmark's profile.
    pub mix: &'static str,
    /// The number of accounts, subscribers, warehouses, or key-value pairs in the benchmark's database.
    pub records: u64,
    /// The skew of the accesses, for benchmarks whose skew can be chosen.
    pub zipf: Option<f64>,
    /// The percentage of operations that update a record, for KVS. For YCSB, the percentage of transactions that
    /// write.
    pub updates: Option<u32>,
    /// For TPC-C, the field of a key that determines the shard of a lock; `None` means the warehouse's number.
    #[serde(serialize_with = "field_name")]
    pub critical: Option<CriticalField>,
    /// The number of operations in a transaction, for YCSB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<usize>,
    /// The number of bytes of a record, for YCSB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<u16>,
}

fn field_name<S: Serializer>(field: &Option<CriticalField>, to: S) -> Result<S::Ok, S::Error> {
    field.map(CriticalField::name).serialize(to)
}

impl Bench {
    /// Makes a benchmark as its profile describes it, with this number of accounts, subscribers, warehouses, or
    /// key-value pairs.
    pub fn new(kind: Kind, mix: &'static str, records: u64) -> Bench {
        let (zipf, updates, critical) = (None, None, None);
        let (operations, record_bytes) = (None, None);
        Bench { kind, mix, records, zipf, updates, critical, operations, record_bytes }
    }

    /// Returns only those settings of the benchmark that determine its database.
    pub fn loads_as(self) -> Bench {
        match self.kind {
            Kind::Kvs => Bench { zipf: None, updates: None, ..self },
            // All of YCSB's profiles in this program have the same table, independently of the records that their
            // transactions read and write.
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

    /// Makes the workload of this benchmark.
    ///
    /// # Errors
    /// Fails if the profile or the size does not exist.
    pub fn make<W: Workload>(&self) -> Result<W, UsageError> {
        W::new(&self.settings())
    }

    /// Makes TPC-C with its critical field.
    ///
    /// # Errors
    /// Returns the same errors as [`Bench::make`].
    pub fn make_tpcc(&self) -> Result<Tpcc, UsageError> {
        let tpcc = self.make::<Tpcc>()?;
        Ok(match self.critical {
            Some(field) => tpcc.sharded_by(field),
            None => tpcc,
        })
    }

    /// Makes KVS with its percentage of updates.
    ///
    /// # Errors
    /// Returns the same errors as [`Bench::make`].
    pub fn make_kvs(&self) -> Result<Kvs, UsageError> {
        let kvs = self.make::<Kvs>()?;
        match self.updates {
            Some(percent) => kvs.updating(percent),
            None => Ok(kvs),
        }
    }

    /// Makes YCSB with its percentage of writing transactions, its number of operations and the
    /// length of its records.
    ///
    /// # Errors
    /// Returns the same errors as [`Bench::make`].
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

/// A case of an evaluation: a benchmark that a system runs, with several numbers of coordinators.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The benchmark.
    pub bench: Bench,
    /// The system that runs the benchmark.
    pub system: System,
    /// The layout of the system's tables.
    pub layout: Layout,
    /// The numbers of coordinators; each number gives one point.
    pub coordinators: Vec<usize>,
}

impl Case {
    /// Returns whether the two cases differ only in their numbers of coordinators.
    pub fn is_like(&self, other: &Case) -> bool {
        (self.bench, self.system, self.layout) == (other.bench, other.system, other.layout)
    }
}

/// The reason for a missing simulated value.
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
