//! How many locks fit a switch, beside the arrays of its lanes.
//!
//! Invariant: an array lies in whole match-action units (MAUs) of its own, because a register array is
//! touched at one place of the pipeline. The arrays of the lanes lie in the units of the control logic as
//! far as these have room for them; the rest comes off the units of the locks. Source of sizes: Zhang,
//! Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, section
//! 7.2: 12 units at ingress, 560 KB each (a KB is 1,000 bytes: the paper's 1.68 million locks in 3 units of
//! one byte a lock), 4 of them for control.

use super::staged::MACHINES_MAX;

/// The units of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchBudget {
    /// All units.
    pub maus: u64,
    /// The register memory of a unit.
    pub mau_bytes: u64,
    /// The units of the control logic.
    pub control_maus: u64,
}

/// The register arrays of a lock, by the bits of a register. A register has 1, 8, 16, 32 or 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockLayout {
    /// The name.
    pub name: &'static str,
    /// The bits of a lock's register in each array.
    pub register_bits: &'static [u64],
    /// The greatest machine.
    pub machines_max: u16,
    /// The bits of a recorded answer: recorded 1, verdict 3, the machine, the count.
    pub answer_bits: u64,
}

impl LockLayout {
    /// Count 16, and a cell of 8: machine 6, exclusive, bars readers.
    pub const CELL8: LockLayout = LockLayout {
        name: "count 16, cell 8",
        register_bits: &[16, 8],
        machines_max: MACHINES_MAX,
        answer_bits: 1 + 3 + 6 + 16,
    };
    /// Count 16, and a cell of 16: machine 14, exclusive, bars readers.
    pub const CELL16: LockLayout = LockLayout {
        name: "count 16, cell 16",
        register_bits: &[16, 16],
        machines_max: (1 << 14) - 1,
        answer_bits: 1 + 3 + 14 + 16,
    };
    /// As published: count 8, machine 8, and two arrays of one bit. It records no answers.
    pub const PUBLISHED: LockLayout = LockLayout {
        name: "published, 18 bits",
        register_bits: &[8, 8, 1, 1],
        machines_max: u8::MAX as u16,
        answer_bits: 0,
    };

    /// The bits of the register that holds a recorded answer.
    fn answer_register_bits(&self) -> u64 {
        [0, 8, 16, 32, 64].into_iter().find(|bits| *bits >= self.answer_bits).unwrap_or(64)
    }
}

/// The sizes of the switch's lanes. A lane numbers the packets of one thread of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneShape {
    /// Machines.
    pub machines: u16,
    /// Lanes of a machine.
    pub threads: u16,
    /// Answers that a lane records.
    pub window: u32,
}

/// How a switch is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fit {
    /// Locks that fit.
    pub locks: u64,
    /// Bytes of the last numbers of the lanes and of the number of packets.
    pub sequence_bytes: u64,
    /// Bytes of the recorded answers.
    pub answer_bytes: u64,
    /// Units of the lanes beyond those of the control logic.
    pub extra_maus: u64,
    /// Units of the locks.
    pub lock_maus: u64,
}

/// A switch that cannot be filled so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overfull {
    /// More machines than a cell can name.
    Machines {
        /// The machines.
        machines: u16,
        /// The greatest number of them.
        allowed: u16,
    },
    /// The lanes leave no unit to the locks.
    Lanes {
        /// The units that the lanes take.
        maus: u64,
        /// All units.
        allowed: u64,
    },
}

impl std::fmt::Display for Overfull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Overfull::Machines { machines, allowed } => {
                write!(f, "{machines} machines: cells of this layout name up to {allowed}")
            }
            Overfull::Lanes { maus, allowed } => {
                write!(f, "lanes of {maus} match-action units: the switch has {allowed}")
            }
        }
    }
}

/// Bytes of the two halves of the number of packets.
const TOKEN_BYTES: u64 = 8;
/// Bytes of a lane's last number.
const LAST_BYTES: u64 = 4;

