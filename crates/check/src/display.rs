//! Prints anomalies in words. A cycle gets one line per edge, and any other anomaly gets one
//! sentence.
//!
//! Invariant: times are printed exactly, so two different times never look alike. Nanoseconds are
//! printed as milliseconds, and trailing zeros after the third decimal are omitted.

use std::fmt;

use crate::anomaly::{
    Anomaly, AnomalyKind, CycleClass, CyclePhenomenon, Dependency, LongerCycle, Party, RecordName,
    Seen, Step,
};

/// A time in nanoseconds, which prints as milliseconds with at least three decimals.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest % 1_000 == 0 {
            write!(f, "{whole}.{:03}", rest / 1_000)
        } else {
            write!(f, "{whole}.{rest:06}")
        }
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.table, self.key)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { txn, coordinator, invoked_ns, completed_ns } = self;
        let invoked = Millis(*invoked_ns);
        match completed_ns {
            Some(end) => {
                write!(f, "{txn} (coordinator {coordinator}, {invoked}–{} ms)", Millis(*end))
            }
            None => write!(f, "{txn} (coordinator {coordinator}, {invoked} ms–end unknown)"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(version) => write!(f, "read {version}"),
            Self::Absent(floor) => write!(f, "found it absent as of {floor}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.txn, self.to.txn);
        write!(f, "{} -{}-> {to}: ", self.from, self.dependency.short())?;
        match &self.dependency {
            Dependency::WriteWrite { record, first, second } => {
                write!(f, "{record} {from} wrote {first}, {to} wrote {second}")
            }
            Dependency::WriteRead { record, written, seen } => {
                write!(f, "{record} {from} wrote {written}, {to} {seen}")
            }
            Dependency::ReadWrite { record, seen, written } => {
                write!(f, "{record} {from} {seen}, {to} wrote {written}")
            }
            Dependency::RealTime => {
                let end = Millis(self.from.completed_ns.unwrap_or_default());
                let start = Millis(self.to.invoked_ns);
                write!(f, "{from} completed at {end} ms before {to} was invoked at {start} ms")
            }
        }
    }
}

impl Dependency {
    /// Returns the short name of the edge's kind: ww, wr, rw or rt.
    pub fn short(&self) -> &'static str {
        match self {
            Self::WriteWrite { .. } => "ww",
            Self::WriteRead { .. } => "wr",
            Self::ReadWrite { .. } => "rw",
            Self::RealTime => "rt",
        }
    }
}

impl fmt::Display for CyclePhenomenon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::G0 => "G0",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2 => "G2",
        })
    }
}

impl fmt::Display for CycleClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.phenomenon, if self.real_time { "-realtime" } else { "" })
    }
}

impl AnomalyKind {
    /// Returns the anomaly's name, with Adya's name for the anomaly if Adya has named it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AbortedRead => "aborted read (G1a)",
            Self::IntermediateRead => "intermediate read (G1b)",
            Self::UnwrittenVersion => "unwritten version",
            Self::DuplicateVersion => "duplicate version",
            Self::LostUpdate => "lost update",
            Self::ValueMismatch => "value mismatch",
            Self::PresentReadOfDelete => "present read of a delete",
            Self::AbsentReadOfPresent => "absent read of a present record",
            Self::OwnWriteRead => "read of its own write",
            Self::Cycle => "cycle",
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Cycle { class, without_real_time, steps } = self {
            write!(f, "cycle {class} of {} transactions", steps.len())?;
            if let Some(LongerCycle { phenomenon, transactions }) = without_real_time {
                write!(f, " ({phenomenon} of {transactions} without real time)")?;
            }
            write!(f, ":")?;
            return steps.iter().try_for_each(|step| write!(f, "\n    {step}"));
        }
        write!(f, "{}: ", self.kind().name())?;
        self.sentence(f)
    }
}

impl Anomaly {
    fn sentence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AbortedRead { reader, writer, record, seen, written } => write!(
                f,
                "{record} {reader} {seen}; only {writer} did that ({written}), and it aborted"
            ),
            Self::IntermediateRead { reader, writer, record, version, overwritten_by } => write!(
                f,
                "{record} {reader} read {version}, which {writer} itself overwrote with \
                 {overwritten_by}"
            ),
            Self::UnwrittenVersion { reader, record, version, other_initial: None } => write!(
                f,
                "{record} {reader} read {version}, which no transaction wrote and which is not \
                 the initial version"
            ),
            Self::UnwrittenVersion { reader, record, version, other_initial: Some(other) } => {
                let (initial, other_reader) = other;
                write!(
                    f,
                    "{record} {reader} read {version} and {other_reader} read {initial}; no \
                     transaction wrote either, and a record has one initial version"
                )
            }
            Self::DuplicateVersion { first, second, record, version } => {
                write!(f, "{record} {first} and {second} both wrote {version}")
            }
            Self::LostUpdate { txn, record, seen, written, missed, missed_version } => write!(
                f,
                "{record} {txn} {seen} and wrote {written}, but {missed} wrote {missed_version} \
                 in between"
            ),
            Self::ValueMismatch { .. } => self.mismatch(f),
            Self::PresentReadOfDelete { reader, writer, record, version } => {
                write!(f, "{record} {reader} read {version}, by which {writer} deleted the record")
            }
            Self::AbsentReadOfPresent {
                reader,
                record,
                floor,
                present: Some((version, writer)),
            } => {
                write!(
                    f,
                    "{record} {reader} found it absent as of {floor}, but {version} by {writer} \
                     was there"
                )
            }
            Self::AbsentReadOfPresent { reader, record, floor, present: None } => write!(
                f,
                "{record} {reader} found it absent as of {floor}, but its initial version was there"
            ),
            Self::OwnWriteRead { txn, record, seen, written } => write!(
                f,
                "{record} {txn} {seen} and itself wrote {written}; a read shows the record as it \
                 was before its transaction wrote"
            ),
            Self::Cycle { .. } => Ok(()),
        }
    }

    fn mismatch(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::ValueMismatch {
            record,
            version,
            first,
            first_wrote,
            first_fingerprint,
            second,
            second_fingerprint,
        } = self
        else {
            return Ok(());
        };
        let verb = if *first_wrote { "wrote" } else { "read" };
        write!(
            f,
            "{record} {version}: {first} {verb} a value with fingerprint {first_fingerprint:#x}, \
             {second} read one with {second_fingerprint:#x}"
        )
    }
}
