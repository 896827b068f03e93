// SPDX-License-Identifier: GPL-2.0

//! Receive side of an endpoint: cuts the stream into frames for the connection.
//!
//! Payload is read into a buffer of the transport's pools, behind a copy of its header. The buffer
//! goes to the reader of the message, or is used again. Short reads come from a window, so that one
//! call of the socket returns many short messages. A short message that is in the window as a whole
//! needs no buffer.

use super::{
    counters::{
        TcpCounter,
        TcpCounters, //
    },
    partial::{
        PartialCharge,
        PartialLimit, //
    },
    window::{
        ReadStop,
        Window, //
    }, //
};
use crate::{
    conn::{
        Connection,
        ReceiveError,
        RecvFrame, //
    },
    kapi::net::tcp_events::TcpSource,
    proto::{
        packed,
        tcp_stream::{
            self,
            Announced, //
        },
        wire::{
            FragmentSize,
            Header, //
        }, //
    },
    recv_pool::{
        BufMut,
        Context,
        Pools, //
    },
    socket::TransportId,
    trace, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Most payload bytes of a message that needs no buffer of the pools. It is copied to memory of its
/// length, which costs less. The connection has a reserve for it.
const MOST_SHORT: u32 = packed::LONGEST;

/// Protocol whose acknowledgement means that the peer has a message, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckedBy {
    /// The peer has sent no frame yet, and may run either implementation.
    Unknown,
    /// The peer acknowledges messages that it has delivered.
    Rds,
    /// The TCP of the peer acknowledges messages.
    Tcp,
}

/// Source of buffers for frames.
#[derive(Clone, Copy)]
pub(crate) struct ReadMemory<'a> {
    pub(crate) pools: &'a Pools,
    /// Context of the reader.
    pub(crate) context: Context,
    /// Limit on incomplete messages. `None` for known peers outside of namespaces of users.
    pub(crate) limit: Option<PartialLimit>,
}

/// A frame of which some bytes have arrived.
struct Incomplete {
    /// Payload bytes of the message that no earlier frame has.
    left: u32,
    size: FragmentSize,
    /// Bytes of header and payload that have arrived.
    filled: usize,
    /// The frame has the whole message.
    is_whole: bool,
}

/// The receive side of an endpoint.
pub(crate) struct Reader {
    window: Window,
    header: tcp_stream::HeaderBytes,
    /// Bytes of the header that have arrived.
    have: usize,
    frame: Option<Incomplete>,
    /// Buffer of the frame, or of the next one in the same run.
    buf: Option<BufMut>,
    /// Charge of the buffers that the incomplete message has.
    charge: PartialCharge,
    pub(super) acked_by: AckedBy,
    /// Frames that were received. 0 only before the first one.
    pub(crate) frames: u32,
}

impl Reader {
    /// Creates the receive side of a new socket.
    pub(crate) const fn new(charge: PartialCharge) -> Self {
        Self {
            window: Window::new(),
            header: [0; Header::LEN],
            have: 0,
            frame: None,
            buf: None,
            charge,
            acked_by: AckedBy::Unknown,
            frames: 0,
        }
    }

