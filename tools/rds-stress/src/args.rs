// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{bail, Context, Result};
use clap::{Args as ClapArgs, Parser};

use crate::message::HEADER;
use crate::options::{Mode, Options, Own, Rdma};

const ABOUT: &str = "\
Verified RDS messages between many tasks of two nodes, and how fast they are.

Start it on one node without -s: it is passive, and waits. Start it on another node, or on the
same one, with -s and the address of the first: it is active, and its options count for both.

Each end has as many tasks as -t says, with a socket of its own each, on the ports that follow
that of -p. Each task sends requests to each task of the other end, and keeps as many without an
answer as -d says. Each request is answered with an ack. When the time is over (-T, or SIGINT to
the active end), all requests are still answered, and the two ends compare what they counted.

With -D or --atomics, each request tells the cookie of memory that the task has registered, and
the ack comes with an operation on that memory: by turns an RDMA write to it, an RDMA read from
it, and a fetch-and-add, as far as they are asked for. What they bring is verified.

A message that is lost, comes twice, late, at the wrong socket, or with a wrong byte ends the
test on both ends with an error that says so.";

const EXAMPLES: &str = "\
Examples:
  10.0.0.2$ rds-stress
  10.0.0.1$ rds-stress -s 10.0.0.2 -q 4096 -t 2 -d 2 -T 10

  With each request an RDMA of 64 KiB, in four pieces:
  10.0.0.1$ rds-stress -s 10.0.0.2 -q 256 -D 16K -I 4 -T 10

  One node with two RDMA addresses, or with none:
  $ rds-stress -r 10.0.0.2 & rds-stress -r 10.0.0.1 -s 10.0.0.2 -T 10
  $ rds-stress -r 127.0.0.1 & rds-stress -r 127.0.0.1 -s 127.0.0.1 -T 10

Columns, one row a second and the average at the end:
  tsks       tasks of this end
  tx/s rx/s  requests sent and received
  tx+rx K/s  KiB of requests and acks, sent and received
  mbi mbo    KiB that RDMA moved into the memory of this end, and out of it
  tx us/c    microseconds in a call to send a request
  rtt us     microseconds from a request to its ack
  cpu %      time that the CPUs of this node were busy; -1.00 without -c
Rates are counted from 2 s after the start.

The two ends agree over TCP, on the port of -p. They have to be this rds-stress: that of Oracle
has the same options and columns, and a protocol of its own.

The exit status is 0 if every message came as it should, 1 if not or if the test could not be
run, 2 for a wrong command line.";

/// Abbreviations of long options. An option may be abbreviated as far as it is unambiguous.
/// Abbreviations that Oracle's tool accepts have to work here, where --timeout and --version exist,
/// too.
const TIME: [&str; 2] = ["ti", "tim"];
const VERIFY: [&str; 3] = ["v", "ve", "ver"];

/// The options, which are those of Oracle's rds-stress.
#[derive(Parser, Debug)]
#[command(version, disable_version_flag = true, infer_long_args = true, args_override_self = true, about = "Verified RDS messages between many tasks of two nodes, and how fast they are",
          long_about = ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Local address [default: the one of the TCP connection]
    #[arg(short = 'r', long, value_name = "ADDRESS")]
    pub(crate) recv_addr: Option<String>,

    /// TCP port; the RDS sockets have the ports after it
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 4000, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Address of the passive end. Without it, be the passive end
    #[arg(short = 's', long, value_name = "ADDRESS")]
    pub(crate) send_addr: Option<String>,

    /// How often to try again each second when the passive end is not there
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) connect_retries: u32,

    /// Have the connection to the address of -s made anew, do no more, and say nothing
    #[arg(long, requires = "send_addr")]
    pub(crate) reset: bool,

    /// Print the version. -V is Oracle's --trace
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    own: OwnArgs,

    #[command(flatten)]
    both: Both,

    #[command(flatten)]
    rdma: RdmaArgs,
}

/// What each end decides for itself.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "Options of either end, which count for that end")]
struct OwnArgs {
    /// Measure how busy the CPUs are
    #[arg(short = 'c', long)]
    report_cpu: bool,

    /// In the end, print how many round trips took how long
    #[arg(long)]
    show_histogram: bool,

    /// Print each round trip that takes longer, to the standard error output
    #[arg(long, value_name = "MICROSECONDS", value_parser = size)]
    show_outliers: Option<u32>,

    /// SIGINT ends the test in its midst. Whatever does, each task then calls RDS_CANCEL_SENT_TO for each task of
    /// the other end, and prints how long that took
    #[arg(long)]
    cancel_sent_to: bool,

    /// End the test in its midst when rows have been printed for so long; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = size)]
    abort_after: u32,

    /// Of no effect: Oracle's tool asks with each message how much more there is (SO_RDS_INQ), this one never does
    #[arg(long)]
    disable_inq: bool,
}

