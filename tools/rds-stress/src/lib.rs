// SPDX-License-Identifier: GPL-2.0
//! `rds-stress`: verified RDS messages between many tasks of two nodes, with their rates.
//!
//! Takes the options for messages and prints the columns of the tool of the same name in Oracle's
//! rds-tools.
#![forbid(unsafe_code)]

mod args;
mod control;
mod cpu;
mod histogram;
mod message;
mod options;
mod perfdata;
mod rdma;
mod report;
mod session;
mod stats;
mod stream;
mod task;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use rds_socket::RdsSocket;
use rds_tools_common::{exit_code, source_address_for};

use args::Args;
use control::{Control, Hello};
use options::Options;
use session::{say, Session};

/// Returns the definition of the command line, from which pages and completions are generated.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    exit_code("rds-stress", run(&Args::parse()).map(|()| true))
}

fn run(args: &Args) -> Result<()> {
    let options = args.options()?;
    match args.passive()? {
        None => wait_for_active(args),
        Some(peer) if args.reset => reset(args, options, peer),
        Some(passive) => go(args, options, passive),
    }
}

/// Runs the passive end.
fn wait_for_active(args: &Args) -> Result<()> {
    let listener = listen(args)?;
    let at = listener
        .local_addr()
        .context("the TCP socket has no address")?;
    say(&format!("waiting for incoming connection on {at}\n"))?;
    let control = Control::accept(&listener)?;
    // There is one test only.
    drop(listener);
    let (local, peer) = control.addresses()?;
    say(&format!("accepted connection from {peer} on {local}\n"))?;
    Session::new(control, args.own())?.run_passive(local)
}

/// Listens at the address of `-r`, or else on all addresses, of both families if the machine has
/// both.
fn listen(args: &Args) -> Result<TcpListener> {
    let port = args.port;
    let at = |addr: SocketAddr| {
        TcpListener::bind(addr).with_context(|| format!("cannot listen on {addr}"))
    };
    match args.local()? {
        Some(local) => at((local.ip(), port).into()),
        None => at((Ipv6Addr::UNSPECIFIED, port).into())
            .or_else(|_| at((Ipv4Addr::UNSPECIFIED, port).into())),
    }
}

/// Runs the active end.
fn go(args: &Args, options: Options, passive: SocketAddr) -> Result<()> {
    if args.show_params() {
        say(&show(&options))?;
    }
    say(&format!("connecting to {passive}\n"))?;
    let control = Control::connect(args.local()?, passive, args.connect_retries)?;
    let (local, _) = control.addresses()?;
    let hello = Hello::new(options, local.ip(), passive.ip(), passive.port())?;
    Session::new(control, args.own())?.run_active(hello, args.seconds())
}

/// Resets a connection, which connects again.
fn reset(args: &Args, options: Options, peer: SocketAddr) -> Result<()> {
    let local = match args.local()? {
        Some(local) => local,
        None => source_address_for(peer)?,
    };
    let socket = RdsSocket::bound(local)?;
    let tos = options.tos.unwrap_or(0);
    Ok(socket.reset_connection(local.ip(), peer.ip(), tos)?)
}

fn show(options: &Options) -> String {
    let rows = [
        ("Tasks", u32::from(options.tasks)),
        ("Req size", options.req_bytes),
        ("ACK size", options.ack_bytes),
        ("RDMA size", options.rdma.bytes),
    ];
    let rows = rows.map(|(name, value)| format!("  {name:<10} {value:<7}\n"));
    format!("Options:\n{}{}\n", rows.concat(), options.rdma)
}
