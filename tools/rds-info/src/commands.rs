// SPDX-License-Identifier: GPL-2.0
//! Actions other than the kernel's tables: holders of sockets, an archive for a report, versions.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use rds_socket::RdsSocket;
use serde_json::{json, Map, Value};

use crate::args::Args;
use crate::holders::{is_rds, Holders};
use crate::record::{decode, Family, Socket};
use crate::snapshot::{self, Snapshot};
use crate::tables::Kind;
use crate::{complain, counters, metrics, print, release, report, watch};

/// Executes the requested action, and returns `true` if all went well; `None` if tables are
/// requested.
pub(crate) fn run(args: &Args) -> Result<Option<bool>> {
    if args.version {
        print(&if args.json {
            format!("{}\n", versions_as_json())
        } else {
            versions()
        })?;
        return Ok(Some(true));
    }
    if let Some(path) = &args.report {
        return write_report(path).map(Some);
    }
    if args.holders {
        return show_holders(args.json).map(Some);
    }
    if args.drops {
        return show_drops(args).map(Some);
    }
    if args.prometheus {
        let module = release::loaded(Path::new("/sys"));
        print(&metrics::text(
            &Snapshot::read(&RdsSocket::new()?)?,
            &module,
        ))?;
        return Ok(Some(true));
    }
    if let Some(interval) = args.watch {
        watch::run(interval)?;
        return Ok(Some(true));
    }
    Ok(None)
}

/// Returns the version of this program, and that of the module.
fn versions() -> String {
    let loaded = release::loaded(Path::new("/sys"));
    format!("rds-info {}\n{loaded}\n", env!("CARGO_PKG_VERSION"))
}

fn versions_as_json() -> Value {
    let loaded = release::loaded(Path::new("/sys"));
    json!({ "rds-info": env!("CARGO_PKG_VERSION"), "module": loaded })
}

/// Explains what was dropped or refused. Returns `true`, as drops are no error.
fn show_drops(args: &Args) -> Result<bool> {
    // The other tables may have millions of messages.
    let counters = snapshot::counters(&RdsSocket::new()?)?;
    let drops = counters::drops(&counters, args.verbose > 0);
    print(&if args.json {
        format!("{}\n", json!({ "drops": drops }))
    } else {
        counters::text(&drops).context("cannot lay out a table")?
    })?;
    Ok(true)
}

/// Finds the processes with open RDS sockets, except this program.
fn find_holders() -> Result<Holders> {
    let proc = Path::new("/proc");
    let mut holders = Holders::find(proc, std::process::id(), is_rds)?;
    // Without processes, or without permission to find them, addresses are not needed.
    if !holders.found.is_empty() {
        let sockets = RdsSocket::new().map_err(anyhow::Error::from);
        let table = sockets.and_then(|socket| Kind::Sockets.read(&socket, Family::V6));
        if let Ok(Some((table, family))) = table {
            holders.add_addresses(&decode::<Socket>(&table, family).unwrap_or_default());
        }
    }
    Ok(holders)
}

/// Returns `true` if all processes could be examined.
fn show_holders(json: bool) -> Result<bool> {
    let holders = find_holders()?;
    if json {
        let object = Map::from_iter([(
            "holders".to_owned(),
            serde_json::to_value(&holders.found).context("cannot convert to JSON")?,
        )]);
        print(&format!("{}\n", Value::Object(object)))?;
    } else {
        print(&holders.text().context("cannot lay out a table")?)?;
    }
    if holders.denied > 0 {
        complain(format_args!(
            "no permission to examine {} processes: run as root to include them",
            holders.denied
        ));
    }
    Ok(holders.denied == 0)
}

/// Creates the archive, which must not exist yet. Unreadable parts are named; the rest is still
/// useful.
fn write_report(path: &Path) -> Result<bool> {
    let place = || path.display().to_string();
    let file = File::create_new(path).with_context(place)?;
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let places = report::Places {
        proc: Path::new("/proc"),
        sys: Path::new("/sys"),
    };
    let seconds = time.map_or(0, |time| time.as_secs());
    let missing =
        report::write(file, seconds, &versions(), &places, find_holders()).with_context(place)?;
    for what in missing {
        complain(format_args!("not in the report: {what}"));
    }
    Ok(true)
}
