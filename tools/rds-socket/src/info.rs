// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! The kernel's tables of counters, connections, sockets and messages: the `RDS_INFO_*` options.
//!
//! A record may be longer than the one known here, as newer kernels append fields. It may be
//! shorter, as older kernels had fewer fields. A missing field reads as zero, or as `None` where
//! zero would have a meaning. With the feature `serde` records can be serialized.

mod oracle;
mod record;
mod table;

use std::io;
use std::marker::PhantomData;

pub use oracle::{Details, Path, Paths, Time, Traffic};
pub use record::{
    decode, Connection, ConnectionFlags, Counter, IbConnection, Message, Record, Socket,
    TcpConnection,
};
pub use table::Table;
pub(crate) use table::{read_table, Answer};

use crate::{Error, RdsSocket};

/// The length of addresses in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// 4 bytes
    #[default]
    V4,
    /// 16 bytes. An IPv4 address is a mapped one, and is decoded as IPv4.
    V6,
}

/// A table of the kernel, with records `R`.
#[derive(Debug)]
pub struct Kind<R> {
    v4: i32,
    v6: i32,
    record: PhantomData<fn() -> R>,
}

impl<R> Kind<R> {
    const fn new(v4: i32, v6: i32) -> Self {
        let record = PhantomData;
        Kind { v4, v6, record }
    }

    /// Returns the number of the socket option, for [`RdsSocket::table`].
    pub const fn number(&self, family: Family) -> i32 {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

impl<R: Record> Kind<R> {
    /// Reads the present records; `None` if the kernel has no such table. The socket need not be
    /// bound.
    pub fn read(&self, socket: &RdsSocket, family: Family) -> Result<Option<Vec<R>>, Error> {
        let number = self.number(family);
        let Some(table) = socket.table(number)? else {
            return Ok(None);
        };
        let odd = || io::Error::from_raw_os_error(libc::EBADMSG);
        let records = decode(&table, family);
        let records =
            records.ok_or_else(|| Error::new(format!("decode the RDS table {number}"), odd()))?;
        Ok(Some(records))
    }
}

/// The counters of the whole machine. There is one table for both families.
pub const COUNTERS: Kind<Counter> = Kind::new(10000, 10000);

/// Connections to peers, of any transport.
pub const CONNECTIONS: Kind<Connection> = Kind::new(10001, 10011);

/// Messages that wait to be sent.
pub const SEND_MESSAGES: Kind<Message> = Kind::new(10003, 10012);

/// Messages that were sent and are not acknowledged.
pub const RETRANS_MESSAGES: Kind<Message> = Kind::new(10004, 10013);

/// Messages that wait to be read.
pub const RECV_MESSAGES: Kind<Message> = Kind::new(10005, 10014);

/// Bound sockets.
pub const SOCKETS: Kind<Socket> = Kind::new(10006, 10015);

/// Connections of the TCP transport.
pub const TCP_CONNECTIONS: Kind<TcpConnection> = Kind::new(10007, 10016);

/// Queue pairs of the RDMA transport.
pub const IB_CONNECTIONS: Kind<IbConnection> = Kind::new(10008, 10017);

/// Queue pairs with the fields of [`Details`]. Only `rds_rust` has this table. On Oracle's kernels
/// [`IB_CONNECTIONS`] has those fields.
pub const QUEUE_PAIRS: Kind<IbConnection> = Kind::new(10018, 10019);

/// Paths of connections. C RDS of Linux does not have them; Oracle's kernels and `rds_rust` do.
pub const PATHS: Kind<Paths> = Kind::new(10020, 10021);

#[cfg(all(test, feature = "serde"))]
mod tests;
