// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{bail, Context, Result};
use clap::{Args as ClapArgs, Parser};

use crate::message::HEADER;
use crate::options::{Mode, Options, Own, Rdma};

const ABOUT: &str = "\
Sends and verifies RDS messages between many tasks of two nodes, and measures their speed.

Without -s this is the passive end, which waits for the active end. The active end has -s with the
address of the passive end, on another node or on the same one. Its options apply to both ends.

Each end runs the number of tasks of -t. Each task has its own socket, on the ports after that of
-p. Each task sends requests to each task of the other end, with at most -d unanswered ones to each.
Each request is answered with an ack. When the time is over (-T, or SIGINT to the active end), the
remaining requests are answered, and the two ends compare their counts.

With -D or --atomics, each request has the cookie of memory that the task has registered, and the
ack comes with an operation on that memory: an RDMA write, an RDMA read and a fetch-and-add in turn,
as far as they are selected. The transferred data are verified.

A message that is lost, duplicated, out of order, corrupted or delivered to the wrong socket ends
the test on both ends, with an error that names the defect.";

const EXAMPLES: &str = "\
Examples:
  10.0.0.2$ rds-stress
  10.0.0.1$ rds-stress -s 10.0.0.2 -q 4096 -t 2 -d 2 -T 10

  RDMA of 64 KiB with each request, in four buffers:
  10.0.0.1$ rds-stress -s 10.0.0.2 -q 256 -D 16K -I 4 -T 10

  Both ends on one node, with two RDMA addresses, or without any:
  $ rds-stress -r 10.0.0.2 & rds-stress -r 10.0.0.1 -s 10.0.0.2 -T 10
  $ rds-stress -r 127.0.0.1 & rds-stress -r 127.0.0.1 -s 127.0.0.1 -T 10

Columns; one row per second, and the averages at the end:
  tsks       tasks of this end
  tx/s rx/s  requests sent and received
  tx+rx K/s  KiB of requests and acks, sent and received
  mbi mbo    KiB that RDMA has transferred to and from the memory of this end
  tx us/c    microseconds per call that sends a request
  rtt us     microseconds from a request to its ack
  cpu %      utilization of the CPUs of this node; -1.00 without -c
  p50 us ... with --latencies: half of the round trips took no longer, 99 % did not, none did
Measurement begins 2 s after the start.

The two ends coordinate over TCP, on the port of -p. Both must be this rds-stress. That of Oracle
has the same options and columns, but another protocol.

The exit status is 0 if every message was delivered correctly, 1 if not or if the test could not be
run, 2 if the command line is invalid.";

/// Abbreviations of long options. An option may be abbreviated as far as it is unambiguous.
/// Abbreviations that Oracle's tool accepts have to work here, where --timeout and --version exist,
/// too.
const TIME: [&str; 2] = ["ti", "tim"];
const VERIFY: [&str; 3] = ["v", "ve", "ver"];

/// The options, which are those of Oracle's rds-stress.
#[derive(Parser, Debug)]
#[command(version, disable_version_flag = true, infer_long_args = true, args_override_self = true, about = "Sends and verifies RDS messages between many tasks of two nodes, and measures their speed",
          long_about = ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Local address [default: that of the TCP connection]
    #[arg(short = 'r', long, value_name = "ADDRESS")]
    pub(crate) recv_addr: Option<String>,

    /// TCP port; the RDS sockets use the ports after it
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 4000,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Address of the passive end; without it, this is the passive end
    #[arg(short = 's', long, value_name = "ADDRESS")]
    pub(crate) send_addr: Option<String>,

    /// Number of further attempts to connect to the passive end, one per second
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) connect_retries: u32,

    /// Reset the RDS connection to the address of -s, without a test or output
    #[arg(long, requires = "send_addr")]
    pub(crate) reset: bool,

    /// Print the version (-V is --trace, as in Oracle's tool)
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    both: Both,

    #[command(flatten)]
    rdma: RdmaArgs,
}

/// Options of one end.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "Options of either end, which apply to that end")]
struct OwnArgs {
    /// Measure the utilization of the CPUs
    #[arg(short = 'c', long)]
    report_cpu: bool,

    /// Print a histogram of round-trip times at the end
    #[arg(long)]
    show_histogram: bool,

    /// Add the columns p50, p99 and max of the round-trip times, in microseconds; at the end also
    /// more percentiles, and a histogram with bars
    #[arg(long)]
    latencies: bool,

    /// Print round trips that take longer to the standard error output
    #[arg(long, value_name = "MICROSECONDS", value_parser = size)]
    show_outliers: Option<u32>,

