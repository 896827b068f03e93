// SPDX-License-Identifier: GPL-2.0

//! Description of a connection for the `RDS_INFO_*` tables. Their records are in `uapi/info.rs`.

/// Path of an RDMA connection that is up.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct RdmaPath {
    pub(crate) local_gid: [u8; 16],
    pub(crate) peer_gid: [u8; 16],
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) service_level: u8,
}
