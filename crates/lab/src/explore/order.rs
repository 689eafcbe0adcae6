//! The order for an exploration: the litmuses, shapes and faults to explore, and the bounds at which the exploration
//! stops.
//!
//! Invariant: the exploration of an item does not depend on the other items of the order. The replay command of an
//! item names everything that the item depends on.

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

/// The largest number of crashes of one execution.
pub const CRASHES_MAX: u32 = 3;

/// A kind of fault that may happen at every point of an execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No fault happens.
    None,
    /// A compute node dies. Another compute node recovers the dead node.
    Compute,
    /// A compute node is declared dead and recovered, but continues to run meanwhile.
    Zombie,
    /// A memory node dies. If copies of its data exist, the cluster promotes one copy and fills a spare node.
    Memory,
}

impl FaultKind {
    /// Every kind that causes a fault.
    pub const ALL: [FaultKind; 3] = [FaultKind::Compute, FaultKind::Zombie, FaultKind::Memory];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::None => "none",
            FaultKind::Compute => "compute",
            FaultKind::Zombie => "zombie",
            FaultKind::Memory => "memory",
        }
    }

    /// Returns how many faults of this kind one execution may have on this shape. A group that has several copies
    /// never loses its last copy. If the protocol `recovers` from crashes of compute nodes, the remaining crashes hit
    /// compute nodes. The node that repairs the configuration may crash too.
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

/// An order for an exploration, with all options that the user can choose.
#[derive(Clone, Debug)]
pub struct Order {
    /// The names or files of litmuses. The name `all` means all litmuses of the program.
    pub litmuses: Vec<String>,
    /// The protocol's name.
    pub protocol: String,
    /// The variant of the protocol.
    pub variant: String,
    /// The shape on which litmuses run. If none is given, each litmus runs on its first shape.
    pub shape: Option<Shape>,
    /// Whether each litmus runs on all its shapes.
    pub deep: bool,
    /// The layout of records for litmuses whose files name no layout.
    pub layout: Option<Layout>,
    /// The number of crashes of one execution.
    pub crashes: u32,
    /// The kind of the crashes. If none is given, each kind is explored separately.
    pub fault: Option<FaultKind>,
    /// The bounds at which the exploration of an item stops.
    pub bounds: Bounds,
    /// The time after which the whole order stops. The items of the order share this time.
    pub budget: Option<Duration>,
    /// The number of items that are explored at the same time.
    pub jobs: usize,
}

/// One litmus on one shape with one kind of fault.
#[derive(Clone, Debug)]
pub struct Item {
    /// The litmus.
    pub litmus: Litmus,
    /// The shape of the cluster on which the litmus runs.
    pub shape: Shape,
    /// The kind of fault that may happen.
    pub fault: FaultKind,
}

impl Order {
    /// Creates an order for all litmuses of the program and one variant of a protocol, without faults
    /// and without bounds.
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
    /// The error names the unknown value, and the allowed values.
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
        for (at, name) in self.litmuses.iter().enumerate() {
            let before = &self.litmuses[..at];
            let has_run = before.iter().any(|it| it == name || it == "all");
            if has_run || name == "all" && at > 0 {
                return Err(UsageError {
                    field: "litmus".into(),
                    value: name.clone(),
                    allowed: format!("each litmus once, unlike in {}", self.litmuses.join(" ")),
                });
            }
            let names: Vec<&str> = match name.as_str() {
                "all" => Litmus::names().collect(),
                name => vec![name],
            };
            for name in names {
                let mut litmus = Litmus::load(name)?;
                if let Some(layout) = self.layout {
                    if !litmus.any_layout {
                        continue; // the litmus has its own layout
                    }
                    litmus.layout = layout;
                }
                if !caps.ranges && litmus.ordered.is_some() {
                    continue; // the protocol offers no ranges
                }
                for shape in self.shapes(&litmus) {
                    let item = |fault| Item { litmus: litmus.clone(), shape, fault };
                    let kinds = self.faults().into_iter();
                    // The items omit a kind of fault if the protocol does not promise to recover from this kind.
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

    /// Returns the error for an order without items. An order has no items if the protocol promises none of the
    /// requested features, or if no litmus may run with the requested layout.
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

    /// Returns whether the protocol promises to survive the death of a compute node.
    ///
    /// # Errors
    /// The error names the unknown value, and the allowed values.
    pub fn recovers(&self) -> Result<bool, UsageError> {
        Ok(self.caps()?.crash_recovery)
    }

    fn caps(&self) -> Result<ProtocolCaps, UsageError> {
        Ok(AnyProtocol::by_name(&self.protocol, &self.variant)?.info().caps)
    }

    /// Returns the name of the isolation level that histories must satisfy. The result is `None` if no
    /// such protocol or variant exists.
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

    /// Returns the command that runs one schedule of an item again.
    pub fn replay(&self, item: &Item, schedule: &str) -> String {
        format!("{} --replay {schedule}", self.command(item))
    }

    /// Returns the command that explores one item.
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
