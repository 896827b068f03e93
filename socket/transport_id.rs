// SPDX-License-Identifier: GPL-2.0

//! Identity of the transports.

use crate::uapi::{
    RDS_TRANS_COUNT,
    RDS_TRANS_IB,
    RDS_TRANS_TCP, //
};
use kernel::prelude::*;

/// Transports, with their numbers in `SO_RDS_TRANSPORT`.
///
/// The loop transport has the first number that programs do not have, as in C RDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum TransportId {
    // CAST: small numbers.
    Ib = RDS_TRANS_IB as u8,
    Tcp = RDS_TRANS_TCP as u8,
    Loop = RDS_TRANS_COUNT as u8,
}

impl TransportId {
    /// The first one in the order of this type.
    pub(crate) const LEAST: Self = Self::Ib;

    /// Returns the transport with a number that a program may pass.
    pub(crate) const fn from_option(number: c_int) -> Option<Self> {
        match number {
            RDS_TRANS_IB => Some(Self::Ib),
            RDS_TRANS_TCP => Some(Self::Tcp),
            _ => None,
        }
    }

    /// Returns the name that the information tables show, as with C RDS.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ib => "infiniband",
            Self::Tcp => "tcp",
            Self::Loop => "loopback",
        }
    }
}
