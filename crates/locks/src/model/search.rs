//! The search over all states of a cluster, by several threads.
//!
//! Invariant: a state is looked at once, known by a hash of 64 bits: of 10⁸ states, two have one hash with a probability of 0.03 %. From each state a path without new events is followed until it ends
//! or meets a state whose path is known to end.

use super::bounds::{Action, Bounds, Violation};
use super::cluster::{Act, State, Tables, World};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How far a search goes.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The number of threads that search.
    pub threads: usize,
    /// The search ends undecided when this is true. It is asked again and again, with the number of states so far.
    pub is_over: &'a (dyn Fn(usize) -> bool + Sync),
}

/// A violation, with the events that lead to it.
#[derive(Clone, Debug)]
pub struct Found {
    /// What must never be.
    pub violation: Violation,
    /// From the first state.
    pub path: Vec<Action>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// States that were looked at.
    pub states: usize,
    /// Steps that were taken.
    pub steps: usize,
    /// Every state was looked at.
    pub is_exhausted: bool,
    /// The first violation that was found.
    pub found: Option<Found>,
}

/// The number of parts in which states are kept, so that threads seldom wait for each other.
const PARTS: usize = 256;

/// One of this number of states, by its hash, is followed to its end although its path without new events begins with a packet that arrives.
const FOLLOWED_ONE_IN: u64 = 1024;

/// The hashes of states, which are spread already.
struct Seen(Vec<Mutex<HashSet<u64, BuildHasherDefault<Itself>>>>);

impl Seen {
    fn new() -> Seen {
        Seen((0..PARTS).map(|_| Mutex::default()).collect())
    }

    /// Adds a state. Returns whether it is new.
    fn add(&self, state: u64) -> bool {
        lock(&self.0[(state >> 56) as usize]).insert(state)
    }

    fn len(&self) -> usize {
        self.0.iter().map(|part| lock(part).len()).sum()
    }
}

/// A hash of a hash: itself.
#[derive(Clone, Copy, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, _: &[u8]) {
        unreachable!("states are known by 64 bits");
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // The upper bits choose the part, the lower ones the place; a table wants its tags in the upper bits.
        self.0 = word.rotate_left(8);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread of the search panics")
}

/// The events that led to a state, newest first.
struct Step {
    act: Act,
    before: Path,
}

type Path = Option<Arc<Step>>;

struct Search<'a> {
    bounds: &'a Bounds,
    limits: Limits<'a>,
    tables: Tables,
    seen: Seen,
    todo: Mutex<Vec<(State, Path)>>,
    working: AtomicUsize,
    steps: AtomicUsize,
    states: AtomicUsize,
    stops: AtomicBool,
    found: Mutex<Option<Found>>,
}

/// Looks at all states within the bounds, until a violation is found.
#[must_use]
pub fn search(bounds: &Bounds, limits: Limits<'_>) -> Outcome {
    let search = Search {
        bounds,
        limits,
        tables: Tables::default(),
        seen: Seen::new(),
        todo: Mutex::default(),
        working: AtomicUsize::new(0),
        steps: AtomicUsize::new(0),
        states: AtomicUsize::new(0),
        stops: AtomicBool::new(false),
        found: Mutex::new(None),
    };
    let first = World::new(bounds, &search.tables).first();
    search.seen.add(first.fingerprint());
    lock(&search.todo).push((first, None));
    std::thread::scope(|scope| {
        for _ in 0..limits.threads {
            scope.spawn(|| search.work());
        }
    });
    let found = lock(&search.found).take();
    Outcome {
        states: search.seen.len(),
        steps: search.steps.load(Ordering::Relaxed),
        is_exhausted: !search.stops.load(Ordering::Relaxed),
        found,
    }
}

