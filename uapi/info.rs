// SPDX-License-Identifier: GPL-2.0

//! Records of the `RDS_INFO_*` tables.
//!
//! Numbers are in host byte order, addresses and ports in network byte order. Each kind of record
//! exists twice: for IPv6, and for IPv4, which omits objects with other addresses.

use super::{
    rds6_info_connection,
    rds6_info_message,
    rds6_info_rdma_connection,
    rds6_info_socket,
    rds6_info_tcp_socket,
    rds_info_connection,
    rds_info_counter,
    rds_info_message,
    rds_info_rdma_connection,
    rds_info_socket,
    rds_info_tcp_socket,
    TRANSNAMSIZ, //
};
use crate::proto::{
    info::{
        PayloadBytes,
        QueuePair,
        RdmaPath,
        TcpProgress, //
    },
    path_history::PathTimes, //
};
use core::{
    ffi::c_int,
    mem::offset_of,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

/// Tables of Oracle's kernel (UEK). The headers of Linux have neither the numbers nor the records.
/// UEK has no record for `RDS_INFO_RDMA_CONNECTION_STATS`; here it is that of queue pairs.
pub(crate) const RDS_INFO_CONN_PATHS: c_int = 10020;
pub(crate) const RDS6_INFO_CONN_PATHS: c_int = 10021;

pub(crate) const RDS_INFO_RDMA_CONNECTION_STATS: c_int = 10018;
pub(crate) const RDS6_INFO_RDMA_CONNECTION_STATS: c_int = 10019;

/// Defines a `struct rds_info_rdma_connection` as UEK has it, whose first fields are those of
/// Linux, and `cpu`, which is only of this module. `$len`: bytes of an address.
macro_rules! queue_pair_record {
    ($type:ident, $len:literal) => {
        #[repr(C)]
        struct $type {
            src_addr: [u8; $len],
            dst_addr: [u8; $len],
            src_gid: [u8; 16],
            dst_gid: [u8; 16],
            max_send_wr: u32,
            max_recv_wr: u32,
            max_send_sge: u32,
            rdma_mr_max: u32,
            rdma_mr_size: u32,
            tos: u8,
            sl: u8,
            cache_allocs: u32,
            frag: u32,
            flow_ctl_post_credit: u16,
            flow_ctl_send_credit: u16,
            qp_num: i32,
            recv_alloc_ctr: u32,
            recv_free_ctr: u32,
            dst_qp_num: i32,
            send_alloc_ctr: u32,
            send_free_ctr: u32,
            send_bytes: u64,
            recv_bytes: u64,
            r_read_bytes: u64,
            r_write_bytes: u64,
            tx_poll_ts: u64,
            rx_poll_ts: u64,
            tx_poll_cnt: u64,
            rx_poll_cnt: u64,
            scq_vector: i32,
            rcq_vector: i32,
            cpu: i32,
            unused: u32,
        }
    };
}

queue_pair_record!(rds_info_queue_pair, 4);
queue_pair_record!(rds6_info_queue_pair, 16);

// The records of UEK have 176 and 200 bytes.
const _: () = {
    assert!(offset_of!(rds_info_queue_pair, frag) == size_of::<rds_info_rdma_connection>());
    assert!(offset_of!(rds6_info_queue_pair, frag) == size_of::<rds6_info_rdma_connection>());
    assert!(offset_of!(rds_info_queue_pair, cpu) == 176);
    assert!(offset_of!(rds6_info_queue_pair, cpu) == 200);
};

/// `struct rds_info_connection_paths` of UEK, and in it a single `struct rds_path_info`. The fields
/// from `next_tx_seq` on are only of this module.
#[repr(C, packed)]
struct rds_info_connection_paths {
    local_addr: [u8; 16],
    peer_addr: [u8; 16],
    transport: [u8; TRANSNAMSIZ as usize],
    tos: u8,
    npaths: u8,
    attempt_time: i64,
    connect_time: i64,
    reset_time: i64,
    disconnect_reason: u32,
    connect_attempts: u32,
    index: u32,
    flags: u8,
    next_tx_seq: u64,
    next_rx_seq: u64,
    send_bytes: u64,
    recv_bytes: u64,
    retransmissions: u64,
    cpu: i32,
}

// UEK has 50 bytes for the connection, and 37 for each path.
const _: () = {
    assert!(offset_of!(rds_info_connection_paths, attempt_time) == 50);
    assert!(offset_of!(rds_info_connection_paths, next_tx_seq) == 50 + 37);
    assert!(size_of::<rds_info_connection_paths>() == 50 + 37 + 44);
};

/// Size of the longest record, in bytes.
const LONGEST: usize = size_of::<rds6_info_queue_pair>();

/// Bytes of one record.
///
/// # Invariants
///
/// `len` is at most `LONGEST`.
pub(crate) struct Record {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Record {
    /// Returns a record of C type `T` with zeros in all fields.
    fn new<T>() -> Self {
        const { assert!(size_of::<T>() <= LONGEST) };
        // INVARIANT: Asserted just now.
        Self {
            bytes: [0; LONGEST],
            len: size_of::<T>(),
        }
    }

    /// Sets the field at offset `at` of a record of C type `T`. `_field` reads that field; the
    /// bytes must be as many as it has.
    #[inline]
    fn set<T, F, const N: usize>(&mut self, at: usize, _field: impl Fn(&T) -> F, bytes: [u8; N]) {
        const { assert!(size_of::<F>() == N) };
        // There is room for the fields of every record.
        let room = self.bytes.get_mut(at..);
        if let Some(room) = room.and_then(|rest| rest.first_chunk_mut()) {
            *room = bytes;
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Makes a [`Record`] of a C type from the bytes of all its fields.
macro_rules! record {
    ($type:ident { $($field:ident: $bytes:expr,)* }) => {{
        // The compiler rejects a field that does not exist, and one that is missing.
        let _all = |record: $type| {
            let $type { $($field: _,)* } = record;
        };
        let mut record = Record::new::<$type>();
        $(record.set(
            offset_of!($type, $field),
            |record: &$type| record.$field,
            $bytes,
        );)*
        record
    }};
}

/// Returns a name for a field of `N` bytes, padded with at least one zero.
fn padded<const N: usize>(name: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N.saturating_sub(1)).zip(name.bytes()) {
        *to = from;
    }
    field
}

/// Returns the number of a vector or CPU as records have it: -1 if there is none.
fn signed(number: Option<u32>) -> [u8; 4] {
    let number = number.and_then(|number| i32::try_from(number).ok());
    number.unwrap_or(-1).to_ne_bytes()
}

/// Returns two addresses as IPv4 addresses, or `None` if the first one is none. If only the second
/// one is none, it becomes 0.0.0.0.
fn ipv4_pair(first: Ipv6Addr, second: Ipv6Addr) -> Option<([u8; 4], [u8; 4])> {
    let second = second.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
    Some((first.to_ipv4_mapped()?.octets(), second.octets()))
}

/// Address family of the tables that a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// `RDS_INFO_*`: objects with IPv4 addresses.
    V4,
    /// `RDS6_INFO_*`: all objects.
    V6,
}

/// Kind of record.
pub(crate) trait Emitted {
    /// Returns the size of the record in bytes.
    fn size(family: Family) -> usize;

    /// Returns the record, or `None` if there is none for this family.
    fn emit(&self, family: Family) -> Option<Record>;
}

/// `struct rds_info_counter`.
pub(crate) struct CounterRecord<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: u64,
}

impl Emitted for CounterRecord<'_> {
    fn size(_: Family) -> usize {
        size_of::<rds_info_counter>()
    }

    fn emit(&self, _: Family) -> Option<Record> {
        Some(record!(rds_info_counter {
            name: padded::<32>(self.name),
            value: self.value.to_ne_bytes(),
        }))
    }
}

/// `struct rds_info_connection`, `struct rds6_info_connection`.
pub(crate) struct ConnectionRecord<'a> {
    pub(crate) next_tx: u64,
    pub(crate) next_rx: u64,
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) transport: &'a str,
    pub(crate) flags: u8,
    pub(crate) tos: u8,
}

