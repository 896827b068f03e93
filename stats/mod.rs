// SPDX-License-Identifier: GPL-2.0

//! Counters of `RDS_INFO_COUNTERS`.
//!
//! Source: names, meaning and order of the counters of the RDS core and the IB transport are those
//! of `rds-info -c` on C RDS. Counters of this module only come after them.

#![deny(unsafe_code)]

use crate::kapi::sync::PerCpuCounters;
use kernel::prelude::*;

/// Fragment size that monitoring tools assume, in bytes: that of Oracle's kernels.
const FRAG_BYTES: u64 = 16 << 10;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// A counter of this node.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[expect(dead_code, reason = "C's counters that count nothing here keep their places")]
        #[repr(usize)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// Names of the counters, in order.
        const NAMES: &[&str] = &[$($name,)*];

        #[cfg(rds_kunit)]
        impl Counter {
            /// Returns the name that `rds-info -c` shows.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// Lost connections.
    ConnReset => "conn_reset",
    RecvDropBadChecksum => "recv_drop_bad_checksum",
    RecvDropOldSeq => "recv_drop_old_seq",
    RecvDropNoSock => "recv_drop_no_sock",
    RecvDropDeadSock => "recv_drop_dead_sock",
    RecvDeliverRaced => "recv_deliver_raced",
    RecvDelivered => "recv_delivered",
    RecvQueued => "recv_queued",
    RecvImmediateRetry => "recv_immediate_retry",
    RecvDelayedRetry => "recv_delayed_retry",
    RecvAckRequired => "recv_ack_required",
    RecvRdmaBytes => "recv_rdma_bytes",
    RecvPing => "recv_ping",
    SendQueueEmpty => "send_queue_empty",
    SendQueueFull => "send_queue_full",
    SendLockContention => "send_lock_contention",
    SendLockQueueRaced => "send_lock_queue_raced",
    SendImmediateRetry => "send_immediate_retry",
    SendDelayedRetry => "send_delayed_retry",
    SendDropAcked => "send_drop_acked",
    SendAckRequired => "send_ack_required",
    SendQueued => "send_queued",
    SendRdma => "send_rdma",
    SendRdmaBytes => "send_rdma_bytes",
    SendPong => "send_pong",
    PageRemainderHit => "page_remainder_hit",
    PageRemainderMiss => "page_remainder_miss",
    CopyToUser => "copy_to_user",
    CopyFromUser => "copy_from_user",
    CongUpdateQueued => "cong_update_queued",
    CongUpdateReceived => "cong_update_received",
    CongSendError => "cong_send_error",
    CongSendBlocked => "cong_send_blocked",
    RecvBytesAdded => "recv_bytes_added_to_sock",
    RecvBytesFreed => "recv_bytes_freed_fromsock",
    SendStuck => "send_stuck_rm",
    MprdsCatchup => "mprds_catchup_tx0_retries",
    IbConnectRaced => "ib_connect_raced",
    /// Connection requests that were dropped unread because the peer had withdrawn them.
    IbListenClosedStale => "ib_listen_closed_stale",
    IbEvtHandlerCall => "ib_evt_handler_call",
    IbTaskletCall => "ib_tasklet_call",
    IbTxCqEvent => "ib_tx_cq_event",
    IbTxRingFull => "ib_tx_ring_full",
    /// Transmissions that paused because the peer had no receive.
    IbTxThrottle => "ib_tx_throttle",
    IbTxSgMappingFailure => "ib_tx_sg_mapping_failure",
    IbTxStalled => "ib_tx_stalled",
    /// Frames that advertised local receives to the peer.
    IbTxCreditUpdates => "ib_tx_credit_updates",
    IbRxCqEvent => "ib_rx_cq_event",
    IbRxRingEmpty => "ib_rx_ring_empty",
    IbRxRefillFromCq => "ib_rx_refill_from_cq",
    IbRxRefillFromThread => "ib_rx_refill_from_thread",
    IbRxAllocLimit => "ib_rx_alloc_limit",
    /// Memory that all pools hold, in units of [`FRAG_BYTES`]. Computed on read.
    IbRxTotalFrags => "ib_rx_total_frags",
    /// Messages that wait to be read. Computed on read.
    IbRxTotalIncs => "ib_rx_total_incs",
    /// Frames that advertised receives of the peer.
    IbRxCreditUpdates => "ib_rx_credit_updates",
    IbAckSent => "ib_ack_sent",
    IbAckSendFailure => "ib_ack_send_failure",
    IbAckSendDelayed => "ib_ack_send_delayed",
    IbAckSendPiggybacked => "ib_ack_send_piggybacked",
    IbAckReceived => "ib_ack_received",
    IbMr8KAlloc => "ib_rdma_mr_8k_alloc",
    IbMr8KFree => "ib_rdma_mr_8k_free",
    IbMr8KUsed => "ib_rdma_mr_8k_used",
    IbMr8KPoolFlush => "ib_rdma_mr_8k_pool_flush",
    IbMr8KPoolWait => "ib_rdma_mr_8k_pool_wait",
    IbMr8KPoolDepleted => "ib_rdma_mr_8k_pool_depleted",
    IbMr1MAlloc => "ib_rdma_mr_1m_alloc",
    IbMr1MFree => "ib_rdma_mr_1m_free",
    IbMr1MUsed => "ib_rdma_mr_1m_used",
    IbMr1MPoolFlush => "ib_rdma_mr_1m_pool_flush",
    IbMr1MPoolWait => "ib_rdma_mr_1m_pool_wait",
    IbMr1MPoolDepleted => "ib_rdma_mr_1m_pool_depleted",
    IbMr8KReused => "ib_rdma_mr_8k_reused",
    IbMr1MReused => "ib_rdma_mr_1m_reused",
    IbAtomicCswp => "ib_atomic_cswp",
    IbAtomicFadd => "ib_atomic_fadd",
    /// Receive rings made deeper because a peer was faster than the refill.
    IbRxRingGrown => "ib_rx_ring_grown",
    /// Receive rings made shallower because they were little used.
    IbRxRingShrunk => "ib_rx_ring_shrunk",
    /// Attempts to send the congestion map or a copied fragment that found no buffer.
    IbTxAllocWait => "ib_tx_alloc_wait",
    /// Attempts to receive a frame that found no memory for its message.
    IbRxAllocWait => "ib_rx_alloc_wait",
    /// Packed frames sent.
    IbTxPacked => "ib_tx_packed",
    /// Packed frames received.
    IbRxPacked => "ib_rx_packed",
    /// Connections given up because of the memory to receive that they held or needed.
    IbRxStarvedDrop => "ib_rx_starved_drop",
    /// Pings whose only purpose is to shrink the receive ring of an idle connection.
    SendProbe => "send_probe",
    /// Headers that broke a rule other than the checksum. The connection was dropped.
    RecvDropBadHeader => "recv_drop_bad_header",
    /// Frames that did not fit their message. The connection was dropped.
    RecvDropBadFragment => "recv_drop_bad_fragment",
    /// Acknowledgements of messages that were never sent. The connection was dropped.
    RecvDropBadAck => "recv_drop_bad_ack",
    /// Frames that came after one that ended the connection.
    RecvDropBroken => "recv_drop_broken",
    /// Messages dropped because the unread data of their socket was far above its receive buffer.
    RecvDropOverrun => "recv_drop_overrun",
    /// Connection requests refused because of their content.
    ConnRejectBadRequest => "conn_reject_bad_request",
    /// Connection requests whose answer waits until it can be sent.
    ConnRequestParked => "conn_request_parked",
    /// Failed attempts to connect.
    ConnAttemptFailed => "conn_attempt_failed",
    /// Pongs that could not be queued.
    SendPongDropped => "send_pong_dropped",
    /// Messages cancelled because their socket was closed.
    SendDropClosed => "send_drop_closed",
    /// Messages cancelled on request of their socket.
    SendDropCancelled => "send_drop_cancelled",
    /// Messages dropped because their operation can never be posted, or because the connection
    /// ended before its outcome was known.
    SendDropOperation => "send_drop_operation",
    /// Congestion maps not stored for lack of memory or room.
    CongUpdateFailed => "cong_update_failed",
    /// Paths connected again because the maps of C RDS may have changed their order.
    CongUpdateRequested => "cong_update_requested",
    /// Local addresses that could not be looked up because there was no memory.
    IbLaddrFailed => "ib_laddr_failed",
    /// Connections and attempts given up because their local address has left its device.
    IbAddrMoved => "ib_addr_moved",
    /// Work requests posted to make a device report overdue completions.
    IbTxWatchdogKick => "ib_tx_watchdog_kick",
    /// Connections given up because their device did not report completions.
    IbTxWatchdogTimeout => "ib_tx_watchdog_timeout",
    /// Queue pairs that the device did not flush, or not in time.
    IbNotFlushed => "ib_not_flushed",
    /// Receives that a peer used up by something other than a message.
    IbRxMisused => "ib_rx_misused",
    /// Connections refused because of the limits on their number.
    ConnRefusedLimit => "conn_refused_limit",
    /// Connections closed because no message went either way for long.
    ConnIdleClosed => "conn_idle_closed",
    /// Keepalives sent to peers that were silent while something waited for them.
    ConnKeepaliveSent => "conn_keepalive_sent",
    /// Connections given up because the peer did not answer a keepalive.
    ConnKeepaliveTimeout => "conn_keepalive_timeout",
    /// Connections forgotten because they were not needed.
    ConnGc => "conn_gc",
    /// Connection requests refused because their GIDs belong to other addresses than their own.
    ConnRejectForged => "conn_reject_forged",
    /// Messages dropped because their socket was closed before they were read.
    RecvDropClosed => "recv_drop_closed",
    /// Connections reset because the peer refused an operation of a local program.
    ConnOpRefused => "conn_op_refused",
    /// Calls that waited, or failed with a retry error, because peers refused other operations of
    /// the user, or because other operations held the bounce buffers.
    SendOpHeld => "send_op_held",
    /// Messages dropped because unread ones of the same user take far more than their share of the
    /// receive memory.
    RecvDropShare => "recv_drop_share",
    /// Messages copied out of their buffers because unread ones of the same user hold more than
    /// their share of the buffers.
    RecvCopiedOut => "recv_copied_out",
    /// Sends that found the share of their user full.
    SendShareFull => "send_share_full",
    /// Connections given up because their device lost or repeated a completion.
    IbOutOfOrder => "ib_completion_out_of_order",
    /// Messages that moved to the first path of their connection over TCP, because the peer has
    /// restarted.
    SendMoved => "send_moved",
    /// Pongs on another path over TCP than the first one, dropped because their port was full.
    RecvDropPong => "recv_drop_pong",
    /// Times that a peer lived and took no messages for the time after which a silent one is given
    /// up.
    ConnStalled => "conn_stalled",
}

