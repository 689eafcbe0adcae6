//! Requests of a thread to the lock service, and the thread's mail: it carries the mail that its station sends,
//! and hands over the mail that arrives.
//!
//! Invariants: a thread that waits for a lock also handles the mail of others, so that two threads that wait for each
//! other's machines make progress. Mail may be lost, repeated and reordered; mail that is not answered is sent
//! again. Where all nodes are in one process, mail is handed over at once, under the station's mutex. No thread
//! holds two stations.

use crate::cluster::log_area_owners::Known;
use crate::services::Transport;
use crate::services::lock_stations::{SharedStation, locked};
use crate::site::Context;
use crate::site::thread_locks::{Joined, ThreadLocks};
use crate::transaction::in_doubt::Doubt;
use crate::transaction::working_set::Txn;
use std::collections::VecDeque;
use std::rc::Rc;
use tarn_fabric::address::Address;
use tarn_fabric::backend::{Cost, LOCAL_PARTS, LocalPart};
use tarn_fabric::clock::Nanos;
use tarn_locks::client::Outcome;
use tarn_locks::queue::{MESSAGE_BYTES, Message};
use tarn_locks::service::{Grant, LockService, Patience, Refusal};
use tarn_locks::station::{Arrived, Mail, Post};
use tarn_locks::value::{LockId, Machine, Mode, RequestId, Thread};
use tarn_locks::wire::{Datagram, Item, Key, open};
use tarn_store::ids::{Explanation, Failure, Timestamp, TxnId};

/// A transaction's patience, in units of the time after which mail is sent again. Each transaction adds a random part of
/// it.
pub(crate) const PATIENCE: u64 = 4;
/// A transaction that has the turn is this many times as patient. Until its patience ends, the tries of all others do.
pub(crate) const PATIENT: u64 = 64;
/// The number of datagrams that a thread processes in one step.
const DATAGRAMS_A_POLL: usize = 64;
/// The key of datagrams. All nodes of a database are in one process, and no stranger reaches them.
const KEY: Key = Key([0; 16]);
/// The addressee of datagrams for the decider.
const DECIDER: Machine = Machine(0);
/// Where a datagram of [`tarn_locks::wire`] names its addressee.
const ADDRESSEE_AT: usize = 10;
/// A message of a service with queues, after its addressee.
const ADDRESSED_BYTES: usize = 2 + MESSAGE_BYTES;

/// A request's name in one word.
pub(crate) fn name_of(request: RequestId) -> u64 {
    u64::from(request.machine.0) << 48 | u64::from(request.thread.0) << 32 | u64::from(request.seq)
}

/// The request with this name.
pub(crate) fn named(word: u64) -> RequestId {
    let (machine, thread) = (Machine((word >> 48) as u16), Thread((word >> 32) as u16));
    RequestId { machine, thread, seq: word as u32 }
}

impl Context {
    fn thread_locks(&self) -> &ThreadLocks {
        self.locks.as_ref().expect("a thread of a protocol with a lock service has locks")
    }

    /// The thread's machine in the lock service, which it joins at its first request. `None`: all machine numbers are
    /// used.
    pub(crate) fn joined(&self) -> Option<Rc<Joined>> {
        let locks = self.thread_locks();
        if let Some(joined) = &*locks.joined.borrow() {
            return Some(Rc::clone(joined));
        }
        let (membership, endpoint) = (&*self.database().membership, self.port.endpoint());
        let (machine, station) = locks.stations.join(locks.life, endpoint, membership)?;
        let joined = Rc::new(Joined { machine, station });
        *locks.joined.borrow_mut() = Some(Rc::clone(&joined));
        Some(joined)
    }

    /// The thread's machine in the lock service. The thread joins the service now, if it has requested no lock yet.
    /// `None`: all machine numbers are used.
    pub fn lock_machine(&self) -> Option<Machine> {
        self.joined().map(|joined| joined.machine)
    }

    /// Whether the thread is a machine of a lock service.
    pub(crate) fn is_in_lock_service(&self) -> bool {
        self.locks.as_ref().is_some_and(|locks| locks.joined.borrow().is_some())
    }

