// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{bail, Context};
use clap::Parser;
use rds_socket::PING_PORT;

const EXAMPLES: &str = "\
Examples:
  rds-ping -c 3 10.0.0.2               three pings, one a second
  rds-ping -c 1 -W 5 fd00::2           one ping that fails after 5 s without an answer
  rds-ping -i 0.1 -I 10.0.0.1 10.0.0.2 ten pings a second from this local address
  rds-ping -Q 4 10.0.0.2               on the connection with type of service 4
  rds-ping -qHi 0 -c 10000 10.0.0.2    distribution of the latencies of 10000 pings

Each answer is one line: the sequence number of the ping and its round-trip time.
   1: 127 usec
The first ping includes the time to set up the connection. RDS retransmits until the peer answers,
so a lost ping has one of these causes: the peer or the path to it was down for the whole timeout,
its sysctl net.rds.ping_enable is 0, or it does not run RDS.

The exit status is 0 if every ping was answered, 1 if not, 2 if the command line is invalid.";

/// Largest accepted time: longer than any useful one, and too short for sums of times to overflow.
const LONGEST: Duration = Duration::from_secs(1_000_000);

/// Measures the round-trip time to an RDS node.
///
/// Sends empty messages to port 0 of the destination. The kernel of the destination answers them.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// IPv4 or IPv6 address, or name, of the node
    pub(crate) destination: String,

    /// Number of pings to send [default: until SIGINT]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Interval between pings, in seconds or with the suffix ms or us; 0: after each answer
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1", value_parser = duration)]
    pub(crate) interval: Duration,

    /// Print no answers, only failures and the summary; on a terminal also a progress bar
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,

    /// Add percentiles and a histogram of the round-trip times to the summary
    #[arg(short = 'H', long)]
    pub(crate) histogram: bool,

    /// Local address to send from [default: the one that the routing table selects]
    #[arg(short = 'I', long, value_name = "ADDRESS")]
    pub(crate) source: Option<String>,

    /// Type of service, 0 to 255
    #[arg(short = 'Q', long, value_name = "TOS")]
    pub(crate) tos: Option<u8>,

    /// Time limit for an answer, in seconds or with the suffix ms or us
    #[arg(short = 'W', long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub(crate) timeout: Duration,
}

impl Args {
    /// Returns the destination's ping port, and the source address if one was given.
    pub(crate) fn addresses(&self) -> anyhow::Result<(SocketAddr, Option<SocketAddr>)> {
        let source = match &self.source {
            None => None,
            Some(name) => Some(
                resolve(name, |_| true)
                    .with_context(|| format!("cannot use the source address {name:?}"))?,
            ),
        };
        let fits = |addr: &SocketAddr| source.is_none_or(|s| s.is_ipv4() == addr.is_ipv4());
        let name = &self.destination;
        let destination = resolve(name, fits)
            .with_context(|| format!("cannot use the destination address {name:?}"))?;
        if let Some(source) = source {
            if source.is_ipv4() != destination.is_ipv4() {
                bail!("{source} and {destination} are not of the same address family");
            }
        }
        Ok((destination, source))
    }
}

/// Returns the first address of `name` that is `wanted`, or else its first.
fn resolve(name: &str, wanted: impl Fn(&SocketAddr) -> bool) -> anyhow::Result<SocketAddr> {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let all: Vec<SocketAddr> = (name, PING_PORT).to_socket_addrs()?.collect();
    let best = all.iter().find(|&a| wanted(a)).or(all.first());
    best.copied().context("the name has no address")
}

/// Parses seconds, or a number with the suffix `s`, `ms`, `msec`, `us` or `usec`.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" | "msec" => 1e-3,
        "us" | "usec" => 1e-6,
        _ => return Err(format!("unknown unit {unit:?}: use s, ms or us")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number"))?;
    let time = Duration::try_from_secs_f64(number * scale).map_err(|e| e.to_string())?;
    if time > LONGEST {
        return Err(format!("more than {} seconds", LONGEST.as_secs()));
    }
    Ok(time)
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
        let args = parse("rds-ping -c 5 -i 0.25 -I 10.0.0.1 -Q 4 10.0.0.2").unwrap();
        assert_eq!(args.count, Some(5));
        assert_eq!(args.interval, Duration::from_millis(250));
        assert_eq!(args.tos, Some(4));
        assert!(!args.quiet && !args.histogram);
        let (destination, source) = args.addresses().unwrap();
        assert_eq!(destination, "10.0.0.2:0".parse().unwrap());
        assert_eq!(source, Some("10.0.0.1:0".parse().unwrap()));
    }

    #[test]
    fn ipv6_with_and_without_brackets() {
        for line in ["rds-ping fd00::2", "rds-ping [fd00::2]"] {
            let (destination, source) = parse(line).unwrap().addresses().unwrap();
            assert_eq!(destination, "[fd00::2]:0".parse().unwrap());
            assert_eq!(source, None);
        }
    }

    #[test]
    fn families_must_agree() {
        let error = parse("rds-ping -I 10.0.0.1 fd00::2")
            .unwrap()
            .addresses()
            .unwrap_err();
        assert!(error.to_string().contains("address family"), "{error}");
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("7usec"), Ok(Duration::from_micros(7)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["", "x", "-1", "1h", "inf", "nan", "1e300", "1e7"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "rds-ping",
            "rds-ping -c 0 ::1",
            "rds-ping -Q 256 ::1",
            "rds-ping a b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
