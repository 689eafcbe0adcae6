//! The cluster that a litmus runs on: memory nodes, copies of each record.
//!
//! Invariant: written `NODESxREPLICAS`, with no more replicas than nodes; compute nodes are the litmus's.

use std::fmt;
use std::str::FromStr;

/// Memory nodes that an exhaustive run can bear.
const NODES_MAX: usize = 4;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// Memory nodes, each the primary of one replica group.
    pub memory_nodes: usize,
    /// Copies of each record.
    pub replicas: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let refuse = || format!("NODESxREPLICAS, 1 to {NODES_MAX} and no more replicas than nodes");
        let (nodes, replicas) = text.split_once('x').ok_or_else(refuse)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| refuse());
        let shape = Shape { memory_nodes: number(nodes)?, replicas: number(replicas)? };
        let is_possible = (1..=NODES_MAX).contains(&shape.memory_nodes)
            && (1..=shape.memory_nodes).contains(&shape.replicas);
        if is_possible { Ok(shape) } else { Err(refuse()) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.memory_nodes, self.replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_reads_what_it_prints() {
        assert_eq!("2x1".parse::<Shape>().expect("a shape").to_string(), "2x1");
        for bad in ["2", "1x2", "0x0", "9x1", "ax1"] {
            assert!(bad.parse::<Shape>().expect_err("refused").contains("no more"), "{bad}");
        }
    }
}
