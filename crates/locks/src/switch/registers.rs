//! Register arrays of a switch, which a packet touches once each, in the order of the stages.
//!
//! Invariant: a packet has one [`Pass`]. Touching an array, or going past it, takes the pass in and gives
//! back one for the next array. So a second touch, or a touch in another order, does not compile:
//!
//! ```compile_fail
//! use tarn_locks::switch::registers::{Array, Pass, Sequence};
//! fn twice(array: &mut Array<Sequence>, pass: Pass<Sequence>) {
//!     let (_, next) = array.touch(pass, 0, |cell| *cell += 1);
//!     array.touch(next, 0, |cell| *cell += 1);
//! }
//! ```
//!
//! ```
//! use tarn_locks::switch::registers::{Array, Pass, Sequence, TokenLow};
//! fn once(array: &mut Array<Sequence>, pass: Pass<Sequence>) -> Pass<TokenLow> {
//!     array.touch(pass, 0, |cell| *cell += 1).1
//! }
//! ```
//! A touch reads and writes one cell: the closure stands for the array's arithmetic unit.

use std::marker::PhantomData;

/// A stage that holds one register array.
pub trait Stage {
    /// A register.
    type Cell: Copy + Default;
    /// The stage after it.
    type Next;
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident: $cell:ty => $next:ident;)*) => {
        $($(#[$doc])*
        #[derive(Debug)]
        pub struct $name;
        impl Stage for $name {
            type Cell = $cell;
            type Next = $next;
        })*
    };
}

stages! {
    /// The last number of each lane.
    Sequence: u32 => TokenLow;
    /// The low half of the number of packets.
    TokenLow: u32 => TokenHigh;
    /// The high half of the number of packets.
    TokenHigh: u32 => Count;
    /// The count of each lock.
    Count: u16 => Cell;
    /// The cell of each lock: {machine 6, bars readers 1, exclusive 1}; 0 is free.
    Cell: u8 => Answers;
    /// The recorded answers of each lane: {recorded 1, verdict 3, machine 6, number 16}.
    Answers: u32 => Out;
}

/// The end of the pipeline.
#[derive(Debug)]
pub struct Out;

/// A packet's right to touch the array of a stage.
#[derive(Debug)]
pub struct Pass<S>(PhantomData<S>);

impl Pass<Sequence> {
    /// The pass of a packet that enters the pipeline.
    pub(super) fn enter() -> Pass<Sequence> {
        Pass(PhantomData)
    }
}

impl<S: Stage> Pass<S> {
    /// Goes past the array.
    #[must_use]
    pub fn skip(self) -> Pass<S::Next> {
        Pass(PhantomData)
    }
}

/// A register array.
#[derive(Debug)]
pub struct Array<S: Stage> {
    cells: Vec<S::Cell>,
}

impl<S: Stage> Array<S> {
    /// An array of zeros.
    #[must_use]
    pub fn new(cells: usize) -> Array<S> {
        Array { cells: vec![S::Cell::default(); cells] }
    }

    /// Reads and writes one register.
    #[inline]
    pub fn touch<R>(
        &mut self,
        _pass: Pass<S>,
        at: usize,
        unit: impl FnOnce(&mut S::Cell) -> R,
    ) -> (R, Pass<S::Next>) {
        (unit(&mut self.cells[at]), Pass(PhantomData))
    }

    /// The control plane's write, while no packet passes.
    pub fn preset(&mut self, at: usize, cell: S::Cell) {
        self.cells[at] = cell;
    }

    /// The control plane's read.
    #[must_use]
    pub fn peek(&self, at: usize) -> S::Cell {
        self.cells[at]
    }
}
