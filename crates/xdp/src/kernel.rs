//! Loads the program into the kernel, runs it on given frames, and puts it on a network interface.
//!
//! Invariant: a program has one view and maps of its own. [`Program::replace`] puts a new program in the
//! place of the old one in one step of the kernel, so that each frame meets one of them.

use crate::config::{Config, OutOfRange, entry_of, word_of};
use crate::counters::Counter;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use aya::programs::xdp::XdpLinkId;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfError, EbpfLoader, TestRun, TestRunOptions};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;
use tarn_locks::decider::{Entry, Refusal};
use tarn_locks::value::LockId;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/decider.bpf.o"));

/// A program of the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The decider.
    Decider,
    /// Sends the datagrams of the decider's port back as they are: the measure of the decider's cost.
    Echo,
    /// Lets all frames pass: the other end of a virtual pair of interfaces needs a program to take in frames.
    Pass,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Decider => "decide",
            Kind::Echo => "echo",
            Kind::Pass => "pass",
        }
    }
}

/// A failure of the kernel or of the loader.
#[derive(Debug)]
pub enum Failed {
    /// A field of the config.
    Config(OutOfRange),
    /// An entry that no word can hold, or a lock that the config does not have.
    Entry(Refusal),
    /// The loader.
    Load(EbpfError),
    /// A program.
    Program(ProgramError),
    /// A map.
    Map(MapError),
    /// The object lacks a part.
    Missing(&'static str),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let with_causes = |f: &mut std::fmt::Formatter<'_>, error: &dyn std::error::Error| {
            write!(f, "{error}")?;
            let mut cause = error.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
            Ok(())
        };
        match self {
            Failed::Config(error) => write!(f, "{error}"),
            Failed::Entry(refusal) => write!(f, "{refusal:?}"),
            Failed::Load(error) => with_causes(f, error),
            Failed::Program(error) => with_causes(f, error),
            Failed::Map(error) => with_causes(f, error),
            Failed::Missing(name) => write!(f, "the object has no {name}"),
        }
    }
}

impl std::error::Error for Failed {}

impl Failed {
    /// Whether the interface that was asked for does not exist.
    #[must_use]
    pub fn is_no_interface(&self) -> bool {
        matches!(self, Failed::Program(ProgramError::UnknownInterface { .. }))
    }
}

impl From<EbpfError> for Failed {
    fn from(error: EbpfError) -> Failed {
        Failed::Load(error)
    }
}

impl From<ProgramError> for Failed {
    fn from(error: ProgramError) -> Failed {
        Failed::Program(error)
    }
}

impl From<MapError> for Failed {
    fn from(error: MapError) -> Failed {
        Failed::Map(error)
    }
}

/// The end of a frame's way through a program: `enum xdp_action` of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The program failed.
    Aborted,
    /// Nothing is sent.
    Dropped,
    /// The kernel's network stack takes the frame.
    Passed,
    /// The frame is sent back through its interface.
    Sent,
}

/// The result of a run on a given frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The end of the frame's way.
    pub action: Action,
    /// The time of one run, by the kernel's clock.
    pub duration: Duration,
}

/// A program in the kernel. It leaves its interface when it is dropped.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
    kind: Kind,
    link: Option<XdpLinkId>,
}

impl Program {
    /// Loads a program, with the entries that are not free.
    ///
    /// # Errors
    /// A config or an entry out of range; a kernel that refuses the program or its maps.
    pub fn load(
        kind: Kind,
        config: &Config,
        entries: &[(LockId, Entry)],
    ) -> Result<Program, Failed> {
        let config = config.checked().map_err(Failed::Config)?;
        let bytes = config.bytes();
        let mut ebpf = EbpfLoader::new()
            .override_global("CONFIG", &bytes[..], true)
            .map_max_entries("LOCKS", config.locks)
            .map_max_entries("LANES", config.lanes())
            .load(OBJECT)?;
        let mut locks = locks_of(&mut ebpf)?;
        for (lock, entry) in entries {
            let fits = entry
                .held
                .is_none_or(|held| (1..=config.machines).contains(&u32::from(held.agent.0)));
            if lock.0 >= config.locks || !fits {
                let refusal = Refusal::Lock { asked: *lock, locks: config.locks };
                return Err(Failed::Entry(refusal));
            }
            locks.set(lock.0, word_of(*entry), 0)?;
        }
        let mut program = Program { ebpf, kind, link: None };
        program.xdp()?.load()?;
        Ok(program)
    }

    fn xdp(&mut self) -> Result<&mut Xdp, Failed> {
        let name = self.kind.name();
        let program = self.ebpf.program_mut(name).ok_or(Failed::Missing(name))?;
        Ok(program.try_into()?)
    }

    /// Puts the program on an interface of this network namespace, in the driver.
    ///
    /// # Errors
    /// The kernel refuses: the interface has another program, or its driver takes none.
    pub fn attach(&mut self, interface: &str) -> Result<(), Failed> {
        self.link = Some(self.xdp()?.attach(interface, XdpMode::Driver)?);
        Ok(())
    }

    /// Puts this program in the place of an older one, in one step. Returns the older one, whose counters stand still.
    ///
    /// # Errors
    /// The kernel refuses, or the older program is on no interface.
    pub fn replace(&mut self, mut older: Program) -> Result<Program, Failed> {
        let link = older.link.take().ok_or(Failed::Missing("interface"))?;
        let link = older.xdp()?.take_link(link)?;
        self.link = Some(self.xdp()?.attach_to_link(link)?);
        Ok(older)
    }

    /// The map of the locks: one word each, which a process may map into its memory ([`crate::config::is_held`]).
    ///
    /// # Errors
    /// The object has no such map.
    pub fn locks(&self) -> Result<BorrowedFd<'_>, Failed> {
        match self.ebpf.map("LOCKS") {
            Some(Map::Array(map)) => Ok(map.fd().as_fd()),
            _ => Err(Failed::Missing("LOCKS")),
        }
    }

    /// Runs the program on a frame, which it may change.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn run(&self, frame: &mut Vec<u8>) -> Result<Ran, Failed> {
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: 1,
            ..TestRunOptions::default()
        };
        let name = self.kind.name();
        let program = self.ebpf.program(name).ok_or(Failed::Missing(name))?;
        let program: &Xdp = program.try_into()?;
        let result = program.test_run(options)?;
        out.truncate(result.data_size_out as usize);
        *frame = out;
        let action = match result.return_value {
            1 => Action::Dropped,
            2 => Action::Passed,
            3 => Action::Sent,
            _ => Action::Aborted,
        };
        Ok(Ran { action, duration: result.duration })
    }

    /// A lock's entry.
    ///
    /// # Errors
    /// The program does not have the lock.
    pub fn entry(&mut self, lock: LockId) -> Result<Entry, Failed> {
        Ok(entry_of(locks_of(&mut self.ebpf)?.get(&lock.0, 0)?))
    }

    /// A counter, over all processors.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count(&self, counter: Counter) -> Result<u64, Failed> {
        let map = self.ebpf.map("COUNTS").ok_or(Failed::Missing("COUNTS"))?;
        let counts: PerCpuArray<&MapData, u64> = PerCpuArray::try_from(map)?;
        let at = Counter::ALL.iter().position(|it| *it == counter).unwrap_or_default();
        Ok(counts.get(&(at as u32), 0)?.iter().sum())
    }
}

fn locks_of(ebpf: &mut Ebpf) -> Result<Array<&mut MapData, u64>, Failed> {
    let map = ebpf.map_mut("LOCKS").ok_or(Failed::Missing("LOCKS"))?;
    Ok(Array::try_from(map)?)
}
