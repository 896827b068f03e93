// SPDX-License-Identifier: GPL-2.0

//! Identity of the transports.

use crate::uapi::{RDS_TRANS_COUNT, RDS_TRANS_IB, RDS_TRANS_TCP};

/// Transports, with their numbers in `SO_RDS_TRANSPORT`.
///
/// The loop transport has the first number that programs do not have, as in C RDS.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub(crate) enum TransportId {
    Ib = RDS_TRANS_IB,
    Tcp = RDS_TRANS_TCP,
    Loop = RDS_TRANS_COUNT,
}