impl Search<'_> {
    fn work(&self) {
        let mut world = World::new(self.bounds, &self.tables);
        let (mut own, mut acts, mut taken) = (Vec::new(), Vec::new(), 0);
        while !self.stops.load(Ordering::Relaxed) {
            let Some((state, path)) = own.pop() else {
                if !self.fetch(&mut own) {
                    break;
                }
                continue;
            };
            taken += self.visit(&state, &path, (&mut world, &mut own, &mut acts));
            if own.len() > 64 && lock(&self.todo).is_empty() {
                // The oldest states have the most work behind them.
                lock(&self.todo).extend(own.drain(..32));
            }
        }
        self.steps.fetch_add(taken, Ordering::Relaxed);
    }

    /// Takes states of others over; `false` at the end.
    fn fetch(&self, own: &mut Vec<(State, Path)>) -> bool {
        self.working.fetch_add(1, Ordering::SeqCst);
        loop {
            {
                let mut todo = lock(&self.todo);
                if !todo.is_empty() {
                    let half = todo.len().div_ceil(2);
                    own.extend(todo.drain(..half));
                    self.working.fetch_sub(1, Ordering::SeqCst);
                    return true;
                }
            }
            let all_wait = self.working.load(Ordering::SeqCst) == self.limits.threads;
            if all_wait || self.stops.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Looks at a state. Returns the number of steps that were taken from it.
    fn visit(
        &self,
        state: &State,
        path: &Path,
        (world, own, acts): (&mut World<'_>, &mut Vec<(State, Path)>, &mut Vec<Act>),
    ) -> usize {
        if self.states.fetch_add(1, Ordering::Relaxed).is_multiple_of(1 << 14)
            && (self.limits.is_over)(self.seen.len())
        {
            self.stops.store(true, Ordering::Relaxed);
        }
        // Each state on the path without new events is looked at itself, so that its first step is enough, but for circles: a circle sends
        // something again.
        let drained = match world.drain(state) {
            Ok(Some(Act::Resend)) => self.follow(state, world),
            Ok(_) if state.fingerprint().is_multiple_of(FOLLOWED_ONE_IN) => {
                self.follow(state, world)
            }
            Ok(_) => Ok(()),
            Err(violation) => Err((violation, Vec::new())),
        };
        if let Err((violation, tail)) = drained {
            self.report(world, violation, path, tail);
            return 0;
        }
        acts.clear();
        world.acts(state, acts);
        for &act in acts.iter() {
            let mut next = *state;
            match world.take(&mut next, act) {
                Ok(()) if world.is_vain(&next, act) => {}
                Ok(()) if !self.seen.add(next.fingerprint()) => {}
                Ok(()) => own.push((next, Some(Arc::new(Step { act, before: path.clone() })))),
                Err(violation) => self.report(world, violation, path, vec![act]),
            }
        }
        acts.len()
    }

    /// Follows a state to its end without new events.
    fn follow(&self, state: &State, world: &mut World<'_>) -> Result<(), (Violation, Vec<Act>)> {
        const STEPS_MAX: usize = 2_000;
        let (mut at, mut tail) = (*state, Vec::new());
        loop {
            let act = match world.drain(&at) {
                Ok(None) => return Ok(()),
                Ok(Some(act)) => act,
                Err(violation) => return Err((violation, tail)),
            };
            tail.push(act);
            if let Err(violation) = world.take(&mut at, act) {
                return Err((violation, tail));
            }
            if tail.len() > STEPS_MAX {
                return Err((Violation::Endless, tail));
            }
        }
    }

    fn report(&self, world: &mut World<'_>, violation: Violation, path: &Path, tail: Vec<Act>) {
        let (mut at, mut acts) = (path.as_ref(), Vec::new());
        while let Some(step) = at {
            acts.push(step.act);
            at = step.before.as_ref();
        }
        acts.reverse();
        acts.extend(tail);
        let path = acts.into_iter().map(|act| world.action(act)).collect();
        lock(&self.found).get_or_insert(Found { violation, path });
        self.stops.store(true, Ordering::Relaxed);
    }
}
