// SPDX-License-Identifier: GPL-2.0

//! Memory for one message, set aside for a connection whose softirq found none.
//!
//! A connection without such trouble has none. The worker of the device allocates it, and may wait
//! for memory. What the message does not need stays until the link ends.

use crate::{
    kapi::sync::Item,
    proto::packed,
    socket::{
        Incoming,
        MsgMeta,
        RecvBuf, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::prelude::*;

/// Memory for one message.
pub(super) struct RecvReserve {
    incoming: Option<Item<Incoming>>,
    /// Room for the payload of a message in a packed frame.
    copy: KVVec<u8>,
    bufs: KVec<RecvBuf>,
    /// Number of buffers for which the last message in fragments needed room.
    fragments: usize,
}

impl RecvReserve {
    pub(super) const fn new() -> Self {
        Self {
            incoming: None,
            copy: KVVec::new(),
            bufs: KVec::new(),
            fragments: 0,
        }
    }

    /// Takes a message, whose metadata is allocated.
    pub(super) fn take_incoming(&mut self) -> Option<Item<Incoming>> {
        self.incoming.take()
    }

    /// Takes room for a copy of `len` bytes.
    pub(super) fn take_copy(&mut self, len: usize) -> Option<KVVec<u8>> {
        (self.copy.capacity() >= len).then(|| core::mem::take(&mut self.copy))
    }

    /// Takes a list with room for `count` buffers. Without one, the next reserve has it.
    pub(super) fn take_list(&mut self, count: usize) -> Option<KVec<RecvBuf>> {
        if self.bufs.capacity() >= count {
            return Some(core::mem::take(&mut self.bufs));
        }
        self.fragments = count;
        None
    }

    /// Returns the number of buffers for which a list is missing.
    pub(super) fn missing(&self) -> usize {
        self.fragments
    }

    /// Allocates memory for a message in `fragments` fragments. Without memory for a part of it,
    /// the reserve lacks that part.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn allocate(fragments: usize) -> Self {
        let meta = KBox::new(MsgMeta::default(), GFP_KERNEL).ok();
        let incoming = match meta {
            Some(meta) => {
                let from = Ipv6Addr::UNSPECIFIED;
                Incoming::new(from, 0, 0, 0, Some(meta), GFP_KERNEL).ok()
            }
            None => None,
        };
        Self {
            incoming,
            copy: KVVec::with_capacity(packed::LONGEST as usize, GFP_KERNEL).unwrap_or_default(),
            bufs: KVec::with_capacity(fragments, GFP_KERNEL).unwrap_or_default(),
            fragments: 0,
        }
    }
}
