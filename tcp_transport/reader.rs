// SPDX-License-Identifier: GPL-2.0

//! Receive side of an endpoint: cuts the stream into frames for the connection.
//!
//! Payload is read into a buffer of the transport's pools, behind a copy of its header. The buffer
//! goes to the reader of the message, or is used again. Short reads come from a window, and a short
//! message that is there as a whole needs no buffer. Long payload stays in the packet in which it
//! arrived, until the message is read.

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
        RecvFrame,
        LEAST_IN_PACKET, //
    },
    kapi::net::{
        packet::{
            PacketPart,
            TakeLimits, //
        },
        tcp_events::TcpSource, //
    },
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

/// Number of headers that are read alone after a long message. One may be of a control frame.
const ALONE: u8 = 2;

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
    /// Most bytes of memory of the packets in which payload stays. 0 for strangers, and in
    /// namespaces of users.
    pub(crate) packets: usize,
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
    /// Payload of the message may stay in packets.
    is_long: bool,
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
    /// Payload of the frame, if it is in a packet.
    part: Option<PacketPart>,
    /// Parts that stayed in packets.
    parts: u32,
    /// The message has a part in a packet.
    has_parts: bool,
    /// Number of headers that are read alone, because a long message probably follows.
    alone: u8,
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
            part: None,
            parts: 0,
            has_parts: false,
            alone: 0,
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
        let before = (self.frames, self.parts);
        let stop = self.receive_frames(socket, connection, memory, budget);
        if self.frame.as_ref().is_none_or(|frame| frame.filled == 0) {
            // There may be any number of idle connections.
            self.buf = None;
        }
        let parts = self.parts.wrapping_sub(before.1);
        if parts > 0 {
            counters.add(TcpCounter::RxInPackets, u64::from(parts));
        }
        let count = self.frames.wrapping_sub(before.0);
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
        self.part = None;
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
            let count = self.window.read(socket, rest, self.alone > 0)?;
            self.have = self.have.saturating_add(count);
        }
        let mut frame = match self.frame.take() {
            Some(frame) => frame,
            None => self.begin(connection)?,
        };
        if self.has_short(&frame) {
            return self.pass_short(connection, frame, memory.context);
        }
        if frame.is_whole && frame.filled == 0 && frame.left <= MOST_SHORT {
            let len = frame.left as usize;
            if let Err(stop) = self.window.complete(socket, &self.header, len) {
                self.frame = Some(frame);
                return Err(stop);
            }
            if self.has_short(&frame) {
                return self.pass_short(connection, frame, memory.context);
            }
        }
        if let Err(stop) = self.payload(&mut frame, socket, memory) {
            self.frame = Some(frame);
            return Err(stop);
        }
        let received = match self.part {
            Some(_) => RecvFrame::Packet {
                header: &self.header,
                part: &mut self.part,
            },
            None => RecvFrame::Stream {
                buf: &mut self.buf,
                len: frame.filled,
            },
        };
        if let Err(stop) = pass(received, connection, memory.context) {
            self.frame = Some(frame);
            return Err(stop);
        }
        // No message takes that of a duplicate.
        self.part = None;
        // CAST: a frame has less than 2^32 bytes.
        let part = frame.filled.saturating_sub(Header::LEN) as u32;
        let left = frame.left.saturating_sub(part);
        if left == 0 {
            self.have = 0;
            self.charge.clear();
            let has_parts = core::mem::take(&mut self.has_parts);
            if frame.is_long {
                // The next one is probably like it.
                self.alone = if has_parts { ALONE } else { 0 };
            }
        } else {
            self.frame = Some(Incomplete {
                left,
                size: frame.size,
                filled: 0,
                is_whole: false,
                is_long: frame.is_long,
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
        let is_long = left >= LEAST_IN_PACKET && !tcp_stream::is_map(&self.header);
        if !is_long {
            self.alone = self.alone.saturating_sub(1);
        }
        Ok(Incomplete {
            left,
            size: tcp_stream::cut(left, FragmentSize::K8),
            filled: 0,
            is_whole: left <= FragmentSize::K8.bytes(),
            is_long,
        })
    }

    /// Returns `true` if a frame needs no buffer: it is short, and has arrived as a whole.
    fn has_short(&self, frame: &Incomplete) -> bool {
        let has_begun = !frame.is_whole || frame.filled > 0;
        let is_there = || self.window.frame(frame.left as usize).is_some();
        // A control frame is a header alone.
        !has_begun && (frame.left == 0 || frame.left <= MOST_SHORT && is_there())
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

    /// Receives the payload of a frame, in its packet or into a buffer.
    fn payload(
        &mut self,
        frame: &mut Incomplete,
        socket: &impl TcpSource,
        memory: ReadMemory<'_>,
    ) -> Result<(), ReadStop> {
        if self.part.is_some() {
            return Ok(());
        }
        let good = TakeLimits {
            least: LEAST_IN_PACKET,
            most: frame.left,
            any_share: false,
        };
        let may_stay = frame.is_long && frame.left >= good.least;
        if may_stay && self.take_part(frame, socket, memory, good) {
            return Ok(());
        }
        match self.fill(frame, socket, memory) {
            // A message that has packets would wait for a buffer, and hold them meanwhile. Its list
            // has room for parts of this length.
            Err(ReadStop::NoMemory) if self.has_parts => {
                let any = TakeLimits {
                    least: LEAST_IN_PACKET.min(frame.left),
                    any_share: true,
                    ..good
                };
                match self.take_part(frame, socket, memory, any) {
                    true => Ok(()),
                    false => Err(ReadStop::NoMemory),
                }
            }
            other => other,
        }
    }

    /// Takes payload in its packet, if that is possible at the start of a frame. Returns `true` if
    /// it was.
    fn take_part(
        &mut self,
        frame: &mut Incomplete,
        socket: &impl TcpSource,
        memory: ReadMemory<'_>,
        limits: TakeLimits,
    ) -> bool {
        let has_begun = frame.filled > 0 || self.window.unused() > 0;
        if has_begun || limits.least == 0 {
            return false;
        }
        let Some(part) = socket.take(limits, memory.packets) else {
            return false;
        };
        frame.filled = Header::LEN.saturating_add(part.len());
        self.parts = self.parts.wrapping_add(1);
        self.part = Some(part);
        self.has_parts = true;
        // Another frame may need it meanwhile.
        self.buf = None;
        true
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
            let count = self.window.read(socket, rest, frame.is_long)?;
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
