// SPDX-License-Identifier: GPL-2.0
//! `rds-bench`: measures the cost of operations on RDS sockets.
//!
//! Both ends of each connection are sockets of this process. So only the kernel is between a send
//! and the wake-up of its receiver. `scripts/bench.py` runs the program in a machine whose clock
//! counts instructions.
#![deny(unsafe_code)]

mod args;
mod bind;
mod floor;
mod mark;
mod measure;
mod memory;
mod operations;
mod peers;
mod rows;
mod scaling;
mod tcp;
mod traffic;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use rds_tools_common::exit_code;
use rustix::process::{getrlimit, setrlimit, Resource};

use args::Args;
use measure::Report;
use rows::{Bench, Row};

fn main() -> ExitCode {
    exit_code("rds-bench", run(&Args::parse()).map(|()| true))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if args.list {
        for row in Row::ALL {
            writeln!(out, "{}", row.name())?;
        }
        return Ok(());
    }
    allow_many_files()?;
    let mut print = |report: Report| -> anyhow::Result<()> {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        // The reader of the line processes it now, and not during the next measurement.
        std::thread::sleep(measure::PAUSE);
        Ok(())
    };
    if let Some(count) = args.connections {
        return scaling::measure(args, count, &mut print);
    }
    let mut bench = Bench::new(args);
    for row in Row::ALL.iter().copied().filter(|row| args.wants(*row)) {
        print(bench.measure(row)?)?;
    }
    Ok(())
}

/// Raises the limit of open files: a row with a one-time operation has a socket for each sample.
fn allow_many_files() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot have more open files")
}
