//! Protocols: how a transaction's records are read, locked, validated, written and released.
//!
//! Invariant: a protocol is one folder and one line of the macro call `protocols!`; it never imports another, and
//! nobody outside this module names one. What several protocols share lives in `layout`, `index`,
//! `log`, `heap`. Protocols are compiled once: the engine calls them through [`AnyProtocol`], an
//! enum whose asynchronous calls cost a branch and no allocation. What a protocol says of itself, and its
//! variants, are in `info.rs`.

pub(crate) mod fuse;
pub mod settle;

use crate::cluster::info::{Isolation, Needs, ProtocolInfo, Switches, UNSAFE_PREFIX};
use crate::protocol::settle::{Logged, logged_by, plant_undone_by, settle_dead};
use crate::requests::fence::revoke_everywhere;
use crate::site::system::System;
use crate::site::{Context, Database};
use crate::steps::access::together::{Came, Together};
use crate::steps::settle::{Asker, Turn, Unsettled, is_settled, plan_free};
use crate::transaction::working_set::{Added, Further, Handle, Txn};
use std::any::Any;
use std::sync::Arc;
use tarn_fabric::address::{Address, NodeId};
use tarn_fabric::local::Near;
use tarn_fabric::round::Round;
use tarn_store::ids::{Failure, Resolution, TxnId, UsageError};
use tarn_store::index::btree::work::{TreeDone, TreeWork};
use tarn_store::index::growth::{Grown, Shard};
use tarn_store::layout::LayoutKind;
use tarn_store::log::Entry;
use tarn_store::placement::catalog::{Catalog, Options, Table};
use tarn_store::schema::{TableId, TableSchema};

/// A protocol. Every call works on one transaction of one coordinator; the verbs go through
/// `cx.port`, the records through `txn`.
#[expect(async_fn_in_trait, reason = "called through `AnyProtocol` only")]
pub trait Protocol: Sized {
    /// What there is to know without running it.
    const INFO: ProtocolInfo;

    /// What it writes down of a transaction, and what its recovery finds out about it.
    type Entry: Entry;

    /// With these switches.
    fn new(switches: Switches) -> Self;

    /// What this variant guarantees, or means to: judges hold histories against it.
    fn isolation(&self) -> Isolation;

    /// How its records lie in a database of these options: what they say of the layout is not heeded.
    fn layout(&self, asked: &Options) -> LayoutKind;

    /// What it needs of compute nodes beside threads that run coordinators.
    fn needs(&self) -> Needs {
        Needs::NONE
    }

    /// A record is asked for that is in no entry yet: pushes its entry. It may plan verbs into the round
    /// that the next fetch sends, while key, hash and table are at hand.
    fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle;

    /// Whether records of this table that are only read, and are asked for next, are but noted until the fetch: then
    /// `near::note_read` does what `add` would, and `note_looks` says how often it did.
    fn notes_reads(&self, _: &Context, _: &Txn, _: &Table) -> bool {
        false
    }

    /// So many records were noted.
    fn note_looks(&self, _: &Context, _: usize) {}

    /// A further wish for a fetched record needs what its entry has not. The entry's mode says what is
    /// wanted by now; what the next fetch is to do about it goes into its progress.
    fn wish_again(&self, cx: &Context, txn: &mut Txn, index: usize, further: Further);

    /// The switches that it was made with.
    fn switches(&self) -> Switches;

