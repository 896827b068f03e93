// SPDX-License-Identifier: GPL-2.0

//! The tracepoints `rds:*`. All functions may be called in any context.
//!
//! While a tracepoint is disabled, a function only reads its key: it calls nothing, and converts
//! nothing.
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
use core::net::Ipv6Addr;

/// Identity of a connection in a trace event.
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

    fn raw(&self) -> bindings::rds_trace_conn {
        bindings::rds_trace_conn {
            laddr: self.laddr.octets(),
            faddr: self.faddr.octets(),
            tos: self.tos,
        }
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
