// SPDX-License-Identifier: GPL-2.0

//! Operations of the suites, which record how they end.

use crate::{
    ib_transport::qp_context::QpContext,
    kapi::{
        rdma::{
            fake::local_piece,
            Operation,
            OperationItem,
            Qp,
            Verb,
            WcStatus, //
        },
        sync::{
            new_spinlock_bh,
            Item,
            SpinLockBh, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Completions of an operation: their number, and the last status.
#[pin_data]
pub(super) struct Recorder {
    #[pin]
    pub(super) ends: SpinLockBh<(u32, WcStatus)>,
}

impl Recorder {
    pub(super) fn new() -> Result<[Arc<Self>; 5]> {
        let one = || {
            Arc::pin_init(
                pin_init!(Self {
                    ends <- new_spinlock_bh!((0, WcStatus::SUCCESS), "Recorder::ends"),
                }),
                GFP_KERNEL,
            )
        };
        Ok([one()?, one()?, one()?, one()?, one()?])
    }
}

impl Operation for Recorder {
    fn number(&self) -> u64 {
        0
    }

    fn owner(&self) -> u64 {
        0
    }

    fn done(&self, _: bool, status: WcStatus) {
        let mut ends = self.ends.lock();
        *ends = (ends.0 + 1, status);
    }
}

/// Creates an operation on eight bytes.
pub(super) fn operation(
    qp: &Qp<QpContext>,
    verb: Verb,
    who: &Arc<Recorder>,
) -> Result<Item<OperationItem>> {
    let local = local_piece(&qp.handler().device.pd, 8);
    let item = OperationItem::new(verb, local, 2, 0x9000, true, who.clone());
    Ok(Item::new(item, GFP_ATOMIC)?)
}