/// What the active end decides for both.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "Options of the active end, which count for both")]
struct Both {
    /// Bytes of an ack, or with the suffix K or M. The least has a header alone
    #[arg(short = 'a', long, value_name = "SIZE", default_value_t = HEADER as u32, value_parser = size)]
    ack_bytes: u32,

    /// Bytes of a request, or with the suffix K or M; up to 1M
    #[arg(short = 'q', long, value_name = "SIZE", default_value_t = 1024, value_parser = size)]
    req_bytes: u32,

    /// Only the active end sends requests
    #[arg(short = 'o', long)]
    one_way: bool,

    /// Requests of a task to another that wait for their ack
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1)]
    depth: u32,

    /// Tasks of each end
    #[arg(short = 't', long, value_name = "N", default_value_t = 1)]
    tasks: u16,

    /// How long to send; 0: until SIGINT
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 0, aliases = TIME)]
    time: u32,

    /// Type of service, 0 to 255
    #[arg(short = 'Q', long, value_name = "TOS")]
    tos: Option<u8>,

    /// Verify every byte of every message, which is the default; for scripts that ask for it
    #[arg(short = 'v', long, aliases = VERIFY)]
    verify: bool,

    /// Verify no more than the headers, to measure without the cost of it
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,

    /// Print the summary alone
    #[arg(short = 'z', long)]
    report_summary: bool,

    /// Print rows with real-time priority, so that many busy tasks do not delay them
    #[arg(short = 'R', long)]
    rtprio: bool,

    /// Print each message to the standard error output
    #[arg(short = 'V', long)]
    trace: bool,

    /// Print the options first
    #[arg(long)]
    show_params: bool,

    /// Print rows for scripts: CSV behind "::", with counters of the kernel
    #[arg(long)]
    show_perfdata: bool,

    /// 1: wait to be told which congested ports have room again (RDS_CONG_MONITOR), 0: try them again and again
    #[arg(long, value_name = "0|1", default_value = "1", value_parser = switch, action = clap::ArgAction::Set)]
    use_cong_monitor: bool,

    /// Not there, and refused in words.
    #[arg(long, hide = true)]
    r#async: bool,

    /// Fail when nothing has moved for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
}

/// Those for operations on memory, the names of which are Oracle's but for that of atomics.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = "RDMA options of the active end, which count for both")]
struct RdmaArgs {
    /// Bytes of a buffer that RDMA moves for each request, or with the suffix K or M
    #[arg(short = 'D', long, value_name = "SIZE", default_value_t = 0, value_parser = size)]
    rdma_bytes: u32,

    /// Local buffers of an RDMA, each of the bytes of -D; up to 512, and up to 1M in all
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1)]
    rdma_buffers: u32,

    /// 0: RDMA writes and reads by turns, 1: reads, 2: writes
    #[arg(short = 'M', long, value_name = "0|1|2", default_value = "0", value_parser = mode)]
    rdma_mode: Mode,

    /// Also, or without -D alone, atomic additions to a number in the other end's memory
    #[arg(long)]
    atomics: bool,

    /// A region goes with its first use; the default is 1 but with --rdma-cache-mrs 1
    #[arg(long, value_name = "0|1", value_parser = switch)]
    rdma_use_once: Option<bool>,

    /// Register with RDS_GET_MR, not with the message; the default is 0 but with --rdma-cache-mrs 1
    #[arg(long, value_name = "0|1", value_parser = switch)]
    rdma_use_get_mr: Option<bool>,

    /// Keep regions for all requests
    #[arg(long, value_name = "0|1", default_value = "0", value_parser = switch, action = clap::ArgAction::Set)]
    rdma_cache_mrs: bool,

    /// Where in a page the memory begins, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    rdma_alignment: u32,

    /// An ack waits for its RDMA read: always 1
    #[arg(long, value_name = "1", default_value = "1", value_parser = switch, action = clap::ArgAction::Set)]
    rdma_use_fence: bool,

    /// Of no effect, as in Oracle's tool
    #[arg(long, hide = true, value_name = "0|1", value_parser = switch)]
    rdma_use_notify: Option<bool>,

    /// Not there, and refused in words.
    #[arg(long, hide = true)]
    rdma_key_o_meter: bool,
}

impl RdmaArgs {
    fn options(&self) -> Result<Rdma> {
        if self.rdma_key_o_meter {
            bail!("--rdma-key-o-meter: this rds-stress does not count keys that come again");
        }
        if !self.rdma_use_fence {
            bail!(
                "--rdma-use-fence 0: without the fence memory is used anew while it is still read, \
                 and what is read cannot be verified"
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
            outliers: own.show_outliers,
            cancel_sent_to: own.cancel_sent_to,
            abort_after: (own.abort_after > 0).then_some(own.abort_after),
        }
    }

    /// Returns the options that both ends need.
    pub(crate) fn options(&self) -> Result<Options> {
        if self.both.r#async {
            bail!("--async: no kernel of Linux but Oracle's tells how a send has ended (RDS_CMSG_ASYNC_SEND)");
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
