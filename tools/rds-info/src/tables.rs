// SPDX-License-Identifier: GPL-2.0
//! The tables: their numbers, names, and conversion to text and JSON.

use anyhow::{Context, Result};
use rds_socket::info::{self, Table};
use rds_socket::RdsSocket;
use serde::Serialize;
use serde_json::Value;

use crate::record::{
    decode, Connection, Counter, Family, IbConnection, Message, Paths, Record, Socket,
    TcpConnection,
};
use crate::show::{self, Layout, Row};

/// A table, in the order in which Oracle's tool shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ib,
    Tcp,
    Counters,
    Connections,
    Sockets,
    Paths,
    Recv,
    Send,
    Retrans,
}

impl Kind {
    pub(crate) const ALL: [Kind; 9] = [
        Kind::Ib,
        Kind::Tcp,
        Kind::Counters,
        Kind::Sockets,
        Kind::Connections,
        Kind::Paths,
        Kind::Recv,
        Kind::Send,
        Kind::Retrans,
    ];

    /// Returns the name in JSON.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Kind::Ib => "ib",
            Kind::Tcp => "tcp",
            Kind::Counters => "counters",
            Kind::Sockets => "sockets",
            Kind::Connections => "connections",
            Kind::Paths => "paths",
            Kind::Recv => "recv",
            Kind::Send => "send",
            Kind::Retrans => "retrans",
        }
    }

    /// Returns a description in words.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Kind::Ib => "IB transport connections",
            Kind::Tcp => "TCP transport sockets",
            Kind::Counters => "statistic counters",
            Kind::Sockets => "sockets",
            Kind::Connections => "connections",
            Kind::Paths => "paths",
            Kind::Recv => "recv queue messages",
            Kind::Send => "send queue messages",
            Kind::Retrans => "retransmit queue messages",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::Ib => "RDS IB Connections",
            Kind::Tcp => "TCP Connections",
            Kind::Counters => "Counters",
            Kind::Sockets => "RDS Sockets",
            Kind::Connections => "RDS Connections",
            Kind::Paths => "RDS Paths",
            Kind::Recv => "Receive Message Queue",
            Kind::Send => "Send Message Queue",
            Kind::Retrans => "Retransmit Message Queue",
        }
    }

    /// Returns the socket option (`RDS_INFO_*`, `RDS6_INFO_*`) of the table with more fields, which
    /// most kernels do not have.
    fn long_number(self, family: Family) -> Option<i32> {
        (self == Kind::Ib).then(|| info::QUEUE_PAIRS.number(family))
    }

    /// Returns the socket option (`RDS_INFO_*`, `RDS6_INFO_*`).
    fn number(self, family: Family) -> i32 {
        match self {
            Kind::Counters => info::COUNTERS.number(family),
            Kind::Connections => info::CONNECTIONS.number(family),
            Kind::Send => info::SEND_MESSAGES.number(family),
            Kind::Retrans => info::RETRANS_MESSAGES.number(family),
            Kind::Recv => info::RECV_MESSAGES.number(family),
            Kind::Sockets => info::SOCKETS.number(family),
            Kind::Tcp => info::TCP_CONNECTIONS.number(family),
            Kind::Ib => info::IB_CONNECTIONS.number(family),
            Kind::Paths => info::PATHS.number(family),
        }
    }

    /// Reads the table of this family, or that of IPv4 if the kernel has no other; `None` if it has
    /// neither.
    pub(crate) fn read(
        self,
        socket: &RdsSocket,
        family: Family,
    ) -> Result<Option<(Table, Family)>> {
        for family in [family, Family::V4] {
            let numbers = self.long_number(family).into_iter();
            for number in numbers.chain([self.number(family)]) {
                if let Some(table) = socket.table(number)? {
                    return Ok(Some((table, family)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the table as text.
    pub(crate) fn text(self, table: &Table, layout: Layout) -> Result<String> {
        match self {
            Kind::Ib => self.text_of::<IbConnection>(table, layout),
            Kind::Tcp => self.text_of::<TcpConnection>(table, layout),
            Kind::Counters => self.text_of::<Counter>(table, layout),
            Kind::Sockets => self.text_of::<Socket>(table, layout),
            Kind::Connections => self.text_of::<Connection>(table, layout),
            Kind::Paths => self.text_of::<Paths>(table, layout),
            Kind::Recv | Kind::Send | Kind::Retrans => self.text_of::<Message>(table, layout),
        }
    }

    /// Returns the table as a list.
    pub(crate) fn json(self, table: &Table, family: Family) -> Result<Value> {
        match self {
            Kind::Ib => self.json_of::<IbConnection>(table, family),
            Kind::Tcp => self.json_of::<TcpConnection>(table, family),
            Kind::Counters => self.json_of::<Counter>(table, family),
            Kind::Sockets => self.json_of::<Socket>(table, family),
            Kind::Connections => self.json_of::<Connection>(table, family),
            Kind::Paths => self.json_of::<Paths>(table, family),
            Kind::Recv | Kind::Send | Kind::Retrans => self.json_of::<Message>(table, family),
        }
    }

    fn text_of<R: Record + Row>(self, table: &Table, layout: Layout) -> Result<String> {
        let records: Vec<R> = self.records(table, layout.family)?;
        show::table(self.title(), &records, layout).context("cannot lay out a table")
    }

    fn json_of<R: Record + Serialize>(self, table: &Table, family: Family) -> Result<Value> {
        let records: Vec<R> = self.records(table, family)?;
        serde_json::to_value(records).context("cannot convert a table to JSON")
    }

    /// Decodes the table.
    pub(crate) fn records<R: Record>(self, table: &Table, family: Family) -> Result<Vec<R>> {
        decode(table, family).with_context(|| {
            let (what, len, each) = (self.description(), table.data.len(), table.each);
            format!("the kernel's table of {what} has {len} bytes, with records of {each} bytes")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_number_of_its_own() {
        let mut numbers: Vec<i32> = Kind::ALL
            .into_iter()
            .flat_map(|kind| [Family::V4, Family::V6].map(|family| (kind, family)))
            .flat_map(|(kind, family)| {
                let more = kind.long_number(family).into_iter();
                more.chain([kind.number(family)])
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        // The counters have no family, and there are two tables of queue pairs.
        assert_eq!(numbers.len(), 2 * (Kind::ALL.len() + 1) - 1);
        assert!(numbers.iter().all(|x| (10000..=10021).contains(x)));
    }

    #[test]
    fn a_table_of_odd_size_is_an_error() {
        let table = Table {
            data: vec![0; 41],
            each: 40,
        };
        let error = Kind::Counters.json(&table, Family::V4).unwrap_err();
        assert!(error.to_string().contains("statistic counters"), "{error}");
        assert!(error.to_string().contains("41"), "{error}");
    }

    #[test]
    fn an_empty_table_is_a_title_or_a_list() {
        let layout = Layout {
            family: Family::V6,
            verbose: true,
            ..Layout::default()
        };
        for kind in Kind::ALL {
            let text = kind.text(&Table::default(), layout).unwrap();
            // A table without paths has no line with their columns.
            let lines = if kind == Kind::Paths { 2 } else { 3 };
            assert_eq!(text.lines().count(), lines, "{text}");
            let json = kind.json(&Table::default(), Family::V4).unwrap();
            assert_eq!(json, serde_json::json!([]));
        }
    }
}
