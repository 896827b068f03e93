// SPDX-License-Identifier: GPL-2.0

//! What few messages bring beside their payload.

use super::Stamps;
use crate::kapi::alloc::kmalloc_size;
use crate::proto::rdma::RdmaExthdrs;
use kernel::prelude::*;

/// In memory of its own.
#[derive(Default)]
pub(crate) struct MsgMeta {
    /// What the sender says.
    pub(crate) extras: RdmaExthdrs,
    /// Only while somebody asks.
    pub(crate) stamps: Option<Stamps>,
}

impl MsgMeta {
    /// What it takes of memory, in bytes.
    pub(crate) const SIZE: usize = kmalloc_size(size_of::<Self>());

    /// For a message that is coming in, whose times are asked for. `None` if there is no memory. Any context.
    #[cold]
    pub(crate) fn with_stamps() -> Option<KBox<Self>> {
        let stamps = Stamps::arrive();
        let mut this = KBox::new(Self::default(), GFP_ATOMIC).ok()?;
        this.stamps = Some(stamps.start());
        Some(this)
    }
}