impl Emitted for ConnectionRecord<'_> {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_connection>(),
            Family::V6 => size_of::<rds6_info_connection>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        let next_tx_seq = self.next_tx.to_ne_bytes();
        let next_rx_seq = self.next_rx.to_ne_bytes();
        // CAST: 16.
        let transport = padded::<{ TRANSNAMSIZ as usize }>(self.transport);
        Some(match family {
            Family::V4 => {
                let (laddr, faddr) = ipv4_pair(self.laddr, self.faddr)?;
                record!(rds_info_connection {
                    next_tx_seq: next_tx_seq,
                    next_rx_seq: next_rx_seq,
                    laddr: laddr,
                    faddr: faddr,
                    transport: transport,
                    flags: [self.flags],
                    tos: [self.tos],
                })
            }
            // This record has no field for the type of service.
            Family::V6 => record!(rds6_info_connection {
                next_tx_seq: next_tx_seq,
                next_rx_seq: next_rx_seq,
                laddr: self.laddr.octets(),
                faddr: self.faddr.octets(),
                transport: transport,
                flags: [self.flags],
            }),
        })
    }
}

/// `struct rds_info_message`, `struct rds6_info_message`: a message that waits to be sent,
/// acknowledged or read.
pub(crate) struct MessageRecord {
    pub(crate) sequence: u64,
    /// Payload bytes.
    pub(crate) len: u32,
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) lport: u16,
    pub(crate) fport: u16,
    pub(crate) tos: u8,
}