    /// Allocates the window. Without it the endpoint reads more slowly.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn grow(&mut self) -> Result {
        self.window.allocate()
    }

    /// Returns the numbers of bytes that have not arrived: of the next header, and of the payload
    /// behind the last one.
    pub(super) fn missing(&self) -> (usize, u32) {
        match &self.frame {
            None => (Header::LEN.saturating_sub(self.have), 0),
            Some(frame) => {
                let arrived = frame.filled.saturating_sub(Header::LEN);
                // CAST: a frame has less than 2^32 bytes.
                (0, frame.left.saturating_sub(arrived as u32))
            }
        }
    }

    /// Returns `true` if a message has begun and not ended.
    pub(super) fn is_incomplete(&self) -> bool {
        self.have > 0
    }

    /// Receives up to `budget` frames.
    ///
    /// # Context
    ///
    /// Sleeps if the context of `memory` allows that. Otherwise any context except hard interrupt.
    pub(crate) fn run(
        &mut self,
        socket: &impl TcpSource,
        connection: &Arc<Connection>,
        memory: ReadMemory<'_>,
        counters: &TcpCounters,
        budget: usize,
    ) -> ReadStop {
        if self.acked_by == AckedBy::Unknown && connection.is_path_to_c() {
            // The peer may send nothing, so its first frame does not tell.
            self.acked_by = AckedBy::Tcp;
        }
        let before = self.frames;
        let stop = self.receive_frames(socket, connection, memory, budget);
        if self.frame.as_ref().is_none_or(|frame| frame.filled == 0) {
            // There may be any number of idle connections.
            self.buf = None;
        }
        let count = self.frames.wrapping_sub(before);
        if count > 0 {
            let conn = || connection.key.traced();
            trace::recv_completed(conn, TransportId::Tcp as u8, count, || 0);
        }
        // The work tries again at once.
        if stop == ReadStop::NoMemory && memory.context != Context::FreeOnly {
            counters.inc(TcpCounter::RxAllocWait);
        }
        stop
    }

    /// Receives up to `budget` frames.
    fn receive_frames(
        &mut self,
        socket: &impl TcpSource,
        connection: &Arc<Connection>,
        memory: ReadMemory<'_>,
        budget: usize,
    ) -> ReadStop {
        for _ in 0..budget {
            match self.frame(socket, connection, memory) {
                Ok(()) => self.frames = self.frames.wrapping_add(1).max(1),
                Err(stop) => return stop,
            }
        }
        ReadStop::Budget
    }

    /// Returns the number of bytes of frames that were read from the socket, but not passed on.
    pub(super) fn unfinished(&self) -> usize {
        let payload = self
            .frame
            .as_ref()
            .map_or(0, |frame| frame.filled.saturating_sub(Header::LEN));
        let in_frame = self.have.saturating_add(payload);
        self.window.unused().saturating_add(in_frame)
    }

    /// Frees what the incomplete message has. Nothing is received afterwards.
    pub(crate) fn close(&mut self) {
        self.buf = None;
        self.charge.clear();
    }

    /// Receives the next frame.
    fn frame(
        &mut self,
        socket: &impl TcpSource,
        connection: &Arc<Connection>,
        memory: ReadMemory<'_>,
    ) -> Result<(), ReadStop> {
        while let Some(rest) = self.header.get_mut(self.have..).filter(|it| !it.is_empty()) {
            let count = self.window.read(socket, rest)?;
            self.have = self.have.saturating_add(count);
        }
        let mut frame = match self.frame.take() {
            Some(frame) => frame,
            None => self.begin(connection)?,
        };
        if self.has_short(&frame) {
            return self.pass_short(connection, frame, memory.context);
        }
        let result = self.fill(&mut frame, socket, memory);
        if let Err(stop) = result {
            self.frame = Some(frame);
            return Err(stop);
        }
        let part = tcp_stream::part(frame.left, frame.size);
        let received = RecvFrame::Stream {
            buf: &mut self.buf,
            len: frame.filled,
        };
        if let Err(stop) = pass(received, connection, memory.context) {
            self.frame = Some(frame);
            return Err(stop);
        }
        let left = frame.left.saturating_sub(part);
        if left == 0 {
            self.have = 0;
            self.charge.clear();
        } else {
            self.frame = Some(Incomplete {
                left,
                size: frame.size,
                filled: 0,
                is_whole: false,
            });
        }
        Ok(())
    }

    /// Begins the first frame of a message, whose header has arrived.
    fn begin(&mut self, connection: &Arc<Connection>) -> Result<Incomplete, ReadStop> {
        if self.frames == 0 {
            let acknowledges = tcp_stream::acknowledges(&self.header);
            self.acked_by = match acknowledges {
                true => AckedBy::Rds,
                false => AckedBy::Tcp,
            };
            connection.note_first_frame(acknowledges);
        }
        let left = match tcp_stream::announced(&mut self.header) {
            Ok(Announced::Control) => 0,
            Ok(Announced::Payload(len)) => len,
            Err(error) => {
                connection.note_bad_header(error);
                return Err(ReadStop::End);
            }
        };
        Ok(Incomplete {
            left,
            size: tcp_stream::cut(left, FragmentSize::K8),
            filled: 0,
            is_whole: left <= FragmentSize::K8.bytes(),
        })
    }

    /// Returns `true` if a frame needs no buffer: it is short, and has arrived as a whole.
    fn has_short(&self, frame: &Incomplete) -> bool {
        let has_begun = !frame.is_whole || frame.filled > 0;
        !has_begun && frame.left <= MOST_SHORT && self.window.frame(frame.left as usize).is_some()
    }

    /// Passes a short frame in the window to the connection, which copies it.
    fn pass_short(
        &mut self,
        connection: &Arc<Connection>,
        frame: Incomplete,
        context: Context,
    ) -> Result<(), ReadStop> {
        let bytes = match frame.left {
            // That in the window may say more than the acknowledgement.
            0 => Some(&self.header[..]),
            len => self.window.frame(len as usize),
        };
        let received = RecvFrame::Shared(bytes.unwrap_or(&[]));
        if let Err(stop) = pass(received, connection, context) {
            self.frame = Some(frame);
            return Err(stop);
        }
        self.window.skip(frame.left as usize);
        self.have = 0;
        Ok(())
    }

    /// Fills the buffer of a frame with its header and payload.
    fn fill(
        &mut self,
        frame: &mut Incomplete,
        socket: &impl TcpSource,
        memory: ReadMemory<'_>,
    ) -> Result<(), ReadStop> {
        let part = tcp_stream::part(frame.left, frame.size);
        let len = Header::LEN.saturating_add(part as usize);
        if frame.filled == 0 {
            let pool = memory.pools.recv(frame.size);
            // A header alone is complete.
            let limit = memory.limit.filter(|_| part > 0);
            let most = limit.map(|it| it.of_frame(part == frame.left));
            if most.is_some_and(|most| !self.charge.has_room(pool.buf_size(), most)) {
                return Err(ReadStop::NoMemory);
            }
            if self.buf.as_ref().is_none_or(|buf| buf.capacity() < len) {
                let buf = pool.alloc(memory.context);
                self.buf = Some(buf.ok_or(ReadStop::NoMemory)?);
            }
            if most.is_some_and(|most| !self.charge.add(pool.buf_size(), most)) {
                return Err(ReadStop::NoMemory);
            }
            let start = self
                .buf
                .as_mut()
                .and_then(|it| it.bytes_mut().first_chunk_mut());
            *start.ok_or(ReadStop::End)? = self.header;
            frame.filled = Header::LEN;
        }
        let bytes = self.buf.as_mut().ok_or(ReadStop::End)?.bytes_mut();
        while frame.filled < len {
            let rest = bytes.get_mut(frame.filled..len).ok_or(ReadStop::End)?;
            let count = self.window.read(socket, rest)?;
            frame.filled = frame.filled.saturating_add(count);
        }
        Ok(())
    }
}

/// Passes a whole frame to a connection.
fn pass(
    frame: RecvFrame<'_>,
    connection: &Arc<Connection>,
    context: Context,
) -> Result<(), ReadStop> {
    match connection.receive(frame, &mut 0) {
        Ok(()) => Ok(()),
        Err(ReceiveError::NoMemory) => {
            if context != Context::FreeOnly {
                connection.fill_recv_reserve();
            }
            Err(ReadStop::NoMemory)
        }
        Err(ReceiveError::Violation(_)) => Err(ReadStop::End),
    }
}