    /// Fetches every entry that is not fetched yet (the execute phase of one block).
    ///
    /// # Errors
    /// An abort: the caller then calls `rollback`.
    async fn fetch(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure>;

    /// Where memory is near ([`tarn_fabric::port::Port::near`]): asks for the lines of a fetch that it can end without a wait, when they
    /// have had time to come. The memory, if it did; then [`Protocol::fetch_near`] follows.
    fn ask_near<'a>(&self, _: &'a Context, _: &mut Txn) -> Option<Near<'a>> {
        None
    }

    /// Ends what [`Protocol::ask_near`] has begun; `None`: what is left goes on as any fetch.
    fn fetch_near(&self, _: &Context, _: &mut Txn, _: Near<'_>) -> Option<Result<(), Failure>> {
        None
    }

    /// Commits, where memory is near and nothing has to be waited for; `None`: it is to be committed as any.
    fn commit_near(&self, _: &Context, _: &mut Txn) -> Option<Result<(), Failure>> {
        None
    }

    /// Whether it reads records together, as [`Protocol::read_together`] and [`Protocol::fetch_together`] do.
    fn reads_together(&self, _: &Context) -> bool {
        false
    }

    /// Reads records together where memory is near, the second time what the first has not found at home: a whole transaction.
    fn read_together(
        &self,
        _: &Context,
        _: (&mut Together, &mut Round),
        (_, _): (Near<'_>, bool),
    ) -> Came {
        Came::Unusual
    }

    /// As [`Protocol::read_together`], where memory is far: sends the round that asks for the bins, and what has to follow it.
    async fn fetch_together(&self, _: &Context, _: (&mut Together, &mut Round)) -> Came {
        Came::Unusual
    }

    /// A block has ended: a protocol that holds local locks per block gives them up here.
    ///
    /// # Errors
    /// As `fetch`.
    async fn close_block(&self, _: &Context, _: &mut Txn) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether a fetched transaction has committed already, because nothing of it needs to be
    /// validated, written or released.
    fn is_committed(&self, txn: &Txn) -> bool;

    /// Commits; returns when the transaction may be acknowledged.
    ///
    /// # Errors
    /// An abort (the caller calls `rollback`), or `CommitUnknown` (it must not).
    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure>;

    /// Looks again at all that the transaction has read so far: `Ok` if all of it was there at one moment. A body's
    /// own abort is told only then; the committing path does not come here. No verb may be planned.
    ///
    /// # Errors
    /// An abort: what was read was not, or may not have been, there at one moment. The fabric's.
    async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure>;

    /// Undoes what `fetch` did and releases exactly what was granted; waits for nothing.
    fn rollback(&self, cx: &Context, txn: &mut Txn);

    /// As `rollback`, for a transaction whose future was dropped, perhaps with a round in flight:
    /// what that round asked for may have been granted. Or for one that was in doubt, as it still says then, and is
    /// settled.
    fn abandon(&self, cx: &Context, txn: &mut Txn);

    /// Does the next step of a shard's growth (see [`tarn_store::index::growth`]) as a transaction of its
    /// own: `txn` is empty, no record of a caller's is in it. A protocol whose index does not grow
    /// says that it cannot.
    ///
    /// # Errors
    /// As `commit`: an abort (a lock was refused), no memory, `CommitUnknown`.
    async fn restructure(&self, _: &Context, _: &mut Txn, _: Shard) -> Result<Grown, Failure> {
        Ok(Grown::TooLarge)
    }

    /// Empties slots of deleted records in a bucket, as a transaction of its own: `txn` is empty. How many. A protocol
    /// whose inserts take such slots as they are has nothing to do.
    ///
    /// # Errors
    /// As `restructure`.
    async fn sweep(
        &self,
        _: &Context,
        _: &mut Txn,
        _: (TableId, Address),
    ) -> Result<usize, Failure> {
        Ok(0)
    }

    /// Changes the shape of an ordered index (see [`tarn_store::index::btree::work`]) as a transaction of its
    /// own: `txn` is empty. A protocol without ordered indexes has nothing to do.
    ///
    /// # Errors
    /// As `restructure`.
    async fn reshape(&self, _: &Context, _: &mut Txn, _: TreeWork) -> Result<TreeDone, Failure> {
        Ok(TreeDone::Needless)
    }

    /// Finds out, and makes final, how a transaction ended whose coordinator cannot say. The
    /// coordinator that asks has a higher incarnation or the owner has been fenced. Idempotent.
    ///
    /// # Errors
    /// The fabric's: ask again.
    async fn resolve(
        &self,
        cx: &Context,
        id: TxnId,
        coordinator: u32,
        asker: Asker,
    ) -> Result<Resolution, Failure>;

    /// Recovery, 1: makes sure that nothing of `whom` will ever land, at any memory node.
    ///
    /// # Errors
    /// The fabric's, here and in the hooks below; all of them are idempotent.
    async fn fence(&self, cx: &Context, whom: NodeId) -> Result<(), Failure> {
        match self.fences() {
            true => revoke_everywhere(cx, whom).await,
            false => Ok(()),
        }
    }

    /// Whether recovery revokes the dead node's access; if not: a planted bug.
    fn fences(&self) -> bool {
        true
    }

    /// Recovery, 2: every transaction of a dead life that has left a valid entry.
    ///
    /// # Errors
    /// As `fence`.
    async fn enumerate(
        &self,
        cx: &Context,
        dead: NodeId,
    ) -> Result<Vec<Unsettled<Self::Entry>>, Failure>;

    /// Recovery, 3: has each of them committed?
    ///
    /// # Errors
    /// As `fence`.
    async fn decide(
        &self,
        cx: &Context,
        left: &mut [Unsettled<Self::Entry>],
    ) -> Result<(), Failure>;

    /// Recovery, 4: writes back what the aborted have changed, then makes their entries invalid.
    ///
    /// # Errors
    /// As `fence`.
    async fn apply(&self, cx: &Context, left: &[Unsettled<Self::Entry>]) -> Result<(), Failure>;

    /// Recovery, 5: releases what they still hold.
    ///
    /// # Errors
    /// As `fence`.
    async fn release(&self, cx: &Context, left: &[Unsettled<Self::Entry>]) -> Result<(), Failure>;

    /// Adds the verb that takes away a lock whose owner's life is recovered.
    fn free_stray(&self, cx: &Context, round: &mut Round, lock: (Address, u64)) {
        plan_free(cx, round, lock);
    }

    /// Whether a coordinator that begins under this number may use its log area: not while it holds what
    /// the recovery of a dead life needs.
    ///
    /// # Errors
    /// As `fence`.
    async fn may_log(&self, cx: &Context, coordinator: u32) -> Result<bool, Failure> {
        match self.settles() {
            true => is_settled(cx, coordinator).await,
            false => Ok(true),
        }
    }

    /// Whether log areas are used again only when nobody needs what they hold; if not: a planted bug.
    fn settles(&self) -> bool {
        true
    }
}

