// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use rds_socket::Transport;

use crate::sizes::Sizes;

const ABOUT_STREAMS: &str = "\
A stream consists of the messages of one sending socket to one receiving socket. The size and content of
each message derive from the seed, the addresses and ports of both ends, and the number of the
message, so the receiver knows every byte and the order. It names the first defect: loss,
duplication, reordering, truncation, corruption or foreign data.

Give both ends the same --seed, --count and --sizes; they compare them before the first message.
Either end may be started first.";

const EXAMPLES: &str = "\
Examples:
  Two nodes, 10000 messages of all sizes from 10.0.0.1 to 10.0.0.2:
    10.0.0.2$ rds-verify recv --bind 10.0.0.2:4000 --count 10000
    10.0.0.1$ rds-verify send --bind 10.0.0.1:4000 --to 10.0.0.2:4000 --count 10000

  Eight senders on one node; the receiver needs the number of streams:
    10.0.0.2$ rds-verify recv --bind 10.0.0.2:4000 --senders 8
    10.0.0.1$ rds-verify send --bind 10.0.0.1:4000 --sockets 8 --to 10.0.0.2:4000

  Full duplex, four sockets on each node, messages around the fragment boundaries:
    10.0.0.1$ rds-verify both --bind 10.0.0.1:4000 --to 10.0.0.2:4000 --sockets 4 --sizes boundary
    10.0.0.2$ rds-verify both --bind 10.0.0.2:4000 --to 10.0.0.1:4000 --sockets 4 --sizes boundary

  Congestion: a receiver with a small receive buffer
    10.0.0.2$ rds-verify recv --bind 10.0.0.2:4000 --rcvbuf 8192 --sizes 1..65536

Prints one line of JSON: counts, bytes, seconds and the hash of the messages, which is the same on
both ends (FxHash over 64-bit words of each stream in order; the sum of all streams). The exit
status is 0 if every message was delivered correctly, 1 if not, 2 if the command line is invalid.

A sender ends when the receiver has confirmed all messages. A receiver ends when the sender's kernel
has answered a ping, which shows that the confirmation has arrived. This needs the default setting
net.rds.ping_enable=1. Over 127.0.0.1 the RDS of Linux (C) has no back-pressure: unread messages take
memory without limit.";

/// Sends RDS messages of known content, and verifies every byte and the order where they arrive
#[derive(Parser, Debug)]
#[command(version, propagate_version = true, after_help = EXAMPLES, after_long_help = EXAMPLES,
          long_about = ABOUT_STREAMS)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) role: Role,
}

/// Role of this end.
#[derive(Subcommand, Debug)]
pub(crate) enum Role {
    /// Receive and verify
    #[command(after_help = EXAMPLES)]
    Recv {
        #[command(flatten)]
        common: Common,
        /// Number of streams: sending sockets, times the receiving sockets of each
        #[arg(long, value_name = "N", default_value_t = 1,
              value_parser = clap::value_parser!(u32).range(1..))]
        senders: u32,
    },
    /// Send, until the receiver has confirmed all
    #[command(after_help = EXAMPLES)]
    Send {
        #[command(flatten)]
        common: Common,
        /// Receiving socket; may be repeated, for a stream to each
        #[arg(long, value_name = "ADDR:PORT", required = true)]
        to: Vec<SocketAddr>,
    },
    /// Send and receive at once, with another `both` at the other end
    #[command(after_help = EXAMPLES)]
    Both {
        #[command(flatten)]
        common: Common,
        /// First socket of the other end; the n-th socket here communicates with the n-th there
        #[arg(long, value_name = "ADDR:PORT")]
        to: SocketAddr,
    },
}

/// Options of all roles.
#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Common {
    /// Local address and first port: [ADDR]:PORT for IPv6
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: SocketAddr,

    /// Local sockets, on consecutive ports
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) sockets: u16,

    /// Messages of each stream
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,

    /// Sizes of the messages in bytes: a number, a range like 1..4096 (both included), `mixed` or
    /// `boundary`. In `mixed` most have up to 512, a fifth are near the fragment boundaries up to
    /// 64 KiB, a few have up to 1 MiB. In `boundary` they are, in turn, all within 2 bytes of 0
    /// to 3 fragments, 1 MiB less 1 and 1 MiB
    #[arg(long, value_name = "SPEC", default_value = "mixed")]
    pub(crate) sizes: Sizes,

    /// Seed of the sizes and contents
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Fail after this many seconds without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) timeout: u32,

    /// Limit of unacknowledged bytes of each socket [default: twice the largest
    /// message, 256 KiB at least]
    #[arg(long, value_name = "BYTES")]
    pub(crate) sndbuf: Option<usize>,

    /// Limit of unread bytes, beyond which a socket is congested [default: the kernel's]
    #[arg(long, value_name = "BYTES")]
    pub(crate) rcvbuf: Option<usize>,

    /// Type of service
    #[arg(long)]
    pub(crate) tos: Option<u8>,

    /// Use only this transport: `rdma` or `tcp`
    #[arg(long, hide_possible_values = true)]
    pub(crate) transport: Option<TransportArg>,
}

impl Common {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

/// The transports that a socket can be pinned to.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum TransportArg {
    Rdma,
    Tcp,
}

impl From<TransportArg> for Transport {
    fn from(transport: TransportArg) -> Self {
        match transport {
            TransportArg::Rdma => Transport::Rdma,
            TransportArg::Tcp => Transport::Tcp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Role, clap::Error> {
        Args::try_parse_from(line.split_whitespace()).map(|args| args.role)
    }

    #[test]
    fn definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn send() {
        let line =
            "rds-verify send --bind 10.0.0.1:40 --to 10.0.0.2:50 --to [fd00::1]:60 --count 5 \
                    --sizes 1..9 --seed 7 --sockets 3 --timeout 4 --tos 8 --transport rdma";
        let Role::Send { common, to } = parse(line).unwrap() else {
            panic!("another role")
        };
        assert_eq!(common.bind, "10.0.0.1:40".parse().unwrap());
        assert_eq!(
            to,
            [
                "10.0.0.2:50".parse().unwrap(),
                "[fd00::1]:60".parse().unwrap()
            ]
        );
        assert_eq!((common.count, common.seed, common.sockets), (5, 7, 3));
        assert_eq!(common.sizes, Sizes::Range(1, 9));
        assert_eq!(common.timeout(), Duration::from_secs(4));
        assert_eq!(common.tos, Some(8));
        assert_eq!(common.transport.map(Transport::from), Some(Transport::Rdma));
    }

    #[test]
    fn defaults_of_recv() {
        let Role::Recv { common, senders } = parse("rds-verify recv --bind [::1]:4").unwrap()
        else {
            panic!("another role");
        };
        assert_eq!(
            (senders, common.count, common.seed, common.sockets),
            (1, 1000, 1, 1)
        );
        assert_eq!(common.sizes, Sizes::Mixed);
        assert_eq!(common.timeout(), Duration::from_secs(60));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "rds-verify",
            "rds-verify recv",
            "rds-verify recv --bind 10.0.0.1",
            "rds-verify send --bind 10.0.0.1:1",
            "rds-verify recv --bind 10.0.0.1:1 --senders 0",
            "rds-verify recv --bind 10.0.0.1:1 --count 0",
            "rds-verify recv --bind 10.0.0.1:1 --sizes 9..1",
            "rds-verify both --bind 10.0.0.1:1 --to 10.0.0.2:2 --to 10.0.0.2:3",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
