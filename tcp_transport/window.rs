// SPDX-License-Identifier: GPL-2.0

//! Window of a stream: bytes that were read before the reader needs them.
//!
//! One call of the socket returns many short messages. The window belongs to its reader. A reader
//! without the memory for it reads each header and each payload by a call of its own.

use crate::{
    kapi::net::tcp_events::{
        TcpRead,
        TcpSource, //
    },
    proto::{
        tcp_stream,
        wire::Header, //
    }, //
};
use kernel::prelude::*;

/// Bytes of the window.
const WINDOW: usize = 16 << 10;

/// Shortest read that bypasses the window.
const DIRECT: usize = 4096;

/// Reason why reading has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStop {
    /// All that has arrived was received.
    Nothing,
    /// The budget is used up, and there may be more.
    Budget,
    /// There is no memory, or the limit on incomplete messages is reached. The caller tries again
    /// later.
    NoMemory,
    /// The stream has ended, or the peer has violated a rule.
    End,
}

/// Receives up to the length of `to`, which is not 0. Returns the number of bytes.
///
/// # Errors
///
/// - [`ReadStop::Nothing`]
/// - [`ReadStop::End`]
fn receive(socket: &impl TcpSource, to: &mut [u8]) -> Result<usize, ReadStop> {
    match socket.recv(to) {
        TcpRead::Bytes(count) => Ok(count),
        TcpRead::Nothing => Err(ReadStop::Nothing),
        TcpRead::End => Err(ReadStop::End),
    }
}

/// Bytes that were read from the socket, and not used yet. Without memory they are not read before
/// they are used.
pub(super) struct Window {
    bytes: KVVec<u8>,
    at: usize,
    end: usize,
}

impl Window {
    /// Creates a window without memory.
    pub(super) const fn new() -> Self {
        Self {
            bytes: KVVec::new(),
            at: 0,
            end: 0,
        }
    }

    /// Allocates the memory.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn allocate(&mut self) -> Result {
        if self.bytes.is_empty() {
            self.bytes = KVVec::from_elem(0, WINDOW, GFP_KERNEL | __GFP_NOWARN)?;
        }
        Ok(())
    }

    /// Returns the frame whose header was read last, if its payload of `len` bytes is there.
    pub(super) fn frame(&self, len: usize) -> Option<&[u8]> {
        let from = self.at.checked_sub(Header::LEN)?;
        let to = self.at.checked_add(len).filter(|to| *to <= self.end)?;
        self.bytes.get(from..to)
    }

    /// Returns the number of bytes that wait to be used.
    pub(super) fn unused(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// Marks the next `len` bytes as used.
    pub(super) fn skip(&mut self, len: usize) {
        self.at = self.at.saturating_add(len);
    }

    /// Reads until the frame is there whose header was read last, with `len` bytes of payload. They
    /// fit. Leaves it to the caller if bytes are in front of that header, or without memory.
    pub(super) fn complete(
        &mut self,
        socket: &impl TcpSource,
        header: &tcp_stream::HeaderBytes,
        len: usize,
    ) -> Result<(), ReadStop> {
        if self.end == 0 {
            // The header was read alone.
            let Some(front) = self.bytes.first_chunk_mut() else {
                return Ok(());
            };
            *front = *header;
            (self.at, self.end) = (Header::LEN, Header::LEN);
        }
        while self.at == Header::LEN && self.frame(len).is_none() {
            let behind = self.bytes.get_mut(self.end..).unwrap_or(&mut []);
            let count = receive(socket, behind)?;
            self.end = self.end.saturating_add(count);
        }
        Ok(())
    }

    /// Reads up to the length of `to`, which is not 0. Takes no more from the socket if `exactly`
    /// is set. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// - [`ReadStop::Nothing`]
    /// - [`ReadStop::End`]
    pub(super) fn read(
        &mut self,
        socket: &impl TcpSource,
        to: &mut [u8],
        exactly: bool,
    ) -> Result<usize, ReadStop> {
        if self.at >= self.end {
            (self.at, self.end) = (0, 0);
            if exactly || to.len() >= DIRECT || self.bytes.is_empty() {
                return receive(socket, to);
            }
            self.end = receive(socket, &mut self.bytes)?;
        }
        let waiting = self.bytes.get(self.at..self.end).unwrap_or(&[]);
        let count = waiting.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..count), waiting.get(..count)) {
            to.copy_from_slice(from);
        }
        self.skip(count);
        match count {
            0 => Err(ReadStop::End),
            count => Ok(count),
        }
    }
}