    /// Leaves the lock service, unless the thread has coordinators or requests. A thread that goes on but serves no
    /// mail calls this function, so that no other thread waits for it.
    pub(crate) fn leave_lock_service(&self) {
        let Some(locks) = self.locks.as_ref() else { return };
        let Some(joined) = locks.joined.borrow().clone() else { return };
        let has_requests = !locked(&joined.station).requests().is_empty();
        if locks.coordinators.get() == 0 && !has_requests {
            self.serve_locks();
            locks.leave(&[]);
            self.follow_locks();
        }
    }

    /// Leaves the lock service when the thread ends. The locks of its transactions in doubt stay held until these
    /// transactions are settled.
    pub(crate) fn leave_locks_behind(&self) {
        let Some(locks) = self.locks.as_ref() else { return };
        let doubts = self.doubts.list.borrow();
        let requests = |txn: &Txn| -> Vec<RequestId> {
            let all = txn.locks.iter().chain(&txn.shares);
            let all = all.filter(|it| it.held_as.is_by_service()).map(|it| it.met);
            let by_name = txn.held.served.iter().map(|it| it.request);
            all.chain(by_name.filter(|request| *request != 0)).map(named).collect()
        };
        let left = |doubt: &Doubt| Some((doubt.id, requests(doubt.left.as_ref()?)));
        let doubts: Vec<(TxnId, Vec<RequestId>)> = doubts.iter().filter_map(left).collect();
        locks.leave(&doubts);
    }

    /// Looks for incarnations whose locks are free by now, and for transactions in doubt that are settled by now.
    fn look_at_lives(&self, locks: &ThreadLocks) {
        let database = self.database();
        let is_open = |id: TxnId| matches!(database.log_area_owners.known(id), Known::Open { .. });
        locks.stations.look(&*database.membership, &is_open);
    }

    /// The number of the lock that protects the record at this address.
    #[inline]
    pub(crate) fn lock_of(&self, record: Address) -> LockId {
        self.thread_locks().stations.lock_at(record.to_word())
    }

    /// The number of the lock whose name has this hash.
    pub(crate) fn lock_named(&self, hash: u64) -> LockId {
        self.thread_locks().stations.lock_at(hash)
    }

    /// Whether mail carries the sender's greatest timestamp: the protocol needs timestamps, and each holder of a lock
    /// has to know those of earlier holders.
    fn mails_timestamps(&self) -> bool {
        self.has_services()
    }

    /// Leaves the node's greatest timestamp for the next holders of a lock that is about to be released. Where nodes send
    /// messages, the mail carries it.
    pub(crate) fn tell_lock(&self, lock: LockId, committed: Option<Timestamp>) {
        let (locks, known) = (self.thread_locks(), self.timestamps.known(self));
        if !locks.has_messages() {
            locks.stations.tell(lock, known.max(committed.unwrap_or_default()));
        }
    }

    /// Observes the timestamps of earlier holders of a lock that this thread was granted.
    pub(crate) fn hear_lock(&self, lock: LockId) {
        let locks = self.thread_locks();
        if locks.has_messages() {
            return;
        }
        let told = locks.stations.told(lock);
        self.saw_lock(lock, told.0, false);
        self.timestamps.observe(self, told);
    }

    /// Takes part in a change of the view. Timestamps pass from the machines that submit to those that resume, as with
    /// mail: the new view may grant locks that were released in the old one.
    fn turn_locks(&self, locks: &ThreadLocks, joined: &Joined, now: Nanos) {
        let membership = &*self.database().membership;
        if self.mails_timestamps() {
            locks.stations.tell_all(self.timestamps.known(self));
        }
        locks.stations.turn(joined.machine, now.0, membership);
        if self.mails_timestamps() {
            self.timestamps.observe(self, locks.stations.told_by_all());
        }
    }

    /// Requests a lock. The mail leaves with [`Context::serve_locks`]. `None`: this thread cannot get the lock; see
    /// [`Context::no_such_lock`].
    pub(crate) fn ask_lock(&self, lock: LockId, mode: Mode) -> Option<RequestId> {
        let joined = self.joined()?;
        self.charge_lock();
        let request = locked(&joined.station).acquire(self.port.now().0, lock, mode);
        self.saw_lock(lock, u64::from(mode == Mode::Exclusive), true);
        request
    }

