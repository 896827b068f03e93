// SPDX-License-Identifier: GPL-2.0

//! Flow control: how many more frames the peer has receives for.
//!
//! Each side tells with its private data how many receives it has posted, and with the headers of its
//! frames how many more it has posted since. Each frame takes one of them.
//!
//! The last of the peer's receives is for a frame that brings the peer some of ours, so that two nodes
//! that have both sent all they may do not wait for each other. When half of what the peer could have
//! is not told, it is told without a message.

/// Both directions of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    /// Otherwise any number of frames may be sent.
    on: bool,
    /// Receives of the peer that are left for our frames.
    left: u32,
    /// Receives of ours that the peer was not told of.
    untold: u32,
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
            on: false,
            left: 0,
            untold: 0,
            due: false,
        }
    }

    /// A new connection on which nothing may be sent before [`Self::begin`].
    pub(crate) const fn on() -> Self {
        Self {
            on: true,
            ..Self::off()
        }
    }

    /// What to tell with private data: 0 without flow control.
    pub(crate) fn offer(&mut self) -> u32 {
        self.due = false;
        core::mem::take(&mut self.untold)
    }

    /// The peer's private data has come. One that offers nothing does not control the flow.
    pub(crate) fn begin(&mut self, offered: u32) {
        if offered == 0 {
            *self = Self::off();
        } else {
            self.grant(offered);
        }
    }

    /// The peer has told of `count` more receives.
    pub(crate) fn grant(&mut self, count: u32) {
        if self.on {
            self.left = self.left.saturating_add(count);
        }
    }

    /// `count` receives were posted, and now there are `all`. None were if no more are to be had: what
    /// was too few to tell of before may be all that is left now.
    pub(crate) fn posted(&mut self, count: u32, all: u32) {
        if self.on {
            self.untold = self.untold.saturating_add(count);
            self.due = self.untold > 0 && self.untold >= all.saturating_sub(self.untold);
        }
    }

    /// Whether a frame may be sent.
    pub(crate) const fn may_send(&self) -> bool {
        !self.on || self.left > 1 || (self.left == 1 && self.untold > 0)
    }

    /// Whether the peer has to hear of our receives.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// What the header of the next frame tells.
    pub(crate) fn tell(&mut self) -> u8 {
        let told = u8::try_from(self.untold).unwrap_or(u8::MAX);
        self.untold = self.untold.saturating_sub(told.into());
        self.due = false;
        told
    }

    /// A frame goes out.
    pub(crate) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