    /// Let SIGINT abort the test. When the test is aborted, each task calls RDS_CANCEL_SENT_TO for
    /// each task of the other end, and prints the duration
    #[arg(long)]
    cancel_sent_to: bool,

    /// Abort the test this long after the first row; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = size)]
    abort_after: u32,

    /// No effect: this tool never requests the number of unread bytes (SO_RDS_INQ), as Oracle's
    /// does
    #[arg(long)]
    disable_inq: bool,
}

/// Options that the active end sets for both.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "Options of the active end, which apply to both")]
struct Both {
    /// Size of an ack in bytes, or with the suffix K or M; the minimum is a header
    #[arg(short = 'a', long, value_name = "SIZE", default_value_t = HEADER as u32,
          value_parser = size)]
    ack_bytes: u32,

    /// Size of a request in bytes, or with the suffix K or M; up to 1M
    #[arg(short = 'q', long, value_name = "SIZE", default_value_t = 1024, value_parser = size)]
    req_bytes: u32,

    /// Only the active end sends requests
    #[arg(short = 'o', long)]
    one_way: bool,

    /// Maximum number of unanswered requests of one task to another
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1)]
    depth: u32,

    /// Number of tasks of each end
    #[arg(short = 't', long, value_name = "N", default_value_t = 1)]
    tasks: u16,

    /// Duration of the test; 0: until SIGINT
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 0, aliases = TIME)]
    time: u32,

    /// Type of service, 0 to 255
    #[arg(short = 'Q', long, value_name = "TOS")]
    tos: Option<u8>,

    /// Verify every byte of every message (the default)
    #[arg(short = 'v', long, aliases = VERIFY)]
    verify: bool,

    /// Verify only the headers, to measure without the cost of verification
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,

    /// Print only the summary; on a terminal also a progress bar
    #[arg(short = 'z', long)]
    report_summary: bool,

    /// Print rows with real-time priority, so that many busy tasks do not delay them
    #[arg(short = 'R', long)]
    rtprio: bool,

    /// Print each message to the standard error output
    #[arg(short = 'V', long)]
    trace: bool,

    /// Print the options before the test
    #[arg(long)]
    show_params: bool,

    /// Print rows for scripts: CSV after "::", with counters of the kernel
    #[arg(long)]
    show_perfdata: bool,

    /// 1: wait for notifications that congested ports have room (RDS_CONG_MONITOR), 0: try again
    /// periodically
    #[arg(long, value_name = "0|1", default_value = "1", value_parser = switch,
          action = clap::ArgAction::Set)]
    use_cong_monitor: bool,

    /// Not supported; refused with an explanation.
    #[arg(long, hide = true)]
    r#async: bool,

    /// Fail after this many seconds without progress
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
}

/// Options of operations on memory. All names but that of atomics are Oracle's.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "RDMA options of the active end, which apply to both")]
struct RdmaArgs {
    /// Size in bytes of a buffer for the RDMA of each request, or with the suffix K or M
    #[arg(short = 'D', long, value_name = "SIZE", default_value_t = 0, value_parser = size)]
    rdma_bytes: u32,

    /// Number of local buffers of an RDMA operation, each of the size of -D; up to 512, and up to
    /// 1M in all
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1)]
    rdma_buffers: u32,

    /// 0: RDMA writes and reads in turn, 1: reads, 2: writes
    #[arg(short = 'M', long, value_name = "0|1|2", default_value = "0", value_parser = mode)]
    rdma_mode: Mode,

    /// Atomic fetch-and-add on the other end's memory, in addition to -D or alone
    #[arg(long)]
    atomics: bool,

    /// Release a region after its first use; the default is 1, with --rdma-cache-mrs 1 it is 0
    #[arg(long, value_name = "0|1", value_parser = switch)]
    rdma_use_once: Option<bool>,

    /// Register with RDS_GET_MR, not with the message; the default is 0, with --rdma-cache-mrs 1 it
    /// is 1
    #[arg(long, value_name = "0|1", value_parser = switch)]
    rdma_use_get_mr: Option<bool>,

    /// Use the same regions for all requests
    #[arg(long, value_name = "0|1", default_value = "0", value_parser = switch,
          action = clap::ArgAction::Set)]
    rdma_cache_mrs: bool,

    /// Offset of the memory in its page, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    rdma_alignment: u32,

    /// Send an ack after its RDMA read has completed; always 1
    #[arg(long, value_name = "1", default_value = "1", value_parser = switch,
          action = clap::ArgAction::Set)]
    rdma_use_fence: bool,

    /// No effect, as in Oracle's tool
    #[arg(long, hide = true, value_name = "0|1", value_parser = switch)]
    rdma_use_notify: Option<bool>,

    /// Not supported; refused with an explanation.
    #[arg(long, hide = true)]
    rdma_key_o_meter: bool,
}

