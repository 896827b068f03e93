// SPDX-License-Identifier: GPL-2.0

//! What people see in `/sys/kernel/debug/rds`: connections and pools, a line each.
//!
//! It may change at any time. Programs read the tables of `RDS_INFO_*`.

use super::{Connection, Node};
use crate::kapi::debugfs::{Dir, Page, Stop};
use crate::proto::connect::State;
use kernel::{
    fmt,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// The files, as long as it lives. Without debugfs there are none. Dropping it waits for readers.
pub(crate) struct Views(#[expect(dead_code, reason = "it is there to be dropped")] Dir<Arc<Node>>);

impl Views {
    /// May sleep. Fails with ENOMEM.
    pub(crate) fn new(node: &Arc<Node>) -> Result<Self> {
        let dir = Dir::new(c"rds")
            .add(c"connections", node.clone(), connections)?
            .add(c"pools", node.clone(), pools)?;
        Ok(Self(dir))
    }
}

/// The connections of all network namespaces.
fn connections(node: &Arc<Node>, page: &mut Page<'_>) -> Result<(), Stop> {
    node.try_for_each(|connection| page.write(fmt!("{}\n", Line(connection))))
}

/// The pools of all devices, and those of none.
fn pools(node: &Arc<Node>, page: &mut Page<'_>) -> Result<(), Stop> {
    let mut result = Ok(());
    if let Some(ib) = &node.ib {
        ib.for_each_pools(&mut |owner, pools| {
            for (name, pool) in pools.named() {
                if result.is_ok() {
                    result = page.write(fmt!("{} {}: {}\n", owner, name, pool));
                }
            }
        });
    }
    result
}

/// What is shown of a connection. Formatted in process context.
struct Line<'a>(&'a Connection);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connection = self.0;
        let state = State::from_number(connection.state.load(Relaxed)).map_or("?", State::name);
        let tx = connection.tx.lock();
        let (ups, link) = (tx.times_up, tx.link.clone());
        let (unsent, unacked) = (tx.queue.unsent.len(), tx.queue.sent.len());
        let next_tx = tx.queue.state.next_sequence();
        drop(tx);
        let next_rx = connection.rx.lock().next_sequence();
        f.write_fmt(fmt!(
            "{}: scope={} state={} ups={} next_tx={} acked={} unsent={} unacked={} next_rx={} fragment={} refusals={}",
            connection.key,
            connection.key.scope,
            state,
            ups,
            next_tx,
            connection.acked.load(Relaxed),
            unsent,
            unacked,
            next_rx,
            connection.fragment.load(Relaxed),
            connection.refusals(),
        ))?;
        match link {
            Some(link) => {
                f.write_str(" ")?;
                link.show(f)
            }
            None => Ok(()),
        }
    }
}
