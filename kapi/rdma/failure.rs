// SPDX-License-Identifier: GPL-2.0

//! Report of a failed work request to the handler of its queue pair.

use super::wc_status::WcStatus;

/// The queue that a completion is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send,
    Recv,
}

impl Queue {
    /// The name for traces.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Recv => "receive",
        }
    }
}

/// A work request that failed. The queue pair can do nothing any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) queue: Queue,
    pub(crate) status: WcStatus,
    /// The owner of the operation that the peer's device has refused, if that is what failed.
    pub(crate) refused: Option<u64>,
    /// The error code of the vendor, for logs.
    pub(crate) vendor_err: u32,
}
