// SPDX-License-Identifier: GPL-2.0

//! Batches of buffers that move together.

use super::{
    arena::Arena,
    buf::BufMut, //
};
use kernel::sync::Arc;

/// Up to [`Self::MAX`] buffers on the way from the pool to a queue pair.
pub(crate) struct Batch {
    bufs: [Option<BufMut>; Self::MAX],
    len: usize,
}

impl Batch {
    /// Maximum number of buffers in a batch.
    pub(crate) const MAX: usize = 16;

    pub(crate) const fn new() -> Self {
        Self {
            bufs: [const { None }; Self::MAX],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of buffers that can still be added.
    pub(crate) fn room(&self) -> usize {
        Self::MAX.saturating_sub(self.len)
    }

    /// Adds the buffer that `f` returns. Returns `false` if none was added. `f` is not called if
    /// the batch is full.
    pub(super) fn push_with(&mut self, f: impl FnOnce() -> Option<BufMut>) -> bool {
        let Some(place) = self.bufs.get_mut(self.len) else {
            return false;
        };
        *place = f();
        let added = place.is_some();
        self.len = self.len.wrapping_add(usize::from(added));
        added
    }

    pub(crate) fn push(&mut self, buf: BufMut) -> Result<(), BufMut> {
        let mut buf = Some(buf);
        self.push_with(|| buf.take());
        buf.map_or(Ok(()), Err)
    }

    pub(crate) fn pop(&mut self) -> Option<BufMut> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        self.bufs.get_mut(last)?.take()
    }
}

impl Arena {
    /// Moves up to `want` free buffers to `out`, as far as it has room. Returns their number.
    pub(crate) fn take(this: &Arc<Self>, want: usize, out: &mut Batch) -> usize {
        Self::take_with(this, want, 0, |slot| out.push_with(|| slot.take_buf()))
    }
}