    /// Explains that this thread cannot get a lock.
    #[cold]
    pub(crate) fn no_such_lock(&self, lock: LockId) -> Failure {
        let allowed = match self.is_in_lock_service() {
            true => "a lock that is not declared local to another thread",
            false => "at most 65535 threads in the life of a lock service",
        };
        self.explain(Explanation::usage("lock", lock.0, allowed))
    }

    /// How a request stands; `None`: the request has ended.
    pub(crate) fn lock_outcome(&self, request: RequestId, lock: LockId) -> Option<Outcome> {
        let outcome = self.joined().and_then(|it| locked(&it.station).outcome(request));
        let told = match outcome {
            None => 0,
            Some(Outcome::Asked | Outcome::Queued) => 1,
            Some(Outcome::Holds(_)) => 2,
        };
        self.saw_lock(lock, told, false);
        outcome
    }

    /// Ends a request, which holds its lock or waits. The mail leaves with [`Context::serve_locks`].
    pub(crate) fn end_lock(&self, request: RequestId, lock: LockId) {
        self.charge_lock();
        if let Some(joined) = self.joined() {
            locked(&joined.station).end(self.port.now().0, request);
        }
        self.saw_lock(lock, 0, true);
    }

    fn charge_lock(&self) {
        if self.port.charges() {
            self.port.charge(Cost::LocalLookup);
        }
    }

    /// Reports to the explorer that the coroutine has looked at a lock, or has changed it.
    fn saw_lock(&self, lock: LockId, told: u64, changed: bool) {
        if self.thread_locks().ways.transport == Transport::Direct {
            let number = (lock.0 % u32::from(LOCAL_PARTS)) as u16;
            let node = tarn_fabric::address::NodeSlot(0);
            self.port.looked_at(LocalPart { node, number }, told, changed);
        }
    }

    /// Takes part in the lock service: handles mail, follows new views, and sends mail that is ready or due again.
    pub(crate) fn serve_locks(&self) {
        let Some(locks) = &self.locks else { return };
        let Some(joined) = locks.joined.borrow().clone() else { return };
        let joined = &*joined;
        let now = self.port.now();
        match locks.has_messages() {
            true => {
                while self.take_in(joined) == DATAGRAMS_A_POLL {}
                self.look_at_lives(locks);
                let (view, is_paused) = {
                    let station = locked(&joined.station);
                    (station.view(), station.is_paused())
                };
                if is_paused || !locks.stations.is_current(view) {
                    self.turn_locks(locks, joined, now);
                }
            }
            false => self.follow_locks(),
        }
        let pace = locks.ways.pace();
        if now - locks.looked_at.get() >= Nanos(pace.least / 2) {
            locks.looked_at.set(now);
            locked(&joined.station).resend(pace, now.0);
        }
        self.send_mail(locks, joined, now);
        if !locks.has_messages() && now - locks.swept_at.get() >= Nanos(pace.most) {
            locks.swept_at.set(now);
            self.resend_for_all(locks, now);
        }
    }

    /// Where mail is handed over at once: sends the mail of all machines again that is due. Two threads that hand over
    /// mail of one machine may change its order, and a decider ignores a question that comes early. The machine's own
    /// thread may sleep, so each thread that waits sends for all.
    fn resend_for_all(&self, locks: &ThreadLocks, now: Nanos) {
        let membership = &*self.database().membership;
        for machine in locks.stations.machines() {
            if let Some(station) = locks.stations.station(machine, membership) {
                locked(&station).resend(locks.ways.pace(), now.0);
                self.hand_over_mail(locks, &station, now);
            }
        }
    }

    /// Where all nodes are in one process and send no messages: begins a new view, if one is due, on behalf of
    /// all threads. A thread that makes a view due calls this function.
    pub(crate) fn follow_locks(&self) {
        let Some(locks) = self.locks.as_ref().filter(|locks| !locks.has_messages()) else { return };
        let membership = &*self.database().membership;
        self.look_at_lives(locks);
        if locks.stations.is_settled() {
            return;
        }
        let now = self.port.now();
        locks.stations.turn_all(now.0, membership);
        if locks.ways.transport == Transport::Direct {
            (0..u32::from(LOCAL_PARTS)).for_each(|part| self.saw_lock(LockId(part), 0, true));
        }
        for machine in locks.stations.machines() {
            if let Some(station) = locks.stations.station(machine, membership) {
                self.hand_over_mail(locks, &station, now);
            }
        }
    }

