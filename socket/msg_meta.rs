// SPDX-License-Identifier: GPL-2.0

//! Optional message metadata: RDMA extension headers and receive timestamps.

use super::Stamps;
use crate::{
    kapi::alloc::kmalloc_size,
    proto::rdma::RdmaExthdrs, //
};
use kernel::prelude::*;

/// Metadata of a message. Allocated separately because few messages have any.
#[derive(Default)]
pub(crate) struct MsgMeta {
    /// Extension headers of the sender.
    pub(crate) extras: RdmaExthdrs,
    /// Timestamps, present only while a socket requests them.
    pub(crate) stamps: Option<Stamps>,
}

impl MsgMeta {
    /// Allocated size, in bytes.
    pub(crate) const SIZE: usize = kmalloc_size(size_of::<Self>());

    /// Creates the metadata of an incoming message whose timestamps are requested. Returns `None`
    /// if there is no memory.
    ///
    /// # Context
    ///
    /// Any context.
    #[cold]
    pub(crate) fn with_stamps() -> Option<KBox<Self>> {
        let stamps = Stamps::arrive();
        let mut this = KBox::new(Self::default(), GFP_ATOMIC).ok()?;
        this.stamps = Some(stamps.start());
        Some(this)
    }
}
