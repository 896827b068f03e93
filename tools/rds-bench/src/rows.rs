// SPDX-License-Identifier: GPL-2.0
//! The rows of the table, and the effort for the measurement of each.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use rds_socket::{Direction, RdsSocket};

use crate::args::Args;
use crate::measure::{Effort, Report, Samples, Unit};
use crate::peers::{self, Peers};
use crate::tcp::{self, Namespaces, StreamPair};
use crate::traffic::{self, RdsPair, UnixPair};
use crate::{bind, floor, operations};

const KIB_64: usize = 64 << 10;
const MIB: usize = 1 << 20;

macro_rules! rows {
    ($($row:ident => $name:literal,)*) => {
        /// A row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Row {
            $($row,)*
        }

        impl Row {
            /// All rows in the order of measurement.
            pub(crate) const ALL: &[Row] = &[$(Row::$row,)*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Row::$row => $name,)*
                }
            }
        }
    };
}

// Rows that need an address without a connection come first, and rows that use much memory come
// last.
rows! {
    EmptyCall => "empty-call",
    UdpBind => "udp-bind",
    UnixRoundTrip => "unix-64-rtt",
    UnixOneWay => "unix-8k",
    BindFresh => "bind-fresh",
    LoopRoundTrip => "loop-64-rtt",
    LoopOneWay => "loop-8k",
    BindUsed => "bind-used",
    RoundTrip64 => "rxe-64-rtt",
    RoundTrip4k => "rxe-4k-rtt",
    RoundTrip64k => "rxe-64k-rtt",
    OneWay64 => "rxe-64",
    OneWay8k => "rxe-8k",
    StreamRoundTrip64 => "stream-64-rtt",
    StreamRoundTrip4k => "stream-4k-rtt",
    StreamRoundTrip64k => "stream-64k-rtt",
    StreamOneWay64 => "stream-64",
    StreamOneWay8k => "stream-8k",
    StreamOneWay1m => "stream-1m",
    TcpRoundTrip64 => "tcp-64-rtt",
    TcpRoundTrip4k => "tcp-4k-rtt",
    TcpRoundTrip64k => "tcp-64k-rtt",
    TcpOneWay64 => "tcp-64",
    TcpOneWay8k => "tcp-8k",
    TcpOneWay1m => "tcp-1m",
    TcpSetup => "tcp-setup",
    TcpMemory => "tcp-memory",
    Region64k => "region-64k",
    Write64k => "write-64k",
    Read64k => "read-64k",
    Write1m => "write-1m",
    Read1m => "read-1m",
    FetchAdd => "fetch-add",
    Setup => "setup",
    SetupUnknown => "setup-unknown",
    Memory => "memory",
    Close => "close",
    BindMany => "bind-many",
    CloseMany => "close-many",
    CloseQueued => "close-queued",
    CloseQueuedMany => "close-queued-many",
    BindCrowded => "bind-crowded",
    BindLast => "bind-last",
}

impl Row {
    pub(crate) fn parse(name: &str) -> Result<Row, String> {
        let found = Row::ALL.iter().copied().find(|row| row.name() == name);
        found.ok_or_else(|| {
            let names: Vec<_> = Row::ALL.iter().map(|row| row.name()).collect();
            format!("the rows are {}", names.join(", "))
        })
    }

    fn unit(self) -> Unit {
        match self {
            Row::Setup | Row::SetupUnknown | Row::TcpSetup => Unit::Nanoseconds,
            Row::Memory | Row::TcpMemory => Unit::Kibibytes,
            _ => Unit::Instructions,
        }
    }

    fn effort(self) -> Effort {
        let (warm_up, samples) = match self {
            Row::Write1m | Row::Read1m => (3, 20),
            Row::RoundTrip64k | Row::Write64k | Row::Read64k => (20, 100),
            Row::StreamRoundTrip64k | Row::TcpRoundTrip64k => (20, 100),
            Row::StreamOneWay1m | Row::TcpOneWay1m => (10, 50),
            Row::FetchAdd => (20, 200),
            Row::BindLast => (20, 100),
            Row::RoundTrip4k | Row::StreamRoundTrip4k | Row::TcpRoundTrip4k => (100, 500),
            Row::StreamOneWay64 | Row::StreamOneWay8k => (10, 100),
            Row::TcpOneWay64 | Row::TcpOneWay8k => (10, 100),
            Row::OneWay64 | Row::OneWay8k | Row::LoopOneWay | Row::UnixOneWay => (10, 100),
            _ => (200, 1000),
        };
        Effort { warm_up, samples }
    }
}

