// SPDX-License-Identifier: GPL-2.0
//! The counters in words: a sentence about each, for `--drops` and for the help of metrics.
//!
//! The texts are those of `stats/mod.rs` and `tcp_transport/counters.rs` where these have one.
//! `tests/lint/test_monitoring_examples.py` compares them, so the table has each counter of the
//! module.

use std::fmt::{self, Write};

use serde::Serialize;

use crate::record::Counter;

/// The meaning of a larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// More has happened since the module was loaded.
    Event,
    /// The same: something was dropped or refused.
    Drop,
    /// More exists now. The number may become smaller.
    Gauge,
}

/// Names, meanings and texts, in the order of the kernel.
#[rustfmt::skip]
const ALL: &[(&str, Meaning, &str)] = &[
    ("conn_reset", Meaning::Event, "Lost connections."),
    ("recv_drop_bad_checksum", Meaning::Drop, "Frames with a wrong checksum. The connection was dropped."),
    ("recv_drop_old_seq", Meaning::Drop, "Messages that had arrived before, and were sent again."),
    ("recv_drop_no_sock", Meaning::Drop, "Messages for a port to which no socket is bound."),
    ("recv_drop_dead_sock", Meaning::Drop, "Messages for a socket that was being closed."),
    ("recv_deliver_raced", Meaning::Event, "Messages that another reader of the socket took. Only C RDS counts it."),
    ("recv_delivered", Meaning::Event, "Messages that programs have read."),
    ("recv_queued", Meaning::Event, "Messages queued at a socket."),
    ("recv_immediate_retry", Meaning::Event, "Immediate retries of the receive worker. Only C RDS counts it."),
    ("recv_delayed_retry", Meaning::Event, "Delayed retries of the receive worker. Only C RDS counts it."),
    ("recv_ack_required", Meaning::Event, "Received messages that request an acknowledgement."),
    ("recv_rdma_bytes", Meaning::Event, "Bytes that programs have requested to read from memory of peers."),
    ("recv_ping", Meaning::Event, "Pings that arrived."),
    ("send_queue_empty", Meaning::Event, "Runs of the send worker without a message. Only C RDS counts it."),
    ("send_queue_full", Meaning::Event, "Sends that found the send buffer of their socket full."),
    ("send_lock_contention", Meaning::Event, "Runs of the send worker that found it running. Only C RDS counts it."),
    ("send_lock_queue_raced", Meaning::Event, "Messages that were queued as the send worker ended. Only C RDS counts it."),
    ("send_immediate_retry", Meaning::Event, "Immediate retries of the send worker. Only C RDS counts it."),
    ("send_delayed_retry", Meaning::Event, "Delayed retries of the send worker. Only C RDS counts it."),
    ("send_drop_acked", Meaning::Event, "Messages that were acknowledged."),
    ("send_ack_required", Meaning::Event, "Sent messages that request an acknowledgement."),
    ("send_queued", Meaning::Event, "Messages queued to be sent."),
    ("send_rdma", Meaning::Event, "Reads and writes of memory of peers that were accepted."),
    ("send_rdma_bytes", Meaning::Event, "Bytes that programs have requested to write to memory of peers."),
    ("send_pong", Meaning::Event, "Pongs that were sent."),
    ("page_remainder_hit", Meaning::Event, "Messages that fit the rest of a page. Only C RDS counts it."),
    ("page_remainder_miss", Meaning::Event, "Messages that needed another page. Only C RDS counts it."),
    ("copy_to_user", Meaning::Event, "Bytes copied to programs."),
    ("copy_from_user", Meaning::Event, "Bytes copied from programs."),
    ("cong_update_queued", Meaning::Event, "Changed congestion maps queued for a peer."),
    ("cong_update_received", Meaning::Event, "Complete congestion maps that arrived."),
    ("cong_send_error", Meaning::Event, "Sends to a congested port that failed."),
    ("cong_send_blocked", Meaning::Event, "Sends to a congested port that waited."),
    ("recv_bytes_added_to_sock", Meaning::Event, "Bytes of receive buffers that messages have taken."),
    ("recv_bytes_freed_fromsock", Meaning::Event, "Bytes of receive buffers that messages have released."),
    ("send_stuck_rm", Meaning::Event, "Messages that the send worker found stuck. Only C RDS counts it."),
    ("mprds_catchup_tx0_retries", Meaning::Event, "Retries on the first of several paths. Only C RDS counts it."),
    ("ib_connect_raced", Meaning::Event, "Connection requests refused because a local one had priority, or was accepted just before."),
    ("ib_listen_closed_stale", Meaning::Event, "Connection requests that were dropped unread because the peer had withdrawn them."),
    ("ib_evt_handler_call", Meaning::Event, "Calls by a device to report that there are completions."),
    ("ib_tasklet_call", Meaning::Event, "Calls of the tasklet. Only C RDS counts it."),
    ("ib_tx_cq_event", Meaning::Event, "Completions of sends."),
    ("ib_tx_ring_full", Meaning::Event, "Attempts to send that found no room in the send queue."),
    ("ib_tx_throttle", Meaning::Event, "Transmissions that paused because the peer had no receive."),
    ("ib_tx_sg_mapping_failure", Meaning::Event, "Messages that could not be mapped for the device. Only C RDS counts it."),
    ("ib_tx_stalled", Meaning::Event, "Sends that completed late. Only C RDS counts it."),
    ("ib_tx_credit_updates", Meaning::Event, "Frames that advertised local receives to the peer."),
    ("ib_rx_cq_event", Meaning::Event, "Frames that arrived."),
    ("ib_rx_ring_empty", Meaning::Event, "Times that no receive was posted and there was no memory for one."),
    ("ib_rx_refill_from_cq", Meaning::Event, "Refills of a receive ring by the softirq."),
    ("ib_rx_refill_from_thread", Meaning::Event, "Refills of a receive ring by the work item."),
    ("ib_rx_alloc_limit", Meaning::Event, "Refills of a receive ring that found no memory."),
    ("ib_rx_total_frags", Meaning::Gauge, "Memory that all pools hold, in units of 16 KiB."),
    ("ib_rx_total_incs", Meaning::Gauge, "Messages that wait to be read."),
    ("ib_rx_credit_updates", Meaning::Event, "Frames that advertised receives of the peer."),
    ("ib_ack_sent", Meaning::Event, "Frames sent that only acknowledge, and grant credits."),
    ("ib_ack_send_failure", Meaning::Event, "Acknowledgements that found no memory, and wait."),
    ("ib_ack_send_delayed", Meaning::Event, "Acknowledgements that had to wait for room."),
    ("ib_ack_send_piggybacked", Meaning::Event, "Acknowledgements that another frame carried."),
    ("ib_ack_received", Meaning::Event, "Frames received that only acknowledge, and grant credits."),
    ("ib_rdma_mr_8k_alloc", Meaning::Event, "Small memory regions that were allocated. Only C RDS counts them."),
    ("ib_rdma_mr_8k_free", Meaning::Event, "Small memory regions that were freed. Only C RDS counts them."),
    ("ib_rdma_mr_8k_used", Meaning::Event, "Small memory regions that were used. Only C RDS counts them."),
    ("ib_rdma_mr_8k_pool_flush", Meaning::Event, "Small memory regions that were flushed. Only C RDS counts them."),
    ("ib_rdma_mr_8k_pool_wait", Meaning::Event, "Small memory regions that were waited for. Only C RDS counts them."),
    ("ib_rdma_mr_8k_pool_depleted", Meaning::Event, "Small memory regions that were refused for lack of them. Only C RDS counts them."),
    ("ib_rdma_mr_1m_alloc", Meaning::Event, "Large memory regions that were allocated. Only C RDS counts them."),
    ("ib_rdma_mr_1m_free", Meaning::Event, "Large memory regions that were freed. Only C RDS counts them."),
    ("ib_rdma_mr_1m_used", Meaning::Event, "Large memory regions that were used. Only C RDS counts them."),
    ("ib_rdma_mr_1m_pool_flush", Meaning::Event, "Large memory regions that were flushed. Only C RDS counts them."),
    ("ib_rdma_mr_1m_pool_wait", Meaning::Event, "Large memory regions that were waited for. Only C RDS counts them."),
    ("ib_rdma_mr_1m_pool_depleted", Meaning::Event, "Large memory regions that were refused for lack of them. Only C RDS counts them."),
    ("ib_rdma_mr_8k_reused", Meaning::Event, "Small memory regions that were used again. Only C RDS counts them."),
    ("ib_rdma_mr_1m_reused", Meaning::Event, "Large memory regions that were used again. Only C RDS counts them."),
    ("ib_atomic_cswp", Meaning::Event, "Atomic compare-and-swap operations."),
    ("ib_atomic_fadd", Meaning::Event, "Atomic fetch-and-add operations."),
    ("ib_rx_ring_grown", Meaning::Event, "Receive rings made deeper because a peer was faster than the refill."),
    ("ib_rx_ring_shrunk", Meaning::Event, "Receive rings made shallower because they were little used."),
    ("ib_tx_alloc_wait", Meaning::Event, "Attempts to send the congestion map or a copied fragment that found no buffer."),
    ("ib_rx_alloc_wait", Meaning::Event, "Attempts to receive a frame that found no memory for its message."),
    ("ib_tx_packed", Meaning::Event, "Packed frames sent."),
    ("ib_rx_packed", Meaning::Event, "Packed frames received."),
    ("ib_rx_starved_drop", Meaning::Drop, "Connections given up because of the memory to receive that they held or needed."),
    ("send_probe", Meaning::Event, "Pings whose only purpose is to shrink the receive ring of an idle connection."),
    ("recv_drop_bad_header", Meaning::Drop, "Headers that broke a rule other than the checksum. The connection was dropped."),
    ("recv_drop_bad_fragment", Meaning::Drop, "Frames that did not fit their message. The connection was dropped."),
    ("recv_drop_bad_ack", Meaning::Drop, "Acknowledgements of messages that were never sent. The connection was dropped."),
    ("recv_drop_broken", Meaning::Drop, "Frames that came after one that ended the connection."),
    ("recv_drop_overrun", Meaning::Drop, "Messages dropped because the unread data of their socket was far above its receive buffer."),
    ("conn_reject_bad_request", Meaning::Drop, "Connection requests refused because of their content."),
    ("conn_request_parked", Meaning::Event, "Connection requests whose answer waits until it can be sent."),
    ("conn_attempt_failed", Meaning::Event, "Failed attempts to connect."),
    ("send_pong_dropped", Meaning::Drop, "Pongs that could not be queued."),
    ("send_drop_closed", Meaning::Drop, "Messages cancelled because their socket was closed."),
    ("send_drop_cancelled", Meaning::Drop, "Messages cancelled on request of their socket."),
    ("send_drop_operation", Meaning::Drop, "Messages dropped because their operation can never be posted, or because the connection ended before its outcome was known."),
    ("cong_update_failed", Meaning::Event, "Congestion maps not stored for lack of memory or room."),
    ("cong_update_requested", Meaning::Event, "Paths connected again because the maps of C RDS may have changed their order."),
    ("ib_laddr_failed", Meaning::Event, "Local addresses that could not be looked up because there was no memory."),
    ("ib_addr_moved", Meaning::Event, "Connections and attempts given up because their local address has left its device."),
    ("ib_tx_watchdog_kick", Meaning::Event, "Work requests posted to make a device report overdue completions."),
    ("ib_tx_watchdog_timeout", Meaning::Event, "Connections given up because their device did not report completions."),
    ("ib_not_flushed", Meaning::Event, "Queue pairs that the device did not flush, or not in time."),
    ("ib_rx_misused", Meaning::Event, "Receives that a peer used up by something other than a message."),
    ("conn_refused_limit", Meaning::Drop, "Connections refused because of the limits on their number."),
    ("conn_idle_closed", Meaning::Event, "Connections closed because no message went either way for long."),
    ("conn_keepalive_sent", Meaning::Event, "Keepalives sent to peers that were silent while something waited for them."),
    ("conn_keepalive_timeout", Meaning::Event, "Connections given up because the peer did not answer a keepalive."),
    ("conn_gc", Meaning::Event, "Connections forgotten because they were not needed."),
    ("conn_reject_forged", Meaning::Drop, "Connection requests refused because their GIDs belong to other addresses than their own."),
    ("recv_drop_closed", Meaning::Drop, "Messages dropped because their socket was closed before they were read."),
    ("conn_op_refused", Meaning::Event, "Connections reset because the peer refused an operation of a local program."),
    ("send_op_held", Meaning::Event, "Calls that waited, or failed with a retry error, because peers refused other operations of the user, or because other operations held the bounce buffers."),
    ("recv_drop_share", Meaning::Drop, "Messages dropped because unread ones of the same user take far more than their share of the receive memory."),
    ("recv_copied_out", Meaning::Event, "Messages copied out of their buffers because unread ones of the same user hold more than their share of the buffers."),
    ("send_share_full", Meaning::Event, "Sends that found the share of their user full."),
    ("ib_completion_out_of_order", Meaning::Event, "Connections given up because their device lost or repeated a completion."),
    ("send_moved", Meaning::Event, "Messages that moved to the first path of their connection over TCP, because the peer has restarted."),
    ("recv_drop_pong", Meaning::Drop, "Pongs on another path over TCP than the first one, dropped because their port was full."),
    ("conn_stalled", Meaning::Event, "Times that a peer lived and took no messages for the time after which a silent one is given up."),
    ("ib_pool_bytes", Meaning::Gauge, "Bytes of memory that all pools hold."),
    ("ib_pool_bufs_in_use", Meaning::Gauge, "Buffers of the pools that are in use."),
    ("ib_pool_foreign_shards", Meaning::Gauge, "Shards of the pools on another NUMA node than their device."),
    ("ib_pool_refused_limit", Meaning::Event, "Allocations of the pools that got less than requested because of the limit."),
    ("ib_pool_refused_memory", Meaning::Event, "Allocations of the pools that tried to get memory, and got less than requested because there was none."),
    ("ib_pool_small_shards", Meaning::Event, "Shards of the pools that are smaller than the preferred size, for lack of memory."),
    ("ib_pool_shrunk_bytes", Meaning::Event, "Bytes that the pools returned to the kernel at its request."),
    ("ib_mr_kept", Meaning::Gauge, "Memory regions that a device did not release."),
    ("tcp_data_ready_calls", Meaning::Event, "Events that bytes have arrived."),
    ("tcp_write_space_calls", Meaning::Event, "Events that there is room, or that the peer's TCP has acknowledged bytes."),
    ("tcp_sndbuf_full", Meaning::Event, "Sends for which TCP had no room."),
    ("tcp_connect_raced", Meaning::Event, "Attempts to wake a peer up that it did not answer: it had connected meanwhile, or is silent."),
    ("tcp_listen_closed_stale", Meaning::Event, "Connections of peers that ended before their first header."),
    ("tcp_listen_refused", Meaning::Drop, "Connections of peers that sent no valid header in time, or were too many. None of them had a message."),
    ("tcp_rx_alloc_wait", Meaning::Event, "Pauses of reading because there was no memory."),
    ("tcp_tx_alloc_wait", Meaning::Event, "Frames that wait because there was no memory."),
    ("tcp_listen_woken", Meaning::Event, "Connections with which peers asked this node to connect."),
    ("tcp_listen_failed", Meaning::Event, "Failures to listen in a network namespace. Failures to accept connections of peers, or to get their events, because there was no memory."),
    ("tcp_listen_lost", Meaning::Drop, "Connections of peers that were dropped with messages, and requests to connect that were forgotten, because too many waited. Also connections with messages for a path that was not accepted."),
    ("tcp_drain_lost", Meaning::Drop, "Bytes that a teardown has not received, though the local TCP has acknowledged them."),
    ("tcp_listen_no_path", Meaning::Drop, "Connections of peers for a path that was not accepted."),
    ("tcp_grow_failed", Meaning::Event, "Attempts to get the memory to carry many messages that found none."),
    ("tcp_rx_starved_drop", Meaning::Drop, "Connections given up because of the memory to receive that an incomplete message held."),
    ("tcp_data_ready_deferred", Meaning::Event, "Events that bytes have arrived whose bytes the work of the socket receives."),
    ("tcp_rx_in_packets", Meaning::Event, "Pieces of messages that stay in the packets in which they arrived until they are read."),
];

