// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{bail, Context, Result};
use clap::{Args as ClapArgs, Parser};

use crate::message::HEADER;
use crate::options::Options;

const ABOUT: &str = "\
Verified RDS messages between many tasks of two nodes, and how fast they are.

Start it on one node without -s: it is passive, and waits. Start it on another node, or on the
same one, with -s and the address of the first: it is active, and its options count for both.

Each end has as many tasks as -t says, with a socket of its own each, on the ports that follow
that of -p. Each task sends requests to each task of the other end, and keeps as many without an
answer as -d says. Each request is answered with an ack. When the time is over (-T, or SIGINT to
the active end), all requests are still answered, and the two ends compare what they counted.

A message that is lost, comes twice, late, at the wrong socket, or with a wrong byte ends the
test on both ends with an error that says so.";

const EXAMPLES: &str = "\
Examples:
  10.0.0.2$ rds-stress
  10.0.0.1$ rds-stress -s 10.0.0.2 -q 4096 -t 2 -d 2 -T 10

  One node with two RDMA addresses, or with none:
  $ rds-stress -r 10.0.0.2 & rds-stress -r 10.0.0.1 -s 10.0.0.2 -T 10
  $ rds-stress -r 127.0.0.1 & rds-stress -r 127.0.0.1 -s 127.0.0.1 -T 10

Columns, one row a second and the average at the end:
  tsks       tasks of this end
  tx/s rx/s  requests sent and received
  tx+rx K/s  KiB of requests and acks, sent and received
  mbi mbo    KiB of RDMA operations: 0
  tx us/c    microseconds in a call to send a request
  rtt us     microseconds from a request to its ack
  cpu %      time that the CPUs of this node were busy; -1.00 without -c
Rates are counted from 2 s after the start.

The two ends agree over TCP, on the port of -p. They have to be this rds-stress: that of Oracle
has the same options and columns, and a protocol of its own.

The exit status is 0 if every message came as it should, 1 if not or if the test could not be
run, 2 for a wrong command line.";

/// The options, which are those of Oracle's rds-stress.
#[derive(Parser, Debug)]
#[command(version, disable_version_flag = true, about = "Verified RDS messages between many tasks of two nodes, and how fast they are",
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

    /// Measure how busy the CPUs are; not passed on to the passive end
    #[arg(short = 'c', long)]
    pub(crate) report_cpu: bool,

    /// Print the version. -V is Oracle's --trace
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    both: Both,

    #[command(flatten)]
    rdma: Rdma,
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
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 0)]
    time: u32,

    /// Type of service, 0 to 255
    #[arg(short = 'Q', long, value_name = "TOS")]
    tos: Option<u8>,

    /// Verify every byte of every message, which is the default; for scripts that ask for it
    #[arg(short = 'v', long)]
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

    /// Fail when nothing has moved for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,
}

/// Options of Oracle's tool for RDMA, which get an answer better than "unexpected argument".
#[derive(ClapArgs, Debug)]
struct Rdma {
    #[arg(short = 'D', long, hide = true)]
    rdma_bytes: Option<String>,
    #[arg(short = 'I', long, hide = true)]
    rdma_buffers: Option<String>,
    #[arg(short = 'M', long, hide = true)]
    rdma_mode: Option<String>,
    #[arg(long, hide = true)]
    rdma_use_once: Option<String>,
    #[arg(long, hide = true)]
    rdma_use_get_mr: Option<String>,
    #[arg(long, hide = true)]
    rdma_use_fence: Option<String>,
    #[arg(long, hide = true)]
    rdma_use_notify: Option<String>,
    #[arg(long, hide = true)]
    rdma_cache_mrs: Option<String>,
    #[arg(long, hide = true)]
    rdma_alignment: Option<String>,
    #[arg(long, hide = true)]
    rdma_key_o_meter: bool,
}

impl Rdma {
    fn is_asked_for(&self) -> bool {
        let given = [
            &self.rdma_bytes,
            &self.rdma_buffers,
            &self.rdma_mode,
            &self.rdma_use_once,
            &self.rdma_use_get_mr,
            &self.rdma_use_fence,
            &self.rdma_use_notify,
            &self.rdma_cache_mrs,
            &self.rdma_alignment,
        ];
        self.rdma_key_o_meter || given.into_iter().any(Option::is_some)
    }
}

