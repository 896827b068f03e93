// SPDX-License-Identifier: GPL-2.0

//! The tracepoints `rds:*`. All functions may be called in any context.
//!
//! While a tracepoint is disabled, a function only tests its key: it calls nothing, and converts
//! nothing. The test is one instruction without effect if the kernel has static keys and its build
//! folder their assembly for Rust (`bindings/tracepoints.rs`). Otherwise the key is read. Events of
//! each message get their fields from a closure, which runs only if the tracepoint is enabled.
//!
//! C header: `bindings/rds_trace.h`. The C functions take plain values, so calls need no `unsafe`.

#![deny(unsafe_code)]

use crate::{
    bindings::{
        self,
        tracepoints, //
    },
    proto::connect::{
        Event,
        State, //
    },
    stats::Counter, //
};
use core::net::{
    IpAddr,
    Ipv6Addr, //
};

/// Identity of a connection in a trace event.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    laddr: Ipv6Addr,
    faddr: Ipv6Addr,
    tos: u8,
}

impl Conn {
    /// Names the connection from `laddr` to `faddr`.
    pub(crate) fn new(laddr: Ipv6Addr, faddr: Ipv6Addr, tos: u8) -> Self {
        Self { laddr, faddr, tos }
    }

    /// Names a local address, for events without a peer.
    pub(crate) fn local(laddr: Ipv6Addr) -> Self {
        Self::new(laddr, Ipv6Addr::UNSPECIFIED, 0)
    }

    /// Names a local address as [`Self::local`] does.
    pub(crate) fn local_ip(laddr: IpAddr) -> Self {
        Self::local(mapped(laddr))
    }

    fn raw(&self) -> bindings::rds_trace_conn {
        bindings::rds_trace_conn {
            laddr: self.laddr.octets(),
            faddr: self.faddr.octets(),
            tos: self.tos,
        }
    }
}

/// Returns an IPv4 address as a mapped one.
fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    }
}

/// Converts a name to the C structure. A name that is too long is cut.
fn name(text: &str) -> bindings::rds_trace_name {
    let mut name = bindings::rds_trace_name::default();
    for (to, from) in name.text.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    name
}

/// Traces `rds:rds_conn_state`: an event has changed the state of a connection, or
/// begun a step of its preparation.
#[inline]
pub(crate) fn conn_state(conn: &Conn, event: Event, from: State, to: State) {
    if tracepoints::conn_state_enabled() {
        bindings::rds_rust_trace_state(conn.raw(), event as u8, from as u8, to as u8);
    }
}

/// Traces `rds:rds_conn_state`: a connection in state `down` is unused, and is forgotten.
#[inline]
pub(crate) fn conn_forgotten(conn: &Conn) {
    if tracepoints::conn_state_enabled() {
        // CAST: the numbers fit.
        let event = bindings::rds_trace_removed_RDS_TRACE_UNUSED as u8;
        let to = bindings::rds_trace_removed_RDS_TRACE_FORGOTTEN as u8;
        bindings::rds_rust_trace_state(conn.raw(), event, State::Down as u8, to);
    }
}

/// Traces `rds:rds_drop`: `count` messages or frames of a connection are dropped.
#[inline]
pub(crate) fn dropped(conn: &Conn, reason: Counter, count: usize) {
    if tracepoints::drop_enabled() {
        bindings::rds_rust_trace_dropped(conn.raw(), reason as u32, count as u64);
    }
}

/// Traces `rds:rds_error`: an operation of a connection has failed. `what` defines the meaning of
/// `code`.
#[inline]
pub(crate) fn error(conn: &Conn, what: &str, code: i32) {
    if tracepoints::error_enabled() {
        bindings::rds_rust_trace_failed(conn.raw(), name(what), code);
    }
}

/// Traces `rds:rds_congestion`: a local port has become congested or uncongested.
#[inline]
pub(crate) fn congestion(addr: Ipv6Addr, port: u16, full: bool) {
    if tracepoints::congestion_enabled() {
        let addr = bindings::rds_trace_addr {
            octets: addr.octets(),
        };
        bindings::rds_rust_trace_port(addr, port, full);
    }
}

/// Calls `f` in a function of its own, so that the code for a disabled tracepoint stays small.
#[cold]
#[inline(never)]
fn out_of_line(f: impl FnOnce()) {
    f();
}

/// A message in a trace event. Its ports are from the sender to the receiver at either end.
pub(crate) struct TracedMsg {
    pub(crate) conn: Conn,
    /// Number of the transport.
    pub(crate) transport: u8,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) bytes: u32,
    /// Sequence number, or 0 on the loop transport.
    pub(crate) sequence: u64,
}

impl TracedMsg {
    fn raw(&self) -> bindings::rds_trace_message {
        bindings::rds_trace_message {
            sequence: self.sequence,
            bytes: self.bytes,
            sport: self.sport,
            dport: self.dport,
            transport: self.transport,
        }
    }
}

macro_rules! message_events {
    ($($(#[$doc:meta])* $name:ident, $is_enabled:ident => $fire:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(message: impl FnOnce() -> Option<TracedMsg>) {
            if tracepoints::$is_enabled() {
                out_of_line(|| {
                    if let Some(message) = message() {
                        bindings::$fire(message.conn.raw(), message.raw());
                    }
                });
            }
        }
    )*};
}

