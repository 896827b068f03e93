// SPDX-License-Identifier: GPL-2.0
//! Pings that prove the delivery of the messages before them.
//!
//! RDS delivers the messages of a socket in order. So the pong of a ping proves that what the
//! socket has sent before is delivered. But a kernel may drop a pong, so pings are repeated, and
//! nothing says which ping a pong is for.

/// The pings to a host, and its pongs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pings {
    sent: u64,
    answered: u64,
}

/// Number of the pings before a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier(u64);

impl Pings {
    /// Returns the number of the pings so far.
    pub(crate) fn earlier(&self) -> Earlier {
        Earlier(self.sent)
    }

    /// Notes a ping.
    pub(crate) fn note_ping(&mut self) {
        self.sent += 1;
    }

    /// Notes a pong. Returns `false` if there are more pongs than pings.
    pub(crate) fn note_pong(&mut self) -> bool {
        self.answered += 1;
        self.answered <= self.sent
    }

    /// Returns `true` if a later ping than these has been answered. There are more pongs then.
    pub(crate) fn prove(&self, earlier: Earlier) -> bool {
        self.answered > earlier.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pong_of_an_earlier_ping_is_no_proof() {
        let mut pings = Pings::default();
        let first = pings.earlier();
        pings.note_ping();
        pings.note_ping();
        let second = pings.earlier();
        assert!(pings.note_pong() && pings.prove(first));
        assert!(pings.note_pong() && !pings.prove(second));
        pings.note_ping();
        assert!(pings.note_pong() && pings.prove(second));
    }

    #[test]
    fn a_lost_pong_takes_another_ping() {
        let mut pings = Pings::default();
        pings.note_ping();
        let message = pings.earlier();
        for _ in 0..2 {
            pings.note_ping();
        }
        assert!(pings.note_pong() && !pings.prove(message));
        assert!(pings.note_pong() && pings.prove(message));
    }

    #[test]
    fn there_are_not_more_pongs_than_pings() {
        let mut pings = Pings::default();
        pings.note_ping();
        assert!(pings.note_pong());
        assert!(!pings.note_pong());
    }
}
