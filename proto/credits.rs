// SPDX-License-Identifier: GPL-2.0

//! Flow control: how many more frames the peer has receives for.
//!
//! Each side tells with its private data how many receives it has posted, and with the headers of its
//! frames how many more it has posted since. Each frame takes one of them. It is for both or neither: a
//! request that offers none is answered with none.
//!
//! An answer that offers none leaves us free to send. C RDS answers so and keeps to our offer all the
//! same, if its own flow control is on; its headers give that away. So once a header tells of receives, ours
//! do, too.
//!
//! The last of the peer's receives is for a frame that brings the peer some of ours, so that two nodes
//! that have both sent all they may do not wait for each other. When half of what the peer could have
//! is not told, it is told without a message.

/// Who keeps to what the other has told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nobody.
    Off,
    /// Both of us.
    Both,
    /// We need not. The peer may, and would show it.
    MaybePeer,
    /// The peer.
    Peer,
}

/// Both directions of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    mode: Mode,
    /// Receives of the peer that are left for our frames.
    left: u32,
    /// Receives of ours that the peer was not told of.
    unadvertised: u32,
    /// They are so many that the peer has to hear of them.
    due: bool,
}

impl Credits {
    /// With how few receives a connection begins at the least. With fewer, two nodes that have nothing
    /// to say would never stop to tell each other that there is room for it.
    pub(crate) const LEAST: u32 = 4;

    /// A connection that is not controlled.
    pub(crate) const fn off() -> Self {
        Self {
            mode: Mode::Off,
            left: 0,
            unadvertised: 0,
            due: false,
        }
    }

    /// A new connection that we want controlled. Nothing may be sent before [`Self::begin`].
    pub(crate) const fn on() -> Self {
        Self {
            mode: Mode::Both,
            ..Self::off()
        }
    }

    /// What to tell with private data: 0 without flow control.
    pub(crate) fn offer(&mut self) -> u32 {
        self.due = false;
        core::mem::take(&mut self.unadvertised)
    }

    /// The peer's private data has come.
    pub(crate) fn begin(&mut self, offered: u32) {
        match (self.mode, offered) {
            (Mode::Both, 0) => {
                // Its first header may have been faster than what the CM says.
                let told = core::mem::take(&mut self.left);
                self.mode = Mode::MaybePeer;
                self.due = false;
                self.grant(told);
            }
            (Mode::Both, _) => self.grant(offered),
            _ => {}
        }
    }

    /// The peer has told of `count` more receives.
    pub(crate) fn grant(&mut self, count: u32) {
        match self.mode {
            Mode::Both => self.left = self.left.saturating_add(count),
            Mode::MaybePeer if count > 0 => {
                self.mode = Mode::Peer;
                // It may have waited for this for a while.
                self.due = self.unadvertised > 0;
            }
            _ => {}
        }
    }

    /// `count` receives were posted, and now there are `all`. None were if no more are to be had, or if
    /// there will be fewer: what was too few to tell of before may be all that is left now.
    ///
    /// One that was posted is never told of for itself. It may be half of all there is, on both sides, and
    /// each frame that tells of one takes another: it would go on and on. Where memory is that short, a
    /// call without any comes after a while.
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

    /// Whether a frame may be sent.
    pub(crate) const fn may_send(&self) -> bool {
        !matches!(self.mode, Mode::Both)
            || self.left > 1
            || (self.left == 1 && self.unadvertised > 0)
    }

    /// Whether the peer has to hear of our receives.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// What the header of the next frame tells.
    pub(crate) fn tell(&mut self) -> u8 {
        if matches!(self.mode, Mode::MaybePeer) {
            return 0;
        }
        let told = u8::try_from(self.unadvertised).unwrap_or(u8::MAX);
        self.unadvertised = self.unadvertised.saturating_sub(told.into());
        self.due &= self.unadvertised >= u8::MAX.into();
        told
    }

    /// A frame goes out.
    pub(crate) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
