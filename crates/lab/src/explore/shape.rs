//! The cluster on which a litmus runs: the numbers of memory nodes, of copies of each record, and of
//! spare memory nodes.
//!
//! Invariant: a shape is written `NODESxREPLICAS`, with no more replicas than nodes. If the shape has
//! spares, `+SPARES` follows. The litmus determines the compute nodes.

use std::fmt;
use std::str::FromStr;

/// The largest number of memory nodes with which an exhaustive run is feasible.
const NODES_MAX: usize = 4;
/// The largest number of spares. One spare is enough, because the cluster makes only one copy at a time.
const SPARES_MAX: usize = 1;

/// The shape of a cluster of memory nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    /// The number of memory nodes. Each memory node is the primary of one replica group.
    pub memory_nodes: usize,
    /// The number of copies of each record.
    pub replicas: usize,
    /// The number of empty memory nodes, to which the cluster copies data whose copy was lost.
    pub spares: usize,
}

impl Shape {
    /// Creates a shape without spares.
    pub const fn plain(memory_nodes: usize, replicas: usize) -> Shape {
        Shape { memory_nodes, replicas, spares: 0 }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let refuse = || {
            format!(
                "NODESxREPLICAS, 1 to {NODES_MAX} and no more replicas than nodes, and +SPARES, 1 to \
                 {SPARES_MAX}, if there are any"
            )
        };
        let (nodes, replicas) = text.split_once('x').ok_or_else(refuse)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| refuse());
        let (replicas, spares) = match replicas.split_once('+') {
            None => (number(replicas)?, 0),
            Some((replicas, spares)) => (number(replicas)?, number(spares)?),
        };
        if text.contains('+') && !(1..=SPARES_MAX).contains(&spares) {
            return Err(refuse());
        }
        let shape = Shape { memory_nodes: number(nodes)?, replicas, spares };
        let is_possible = (1..=NODES_MAX).contains(&shape.memory_nodes)
            && (1..=shape.memory_nodes).contains(&shape.replicas);
        if is_possible { Ok(shape) } else { Err(refuse()) }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.memory_nodes, self.replicas)?;
        if self.spares > 0 { write!(f, "+{}", self.spares) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_reads_what_it_prints() {
        for text in ["2x1", "2x2+1"] {
            assert_eq!(text.parse::<Shape>().expect("a shape").to_string(), text);
        }
        for bad in ["2", "1x2", "0x0", "9x1", "ax1", "2x2+", "2x2+0", "2x2+2", "2+1x2"] {
            assert!(bad.parse::<Shape>().expect_err("refused").contains("no more"), "{bad}");
        }
    }
}
