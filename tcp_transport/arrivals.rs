// SPDX-License-Identifier: GPL-2.0

//! Receiving from the socket of a context, in its events and in its work.
//!
//! An event receives at once. What it cannot receive, it defers to the work. Ownership: events and
//! the work share the reader, see [`ReadSide`](super::read_side::ReadSide). Errors: without memory
//! the work tries again later. The end of the stream ends the endpoint.

use super::{
    context::{
        Io,
        TcpContext,
        BUDGET,
        GROW_INTERVAL, //
    },
    counters::TcpCounter,
    reader::{
        AckedBy,
        Reader, //
    },
    window::ReadStop, //
};
use crate::{
    kapi::{
        net::{
            tcp::TcpState,
            tcp_events::LockedSocket, //
        },
        time, //
    },
    recv_pool::Context, //
};
use kernel::sync::{
    atomic::{
        Full,
        Relaxed, //
    },
    Arc, //
};

/// Frames that one event receives. Softirqs are off meanwhile.
const EVENT_BUDGET: usize = 64;

impl TcpContext {
    /// Receives what has arrived, without the work. Returns `false` if the work has more to do.
    ///
    /// # Context
    ///
    /// That of the event.
    pub(super) fn receive_in_event(self: &Arc<Self>, socket: &LockedSocket<'_>) -> bool {
        let Self {
            connection,
            transport,
            ..
        } = &**self;
        let Some(mut read_side) = self.read_side.try_lock() else {
            return false;
        };
        let reader = read_side.for_event();
        let Some(reader) = reader.filter(|_| !self.progress.has_ended()) else {
            return false;
        };
        let memory = transport.memory_to_read(connection, Context::FreeOnly);
        let counters = &transport.counters;
        let stop = reader.run(socket, connection, memory, counters, EVENT_BUDGET);
        if matches!(stop, ReadStop::NoMemory | ReadStop::End) {
            read_side.leave_to_work();
        }
        drop(read_side);
        connection.flush_ack();
        match stop {
            ReadStop::Nothing => !socket.has_unread(),
            ReadStop::Budget | ReadStop::NoMemory => false,
            ReadStop::End => {
                self.lose();
                true
            }
        }
    }

    /// Takes the reader from its place. Returns `None` after the end of the socket.
    pub(super) fn take_reader(&self) -> Option<Reader> {
        self.read_side.lock().take()
    }

    /// Returns the number of frames that were received, and `true` if a message has begun and not
    /// ended.
    pub(super) fn received(&self) -> Option<(u32, bool)> {
        let read_side = self.read_side.lock();
        let reader = read_side.reader()?;
        Some((reader.frames, reader.is_incomplete()))
    }

    /// Returns the numbers of bytes that have not arrived: of the next header, and of the payload
    /// behind the last one.
    pub(super) fn missing(&self) -> Option<(usize, u32)> {
        self.read_side
            .lock()
            .reader()
            .map(|reader| reader.missing())
    }

    /// Receives what the events have left. Returns the reason why it has stopped, and `true` if the
    /// endpoint is to be lost for lack of memory. `None` after the end of the socket. May sleep.
    pub(super) fn receive(&self, io: &mut Io, state: TcpState) -> Option<(ReadStop, bool)> {
        let Self {
            connection,
            transport,
            ..
        } = self;
        let socket = io.socket.as_ref()?;
        // An event that finds no reader from here on sets it again, and queues the work.
        let is_deferred = self.deferred.xchg(false, Full);
        let mut read_side = self.read_side.lock();
        if !is_deferred && read_side.for_event().is_some() {
            return Some((ReadStop::Nothing, false));
        }
        let mut reader = read_side.take()?;
        drop(read_side);
        let memory = transport.memory_to_read(connection, Context::MaySleep);
        let counters = &transport.counters;
        let stop = reader.run(socket, connection, memory, counters, BUDGET);
        io.acked_by = reader.acked_by;
        io.starves = stop == ReadStop::NoMemory;
        let gives_up = io.starves && self.wait_for_memory(&mut io.starvation, &reader, state);
        if !io.starves {
            io.starvation.end();
        }
        connection.flush_ack();
        self.look_for_message(&mut io.has_message);
        let may_grow = io.grow_at.is_some_and(|at| time::monotonic_ns() >= at);
        if may_grow && io.has_message {
            io.grow_at = match self.grow(&mut reader, &mut io.writer) {
                Ok(()) => None,
                Err(_) => {
                    counters.inc(TcpCounter::GrowFailed);
                    Some(time::monotonic_ns().saturating_add(GROW_INTERVAL))
                }
            };
        }
        let goes_on = matches!(stop, ReadStop::Nothing | ReadStop::Budget);
        let is_known = io.acked_by != AckedBy::Unknown && reader.frames > 0;
        if stop == ReadStop::Budget {
            self.deferred.store(true, Relaxed);
        }
        let in_events = goes_on && is_known && io.grow_at.is_none();
        self.read_side.lock().put_back(reader, in_events);
        Some((stop, gives_up))
    }
}
