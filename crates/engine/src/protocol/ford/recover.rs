//! FORD's recovery, which is that of undo logs ([`crate::recovery::undo`]); here what its switches leave out.

use super::{Ford, On, Phase, enter};
use crate::context::Context;
use crate::outcome::{Failure, Resolution, TxnId};
pub(super) use crate::recovery::undo::{Left, apply, decide};
use crate::recovery::undo::{self, Whose};
use crate::recovery::{Asker, Unsettled};
use tarn_fabric::address::NodeId;

/// See [`undo::resolve`].
pub(super) async fn resolve(
    ford: &Ford,
    cx: &Context,
    whom: (TxnId, Asker),
    coordinator: u32,
) -> Result<Resolution, Failure> {
    enter(cx, Phase::Resolve);
    undo::resolve(cx, whom, coordinator, whose(ford)).await
}

/// See [`undo::enumerate`].
pub(super) async fn enumerate(cx: &Context, dead: NodeId) -> Result<Vec<Unsettled<Left>>, Failure> {
    enter(cx, Phase::Resolve);
    undo::enumerate(cx, dead).await
}

/// See [`undo::release`].
pub(super) async fn release(
    ford: &Ford,
    cx: &Context,
    left: &[Unsettled<Left>],
) -> Result<(), Failure> {
    undo::release(cx, left, whose(ford)).await
}

fn whose(ford: &Ford) -> Whose {
    if ford.on(On::ReleaseOwn) { Whose::Own } else { Whose::Anybodys }
}
