//! The machines of a lock service beside memory, and its views: which machine has the decider, and which locks
//! are held when a view begins.
//!
//! A machine of the service is a thread of a compute node. All threads of a database register here; the service
//! itself is made of the stations ([`tarn_locks::station::Station`]) and of the mail between them.
//!
//! Invariants: a new view begins only when every machine of a member has submitted the holds of its clients,
//! and when every other machine's incarnation is recovered. So the locks of a dead incarnation's transactions
//! stay held until these transactions are settled. A machine's number is never used twice, so nothing of an
//! earlier incarnation of a slot is taken for mail of a later one. A thread that ends leaves the locks of its
//! transactions in doubt behind. No other machine gets these locks until these transactions are settled, or the
//! thread's incarnation is recovered. A view begins on one look at each incarnation's standing.
//!
//! So far this state, like membership and configurations, is memory of the one process in which all compute
//! nodes run. The views follow Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using
//! Lock Fission", OSDI 2024, steps S1 to S3.

use crate::cluster::info::LockServiceNeed;
use crate::cluster::membership::{Membership, Standing};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::Endpoint;
use tarn_fabric::rng::mix;
use tarn_locks::client::Outcome;
use tarn_locks::queue::Profile;
use tarn_locks::recovery::Submission;
use tarn_locks::service::Kind;
use tarn_locks::station::{Counts, NewView, Settings, Station};
use tarn_locks::value::{LockId, Machine, Policy, RequestId, View};
use tarn_store::ids::{Timestamp, TxnId, UsageError};

/// The default number of locks. Records whose addresses have the same hash share a lock.
const LOCKS: u32 = 1 << 16;

/// By default, NetLock keeps one lock of this number in the switch. The lock of a record is a hash, so the records of
/// these locks are a sample. A driver with a trace names the hot locks itself ([`LockStations::set`]).
const HOT_ONE_IN: u32 = 16;
/// The room of a queue in the switch: enough for the coordinators of a small cluster, and little enough to be full.
const HOT_SLOTS: u32 = 4;

/// The settings of a service unless the driver changes them: no lock is declared local.
fn settings_of(need: LockServiceNeed) -> Settings {
    let mut settings = Settings::new(need.kind, LOCKS);
    if need.kind == Kind::NetLock {
        let hot = (0..LOCKS / HOT_ONE_IN).map(|at| LockId(at * HOT_ONE_IN)).collect();
        settings.profile = Profile { hot, slots: HOT_SLOTS };
    }
    settings
}

/// A station, which its own thread drives. Where nodes share a process, other threads may bring it mail.
pub type SharedStation = Arc<Mutex<Station>>;

/// Locks a station.
pub(crate) fn locked(station: &SharedStation) -> MutexGuard<'_, Station> {
    station.lock().expect("no panic under this lock")
}

/// A machine of the service.
struct Member {
    life: NodeId,
    endpoint: Endpoint,
    station: SharedStation,
    /// The machine's submission for the view that is about to begin.
    submission: Option<Submission>,
}

/// Locks of a thread that has ended.
struct Left {
    life: NodeId,
    machine: Machine,
    /// The transaction in doubt that holds the locks; `None`: they belong to a caller without transactions.
    doubt: Option<TxnId>,
    submission: Submission,
}

/// The settings that a driver may change: see [`LockStations::set`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The hot locks of NetLock, in any order.
    pub profile: Profile,
    /// Which waiter comes next.
    pub policy: Policy,
    /// The locks that are declared local, each with its node's incarnation, in any order. They belong to the first
    /// thread of this incarnation that registers. No other thread gets them, even in later incarnations.
    pub local: Vec<(LockId, NodeId)>,
}

/// The state of the service.
struct State {
    /// The settings of all machines. Locks that are declared local are in `local`.
    settings: Settings,
    /// In order.
    local: Vec<(LockId, NodeId)>,
    /// The first machine of each incarnation.
    first_machines: BTreeMap<NodeId, Machine>,
    members: BTreeMap<Machine, Member>,
    last_machine: u16,
    /// The view that began last, with its machines.
    current: Arc<NewView>,
    /// The view that is announced: the current one, or one that has not begun.
    announced: View,
    /// The locks of threads that have ended.
    left_behind: Vec<Left>,
    /// Counts of the machines that have left.
    counts: Counts,
    /// For each incarnation, the number of threads that may still request locks.
    running: BTreeMap<NodeId, u32>,
}

