// SPDX-License-Identifier: GPL-2.0

//! Send side of an endpoint: gives frames to the socket, and notes what TCP has acknowledged.
//!
//! # Operation
//!
//! The work of the endpoint, or a program, takes frames from the stage, a batch at a time, and
//! sends a batch with one call. TCP may take a part of it; a later call sends the rest. A mark
//! notes where each message ends in the stream, until TCP has acknowledged that byte.
//!
//! # Ownership
//!
//! A frame owns a handle of its buffer: first in the stage, then in the batch. TCP copies the
//! bytes, so the batch drops its frames when TCP has them. The message keeps a handle of its own
//! for a replay, until the peer has acknowledged it.
//!
//! # Errors
//!
//! Without room in the socket the frames stay in the batch, and an event of the socket queues the
//! work again. Without memory no event comes, so the caller retries later. An error of the socket
//! ends the endpoint; [`Writer::clear`] drops the rest, and the next endpoint sends it again.

use super::{
    counters::{
        TcpCounter,
        TcpCounters, //
    },
    stage::{
        FrameStage,
        Staged, //
    }, //
};
use crate::{
    conn::Connection,
    kapi::{
        net::tcp::{
            SendBatch,
            TcpSocket, //
        },
        sync::SpinLockBh, //
    },
    proto::tcp_marks::{
        Marks,
        StreamMark, //
    },
    socket::TransportId,
    trace, //
};
use kernel::prelude::*;

/// Frames that are sent with one call. Each has up to two pieces.
const BATCH: usize = SendBatch::PIECES / 2;

/// Number of messages that TCP may have and has not acknowledged.
const MARKS: usize = 2048;

/// The same before [`Writer::grow`].
const FEW_MARKS: usize = 2 * BATCH;

/// The send side of an endpoint.
pub(super) struct Writer {
    /// Frames that were taken from the stage, of which TCP has some bytes.
    batch: KVec<Staged>,
    /// Index of the first frame of which TCP has not all bytes, and the number of those that it
    /// has.
    at: usize,
    sent: usize,
    marks: Marks,
    memory: KVVec<StreamMark>,
    /// The last message that TCP has acknowledged. 0 if there is none.
    pub(super) acked: u64,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// TCP has everything that was staged.
    All,
    /// There is no room. An event reports when there is.
    Blocked,
    /// There is no memory, and no event reports when there is. The caller tries again later.
    NoMemory,
    /// TCP has to acknowledge messages first.
    Unacknowledged,
    /// TCP has as many batches as the caller sends. There may be more.
    Batches,
}

