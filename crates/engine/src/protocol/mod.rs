//! Protocols: the ways in which a transaction's records are read, locked, validated, written and released.
//!
//! Invariant: a protocol consists of one folder and of one line in the macro call `protocols!`. A protocol never
//! imports another protocol, and no code outside this module names a protocol. Parts that several protocols have in
//! common are in modules below this module: `cluster`, `services`, `requests` and `steps`. The protocols are compiled
//! only once, because the engine calls them through [`AnyProtocol`]. Each asynchronous call of this enum costs one
//! branch; such a call allocates memory only in builds with assertions.
//!
//! A protocol consists of its answers to the questions that the trait [`Protocol`] lists.

pub(crate) mod merge_access;
pub mod settle;

use crate::cluster::info::{Isolation, Needs, ProtocolInfo, Switches, UNSAFE_PREFIX};
use crate::cluster::rules::Rule;
use crate::protocol::settle::{Logged, logged_by, plant_undone_by, settle_dead};
use crate::requests::fence::revoke_everywhere;
use crate::site::system::System;
use crate::site::{Context, Database};
use crate::steps::Described;
use crate::steps::access::RecordAccess;
use crate::steps::access::batch_read::{BatchOutcome, BatchRead};
use crate::steps::node_locks::{self, suspect_all_locks};
use crate::steps::settle::{Asker, Log, Turn, is_settled, plan_free};
use crate::steps::structure::{Structure, buckets, trees};
use crate::transaction::working_set::{Added, Handle, Txn, Upgrade};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::Round;
use tarn_store::ids::{Failure, Resolution, TxnId, UsageError};
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::LayoutKind;
use tarn_store::placement::catalog::{Catalog, Options, Table};
use tarn_store::schema::{TableId, TableSchema};

/// A system (protocol), which consists of its answers to several questions. The answers decide how the system stores
/// and reads its records ([`RecordAccess`]), and which log it writes ([`Log`]). If the locks of a system lie beside
/// records, another answer decides the kind of these locks ([`crate::steps::locks::Locks`]). The implementation of
/// [`Structure`] has the system's commit and its changes of indexes.
#[expect(async_fn_in_trait, reason = "called through `AnyProtocol` only")]
pub trait Protocol: Structure {
    /// The way in which transactions of this protocol read records and protect these reads.
    type Records: RecordAccess<Self>;

    /// The kind of log in which this protocol records a transaction, and the recovery by this log.
    type Log: Log<Self>;