/// The machines of a lock service; see the module's text.
pub struct LockStations {
    need: LockServiceNeed,
    state: Mutex<State>,
    announced: AtomicU32,
    began: AtomicU32,
    /// The membership view in which dead incarnations were last looked for, plus 1.
    looked_in: AtomicU64,
    /// The number of `left_behind`.
    left: AtomicU32,
    /// For each lock, the greatest timestamp that its holders knew when they released it, where threads hand over mail
    /// at once.
    told: Mutex<BTreeMap<LockId, Timestamp>>,
    /// The greatest timestamp that a machine knew when it took part in a change of the view.
    told_by_all: AtomicU64,
}

impl State {
    /// The settings of a machine of this incarnation.
    fn settings_of(&self, machine: Machine, life: NodeId) -> Settings {
        let is_first = self.first_machines.get(&life) == Some(&machine);
        // Machine 0 is none: the locks of other incarnations, and of other threads, are refused here.
        let own = |of: NodeId| if is_first && of == life { machine } else { Machine(0) };
        let local = self.local.iter().map(|(lock, of)| (*lock, own(*of))).collect();
        Settings { local, ..self.settings.clone() }
    }
}

impl LockStations {
    /// A service without machines.
    pub fn new(need: LockServiceNeed) -> LockStations {
        let settings = settings_of(need);
        let current = Arc::new(NewView::new(View(0), &settings, Vec::new(), &[]));
        let state = State {
            settings,
            local: Vec::new(),
            first_machines: BTreeMap::new(),
            members: BTreeMap::new(),
            last_machine: 0,
            current,
            announced: View(0),
            left_behind: Vec::new(),
            counts: Counts::default(),
            running: BTreeMap::new(),
        };
        LockStations {
            need,
            state: Mutex::new(state),
            announced: AtomicU32::new(0),
            began: AtomicU32::new(0),
            looked_in: AtomicU64::new(0),
            left: AtomicU32::new(0),
            told: Mutex::default(),
            told_by_all: AtomicU64::new(0),
        }
    }

    /// Leaves a timestamp for the next holders of a lock.
    pub(crate) fn tell(&self, lock: LockId, known: Timestamp) {
        let mut told = self.told.lock().expect("no panic under this lock");
        let of = told.entry(lock).or_default();
        *of = known.max(*of);
    }

    /// The greatest timestamp that was left for holders of a lock.
    pub(crate) fn told(&self, lock: LockId) -> Timestamp {
        let told = self.told.lock().expect("no panic under this lock");
        told.get(&lock).copied().unwrap_or_default()
    }

    /// Leaves a timestamp for all machines of the next view.
    pub(crate) fn tell_all(&self, known: Timestamp) {
        self.told_by_all.fetch_max(known.0, Ordering::AcqRel);
    }

    /// The greatest timestamp that was left for all machines.
    pub(crate) fn told_by_all(&self) -> Timestamp {
        Timestamp(self.told_by_all.load(Ordering::Acquire))
    }

