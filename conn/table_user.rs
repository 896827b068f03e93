// SPDX-License-Identifier: GPL-2.0

//! Users as a table of connections counts them.

use crate::kapi::task::UserId;

/// Someone whose connections are counted together, as a [`UserId`].
pub(crate) trait TableUser: Copy + Ord {
    /// Returns `true` for all peers that request connections over TCP.
    fn is_peers(self) -> bool;

    /// Returns `true` if the connections with one peer have shares, of which this user has one.
    fn has_share_of_peers(self) -> bool;
}

impl TableUser for UserId {
    #[inline]
    fn is_peers(self) -> bool {
        self == Self::PEERS
    }

    /// Peers have none: the peer gives its users shares, each of which may be all but an eighth.
    #[inline]
    fn has_share_of_peers(self) -> bool {
        !self.is_peers()
    }
}
