// SPDX-License-Identifier: GPL-2.0

//! Receive side of a path: the sequence numbers of its peer, and the message that has arrived in
//! part.

use super::{
    negotiation::Negotiation,
    recv_frame::FrameOrigin,
    recv_reserve::RecvReserve, //
};
use crate::{
    proto::{
        mprds::{
            Handshake,
            Mprds, //
        },
        rx::{
            Position,
            RecvState,
            RxError,
            Step, //
        },
        wire::{
            Flags,
            Header, //
        }, //
    },
    socket::{
        MsgMeta,
        RecvBuf, //
    }, //
};
use kernel::prelude::*;

/// Message of which some fragments have arrived.
pub(super) struct Reassembly {
    pub(super) header: Header,
    pub(super) bufs: KVec<RecvBuf>,
    /// Payload bytes of every fragment except the last.
    pub(super) size: u32,
    pub(super) meta: Option<KBox<MsgMeta>>,
}

/// Receive side of a connection.
pub(super) struct RecvSide {
    pub(super) state: RecvState,
    /// Negotiation of paths over TCP.
    pub(super) negotiation: Negotiation,
    pub(super) partial: Option<Reassembly>,
    pub(super) reserve: RecvReserve,
    /// Payload bytes of the messages that have arrived, without duplicates.
    pub(super) bytes: u64,
}

impl RecvSide {
    pub(super) const fn new(mprds: Option<Mprds>) -> Self {
        Self {
            state: RecvState::new(),
            negotiation: Negotiation::new(mprds),
            partial: None,
            reserve: RecvReserve::new(),
            bytes: 0,
        }
    }

    /// Continues at the position of an earlier connection to the peer. Called before anything
    /// arrives.
    pub(super) fn resume(&mut self, position: Position) {
        self.state = RecvState::at(position);
        self.negotiation.resume(position.probe_generation());
    }

    pub(super) fn position(&self) -> Position {
        let generation = self.negotiation.peer_generation();
        self.state.position().with_probe_generation(generation)
    }

    /// Returns `true` if the peer runs this module.
    pub(super) fn peer_is_rds_rust(&self) -> bool {
        self.state.peer_sent_generation()
    }

    /// Returns `true` if the peer ran this module on the last link on which it sent a map.
    pub(super) fn peer_ran_rds_rust(&self) -> bool {
        self.state.peer_ran_rds_rust()
    }

    /// Returns the payload bytes of the messages that have arrived, without duplicates.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.state.next_sequence()
    }

    /// Returns `true` if no whole message has ever arrived.
    pub(super) fn is_unused(&self) -> bool {
        self.state.is_unused()
    }

    /// Expects the messages of a peer that has restarted. Called before any arrives on a link.
    pub(super) fn note_restart(&mut self) {
        self.state.note_restart();
    }

    /// Handles the header of a frame. A handshake may show that the peer has restarted. Then no
    /// message is a duplicate of one from before.
    #[inline]
    pub(super) fn handle(
        &mut self,
        header: &Header,
        len: usize,
        origin: FrameOrigin,
    ) -> Result<Step, RxError> {
        // A map is no message, whatever its ports are.
        let handshake = match header.flags.contains(Flags::CONG_BITMAP) {
            true => None,
            false => Handshake::of(header),
        };
        let handshake = handshake.filter(|_| self.negotiation.exists());
        let Some((kind, handshake)) = handshake else {
            return self.handle_state(header, len, origin);
        };
        if self.negotiation.shows_restart(&handshake) {
            self.state.note_restart();
        }
        let step = self.handle_state(header, len, origin)?;
        let is_new = match step {
            Step::Data { duplicate, .. } => !duplicate,
            Step::PureAck | Step::Congestion { .. } => false,
        };
        if is_new {
            self.negotiation.receive(kind, &handshake);
        }
        Ok(step)
    }

    #[inline]
    fn handle_state(
        &mut self,
        header: &Header,
        len: usize,
        origin: FrameOrigin,
    ) -> Result<Step, RxError> {
        match origin {
            FrameOrigin::Rdma(_) => self.state.handle(header, len),
            FrameOrigin::Stream => self.state.handle_of_stream(header, len),
        }
    }

    /// Returns `true` if a message has arrived in part.
    pub(super) fn has_partial(&self) -> bool {
        self.partial.is_some()
    }
}
