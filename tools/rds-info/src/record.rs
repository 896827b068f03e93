// SPDX-License-Identifier: GPL-2.0
//! The records of the kernel's tables, `struct rds_info_*` and `rds6_info_*` of `<linux/rds.h>`.
//!
//! Numbers are in the byte order of the machine, addresses and ports in that of the network. A record may be
//! longer than the one known here, as newer kernels append to them, or shorter, as older ones had less: what is
//! missing reads as zero, or as `None` where zero would say something.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rds_socket::Table;
use serde::{Serialize, Serializer};

use crate::columns::More;

/// How long addresses are in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Family {
    /// 4 bytes
    #[default]
    V4,
    /// 16 bytes. An IPv4 address is a mapped one.
    V6,
}

/// One record of a table.
pub(crate) trait Record: Sized {
    /// Takes the fields in the order in which the kernel has them.
    fn decode(fields: &mut Fields<'_>) -> Self;
}

/// The records of a table; `None` if it is not made of whole records.
pub(crate) fn decode<R: Record>(table: &Table, family: Family) -> Option<Vec<R>> {
    if table.data.is_empty() {
        return Some(Vec::new());
    }
    if table.each == 0 || table.data.len() % table.each != 0 {
        return None;
    }
    let records = table.data.chunks(table.each);
    let decoded = records.map(|record| {
        let offset = 0;
        R::decode(&mut Fields {
            record,
            offset,
            family,
        })
    });
    Some(decoded.collect())
}

/// What is not yet taken of a record.
pub(crate) struct Fields<'a> {
    record: &'a [u8],
    offset: usize,
    family: Family,
}

impl Fields<'_> {
    /// The next `N` bytes; `None` beyond the end of the record. Of a field that is cut, what is there.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let rest = self.record.get(self.offset..).unwrap_or_default();
        let there = rest.get(..N).unwrap_or(rest);
        self.offset = self.offset.saturating_add(N);
        let mut bytes = [0; N];
        bytes.iter_mut().zip(there).for_each(|(byte, &x)| *byte = x);
        (!there.is_empty()).then_some(bytes)
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.record.len().saturating_sub(self.offset)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take().unwrap_or([0; N])
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.bytes())
    }

    fn maybe_u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_ne_bytes)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }

    pub(crate) fn i32(&mut self) -> i32 {
        i32::from_ne_bytes(self.bytes())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_ne_bytes(self.bytes())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    fn port(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    /// An address of the table's family. A mapped one is what it stands for.
    fn address(&mut self) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::from(self.bytes::<4>()).into(),
            Family::V6 => self.long_address(),
        }
    }

    /// An address that is as long as those of IPv6 in any table.
    pub(crate) fn long_address(&mut self) -> IpAddr {
        Ipv6Addr::from(self.bytes::<16>()).to_canonical()
    }

    fn gid(&mut self) -> Ipv6Addr {
        self.bytes::<16>().into()
    }

    /// Text up to the first zero.
    pub(crate) fn text<const N: usize>(&mut self) -> String {
        let bytes = self.bytes::<N>();
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// To a multiple of `n` bytes, where the compiler has left a gap.
    pub(crate) fn align(&mut self, n: usize) {
        self.offset = self.offset.next_multiple_of(n);
    }
}

/// A counter of the whole machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) value: u64,
}

impl Record for Counter {
    fn decode(fields: &mut Fields<'_>) -> Self {
        Counter {
            name: fields.text::<32>(),
            value: fields.u64(),
        }
    }
}

/// The state of a connection, as the bits of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionFlags(pub(crate) u8);

impl ConnectionFlags {
    /// Bit, letter in a table, word in JSON. No kernel of Linux sets the last; Oracle's does.
    const ALL: [(u8, char, &'static str); 4] = [
        (1, 's', "sending"),
        (2, 'c', "connecting"),
        (4, 'C', "connected"),
        (8, 'E', "error"),
    ];

    pub(crate) fn is_connected(self) -> bool {
        self.0 & 4 != 0
    }

    /// A letter for each that is set.
    pub(crate) fn letters(self) -> String {
        let letter = |(bit, letter, _)| if self.0 & bit != 0 { letter } else { '-' };
        Self::ALL.into_iter().map(letter).collect()
    }
}

impl Serialize for ConnectionFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let set = Self::ALL.iter().filter(|(bit, ..)| self.0 & bit != 0);
        serializer.collect_seq(set.map(|(.., word)| word))
    }
}

