// SPDX-License-Identifier: GPL-2.0

//! Files in `/sys/kernel/debug/rds` for people: connections and pools, one line each.
//!
//! The format may change at any time. Programs read the `RDS_INFO_*` tables.

use super::{
    Connection,
    Nodes, //
};
use crate::{
    kapi::{
        debugfs::{
            Dir,
            Page,
            Stop, //
        },
        net::Net,
        time, //
    },
    proto::{
        connect::State,
        SECOND, //
    }, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

/// The debugfs files. Dropping it removes them and waits for readers. Without debugfs there are
/// none.
pub(crate) struct Views(
    #[expect(dead_code, reason = "it is there to be dropped")] Dir<Arc<dyn Nodes>>,
);

impl Views {
    /// Creates the files.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(nodes: &Arc<dyn Nodes>) -> Result<Self> {
        let dir = Dir::new(c"rds")
            .add(c"connections", nodes.clone(), connections)?
            .add(c"pools", nodes.clone(), pools)?;
        Ok(Self(dir))
    }
}

/// Writes the connections of all network namespaces.
fn connections(nodes: &Arc<dyn Nodes>, page: &mut Page<'_>) -> Result<(), Stop> {
    for node in nodes.all().map_err(|_| Stop)? {
        node.try_for_each(|connection| page.write(fmt!("{}\n", Line(connection))))?;
    }
    Ok(())
}

/// Writes the pools of all devices, and those that belong to no device. The transports of the
/// initial namespace have them.
fn pools(nodes: &Arc<dyn Nodes>, page: &mut Page<'_>) -> Result<(), Stop> {
    let node = nodes.of(Net::init()).map_err(|_| Stop)?;
    let mut result = Ok(());
    node.transports.for_each_pools(&mut |owner, pools| {
        for (name, pool) in pools.named() {
            if result.is_ok() {
                result = page.write(fmt!("{} {}: {}\n", owner, name, pool));
            }
        }
    });
    result
}

/// One line about a connection. Formatted in process context.
struct Line<'a>(&'a Connection);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connection = self.0;
        let state =
            State::from_number(connection.path.state.load(Relaxed)).map_or("?", State::name);
        let tx = connection.path.tx.lock();
        let (ups, up_since, link) = (tx.times_up, tx.up_since, tx.link.clone());
        let (unsent, unacked) = (tx.queue.unsent.len(), tx.queue.sent.len());
        let next_tx = tx.queue.state.next_sequence();
        let acked_bytes = tx.queue.acked_bytes;
        let retransmissions = tx.queue.state.retransmissions();
        let times = tx.history.times(false);
        let stalled_secs = tx.stall.time() / SECOND;
        drop(tx);
        let rx = connection.path.rx.lock();
        let (next_rx, received_bytes) = (rx.next_sequence(), rx.bytes());
        drop(rx);
        let up_secs = match link {
            Some(_) => time::monotonic_ns().saturating_sub(up_since) / SECOND,
            None => 0,
        };
        f.write_fmt(fmt!(
            "{}: scope={} state={} ups={} next_tx={} acked={} unsent={} unacked={} next_rx={} \
             fragment={} refusals={} acked_bytes={} received_bytes={} retransmissions={} \
             up_secs={} stalled_secs={} reset={} reason={}",
            connection.key,
            connection.key.scope,
            state,
            ups,
            next_tx,
            connection.path.acked.load(Relaxed),
            unsent,
            unacked,
            next_rx,
            connection.path.fragment.load(Relaxed),
            connection.refusals().position(),
            acked_bytes,
            received_bytes,
            retransmissions,
            up_secs,
            stalled_secs,
            times.reset,
            times.reason.number(),
        ))?;
        match link {
            Some(link) => {
                f.write_str(" ")?;
                link.show(f)?;
                match link.cpu() {
                    Some(cpu) => f.write_fmt(fmt!(" cpu={}", cpu)),
                    None => Ok(()),
                }
            }
            None => Ok(()),
        }
    }
}
