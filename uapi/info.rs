// SPDX-License-Identifier: GPL-2.0

//! Records of the `RDS_INFO_*` tables, byte by byte.
//!
//! Numbers are in host byte order, addresses and ports in network byte order. Each kind of record
//! exists twice: for IPv6, and for IPv4, which omits objects with other addresses.
//!
//! Source: the structures of `include/uapi/linux/rds.h`.

use crate::proto::info::RdmaPath;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Size of a counter's name with the terminating NUL, in bytes.
const COUNTER_NAME: usize = 32;

/// Size of a transport's name with the terminating NUL, in bytes.
const TRANSPORT_NAME: usize = 16;

/// Size of the longest record, in bytes.
const LONGEST: usize = 92;

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
    const fn new() -> Self {
        Self {
            bytes: [0; LONGEST],
            len: 0,
        }
    }

    /// Appends bytes. There is room for those of every record.
    fn put(mut self, bytes: &[u8]) -> Self {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.len = end;
        }
        self
    }

    /// Appends a name in a field of `N` bytes, padded with at least one zero.
    fn put_name<const N: usize>(self, name: &str) -> Self {
        let mut field = [0; N];
        for (to, from) in field.iter_mut().take(N.saturating_sub(1)).zip(name.bytes()) {
            *to = from;
        }
        self.put(&field)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Address family of the tables that a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// `RDS_INFO_*`: objects with IPv4 addresses.
    V4,
    /// `RDS6_INFO_*`: all objects.
    V6,
}

impl Family {
    /// Appends two addresses. Returns `None` if the first one is not of this family. If only the
    /// second one is not, it becomes 0.0.0.0.
    fn put_addrs(self, record: Record, first: Ipv6Addr, second: Ipv6Addr) -> Option<Record> {
        Some(match self {
            Self::V4 => {
                let second = second.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED);
                record
                    .put(&first.to_ipv4_mapped()?.octets())
                    .put(&second.octets())
            }
            Self::V6 => record.put(&first.octets()).put(&second.octets()),
        })
    }
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
        40
    }

    fn emit(&self, _: Family) -> Option<Record> {
        let record = Record::new().put_name::<COUNTER_NAME>(self.name);
        Some(record.put(&self.value.to_ne_bytes()))
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
            Family::V4 => 42,
            Family::V6 => 65,
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        let record = Record::new()
            .put(&self.next_tx.to_ne_bytes())
            .put(&self.next_rx.to_ne_bytes());
        let record = family
            .put_addrs(record, self.laddr, self.faddr)?
            .put_name::<TRANSPORT_NAME>(self.transport)
            .put(&[self.flags]);
        Some(match family {
            Family::V4 => record.put(&[self.tos]),
            // The IPv6 record has no field for the type of service.
            Family::V6 => record,
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
            Family::V4 => 26,
            Family::V6 => 50,
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        /// Flags are always 0, as in C.
        const FLAGS: u8 = 0;

        let record = Record::new()
            .put(&self.sequence.to_ne_bytes())
            .put(&self.len.to_ne_bytes());
        let record = family.put_addrs(record, self.laddr, self.faddr)?;
        Some(
            record
                .put(&self.lport.to_be_bytes())
                .put(&self.fport.to_be_bytes())
                .put(&[FLAGS, self.tos]),
        )
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
            Family::V4 => 28,
            Family::V6 => 52,
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        let record = Record::new().put(&self.sndbuf.to_ne_bytes());
        let record = family.put_addrs(record, self.bound.0, self.connected.0)?;
        Some(
            record
                .put(&self.bound.1.to_be_bytes())
                .put(&self.connected.1.to_be_bytes())
                .put(&self.rcvbuf.to_ne_bytes())
                .put(&self.inode.to_ne_bytes()),
        )
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
            Family::V4 => 68,
            Family::V6 => 92,
        }
    }

    fn emit(&self, family: Family) -> Option<Record> {
        let path = &self.path;
        let record = family
            .put_addrs(Record::new(), self.laddr, self.faddr)?
            .put(&path.local_gid)
            .put(&path.peer_gid)
            .put(&path.max_send_wr.to_ne_bytes())
            .put(&path.max_recv_wr.to_ne_bytes())
            .put(&path.max_send_sge.to_ne_bytes())
            // `rdma_mr_max` and `rdma_mr_size`, limits of C's region pools: 0 here.
            .put(&[0; 8])
            .put(&[self.tos, path.service_level])
            // Two bytes of padding, and `cache_allocs`: what C keeps in caches of the connection.
            .put(&[0; 6]);
        Some(record)
    }
}
