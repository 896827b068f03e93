// SPDX-License-Identifier: GPL-2.0

//! Users as a table of connections counts them.

use crate::kapi::task::UserId;

/// Someone whose connections are counted together, as a [`UserId`].
pub(crate) trait TableUser: Copy + Ord {
    /// Returns `true` for all peers that request connections over TCP.
    fn is_peers(self) -> bool;
}

impl TableUser for UserId {
    #[inline]
    fn is_peers(self) -> bool {
        self == Self::PEERS
    }
}
