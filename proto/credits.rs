// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits: a credit is a posted receive of the peer that a frame may use.
//!
//! Each side offers the receives that it has posted in its private data. The headers of its frames
//! grant those that it has posted since. Each frame uses one credit. Flow control is negotiated for
//! both directions or for neither: the reply to a request that offers no credits offers none.
//!
//! A reply without credits leaves this node free to send. C RDS replies like that and nevertheless
//! obeys this node's offer if its own flow control is on; the credits in its headers reveal it. So
//! once a header of the peer grants credits, the headers of this node grant them, too.
//!
//! The last credit may only be used by a frame that grants credits itself. Otherwise two nodes that
//! have used all their credits would wait for each other. Once half of the posted receives are not
//! advertised, a header without a message advertises them.

/// Sides that send only as many frames as they have credits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Neither side.
    Off,
    /// Both sides.
    Both,
    /// Not this node. The peer may; its headers would show it.
    MaybePeer,
    /// Only the peer.
    Peer,
}

/// Credits of one connection, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    mode: Mode,
    /// Receives of the peer that are left for frames of this node.
    left: u32,
    /// Local receives that the peer does not know of.
    unadvertised: u32,
    /// There are enough unadvertised receives to send a header only to advertise them.
    due: bool,
}

impl Credits {
    /// Minimum initial credit. With fewer, two idle nodes would exchange credit updates forever,
    /// since each update uses a credit.
    pub(crate) const LEAST: u32 = 4;

    /// Creates the state of a connection without flow control.
    pub(crate) const fn off() -> Self {
        Self {
            mode: Mode::Off,
            left: 0,
            unadvertised: 0,
            due: false,
        }
    }

    /// Creates the state of a new connection for which this node offers flow control. Nothing may
    /// be sent before [`Self::begin`].
    pub(crate) const fn on() -> Self {
        Self {
            mode: Mode::Both,
            ..Self::off()
        }
    }

    /// Takes the credits to offer in the private data: 0 without flow control.
    pub(crate) fn offer(&mut self) -> u32 {
        self.due = false;
        core::mem::take(&mut self.unadvertised)
    }

    /// Handles the offer in the peer's private data.
    pub(crate) fn begin(&mut self, offered: u32) {
        match (self.mode, offered) {
            (Mode::Both, 0) => {
                // The peer's first header may have arrived before the CM reported its private data.
                let advertised = core::mem::take(&mut self.left);
                self.mode = Mode::MaybePeer;
                self.due = false;
                self.grant(advertised);
            }
            (Mode::Both, _) => self.grant(offered),
            _ => {}
        }
    }

    /// Handles `count` credits that a header of the peer grants.
    pub(crate) fn grant(&mut self, count: u32) {
        match self.mode {
            Mode::Both => self.left = self.left.saturating_add(count),
            Mode::MaybePeer if count > 0 => {
                self.mode = Mode::Peer;
                // The peer may have been waiting for credits since the connection was set up.
                self.due = self.unadvertised > 0;
            }
            _ => {}
        }
    }

    /// Notes that `count` receives were posted, so that `all` are posted now.
    ///
    /// `count` is 0 if no more receives can be had, or if the ring shrinks. Then even a single
    /// unadvertised receive has to be advertised: it may be all that is left.
    ///
    /// A receive that was just posted is never advertised alone. It may be half of all receives on
    /// both sides, and each header that grants one uses another, so the exchange would never end.
    /// If memory is that short, a call with a `count` of 0 follows later.
    pub(crate) fn posted(&mut self, count: u32, all: u32) {
        self.unadvertised = match self.mode {
            Mode::Off => return,
            _ => self.unadvertised.saturating_add(count),
        };
        self.due = match self.mode {
            Mode::Off | Mode::MaybePeer => false,
            _ => {
                let least = if count > 0 { 2 } else { 1 };
                self.unadvertised >= least
                    && self.unadvertised >= all.saturating_sub(self.unadvertised)
            }
        };
    }

    /// Returns `true` if a frame may be sent.
    pub(crate) const fn may_send(&self) -> bool {
        !matches!(self.mode, Mode::Both)
            || self.left > 1
            || (self.left == 1 && self.unadvertised > 0)
    }

    /// Returns `true` if the receives have to be advertised even without a message.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// Takes the credits that the header of the next frame grants.
    pub(crate) fn take_advertisement(&mut self) -> u8 {
        if matches!(self.mode, Mode::MaybePeer) {
            return 0;
        }
        let advertised = u8::try_from(self.unadvertised).unwrap_or(u8::MAX);
        self.unadvertised = self.unadvertised.saturating_sub(advertised.into());
        self.due &= self.unadvertised >= u8::MAX.into();
        advertised
    }

    /// Uses up one credit for a frame.
    pub(crate) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
