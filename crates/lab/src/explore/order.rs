//! The items to explore: which litmuses, on which shapes, with which faults, within which bounds.
//!
//! Invariant: an item is explored alike in every order, and its replay names everything that it depends on.

use super::litmus::Litmus;
use super::shape::Shape;
use crate::harness::checks::guaranteed;
use crate::harness::layout::Layout;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tarn_engine::cluster::info::ProtocolCaps;
use tarn_engine::protocol::AnyProtocol;
use tarn_sim::explore::{Bounds, FaultBudget};
use tarn_store::ids::UsageError;

/// Crashes of one execution.
pub const CRASHES_MAX: u32 = 3;

/// A kind of fault that may happen at every point of an execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Nothing.
    None,
    /// A compute node dies; another one recovers it.
    Compute,
    /// A compute node is declared dead and recovered, and goes on meanwhile.
    Zombie,
    /// A memory node dies; where there are copies, one is promoted, and a spare filled.
    Memory,
}

impl FaultKind {
    /// Every kind that breaks something.
    pub const ALL: [FaultKind; 3] = [FaultKind::Compute, FaultKind::Zombie, FaultKind::Memory];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::None => "none",
            FaultKind::Compute => "compute",
            FaultKind::Zombie => "zombie",
            FaultKind::Memory => "memory",
        }
    }

    /// Returns how many faults of this kind one execution may have on this shape. No group loses its last copy as long as
    /// it has others. The crashes that remain are compute nodes', the mender's among them, where the protocol `recovers`
    /// from that.
    pub fn budget(self, crashes: u32, shape: Shape, recovers: bool) -> FaultBudget {
        let mut budget = FaultBudget::NONE;
        match self {
            FaultKind::None => {}
            FaultKind::Compute => budget.compute = crashes,
            FaultKind::Zombie => budget.zombie = crashes,
            FaultKind::Memory if shape.replicas == 1 => budget.memory = crashes,
            FaultKind::Memory => {
                budget.memory = crashes.min(shape.replicas as u32 - 1);
                budget.compute = if recovers { crashes - budget.memory } else { 0 };
            }
        }
        budget
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultKind, String> {
        let kind = FaultKind::ALL.into_iter().find(|kind| kind.name() == text);
        kind.ok_or_else(|| FaultKind::ALL.map(FaultKind::name).join(", "))
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Order {
    /// Names or files; `all` are those of the program.
    pub litmuses: Vec<String>,
    /// The protocol's name.
    pub protocol: String,
    /// Its variant.
    pub variant: String,
    /// On this shape; otherwise on each litmus's first.
    pub shape: Option<Shape>,
    /// On every shape of each litmus.
    pub deep: bool,
    /// With records that lie so, where a litmus names no layout itself.
    pub layout: Option<Layout>,
    /// Crashes of one execution.
    pub crashes: u32,
    /// The kind of the crashes; otherwise each kind by itself.
    pub fault: Option<FaultKind>,
    /// When an item is given up.
    pub bounds: Bounds,
    /// When all of it is given up, shared among the items.
    pub budget: Option<Duration>,
    /// Items at a time.
    pub jobs: usize,
}

/// One litmus on one shape with one kind of fault.
#[derive(Clone, Debug)]
pub struct Item {
    /// The litmus.
    pub litmus: Litmus,
    /// Where it runs.
    pub shape: Shape,
    /// The kind of fault.
    pub fault: FaultKind,
}

impl Order {
    /// All litmuses of the program for a protocol's variant: no faults, no bounds.
    pub fn all(protocol: &str, variant: &str) -> Order {
        Order {
            litmuses: vec!["all".to_owned()],
            protocol: protocol.to_owned(),
            variant: variant.to_owned(),
            shape: None,
            deep: false,
            layout: None,
            crashes: 0,
            fault: None,
            bounds: Bounds::NONE,
            budget: None,
            jobs: 1,
        }
    }

    /// Returns the items to explore, in a fixed order.
    ///
    /// # Errors
    /// Names the unknown value, and the allowed ones.
    pub fn items(&self) -> Result<Vec<Item>, UsageError> {
        let caps = self.caps()?;
        if self.fault.is_some() && self.crashes == 0 {
            return Err(UsageError {
                field: "fault".into(),
                value: self.fault.map_or("", FaultKind::name).to_owned(),
                allowed: "together with --crashes of 1 or more".into(),
            });
        }
        let mut items = Vec::new();
        for name in &self.litmuses {
            let names: Vec<&str> = match name.as_str() {
                "all" => Litmus::names().collect(),
                name => vec![name],
            };
            for name in names {
                let mut litmus = Litmus::load(name)?;
                if let Some(layout) = self.layout {
                    if !litmus.any_layout {
                        continue; // it is about its own
                    }
                    litmus.layout = layout;
                }
                if !caps.ranges && litmus.ordered.is_some() {
                    continue; // nor for ranges
                }
                for shape in self.shapes(&litmus) {
                    let item = |fault| Item { litmus: litmus.clone(), shape, fault };
                    let kinds = self.faults().into_iter();
                    // A protocol that promises no recovery is not asked for it.
                    let kinds = kinds.filter(|kind| match kind {
                        FaultKind::None => true,
                        FaultKind::Compute | FaultKind::Zombie => caps.crash_recovery,
                        FaultKind::Memory => caps.memory_recovery,
                    });
                    items.extend(kinds.map(item));
                }
            }
        }
        if items.is_empty() { Err(self.nothing_left()) } else { Ok(items) }
    }

    /// Nothing that was asked for is something that the protocol promises, or takes the layout that was asked for.
    fn nothing_left(&self) -> UsageError {
        let (protocol, litmuses) = (&self.protocol, self.litmuses.join(" "));
        let (field, value, allowed) = match self.fault {
            _ if self.layout.is_some() => (
                "layout",
                self.layout.map_or("", Layout::name).into(),
                format!("for a litmus whose file names none, unlike those of {litmuses}"),
            ),
            Some(kind) => (
                "fault",
                kind.name().into(),
                format!("a death that {protocol} promises to survive"),
            ),
            None => {
                ("litmus", litmuses, format!("without ranges, which {protocol} does not offer"))
            }
        };
        UsageError { field: field.into(), value, allowed }
    }

    /// Whether the protocol promises to survive the death of a compute node.
    ///
    /// # Errors
    /// Names the unknown value, and the allowed ones.
    pub fn recovers(&self) -> Result<bool, UsageError> {
        Ok(self.caps()?.crash_recovery)
    }

    fn caps(&self) -> Result<ProtocolCaps, UsageError> {
        Ok(AnyProtocol::by_name(&self.protocol, &self.variant)?.info().caps)
    }

    /// The isolation that histories are judged by, in words; `None` if there is no such protocol or variant.
    pub fn isolation(&self) -> Option<&'static str> {
        let protocol = AnyProtocol::by_name(&self.protocol, &self.variant).ok()?;
        Some(guaranteed(&protocol).name())
    }

    fn shapes(&self, litmus: &Litmus) -> Vec<Shape> {
        match (self.shape, self.deep) {
            (Some(shape), _) => vec![shape],
            (None, true) => litmus.shapes.clone(),
            (None, false) => litmus.shapes[..1].to_vec(),
        }
    }

    fn faults(&self) -> Vec<FaultKind> {
        match (self.crashes, self.fault) {
            (0, _) => vec![FaultKind::None],
            (_, Some(kind)) => vec![kind],
            (_, None) => FaultKind::ALL.into(),
        }
    }

    /// The command that runs one schedule of an item again.
    pub fn replay(&self, item: &Item, schedule: &str) -> String {
        format!("{} --replay {schedule}", self.command(item))
    }

    /// The command that explores one item.
    pub fn command(&self, item: &Item) -> String {
        let Item { litmus, shape, fault } = item;
        let mut command = format!("tarn explore {} --shape {shape}", litmus.name);
        if self.protocol != "ford" {
            command += &format!(" --protocol {}", self.protocol);
        }
        if self.variant != "corrected" {
            command += &format!(" --variant {}", self.variant);
        }
        if let Some(layout) = self.layout {
            command += &format!(" --layout {}", layout.name());
        }
        if *fault != FaultKind::None {
            command += &format!(" --crashes {} --fault {fault}", self.crashes);
        }
        command
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