impl SwitchBudget {
    /// The switch of the paper, with this many units for control: 4 as published, 2 at best.
    #[must_use]
    pub const fn published(control_maus: u64) -> SwitchBudget {
        SwitchBudget { maus: 12, mau_bytes: 560_000, control_maus }
    }

    /// Locks that fit `maus` units.
    fn locks_in(&self, layout: &LockLayout, maus: u64) -> u64 {
        let mau_bits = self.mau_bytes * 8;
        let needs = |locks: u64| -> u64 {
            layout.register_bits.iter().map(|bits| (locks * bits).div_ceil(mau_bits)).sum()
        };
        // The units needed grow with the locks: the greatest number that fits, bit by bit.
        (0..u32::BITS).rev().fold(0, |locks, bit| {
            let more = locks | 1 << bit;
            if needs(more) <= maus { more } else { locks }
        })
    }

    /// Locks that fit if lanes cost nothing.
    #[must_use]
    pub fn locks_alone(&self, layout: &LockLayout) -> u64 {
        self.locks_in(layout, self.maus.saturating_sub(self.control_maus))
    }

    /// Locks that fit beside these lanes.
    ///
    /// # Errors
    /// The layout does not name that many machines, or the lanes leave no unit to the locks.
    pub fn locks_beside(&self, layout: &LockLayout, lanes: LaneShape) -> Result<Fit, Overfull> {
        let LaneShape { machines, threads, window } = lanes;
        if machines > layout.machines_max {
            return Err(Overfull::Machines { machines, allowed: layout.machines_max });
        }
        let lanes = u64::from(machines) * u64::from(threads);
        let sequence_bytes = lanes * LAST_BYTES + TOKEN_BYTES;
        // Machines and lanes have 16 bits each and the window 32: the product with the bits of an answer may not fit 64.
        let answers = lanes.saturating_mul(u64::from(window));
        let answer_bytes = answers.saturating_mul(layout.answer_register_bits()) / 8;
        // The numbers come before the locks, the answers after them: they share no unit.
        let maus = sequence_bytes.div_ceil(self.mau_bytes) + answer_bytes.div_ceil(self.mau_bytes);
        let extra_maus = maus.saturating_sub(self.control_maus);
        let taken = self.control_maus + extra_maus;
        if taken >= self.maus {
            return Err(Overfull::Lanes { maus: taken, allowed: self.maus });
        }
        let lock_maus = self.maus - taken;
        let locks = self.locks_in(layout, lock_maus);
        Ok(Fit { locks, sequence_bytes, answer_bytes, extra_maus, lock_maus })
    }
}

/// Lanes of a rack: as many machines as a cell of 8 bits names, 8 threads each, a window of 64.
const RACK: LaneShape = LaneShape { machines: MACHINES_MAX, threads: 8, window: 64 };
/// Lanes of several racks.
const RACKS: LaneShape = LaneShape { machines: 1_000, ..RACK };

/// The units of control of the published switch: at best, and as published.
const CONTROL_MAUS: [u64; 2] = [2, 4];