    /// The names of the protocol's forms. All forms have the description [`Described::INFO`] but for the name.
    const NAMES: &'static [&'static str] = &[Self::INFO.name];

    /// Makes the protocol in the variant with these switches.
    fn new(switches: Switches) -> Self;

    /// Makes the form of the protocol that has this name, one of [`Protocol::NAMES`].
    fn named(_: &str, switches: Switches) -> Self {
        Self::new(switches)
    }

    /// Returns the name of this form.
    fn name(&self) -> &'static str {
        Self::INFO.name
    }

    /// Returns the layout of records in a database with these options. A protocol may ignore the layout that the
    /// options request.
    fn layout(&self, _asked: &Options) -> LayoutKind {
        LayoutKind::SingleVersion
    }

    /// Returns the parts of compute nodes that the protocol needs, in addition to threads that run coordinators.
    fn needs(&self) -> Needs {
        Needs::NONE
    }

    /// Ends a block of a transaction. If the protocol holds local locks during each block, this function releases
    /// these locks.
    ///
    /// # Errors
    /// Returns the same errors as [`RecordAccess::fetch`].
    async fn close_block(&self, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Undoes a fetch, and releases exactly those locks that were granted to the transaction. This function does not
    /// wait for any round.
    fn rollback(&self, cx: &Context, txn: &mut Txn) {
        node_locks::give_up(self, cx, txn);
    }

    /// Rolls back a transaction whose future was dropped, perhaps with a round in flight. Every lock that the round
    /// in flight has requested may have been granted. This function also rolls back a transaction that was in doubt
    /// and has been settled; its `in_doubt` is still true.
    fn abandon(&self, cx: &Context, txn: &mut Txn) {
        suspect_all_locks(txn);
        self.rollback(cx, txn);
    }

    /// Performs the next step of a shard's growth (see [`tarn_store::index::growth`]) as a separate transaction. When
    /// the caller calls this function, `txn` is empty and has no record of the caller. A protocol whose index does
    /// not grow returns [`Grown::TooLarge`].
    ///
    /// # Errors
    /// The same errors as [`Structure::commit`]: an abort because a lock was refused, no memory, or `CommitUnknown`.
    async fn restructure(
        &self,
        cx: &Context,
        txn: &mut Txn,
        shard: Shard,
    ) -> Result<Grown, Failure> {
        match Self::INFO.caps.growth {
            true => buckets::restructure(self, cx, txn, shard).await,
            false => Ok(Grown::TooLarge),
        }
    }

    /// Empties slots of deleted records in a bucket, as a separate transaction. When the caller calls this function,
    /// `txn` is empty. Returns the number of slots that the sweep has emptied. If the inserts of a protocol can fill
    /// the slots of deleted records directly, this function does nothing.
    ///
    /// # Errors
    /// Returns the same errors as [`Protocol::restructure`].
    async fn sweep(
        &self,
        _: &Context,
        _: &mut Txn,
        _: (TableId, Address),
    ) -> Result<usize, Failure> {
        Ok(0)
    }

    /// Changes the shape of an ordered index (see [`tarn_store::index::btree::work`]) as a separate transaction. When
    /// the caller calls this function, `txn` is empty.
    ///
    /// # Errors
    /// Returns the same errors as [`Protocol::restructure`].
    async fn reshape(
        &self,
        cx: &Context,
        txn: &mut Txn,
        work: TreeWork,
    ) -> Result<TreeDone, Failure> {
        trees::reshape(self, cx, txn, work).await
    }

    /// Finds out the outcome of a transaction whose coordinator does not know the outcome, and makes this outcome
    /// final. This resolution is idempotent. The asking coordinator belongs to a higher incarnation than the
    /// transaction, or the transaction's owner has been fenced.
    ///
    /// # Errors
    /// A failure of the fabric, after which the caller tries again.
    async fn resolve(
        &self,
        cx: &Context,
        id: TxnId,
        coordinator: u32,
        asker: Asker,
    ) -> Result<Resolution, Failure> {
        settle::resolve_logged(self, cx, (id, asker), coordinator).await
    }

    /// Adds the verb that removes a lock whose owner belongs to an incarnation that was recovered.
    fn free_stray(&self, cx: &Context, round: &mut Round, lock: (Address, u64)) {
        plan_free(cx, round, lock);
    }

    /// Returns whether a coordinator that begins under this number may use the number's log area. The coordinator may
    /// not use the log area while the area contains log entries that the recovery of a dead incarnation needs.
    ///
    /// # Errors
    /// Returns an error if the fabric cannot complete a verb.
    async fn may_log(&self, cx: &Context, coordinator: u32) -> Result<bool, Failure> {
        match self.keeps(Rule::SettleBeforeLog) {
            true => is_settled(cx, coordinator).await,
            false => Ok(true),
        }
    }
}

/// The type of a protocol's record access.
type RecordsOf<P> = <P as Protocol>::Records;

/// The type of a protocol's log entry.
pub(crate) type EntryOf<P> = <<P as Protocol>::Log as Log<P>>::Entry;

/// Refuses schemas with ordered indexes, before the memory is laid out, if the protocol does not support ordered
/// indexes.
fn refuse_ranges(info: &ProtocolInfo, schemas: &[TableSchema]) -> Result<(), UsageError> {
    let ordered = schemas.iter().find(|schema| !schema.indexes.is_empty());
    match ordered.filter(|_| !info.caps.ranges) {
        None => Ok(()),
        Some(schema) => Err(UsageError {
            field: format!("ordered indexes of {}", schema.name),
            value: schema.indexes.len().to_string(),
            allowed: format!("0 with the protocol {}, which has none", info.name),
        }),
    }
}

pin_project_lite::pin_project! {
    /// A part of a transaction, whose body only this crate compiles.
    struct CompiledOnce<F: Future> {
        #[pin]
        part: F,
        poll: fn(Pin<&mut F>, &mut task::Context<'_>) -> Poll<F::Output>,
    }
}

impl<F: Future> Future for CompiledOnce<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        (this.poll)(this.part, cx)
    }
}

