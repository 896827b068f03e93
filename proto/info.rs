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

/// Queue pair of an RDMA connection that is up, and the processing of its completions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct QueuePair {
    /// Bytes of a fragment.
    pub(crate) fragment: u32,
    /// Number of the queue pair.
    pub(crate) own: u32,
    /// Number of that of the peer. 0 if the device does not report it, or on iWARP.
    pub(crate) peer: u32,
    /// Completion vector of both queues, which selects the interrupt.
    pub(crate) vector: u32,
    /// CPU that has processed the last completions. `None` if there was none.
    pub(crate) cpu: Option<u32>,
}

/// Payload of a connection since it was created.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct PayloadBytes {
    /// Bytes that the peer has acknowledged.
    pub(crate) acked: u64,
    pub(crate) received: u64,
}

/// Progress of a connection over TCP that is up. Numbers are those of bytes in the stream, modulo
/// 2^32, as TCP counts them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct TcpProgress {
    pub(crate) local_port: u16,
    pub(crate) peer_port: u16,
    /// Bytes of the next header that have not arrived. 0 while the payload behind it arrives.
    pub(crate) header_left: u64,
    /// Bytes of the payload that have not arrived.
    pub(crate) payload_left: u64,
    /// First byte behind the message before the last one that was given to TCP. Maps and
    /// acknowledgements may precede the last one.
    pub(crate) last_begin: u32,
    /// First byte behind the last message.
    pub(crate) last_end: u32,
    /// First byte that the peer's TCP has not acknowledged.
    pub(crate) una: u32,
}
