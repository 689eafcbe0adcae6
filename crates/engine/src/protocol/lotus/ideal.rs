//! The cost of an ideal lock at memory nodes: a counter of holders in each compute node, and an FAA when it leaves zero
//! and when it comes back to zero. LOTUS's evaluation compares with it (§8.4, Figure 17).
//!
//! Invariant: nothing rests on these FAAs. Lock tables say whose a lock is, as ever. An FAA adds zero to a word of the
//! coordinator's own log area in the group of the locked record. So it goes to the memory node to which an ideal lock's would go, changes no
//! byte, and leaves nothing to recover. It goes with the READ that follows the grant and with the last WRITEs, without a
//! round of its own. A node's own grants are counted by their holders; another node's grants, which cost messages as well, one by
//! one. Locks of index nodes are left out.

use super::switches::{Lotus, on};
use crate::services::lock::name::{LockName, NameKind};
use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_store::ids::Mode;
use tarn_store::index::hash::home;
use tarn_store::index::hash_of;
use tarn_store::schema::TableId;

/// An entry's locks were granted: their FAAs go with its READ.
#[inline]
pub(super) fn take(lotus: &Lotus, cx: &Context, txn: &mut Txn, index: usize) {
    let entry = txn.entries[index];
    if lotus.switches.is_on(on::LOCKS_APART) || entry.found || lotus.reads_snapshot(txn, index) {
        return;
    }
    add(cx, txn, LockName::row(entry.table.0, entry.key));
    if entry.mode == Mode::Insert {
        let bucket = txn.lookup(&entry).directory;
        add(cx, txn, LockName::bucket(entry.table.0, bucket));
    }
}

/// Adds the FAAs of the locks that are given up when the round is done.
#[inline]
pub(super) fn add_given_up(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if lotus.switches.is_on(on::LOCKS_APART) {
        return;
    }
    let own = txn.held.own_names().map(|(name, _)| name);
    let names: Vec<LockName> = own.chain(txn.held.others()).collect();
    names.into_iter().for_each(|name| add(cx, txn, name));
}

/// Sends the FAAs where nothing else is sent. They are not waited for.
#[inline]
pub(super) fn give_up(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if lotus.switches.is_on(on::LOCKS_APART) {
        return;
    }
    txn.round.begin();
    add_given_up(lotus, cx, txn);
    if !txn.round.is_empty() {
        // Whatever becomes of it: it changes nothing.
        let _ = cx.port.post_detached(&mut txn.round);
    }
}

fn add(cx: &Context, txn: &mut Txn, name: LockName) {
    if name.kind == NameKind::Node || !txn.held.is_alone(cx, name) {
        return;
    }
    let group = match name.kind {
        NameKind::Row => {
            let table = cx.table(TableId(name.table));
            home(cx.lookup_context(), table, hash_of(table, name.key)).group()
        }
        NameKind::Bucket | NameKind::Node => Address::from_word(name.key).group(),
    };
    let word = cx.database().catalog.log(group, txn.coordinator);
    txn.round.faa(cx.groups.primary(word), 0);
}