/// Returns the meaning of a counter and the text about it; `None` if this kernel is not known.
pub(crate) fn find(name: &str) -> Option<(Meaning, &'static str)> {
    let mut all = ALL.iter();
    all.find(|(known, ..)| *known == name)
        .map(|&(_, meaning, text)| (meaning, text))
}

/// A number of things that were dropped or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Dropped {
    pub(crate) name: String,
    pub(crate) value: u64,
    /// Explains the number.
    pub(crate) meaning: &'static str,
}

/// Returns the counters of drops; `all`: also those that are 0.
pub(crate) fn drops(counters: &[Counter], all: bool) -> Vec<Dropped> {
    let dropped = |counter: &Counter| {
        let (meaning, text) = find(&counter.name)?;
        let shown = meaning == Meaning::Drop && (all || counter.value > 0);
        shown.then(|| Dropped {
            name: counter.name.clone(),
            value: counter.value,
            meaning: text,
        })
    };
    counters.iter().filter_map(dropped).collect()
}

/// Returns the drops as a table.
pub(crate) fn text(drops: &[Dropped]) -> Result<String, fmt::Error> {
    let mut out = String::from("\nDrops since the module was loaded:\n");
    if drops.is_empty() {
        out.push_str("none\n");
    }
    for drop in drops {
        writeln!(
            out,
            "{:>32} {:>16}  {}",
            drop.name, drop.value, drop.meaning
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(name: &str, value: u64) -> Counter {
        Counter {
            name: name.to_owned(),
            value,
        }
    }

    #[test]
    fn each_text_is_a_sentence() {
        for (name, _, text) in ALL {
            let first = text.chars().next();
            assert!(
                first.is_some_and(char::is_uppercase) && text.ends_with('.'),
                "{name}"
            );
            assert!(!text.contains(['`', '[', '"', '\\']), "{name}");
        }
    }

    #[test]
    fn drops_are_explained() {
        let counters = [
            counter("recv_delivered", 5),
            counter("recv_drop_no_sock", 12),
            counter("recv_drop_old_seq", 0),
            counter("unknown_drop", 3),
        ];
        let lines = [
            "",
            "Drops since the module was loaded:",
            "               recv_drop_no_sock               12  Messages for a port to which no socket is bound.",
        ];
        let found = text(&drops(&counters, false)).unwrap();
        assert_eq!(found.lines().collect::<Vec<_>>(), lines);
        assert_eq!(drops(&counters, true).len(), 2);
        assert!(text(&[]).unwrap().ends_with(":\nnone\n"));
    }
}