/// What cannot work is refused before anything is laid out.
fn refuse_ranges(info: &ProtocolInfo, schemas: &[TableSchema]) -> Result<(), UsageError> {
    let ordered = schemas.iter().find(|schema| !schema.indexes.is_empty());
    match ordered.filter(|_| !info.caps.ranges) {
        None => Ok(()),
        Some(schema) => Err(UsageError {
            field: format!("ordered indexes of {}", schema.name),
            value: schema.indexes.len().to_string(),
            allowed: format!("0 with {}, which has none", info.name),
        }),
    }
}

macro_rules! protocols {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        $(mod $module;)+

        /// The protocol that a database runs.
        pub enum AnyProtocol {
            $(#[doc = stringify!($module)] $name($module::$name),)+
        }

        /// Every protocol that can be asked for by name. What all of them promise is held against each; what one does not promise
        /// its [`crate::cluster::info::ProtocolCaps`] say.
        pub const ALL: &[ProtocolInfo] = &[$(<$module::$name as Protocol>::INFO),+];

        impl AnyProtocol {
            /// The protocol called `name`, in this variant.
            ///
            /// # Errors
            /// Names what is not known and what is allowed.
            pub fn by_name(name: &str, variant: &str) -> Result<AnyProtocol, UsageError> {
                $(
                    let info = <$module::$name as Protocol>::INFO;
                    if info.name == name {
                        let switches = Switches::parse(&info, variant)?;
                        return Ok(AnyProtocol::$name($module::$name::new(switches)));
                    }
                )+
                let names: Vec<&str> = ALL.iter().map(|info| info.name).collect();
                Err(UsageError {
                    field: "protocol".into(),
                    value: name.to_owned(),
                    allowed: names.join(", "),
                })
            }

            /// What there is to know about it.
            pub fn info(&self) -> ProtocolInfo {
                match self { $(AnyProtocol::$name(_) => <$module::$name as Protocol>::INFO),+ }
            }

            /// See [`Protocol::isolation`].
            pub fn isolation(&self) -> Isolation {
                match self { $(AnyProtocol::$name(it) => it.isolation()),+ }
            }

            /// Plans a database of `schemas` over `groups` replica groups, in the layout that the protocol
            /// needs: what everybody calls who is to run transactions on it.
            ///
            /// # Errors
            /// As [`Catalog::plan`]; the ordered indexes of a table where the protocol has none.
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

            /// See [`Protocol::needs`].
            pub fn needs(&self) -> Needs {
                match self { $(AnyProtocol::$name(it) => it.needs()),+ }
            }

            /// See [`Protocol::add`].
            #[inline(always)]
            pub fn add(&self, cx: &Context, txn: &mut Txn, table: &Table, added: Added) -> Handle {
                match self { $(AnyProtocol::$name(it) => it.add(cx, txn, table, added)),+ }
            }

            /// See [`Protocol::notes_reads`].
            #[inline]
            pub fn notes_reads(&self, cx: &Context, txn: &Txn, table: &Table) -> bool {
                match self { $(AnyProtocol::$name(it) => it.notes_reads(cx, txn, table)),+ }
            }

            /// See [`Protocol::note_looks`].
            #[inline]
            pub fn note_looks(&self, cx: &Context, count: usize) {
                match self { $(AnyProtocol::$name(it) => it.note_looks(cx, count)),+ }
            }

            /// See [`Protocol::wish_again`].
            pub fn wish_again(&self, cx: &Context, txn: &mut Txn, index: usize, further: Further) {
                match self { $(AnyProtocol::$name(it) => it.wish_again(cx, txn, index, further)),+ }
            }

            /// What this variant lacks that may be missing in simulations alone: whoever runs on
            /// anything else refuses it.
            pub fn unsafe_without(&self) -> Option<&'static str> {
                let switches = match self { $(AnyProtocol::$name(it) => it.switches()),+ };
                switches.unsafe_without(&self.info())
            }

            /// Refuses a variant that is unsafe: for all but simulations.
            ///
            /// # Errors
            /// Names the variant.
            pub fn refuse_unsafe(&self, variant: &str) -> Result<(), UsageError> {
                let Some(name) = self.unsafe_without() else { return Ok(()) };
                Err(UsageError {
                    field: "variant".into(),
                    value: variant.to_owned(),
                    allowed: format!("{UNSAFE_PREFIX}{name} in simulations alone: it isolates nothing"),
                })
            }

            /// See [`Protocol::fetch`].
            ///
            /// # Errors
            /// As there.
            #[inline]
            pub async fn fetch(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
                match self {
                    $(AnyProtocol::$name(it) => {
                        if let Some(near) = it.ask_near(cx, txn) {
                            near.travel().await;
                            if let Some(ended) = it.fetch_near(cx, txn, near) {
                                return ended;
                            }
                        }
                        if txn.notes.is_waiting() {
                            return Box::pin(fuse::fetch_in_turns(it, cx, txn)).await;
                        }
                        it.fetch(cx, txn).await
                    }),+
                }
            }

            /// See [`Protocol::commit_near`].
            #[inline]
            pub fn commit_near(&self, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
                match self { $(AnyProtocol::$name(it) => it.commit_near(cx, txn)),+ }
            }

            /// See [`Protocol::reads_together`].
            #[inline]
            pub(crate) fn reads_together(&self, cx: &Context) -> bool {
                match self { $(AnyProtocol::$name(it) => it.reads_together(cx)),+ }
            }

            /// See [`Protocol::read_together`].
            #[inline]
            pub(crate) fn read_together(
                &self,
                cx: &Context,
                to: (&mut Together, &mut Round),
                (near, is_again): (Near<'_>, bool),
            ) -> Came {
                match self {
                    $(AnyProtocol::$name(it) => it.read_together(cx, to, (near, is_again))),+
                }
            }

            /// See [`Protocol::fetch_together`].
            #[inline]
            pub(crate) async fn fetch_together(
                &self,
                cx: &Context,
                to: (&mut Together, &mut Round),
            ) -> Came {
                match self { $(AnyProtocol::$name(it) => it.fetch_together(cx, to).await),+ }
            }

            /// See [`Protocol::close_block`].
            ///
            /// # Errors
            /// As there.
            #[inline]
            pub async fn close_block(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
                match self { $(AnyProtocol::$name(it) => it.close_block(cx, txn).await),+ }
            }

            /// See [`Protocol::is_committed`].
            #[inline]
            pub fn is_committed(&self, txn: &Txn) -> bool {
                match self { $(AnyProtocol::$name(it) => it.is_committed(txn)),+ }
            }

            /// See [`Protocol::commit`].
            ///
            /// # Errors
            /// As there.
            #[inline]
            pub async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
                match self { $(AnyProtocol::$name(it) => it.commit(cx, txn).await),+ }
            }

            /// See [`Protocol::validate`].
            ///
            /// # Errors
            /// As there.
            pub async fn validate(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
                match self { $(AnyProtocol::$name(it) => it.validate(cx, txn).await),+ }
            }

            /// See [`Protocol::rollback`].
            pub fn rollback(&self, cx: &Context, txn: &mut Txn) {
                match self { $(AnyProtocol::$name(it) => it.rollback(cx, txn)),+ }
            }

            /// See [`Protocol::abandon`].
            pub fn abandon(&self, cx: &Context, txn: &mut Txn) {
                match self { $(AnyProtocol::$name(it) => it.abandon(cx, txn)),+ }
            }

            /// See [`Protocol::restructure`].
            ///
            /// # Errors
            /// As there.
            pub async fn restructure(
                &self,
                cx: &Context,
                txn: &mut Txn,
                shard: Shard,
            ) -> Result<Grown, Failure> {
                match self { $(AnyProtocol::$name(it) => it.restructure(cx, txn, shard).await),+ }
            }

            /// See [`Protocol::sweep`].
            ///
            /// # Errors
            /// As there.
            pub async fn sweep(
                &self,
                cx: &Context,
                txn: &mut Txn,
                bucket: (TableId, Address),
            ) -> Result<usize, Failure> {
                match self { $(AnyProtocol::$name(it) => it.sweep(cx, txn, bucket).await),+ }
            }

            /// See [`Protocol::reshape`].
            ///
            /// # Errors
            /// As there.
            pub async fn reshape(
                &self,
                cx: &Context,
                txn: &mut Txn,
                work: TreeWork,
            ) -> Result<TreeDone, Failure> {
                match self { $(AnyProtocol::$name(it) => it.reshape(cx, txn, work).await),+ }
            }

            /// See [`Protocol::resolve`].
            ///
            /// # Errors
            /// As there.
            pub async fn resolve(
                &self,
                cx: &Context,
                id: TxnId,
                coordinator: u32,
                asker: Asker,
            ) -> Result<Resolution, Failure> {
                match self {
                    $(AnyProtocol::$name(it) => it.resolve(cx, id, coordinator, asker).await),+
                }
            }

            /// See [`Protocol::fence`].
            ///
            /// # Errors
            /// As there.
            pub async fn fence(&self, cx: &Context, whom: NodeId) -> Result<(), Failure> {
                match self { $(AnyProtocol::$name(it) => it.fence(cx, whom).await),+ }
            }

            /// See [`settle::settle_dead`]: what a protocol has found in logs is of its own type, so that
            /// all hooks are called in one place.
            ///
            /// # Errors
            /// As there.
            pub(crate) async fn settle_dead(
                &self,
                cx: &Context,
                dead: NodeId,
                turn: &Turn<'_>,
            ) -> Result<Vec<(TxnId, Resolution)>, Failure> {
                match self {
                    $(AnyProtocol::$name(it) => settle_dead(it, cx, dead, turn).await),+
                }
            }

            /// See [`settle::logged_by`].
            ///
            /// # Errors
            /// As there.
            pub(crate) async fn logged(
                &self,
                cx: &Context,
                life: NodeId,
            ) -> Result<Vec<Logged>, Failure> {
                match self {
                    $(AnyProtocol::$name(it) => logged_by(it, cx, life).await),+
                }
            }

            /// See [`settle::plant_undone_by`].
            ///
            /// # Errors
            /// As there.
            pub(crate) async fn plant_undone(&self, cx: &Context, id: TxnId) -> Result<(), Failure> {
                match self {
                    $(AnyProtocol::$name(it) => plant_undone_by(it, cx, id).await),+
                }
            }

            /// See [`Protocol::free_stray`].
            pub fn free_stray(&self, cx: &Context, round: &mut Round, lock: (Address, u64)) {
                match self { $(AnyProtocol::$name(it) => it.free_stray(cx, round, lock)),+ }
            }

            /// See [`Protocol::may_log`].
            ///
            /// # Errors
            /// As there.
            pub async fn may_log(&self, cx: &Context, coordinator: u32) -> Result<bool, Failure> {
                match self { $(AnyProtocol::$name(it) => it.may_log(cx, coordinator).await),+ }
            }
        }
    };
}

