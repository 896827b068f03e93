// SPDX-License-Identifier: GPL-2.0
//! `rds-verify`: RDS traffic with verification of every byte and of the order.
#![forbid(unsafe_code)]

mod args;
mod control;
mod endpoint;
mod engine;
mod outgoing;
mod pings;
mod sizes;
mod verifier;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use rds_tools_common::exit_code;
use serde::Serialize;

use args::{Args, Role};
use control::Totals;
use engine::Engine;

/// The line of JSON.
#[derive(Serialize)]
struct Report {
    ok: bool,
    role: &'static str,
    seed: u64,
    sizes: String,
    sent: Direction,
    received: Direction,
    /// Sends that the kernel refused with `EAGAIN` because the send buffer was full.
    refused_full: u64,
    /// Sends that the kernel refused with `ENOBUFS` because the destination was congested.
    refused_congested: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// All streams of one direction.
#[derive(Serialize)]
struct Direction {
    streams: usize,
    messages: u64,
    bytes: u64,
    /// Hexadecimal; a JSON number would lose bits.
    hash: String,
}

impl Direction {
    fn new(streams: usize, totals: Totals) -> Self {
        let Totals {
            messages,
            bytes,
            hash,
        } = totals;
        Direction {
            streams,
            messages,
            bytes,
            hash: format!("{hash:016x}"),
        }
    }
}

impl Report {
    fn new(role: &Role, engine: &Engine, error: Option<String>) -> Self {
        let (role, common) = match role {
            Role::Recv { common, .. } => ("recv", common),
            Role::Send { common, .. } => ("send", common),
            Role::Both { common, .. } => ("both", common),
        };
        let (sent, received, refused) = engine.totals();
        let (outgoing, incoming) = engine.streams();
        Report {
            ok: error.is_none(),
            role,
            seed: common.seed,
            sizes: common.sizes.to_string(),
            sent: Direction::new(outgoing, sent),
            received: Direction::new(incoming, received),
            refused_full: refused.full,
            refused_congested: refused.congested,
            seconds: engine.elapsed().as_secs_f64(),
            error,
        }
    }
}

/// Returns the definition of the command line, from which pages and completions are generated.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    exit_code("rds-verify", run(&Args::parse().role).map(|()| true))
}

fn run(role: &Role) -> anyhow::Result<()> {
    let mut engine = Engine::new(role)?;
    let result = engine.run();
    let error = result.as_ref().err().map(|e| format!("{e:#}"));
    let report = Report::new(role, &engine, error);
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    result
}