    /// The protocol's service.
    pub(crate) fn need(&self) -> LockServiceNeed {
        self.need
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Changes the settings, before any thread requests a lock.
    ///
    /// # Errors
    /// A thread has requested a lock already, or a value is out of range. Then no setting is changed.
    pub fn set(&self, change: impl FnOnce(&mut Choice)) -> Result<(), UsageError> {
        let refused = |field: &str, value: String, allowed: String| {
            Err(UsageError { field: field.into(), value, allowed })
        };
        let mut state = self.state();
        if state.last_machine != 0 {
            let allowed = "changes before the first thread requests a lock".to_owned();
            return refused("lock service", format!("{} threads", state.last_machine), allowed);
        }
        let mut choice = Choice {
            profile: state.settings.profile.clone(),
            policy: state.settings.policy,
            local: state.local.clone(),
        };
        change(&mut choice);
        let Choice { mut profile, policy, mut local } = choice;
        let locks = state.settings.locks;
        let mut named = profile.hot.iter().chain(local.iter().map(|(lock, _)| lock));
        if let Some(lock) = named.find(|lock| lock.0 >= locks) {
            return refused("lock", lock.0.to_string(), format!("0 to {}", locks - 1));
        }
        if !profile.hot.is_empty() && profile.slots == 0 {
            return refused("slots", "0".into(), "at least 1 for each hot lock".into());
        }
        profile.hot.sort_unstable();
        profile.hot.dedup();
        local.sort_unstable();
        if let Some(twice) = local.windows(2).find(|two| two[0].0 == two[1].0) {
            let value = twice[0].0.0.to_string();
            return refused("local lock", value, "one node for each lock".into());
        }
        (state.settings.profile, state.settings.policy, state.local) = (profile, policy, local);
        Ok(())
    }

    /// The number of the lock of a record at this address.
    #[inline]
    pub(crate) fn lock_at(&self, address: u64) -> LockId {
        // The settings are not read for this: the number of locks is a power of two that does not change.
        LockId((mix(address) % u64::from(LOCKS)) as u32)
    }

    /// Registers a thread of the incarnation `life`, which receives mail at `endpoint`. A thread of an
    /// incarnation that is no member gets a station that reaches no other. `None`: every number of a machine was used.
    pub(crate) fn join(
        &self,
        life: NodeId,
        endpoint: Endpoint,
        membership: &dyn Membership,
    ) -> Option<(Machine, SharedStation)> {
        let mut state = self.state();
        state.last_machine = state.last_machine.checked_add(1)?;
        let machine = Machine(state.last_machine);
        state.first_machines.entry(life).or_insert(machine);
        let settings = state.settings_of(machine, life);
        if !membership.is_member(life) {
            // No view would ever free the locks that this incarnation took now. Its mail is lost.
            let station = Station::new(settings, machine, View(0), &[]);
            return Some((machine, Arc::new(Mutex::new(station))));
        }
        // A look that has just ended did not see this machine.
        self.looked_in.store(0, Ordering::Release);
        let is_alone = state.members.is_empty();
        let current = Arc::clone(&state.current);
        let station = Station::new(settings, machine, current.view, &current.machines);
        let station = Arc::new(Mutex::new(station));
        let shared = Arc::clone(&station);
        state.members.insert(machine, Member { life, endpoint, station, submission: None });
        // The first machine begins the first view. Under ParLock, each machine has its part of the locks.
        let takes_part = state.settings.kind == Kind::ParLock;
        if is_alone || takes_part {
            self.announce(&mut state);
            self.turn_one(&mut state, machine, 0, membership);
        }
        Some((machine, shared))
    }

    /// Unregisters a thread that ends. `doubts` are its transactions in doubt, with their requests.
    pub(crate) fn leave(&self, machine: Machine, doubts: &[(TxnId, Vec<RequestId>)]) {
        let mut state = self.state();
        let Some(member) = state.members.remove(&machine) else { return };
        let mut station = locked(&member.station);
        state.counts = state.counts.plus(station.counts());
        if station.is_idle() && member.submission.is_none() {
            return;
        }
        let next = View(state.announced.0.max(station.view().0) + 1);
        let submission = station.pause(next);
        drop(station);
        let doubt_of = |request: RequestId| {
            let of = doubts.iter().find(|(_, requests)| requests.contains(&request));
            of.map(|(id, _)| *id)
        };
        let mut left: BTreeMap<Option<TxnId>, Submission> = BTreeMap::new();
        for hold in submission.into_iter().flat_map(|it| it.holds) {
            let of = left.entry(doubt_of(hold.waiter.request)).or_default();
            of.view = next;
            of.holds.push(hold);
        }
        let life = member.life;
        state.left_behind.extend(left.into_iter().map(|(doubt, submission)| Left {
            life,
            machine,
            doubt,
            submission,
        }));
        self.left.store(state.left_behind.len() as u32, Ordering::Release);
        self.announce(&mut state);
    }

    /// Announces the next view.
    fn announce(&self, state: &mut State) {
        state.announced = state.announced.next();
        state.members.values_mut().for_each(|member| member.submission = None);
        self.announced.store(state.announced.0, Ordering::Release);
    }

    /// Whether the locks of an incarnation of this standing may be given to others.
    fn is_over(&self, standing: Standing) -> bool {
        match standing {
            Standing::Recovered => true,
            Standing::Expelled => self.need.frees_at_once,
            Standing::Member | Standing::Unknown => false,
        }
    }

    /// Announces a new view if an incarnation is over since the last look, or if a transaction in doubt is settled whose
    /// thread has ended. `is_open`: whether such a transaction of a member is still in doubt.
    pub(crate) fn look(&self, membership: &dyn Membership, is_open: &dyn Fn(TxnId) -> bool) {
        let view = membership.view().0 + 1;
        let has_left = self.left.load(Ordering::Acquire) > 0;
        if self.looked_in.load(Ordering::Acquire) == view && !has_left {
            return;
        }
        let mut state = self.state();
        self.looked_in.store(view, Ordering::Release);
        let before = state.left_behind.len();
        state.left_behind.retain(|left| {
            // The recovery of an incarnation forgets its transactions before it has settled them. So the incarnation
            // must have been a member when its transaction was looked for.
            let is_settled = left.doubt.is_some_and(|id| !is_open(id));
            !(is_settled && membership.is_member(left.life))
        });
        self.left.store(state.left_behind.len() as u32, Ordering::Release);
        let lives = state.members.values().map(|member| member.life);
        let mut lives = lives.chain(state.left_behind.iter().map(|left| left.life));
        let is_due = state.left_behind.len() < before
            || lives.any(|life| self.is_over(membership.standing(life)));
        if is_due {
            self.announce(&mut state);
        }
    }

    /// Whether a machine in the view `of` has nothing to do here.
    #[inline]
    pub(crate) fn is_current(&self, of: View) -> bool {
        self.announced.load(Ordering::Acquire) == of.0 && self.began.load(Ordering::Acquire) == of.0
    }

    /// Whether no machine has anything to do here.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.announced.load(Ordering::Acquire) == self.began.load(Ordering::Acquire)
    }

