// SPDX-License-Identifier: GPL-2.0

//! End of the use of a socket.
//!
//! The peer's TCP may believe that RDS has what this one has acknowledged. So a teardown receives
//! that first. Errors: what cannot be received is lost and counted, unless the peer sends it again.

use super::{
    context::{
        Role,
        TcpContext,
        BUDGET,
        RETRY_MS, //
    },
    counters::TcpCounter,
    reader::{
        AckedBy,
        ReadMemory,
        Reader, //
    },
    stage::Staged,
    window::ReadStop, //
};
use crate::{
    kapi::{
        errno::Errno,
        net::tcp::TcpSocket,
        sync::{
            cancel,
            cancel_delayed, //
        },
        time, //
    },
    proto::SECOND,
    recv_pool::Context, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

/// Longest time in nanoseconds for which a teardown receives what has arrived, as on C RDS.
const DRAIN_NS: u64 = 5 * SECOND;

impl TcpContext {
    /// Ends the use of the socket. Receives what has arrived before that. Nothing happens through
    /// the context afterwards. Sleeps.
    pub(super) fn close(self: &Arc<Self>) {
        let had_ended = self.progress.has_ended();
        self.progress.end();
        let mut guard = self.io.lock();
        let io = &mut *guard;
        let mut socket = io.socket.take();
        if let Some(socket) = &mut socket {
            socket.unwatch();
        }
        // No event uses it now.
        let mut reader = self.take_reader();
        if let Some((socket, reader)) = socket.zip(reader.as_mut()) {
            if self.role() == Role::WakeUp {
                if !had_ended {
                    self.transport.counters.inc(TcpCounter::ConnectRaced);
                }
            } else {
                let una = self.drain(reader, &socket);
                self.look_for_message(&mut io.has_message);
                io.writer.note_una(una);
                if reader.acked_by == AckedBy::Tcp {
                    self.take_acks(&mut io.writer);
                }
            }
        }
        // The next endpoint needs the buffers of the messages for itself.
        io.writer.clear();
        if let Some(mut reader) = reader {
            reader.close();
        }
        drop(guard);
        while let Some(frame) = self.unstage() {
            drop(frame);
        }
        cancel::<_, 0>(self);
        cancel_delayed::<_, 1>(self);
    }

    /// Takes a frame from the stage, so that it can be dropped without the lock.
    fn unstage(&self) -> Option<Staged> {
        self.stage.lock().pop()
    }

    /// Receives what the local TCP has acknowledged, and resets the connection. Returns the number
    /// of the first byte that the peer's TCP has not acknowledged.
    ///
    /// The peer may send as long as TCP has a window, so that is closed. There may be no memory, so
    /// the time is limited. A connection that has ended for good has no socket to deliver to.
    fn drain(&self, reader: &mut Reader, socket: &TcpSocket) -> u32 {
        socket.close_window();
        let transport = &self.transport;
        let counters = &transport.counters;
        // No more arrives, so this ends. With the limit it could wait for others in vain.
        let memory = ReadMemory {
            limit: None,
            ..transport.memory_to_read(&self.connection, Context::MaySleep)
        };
        let deadline = time::monotonic_ns().saturating_add(DRAIN_NS);
        let mut late = None;
        loop {
            let why: Error = match reader.run(socket, &self.connection, memory, counters, BUDGET) {
                ReadStop::Nothing => match socket.abort_if_read() {
                    Some(una) => return una,
                    None => Errno::TimedOut.into(),
                },
                ReadStop::Budget => Errno::TimedOut.into(),
                ReadStop::End => break,
                // The peer sends again what it has no acknowledgement of.
                ReadStop::NoMemory if reader.acked_by == AckedBy::Rds => break,
                ReadStop::NoMemory => {
                    fsleep(Delta::from_millis(RETRY_MS.into()));
                    ENOMEM
                }
            };
            if self.connection.has_ended() || time::monotonic_ns() >= deadline {
                late = Some(why);
                break;
            }
        }
        let una = socket.snd_una();
        let unread = u64::from(socket.abort());
        if let Some(why) = late {
            let lost = unread.saturating_add(reader.unfinished() as u64);
            counters.add(TcpCounter::DrainLost, lost);
            self.connection.note_failure("drain", why);
        }
        una
    }
}
