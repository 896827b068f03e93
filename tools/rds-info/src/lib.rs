// SPDX-License-Identifier: GPL-2.0
//! `rds-info`: shows the kernel's tables of RDS sockets, connections, messages and counters.
//!
//! Takes the options and prints the tables of the tool of the same name in Oracle's rds-tools.
#![forbid(unsafe_code)]

mod archive;
mod args;
mod columns;
mod commands;
mod counters;
mod holders;
mod metrics;
mod namespaces;
mod paths;
mod release;
mod report;
#[cfg(test)]
mod scratch;
mod show;
mod snapshot;
mod tables;
mod watch;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use rds_socket::info as record;
use rds_socket::RdsSocket;
use serde_json::{Map, Value};

use args::Args;
use record::Family;
use show::Layout;
use tables::Kind;

/// Returns the definition of the command line, from which pages and completions are generated.
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    rds_tools_common::exit_code("rds-info", run(&Args::parse()))
}

fn complain(what: impl Display) {
    rds_tools_common::complain("rds-info", what);
}

/// Returns `true` if all went well.
fn run(args: &Args) -> Result<bool> {
    if let Some(good) = commands::run(args)? {
        return Ok(good);
    }
    let (object, good) = if args.all_namespaces {
        show_namespaces(args)?
    } else {
        show_tables(args)?
    };
    if args.json {
        print(&format!("{}\n", Value::Object(object)))?;
    }
    Ok(good)
}

/// Prints the tables of each namespace, or returns them for JSON; also returns `true` if all went
/// well.
fn show_namespaces(args: &Args) -> Result<(Map<String, Value>, bool)> {
    let (mut all, mut good) = (Vec::new(), true);
    for namespace in namespaces::all(Path::new("/proc"))? {
        if !namespace.home {
            namespace.enter()?;
        }
        if !args.json {
            print(&namespace.title())?;
        }
        let (mut object, tables_good) = show_tables(args)?;
        object.insert("namespace".to_owned(), namespace.inode.into());
        object.insert("home".to_owned(), namespace.home.into());
        all.push(Value::Object(object));
        good &= tables_good;
    }
    let object = Map::from_iter([("namespaces".to_owned(), all.into())]);
    Ok((object, good))
}

/// Does the same for the namespace of this program.
fn show_tables(args: &Args) -> Result<(Map<String, Value>, bool)> {
    let named = args.named();
    let kinds = if named.is_empty() {
        Kind::ALL.to_vec()
    } else {
        named
    };
    let family = if args.all_addresses {
        Family::V6
    } else {
        Family::V4
    };
    let socket = RdsSocket::new()?;
    let (mut object, mut good) = (Map::new(), true);
    for kind in kinds {
        match show(kind, &socket, family, args) {
            Ok(Some(value)) => {
                object.insert(kind.key().to_owned(), value);
            }
            Ok(None) => {
                object.insert(kind.key().to_owned(), Value::Null);
                let what = kind.description();
                complain(format_args!(
                    "this kernel has no table of {what}, or its transport is not loaded"
                ));
            }
            // The other tables may explain the error.
            Err(error) => {
                complain(format_args!("{error:#}"));
                good = false;
            }
        }
    }
    Ok((object, good))
}

/// Prints a table, or returns it for JSON; `None` if the kernel does not have it.
fn show(kind: Kind, socket: &RdsSocket, family: Family, args: &Args) -> Result<Option<Value>> {
    let Some((table, family)) = kind.read(socket, family)? else {
        return Ok(None);
    };
    if args.json {
        return kind.json(&table, family).map(Some);
    }
    let layout = Layout {
        family,
        verbose: args.verbose > 0,
        columns: args.columns,
    };
    print(&kind.text(&table, layout)?)?;
    Ok(Some(Value::Null))
}

/// Prints text. A closed pipe (`head`) is no error.
fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the tables"),
    }
}
