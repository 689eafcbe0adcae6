//! Models the cost of an ideal lock at memory nodes. Each compute node counts the holders of such a lock, and sends
//! an FAA when the count leaves zero and when it returns to zero. LOTUS's evaluation compares LOTUS with such locks
//! (§8.4, Figure 17).
//!
//! Invariant: no other code relies on the results of these FAAs. The lock tables decide as usual which transaction
//! holds a lock. Each FAA adds zero to a word of the coordinator's own log area, in the group of the locked record.
//! Each FAA goes to the memory node that would have the ideal lock, but it changes no byte and leaves nothing for
//! recovery. The FAA is sent in the same round as the READ after the grant, or in the same round as the commit's last
//! WRITEs. So the FAA needs no separate round. For locks that this node grants, the node counts the holders. For
//! locks that another node grants, which also cost messages, each grant causes its own FAA. Locks of index nodes
//! cause no FAAs.

use super::switches::{Lotus, on};
use crate::services::lock::name::{LockName, NameKind};
use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_store::ids::Mode;
use tarn_store::index::hash::home;
use tarn_store::index::hash_of;
use tarn_store::schema::TableId;

/// Adds the FAAs for an entry's granted locks to the round of the entry's READ.
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

/// Adds the FAAs for the locks that the transaction releases after the round has ended.
#[inline]
pub(super) fn add_given_up(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if lotus.switches.is_on(on::LOCKS_APART) {
        return;
    }
    let own = txn.held.own_names().map(|(name, _)| name);
    let names: Vec<LockName> = own.chain(txn.held.others()).collect();
    names.into_iter().for_each(|name| add(cx, txn, name));
}

/// Sends the FAAs in a separate round, if the transaction sends no other round. The transaction does not wait for
/// these FAAs.
#[inline]
pub(super) fn give_up(lotus: &Lotus, cx: &Context, txn: &mut Txn) {
    if lotus.switches.is_on(on::LOCKS_APART) {
        return;
    }
    txn.round.begin();
    add_given_up(lotus, cx, txn);
    if !txn.round.is_empty() {
        // An error of this round does not matter, because the FAAs change nothing.
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