impl AnyProtocol {
    /// The protocol of a database.
    ///
    /// # Panics
    /// If the database runs something else: our bug.
    pub fn of(database: &Database) -> Arc<AnyProtocol> {
        let protocol: Arc<dyn Any + Send + Sync> = Arc::clone(&database.protocol) as _;
        protocol.downcast().expect("a database runs a protocol")
    }
}

/// The protocol of the database of `cx`: for what is rare.
pub(crate) fn of(cx: &Context) -> &AnyProtocol {
    let protocol: &(dyn Any + Send + Sync) = &*cx.database().protocol;
    protocol.downcast_ref().expect("a database runs a protocol")
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

// One line a protocol.
protocols! {
    ford::Ford,
    lotus::Lotus,
    motor::Motor,
    occ::Occ,
    oocc::Oocc,
    drtm::Drtm,
    dslr::Dslr,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::info::ProtocolCaps;

    #[test]
    fn ordered_indexes_are_refused_where_there_are_none_before_anything_is_laid_out() {
        let caps = ProtocolCaps { ranges: false, ..ALL[0].caps };
        let plain = ProtocolInfo { name: "plain", caps, ..ALL[0] };
        let schemas = [TableSchema::new("s", 10), TableSchema::new("t", 10).ordered("by_key")];
        let refused = refuse_ranges(&plain, &schemas).expect_err("refused").to_string();
        assert_eq!(refused, "ordered indexes of t = 1; allowed: 0 with plain, which has none");
        assert!(refuse_ranges(&plain, &schemas[..1]).is_ok());
        assert!(refuse_ranges(&ALL[0], &schemas).is_ok());
    }
}
