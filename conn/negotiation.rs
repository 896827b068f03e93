// SPDX-License-Identifier: GPL-2.0

//! Negotiation of the paths of a connection over TCP, and what its worker has to learn of it.
//!
//! Only the first path has one. It is part of the receive side, because handshakes are messages.

use crate::proto::mprds::{
    Handshake,
    HandshakeKind,
    Mprds,
    Negotiated,
    PathCount, //
};
use core::num::NonZeroU32;

/// The negotiation, or none.
pub(super) struct Negotiation {
    mprds: Option<Mprds>,
    /// A handshake has changed something that the worker has not been told of.
    has_changed: bool,
    /// A handshake has shown that the peer has restarted, and that it has had this number of paths
    /// since. Messages of the others have to move.
    kept: Option<PathCount>,
}

impl Negotiation {
    pub(super) const fn new(mprds: Option<Mprds>) -> Self {
        Self {
            mprds,
            has_changed: false,
            kept: None,
        }
    }

    /// Returns `true` if there is one.
    pub(super) fn exists(&self) -> bool {
        self.mprds.is_some()
    }

    /// Continues after an earlier connection, see [`Mprds::resume`].
    pub(super) fn resume(&mut self, generation: Option<NonZeroU32>) {
        if let Some(mprds) = &mut self.mprds {
            mprds.resume(generation);
        }
    }

    /// Returns the generation in the last handshake of the peer.
    pub(super) fn peer_generation(&self) -> Option<NonZeroU32> {
        self.mprds.as_ref().and_then(Mprds::peer_generation)
    }

    /// Returns the content of a handshake that is being sent.
    pub(super) fn send(&mut self, kind: HandshakeKind) -> Option<Handshake> {
        self.mprds.as_mut().map(|it| it.send(kind))
    }

    /// Returns `true` if a handshake shows by its generation that the peer has restarted.
    pub(super) fn shows_restart(&self, handshake: &Handshake) -> bool {
        let mprds = self.mprds.as_ref();
        mprds.is_some_and(|it| it.shows_restart(handshake))
    }

    /// Handles a handshake that has arrived on the first path.
    pub(super) fn receive(&mut self, kind: HandshakeKind, handshake: &Handshake) {
        if let Some(mprds) = &mut self.mprds {
            let before = (mprds.outcome(), self.kept);
            if mprds.receive(kind, handshake) {
                // The peer may have used these paths since. After another generation it is one.
                let kept = mprds.paths();
                self.kept = Some(self.kept.map_or(kept, |before| before.min(kept)));
            }
            self.has_changed |= before != (mprds.outcome(), self.kept);
        }
    }

    /// Notes that a handshake has arrived on another path.
    pub(super) fn receive_elsewhere(&mut self) {
        if let Some(mprds) = &mut self.mprds {
            mprds.receive_elsewhere();
        }
    }

    /// Returns `true` if a handshake has changed something since the last call.
    #[inline]
    pub(super) fn take_change(&mut self) -> bool {
        // Most messages change nothing, so this does not write to their cache line.
        self.has_changed && core::mem::take(&mut self.has_changed)
    }

    /// Returns what was negotiated, if there is a negotiation.
    pub(super) fn outcome(&self) -> Option<Negotiated> {
        self.mprds.as_ref().map(Mprds::outcome)
    }

    /// Returns how many paths keep their messages, if the peer has restarted. The caller makes the
    /// others move theirs, and calls [`Self::end_restart`].
    pub(super) fn restart(&self) -> Option<PathCount> {
        self.kept
    }

    /// Notes the number of paths that there are, see [`Mprds::set_ready`].
    pub(super) fn set_ready(&mut self, wanted: PathCount, ready: PathCount) {
        if let Some(mprds) = &mut self.mprds {
            mprds.set_ready(wanted, ready);
        }
    }

    /// Notes that paths move their messages after a restart of the peer.
    pub(super) fn end_restart(&mut self) {
        self.kept = None;
    }

    /// Returns `true` if a path will have to move its messages, because the peer has restarted.
    pub(super) fn will_move(&self, path: u8) -> bool {
        self.kept.is_some_and(|kept| !kept.has(path))
    }

    /// Returns the path that the peer connects from this TCP port. `None` if it was not accepted.
    pub(super) fn path_of_port(&self, port: u16) -> Option<u8> {
        match &self.mprds {
            Some(mprds) => mprds.incoming(port),
            None => Some(0),
        }
    }

    /// Returns `true` if this node may connect another path. It may not between the detection of a
    /// restart and the moves: the path has messages of the peer before.
    pub(super) fn may_connect(&self, path: u8) -> bool {
        let may = |mprds: &Mprds| mprds.may_connect(path);
        self.kept.is_none() && self.mprds.as_ref().is_some_and(may)
    }

    /// Notes that the first path has a link. `accepted`: the peer has connected.
    pub(super) fn up(&mut self, now: u64, accepted: bool) {
        if let Some(mprds) = &mut self.mprds {
            mprds.up(now, accepted);
        }
    }

    /// Notes that the first path has no link any more.
    pub(super) fn down(&mut self) {
        if let Some(mprds) = &mut self.mprds {
            mprds.down();
        }
    }

    /// Returns `true` if a handshake has arrived on the present link.
    pub(super) fn has_begun(&self) -> bool {
        self.mprds.as_ref().is_some_and(Mprds::has_begun)
    }

    /// Returns `true` if it is time for [`Self::check`].
    pub(super) fn is_due(&self, now: u64) -> bool {
        let next = self.mprds.as_ref().and_then(Mprds::next_check);
        next.is_some_and(|next| next <= now)
    }

    /// Returns `true` if the caller has to send a probe.
    pub(super) fn check(&mut self, now: u64) -> bool {
        self.mprds.as_mut().is_some_and(|it| it.check(now))
    }
}