message_events! {
    /// Traces `rds:rds_msg_queued`: a message is in the send queue of its connection, or will be
    /// delivered on this node.
    msg_queued, msg_queued_enabled => rds_rust_trace_queued;
    /// Traces `rds:rds_msg_posted`: the last fragment of a message is in a frame of the link.
    msg_posted, msg_posted_enabled => rds_rust_trace_posted;
    /// Traces `rds:rds_msg_acked`: the peer has acknowledged a message.
    msg_acked, msg_acked_enabled => rds_rust_trace_acked;
    /// Traces `rds:rds_msg_received`: all of a new message has arrived from a peer.
    msg_received, msg_received_enabled => rds_rust_trace_received;
    /// Traces `rds:rds_msg_delivered`: a message is in the receive queue of its socket.
    msg_delivered, msg_delivered_enabled => rds_rust_trace_delivered;
    /// Traces `rds:rds_msg_read`: a program has read a message.
    msg_read, msg_read_enabled => rds_rust_trace_read;
}

/// Traces `rds:rds_send_completed`: the transport has taken `count` frames or work requests for
/// good, and has `left` others.
#[inline(always)]
pub(crate) fn send_completed(
    conn: impl FnOnce() -> Conn,
    transport: u8,
    count: usize,
    left: impl FnOnce() -> u64,
) {
    if tracepoints::send_completed_enabled() {
        // CAST: small numbers.
        out_of_line(|| {
            let (count, left) = (count as u32, left() as u32);
            bindings::rds_rust_trace_send_completed(conn().raw(), transport, count, left);
        });
    }
}

/// Traces `rds:rds_recv_completed`: `count` frames have arrived in a row, and `left` receives are
/// posted for others.
#[inline(always)]
pub(crate) fn recv_completed(
    conn: impl FnOnce() -> Conn,
    transport: u8,
    count: u32,
    left: impl FnOnce() -> u32,
) {
    if tracepoints::recv_completed_enabled() {
        out_of_line(|| {
            bindings::rds_rust_trace_recv_completed(conn().raw(), transport, count, left());
        });
    }
}

/// Traces `rds:rds_recv_posted`: `count` receives were posted, so that `posted` are.
#[inline(always)]
pub(crate) fn recv_posted(conn: impl FnOnce() -> Conn, count: u32, posted: u32) {
    if tracepoints::recv_posted_enabled() {
        out_of_line(|| bindings::rds_rust_trace_recv_posted(conn().raw(), count, posted));
    }
}

/// Traces `rds:rds_recv_ring_empty`: there is no memory for receives, of which `posted` are posted.
#[inline]
pub(crate) fn recv_ring_empty(conn: impl FnOnce() -> Conn, posted: impl FnOnce() -> u32) {
    if tracepoints::recv_ring_empty_enabled() {
        bindings::rds_rust_trace_recv_ring_empty(conn().raw(), posted());
    }
}

/// The kind of an operation in a trace event. `RDS_TRACE_OPERATIONS` has the names.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum TracedVerb {
    Write = 0,
    Read = 1,
    FetchAdd = 2,
    CompareSwap = 3,
}

/// A work request of an operation in a trace event.
pub(crate) struct TracedOp {
    pub(crate) verb: TracedVerb,
    pub(crate) bytes: u32,
    /// Number of the operation, the same for all its work requests.
    pub(crate) number: u64,
    /// It is the last request of the operation.
    pub(crate) last: bool,
    /// Status of the completion, from `enum ib_wc_status`. 0 before that.
    pub(crate) status: u32,
}

impl TracedOp {
    fn raw(&self) -> bindings::rds_trace_operation {
        bindings::rds_trace_operation {
            number: self.number,
            bytes: self.bytes,
            status: self.status,
            kind: self.verb as u8,
            last: self.last,
        }
    }
}

/// Returns `true` if [`op_posted`] traces.
#[inline(always)]
pub(crate) fn traces_posted_ops() -> bool {
    tracepoints::op_posted_enabled()
}

/// Traces `rds:rds_op_posted`: a work request of an operation was posted.
#[cold]
pub(crate) fn op_posted(conn: &Conn, operation: &TracedOp) {
    bindings::rds_rust_trace_op_posted(conn.raw(), operation.raw());
}

/// Traces `rds:rds_op_completed`: a work request of an operation has completed.
#[inline(always)]
pub(crate) fn op_completed(conn: impl FnOnce() -> Conn, operation: impl FnOnce() -> TracedOp) {
    if tracepoints::op_completed_enabled() {
        out_of_line(|| {
            bindings::rds_rust_trace_op_completed(conn().raw(), operation().raw());
        });
    }
}

/// Memory of a program in a trace event: where it is registered, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct TracedMr {
    addr: Ipv6Addr,
    rkey: u32,
    bytes: u32,
    offered: bool,
}

impl TracedMr {
    /// Names memory of `bytes` on the device of a local address. `rkey` is 0 if it has no key of
    /// its own. If `offered`, peers may access it.
    pub(crate) fn new(addr: IpAddr, rkey: u32, bytes: u32, offered: bool) -> Self {
        Self {
            addr: mapped(addr),
            rkey,
            bytes,
            offered,
        }
    }

    fn raw(&self) -> (bindings::rds_trace_addr, bindings::rds_trace_mr) {
        let addr = bindings::rds_trace_addr {
            octets: self.addr.octets(),
        };
        let mr = bindings::rds_trace_mr {
            rkey: self.rkey,
            bytes: self.bytes,
            offered: self.offered,
        };
        (addr, mr)
    }
}

/// Traces `rds:rds_mr_registered`: memory of a program was registered or mapped.
#[inline]
pub(crate) fn mr_registered(mr: &TracedMr) {
    if tracepoints::mr_registered_enabled() {
        let (addr, mr) = mr.raw();
        bindings::rds_rust_trace_mr_registered(addr, mr);
    }
}

/// Traces `rds:rds_mr_released`: no device accesses the memory any more, and it is released.
#[inline]
pub(crate) fn mr_released(mr: &TracedMr) {
    if tracepoints::mr_released_enabled() {
        let (addr, mr) = mr.raw();
        bindings::rds_rust_trace_mr_released(addr, mr);
    }
}
