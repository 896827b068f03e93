// SPDX-License-Identifier: GPL-2.0

//! Identity of RDMA devices.

/// Identifier of a device. It is unique among the present devices, and is not reused soon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DeviceId(pub(crate) u32);

impl DeviceId {
    /// The lowest identifier in the order.
    pub(crate) const LEAST: Self = Self(0);
}
