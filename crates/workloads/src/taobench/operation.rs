//! The operations of TAOBench, and the random inputs of its transactions.
//!
//! Invariant: a transaction's input holds the seed of its operations, not the operations. Five
//! hundred operations would not fit into an input. Each drawing from the seed gives the same
//! operations.

use super::graph::{EDGES, Edge, IDS_MAX, OBJECTS};
use super::profiles::Variant;
use super::sizes::{self, WRITES_MAX};
use crate::distribution::{Dice, Keys};
use rand::{Rng as _, RngExt};
use tarn_store::schema::TableId;
use tarn_fabric::rng::{Rng, seeded};

/// The kinds of transactions: a single operation on one of the two tables, or several operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads an object.
    ReadObject,
    /// Reads an edge.
    ReadEdge,
    /// Adds or updates an object.
    WriteObject,
    /// Adds or updates an edge.
    WriteEdge,
    /// Reads objects and edges.
    ReadTransaction,
    /// Adds and updates objects and edges.
    WriteTransaction,
}

/// The input of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    kind: Kind,
    len: u16,
    seed: u64,
    first: Option<u64>,
}

impl Input {
    /// Returns the kind of the transaction.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of operations of the transaction.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "every transaction has some")]
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Returns the key of the transaction's first record in the first table of its procedure. Returns
    /// `None` if the transaction uses no record of this table.
    #[inline]
    pub(super) fn first_key(&self) -> Option<u64> {
        self.first
    }

    pub(super) fn writes(&self) -> bool {
        matches!(self.kind, Kind::WriteObject | Kind::WriteEdge | Kind::WriteTransaction)
    }
}

/// The kind of an operation on an object, or on the edge that leads from this object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Read,
    Update,
    Add,
}

/// One operation of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    pub(super) what: What,
    pub(super) table: TableId,
    object: u64,
}

impl Operation {
    /// Returns the key of the operation's record. If the operation writes an edge that has a reverse
    /// edge, also returns the key of the reverse edge.
    #[inline]
    pub(super) fn keys(&self) -> (u64, Option<u64>) {
        if self.table == OBJECTS {
            return (self.object, None);
        }
        let edge = Edge::from(self.object);
        let reverse = if self.what == What::Read { None } else { edge.reverse() };
        (edge.key(), reverse)
    }
}

/// Draws an index. The probability of each index is proportional to its weight.
#[inline]
fn weighted(weights: &[u32], dice: &mut Dice) -> usize {
    let mut at = dice.roll(weights.iter().map(|&weight| u64::from(weight)).sum());
    for (index, &weight) in weights.iter().enumerate() {
        if at < u64::from(weight) {
            return index;
        }
        at -= u64::from(weight);
    }
    unreachable!("a roll below the sum of all weights")
}

/// Draws the inputs of transactions.
pub(super) struct Source {
    /// The distribution over the loaded edges.
    pub(super) edges: Keys,
    pub(super) variant: &'static Variant,
}

/// An iterator over the operations of a transaction.
pub(super) struct Operations<'a> {
    source: &'a Source,
    input: Input,
    rng: Rng,
    /// The next id that the transaction will add. The ids count upwards, so no two operations of a
    /// transaction add the same id.
    fresh: u64,
    drawn: u16,
}

impl Source {
    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> Input {
        let kind = match weighted(&self.variant.operations, &mut Dice::new(rng)) {
            0 if weighted(&self.variant.reads, &mut Dice::new(rng)) == 0 => Kind::ReadObject,
            0 => Kind::ReadEdge,
            1 if weighted(&self.variant.writes, &mut Dice::new(rng)) < 2 => Kind::WriteObject,
            1 => Kind::WriteEdge,
            2 => Kind::ReadTransaction,
            _ => Kind::WriteTransaction,
        };
        let len = match kind {
            Kind::ReadTransaction => sizes::draw(sizes::READS, rng),
            Kind::WriteTransaction => sizes::draw(sizes::WRITES, rng),
            _ => 1,
        };
        let input = Input { kind, len, seed: rng.next_u64(), first: None };
        let first_table = match kind {
            Kind::ReadObject | Kind::WriteObject => OBJECTS,
            _ => EDGES,
        };
        let mut firsts = self.operations(&input).filter(|it| it.table == first_table);
        Input { first: firsts.next().map(|it| it.keys().0), ..input }
    }

    /// Returns the operations of the transaction. Each call returns the same operations.
    #[inline]
    pub(super) fn operations(&self, input: &Input) -> Operations<'_> {
        let mut rng = seeded(input.seed, 0);
        let loaded = 2 * self.edges.records();
        let fresh = loaded + 2 * rng.random_range(0..(IDS_MAX - loaded) / 2 - WRITES_MAX as u64);
        Operations { source: self, input: *input, rng, fresh, drawn: 0 }
    }
}

impl Operations<'_> {
    /// Draws the kind of an operation and the operation's table.
    #[inline]
    fn draw_what(&mut self) -> (What, TableId) {
        let variant = self.source.variant;
        let [adds_object, updates_object, adds_edge, updates_edge] = variant.writes;
        let add_or_update = |weights: [u32; 2], dice: &mut Dice| {
            if weighted(&weights, dice) == 0 { What::Add } else { What::Update }
        };
        let mut dice = Dice::new(&mut self.rng);
        match self.input.kind {
            Kind::ReadObject => (What::Read, OBJECTS),
            Kind::ReadEdge => (What::Read, EDGES),
            Kind::WriteObject => (add_or_update([adds_object, updates_object], &mut dice), OBJECTS),
            Kind::WriteEdge => (add_or_update([adds_edge, updates_edge], &mut dice), EDGES),
            Kind::ReadTransaction => {
                let tables = [OBJECTS, EDGES];
                (What::Read, tables[weighted(&variant.transaction_reads, &mut dice)])
            }
            Kind::WriteTransaction => match weighted(&variant.writes, &mut dice) {
                0 => (What::Add, OBJECTS),
                1 => (What::Update, OBJECTS),
                2 => (What::Add, EDGES),
                _ => (What::Update, EDGES),
            },
        }
    }
}

impl Iterator for Operations<'_> {
    type Item = Operation;

    #[inline]
    fn next(&mut self) -> Option<Operation> {
        if self.drawn == self.input.len {
            return None;
        }
        let (what, table) = self.draw_what();
        let object = match what {
            What::Add => self.fresh + 2 * u64::from(self.drawn),
            What::Read | What::Update => 2 * self.source.edges.draw(&mut self.rng),
        };
        self.drawn += 1;
        Some(Operation { what, table, object })
    }
}
