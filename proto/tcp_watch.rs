// SPDX-License-Identifier: GPL-2.0

//! Signs of life of a peer over TCP.
//!
//! TCP itself asks a silent peer for an answer: it sends bytes again, and asks a peer without room
//! whether it has some. So a peer is silent only while TCP waits for an answer and gets none. One
//! that has no room answers, and is never given up.
//!
//! A message that has begun takes memory until it ends. So a peer that stops within one is given
//! up, too, though its TCP answers. The same applies to one that sends nothing on a new connection.
//! Every node begins that with its congestion map, so this one does not speak RDS. On another path
//! C RDS may send nothing. While this node finds no memory, `proto::starvation` decides.
//!
//! Ownership: none, these are numbers. Errors: none.

use super::{
    unchanged::Unchanged,
    SECOND, //
};

/// Time in which the first frame, and the next one of a message, have to arrive.
const LONGEST_PAUSE_NS: u64 = 60 * SECOND;

/// State of the TCP of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSigns {
    /// Time of the last acknowledgement of the peer, in any unit.
    pub(crate) last_ack: u32,
    /// The peer owes an acknowledgement.
    pub(crate) owes: bool,
}

/// State of the receive side of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamSigns {
    /// Number of frames that were received.
    pub(crate) frames: u32,
    /// The peer has sent no frame, and has to send one.
    pub(crate) awaits_first: bool,
    /// A message has begun and not ended.
    pub(crate) is_incomplete: bool,
    /// Nothing is read, because there is no memory.
    pub(crate) starves: bool,
}

/// State that is kept between the checks of a socket.
#[derive(Clone, Debug)]
pub(crate) struct TcpWatch {
    last_ack: u32,
    frames: Unchanged<u32>,
}

impl TcpWatch {
    /// Creates the state of a socket that was not checked yet.
    pub(crate) const fn new() -> Self {
        Self {
            last_ack: 0,
            frames: Unchanged::new(),
        }
    }

    /// Returns `true` if the peer counts as active: it has answered since the last check, or has
    /// nothing to answer.
    pub(crate) fn is_active(&mut self, signs: &TcpSigns) -> bool {
        let has_answered = core::mem::replace(&mut self.last_ack, signs.last_ack) != signs.last_ack;
        has_answered || !signs.owes
    }

    /// Returns `true` if the peer has left a message incomplete, or sent nothing at all, for too
    /// long. `now` is a monotonic time in nanoseconds.
    pub(crate) fn has_stopped(&mut self, signs: &StreamSigns, now: u64) -> bool {
        let is_due = signs.is_incomplete || signs.awaits_first;
        if !is_due || signs.starves {
            self.frames = Unchanged::new();
            return false;
        }
        let pause = self.frames.observe(signs.frames, now);
        pause.is_some_and(|pause| pause >= LONGEST_PAUSE_NS)
    }
}
