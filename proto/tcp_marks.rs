// SPDX-License-Identifier: GPL-2.0

//! Messages that the peer's TCP has acknowledged.
//!
//! The link notes where each message ends in the stream of its connection. Positions count from the
//! first byte of the connection, in 64 bits, and are forgotten with it. Sequence numbers of one TCP
//! connection mean nothing on another.
//!
//! Ownership: the caller has the memory for the marks, and may replace it. Errors: none; a full set
//! takes no mark, so the link has to wait.

/// End of a message in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamMark {
    end: u64,
    sequence: u64,
}

/// The marks of messages that TCP has not acknowledged, in order. Their memory is passed to each
/// call: the same as before, or that of [`Marks::relocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    first: usize,
    count: usize,
    /// Bytes that were given to TCP.
    given: u64,
    /// Bytes that the peer's TCP has acknowledged.
    acked: u64,
    /// Number of the first byte that the peer's TCP has not acknowledged.
    una: u32,
    /// Ends of the last message that TCP has whole, and of the one before it.
    last_end: u64,
    last_begin: u64,
}

impl Marks {
    /// Creates an empty set for a connection whose first byte has the number `una`.
    pub(crate) const fn new(una: u32) -> Self {
        Self {
            first: 0,
            count: 0,
            given: 0,
            acked: 0,
            una,
            last_end: 0,
            last_begin: 0,
        }
    }

    /// Returns the numbers of the first byte behind the last message but one that TCP has whole,
    /// and of the first one behind the last.
    pub(crate) fn last(&self) -> (u32, u32) {
        // CAST: numbers of TCP are modulo 2^32.
        let number = |at: u64| self.una.wrapping_sub(self.acked.wrapping_sub(at) as u32);
        (number(self.last_begin), number(self.last_end))
    }

    /// Returns `true` if there is room for `more` marks.
    pub(crate) fn has_room(&self, memory: &[StreamMark], more: usize) -> bool {
        self.count.saturating_add(more) <= memory.len()
    }

    /// Returns `true` if TCP has acknowledged all messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn at(&self, index: usize, len: usize) -> Option<usize> {
        self.first.wrapping_add(index).checked_rem(len)
    }

    /// Copies the marks to other memory, which has at least as many places.
    pub(crate) fn relocate(&mut self, from: &[StreamMark], to: &mut [StreamMark]) {
        for (index, place) in to.iter_mut().enumerate().take(self.count) {
            let mark = self.at(index, from.len()).and_then(|at| from.get(at));
            *place = mark.copied().unwrap_or_default();
        }
        self.first = 0;
    }

    /// Notes that TCP has taken `bytes`. They end message `sequence`, if that is not 0.
    pub(crate) fn give(&mut self, memory: &mut [StreamMark], bytes: usize, sequence: u64) {
        self.given = self.given.wrapping_add(bytes as u64);
        if sequence != 0 {
            (self.last_begin, self.last_end) = (self.last_end, self.given);
        }
        if sequence == 0 || !self.has_room(memory, 1) {
            return;
        }
        let place = self.at(self.count, memory.len());
        if let Some(mark) = place.and_then(|at| memory.get_mut(at)) {
            *mark = StreamMark {
                end: self.given,
                sequence,
            };
            self.count = self.count.saturating_add(1);
        }
    }

    /// Notes the number of the first byte that the peer's TCP has not acknowledged. Returns the
    /// sequence number of the last message that is acknowledged now, and was not before.
    pub(crate) fn acknowledge(&mut self, memory: &[StreamMark], una: u32) -> Option<u64> {
        let more = una.wrapping_sub(self.una);
        // The last number of a connection that never was up is before the first one.
        if more as i32 > 0 {
            self.una = una;
            self.acked = self.acked.wrapping_add(u64::from(more));
        }
        let mut last = None;
        while self.count > 0 {
            let mark = self.at(0, memory.len()).and_then(|at| memory.get(at));
            let Some(mark) = mark.filter(|mark| mark.end <= self.acked) else {
                break;
            };
            last = Some(mark.sequence);
            self.first = self.at(1, memory.len()).unwrap_or(0);
            self.count = self.count.saturating_sub(1);
        }
        last
    }
}