    /// Takes a machine's part in a change of the view: it submits, and it resumes when the view has begun.
    pub(crate) fn turn(&self, machine: Machine, now: u64, membership: &dyn Membership) {
        self.turn_one(&mut self.state(), machine, now, membership);
    }

    /// Does the same for all machines of members, on behalf of threads that need not run.
    pub(crate) fn turn_all(&self, now: u64, membership: &dyn Membership) {
        let mut state = self.state();
        for _ in 0..2 {
            let machines: Vec<Machine> = state.members.keys().copied().collect();
            for machine in machines {
                self.turn_one(&mut state, machine, now, membership);
            }
        }
    }

    fn turn_one(&self, state: &mut State, machine: Machine, now: u64, membership: &dyn Membership) {
        let announced = state.announced;
        let Some(member) = state.members.get_mut(&machine) else { return };
        if !membership.is_member(member.life) {
            return;
        }
        let mut station = locked(&member.station);
        if let Some(submission) = station.pause(announced) {
            member.submission = Some(submission);
        }
        drop(station);
        if state.current.view != announced {
            self.begin(state, &|life| membership.standing(life));
        }
        let Some(member) = state.members.get(&machine) else { return };
        if state.current.view == announced && member.submission.is_some() {
            locked(&member.station).resume(now, &state.current);
            if let Some(member) = state.members.get_mut(&machine) {
                member.submission = None;
            }
        }
    }