/// Wraps a protocol's part of a transaction, so that only this crate compiles the part's body.
///
/// Without this wrapper, every crate that awaits an asynchronous function compiles the function's body again, once
/// for each unit of code that awaits it. The wrapper holds a pointer to the body that this crate compiled. A
/// function that returns the wrapper must not be inlined: the pointer would name another crate's body.
fn compiled_once<F: Future>(part: F) -> CompiledOnce<F> {
    CompiledOnce { part, poll: F::poll }
}

/// Wraps a part that every transaction runs.
///
/// Programs with assertions are compiled often and run for a short time: only this crate compiles the part. Other
/// programs compile the part where they await it. There the wrapper would cost a copy of the future for each call,
/// some 170 instructions.
#[cfg(debug_assertions)]
fn part_of_each<F: Future>(part: F) -> CompiledOnce<F> {
    compiled_once(part)
}

/// Returns a part that every transaction runs unchanged: see the other form of this function.
#[cfg(not(debug_assertions))]
#[inline(always)]
fn part_of_each<F: Future>(part: F) -> F {
    part
}

macro_rules! protocols {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        $(mod $module;)+

        /// The protocol that a database runs.
        pub enum AnyProtocol {
            $(#[doc = stringify!($module)] $name($module::$name),)+
        }

        /// Every protocol that a caller can choose by name. Tests check that each protocol keeps the promises that
        /// all protocols make. [`crate::cluster::info::ProtocolCaps`] names the promises that a protocol does not
        /// make.
        pub const ALL: &[ProtocolInfo] = &[$(<$module::$name as Described>::INFO),+];

        /// The names of all protocols, with all their forms.
        pub fn names() -> Vec<&'static str> {
            [$(<$module::$name as Protocol>::NAMES),+].concat()
        }

        /// Returns the description of the protocol that has this name, or a form with this name.
        pub fn described(name: &str) -> Option<&'static ProtocolInfo> {
            let names = [$(<$module::$name as Protocol>::NAMES),+];
            names.iter().position(|names| names.contains(&name)).map(|at| &ALL[at])
        }

        impl AnyProtocol {
            /// Returns the protocol called `name`, in this variant.
            ///
            /// # Errors
            /// An error that names the unknown word, and the words that are allowed.
            pub fn by_name(name: &str, variant: &str) -> Result<AnyProtocol, UsageError> {
                $(
                    let info = <$module::$name as Described>::INFO;
                    if <$module::$name as Protocol>::NAMES.contains(&name) {
                        let switches = Switches::parse(&info, variant)?;
                        return Ok(AnyProtocol::$name($module::$name::named(name, switches)));
                    }
                )+
                let names = names();
                Err(UsageError {
                    field: "protocol".into(),
                    value: name.to_owned(),
                    allowed: names.join(", "),
                })
            }

            /// Returns everything that the program knows about the protocol without running it.
            pub fn info(&self) -> ProtocolInfo {
                match self {
                    $(AnyProtocol::$name(it) => {
                        ProtocolInfo { name: it.name(), ..<$module::$name as Described>::INFO }
                    }),+
                }
            }

            /// Returns the isolation level of this variant: see [`Switches::isolation`].
            pub fn isolation(&self) -> Isolation {
                match self { $(AnyProtocol::$name(it) => it.switches().isolation()),+ }
            }

            /// Plans a database of `schemas` over `groups` replica groups, in the layout that the protocol needs. All
            /// programs that run transactions on the database call this function.
            ///
            /// # Errors
            /// The same errors as [`Catalog::plan`]; or a table has ordered indexes and the protocol does not support
            /// ordered indexes.
            pub fn catalog(
                &self,
                schemas: &[TableSchema],
                options: &Options,
                groups: usize,
            ) -> Result<Catalog, UsageError> {
                refuse_ranges(&self.info(), schemas)?;
                let layout = match self { $(AnyProtocol::$name(it) => it.layout(options)),+ };
                Catalog::plan(schemas, &Options { layout, ..options.clone() }, groups)
            }

            /// Calls [`Protocol::needs`] of this protocol.
            pub fn needs(&self) -> Needs {
                match self { $(AnyProtocol::$name(it) => it.needs()),+ }
            }

            /// Whether transactions of this protocol ring a doorbell for each verb that has not joined another one.
            pub fn rings_each(&self) -> bool {
                match self { $(AnyProtocol::$name(it) => !it.keeps(Rule::ShareDoorbells)),+ }
            }

            /// Calls [`RecordAccess::add`] of this protocol.
            #[inline(always)]
            pub fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
                match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::add(it, cx, txn, table, added)),+ }
            }

            /// Calls [`RecordAccess::notes_reads`] of this protocol.
            #[inline]
            pub fn notes_reads(&self, cx: &Context, txn: &Txn, table: &Table) -> bool {
                match self { $(AnyProtocol::$name(_) => <RecordsOf<$module::$name> as RecordAccess<$module::$name>>::notes_reads(cx, txn, table)),+ }
            }

            /// Calls [`RecordAccess::note_looks`] of this protocol.
            #[inline]
            pub fn note_looks(&self, cx: &Context, count: usize) {
                match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::note_looks(it, cx, count)),+ }
            }

            /// Calls [`RecordAccess::upgrade`] of this protocol.
            pub fn upgrade(&self, cx: &Context, txn: &mut Txn, index: usize, further: Upgrade) {
                match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::upgrade(it, cx, txn, index, further)),+ }
            }

            /// Returns a rule that this variant lacks, if only simulations may use variants without this rule. All
            /// programs except simulations refuse a variant that lacks such a rule.
            pub fn unsafe_without(&self) -> Option<&'static str> {
                let switches = match self { $(AnyProtocol::$name(it) => it.switches()),+ };
                switches.unsafe_without(&self.info())
            }

            /// Refuses a variant that only simulations may use, because it lacks a rule. All programs except
            /// simulations call this function before they run a variant.
            ///
            /// # Errors
            /// An error that names the refused variant.
            pub fn refuse_unsafe(&self, variant: &str) -> Result<(), UsageError> {
                let Some(name) = self.unsafe_without() else { return Ok(()) };
                Err(UsageError {
                    field: "variant".into(),
                    value: variant.to_owned(),
                    allowed: format!("{UNSAFE_PREFIX}{name} in simulations only, because it \
                                      isolates nothing"),
                })
            }

            /// Calls [`RecordAccess::fetch`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`RecordAccess::fetch`].
            #[cfg_attr(debug_assertions, inline(never))]
            #[cfg_attr(not(debug_assertions), inline)]
            pub fn fetch<'a>(&'a self, cx: &'a Context, txn: &'a mut Txn) -> impl Future<Output = Result<(), Failure>> + 'a {
                part_of_each(async move {
                    match self {
                        $(AnyProtocol::$name(it) => {
                            type R = RecordsOf<$module::$name>;
                            if let Some(near) = R::ask_near(it, cx, txn) {
                                near.travel().await;
                                if let Some(ended) = R::fetch_near(it, cx, txn, near) {
                                    return ended;
                                }
                            }
                            if txn.notes.is_waiting() {
                                return Box::pin(merge_access::fetch_in_turns(it, cx, txn)).await;
                            }
                            R::fetch(it, cx, txn).await
                        }),+
                    }
                })
            }

            /// Calls [`RecordAccess::commit_near`] of this protocol.
            #[inline]
            pub fn commit_near(&self, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
                match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::commit_near(it, cx, txn)),+ }
            }

            /// Calls [`RecordAccess::reads_together`] of this protocol.
            #[inline]
            pub(crate) fn reads_together(&self, cx: &Context) -> bool {
                match self { $(AnyProtocol::$name(_) => <RecordsOf<$module::$name> as RecordAccess<$module::$name>>::reads_together(cx)),+ }
            }

            /// Calls [`RecordAccess::read_together`] of this protocol.
            #[inline]
            pub(crate) fn read_together(
                &self,
                cx: &Context,
                to: (&mut BatchRead, &mut Round),
                (near, is_again): (DirectMemory<'_>, bool),
            ) -> BatchOutcome {
                match self {
                    $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::read_together(it, cx, to, (near, is_again))),+
                }
            }

            /// Calls [`Protocol::close_block`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::close_block`].
            #[cfg_attr(debug_assertions, inline(never))]
            #[cfg_attr(not(debug_assertions), inline)]
            pub fn close_block<'a>(&'a self, cx: &'a Context, txn: &'a mut Txn) -> impl Future<Output = Result<(), Failure>> + 'a {
                part_of_each(async move {
                    match self { $(AnyProtocol::$name(it) => it.close_block(cx, txn).await),+ }
                })
            }

            /// Calls [`RecordAccess::is_committed`] of this protocol.
            #[inline]
            pub fn is_committed(&self, txn: &Txn) -> bool {
                match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::is_committed(it, txn)),+ }
            }

            /// Calls [`Structure::commit`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Structure::commit`].
            #[cfg_attr(debug_assertions, inline(never))]
            #[cfg_attr(not(debug_assertions), inline)]
            pub fn commit<'a>(&'a self, cx: &'a Context, txn: &'a mut Txn) -> impl Future<Output = Result<(), Failure>> + 'a {
                part_of_each(async move {
                    match self { $(AnyProtocol::$name(it) => it.commit(cx, txn).await),+ }
                })
            }

            /// Calls [`RecordAccess::validate`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`RecordAccess::validate`].
            #[inline(never)]
            pub fn validate<'a>(&'a self, cx: &'a Context, txn: &'a mut Txn) -> impl Future<Output = Result<(), Failure>> + 'a {
                compiled_once(async move {
                    match self { $(AnyProtocol::$name(it) => RecordsOf::<$module::$name>::validate(it, cx, txn).await),+ }
                })
            }

            /// Calls [`Protocol::rollback`] of this protocol.
            pub fn rollback(&self, cx: &Context, txn: &mut Txn) {
                match self { $(AnyProtocol::$name(it) => it.rollback(cx, txn)),+ }
            }

            /// Calls [`Protocol::abandon`] of this protocol.
            pub fn abandon(&self, cx: &Context, txn: &mut Txn) {
                match self { $(AnyProtocol::$name(it) => it.abandon(cx, txn)),+ }
            }

            /// Calls [`Protocol::restructure`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::restructure`].
            #[inline(never)]
            pub fn restructure<'a>(
                &'a self,
                cx: &'a Context,
                txn: &'a mut Txn,
                shard: Shard,
            ) -> impl Future<Output = Result<Grown, Failure>> + 'a {
                compiled_once(async move {
                    match self { $(AnyProtocol::$name(it) => it.restructure(cx, txn, shard).await),+ }
                })
            }

            /// Calls [`Protocol::sweep`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::sweep`].
            #[inline(never)]
            pub fn sweep<'a>(
                &'a self,
                cx: &'a Context,
                txn: &'a mut Txn,
                bucket: (TableId, Address),
            ) -> impl Future<Output = Result<usize, Failure>> + 'a {
                compiled_once(async move {
                    match self { $(AnyProtocol::$name(it) => it.sweep(cx, txn, bucket).await),+ }
                })
            }

            /// Calls [`Protocol::reshape`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::reshape`].
            #[inline(never)]
            pub fn reshape<'a>(
                &'a self,
                cx: &'a Context,
                txn: &'a mut Txn,
                work: TreeWork,
            ) -> impl Future<Output = Result<TreeDone, Failure>> + 'a {
                compiled_once(async move {
                    match self { $(AnyProtocol::$name(it) => it.reshape(cx, txn, work).await),+ }
                })
            }

            /// Calls [`Protocol::resolve`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::resolve`].
            #[inline(never)]
            pub fn resolve<'a>(
                &'a self,
                cx: &'a Context,
                id: TxnId,
                coordinator: u32,
                asker: Asker,
            ) -> impl Future<Output = Result<Resolution, Failure>> + 'a {
                compiled_once(async move {
                    match self {
                        $(AnyProtocol::$name(it) => it.resolve(cx, id, coordinator, asker).await),+
                    }
                })
            }

            /// Makes sure that no further write of the incarnation `whom` will land at any memory node. If the
            /// recovery of this variant does not fence, this function does nothing.
            ///
            /// # Errors
            /// Returns an error if the fabric cannot complete a verb.
            #[inline(never)]
            pub fn fence<'a>(&'a self, cx: &'a Context, whom: NodeId) -> impl Future<Output = Result<(), Failure>> + 'a {
                compiled_once(async move {
                    let fences = match self { $(AnyProtocol::$name(it) => it.keeps(Rule::FenceBeforeRecovery)),+ };
                    if fences { revoke_everywhere(cx, whom).await } else { Ok(()) }
                })
            }

            /// Calls [`settle::settle_dead`] for this protocol. Each protocol has its own type of log entry, so one
            /// call of this function runs all recovery functions of the protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`settle::settle_dead`].
            #[inline(never)]
            pub(crate) fn settle_dead<'a>(
                &'a self,
                cx: &'a Context,
                dead: NodeId,
                turn: &'a Turn<'a>,
            ) -> impl Future<Output = Result<Vec<(TxnId, Resolution)>, Failure>> + 'a {
                compiled_once(async move {
                    match self {
                        $(AnyProtocol::$name(it) => settle_dead(it, cx, dead, turn).await),+
                    }
                })
            }

            /// Calls [`settle::logged_by`] for this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`settle::logged_by`].
            pub(crate) fn logged<'a>(
                &'a self,
                cx: &'a Context,
                life: NodeId,
            ) -> impl Future<Output = Result<Vec<Logged>, Failure>> + 'a {
                compiled_once(async move {
                    match self {
                        $(AnyProtocol::$name(it) => logged_by(it, cx, life).await),+
                    }
                })
            }

            /// Calls [`settle::plant_undone_by`] for this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`settle::plant_undone_by`].
            pub(crate) fn plant_undone<'a>(&'a self, cx: &'a Context, id: TxnId) -> impl Future<Output = Result<(), Failure>> + 'a {
                compiled_once(async move {
                    match self {
                        $(AnyProtocol::$name(it) => plant_undone_by(it, cx, id).await),+
                    }
                })
            }

            /// Calls [`Protocol::free_stray`] of this protocol.
            pub fn free_stray(&self, cx: &Context, round: &mut Round, lock: (Address, u64)) {
                match self { $(AnyProtocol::$name(it) => it.free_stray(cx, round, lock)),+ }
            }

            /// Calls [`Protocol::may_log`] of this protocol.
            ///
            /// # Errors
            /// Returns the same errors as [`Protocol::may_log`].
            pub fn may_log<'a>(&'a self, cx: &'a Context, coordinator: u32) -> impl Future<Output = Result<bool, Failure>> + 'a {
                compiled_once(async move {
                    match self { $(AnyProtocol::$name(it) => it.may_log(cx, coordinator).await),+ }
                })
            }
        }
    };
}

