//! Registered procedures: the name of a transaction, and the facts that are known before it runs.
//!
//! Invariant: a procedure's description never changes the procedure's effect. By the description, routing
//! sends the procedure to the right node (that of its first key). A protocol that locks cells knows its
//! cells, and a remote client calls it by name.

use crate::ids::{Mode, UsageError};
use crate::schema::{Cells, TableId};

/// A record that a procedure will use: table, mode, cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The record's table.
    pub table: TableId,
    /// The mode of the access.
    pub mode: Mode,
    /// The cells that are used.
    pub cells: Cells,
}

/// The facts about a procedure that are known before it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// The procedure's name, unique within the database.
    pub name: &'static str,
    /// Whether it never writes.
    pub read_only: bool,
    /// The records that it uses, in order. Routing goes by the first one.
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

    /// All procedures, in order of registration.
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