/// The locks that fit the published switch, as a table in Markdown: with 2 and with 4 units of control.
#[must_use]
pub fn report() -> String {
    let mut text = String::from(
        "| registers of a lock | locks, 2 / 4 units of control | machines | lanes | locks beside lanes |\n\
         |---|---|---|---|---|\n",
    );
    let cases = [
        (LockLayout::CELL8, Some(RACK)),
        (LockLayout::CELL16, Some(RACK)),
        (LockLayout::CELL16, Some(RACKS)),
        (LockLayout::PUBLISHED, None),
    ];
    let both = |of: &dyn Fn(SwitchBudget) -> String| {
        CONTROL_MAUS.map(|control| of(SwitchBudget::published(control))).join(" / ")
    };
    for (layout, lanes) in cases {
        let alone = both(&|switch| grouped(switch.locks_alone(&layout)));
        let Some(lanes) = lanes else {
            text += &format!("| {} | {alone} | | none | |\n", layout.name);
            continue;
        };
        let fit = |switch: SwitchBudget| switch.locks_beside(&layout, lanes);
        let bytes = |fit: Fit| {
            format!("{} KB", grouped((fit.sequence_bytes + fit.answer_bytes).div_ceil(1_000)))
        };
        let bytes =
            fit(SwitchBudget::published(CONTROL_MAUS[0])).map_or_else(|it| it.to_string(), bytes);
        let beside = both(&|switch| {
            fit(switch).map_or_else(|refused| refused.to_string(), |fit| grouped(fit.locks))
        });
        let machines = grouped(u64::from(lanes.machines));
        text += &format!("| {} | {alone} | {machines} | {bytes} | {beside} |\n", layout.name);
    }
    text
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_computed_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/locks-decider.md");
        let page = std::fs::read_to_string(page).expect("the page on deciders");
        for line in report().lines() {
            assert!(page.contains(line), "docs/locks-decider.md lacks the line\n{line}");
        }
    }

    const THREADS: u16 = 8;
    const WINDOW: u32 = 64;

    #[test]
    fn the_known_numbers() {
        let of = |layout: &LockLayout| {
            [2, 4].map(|control| SwitchBudget::published(control).locks_alone(layout))
        };
        assert_eq!(of(&LockLayout::CELL8), [1_680_000, 1_400_000]);
        assert_eq!(of(&LockLayout::CELL16), [1_400_000, 1_120_000]);
        assert_eq!(of(&LockLayout::PUBLISHED), [2_240_000, 1_680_000]);
    }

    #[test]
    fn lanes_cost_units_once_the_control_logic_has_no_more_room() {
        let switch = SwitchBudget::published(2);
        let lanes = |machines| LaneShape { machines, threads: THREADS, window: WINDOW };
        let fit = switch.locks_beside(&LockLayout::CELL8, lanes(63)).expect("fits");
        // 504 lanes: 2 KB of numbers, 129 KB of answers. Both lie in the two units of control.
        assert_eq!(fit.sequence_bytes, 504 * 4 + 8);
        assert_eq!(fit.answer_bytes, 504 * 64 * 4);
        assert_eq!((fit.extra_maus, fit.lock_maus, fit.locks), (0, 10, 1_680_000));
        // An answer with 14 bits of machine is 34 bits: a register of 64. 1,000 machines take 8 units.
        let fit = switch.locks_beside(&LockLayout::CELL16, lanes(1_000)).expect("fits");
        assert_eq!(fit.answer_bytes, 8_000 * 64 * 8);
        assert_eq!((fit.extra_maus, fit.lock_maus, fit.locks), (7, 3, 280_000));
        let full = switch.locks_beside(&LockLayout::CELL16, lanes(16_383));
        assert_eq!(full, Err(Overfull::Lanes { maus: 121, allowed: 12 }));
    }

    #[test]
    fn more_answers_than_any_number_of_bytes_are_refused() {
        let lanes = LaneShape { machines: 16_383, threads: u16::MAX, window: u32::MAX };
        let refused = SwitchBudget::published(2).locks_beside(&LockLayout::CELL16, lanes);
        assert!(matches!(refused, Err(Overfull::Lanes { allowed: 12, .. })), "{refused:?}");
    }

    #[test]
    fn a_64th_machine_is_refused() {
        let lanes = LaneShape { machines: 64, threads: 1, window: 1 };
        let refused = SwitchBudget::published(2).locks_beside(&LockLayout::CELL8, lanes);
        assert_eq!(refused, Err(Overfull::Machines { machines: 64, allowed: 63 }));
        let text = refused.err().map(|refused| refused.to_string());
        assert_eq!(text.as_deref(), Some("64 machines: cells of this layout name up to 63"));
    }
}
