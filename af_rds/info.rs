// SPDX-License-Identifier: GPL-2.0

//! `RDS_INFO_*`: tables that `rds-info` reads.
//!
//! Each table is an array of packed records. `getsockopt(2)` returns the size of one record. A
//! buffer that is too small gets `ENOSPC` and the required length. All tables except the counters
//! cover the caller's network namespace only.
//!
//! Records are copied to the program page by page as they are found. So the memory for a table does
//! not grow with it, and a table that changes meanwhile is not an atomic snapshot.
//!
//! Source: `include/uapi/linux/rds.h`; for the table of paths that of Oracle's kernel (UEK).

use crate::{
    conn::{
        Connection,
        QueueKind, //
    },
    kapi::{
        errno::Errno,
        net::{
            Sock,
            SockOptOut, //
        },
        task, //
    },
    socket::{
        Socket,
        TransportId, //
    },
    uapi::{
        info::{
            self,
            Emitted,
            Family,
            RDS6_INFO_CONN_PATHS,
            RDS6_INFO_RDMA_CONNECTION_STATS,
            RDS_INFO_CONN_PATHS,
            RDS_INFO_RDMA_CONNECTION_STATS, //
        },
        RDS6_INFO_CONNECTIONS,
        RDS6_INFO_IB_CONNECTIONS,
        RDS6_INFO_RECV_MESSAGES,
        RDS6_INFO_RETRANS_MESSAGES,
        RDS6_INFO_SEND_MESSAGES,
        RDS6_INFO_SOCKETS,
        RDS6_INFO_TCP_SOCKETS,
        RDS_INFO_CONNECTIONS,
        RDS_INFO_COUNTERS,
        RDS_INFO_IB_CONNECTIONS,
        RDS_INFO_RECV_MESSAGES,
        RDS_INFO_RETRANS_MESSAGES,
        RDS_INFO_SEND_MESSAGES,
        RDS_INFO_SOCKETS,
        RDS_INFO_TCP_SOCKETS, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Maximum buffer length. C RDS refuses buffers within a page of `INT_MAX`.
// CAST: a page has far less bytes.
const MAX_LEN: c_int = c_int::MAX - PAGE_SIZE as c_int + 1;

/// Contents of a table.
#[derive(Clone, Copy)]
enum Topic {
    Counters,
    Connections,
    Outgoing(QueueKind),
    Unread,
    Sockets,
    Rdma,
    QueuePairs,
    Tcp,
    Paths,
}

/// Returns the table for an option number, and the address family of its records.
fn table(name: c_int) -> Option<(Topic, Family)> {
    let (topic, family) = match name {
        RDS_INFO_COUNTERS => (Topic::Counters, Family::V4),
        RDS_INFO_CONNECTIONS => (Topic::Connections, Family::V4),
        RDS_INFO_SEND_MESSAGES => (Topic::Outgoing(QueueKind::Unsent), Family::V4),
        RDS_INFO_RETRANS_MESSAGES => (Topic::Outgoing(QueueKind::Sent), Family::V4),
        RDS_INFO_RECV_MESSAGES => (Topic::Unread, Family::V4),
        RDS_INFO_SOCKETS => (Topic::Sockets, Family::V4),
        RDS_INFO_IB_CONNECTIONS => (Topic::Rdma, Family::V4),
        RDS_INFO_TCP_SOCKETS => (Topic::Tcp, Family::V4),
        RDS6_INFO_CONNECTIONS => (Topic::Connections, Family::V6),
        RDS6_INFO_SEND_MESSAGES => (Topic::Outgoing(QueueKind::Unsent), Family::V6),
        RDS6_INFO_RETRANS_MESSAGES => (Topic::Outgoing(QueueKind::Sent), Family::V6),
        RDS6_INFO_RECV_MESSAGES => (Topic::Unread, Family::V6),
        RDS6_INFO_SOCKETS => (Topic::Sockets, Family::V6),
        RDS6_INFO_IB_CONNECTIONS => (Topic::Rdma, Family::V6),
        RDS6_INFO_TCP_SOCKETS => (Topic::Tcp, Family::V6),
        RDS_INFO_RDMA_CONNECTION_STATS => (Topic::QueuePairs, Family::V4),
        RDS6_INFO_RDMA_CONNECTION_STATS => (Topic::QueuePairs, Family::V6),
        RDS_INFO_CONN_PATHS => (Topic::Paths, Family::V4),
        RDS6_INFO_CONN_PATHS => (Topic::Paths, Family::V6),
        _ => return None,
    };
    Some((topic, family))
}

/// Output state of a table.
struct InfoWriter<'a, 'b> {
    family: Family,
    out: &'a mut SockOptOut<'b>,
    /// Records that are not yet copied to the program.
    page: KVec<u8>,
    /// Bytes of all records, including those that do not fit.
    total: usize,
    /// Bytes of the program's buffer.
    room: usize,
}

/// Bytes that are collected before they are copied.
const BATCH: usize = 4096;

impl InfoWriter<'_, '_> {
    /// Returns `true` if the table shows records of this local address.
    fn shows(&self, local: Ipv6Addr) -> bool {
        self.family == Family::V6 || local.to_ipv4_mapped().is_some()
    }

    /// Adds a record, unless the table's family cannot represent it.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if the program's buffer cannot be written.
    ///
    /// # Context
    ///
    /// May sleep.
    fn add(&mut self, value: &impl Emitted) -> Result {
        let Some(record) = value.emit(self.family) else {
            return Ok(());
        };
        let bytes = record.as_slice();
        self.total = self.total.saturating_add(bytes.len());
        if self.total > self.room {
            return Ok(());
        }
        if self.page.len().saturating_add(bytes.len()) > BATCH {
            self.flush()?;
        }
        self.page.extend_from_slice(bytes, GFP_KERNEL)?;
        Ok(())
    }

    fn flush(&mut self) -> Result {
        self.out.write(&self.page)?;
        self.page.clear();
        Ok(())
    }

    /// Copies the rest of the table and sets its length.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` if the buffer is too small.
    /// - `EFAULT` if the program's buffer cannot be written.
    ///
    /// # Context
    ///
    /// May sleep.
    fn finish(mut self) -> Result {
        self.flush()?;
        self.out.set_len(self.total);
        if self.total > self.room {
            return Err(ENOSPC);
        }
        Ok(())
    }
}

/// Writes a table to the program. Returns the size of a record.
///
/// # Errors
///
/// - `EINVAL` if the length is invalid.
/// - `ENOPROTOOPT` if there is no such table.
/// - `ENOMEM`
/// - Those of [`InfoWriter::finish`].
///
/// # Context
///
/// May sleep.
pub(super) fn get(sk: &Sock<Socket>, name: c_int, mut out: SockOptOut<'_>) -> Result<c_int> {
    if !(0..=MAX_LEN).contains(&out.len()) {
        return Err(EINVAL);
    }
    let (topic, family) = table(name).ok_or(Errno::NoProtocolOption)?;
    let transports = &sk.node.transports;
    let is_there = match topic {
        Topic::Rdma | Topic::QueuePairs => transports.have_rdma(),
        Topic::Tcp => transports.get(TransportId::Tcp).is_some(),
        _ => true,
    };
    if !is_there {
        return Err(Errno::NoProtocolOption.into());
    }
    let room = usize::try_from(out.len()).unwrap_or(0);
    let mut writer = InfoWriter {
        family,
        page: KVec::with_capacity(BATCH, GFP_KERNEL)?,
        total: 0,
        room,
        out: &mut out,
    };
    let record = match topic {
        Topic::Counters => counters(sk, &mut writer)?,
        Topic::Connections => connections(sk, &mut writer)?,
        Topic::Outgoing(queue_kind) => outgoing(sk, queue_kind, &mut writer)?,
        Topic::Unread => unread(sk, &mut writer)?,
        Topic::Sockets => sockets(sk, &mut writer)?,
        Topic::Rdma => rdma(sk, &mut writer)?,
        Topic::QueuePairs => queue_pairs(sk, &mut writer)?,
        Topic::Tcp => tcp(sk, &mut writer)?,
        Topic::Paths => paths(sk, &mut writer)?,
    };
    writer.finish()?;
    c_int::try_from(record).map_err(|_| EOVERFLOW)
}

fn counters(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    let mut result = Ok(());
    sk.node.for_each_counter(&mut |name, value| {
        if result.is_ok() {
            result = writer.add(&info::CounterRecord { name, value });
        }
    });
    result?;
    Ok(info::CounterRecord::size(writer.family))
}

/// Calls `each` for the connections of the caller's namespace, until it fails.
///
/// # Errors
///
/// - `EINTR` if the process is being killed.
/// - Any error of `each`.
///
/// # Context
///
/// May sleep.
fn for_each_connection(
    sk: &Sock<Socket>,
    mut each: impl FnMut(&Arc<Connection>) -> Result,
) -> Result {
    sk.node.try_for_each(|connection| {
        task::check_killed()?;
        if connection.key.net != sk.net {
            return Ok(());
        }
        each(connection)
    })
}

fn connections(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        // The table of paths shows the others.
        if key.path != 0 {
            return Ok(());
        }
        let now = connection.path.info();
        writer.add(&info::ConnectionRecord {
            next_tx: now.next_tx,
            next_rx: now.next_rx,
            laddr: key.laddr,
            faddr: key.faddr,
            transport: key.transport.name(),
            flags: now.flags,
            tos: key.tos,
        })
    })?;
    Ok(info::ConnectionRecord::size(writer.family))
}