impl Emitted for MessageRecord {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_message>(),
            Family::V6 => size_of::<rds6_info_message>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        /// Flags are always 0, as in C.
        const FLAGS: u8 = 0;

        macro_rules! message {
            ($type:ident, $laddr:expr, $faddr:expr) => {
                record!($type {
                    seq: self.sequence.to_ne_bytes(),
                    len: self.len.to_ne_bytes(),
                    laddr: $laddr,
                    faddr: $faddr,
                    lport: self.lport.to_be_bytes(),
                    fport: self.fport.to_be_bytes(),
                    flags: [FLAGS],
                    tos: [self.tos],
                })
            };
        }

        let (laddr, faddr) = (self.laddr, self.faddr);
        Some(match family {
            Family::V4 => {
                let (laddr, faddr) = ipv4_pair(laddr, faddr)?;
                message!(rds_info_message, laddr, faddr)
            }
            Family::V6 => message!(rds6_info_message, laddr.octets(), faddr.octets()),
        })
    }
}

/// `struct rds_info_socket`, `struct rds6_info_socket`. The peer is `::` with port 0 if there is
/// none.
pub(crate) struct SocketRecord {
    /// Limits in bytes, for messages not acknowledged and for those that wait to be read.
    pub(crate) sndbuf: u32,
    pub(crate) rcvbuf: u32,
    pub(crate) bound: (Ipv6Addr, u16),
    pub(crate) connected: (Ipv6Addr, u16),
    pub(crate) inode: u64,
}

impl Emitted for SocketRecord {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_socket>(),
            Family::V6 => size_of::<rds6_info_socket>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        macro_rules! socket {
            ($type:ident, $bound:expr, $connected:expr) => {
                record!($type {
                    sndbuf: self.sndbuf.to_ne_bytes(),
                    bound_addr: $bound,
                    connected_addr: $connected,
                    bound_port: self.bound.1.to_be_bytes(),
                    connected_port: self.connected.1.to_be_bytes(),
                    rcvbuf: self.rcvbuf.to_ne_bytes(),
                    inum: self.inode.to_ne_bytes(),
                })
            };
        }

        let (bound, connected) = (self.bound.0, self.connected.0);
        Some(match family {
            Family::V4 => {
                let (bound, connected) = ipv4_pair(bound, connected)?;
                socket!(rds_info_socket, bound, connected)
            }
            Family::V6 => socket!(rds6_info_socket, bound.octets(), connected.octets()),
        })
    }
}

/// `struct rds_info_rdma_connection`, `struct rds6_info_rdma_connection`. All fields except the
/// addresses and the type of service are zero if the connection is not up.
pub(crate) struct RdmaConnection {
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) tos: u8,
    pub(crate) path: RdmaPath,
}

