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
    /// Maximum of [`Self::in_use`] so far. For several arenas the sum of their maxima, which they
    /// may have reached at different times. It is an upper bound then.
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

    /// Adds the statistics of another arena.
    pub(crate) fn add(&mut self, other: Self) {
        let sums = [
            (&mut self.shards, other.shards),
            (&mut self.bytes, other.bytes),
            (&mut self.slots, other.slots),
            (&mut self.in_use, other.in_use),
            (&mut self.high_water, other.high_water),
            (&mut self.empty, other.empty),
            (&mut self.foreign, other.foreign),
        ];
        for (sum, number) in sums {
            *sum = sum.wrapping_add(number);
        }
    }
}