fn outgoing(
    sk: &Sock<Socket>,
    queue_kind: QueueKind,
    writer: &mut InfoWriter<'_, '_>,
) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        if !writer.shows(key.laddr) {
            return Ok(());
        }
        connection.path.try_for_each_message(queue_kind, |message| {
            writer.add(&info::MessageRecord {
                sequence: message.sequence,
                len: message.len,
                laddr: key.laddr,
                faddr: key.faddr,
                lport: message.sport,
                fport: message.dport,
                tos: key.tos,
            })
        })
    })?;
    Ok(info::MessageRecord::size(writer.family))
}

/// Calls `each` for the bound sockets of the caller's namespace, until it fails.
///
/// # Context
///
/// May sleep.
fn for_each_socket(
    sk: &Sock<Socket>,
    mut each: impl FnMut(&Sock<Socket>, (Ipv6Addr, u16)) -> Result,
) -> Result {
    sk.node
        .shared
        .binds
        .try_for_each(sk.net, |other| match other.bound() {
            Some(bound) => each(other, (bound.addr, bound.port)),
            None => Ok(()),
        })
}

fn unread(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_socket(sk, |other, (addr, port)| {
        if !writer.shows(addr) {
            return Ok(());
        }
        other.try_for_each_unread(|message| {
            writer.add(&info::MessageRecord {
                sequence: message.sequence,
                len: message.len,
                laddr: addr,
                faddr: message.saddr,
                lport: port,
                fport: message.sport,
                tos: message.tos,
            })
        })
    })?;
    Ok(info::MessageRecord::size(writer.family))
}

