// SPDX-License-Identifier: GPL-2.0

//! Rules that a peer can violate, and the counters of violations.

use crate::{
    proto::{
        packed::SplitError,
        path_history::DropReason,
        rx::RxError,
        tx::AckError,
        wire::HeaderError, //
    },
    stats::Counter, //
};
use kernel::{
    fmt,
    prelude::*, //
};

/// Reason to end the connection: the rule that the peer violated.
#[derive(Debug)]
pub(crate) enum Violation {
    /// The frame is shorter than a header. The value is its length in bytes.
    Short(usize),
    Header(HeaderError),
    /// The packed frame cannot be split to its end.
    Packed(SplitError),
    Fragment(RxError),
    Ack(AckError),
    /// The frame arrived after a violation.
    Broken,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(len) => {
                f.write_fmt(fmt!("a frame of {} bytes has no room for a header", len))
            }
            Self::Header(error) => f.write_fmt(fmt!("bad header: {:?}", error)),
            Self::Packed(error) => f.write_fmt(fmt!("bad frame of several messages: {:?}", error)),
            Self::Fragment(error) => f.write_fmt(fmt!("bad fragment: {:?}", error)),
            Self::Ack(error) => f.write_fmt(fmt!(
                "it acknowledged message {}, but the last one sent is {}",
                error.ack,
                error.sent
            )),
            Self::Broken => f.write_fmt(fmt!("an earlier frame broke a rule")),
        }
    }
}

impl Violation {
    /// Returns the reason for the table of paths.
    pub(super) fn drop_reason(&self) -> DropReason {
        match self {
            Self::Short(_) => DropReason::HeaderMissing,
            Self::Fragment(_) => DropReason::FragmentMismatch,
            Self::Header(_) | Self::Packed(_) | Self::Ack(_) | Self::Broken => {
                DropReason::HeaderCorrupted
            }
        }
    }

    pub(super) fn counter(&self) -> Counter {
        match self {
            Self::Header(HeaderError::Checksum) => Counter::RecvDropBadChecksum,
            Self::Packed(SplitError::Header(HeaderError::Checksum)) => Counter::RecvDropBadChecksum,
            Self::Packed(SplitError::Short(_) | SplitError::Cut(..) | SplitError::Long(_)) => {
                Counter::RecvDropBadFragment
            }
            Self::Short(_) | Self::Header(_) | Self::Packed(_) => Counter::RecvDropBadHeader,
            Self::Fragment(_) => Counter::RecvDropBadFragment,
            Self::Ack(_) => Counter::RecvDropBadAck,
            Self::Broken => Counter::RecvDropBroken,
        }
    }
}
