//! The place that answers questions: the decider's process, or a program in the driver of an interface (XDP).
//!
//! Invariants: a place answers in one view. A view's place has the view's entries before a machine hears that the view has begun. A program
//! may go on in its old view until then: machines of the new view drop its answers. It leaves the interface when the process ends.

use super::DeciderError;
use crate::config::Config;
use std::net::SocketAddr;
use tarn_locks::decider::{Decider, Entry, Fanout, Setup};
use tarn_locks::value::{LockId, View};

/// The place of a cluster's decider.
#[derive(Debug)]
pub struct Plane {
    place: Place,
    setup: Setup,
    locks: u32,
}

#[derive(Debug)]
enum Place {
    /// `None`: no view has begun.
    Process(Option<Box<Decider>>),
    #[cfg(feature = "xdp")]
    Driver(Box<super::driver::Driver>),
}

impl Plane {
    /// The process itself.
    #[must_use]
    pub fn process(config: &Config) -> Plane {
        // Machines of such a cluster send copies and agents on, wherever the decider is.
        let fanout = if config.xdp { Fanout::Answers } else { Setup::PROCESS.fanout };
        let setup = Setup { fanout, ..Setup::PROCESS };
        Plane { place: Place::Process(None), setup, locks: config.locks }
    }

    /// The place that the command line and the configuration agree on. An interface takes a program that lets all frames pass until the
    /// first view begins.
    ///
    /// # Errors
    /// They do not agree, this program was built without XDP, or the interface takes no program.
    pub fn open(
        config: &Config,
        at: SocketAddr,
        interface: Option<&str>,
    ) -> Result<Plane, DeciderError> {
        match (interface, config.xdp) {
            (None, false) => Ok(Plane::process(config)),
            (None, true) => {
                let allowed = "false, or a decider that is started with --xdp INTERFACE";
                Err(choice("xdp", format!("true in {}", config.file.display()), allowed))
            }
            (Some(interface), false) => {
                let file = config.file.display();
                Err(choice("--xdp", interface, format!("only with xdp = true in {file}")))
            }
            (Some(interface), true) if is_loopback(interface) => {
                let allowed = "an interface to other machines: loopback has no driver";
                Err(choice("--xdp", interface, allowed))
            }
            (Some(interface), true) => Plane::driver(config, at, interface),
        }
    }

    #[cfg(feature = "xdp")]
    fn driver(config: &Config, at: SocketAddr, interface: &str) -> Result<Plane, DeciderError> {
        let driver = super::driver::Driver::open(config, at, interface)?;
        Ok(Plane { place: Place::Driver(Box::new(driver)), ..Plane::process(config) })
    }

    #[cfg(not(feature = "xdp"))]
    fn driver(_: &Config, _: SocketAddr, interface: &str) -> Result<Plane, DeciderError> {
        let allowed =
            "in a program that was built with clang by `cargo build --release --features xdp`";
        Err(choice("--xdp", interface, allowed))
    }

    /// A view begins.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn begin(&mut self, view: View, entries: &[(LockId, Entry)]) -> Result<(), DeciderError> {
        match &mut self.place {
            Place::Process(decider) => {
                let rebuilt = Decider::rebuilt(self.setup, view, self.locks, entries);
                *decider = Some(Box::new(rebuilt));
                Ok(())
            }
            #[cfg(feature = "xdp")]
            Place::Driver(driver) => driver.begin(view, entries),
        }
    }

    /// A view ends. A program in a driver is replaced only when the next view begins.
    pub fn end(&mut self) {
        match &mut self.place {
            Place::Process(decider) => *decider = None,
            #[cfg(feature = "xdp")]
            Place::Driver(_) => {}
        }
    }

    /// The decider for datagrams that reach the process in a view.
    pub fn decider(&mut self, view: View) -> Option<&mut Decider> {
        match &mut self.place {
            Place::Process(decider) => decider.as_deref_mut().filter(|it| it.view() == view),
            #[cfg(feature = "xdp")]
            Place::Driver(_) => None,
        }
    }

    /// Locks that are held. 0: no view has begun, or the kernel does not tell.
    #[must_use]
    pub fn held(&self) -> u64 {
        match &self.place {
            Place::Process(None) => 0,
            Place::Process(Some(decider)) => {
                let entries = (0..self.locks).filter_map(|lock| decider.entry(LockId(lock)));
                entries.filter(|entry| entry.held.is_some()).count() as u64
            }
            #[cfg(feature = "xdp")]
            Place::Driver(driver) => driver.held(),
        }
    }

    /// The interface with the program, and the program's counters. `None`: the process is the decider.
    #[must_use]
    pub fn counters(&self) -> Option<(String, Vec<(String, u64)>)> {
        match &self.place {
            Place::Process(_) => None,
            #[cfg(feature = "xdp")]
            Place::Driver(driver) => Some(driver.counters()),
        }
    }
}

/// A choice of the caller that is refused.
/// Whether this is the loopback interface of this machine.
fn is_loopback(interface: &str) -> bool {
    // IFF_LOOPBACK of linux/if.h.
    const LOOPBACK: u32 = 0x8;
    let flags = std::fs::read_to_string(format!("/sys/class/net/{interface}/flags"));
    let flags = flags
        .ok()
        .and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
    flags.is_some_and(|flags| flags & LOOPBACK != 0)
}

pub(super) fn choice(
    field: &'static str,
    value: impl Into<String>,
    allowed: impl Into<String>,
) -> DeciderError {
    DeciderError::Choice { field, value: value.into(), allowed: allowed.into() }
}