/// State that rows share.
pub(crate) struct Bench<'a> {
    args: &'a Args,
    peers: Option<Peers>,
    tcp_peers: Option<Peers>,
    /// Bound sockets, for the rows that need many.
    bound: Vec<RdsSocket>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(args: &'a Args) -> Self {
        Bench {
            args,
            peers: None,
            tcp_peers: None,
            bound: Vec::new(),
        }
    }

    pub(crate) fn measure(&mut self, row: Row) -> Result<Report> {
        let samples = self
            .samples(row)
            .with_context(|| format!("cannot measure {}", row.name()))?;
        let report = samples.report(row.name(), row.unit());
        report.with_context(|| format!("{} has no samples", row.name()))
    }

    fn samples(&mut self, row: Row) -> Result<Samples> {
        let mut effort = row.effort();
        if self.args.quick {
            effort.samples = 5;
            effort.warm_up = 2;
        }
        if let Some(samples) = self.args.samples {
            effort.samples = samples;
        }
        let local = self.local();
        let nobody = bind::nobody(self.args.local);
        match row {
            Row::EmptyCall => floor::empty_call(effort),
            Row::UdpBind => floor::udp_bind(effort),
            Row::UnixRoundTrip => traffic::round_trips(&UnixPair::new()?, 64, effort),
            Row::UnixOneWay => traffic::one_way(&UnixPair::new()?, 8192, 1, effort),
            Row::BindFresh => bind::binds(local, effort),
            Row::LoopRoundTrip => traffic::round_trips(&loopback()?, 64, effort),
            Row::LoopOneWay => traffic::one_way(&loopback()?, 8192, 1, effort),
            Row::BindUsed => {
                self.pair()?.connect()?;
                bind::binds(local, effort)
            }
            Row::RoundTrip64 => traffic::round_trips(&self.pair()?, 64, effort),
            Row::RoundTrip4k => traffic::round_trips(&self.pair()?, 4096, effort),
            Row::RoundTrip64k => traffic::round_trips(&self.pair()?, KIB_64, effort),
            Row::OneWay64 => traffic::one_way(&self.pair()?, 64, 64, effort),
            Row::OneWay8k => traffic::one_way(&self.pair()?, 8192, 16, effort),
            Row::StreamRoundTrip64 => traffic::round_trips(&self.stream()?, 64, effort),
            Row::StreamRoundTrip4k => traffic::round_trips(&self.stream()?, 4096, effort),
            Row::StreamRoundTrip64k => traffic::round_trips(&self.stream()?, KIB_64, effort),
            Row::StreamOneWay64 => traffic::one_way(&self.stream()?, 64, 64, effort),
            Row::StreamOneWay8k => traffic::one_way(&self.stream()?, 8192, 16, effort),
            Row::StreamOneWay1m => traffic::one_way(&self.stream()?, MIB, 1, effort),
            Row::TcpRoundTrip64 => traffic::round_trips(&self.tcp()?, 64, effort),
            Row::TcpRoundTrip4k => traffic::round_trips(&self.tcp()?, 4096, effort),
            Row::TcpRoundTrip64k => traffic::round_trips(&self.tcp()?, KIB_64, effort),
            Row::TcpOneWay64 => traffic::one_way(&self.tcp()?, 64, 64, effort),
            Row::TcpOneWay8k => traffic::one_way(&self.tcp()?, 8192, 16, effort),
            Row::TcpOneWay1m => traffic::one_way(&self.tcp()?, MIB, 1, effort),
            Row::TcpSetup => Ok(self.tcp_peers()?.setup()),
            Row::TcpMemory => Ok(self.tcp_peers()?.memory()),
            Row::Region64k => operations::regions(&self.pair()?, KIB_64, effort),
            Row::Write64k => self.transfers(Direction::Write, KIB_64, effort),
            Row::Read64k => self.transfers(Direction::Read, KIB_64, effort),
            Row::Write1m => self.transfers(Direction::Write, MIB, effort),
            Row::Read1m => self.transfers(Direction::Read, MIB, effort),
            Row::FetchAdd => operations::additions(&self.pair()?, effort),
            Row::Setup => Ok(self.peers()?.setup()),
            Row::SetupUnknown => Ok(self.connect_peers(self.args.peers)?.setup()),
            Row::Memory => Ok(self.peers()?.memory()),
            Row::Close => bind::closes(local, effort),
            Row::BindMany => {
                self.bind_many()?;
                bind::binds(local, effort)
            }
            Row::CloseMany => {
                self.bind_many()?;
                bind::closes(local, effort)
            }
            Row::BindCrowded => self.binds_of_few(50_002..=u16::MAX, effort),
            Row::BindLast => self.binds_of_few(40_000..=40_000, effort),
            Row::CloseQueued => bind::closes_behind(local, nobody, 1_000, effort),
            Row::CloseQueuedMany => {
                let count = if self.args.quick { 5_000 } else { 100_000 };
                bind::closes_behind(local, nobody, count, effort)
            }
        }
    }

    fn bind_many(&mut self) -> Result<()> {
        if self.bound.is_empty() {
            self.bound = bind::many(if self.args.quick { 5_000 } else { 200_000 })?;
        }
        Ok(())
    }

    /// Runs [`bind::binds_of_few`] after closing the many bound sockets.
    fn binds_of_few(&mut self, free: RangeInclusive<u16>, effort: Effort) -> Result<Samples> {
        self.bound.clear();
        bind::binds_of_few(free, effort)
    }

    fn local(&self) -> SocketAddr {
        (self.args.local, 0).into()
    }

    fn transfers(&self, direction: Direction, size: usize, effort: Effort) -> Result<Samples> {
        operations::transfers(&self.pair()?, direction, size, effort)
    }

    fn pair(&self) -> Result<RdsPair> {
        RdsPair::new(self.local(), (self.args.remote, 0).into())
    }

    fn tcp_ends(&self) -> [Ipv4Addr; 2] {
        [self.args.tcp_local, self.args.tcp_remote]
    }

    fn stream(&self) -> Result<StreamPair> {
        StreamPair::new(&Namespaces::open(&self.args.netns)?, self.tcp_ends())
    }

    fn tcp(&self) -> Result<RdsPair> {
        tcp::rds_pair(&Namespaces::open(&self.args.netns)?, self.tcp_ends())
    }

    /// Returns connections over TCP to new peers, which the first call makes.
    fn tcp_peers(&mut self) -> Result<&Peers> {
        if self.tcp_peers.is_none() {
            self.tcp()?.connect()?;
            let spaces = Namespaces::open(&self.args.netns)?;
            let pairs = (1..=self.peer_count())
                .map(|i| tcp::rds_pair(&spaces, self.tcp_ends().map(|addr| peers::beside(addr, i))))
                .collect::<Result<Vec<_>>>()?;
            self.tcp_peers = Some(peers::connect(&pairs)?);
        }
        self.tcp_peers.as_ref().context("no peers over TCP")
    }

    fn peer_count(&self) -> u8 {
        if self.args.quick {
            2
        } else {
            self.args.peers
        }
    }

    /// Returns connections to new peers, which the first call makes.
    fn peers(&mut self) -> Result<&Peers> {
        if self.peers.is_none() {
            self.peers = Some(self.connect_peers(0)?);
        }
        self.peers.as_ref().context("no peers")
    }

    /// Connects to the peers in the networks behind number `behind`.
    fn connect_peers(&self, behind: u8) -> Result<Peers> {
        // One-time costs of a device are not part of a connection.
        self.pair()?.connect()?;
        let (local, remote) = (self.args.local, self.args.remote);
        let pairs = (1..=self.peer_count())
            .map(|i| behind.wrapping_add(i))
            .map(|i| [local, remote].map(|addr| (peers::beside(addr, i), 0).into()))
            .map(|ends| RdsPair::with_tos(ends, 0))
            .collect::<Result<Vec<_>>>()?;
        peers::connect(&pairs)
    }
}

fn loopback() -> Result<RdsPair> {
    let any_port: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    RdsPair::new(any_port, any_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_parse() {
        for row in Row::ALL {
            assert_eq!(Row::parse(row.name()), Ok(*row));
        }
        assert!(Row::parse("x").unwrap_err().contains("bind-fresh"));
    }
}