impl Emitted for RdmaConnection {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_rdma_connection>(),
            Family::V6 => size_of::<rds6_info_rdma_connection>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        /// Limits of C's region pools, and the number of its cached messages. This module has
        /// neither.
        const NONE: [u8; 4] = [0; 4];

        macro_rules! connection {
            ($type:ident, $laddr:expr, $faddr:expr) => {
                record!($type {
                    src_addr: $laddr,
                    dst_addr: $faddr,
                    src_gid: self.path.local_gid,
                    dst_gid: self.path.peer_gid,
                    max_send_wr: self.path.max_send_wr.to_ne_bytes(),
                    max_recv_wr: self.path.max_recv_wr.to_ne_bytes(),
                    max_send_sge: self.path.max_send_sge.to_ne_bytes(),
                    rdma_mr_max: NONE,
                    rdma_mr_size: NONE,
                    tos: [self.tos],
                    sl: [self.path.service_level],
                    cache_allocs: NONE,
                })
            };
        }

        let (laddr, faddr) = (self.laddr, self.faddr);
        Some(match family {
            Family::V4 => {
                let (laddr, faddr) = ipv4_pair(laddr, faddr)?;
                connection!(rds_info_rdma_connection, laddr, faddr)
            }
            Family::V6 => connection!(rds6_info_rdma_connection, laddr.octets(), faddr.octets()),
        })
    }
}

/// A queue pair: the fields of the connection, and those that UEK has beside them.
pub(crate) struct QueuePairRecord {
    pub(crate) connection: RdmaConnection,
    pub(crate) payload: PayloadBytes,
    /// `None` while the connection is not up.
    pub(crate) queue_pair: Option<QueuePair>,
}

impl Emitted for QueuePairRecord {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_queue_pair>(),
            Family::V6 => size_of::<rds6_info_queue_pair>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        /// Fields of which this module has no number.
        const NONE: [u8; 4] = [0; 4];
        const NONE16: [u8; 2] = [0; 2];
        const NONE64: [u8; 8] = [0; 8];

        let RdmaConnection {
            laddr, faddr, tos, ..
        } = self.connection;
        let path = &self.connection.path;
        let qp = self.queue_pair.unwrap_or_default();
        let vector = signed(self.queue_pair.map(|qp| qp.vector));

        macro_rules! queue_pair {
            ($type:ident, $laddr:expr, $faddr:expr) => {
                record!($type {
                    src_addr: $laddr,
                    dst_addr: $faddr,
                    src_gid: path.local_gid,
                    dst_gid: path.peer_gid,
                    max_send_wr: path.max_send_wr.to_ne_bytes(),
                    max_recv_wr: path.max_recv_wr.to_ne_bytes(),
                    max_send_sge: path.max_send_sge.to_ne_bytes(),
                    rdma_mr_max: NONE,
                    rdma_mr_size: NONE,
                    tos: [tos],
                    sl: [path.service_level],
                    cache_allocs: NONE,
                    frag: qp.fragment.to_ne_bytes(),
                    flow_ctl_post_credit: NONE16,
                    flow_ctl_send_credit: NONE16,
                    qp_num: qp.own.to_ne_bytes(),
                    recv_alloc_ctr: NONE,
                    recv_free_ctr: NONE,
                    dst_qp_num: qp.peer.to_ne_bytes(),
                    send_alloc_ctr: NONE,
                    send_free_ctr: NONE,
                    send_bytes: self.payload.acked.to_ne_bytes(),
                    recv_bytes: self.payload.received.to_ne_bytes(),
                    r_read_bytes: NONE64,
                    r_write_bytes: NONE64,
                    tx_poll_ts: NONE64,
                    rx_poll_ts: NONE64,
                    tx_poll_cnt: NONE64,
                    rx_poll_cnt: NONE64,
                    scq_vector: vector,
                    rcq_vector: vector,
                    cpu: signed(qp.cpu),
                    unused: NONE,
                })
            };
        }

