//! The encoding of messages between compute nodes about locks.
//!
//! Invariant: a receiver refuses the whole message in two cases. Either the message is cut short, or it names a
//! shard, a timestamp or a transaction that cannot exist. No code reads past the end of a message.
//!
//! ```text
//! LOCK     0 transaction | 8 sender's greatest timestamp | 16 asks, each of 20 bytes
//!   ask    0 key | 8 epoch of the shard 4 | 12 shard 2 | 14 table 2 | 16 mode | 17 kind | 18 zero 2
//!   reply  0 owner's greatest timestamp | 8 verdict | 9 zero 7 | 16 the shard's entry, if it is another one
//! RELEASE  0 transaction | 8 its commit timestamp, or 0      reply: nothing
//! TRANSFER 0 sender's greatest timestamp | 8 shard 2         reply: nothing
//! ```

use super::name::{LockMode, LockName, NameKind};
use tarn_fabric::rpc::HandlerId;
use tarn_store::ids::{OwnerTag, Timestamp, TxnId};
use tarn_store::placement::shard_map::{SHARDS, ShardId};

/// The message that requests locks in shards of one node. The node grants all of these locks or none.
pub const LOCK: HandlerId = HandlerId(0);
/// The message that releases all locks that a transaction holds at a node.
pub const RELEASE: HandlerId = HandlerId(1);
/// The message with which a shard's owner sends the greatest timestamp that it has seen to the shard's receiver. The
/// owner sends this message before it gives the shard away.
pub const TRANSFER: HandlerId = HandlerId(2);

const LOCK_HEAD_BYTES: usize = 16;
const ASK_BYTES: usize = 20;
const REPLY_BYTES: usize = 24;
const RELEASE_BYTES: usize = 16;
const TRANSFER_BYTES: usize = 10;

/// One lock that a LOCK message requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The name of the lock.
    pub name: LockName,
    /// The requested mode of the lock.
    pub mode: LockMode,
    /// The shard to which the lock belongs in the requesting node's map.
    pub shard: ShardId,
    /// The epoch of the shard in the requesting node's map.
    pub epoch: u32,
}

/// An owner's verdict on a LOCK message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Verdict {
    /// The owner grants all locks of the message.
    Granted = 0,
    /// Another transaction holds one of the locks. The owner grants no lock of the message.
    Conflict = 1,
    /// A shard of the message belongs to another node, has another epoch, or is closed. The owner grants no lock of
    /// the message.
    WrongOwner = 2,
    /// The incarnation of the requesting node is not a member any more.
    NotMember = 3,
}

/// An owner's reply to a LOCK message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockReply {
    /// The greatest timestamp that the owner has seen.
    pub known: Timestamp,
    /// The owner's verdict on the message.
    pub verdict: Verdict,
    /// For [`Verdict::WrongOwner`], the owner's entry of the shard as a word. 0 otherwise.
    pub entry: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn timestamp(bytes: &[u8], at: usize) -> Option<Timestamp> {
    word(bytes, at).map(Timestamp).filter(|known| *known <= Timestamp::MAX)
}

fn name(bytes: &[u8]) -> Option<TxnId> {
    OwnerTag::from_name(word(bytes, 0)?)
}

fn shard(low: u8, high: u8) -> Option<ShardId> {
    let number = u16::from_le_bytes([low, high]);
    (usize::from(number) < SHARDS).then_some(ShardId(number))
}

impl Ask {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.name.key.to_le_bytes());
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.shard.0.to_le_bytes());
        bytes.extend(self.name.table.to_le_bytes());
        bytes.extend([u8::from(self.mode == LockMode::Write), self.name.kind as u8, 0, 0]);
    }

    fn take(bytes: &[u8; ASK_BYTES]) -> Option<Ask> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mode = match bytes[16] {
            0 => LockMode::Read,
            1 => LockMode::Write,
            _ => return None,
        };
        let (key, kind) = (word(bytes, 0)?, NameKind::from_number(bytes[17])?);
        let epoch = u32::from_le_bytes(bytes[8..12].try_into().ok()?);
        let name = LockName { table: half(14), kind, key };
        Some(Ask { name, mode, shard: shard(bytes[12], bytes[13])?, epoch })
    }
}

/// Writes a LOCK message.
pub fn put_lock(
    bytes: &mut Vec<u8>,
    txn: TxnId,
    known: Timestamp,
    asks: impl Iterator<Item = Ask>,
) {
    bytes.extend(txn.word().to_le_bytes());
    bytes.extend(known.0.to_le_bytes());
    asks.for_each(|ask| ask.put(bytes));
}

/// Reads a LOCK message: the requesting transaction, the greatest timestamp of its node, and the requested locks.
/// `None` if the message is malformed.
pub fn take_lock(bytes: &[u8]) -> Option<(TxnId, Timestamp, impl Iterator<Item = Ask> + Clone)> {
    let (txn, known) = (name(bytes)?, timestamp(bytes, 8)?);
    let (asks, rest) = bytes[LOCK_HEAD_BYTES..].as_chunks::<ASK_BYTES>();
    if !rest.is_empty() || asks.iter().any(|ask| Ask::take(ask).is_none()) {
        return None;
    }
    Some((txn, known, asks.iter().filter_map(Ask::take)))
}

