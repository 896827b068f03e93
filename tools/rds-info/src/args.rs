// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::columns::Columns;
use crate::tables::Kind;

const EXAMPLES: &str = "\
Examples:
  rds-info                 all tables of this kernel
  rds-info -n              connections over IPv4, with their state
  rds-info -an             connections over IPv4 and IPv6
  rds-info -c              counters of messages sent, received and dropped
  rds-info -Iv             queue pairs, with the limits of their devices
  rds-info -Nk             the sockets of all network namespaces
  rds-info --holders       processes whose sockets prevent unloading the module
  rds-info --drops         what was dropped or refused, with the meaning of each counter
  rds-info --watch         queues, and rates of all connections and counters, every 2 s
  rds-info --prometheus    metrics for the textfile collector of Prometheus
  rds-info --report x.tar  archive for the report of a defect
  rds-info -n --json | jq '.connections[] | select(.flags | index(\"connected\"))'

Flags of a connection (Flgs): s: a message is being sent, c: connecting, C: connected, E: error
(Oracle's kernels only). NextTX is the sequence number of the next message to the peer, NextRX that
of the next message expected from the peer. With rds_rust C is also shown for an idle connection
that has released its queue pair until there is something to send; JSON adds the flag \"resting\".

The columns are those of Oracle's rds-tools, except Cong, Pid and Comm of sockets, which only
Oracle's kernels report. Inode is the number in the links of /proc/PID/fd. Columns for -o:
cache_allocs, recv_alloc_ctr, recv_free_ctr, send_alloc_ctr, send_free_ctr, send_bytes, recv_bytes,
r_read_bytes, r_write_bytes, tx_poll_ts, rx_poll_ts, tx_poll_cnt, rx_poll_cnt, scq_vector,
rcq_vector, cpu. Other names are ignored. A column that the kernel does not report is 0. rds_rust
reports the numbers of queue pairs, send_bytes (acknowledged payload), recv_bytes, the vectors, and
the CPU of the last completions; -v shows them, too. -pv shows them for each path of both
transports, with sequence numbers, and with retransmissions, messages that were sent again.

The rates of connections (--watch) are messages per second, also pings and those with operations. A
message counts once, when it is queued. Connections that are not up, and have messages, come first,
then the busiest ones. On a terminal the rest may have no room.

With --json the output is one object. It has a list for each requested table, or null if the kernel
does not have the table. With -N it has a list of namespaces, each with its tables.

A table that the kernel does not have, or whose transport is not loaded, is named on the standard
error output, which is not an error.

The exit status is 0 on success, 1 on an error, 2 if the command line is invalid.";

/// Shows the kernel's tables of RDS sockets, connections, messages and counters.
///
/// Without an option that selects a table, shows all tables.
#[derive(Parser, Debug)]
#[command(version, disable_version_flag = true, args_override_self = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Counters of this node since the module was loaded
    #[arg(short = 'c', long)]
    counters: bool,

    /// Sockets: addresses, buffer limits, inode number
    #[arg(short = 'k', long)]
    sockets: bool,

    /// Connections to peers
    #[arg(short = 'n', long)]
    connections: bool,

    /// Paths of connections: last attempt, connect and reset (not with C RDS of Linux)
    #[arg(short = 'p', long)]
    paths: bool,

    /// Messages that wait for a program to receive them
    #[arg(short = 'r', long)]
    recv: bool,

    /// Messages that wait to be sent
    #[arg(short = 's', long)]
    send: bool,

    /// Messages that were sent and that the peer has not acknowledged
    #[arg(short = 't', long)]
    retrans: bool,

    /// TCP connections that carry RDS
    #[arg(short = 'T', long)]
    tcp: bool,

    /// Queue pairs that carry RDS: InfiniBand, RoCE and iWARP
    #[arg(short = 'I', long)]
    ib: bool,

    /// Include IPv6 [default: IPv4 only]
    #[arg(short = 'a', long)]
    pub(crate) all_addresses: bool,

    /// More details of each queue pair and path
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// More columns of queue pairs: cache_allocs, and others that only Oracle's kernels report
    #[arg(short = 'o', long, value_name = "NAMES")]
    pub(crate) columns: Option<Columns>,

    /// Show the tables of all network namespaces that have processes
    #[arg(short = 'N', long)]
    pub(crate) all_namespaces: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Counters of what was dropped or refused, explained; with -v also zeros
    #[arg(long, group = "output", conflicts_with_all = ALL_BUT_VERBOSE)]
    pub(crate) drops: bool,

    /// Queues, and connections and counters with their rates, again after each interval
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = seconds,
          group = "output", conflicts_with_all = TABLES, conflicts_with = "json")]
    pub(crate) watch: Option<Duration>,

    /// Metrics in the text format of Prometheus
    #[arg(long, group = "output", conflicts_with_all = TABLES, conflicts_with = "json")]
    pub(crate) prometheus: bool,

    /// Processes with open RDS sockets, which prevent unloading the module
    #[arg(long, group = "output", conflicts_with_all = TABLES)]
    pub(crate) holders: bool,

    /// Write a tar archive for the report of a defect: tables, module, settings, RDMA devices
    #[arg(long, value_name = "FILE", group = "output", conflicts_with_all = TABLES,
          conflicts_with = "json")]
    pub(crate) report: Option<PathBuf>,

    /// Print the versions of this program and of the loaded module
    #[arg(short = 'V', long)]
    pub(crate) version: bool,
}