impl RdmaArgs {
    fn options(&self) -> Result<Rdma> {
        if self.rdma_key_o_meter {
            bail!("--rdma-key-o-meter: this rds-stress does not count reused keys");
        }
        if !self.rdma_use_fence {
            bail!(
                "--rdma-use-fence 0: without the fence memory is reused while it is still read, \
                 so the data cannot be verified"
            );
        }
        Ok(Rdma {
            bytes: self.rdma_bytes,
            buffers: self.rdma_buffers,
            mode: self.rdma_mode,
            atomics: self.atomics,
            use_once: self.rdma_use_once.unwrap_or(!self.rdma_cache_mrs),
            use_get_mr: self.rdma_use_get_mr.unwrap_or(self.rdma_cache_mrs),
            cache_mrs: self.rdma_cache_mrs,
            alignment: self.rdma_alignment,
        })
    }
}

impl Args {
    /// Returns the options that only concern this end.
    pub(crate) fn own(&self) -> Own {
        let own = &self.own;
        Own {
            report_cpu: own.report_cpu,
            histogram: own.show_histogram,
            latencies: own.latencies,
            outliers: own.show_outliers,
            cancel_sent_to: own.cancel_sent_to,
            abort_after: (own.abort_after > 0).then_some(own.abort_after),
        }
    }

    /// Returns the options that both ends need.
    pub(crate) fn options(&self) -> Result<Options> {
        if self.both.r#async {
            bail!(
                "--async: only Oracle's kernels report the status of sends (RDS_CMSG_ASYNC_SEND)"
            );
        }
        let options = Options {
            req_bytes: self.both.req_bytes,
            ack_bytes: self.both.ack_bytes,
            one_way: self.both.one_way,
            depth: self.both.depth,
            tasks: self.both.tasks,
            tos: self.both.tos,
            verify: !self.both.no_verify,
            summary_only: self.both.report_summary,
            rtprio: self.both.rtprio,
            trace: self.both.trace,
            perfdata: self.both.show_perfdata,
            monitor: self.both.use_cong_monitor,
            timeout: self.both.timeout,
            rdma: self.rdma.options()?,
        };
        options.check()?;
        Ok(options)
    }

    /// Returns the seconds to send; `None`: until a signal.
    pub(crate) fn seconds(&self) -> Option<u32> {
        (self.both.time > 0).then_some(self.both.time)
    }

    pub(crate) fn show_params(&self) -> bool {
        self.both.show_params
    }

    /// Returns the local address, with port 0, if one was given.
    pub(crate) fn local(&self) -> Result<Option<SocketAddr>> {
        let local = self
            .recv_addr
            .as_deref()
            .map(|name| resolve(name, 0, |_| true));
        local.transpose()
    }

    /// Returns the address at which the passive end listens; `None` at that end itself.
    pub(crate) fn passive(&self) -> Result<Option<SocketAddr>> {
        let local = self.local()?;
        let fits = |addr: &SocketAddr| local.is_none_or(|l| l.is_ipv4() == addr.is_ipv4());
        let Some(name) = &self.send_addr else {
            return Ok(None);
        };
        let passive = resolve(name, self.port, fits)?;
        if let Some(local) = local.filter(|l| l.is_ipv4() != passive.is_ipv4()) {
            bail!(
                "{} and {} are not of the same address family",
                local.ip(),
                passive.ip()
            );
        }
        Ok(Some(passive))
    }
}

/// Returns the first address of `name` that is `wanted`, or else its first.
fn resolve(name: &str, port: u16, wanted: impl Fn(&SocketAddr) -> bool) -> Result<SocketAddr> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let all = (bare, port).to_socket_addrs();
    let all: Vec<SocketAddr> = all
        .with_context(|| format!("cannot use the address {name:?}"))?
        .collect();
    let best = all.iter().find(|&a| wanted(a)).or(all.first());
    best.copied()
        .with_context(|| format!("the name {name:?} has no address"))
}

/// Parses bytes, or a number with the suffix K, M or G.
fn size(text: &str) -> Result<u32, String> {
    let split = text
        .trim_end_matches(|c: char| c.is_ascii_alphabetic())
        .len();
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(format!("unknown unit {unit:?}: use K or M")),
    };
    let number: u32 = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_owned())
}

/// Parses 0 or 1, as Oracle's tool does.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("use 0 or 1".to_owned()),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "0" => Ok(Mode::ReadWrite),
        "1" => Ok(Mode::ReadOnly),
        "2" => Ok(Mode::WriteOnly),
        _ => Err("use 0 (both), 1 (reads) or 2 (writes)".to_owned()),
    }
}

#[cfg(test)]
mod tests;
