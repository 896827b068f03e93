// SPDX-License-Identifier: GPL-2.0

//! Purposes of MRs, and the access that they need.

use crate::bindings;
use kernel::prelude::*;

/// Purpose of an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Peers may read the MR.
    Readable,
    /// Peers may read and write the MR and, if `atomics` is set, use it for atomic operations.
    Writable { atomics: bool },
    /// A local operation reads from the MR.
    Source,
    /// A local operation writes to the MR. On iWARP the peer does that, so it needs permission
    /// (`by_peer`).
    Sink { by_peer: bool },
}

impl Access {
    /// Returns the same access without atomic operations, or `None` if it has none.
    pub(crate) fn without_atomics(self) -> Option<Self> {
        (self == Self::Writable { atomics: true }).then_some(Self::Writable { atomics: false })
    }

    /// Returns `true` if programs of peers access the MR. They may do so at any time.
    pub(crate) fn is_of_peers(self) -> bool {
        matches!(self, Self::Readable | Self::Writable { .. })
    }

    /// Returns the flags of `enum ib_access_flags`.
    pub(crate) fn flags(self) -> c_int {
        const WRITE: c_uint = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
        // Remote write access requires local write access, too.
        const BY_PEER: c_uint = WRITE | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        const READ: c_uint = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
        let flags = match self {
            Self::Readable => READ,
            Self::Writable { atomics: false } => BY_PEER | READ,
            Self::Writable { atomics: true } => {
                BY_PEER | READ | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC
            }
            Self::Source => 0,
            Self::Sink { by_peer: false } => WRITE,
            Self::Sink { by_peer: true } => BY_PEER,
        };
        // CAST: flags are small.
        flags as c_int
    }
}
