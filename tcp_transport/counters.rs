// SPDX-License-Identifier: GPL-2.0

//! Counters of the transport, in `RDS_INFO_COUNTERS` behind those of the node.
//!
//! Names and order of the first ones are those of C RDS.

use crate::kapi::sync::PerCpuCounters;
use kernel::prelude::*;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// A counter of the transport.
        #[derive(Clone, Copy)]
        #[repr(usize)]
        pub(super) enum TcpCounter {
            $($(#[$doc])* $variant,)*
        }

        /// Names of the counters, in order.
        const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    /// Events that bytes have arrived.
    DataReadyCalls => "tcp_data_ready_calls",
    /// Events that there is room, or that the peer's TCP has acknowledged bytes.
    WriteSpaceCalls => "tcp_write_space_calls",
    /// Sends for which TCP had no room.
    SndbufFull => "tcp_sndbuf_full",
    /// Attempts to wake a peer up that it did not answer: it had connected meanwhile, or is silent.
    ConnectRaced => "tcp_connect_raced",
    /// Connections of peers that ended before their first header.
    ListenClosedStale => "tcp_listen_closed_stale",
    /// Connections of peers that sent no valid header in time, or were too many. None of them had a
    /// message.
    ListenRefused => "tcp_listen_refused",
    /// Pauses of reading because there was no memory.
    RxAllocWait => "tcp_rx_alloc_wait",
    /// Frames that wait because there was no memory.
    TxAllocWait => "tcp_tx_alloc_wait",
    /// Connections with which peers asked this node to connect.
    ListenWoken => "tcp_listen_woken",
    /// Failures to listen in a network namespace. Failures to accept connections of peers, or to
    /// get their events, because there was no memory.
    ListenFailed => "tcp_listen_failed",
    /// Connections of peers that were dropped with messages, and requests to connect that were
    /// forgotten, because too many waited. Also connections with messages for a path that was not
    /// accepted.
    ListenLost => "tcp_listen_lost",
    /// Bytes that a teardown has not received, though the local TCP has acknowledged them.
    DrainLost => "tcp_drain_lost",
    /// Connections of peers for a path that was not accepted.
    ListenNoPath => "tcp_listen_no_path",
    /// Attempts to get the memory to carry many messages that found none.
    GrowFailed => "tcp_grow_failed",
    /// Connections given up because of the memory to receive that an incomplete message held.
    RxStarvedDrop => "tcp_rx_starved_drop",
    /// Events that bytes have arrived whose bytes the work of the socket receives.
    DataReadyDeferred => "tcp_data_ready_deferred",
    /// Pieces of messages that stay in the packets in which they arrived until they are read.
    RxInPackets => "tcp_rx_in_packets",
}

/// The counters of the transport.
pub(crate) struct TcpCounters(PerCpuCounters<{ NAMES.len() }>);

impl TcpCounters {
    /// Creates counters that are all zero.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpuCounters::new()?))
    }

    /// Adds 1 to a counter. Any context.
    pub(super) fn inc(&self, counter: TcpCounter) {
        self.add(counter, 1);
    }

    /// Adds `count` to a counter. Any context.
    pub(super) fn add(&self, counter: TcpCounter, count: u64) {
        self.0.add(counter as usize, count);
    }

    /// Calls `each` with the names and values, in order. Any context.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        for (index, name) in NAMES.iter().enumerate() {
            each(name, self.0.sum(index));
        }
    }
}
