// SPDX-License-Identifier: GPL-2.0

//! Decides what is sent next to a peer, and when transmission pauses.
//!
//! In this order: the congestion map, short messages in a packed frame, the operation or the next
//! fragment of the first message, a header alone. Only a header may come between the fragments of
//! a message, while there is no buffer for the next one. Nothing comes between the work requests of
//! an operation.
//!
//! Ownership: queue and frames stay with the caller, which describes both. Errors: none.

/// The first unsent message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstUnsent {
    /// The peer waits for the rest of the message.
    pub(crate) is_partially_sent: bool,
    /// The message has an operation with work requests that wait to be posted.
    pub(crate) has_to_operate: bool,
    /// The next work request of the operation is a read.
    pub(crate) reads_next: bool,
}

/// Messages, maps and headers that wait to be sent to a peer.
pub(crate) trait Unsent {
    /// Returns the first unsent message.
    fn first(&self) -> Option<FirstUnsent>;

    /// Returns `true` if a part of the congestion map has to be sent.
    fn is_map_due(&self) -> bool;

    /// Returns `true` if a header must be sent even without a message.
    fn is_header_due(&self) -> bool;

    /// Returns `true` if the peer accepts packed frames, and the first two messages may share one.
    fn can_pack(&self) -> bool;

    /// Returns `true` if the peer accepts packed frames, and only short messages wait, too few to
    /// fill one.
    fn can_delay(&self) -> bool;

    /// Returns `true` if the peer has a receive for the next frame.
    fn may_send(&self) -> bool;
}

/// Room of a link, and the state of the frames and work requests that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkRoom {
    /// Number of frames or work requests for which there is room.
    pub(crate) room: u32,
    /// Number of those that are not known to be done.
    pub(crate) in_flight: u32,
    /// Number in flight of which at least one reports that it is done.
    pub(crate) report_every: u32,
    /// Rules for reads. `None` if they may be mixed with frames.
    pub(crate) reads: Option<ReadRules>,
}

/// State of a link on which a read must not be the first thing that is sent, and only reads may
/// follow a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRules {
    /// A read is not done yet.
    pub(crate) awaits_reads: bool,
    /// The peer may have missed the first frame.
    pub(crate) awaits_first_frame: bool,
}

/// Bytes of payload that one transmission copies while softirqs are off. It is exceeded a little if
/// few frames are in flight. Payload is copied if it was cut for another fragment size or is in
/// another device's memory. The rest follows when some of the frames are done.
const COPIED_AT_ONCE: u32 = 128 << 10;

/// Reason why transmission pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The link has no room.
    NoRoom,
    /// Short messages wait for more of them, or for frames in flight. That takes at most one round
    /// trip, and the device is busy meanwhile.
    Packing,
    /// Too much was copied.
    Copied,
    /// A read has to be done first, or a frame has to arrive before a read.
    Reads,
    /// The peer has no receive.
    NoCredit,
}

/// Kind of frame or work request that is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextSend {
    /// A part of the congestion map.
    Map,
    /// A frame with as many of the first messages as it has room for.
    Packed,
    /// A work request of the operation of the first message.
    Operation {
        /// A header goes before it, if there is a buffer. Operations may follow each other
        /// indefinitely without a frame, so the header cannot wait for one.
        header_first: bool,
    },
    /// A fragment of the first message.
    Fragment,
    /// A header alone.
    Header,
    /// Nothing waits.
    Nothing,
}

/// Returns `true` if nothing waits to be sent.
#[inline]
pub(crate) fn is_idle(queue: &impl Unsent) -> bool {
    queue.first().is_none() && !queue.is_map_due() && !queue.is_header_due()
}

/// Returns the reason to pause, or `None` if what is next may be sent. This transmission has copied
/// `copied` bytes of payload.
#[inline]
pub(crate) fn pause(queue: &impl Unsent, link: &LinkRoom, copied: u32) -> Option<Pause> {
    if link.room == 0 {
        return Some(Pause::NoRoom);
    }
    // At least one of those frames reports that it is done, which resumes transmission.
    if link.in_flight >= link.report_every.saturating_mul(2) && queue.can_delay() {
        return Some(Pause::Packing);
    }
    if copied >= COPIED_AT_ONCE && link.in_flight >= link.report_every {
        return Some(Pause::Copied);
    }
    if link.reads.is_some_and(|rules| has_to_wait(queue, rules)) {
        return Some(Pause::Reads);
    }
    if !queue.may_send() {
        return Some(Pause::NoCredit);
    }
    None
}

/// Returns what is sent next.
#[inline]
pub(crate) fn next(queue: &impl Unsent) -> NextSend {
    let first = queue.first();
    if queue.is_map_due() && !first.is_some_and(|first| first.is_partially_sent) {
        return NextSend::Map;
    }
    if queue.can_pack() {
        return NextSend::Packed;
    }
    match first {
        Some(first) if first.has_to_operate => NextSend::Operation {
            header_first: header_goes_first(queue, first),
        },
        Some(_) => NextSend::Fragment,
        None if queue.is_header_due() => NextSend::Header,
        None => NextSend::Nothing,
    }
}

/// Returns `true` if a header is sent before the next operation. It is never sent within an
/// operation: reads may be outstanding then, only the last of which is sure to report its
/// completion.
#[inline]
fn header_goes_first(queue: &impl Unsent, first: FirstUnsent) -> bool {
    queue.is_header_due() && !first.is_partially_sent
}

/// Returns `true` if a link with these rules must not send what is next.
fn has_to_wait(queue: &impl Unsent, rules: ReadRules) -> bool {
    let reads = |first: FirstUnsent| {
        first.reads_next
            && (first.is_partially_sent || !queue.is_map_due())
            && !header_goes_first(queue, first)
    };
    match queue.first().is_some_and(reads) {
        true => rules.awaits_first_frame,
        false => rules.awaits_reads,
    }
}