impl LockReply {
    /// Writes the reply to a LOCK message.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.known.0.to_le_bytes());
        bytes.extend((self.verdict as u64).to_le_bytes());
        bytes.extend(self.entry.to_le_bytes());
    }

    /// Reads the reply to a LOCK message; `None` if the reply is malformed.
    pub fn take(bytes: &[u8]) -> Option<LockReply> {
        let all = [Verdict::Granted, Verdict::Conflict, Verdict::WrongOwner, Verdict::NotMember];
        let verdict = *all.get(usize::try_from(word(bytes, 8)?).ok()?)?;
        let (known, entry) = (timestamp(bytes, 0)?, word(bytes, 16)?);
        (bytes.len() == REPLY_BYTES).then_some(LockReply { known, verdict, entry })
    }
}

/// Writes a RELEASE message.
pub fn put_release(bytes: &mut Vec<u8>, txn: TxnId, committed: Option<Timestamp>) {
    bytes.extend(txn.word().to_le_bytes());
    bytes.extend(committed.map_or(0, |at| at.0).to_le_bytes());
}

/// Reads a RELEASE message; `None` if it is malformed.
pub fn take_release(bytes: &[u8]) -> Option<(TxnId, Option<Timestamp>)> {
    let (txn, at) = (name(bytes)?, timestamp(bytes, 8)?);
    let committed = (at != Timestamp::ZERO).then_some(at);
    (bytes.len() == RELEASE_BYTES).then_some((txn, committed))
}

/// Writes a TRANSFER message.
pub fn put_transfer(bytes: &mut Vec<u8>, shard: ShardId, known: Timestamp) {
    bytes.extend(known.0.to_le_bytes());
    bytes.extend(shard.0.to_le_bytes());
}

/// Reads a TRANSFER message; `None` if it is malformed.
pub fn take_transfer(bytes: &[u8]) -> Option<(ShardId, Timestamp)> {
    let bytes: &[u8; TRANSFER_BYTES] = bytes.try_into().ok()?;
    Some((shard(bytes[8], bytes[9])?, timestamp(bytes, 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};

    fn asks() -> impl Strategy<Value = Vec<Ask>> {
        let ask =
            ((any::<u64>(), any::<u16>(), 0..SHARDS as u16, any::<u32>(), any::<bool>()), 0u8..3)
                .prop_map(|(parts, kind)| {
                    let (key, table, shard, epoch, writes) = parts;
                    let kind = NameKind::from_number(kind).unwrap();
                    let mode = if writes { LockMode::Write } else { LockMode::Read };
                    Ask { name: LockName { table, kind, key }, mode, shard: ShardId(shard), epoch }
                });
        prop::collection::vec(ask, 0..20)
    }

    fn txn(count: u64) -> TxnId {
        let node = NodeId { slot: NodeSlot(5), incarnation: Incarnation(2) };
        OwnerTag::new(node, 3, count)
    }

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(asks in asks(), known in 0..=Timestamp::MAX.0, entry: u64, at in 0usize..4) {
            let mut bytes = Vec::new();
            put_lock(&mut bytes, txn(7), Timestamp(known), asks.iter().copied());
            let (id, knew, read) = take_lock(&bytes).unwrap();
            prop_assert_eq!((id, knew, read.collect::<Vec<_>>()), (txn(7), Timestamp(known), asks));
            let all = [Verdict::Granted, Verdict::Conflict, Verdict::WrongOwner, Verdict::NotMember];
            let reply = LockReply { known: Timestamp(known), verdict: all[at], entry };
            let mut bytes = Vec::new();
            reply.put(&mut bytes);
            prop_assert_eq!(LockReply::take(&bytes), Some(reply));
            let committed = Some(Timestamp(known)).filter(|at| at.0 != 0);
            let mut bytes = Vec::new();
            put_release(&mut bytes, txn(9), committed);
            prop_assert_eq!(take_release(&bytes), Some((txn(9), committed)));
            let (shard, mut bytes) = (ShardId((entry % SHARDS as u64) as u16), Vec::new());
            put_transfer(&mut bytes, shard, Timestamp(known));
            prop_assert_eq!(take_transfer(&bytes), Some((shard, Timestamp(known))));
        }

        #[test]
        fn bytes_that_are_no_message_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            if let Some((_, _, asks)) = take_lock(&bytes) {
                prop_assert_eq!(asks.count() * ASK_BYTES + LOCK_HEAD_BYTES, bytes.len());
            }
            prop_assert!(LockReply::take(&bytes).is_none() || bytes.len() == REPLY_BYTES);
            prop_assert!(take_release(&bytes).is_none() || bytes.len() == RELEASE_BYTES);
            prop_assert!(take_transfer(&bytes).is_none() || bytes.len() == TRANSFER_BYTES);
        }
    }
}
