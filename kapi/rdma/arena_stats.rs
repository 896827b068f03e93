// SPDX-License-Identifier: GPL-2.0

//! Statistics of arenas.

/// Statistics of an [`Arena`](super::Arena).
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct ArenaStats {
    pub(crate) shards: usize,
    /// Bytes of all shards together.
    pub(crate) bytes: usize,
    /// Number of buffers of all shards together.
    pub(crate) slots: usize,
    /// Number of buffers that are not free.
    pub(crate) in_use: usize,
    /// Maximum of [`Self::in_use`] so far.
    pub(crate) high_water: usize,
    /// Number of shards without a used buffer.
    pub(crate) empty: usize,
    /// Number of shards on another NUMA node than the device.
    pub(crate) foreign: usize,
}

impl ArenaStats {
    /// Returns the number of free buffers.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.slots.wrapping_sub(self.in_use)
    }
}
