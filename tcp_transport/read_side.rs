// SPDX-License-Identifier: GPL-2.0

//! Place of the reader of an endpoint, which the work and the events of the socket share.
//!
//! An event receives with the lock held. Its bytes go to their programs without a switch to the
//! work. The work may have to sleep for memory, so it takes the reader out and puts it back. An
//! event finds none meanwhile, and queues the work again.
//!
//! Errors: a lack of memory, and all that is rare, is left to the work.
//!
//! The stack may report an event within an event: when the reader has made TCP send an
//! acknowledgement, whose program of BPF changes the socket. So an event never waits for the lock.

use super::reader::Reader;

/// The reader, and its users.
pub(super) struct ReadSide {
    /// `None` while the work reads.
    reader: Option<Reader>,
    /// Events may receive: the work has noted all that the first frames show.
    in_events: bool,
}

impl ReadSide {
    /// Creates the place of a reader that only the work uses at first.
    pub(super) const fn new(reader: Reader) -> Self {
        Self {
            reader: Some(reader),
            in_events: false,
        }
    }

    /// Returns the reader, unless the work has it.
    pub(super) fn reader(&self) -> Option<&Reader> {
        self.reader.as_ref()
    }

    /// Returns the reader for an event. Returns `None` if the work has to receive.
    pub(super) fn for_event(&mut self) -> Option<&mut Reader> {
        self.reader.as_mut().filter(|_| self.in_events)
    }

    /// Lets events receive nothing more until the work has received.
    pub(super) fn leave_to_work(&mut self) {
        self.in_events = false;
    }

    /// Takes the reader out.
    pub(super) fn take(&mut self) -> Option<Reader> {
        self.reader.take()
    }

    /// Puts the reader back. Events may receive from now on if `in_events` is set.
    pub(super) fn put_back(&mut self, reader: Reader, in_events: bool) {
        self.reader = Some(reader);
        self.in_events = in_events;
    }
}
