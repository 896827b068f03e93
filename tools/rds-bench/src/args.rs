// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Parser;

use crate::rows::Row;

const ABOUT: &str = "\
Measures one operation at a time with the clock. On an emulated machine with one CPU whose clock
counts instructions (QEMU: -smp 1 -icount shift=0,sleep=off), a nanosecond is an instruction, and
the results are reproducible. On other machines they are times.

Prints one line of JSON for each row: its name, the unit of its numbers (instructions, KiB or
nanoseconds), the number of samples, their median (p50), mean, smallest and largest, and how many
operations ran between the marks for a profiler.";

/// Measures the cost of operations on RDS sockets, with both ends in this process
#[derive(Parser, Debug)]
#[command(version, long_about = ABOUT)]
pub(crate) struct Args {
    /// Rows to measure, comma-separated [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Row::parse)]
    pub(crate) rows: Vec<Row>,

    /// Print the names of the rows
    #[arg(long)]
    pub(crate) list: bool,

    /// Take only a few samples of each row, for tests
    #[arg(long)]
    pub(crate) quick: bool,

    /// Number of samples of each row [default: depends on the row]
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<usize>,

    /// Address of one RDMA device of this machine
    #[arg(long, value_name = "ADDRESS", default_value = "10.9.0.1")]
    pub(crate) local: Ipv4Addr,

    /// Address of another RDMA device of this machine, connected to the first
    #[arg(long, value_name = "ADDRESS", default_value = "10.9.0.2")]
    pub(crate) remote: Ipv4Addr,

    /// Network namespace of the other end of connections over TCP
    #[arg(long, value_name = "PATH", default_value = "/run/netns/peer")]
    pub(crate) netns: PathBuf,

    /// Address of one end of connections over TCP, in this namespace
    #[arg(long, value_name = "ADDRESS", default_value = "10.8.0.1")]
    pub(crate) tcp_local: Ipv4Addr,

    /// Address of the other end, in that namespace
    #[arg(long, value_name = "ADDRESS", default_value = "10.8.0.2")]
    pub(crate) tcp_remote: Ipv4Addr,

    /// Number of address pairs for new connections, which follow --local and --remote, or
    /// --tcp-local and --tcp-remote
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) peers: u8,

    /// Measure operations with this many connections instead of rows: 10 from each local address,
    /// to two peers with 5 types of service each
    #[arg(long, value_name = "N", conflicts_with = "rows",
          value_parser = clap::value_parser!(u16).range(1..=2540))]
    pub(crate) connections: Option<u16>,

    /// Number of these connections that exist already
    #[arg(long, value_name = "N", default_value_t = 0, requires = "connections")]
    pub(crate) known: u16,

    /// Request all of these connections at once, and measure nothing else
    #[arg(long, requires = "connections")]
    pub(crate) storm: bool,
}

impl Args {
    pub(crate) fn wants(&self, row: Row) -> bool {
        self.rows.is_empty() || self.rows.contains(&row)
    }
}