        Some(match family {
            Family::V4 => {
                let (laddr, faddr) = ipv4_pair(laddr, faddr)?;
                queue_pair!(rds_info_queue_pair, laddr, faddr)
            }
            Family::V6 => queue_pair!(rds6_info_queue_pair, laddr.octets(), faddr.octets()),
        })
    }
}

/// `struct rds_info_tcp_socket`, `struct rds6_info_tcp_socket`.
pub(crate) struct TcpConnection {
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) progress: TcpProgress,
}

impl Emitted for TcpConnection {
    fn size(family: Family) -> usize {
        match family {
            Family::V4 => size_of::<rds_info_tcp_socket>(),
            Family::V6 => size_of::<rds6_info_tcp_socket>(),
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        macro_rules! socket {
            ($type:ident, $laddr:expr, $faddr:expr $(, $tos:ident)?) => {
                record!($type {
                    local_addr: $laddr,
                    local_port: self.progress.local_port.to_be_bytes(),
                    peer_addr: $faddr,
                    peer_port: self.progress.peer_port.to_be_bytes(),
                    hdr_rem: self.progress.header_left.to_ne_bytes(),
                    data_rem: self.progress.payload_left.to_ne_bytes(),
                    last_sent_nxt: self.progress.last_begin.to_ne_bytes(),
                    last_expected_una: self.progress.last_end.to_ne_bytes(),
                    last_seen_una: self.progress.una.to_ne_bytes(),
                    $($tos: [0],)?
                })
            };
        }

        let (laddr, faddr) = (self.laddr, self.faddr);
        Some(match family {
            Family::V4 => {
                let (laddr, faddr) = ipv4_pair(laddr, faddr)?;
                socket!(rds_info_tcp_socket, laddr, faddr, tos)
            }
            Family::V6 => socket!(rds6_info_tcp_socket, laddr.octets(), faddr.octets()),
        })
    }
}

/// `struct rds_info_connection_paths` of UEK: a connection and one of its paths, with its traffic
/// behind them. Tables of both families have the addresses of IPv6.
pub(crate) struct PathRecord {
    pub(crate) laddr: Ipv6Addr,
    pub(crate) faddr: Ipv6Addr,
    pub(crate) transport: &'static str,
    pub(crate) tos: u8,
    /// Number of the path.
    pub(crate) index: u8,
    /// `RDS_INFO_CONNECTION_FLAG_*`.
    pub(crate) flags: u8,
    pub(crate) times: PathTimes,
    pub(crate) next_tx: u64,
    pub(crate) next_rx: u64,
    pub(crate) payload: PayloadBytes,
    /// Messages that were sent again.
    pub(crate) retransmissions: u64,
    /// CPU of the last completions or packets. `None` while the path is not up.
    pub(crate) cpu: Option<u32>,
}

impl Emitted for PathRecord {
    fn size(_: Family) -> usize {
        size_of::<rds_info_connection_paths>()
    }

    fn emit(&self, family: Family) -> Option<Record> {
        /// Number of paths of a connection that negotiates none, on UEK.
        const SINGLE: u8 = 0;

        if family == Family::V4 {
            ipv4_pair(self.laddr, self.faddr)?;
        }
        Some(record!(rds_info_connection_paths {
            local_addr: self.laddr.octets(),
            peer_addr: self.faddr.octets(),
            transport: padded::<{ TRANSNAMSIZ as usize }>(self.transport),
            tos: [self.tos],
            npaths: [SINGLE],
            attempt_time: self.times.attempted.to_ne_bytes(),
            connect_time: self.times.connected.to_ne_bytes(),
            reset_time: self.times.reset.to_ne_bytes(),
            disconnect_reason: self.times.reason.number().to_ne_bytes(),
            connect_attempts: self.times.attempts.to_ne_bytes(),
            index: u32::from(self.index).to_ne_bytes(),
            flags: [self.flags],
            next_tx_seq: self.next_tx.to_ne_bytes(),
            next_rx_seq: self.next_rx.to_ne_bytes(),
            send_bytes: self.payload.acked.to_ne_bytes(),
            recv_bytes: self.payload.received.to_ne_bytes(),
            retransmissions: self.retransmissions.to_ne_bytes(),
            cpu: signed(self.cpu),
        }))
    }
}