impl Args {
    /// What both ends have to know.
    pub(crate) fn options(&self) -> Result<Options> {
        if self.rdma.is_asked_for() {
            bail!("this rds-stress does no RDMA and no atomic operations (-D, -I, -M, --rdma-...): it sends messages");
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
            timeout: self.both.timeout,
        };
        options.check()?;
        Ok(options)
    }

    /// Seconds to send; `None`: until a signal.
    pub(crate) fn seconds(&self) -> Option<u32> {
        (self.both.time > 0).then_some(self.both.time)
    }

    pub(crate) fn show_params(&self) -> bool {
        self.both.show_params
    }

    /// The local address, with port 0, if one was given.
    pub(crate) fn local(&self) -> Result<Option<SocketAddr>> {
        let local = self
            .recv_addr
            .as_deref()
            .map(|name| resolve(name, 0, |_| true));
        local.transpose()
    }

    /// Where the passive end listens; `None` for that end itself.
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

/// The first address of `name` that is `wanted`, or else its first.
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

/// Bytes, or a number with the suffix K, M or G.
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
    fn options_of_the_established_tool() {
        let line = "rds-stress -s 10.0.0.2 -r 10.0.0.1 -p 5000 -q 4K -a 100 -t 3 -d 8 -T 10 -Q 4 \
                    -o -c -v -z -R -V --show-params --connect-retries 5";
        let args = parse(line).unwrap();
        assert_eq!(
            args.passive().unwrap(),
            Some("10.0.0.2:5000".parse().unwrap())
        );
        assert_eq!(args.local().unwrap(), Some("10.0.0.1:0".parse().unwrap()));
        assert_eq!((args.seconds(), args.connect_retries), (Some(10), 5));
        assert!(args.report_cpu && args.show_params());
        let wanted = Options {
            req_bytes: 4096,
            ack_bytes: 100,
            one_way: true,
            depth: 8,
            tasks: 3,
            tos: Some(4),
            verify: true,
            summary_only: true,
            rtprio: true,
            trace: true,
            timeout: 60,
        };
        assert_eq!(args.options().unwrap(), wanted);
    }

    #[test]
    fn defaults() {
        let args = parse("rds-stress").unwrap();
        assert_eq!(args.passive().unwrap(), None);
        assert_eq!((args.port, args.seconds()), (4000, None));
        let options = args.options().unwrap();
        assert_eq!(
            (options.req_bytes, options.ack_bytes),
            (1024, HEADER as u32)
        );
        assert_eq!((options.depth, options.tasks), (1, 1));
        assert!(options.verify && !options.one_way);
    }

    #[test]
    fn rdma_is_refused_in_words() {
        for option in [
            "-D 64K",
            "-I 2",
            "-M 1",
            "--rdma-use-once 1",
            "--rdma-key-o-meter",
        ] {
            let args = parse(&format!("rds-stress -s 10.0.0.2 {option}")).unwrap();
            let error = args.options().unwrap_err().to_string();
            assert!(error.contains("no RDMA"), "{error}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("1024"), Ok(1024));
        assert_eq!(size("1K"), Ok(1024));
        assert_eq!(size("1m"), Ok(1 << 20));
        for bad in ["", "K", "-1", "1.5K", "4G", "1X", "1KK", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "rds-stress -q",
            "rds-stress -x",
            "rds-stress -p 0",
            "rds-stress -Q 256",
            "rds-stress -v --no-verify",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in [
            "rds-stress -q 31",
            "rds-stress -q 2M",
            "rds-stress -t 0",
            "rds-stress -d 0",
        ] {
            assert!(parse(line).unwrap().options().is_err(), "{line}");
        }
        let args = parse("rds-stress -r 10.0.0.1 -s fd00::2").unwrap();
        assert!(args.passive().unwrap_err().to_string().contains("family"));
    }
}