    /// Begins the announced view, if nothing is missing. Each incarnation's standing is read once: an incarnation that
    /// was expelled after a first look must not be taken for one that is over.
    fn begin(&self, state: &mut State, standing: &dyn Fn(NodeId) -> Standing) {
        let known: RefCell<BTreeMap<NodeId, Standing>> = RefCell::default();
        let standing =
            |life: NodeId| *known.borrow_mut().entry(life).or_insert_with(|| standing(life));
        let is_over = |life: NodeId| self.is_over(standing(life));
        let is_ready = |member: &Member| match standing(member.life) {
            Standing::Member => member.submission.is_some(),
            _ => is_over(member.life),
        };
        let may_begin = |left: &Left| standing(left.life) == Standing::Member || is_over(left.life);
        if !state.members.values().all(is_ready) || !state.left_behind.iter().all(may_begin) {
            return;
        }
        state.left_behind.retain(|left| !is_over(left.life));
        self.left.store(state.left_behind.len() as u32, Ordering::Release);
        let is_gone = |member: &Member| is_over(member.life);
        let gone = state.members.iter().filter(|(_, member)| is_gone(member));
        let gone: Vec<Machine> = gone.map(|(machine, _)| *machine).collect();
        for machine in gone {
            let Some(member) = state.members.remove(&machine) else { continue };
            state.counts = state.counts.plus(locked(&member.station).counts());
        }
        let taking_part = state.members.iter();
        let taking_part = taking_part
            .filter_map(|(machine, member)| Some((*machine, member.submission.clone()?)))
            .collect();
        let mut left: BTreeMap<Machine, Submission> = BTreeMap::new();
        for it in &state.left_behind {
            left.entry(it.machine).or_default().holds.extend_from_slice(&it.submission.holds);
        }
        let left: Vec<(Machine, Submission)> = left.into_iter().collect();
        let next = NewView::new(state.announced, &state.settings, taking_part, &left);
        state.current = Arc::new(next);
        self.began.store(state.announced.0, Ordering::Release);
    }

    /// The endpoint of a machine's thread.
    pub(crate) fn endpoint(&self, machine: Machine) -> Option<Endpoint> {
        self.state().members.get(&machine).map(|member| member.endpoint)
    }

    /// The station of a machine, if its incarnation is a member.
    pub(crate) fn station(
        &self,
        machine: Machine,
        membership: &dyn Membership,
    ) -> Option<SharedStation> {
        let state = self.state();
        let member = state.members.get(&machine)?;
        membership.is_member(member.life).then(|| Arc::clone(&member.station))
    }

    /// Counts a thread that may request locks from now on.
    pub(crate) fn start_running(&self, life: NodeId) {
        *self.state().running.entry(life).or_default() += 1;
    }

    /// Counts the thread no more.
    pub(crate) fn stop_running(&self, life: NodeId) {
        if let Some(threads) = self.state().running.get_mut(&life) {
            *threads -= 1;
        }
    }

    /// Whether any thread of a member may still request locks.
    pub(crate) fn is_any_running(&self, membership: &dyn Membership) -> bool {
        let state = self.state();
        state.running.iter().any(|(life, threads)| *threads > 0 && membership.is_member(*life))
    }

    /// The view that began last.
    pub fn view(&self) -> View {
        self.state().current.view
    }

    /// The machines that are registered.
    pub fn machines(&self) -> Vec<Machine> {
        self.state().members.keys().copied().collect()
    }

    /// The number of requests of this incarnation that wait or hold a lock.
    pub fn requests_of(&self, life: NodeId) -> usize {
        let state = self.state();
        let own = state.members.values().filter(|member| member.life == life);
        own.map(|member| locked(&member.station).requests().len()).sum()
    }

    /// Counts of the mail of all machines so far.
    pub fn counts(&self) -> Counts {
        let state = self.state();
        let each = state.members.values().map(|member| locked(&member.station).counts());
        each.fold(state.counts, Counts::plus)
    }

    /// A digest of the locks that are held and waited for, for code that compares states.
    pub fn digest(&self) -> u64 {
        let state = self.state();
        let mut all = u64::from(state.announced.0 != state.current.view.0);
        for (machine, member) in &state.members {
            let mut locks: Vec<(u32, u64)> = locked(&member.station)
                .requests()
                .into_iter()
                .map(|(_, lock, outcome)| (lock.0, u64::from(matches!(outcome, Outcome::Holds(_)))))
                .collect();
            locks.sort_unstable();
            for (lock, holds) in locks {
                all = mix(all ^ u64::from(machine.0) << 40 ^ u64::from(lock) << 1 ^ holds);
            }
        }
        all
    }
}

#[cfg(test)]
#[path = "lock_stations_tests.rs"]
mod tests;
