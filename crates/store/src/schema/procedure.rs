//! Registered procedures: the name of each, and the facts that are known about it before it runs.
//!
//! Invariant: a procedure's description never changes the procedure's effect. Routing uses the description to send
//! the procedure to the node of its first key. A protocol that locks cells reads the procedure's cells from the
//! description. A remote client calls the procedure by its name.

use crate::ids::{Mode, UsageError};
use crate::schema::{Cells, TableId};

/// A record that a procedure will use, given by its table, mode and cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The record's table.
    pub table: TableId,
    /// The mode of the access.
    pub mode: Mode,
    /// The cells that the procedure uses.
    pub cells: Cells,
}

/// The facts about a procedure that are known before it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// The procedure's name, unique within the database.
    pub name: &'static str,
    /// Whether the procedure never writes.
    pub read_only: bool,
    /// The records that the procedure uses, in order. Routing uses the first of these records.
    pub accesses: Vec<Access>,
}

/// The procedures of a database, which can be found by name.
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
    /// If another procedure already has the name of `procedure`.
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

    /// All procedures of the database, in order of registration.
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