/// All counters of this node.
pub(crate) struct Stats {
    counters: PerCpuCounters<{ NAMES.len() }>,
}

impl Stats {
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
        Ok(Self {
            counters: PerCpuCounters::new()?,
        })
    }

    /// Adds 1 to a counter.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn inc(&self, counter: Counter) {
        self.counters.add(counter as usize, 1);
    }

    /// Adds `value` to a counter.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, value: usize) {
        self.counters.add(counter as usize, value as u64);
    }

    /// Adds 1 to `event`, and `bytes` to `amount`.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn count(&self, event: Counter, amount: Counter, bytes: usize) {
        self.counters
            .count(event as usize, amount as usize, bytes as u64);
    }

    /// Returns names and values in order. `pool_bytes` is the memory that the pools hold.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn iter(&self, pool_bytes: u64) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        const FRAGS: usize = Counter::IbRxTotalFrags as usize;
        const INCS: usize = Counter::IbRxTotalIncs as usize;
        NAMES.iter().enumerate().map(move |(index, name)| {
            let value = match index {
                FRAGS => pool_bytes.div_ceil(FRAG_BYTES),
                INCS => self.unread(),
                _ => self.counters.sum(index),
            };
            (*name, value)
        })
    }

    /// Returns the number of messages that were queued but neither read nor dropped. Inexact while
    /// messages are queued or read.
    fn unread(&self) -> u64 {
        let sum = |counter: Counter| self.counters.sum(counter as usize);
        sum(Counter::RecvQueued)
            .saturating_sub(sum(Counter::RecvDelivered))
            .saturating_sub(sum(Counter::RecvDropClosed))
    }
}
