// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The records, `struct rds_info_*` and `rds6_info_*` of `<linux/rds.h>`.
//!
//! Numbers are in the byte order of the machine, addresses and ports in that of the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::oracle::Details;
use super::{Family, Table};

/// Decodes a record from its fields.
pub trait Decode: Sized {
    /// Takes the fields in the order in which the kernel has them.
    fn decode(fields: &mut Fields<'_>) -> Self;
}

/// One record of a table. No other crate can implement it.
pub trait Record: Decode {}

impl<T: Decode> Record for T {}

/// Decodes the records of a table; `None` if it does not consist of whole records.
pub fn decode<R: Record>(table: &Table, family: Family) -> Option<Vec<R>> {
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

/// The rest of a record that is not yet decoded.
pub struct Fields<'a> {
    record: &'a [u8],
    offset: usize,
    family: Family,
}

impl Fields<'_> {
    /// Takes the next `N` bytes; `None` beyond the end of the record. For a truncated field it
    /// returns the existing bytes.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let rest = self.record.get(self.offset..).unwrap_or_default();
        let there = rest.get(..N).unwrap_or(rest);
        self.offset = self.offset.saturating_add(N);
        let mut bytes = [0; N];
        bytes.iter_mut().zip(there).for_each(|(byte, &x)| *byte = x);
        (!there.is_empty()).then_some(bytes)
    }

    /// Returns the number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.record.len().saturating_sub(self.offset)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take().unwrap_or([0; N])
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_ne_bytes(self.bytes())
    }

    fn maybe_u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_ne_bytes)
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }

    pub(super) fn i32(&mut self) -> i32 {
        i32::from_ne_bytes(self.bytes())
    }

    pub(super) fn maybe_i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_ne_bytes)
    }

    pub(super) fn i64(&mut self) -> i64 {
        i64::from_ne_bytes(self.bytes())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }

    fn port(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    /// Takes an address of the table's family. A mapped one becomes an IPv4 address.
    fn address(&mut self) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::from(self.bytes::<4>()).into(),
            Family::V6 => self.long_address(),
        }
    }

    /// Takes an address that has the length of IPv6 in any table.
    pub(super) fn long_address(&mut self) -> IpAddr {
        Ipv6Addr::from(self.bytes::<16>()).to_canonical()
    }

    fn gid(&mut self) -> Ipv6Addr {
        self.bytes::<16>().into()
    }

    /// Takes text up to the first zero.
    pub(super) fn text<const N: usize>(&mut self) -> String {
        let bytes = self.bytes::<N>();
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// Skips to a multiple of `n` bytes, where the compiler has left a gap.
    pub(super) fn align(&mut self, n: usize) {
        self.offset = self.offset.next_multiple_of(n);
    }
}

/// A counter of the whole machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counter {
    /// The kernel's name of the counter.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl Decode for Counter {
    fn decode(fields: &mut Fields<'_>) -> Self {
        Counter {
            name: fields.text::<32>(),
            value: fields.u64(),
        }
    }
}

/// The state of a connection, as the bits of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFlags(pub(super) u8);

impl ConnectionFlags {
    /// Bit of a connection that has released its queue pair, because there was nothing to send.
    /// Only `rds_rust` sets it.
    const RESTING: u8 = 0x80;

