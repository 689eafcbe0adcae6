//! The decider as a program in the driver of an interface: one program for each view.
//!
//! Invariants: from the process's start to its end the interface has a program of this process. Counters of older views are kept, so
//! that the sums only go up.

use super::DeciderError;
use super::plane::choice;
use crate::config::Config;
use crate::os;
use std::net::SocketAddr;
use tarn_locks::decider::Entry;
use tarn_locks::value::{LockId, View};
use tarn_xdp::config::is_held;
use tarn_xdp::counters::Counter;
use tarn_xdp::kernel::{Failed, Kind, Program};

/// A program on an interface.
#[derive(Debug)]
pub(super) struct Driver {
    config: Config,
    at: SocketAddr,
    interface: String,
    /// `None`: the kernel has refused to replace it, and the process ends.
    program: Option<Program>,
    is_deciding: bool,
    /// Counters of the programs of older views, in the order of [`Counter::ALL`].
    past: [u64; Counter::ALL.len()],
}

impl Driver {
    /// Puts a program on an interface that lets all frames pass: the first view has not begun yet.
    pub(super) fn open(
        config: &Config,
        at: SocketAddr,
        interface: &str,
    ) -> Result<Driver, DeciderError> {
        let failed = |error: Failed| match error.is_no_interface() {
            true => choice("--xdp", interface, "an interface of this machine"),
            false => DeciderError::Kernel(interface.to_owned(), error.to_string()),
        };
        let mut program =
            Program::load(Kind::Pass, &config.program(View(0), at), &[]).map_err(failed)?;
        program.attach(interface).map_err(failed)?;
        Ok(Driver {
            config: config.clone(),
            at,
            interface: interface.to_owned(),
            program: Some(program),
            is_deciding: false,
            past: [0; Counter::ALL.len()],
        })
    }

    /// Replaces the program by the one of a view.
    pub(super) fn begin(
        &mut self,
        view: View,
        entries: &[(LockId, Entry)],
    ) -> Result<(), DeciderError> {
        let config = self.config.program(view, self.at);
        let kernel =
            |error: Failed| DeciderError::Kernel(self.interface.clone(), error.to_string());
        let mut next = Program::load(Kind::Decider, &config, entries).map_err(kernel)?;
        let older = self.program.take().ok_or(Failed::Missing("program")).map_err(kernel)?;
        let older = next.replace(older).map_err(kernel)?;
        for (past, counter) in self.past.iter_mut().zip(Counter::ALL) {
            *past += older.count(counter).unwrap_or(0);
        }
        (self.program, self.is_deciding) = (Some(next), true);
        Ok(())
    }

    /// Locks that are held, from the program's map.
    pub(super) fn held(&self) -> u64 {
        let locks = self.program.as_ref().filter(|_| self.is_deciding).map(Program::locks);
        let Some(Ok(locks)) = locks else { return 0 };
        os::count_words(locks, self.config.locks as usize, is_held).unwrap_or(0)
    }

    /// The interface, and the counters.
    pub(super) fn counters(&self) -> (String, Vec<(String, u64)>) {
        let counted = |counter| self.program.as_ref().and_then(|it| it.count(counter).ok());
        let counters = self.past.iter().zip(Counter::ALL).map(|(past, counter)| {
            (counter.name().to_owned(), past + counted(counter).unwrap_or(0))
        });
        (self.interface.clone(), counters.collect())
    }
}