impl Writer {
    /// Creates the send side of a new socket, without memory unless it carries messages.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(carries: bool) -> Result<Self> {
        let (frames, marks) = if carries { (BATCH, FEW_MARKS) } else { (0, 0) };
        Ok(Self {
            batch: KVec::with_capacity(frames, GFP_KERNEL)?,
            at: 0,
            sent: 0,
            marks: Marks::new(0),
            memory: KVVec::from_elem(StreamMark::default(), marks, GFP_KERNEL)?,
            acked: 0,
        })
    }

    /// Makes room for all marks. Without it the endpoint sends more slowly.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn grow(&mut self) -> Result {
        if self.memory.len() < MARKS {
            let flags = GFP_KERNEL | __GFP_NOWARN;
            let mut memory = KVVec::from_elem(StreamMark::default(), MARKS, flags)?;
            self.marks.relocate(&self.memory, &mut memory);
            self.memory = memory;
        }
        Ok(())
    }

    /// Begins a connection whose first byte has the number `una`.
    pub(super) fn begin(&mut self, una: u32) {
        self.marks = Marks::new(una);
    }

    /// Returns `true` if there is room for the marks of more messages.
    pub(super) fn has_room(&self) -> bool {
        self.marks.has_room(&self.memory, BATCH)
    }

    /// Returns the numbers of the first byte behind the last message but one that TCP has, and of
    /// the first one behind the last.
    pub(super) fn last(&self) -> (u32, u32) {
        self.marks.last()
    }

    /// Returns `true` if TCP has not acknowledged all messages.
    pub(super) fn is_unacknowledged(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Sends what is staged, at most `batches` new batches. May sleep.
    ///
    /// # Errors
    ///
    /// - Those of the connection, which has ended.
    pub(super) fn run(
        &mut self,
        socket: &TcpSocket,
        connection: &Connection,
        stage: &SpinLockBh<FrameStage>,
        counters: &TcpCounters,
        mut batches: usize,
    ) -> Result<Written> {
        let mut has_retried = false;
        loop {
            if self.at >= self.batch.len() {
                self.batch.clear();
                self.at = 0;
                if batches == 0 && stage.lock().count() > 0 {
                    return Ok(Written::Batches);
                }
                batches = batches.saturating_sub(1);
                if !self.has_room() {
                    return Ok(Written::Unacknowledged);
                }
                self.refill(stage);
                if self.batch.is_empty() {
                    return Ok(Written::All);
                }
            }
            let mut pieces = SendBatch::new();
            for (index, frame) in self.batch.iter().enumerate().skip(self.at) {
                let skip = if index == self.at { self.sent } else { 0 };
                let (header, payload) = frame.bytes();
                let of_header = skip.min(header.len());
                let rest = header.get(of_header..).unwrap_or(&[]);
                let payload = payload.get(skip.saturating_sub(of_header)..).unwrap_or(&[]);
                if !pieces.add(rest) || !pieces.add(payload) {
                    break;
                }
            }
            let taken = socket.send(&mut pieces)?;
            if taken == 0 {
                if socket.is_writable() {
                    // The peer's TCP may have made room meanwhile, of which no event was reported.
                    if !core::mem::replace(&mut has_retried, true) {
                        continue;
                    }
                    // With room left it is memory that is missing.
                    return Ok(Written::NoMemory);
                }
                counters.inc(TcpCounter::SndbufFull);
                return Ok(Written::Blocked);
            }
            has_retried = false;
            let count = self.advance(taken);
            let left = self.batch.len().saturating_sub(self.at);
            if count > 0 {
                trace::send_completed(
                    || connection.key.traced(),
                    TransportId::Tcp as u8,
                    count,
                    || stage.lock().count().saturating_add(left) as u64,
                );
            }
        }
    }

    /// Takes the next frames from the stage.
    fn refill(&mut self, stage: &SpinLockBh<FrameStage>) {
        let mut stage = stage.lock();
        while self.batch.len() < BATCH {
            let Some(frame) = stage.pop() else {
                break;
            };
            // There is room, so nothing is dropped here.
            drop(self.batch.push_within_capacity(frame));
        }
    }

    /// Notes that TCP has taken the next `taken` bytes. Returns the number of frames that it has
    /// taken completely with them.
    fn advance(&mut self, mut taken: usize) -> usize {
        let before = self.at;
        while let Some(frame) = self.batch.get(self.at) {
            let left = frame.len().saturating_sub(self.sent);
            if taken < left {
                self.marks.give(&mut self.memory, taken, 0);
                self.sent = self.sent.saturating_add(taken);
                break;
            }
            self.marks.give(&mut self.memory, left, frame.ends);
            taken = taken.saturating_sub(left);
            self.at = self.at.saturating_add(1);
            self.sent = 0;
        }
        self.at.saturating_sub(before)
    }

    /// Drops the frames that TCP has not taken.
    pub(super) fn clear(&mut self) {
        self.batch.clear();
        (self.at, self.sent) = (0, 0);
    }

    /// Notes the number of the first byte that the peer's TCP has not acknowledged. Returns `true`
    /// if more messages are acknowledged now.
    pub(super) fn note_una(&mut self, una: u32) -> bool {
        match self.marks.acknowledge(&self.memory, una) {
            Some(last) => {
                self.acked = last;
                true
            }
            None => false,
        }
    }
}