    fn send_mail(&self, locks: &ThreadLocks, joined: &Joined, now: Nanos) {
        match locks.has_messages() {
            true => {
                let mut station = locked(&joined.station);
                if !station.has_posts() {
                    return;
                }
                let (view, posts): (_, Vec<Post>) = (station.view(), station.posts().collect());
                drop(station);
                posts.iter().for_each(|post| self.send_post(locks, (joined.machine, view), post));
            }
            false => self.hand_over_mail(locks, &joined.station, now),
        }
    }

    /// Sends mail as a datagram. Mail for a machine that is gone is lost.
    fn send_post(
        &self,
        locks: &ThreadLocks,
        (from, view): (Machine, tarn_locks::value::View),
        post: &Post,
    ) {
        let Some(endpoint) = locks.stations.endpoint(post.to) else { return };
        let mut datagram;
        let sealed = match &post.mail {
            Mail::Message(message) => {
                let mut bytes = [0; ADDRESSED_BYTES];
                bytes[..2].copy_from_slice(&post.to.0.to_le_bytes());
                bytes[2..].copy_from_slice(&message.encode());
                let _ = self.port.send(endpoint, &bytes);
                return;
            }
            Mail::Question(question) => {
                datagram = Datagram::new(view, from, DECIDER);
                datagram.question(question);
                datagram.seal(&KEY)
            }
            Mail::Sent(sent) => {
                datagram = Datagram::new(view, DECIDER, post.to);
                datagram.sent(sent);
                datagram.seal(&KEY)
            }
            Mail::Packet(packet) => {
                datagram = Datagram::new(view, from, post.to);
                datagram.packet(packet);
                datagram.seal(&KEY)
            }
        };
        if !self.mails_timestamps() {
            let _ = self.port.send(endpoint, sealed);
            return;
        }
        let mut stamped = sealed.to_vec();
        stamped.extend_from_slice(&self.timestamps.known(self).0.to_le_bytes());
        let _ = self.port.send(endpoint, &stamped);
    }

    /// Observes the timestamp at the end of a datagram, and returns the rest. `None`: the datagram is too short.
    fn take_timestamp<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        if !self.mails_timestamps() {
            return Some(bytes);
        }
        let (rest, stamp) = bytes.split_last_chunk::<8>()?;
        self.timestamps.observe(self, Timestamp(u64::from_le_bytes(*stamp)));
        Some(rest)
    }

    /// Takes in datagrams that have arrived. Returns their number.
    fn take_in(&self, joined: &Joined) -> usize {
        let now = self.port.now().0;
        let mut arrived: Vec<Arrived> = Vec::new();
        let mut take_one = |bytes: &[u8]| {
            let Some(bytes) = self.take_timestamp(bytes) else { return };
            if bytes.len() == ADDRESSED_BYTES {
                let to = Machine(u16::from_le_bytes([bytes[0], bytes[1]]));
                let message = Message::decode(&bytes[2..]).filter(|_| to == joined.machine);
                arrived.extend(message.map(Arrived::Message));
                return;
            }
            let Some(to) = bytes.get(ADDRESSEE_AT..ADDRESSEE_AT + 2) else { return };
            let to = Machine(u16::from_le_bytes([to[0], to[1]]));
            if to != DECIDER && to != joined.machine {
                return;
            }
            let mut take = |_, item| {
                arrived.push(match item {
                    Item::Question(question) => Arrived::Question(question),
                    Item::Incoming(incoming) => Arrived::Incoming(incoming),
                });
            };
            let _ = open(bytes, (to, &KEY), &mut take);
        };
        let rpc = self.services.as_ref().and_then(|services| services.rpc.get());
        let count = match rpc {
            // The thread's calls receive all datagrams of the port.
            Some(rpc) => {
                rpc.poll(DATAGRAMS_A_POLL);
                rpc.take_others(&mut take_one)
            }
            None => self.port.receive(DATAGRAMS_A_POLL, &mut |_, bytes| take_one(bytes)),
        };
        if count == 0 {
            return 0;
        }
        if self.port.charges() {
            (0..count).for_each(|_| self.port.charge(Cost::Handler));
        }
        let mut station = locked(&joined.station);
        arrived.into_iter().for_each(|it| station.receive(now, it));
        count
    }

    /// Hands over a station's mail, and the mail that follows from it, until none is left.
    fn hand_over_mail(&self, locks: &ThreadLocks, of: &SharedStation, now: Nanos) {
        let membership = &*self.database().membership;
        let mut posts: VecDeque<Post> = locked(of).posts().collect();
        while let Some(post) = posts.pop_front() {
            let Some(station) = locks.stations.station(post.to, membership) else { continue };
            let Some(arrived) = post.mail.arrive() else { continue };
            let mut station = locked(&station);
            station.receive(now.0, arrived);
            posts.extend(station.posts());
        }
    }

    /// Whether requests for locks are granted or refused at once, and no coroutine waits.
    pub(crate) fn locks_at_once(&self) -> bool {
        self.thread_locks().ways.transport == Transport::Direct
    }

    /// The time after which the lock service sends mail again for the first time.
    pub(crate) fn locks_resend_after(&self) -> Nanos {
        self.thread_locks().ways.resend_after
    }

    /// The time after which this thread's mail is sent again at present. Mail that is lost again and again makes it
    /// longer.
    pub(crate) fn locks_resend_now_after(&self) -> Nanos {
        let beyond = self.joined().map_or(0, |joined| locked(&joined.station).beyond());
        Nanos(self.locks_resend_after().0.saturating_add(beyond))
    }

    /// The time that a transaction waits for an answer, if no holder of a lock is known.
    pub(crate) fn locks_patience(&self) -> Nanos {
        let unit = self.locks_resend_after().0.saturating_mul(PATIENCE);
        let unit = unit.max(self.locks_resend_now_after().0.saturating_mul(2));
        Nanos(unit.saturating_mul(PATIENT))
    }

    /// Whether a copier of memory takes the service's lock of a slot.
    pub(crate) fn copies_under_service_locks(&self) -> bool {
        self.locks.as_ref().is_some_and(|locks| !locks.stations.need().copies_unlocked)
    }
}