    /// Bit, letter in a table, word in JSON. Only Oracle's kernels set the last one.
    const ALL: [(u8, char, &'static str); 4] = [
        (1, 's', "sending"),
        (2, 'c', "connecting"),
        (4, 'C', "connected"),
        (8, 'E', "error"),
    ];

    /// Creates a state from the bits that the kernel has set (`RDS_INFO_CONNECTION_FLAG_*`).
    pub const fn from_bits(bits: u8) -> Self {
        ConnectionFlags(bits)
    }

    /// Returns the bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns `true` if the connection is established.
    pub fn is_connected(self) -> bool {
        self.0 & 4 != 0
    }

    /// Returns `true` if it is being established.
    pub fn is_connecting(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns `true` if the connection has released its queue pair until there is something to
    /// send. It is also established then, for programs.
    pub fn is_resting(self) -> bool {
        self.0 & Self::RESTING != 0
    }

    /// Returns a letter for each bit that is set.
    pub fn letters(self) -> String {
        let letter = |(bit, letter, _)| if self.0 & bit != 0 { letter } else { '-' };
        Self::ALL.into_iter().map(letter).collect()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ConnectionFlags {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let set = Self::ALL.iter().filter(|(bit, ..)| self.0 & bit != 0);
        let resting = self.is_resting().then_some(&"resting");
        serializer.collect_seq(set.map(|(.., word)| word).chain(resting))
    }
}

/// A connection to a peer, for one type of service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Connection {
    /// The address of this machine.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
    /// `infiniband`, `tcp` or `loop`.
    pub transport: String,
    /// The type of service. `None`: the kernel does not report it. Linux does not in the table of
    /// IPv6.
    pub tos: Option<u8>,
    /// The sequence number of the next message to send.
    pub next_tx: u64,
    /// The expected sequence number of the next received message.
    pub next_rx: u64,
    /// Its state.
    pub flags: ConnectionFlags,
}

impl Decode for Connection {
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Message {
    /// The address of this machine.
    pub local: IpAddr,
    /// The port of this machine.
    pub local_port: u16,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The port of the peer.
    pub peer_port: u16,
    /// The type of service.
    pub tos: u8,
    /// Its sequence number.
    pub seq: u64,
    /// Bytes of the payload.
    pub bytes: u32,
    /// 1: the peer shall acknowledge it. 2: at once.
    pub flags: u8,
}

impl Decode for Message {
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Socket {
    /// Its own address.
    pub bound: IpAddr,
    /// Its own port.
    pub bound_port: u16,
    /// The address that it is connected to; unspecified if it is not connected.
    pub connected: IpAddr,
    /// The port that it is connected to.
    pub connected_port: u16,
    /// The limit of bytes that are sent and not acknowledged.
    pub sndbuf: u32,
    /// The limit of bytes that wait to be read.
    pub rcvbuf: u32,
    /// The inode of the link in `/proc/PID/fd`.
    pub inode: u64,
}

impl Decode for Socket {
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TcpConnection {
    /// The address of this machine.
    pub local: IpAddr,
    /// The port of this machine.
    pub local_port: u16,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The port of the peer.
    pub peer_port: u16,
    /// Bytes of a header that are still to come.
    pub header_remaining: u64,
    /// Bytes of data that are still to come.
    pub data_remaining: u64,
    /// The next TCP sequence number to send.
    pub sent_next: u32,
    /// The TCP sequence number up to which an acknowledgement is expected.
    pub expected_una: u32,
    /// The TCP sequence number up to which one was received.
    pub seen_una: u32,
    /// The type of service. `None`: the kernel does not report it.
    pub tos: Option<u8>,
}

impl Decode for TcpConnection {
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

/// A queue pair, with the limits of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct IbConnection {
    /// The address of this machine.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The GID of the local port; zeros while the connection is down.
    pub local_gid: Ipv6Addr,
    /// The GID of the peer's port; zeros while the connection is down.
    pub peer_gid: Ipv6Addr,
    /// The type of service.
    pub tos: u8,
    /// The service level.
    pub sl: u8,
    /// Work requests that the send queue has room for.
    pub send_wr: u32,
    /// Work requests that the receive queue has room for.
    pub recv_wr: u32,
    /// Largest number of scatter/gather entries of a send work request.
    pub send_sge: u32,
    /// Largest number of memory regions.
    pub rdma_mr_max: u32,
    /// Largest number of pages of a memory region.
    pub rdma_mr_size: u32,
    /// KiB in the caches of its buffers.
    pub cache_allocs: u32,
    /// Further fields. `None`: the table does not have them.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub details: Option<Details>,
}

impl Decode for IbConnection {
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
            details: None,
        };
        // This is the only record that is not packed.
        fields.align(4);
        IbConnection {
            cache_allocs: fields.u32(),
            details: Details::decode(fields),
            ..connection
        }
    }
}