impl AnyProtocol {
    /// Returns the protocol of a database.
    ///
    /// # Panics
    /// The database runs a system that is no [`AnyProtocol`]. A database with such a system is a bug in this program.
    pub fn of(database: &Database) -> Arc<AnyProtocol> {
        let protocol: Arc<dyn Any + Send + Sync> = Arc::clone(&database.protocol) as _;
        protocol.downcast().expect("the database runs this protocol")
    }
}

/// Returns the protocol of the database of `cx`, for rare calls.
pub(crate) fn of(cx: &Context) -> &AnyProtocol {
    let protocol: &(dyn Any + Send + Sync) = &*cx.database().protocol;
    protocol.downcast_ref().expect("the database runs this protocol")
}

impl System for AnyProtocol {
    fn info(&self) -> ProtocolInfo {
        AnyProtocol::info(self)
    }

    fn isolation(&self) -> Isolation {
        AnyProtocol::isolation(self)
    }

    fn unsafe_without(&self) -> Option<&'static str> {
        AnyProtocol::unsafe_without(self)
    }

    fn needs(&self) -> Needs {
        AnyProtocol::needs(self)
    }
}

// The list of all protocols, with one line for each protocol.
protocols! {
    ford::Ford,
    lotus::Lotus,
    motor::Motor,
    occ::Occ,
    oocc::Oocc,
    drtm::Drtm,
    dslr::Dslr,
    two_phase::TwoPhase,
    serviced::Serviced,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::info::ProtocolCaps;

    #[test]
    fn a_protocol_without_ordered_indexes_refuses_them_before_layout() {
        let caps = ProtocolCaps { ranges: false, ..ALL[0].caps };
        let plain = ProtocolInfo { name: "plain", caps, ..ALL[0] };
        let schemas = [TableSchema::new("s", 10), TableSchema::new("t", 10).ordered("by_key")];
        let refused = refuse_ranges(&plain, &schemas).expect_err("refused").to_string();
        assert_eq!(
            refused,
            "ordered indexes of t = 1; allowed: 0 with the protocol plain, which \
                             has none"
        );
        assert!(refuse_ranges(&plain, &schemas[..1]).is_ok());
        assert!(refuse_ranges(&ALL[0], &schemas).is_ok());
    }
}
