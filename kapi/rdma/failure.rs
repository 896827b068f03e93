// SPDX-License-Identifier: GPL-2.0

//! Report of a failed work request to the handler of its queue pair.

use super::wc_status::WcStatus;

/// The queue to which a completion belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send,
    Recv,
}

impl Queue {
    /// Returns the name for traces.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "receive",
        }
    }
}

/// A work request that failed. The queue pair is unusable after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) queue: Queue,
    pub(crate) status: WcStatus,
    /// Owner of the operation, if the peer's device refused that operation.
    pub(crate) refused: Option<u64>,
    /// Vendor-specific error code, for logs.
    pub(crate) vendor_err: u32,
}