/// A connection to a peer, for one type of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Connection {
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) transport: String,
    /// `None`: the kernel does not tell. Linux does not in the table of IPv6.
    pub(crate) tos: Option<u8>,
    /// The number that the next message sent gets.
    pub(crate) next_tx: u64,
    /// The number that the next message received should have.
    pub(crate) next_rx: u64,
    pub(crate) flags: ConnectionFlags,
}

impl Record for Connection {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let (next_tx, next_rx) = (fields.u64(), fields.u64());
        Connection {
            local: fields.address(),
            peer: fields.address(),
            transport: fields.text::<16>(),
            flags: ConnectionFlags(fields.u8()),
            tos: fields.maybe_u8(),
            next_tx,
            next_rx,
        }
    }
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Message {
    pub(crate) local: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) peer: IpAddr,
    pub(crate) peer_port: u16,
    pub(crate) tos: u8,
    pub(crate) seq: u64,
    pub(crate) bytes: u32,
    /// 1: the peer shall confirm it. 2: at once.
    pub(crate) flags: u8,
}

impl Record for Message {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let (seq, bytes) = (fields.u64(), fields.u32());
        Message {
            local: fields.address(),
            peer: fields.address(),
            local_port: fields.port(),
            peer_port: fields.port(),
            flags: fields.u8(),
            tos: fields.u8(),
            seq,
            bytes,
        }
    }
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Socket {
    pub(crate) bound: IpAddr,
    pub(crate) bound_port: u16,
    pub(crate) connected: IpAddr,
    pub(crate) connected_port: u16,
    pub(crate) sndbuf: u32,
    pub(crate) rcvbuf: u32,
    pub(crate) inode: u64,
}

impl Record for Socket {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let sndbuf = fields.u32();
        Socket {
            bound: fields.address(),
            connected: fields.address(),
            bound_port: fields.port(),
            connected_port: fields.port(),
            rcvbuf: fields.u32(),
            inode: fields.u64(),
            sndbuf,
        }
    }
}

/// A TCP connection that carries RDS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TcpConnection {
    pub(crate) local: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) peer: IpAddr,
    pub(crate) peer_port: u16,
    /// Bytes of a header, and of data, that are still to come.
    pub(crate) header_remaining: u64,
    pub(crate) data_remaining: u64,
    /// Numbers of TCP: sent, and confirmed as expected and as seen.
    pub(crate) sent_next: u32,
    pub(crate) expected_una: u32,
    pub(crate) seen_una: u32,
    /// `None`: the kernel does not tell.
    pub(crate) tos: Option<u8>,
}

impl Record for TcpConnection {
    fn decode(fields: &mut Fields<'_>) -> Self {
        TcpConnection {
            local: fields.address(),
            local_port: fields.port(),
            peer: fields.address(),
            peer_port: fields.port(),
            header_remaining: fields.u64(),
            data_remaining: fields.u64(),
            sent_next: fields.u32(),
            expected_una: fields.u32(),
            seen_una: fields.u32(),
            tos: fields.maybe_u8(),
        }
    }
}

/// A queue pair, with what its device allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct IbConnection {
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) local_gid: Ipv6Addr,
    pub(crate) peer_gid: Ipv6Addr,
    pub(crate) tos: u8,
    pub(crate) sl: u8,
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) rdma_mr_max: u32,
    pub(crate) rdma_mr_size: u32,
    /// KiB
    pub(crate) cache_allocs: u32,
    #[serde(flatten)]
    pub(crate) more: Option<More>,
}

impl Record for IbConnection {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let connection = IbConnection {
            local: fields.address(),
            peer: fields.address(),
            local_gid: fields.gid(),
            peer_gid: fields.gid(),
            send_wr: fields.u32(),
            recv_wr: fields.u32(),
            send_sge: fields.u32(),
            rdma_mr_max: fields.u32(),
            rdma_mr_size: fields.u32(),
            tos: fields.u8(),
            sl: fields.u8(),
            cache_allocs: 0,
            more: None,
        };
        // The one record that is not packed.
        fields.align(4);
        IbConnection {
            cache_allocs: fields.u32(),
            more: More::decode(fields),
            ..connection
        }
    }
}

#[cfg(test)]
mod tests;