fn sockets(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    let limit = |bytes: usize| u32::try_from(bytes / 2).unwrap_or(u32::MAX);
    for_each_socket(sk, |other, bound| {
        let peer = other.control.lock().peer;
        writer.add(&info::SocketRecord {
            sndbuf: limit(other.sndbuf()),
            rcvbuf: limit(other.rcvbuf()),
            bound,
            connected: peer.map_or((Ipv6Addr::UNSPECIFIED, 0), |peer| (peer.addr, peer.port)),
            inode: other.inode(),
        })
    })?;
    Ok(info::SocketRecord::size(writer.family))
}

fn rdma(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        if key.transport != TransportId::Ib {
            return Ok(());
        }
        writer.add(&rdma_connection(connection))
    })?;
    Ok(info::RdmaConnection::size(writer.family))
}

fn queue_pairs(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        if key.transport != TransportId::Ib || !writer.shows(key.laddr) {
            return Ok(());
        }
        writer.add(&info::QueuePairRecord {
            connection: rdma_connection(connection),
            payload: connection.path.info().payload,
            queue_pair: connection.path.queue_pair(),
        })
    })?;
    Ok(info::QueuePairRecord::size(writer.family))
}

fn rdma_connection(connection: &Connection) -> info::RdmaConnection {
    let key = &connection.key;
    info::RdmaConnection {
        laddr: key.laddr,
        faddr: key.faddr,
        tos: key.tos,
        path: connection.path.rdma_path().unwrap_or_default(),
    }
}

fn tcp(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        if key.transport != TransportId::Tcp || !writer.shows(key.laddr) {
            return Ok(());
        }
        let Some(progress) = connection.path.tcp_progress() else {
            return Ok(());
        };
        writer.add(&info::TcpConnection {
            laddr: key.laddr,
            faddr: key.faddr,
            progress,
        })
    })?;
    Ok(info::TcpConnection::size(writer.family))
}

fn paths(sk: &Sock<Socket>, writer: &mut InfoWriter<'_, '_>) -> Result<usize> {
    for_each_connection(sk, |connection| {
        let key = &connection.key;
        if !writer.shows(key.laddr) {
            return Ok(());
        }
        let now = connection.path.info();
        writer.add(&info::PathRecord {
            laddr: key.laddr,
            faddr: key.faddr,
            transport: key.transport.name(),
            tos: key.tos,
            index: key.path,
            flags: now.flags,
            times: now.times,
            next_tx: now.next_tx,
            next_rx: now.next_rx,
            payload: now.payload,
            retransmissions: now.retransmissions,
            cpu: connection.path.cpu(),
        })
    })?;
    Ok(info::PathRecord::size(writer.family))
}