/// The lock service, as callers without transactions see it.
pub struct ThreadLockService<'a>(&'a Context);

impl Context {
    /// The lock service of the database, if its protocol needs one.
    pub fn lock_service(&self) -> Option<ThreadLockService<'_>> {
        self.locks.as_ref().map(|_| ThreadLockService(self))
    }
}

/// A request that is given up if its future is dropped.
struct Waiting<'a> {
    cx: &'a Context,
    request: RequestId,
    lock: LockId,
    is_granted: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_granted {
            self.cx.end_lock(self.request, self.lock);
            self.cx.serve_locks();
        }
    }
}

impl LockService for ThreadLockService<'_> {
    async fn acquire(
        &self,
        lock: LockId,
        mode: Mode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        let cx = self.0;
        let Some(joined) = cx.joined() else { return Err(Refusal::Unavailable) };
        let since = cx.port.now();
        let asked = locked(&joined.station).acquire(since.0, lock, mode);
        let Some(request) = asked else {
            let locks = locked(&joined.station).settings().locks;
            return Err(match lock.0 < locks {
                true => Refusal::Unavailable,
                false => Refusal::OutOfRange { lock, locks },
            });
        };
        let mut waiting = Waiting { cx, request, lock, is_granted: false };
        let token = loop {
            cx.serve_locks();
            if cx.is_expelled() {
                return Err(Refusal::Unavailable);
            }
            let waited = cx.port.now() - since;
            let is_over = matches!(patience, Patience::Nanos(nanos) if waited.0 > nanos);
            match cx.lock_outcome(request, lock) {
                Some(Outcome::Holds(token)) => break token,
                None => return Err(Refusal::Unavailable),
                Some(_) if is_over => return Err(Refusal::TimedOut),
                Some(Outcome::Queued) if patience == Patience::Try => return Err(Refusal::Busy),
                Some(_) => cx.port.yield_now().await,
            }
        };
        waiting.is_granted = true;
        Ok(Grant { lock, request, mode, token })
    }

    fn release(&self, grant: Grant) {
        self.0.end_lock(grant.request, grant.lock);
        self.0.serve_locks();
    }

    fn poll(&self) -> bool {
        let before = self.0.port.counts();
        self.0.serve_locks();
        self.0.port.counts() != before
    }
}
