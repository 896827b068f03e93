// SPDX-License-Identifier: GPL-2.0

//! The counters of `RDS_INFO_COUNTERS`.
//!
//! Source: names, meaning and order of the core's and the IB transport's counters are those that
//! `rds-info -c` shows on C RDS; what is ours alone comes after them.

use crate::kapi::sync::PerCpuCounters;
use kernel::prelude::*;

/// Bytes of a fragment, as monitoring tools take it to be: that of Oracle's kernels.
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

        /// The counters' names, in order.
        const NAMES: &[&str] = &[$($name,)*];

        impl Counter {
            /// As `rds-info -c` shows it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// A connection was lost.
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
    /// A request was not looked at because its peer had withdrawn it.
    IbListenClosedStale => "ib_listen_closed_stale",
    IbEvtHandlerCall => "ib_evt_handler_call",
    IbTaskletCall => "ib_tasklet_call",
    IbTxCqEvent => "ib_tx_cq_event",
    IbTxRingFull => "ib_tx_ring_full",
    /// A frame waits, as the peer has no receive for it.
    IbTxThrottle => "ib_tx_throttle",
    IbTxSgMappingFailure => "ib_tx_sg_mapping_failure",
    IbTxStalled => "ib_tx_stalled",
    /// A frame told the peer of receives.
    IbTxCreditUpdates => "ib_tx_credit_updates",
    IbRxCqEvent => "ib_rx_cq_event",
    IbRxRingEmpty => "ib_rx_ring_empty",
    IbRxRefillFromCq => "ib_rx_refill_from_cq",
    IbRxRefillFromThread => "ib_rx_refill_from_thread",
    IbRxAllocLimit => "ib_rx_alloc_limit",
    /// The memory of the pools of all devices, in units of [`FRAG_BYTES`]. Not counted.
    IbRxTotalFrags => "ib_rx_total_frags",
    /// The messages that wait to be read. Not counted.
    IbRxTotalIncs => "ib_rx_total_incs",
    /// A frame told us of receives.
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
    /// A peer was faster than a receive ring was refilled: the ring is deeper now.
    IbRxRingGrown => "ib_rx_ring_grown",
    /// A receive ring was not used much: it is less deep now.
    IbRxRingShrunk => "ib_rx_ring_shrunk",
    /// A frame with several messages was sent.
    IbTxPacked => "ib_tx_packed",
    /// A frame with several messages has arrived.
    IbRxPacked => "ib_rx_packed",
    /// A connection was given up for the memory that it kept or needed.
    IbRxStarvedDrop => "ib_rx_starved_drop",
    /// A ping that only makes the receive ring of an idle connection smaller.
    SendProbe => "send_probe",
    /// A header broke a rule other than its checksum; the connection was dropped.
    RecvDropBadHeader => "recv_drop_bad_header",
    /// A frame did not fit its message; the connection was dropped.
    RecvDropBadFragment => "recv_drop_bad_fragment",
    /// A peer acknowledged what was never sent; the connection was dropped.
    RecvDropBadAck => "recv_drop_bad_ack",
    /// A message was lost for want of memory at a place where its sender cannot be told.
    RecvDropNoMemory => "recv_drop_no_memory",
    /// A frame came after one that ended the connection.
    RecvDropBroken => "recv_drop_broken",
    /// A message was dropped because its socket had far more to read than its receive buffer takes.
    RecvDropOverrun => "recv_drop_overrun",
    /// A connection request was refused for what it said.
    ConnRejectBadRequest => "conn_reject_bad_request",
    /// A connection request waits for its answer until that can be sent.
    ConnRequestParked => "conn_request_parked",
    /// An attempt to connect failed.
    ConnAttemptFailed => "conn_attempt_failed",
    /// A pong could not be queued.
    SendPongDropped => "send_pong_dropped",
    /// A message was cancelled because its socket was closed.
    SendDropClosed => "send_drop_closed",
    /// A message was cancelled because its socket asked for that.
    SendDropCancelled => "send_drop_cancelled",
    /// A message was dropped because the connection ended before its operation was known to be done.
    SendDropOperation => "send_drop_operation",
    /// A congestion map could not be kept for want of memory.
    CongUpdateFailed => "cong_update_failed",
    /// A local address could not be looked up for want of memory.
    IbLaddrFailed => "ib_laddr_failed",
    /// A connection, or an attempt, was given up because its local address has left its device.
    IbAddrMoved => "ib_addr_moved",
    /// A device that had not reported what was posted for a while was given something more to report.
    IbTxWatchdogKick => "ib_tx_watchdog_kick",
    /// A connection was given up because its device did not report what was posted.
    IbTxWatchdogTimeout => "ib_tx_watchdog_timeout",
    /// A device did not flush a queue pair, or not in time.
    IbNotFlushed => "ib_not_flushed",
    /// A peer has used up a receive by something else than a message.
    IbRxMisused => "ib_rx_misused",
    /// A connection was refused because there were too many.
    ConnRefusedLimit => "conn_refused_limit",
    /// A connection was closed because no message went either way for long.
    ConnIdleClosed => "conn_idle_closed",
    /// A peer was asked for an answer, as nothing came from it for long and something waits for it.
    ConnKeepaliveSent => "conn_keepalive_sent",
    /// A connection was given up because its peer did not answer.
    ConnKeepaliveTimeout => "conn_keepalive_timeout",
    /// A connection was forgotten because nobody needed it.
    ConnGc => "conn_gc",
    /// A request for a connection was refused because it names GIDs of other addresses than its own.
    ConnRejectForged => "conn_reject_forged",
    /// A message was dropped because its socket was closed before it was read.
    RecvDropClosed => "recv_drop_closed",
    /// A connection was made anew because the peer refused an operation of a program here.
    ConnOpRefused => "conn_op_refused",
    /// A call waited, or was told to come again, as peers refused other operations of its user.
    SendOpHeld => "send_op_held",
    /// A message was dropped because unread ones of the same user take far more than a share of the
    /// memory to receive with.
    RecvDropShare => "recv_drop_share",
    /// A message was copied out of its buffers because unread ones of the same user take more than
    /// a share of them.
    RecvCopiedOut => "recv_copied_out",
    /// A send found the share of its user full.
    SendShareFull => "send_share_full",
}

/// All counters of this node.
pub(crate) struct Stats {
    counters: PerCpuCounters<{ NAMES.len() }>,
}

impl Stats {
    /// Counters that are all zero. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            counters: PerCpuCounters::new()?,
        })
    }

    /// Adds one. Any context.
    #[inline]
    pub(crate) fn inc(&self, counter: Counter) {
        self.counters.add(counter as usize, 1);
    }

    /// Adds `value`. Any context.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, value: usize) {
        self.counters.add(counter as usize, value as u64);
    }

    /// Counts an event, and the `bytes` that came of it. Any context.
    #[inline]
    pub(crate) fn count(&self, event: Counter, amount: Counter, bytes: usize) {
        self.counters
            .count(event as usize, amount as usize, bytes as u64);
    }

    /// Names and values in order, while pools hold `pool_bytes`. Any context.
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

    /// The messages that were queued to be read, and neither read nor dropped. Inexact while that
    /// goes on.
    fn unread(&self) -> u64 {
        let sum = |counter: Counter| self.counters.sum(counter as usize);
        sum(Counter::RecvQueued)
            .saturating_sub(sum(Counter::RecvDelivered))
            .saturating_sub(sum(Counter::RecvDropClosed))
    }
}