/// The options that show tables.
const TABLES: [&str; 13] = [
    "verbose",
    "counters",
    "sockets",
    "connections",
    "paths",
    "recv",
    "send",
    "retrans",
    "tcp",
    "ib",
    "all_addresses",
    "columns",
    "all_namespaces",
];

/// [`TABLES`] without the first.
const ALL_BUT_VERBOSE: &[&str] = TABLES.split_at(1).1;

/// Parses a time of at least a tenth of a second, and at most a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.1..=86400.0).contains(&seconds) {
        return Err("not from 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl Args {
    /// Returns the tables that were named; none: all.
    pub(crate) fn named(&self) -> Vec<Kind> {
        let named = |kind: &Kind| match kind {
            Kind::Ib => self.ib,
            Kind::Tcp => self.tcp,
            Kind::Counters => self.counters,
            Kind::Sockets => self.sockets,
            Kind::Connections => self.connections,
            Kind::Paths => self.paths,
            Kind::Recv => self.recv,
            Kind::Send => self.send,
            Kind::Retrans => self.retrans,
        };
        Kind::ALL.into_iter().filter(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn letters_of_the_established_tool() {
        let all = "rds-info -c -k -n -p -r -s -t -T -I";
        assert_eq!(parse(all).unwrap().named(), Kind::ALL);
        let args = parse("rds-info -avvn").unwrap();
        assert_eq!(args.named(), [Kind::Connections]);
        assert!(args.all_addresses && args.verbose == 2 && !args.json);
        for (letter, kind) in [
            ("c", Kind::Counters),
            ("k", Kind::Sockets),
            ("n", Kind::Connections),
            ("p", Kind::Paths),
            ("r", Kind::Recv),
            ("s", Kind::Send),
            ("t", Kind::Retrans),
            ("T", Kind::Tcp),
            ("I", Kind::Ib),
        ] {
            let args = parse(&format!("rds-info -{letter}")).unwrap();
            assert_eq!(args.named(), [kind]);
        }
    }

    #[test]
    fn letters_for_all_tables() {
        let args = parse("rds-info -NIo send_bytes -o cache_allocs -vv").unwrap();
        assert_eq!(args.named(), [Kind::Ib]);
        assert!(args.all_namespaces);
        // The last option counts.
        assert_eq!(args.columns, "cache_allocs".parse().ok());
        let args = parse("rds-info -n -n").unwrap();
        assert!(!args.all_namespaces && args.columns.is_none());
    }

    #[test]
    fn no_letter_names_no_table() {
        assert!(parse("rds-info -a --json").unwrap().named().is_empty());
    }

    #[test]
    fn options_that_are_no_tables() {
        assert!(parse("rds-info --holders --json").unwrap().holders);
        let report = parse("rds-info --report x.tar").unwrap().report;
        assert_eq!(report, Some("x.tar".into()));
        for line in ["rds-info -V", "rds-info --version"] {
            assert!(parse(line).unwrap().version, "{line}");
        }
    }

    #[test]
    fn outputs_about_counters() {
        assert!(parse("rds-info --drops -v --json").unwrap().drops);
        assert!(parse("rds-info --prometheus").unwrap().prometheus);
        let watch = |line: &str| parse(line).unwrap().watch.map(|time| time.as_secs_f64());
        assert_eq!(watch("rds-info --watch"), Some(2.0));
        assert_eq!(watch("rds-info --watch 0.5"), Some(0.5));
        assert_eq!(watch("rds-info --watch=60"), Some(60.0));
        assert_eq!(watch("rds-info -n"), None);
        assert!(parse("rds-info --version --json").unwrap().json);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "rds-info -x",
            "rds-info n",
            "rds-info --json=1",
            "rds-info -Io",
            "rds-info --report",
            "rds-info --report x --holders",
            "rds-info --report x --json",
            "rds-info -k --holders",
            "rds-info --report x -a",
            "rds-info --drops -c",
            "rds-info --drops --holders",
            "rds-info --watch --json",
            "rds-info --watch -n",
            "rds-info --watch 0",
            "rds-info --watch nan",
            "rds-info --watch 1 --prometheus",
            "rds-info --prometheus --json",
            "rds-info --prometheus -v",
            "rds-info --report x --drops",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
