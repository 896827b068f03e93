// SPDX-License-Identifier: GPL-2.0
//! `rds-ping`: measures the round trip to an RDS node.
//!
//! Takes the options and prints the lines of the tool of the same name in Oracle's rds-tools.
#![forbid(unsafe_code)]

mod args;
mod pinger;
mod stats;

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use rds_tools_common::{exit_code, source_address_for};
use signal_hook::consts::{SIGINT, SIGTERM};

use args::Args;
use pinger::Pinger;

/// Returns the definition of the command line, from which pages and completions are generated.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    exit_code("rds-ping", run(&Args::parse()))
}

/// Returns `true` if every ping was answered.
fn run(args: &Args) -> anyhow::Result<bool> {
    let (destination, source) = args.addresses()?;
    let source = match source {
        Some(source) => source,
        None => source_address_for(destination)?,
    };

    let (stop, stop_writer) = UnixStream::pair().context("cannot create a socket pair")?;
    for signal in [SIGINT, SIGTERM] {
        let writer = stop_writer
            .try_clone()
            .context("cannot duplicate a socket")?;
        signal_hook::low_level::pipe::register(signal, writer)
            .context("cannot install a signal handler")?;
    }

    let out = io::stdout().lock();
    let mut pinger = Pinger::new(args, source, destination, out)?;
    pinger.run(&stop)?;
    let (stats, mut out) = pinger.finish();
    let mut summary = stats.summary(destination.ip());
    if args.histogram {
        summary += &stats.distribution();
    }
    write!(out, "{summary}").context("cannot write the summary")?;
    Ok(stats.all_answered())
}
