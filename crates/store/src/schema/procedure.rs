//! Registered procedures: what a transaction is called, and what is known of it before it runs.
//!
//! Invariant: a procedure's description never changes what it does; it lets routing send it to the
//! right node (its first key), a protocol that locks cells know its cells, and a remote client call
//! it by name.

use crate::ids::{Mode, UsageError};
use crate::schema::{Cells, TableId};

/// A record that a procedure will use: table, mode, cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Which table.
    pub table: TableId,
    /// In which mode.
    pub mode: Mode,
    /// Which cells.
    pub cells: Cells,
}

/// What is known of a procedure before it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Unique within the database.
    pub name: &'static str,
    /// Whether it never writes.
    pub read_only: bool,
    /// What it uses, in order; the first is what routing goes by.
    pub accesses: Vec<Access>,
}

/// The procedures of a database, by name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Procedures {
    list: Vec<Procedure>,
}

/// A procedure's position in its database's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcedureId(pub u16);

impl Procedures {
    /// Registers a procedure.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn register(&mut self, procedure: Procedure) -> Result<ProcedureId, UsageError> {
        if self.by_name(procedure.name).is_some() {
            return Err(UsageError {
                field: "procedure".into(),
                value: procedure.name.into(),
                allowed: "a name that is not taken".into(),
            });
        }
        self.list.push(procedure);
        Ok(ProcedureId(self.list.len() as u16 - 1))
    }

    /// The procedure called `name`.
    pub fn by_name(&self, name: &str) -> Option<ProcedureId> {
        let position = self.list.iter().position(|procedure| procedure.name == name)?;
        Some(ProcedureId(position as u16))
    }

    /// A procedure's description.
    pub fn get(&self, id: ProcedureId) -> &Procedure {
        &self.list[usize::from(id.0)]
    }

    /// All, in order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Procedure> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut procedures = Procedures::default();
        let balance = || Procedure { name: "balance", read_only: true, accesses: Vec::new() };
        let id = procedures.register(balance()).expect("free");
        assert_eq!(procedures.by_name("balance"), Some(id));
        assert!(procedures.register(balance()).is_err());
    }
}
