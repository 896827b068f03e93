// SPDX-License-Identifier: GPL-2.0
//! All tables that metrics are made from, read one after the other, over IPv4 and IPv6.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::Result;
use rds_socket::RdsSocket;

use crate::record::{Connection, ConnectionFlags, Counter, Family, Message, Record, Socket};
use crate::tables::Kind;

/// The tables at one time. A table that the kernel does not have is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) counters: Vec<Counter>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) sockets: Vec<Socket>,
    /// Messages that were not read.
    pub(crate) unread: Vec<Message>,
    /// Messages that wait to be sent.
    pub(crate) unsent: Vec<Message>,
    /// Messages that were sent, and were not acknowledged.
    pub(crate) unacknowledged: Vec<Message>,
}

/// A connection, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) tos: u8,
}

/// A number of messages, and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Amount {
    fn add(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes += u64::from(message.bytes);
    }

    /// Adds up messages.
    pub(crate) fn of(messages: &[Message]) -> Self {
        let mut sum = Amount::default();
        messages.iter().for_each(|message| sum.add(message));
        sum
    }
}

/// The messages of a connection since it was created, or since the peer restarted.
///
/// The kernel does not count them. Their number follows from the sequence numbers, of which each
/// message takes one in its direction when it is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// The states of a connection, in the order of the output.
pub(crate) const STATES: [&str; 4] = ["connected", "resting", "connecting", "down"];

/// Returns the state of a connection.
pub(crate) fn state(flags: ConnectionFlags) -> &'static str {
    if flags.is_resting() {
        "resting"
    } else if flags.is_connected() {
        "connected"
    } else if flags.is_connecting() {
        "connecting"
    } else {
        "down"
    }
}

impl Snapshot {
    /// Reads the tables.
    pub(crate) fn read(socket: &RdsSocket) -> Result<Self> {
        Ok(Snapshot {
            counters: counters(socket)?,
            connections: connections(socket)?,
            sockets: read(Kind::Sockets, socket, Family::V6)?,
            unread: read(Kind::Recv, socket, Family::V6)?,
            unsent: read(Kind::Send, socket, Family::V6)?,
            unacknowledged: read(Kind::Retrans, socket, Family::V6)?,
        })
    }

    /// Returns the number of connections by transport and state.
    pub(crate) fn by_state(&self) -> BTreeMap<(&str, &'static str), u64> {
        let mut found = BTreeMap::new();
        for connection in &self.connections {
            let transport = connection.transport.as_str();
            // A state without a connection has a number, too.
            for each in STATES {
                found.entry((transport, each)).or_insert(0);
            }
            *found
                .entry((transport, state(connection.flags)))
                .or_insert(0) += 1;
        }
        found
    }
}

/// Reads the connections of both families. Only the table of IPv4 has types of service, and that of
/// IPv6 has all connections.
fn connections(socket: &RdsSocket) -> Result<Vec<Connection>> {
    let mut all: Vec<Connection> = read(Kind::Connections, socket, Family::V4)?;
    let both: Vec<Connection> = read(Kind::Connections, socket, Family::V6)?;
    all.extend(both.into_iter().filter(|x| x.local.is_ipv6()));
    Ok(all)
}

fn read<R: Record>(kind: Kind, socket: &RdsSocket, family: Family) -> Result<Vec<R>> {
    let found = kind.read(socket, family)?;
    found.map_or(Ok(Vec::new()), |(table, family)| {
        kind.records(&table, family)
    })
}

/// Reads the counters alone.
pub(crate) fn counters(socket: &RdsSocket) -> Result<Vec<Counter>> {
    read(Kind::Counters, socket, Family::V6)
}

/// Adds up messages by connection. Connections without a message count, too.
pub(crate) fn by_flow(connections: &[Connection], messages: &[Message]) -> BTreeMap<Flow, Amount> {
    let idle = connections.iter().map(|x| (flow_of(x), Amount::default()));
    let mut found: BTreeMap<Flow, Amount> = idle.collect();
    for message in messages {
        let flow = Flow {
            local: message.local,
            peer: message.peer,
            tos: message.tos,
        };
        found.entry(flow).or_default().add(message);
    }
    found
}

/// Returns the messages of each connection, or their sum if several have the same name.
pub(crate) fn messages(connections: &[Connection]) -> BTreeMap<Flow, Messages> {
    let mut found: BTreeMap<Flow, Messages> = BTreeMap::new();
    for connection in connections {
        let sum = found.entry(flow_of(connection)).or_default();
        // The first message has the number 1. The number is 0 before the first received one.
        let past = |next: u64| next.saturating_sub(1);
        sum.sent = sum.sent.saturating_add(past(connection.next_tx));
        sum.received = sum.received.saturating_add(past(connection.next_rx));
    }
    found
}

/// Returns the name of a connection. The kernel does not always report the type of service.
pub(crate) fn flow_of(connection: &Connection) -> Flow {
    Flow {
        local: connection.local,
        peer: connection.peer,
        tos: connection.tos.unwrap_or(0),
    }
}
