// SPDX-License-Identifier: GPL-2.0

//! The tracepoints `rds:*`. All functions may be called in any context.
//!
//! C header: `bindings/rds_trace.h`. The C functions take plain values, so calls need no `unsafe`.

#![deny(unsafe_code)]

use crate::bindings;
use core::net::Ipv6Addr;

/// Identity of a connection in a trace event.
pub(crate) struct Conn(bindings::rds_trace_conn);

impl Conn {
    /// Names the connection from `laddr` to `faddr`.
    pub(crate) fn new(laddr: Ipv6Addr, faddr: Ipv6Addr, tos: u8) -> Self {
        Self(bindings::rds_trace_conn {
            laddr: laddr.octets(),
            faddr: faddr.octets(),
            tos,
        })
    }

    /// Names a local address, for events without a peer.
    pub(crate) fn local(laddr: Ipv6Addr) -> Self {
        Self::new(laddr, Ipv6Addr::UNSPECIFIED, 0)
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

/// Traces `rds:rds_conn_state`: an event has changed the state of a connection.
pub(crate) fn conn_state(conn: &Conn, event: &str, from: &str, to: &str) {
    bindings::rds_rust_trace_state(conn.0, name(event), name(from), name(to));
}

/// Traces `rds:rds_drop`: `count` messages or frames of a connection are dropped.
pub(crate) fn dropped(conn: &Conn, reason: &str, count: usize) {
    bindings::rds_rust_trace_dropped(conn.0, name(reason), count as u64);
}

/// Traces `rds:rds_error`: an operation of a connection has failed. `what` defines the meaning of
/// `code`.
pub(crate) fn error(conn: &Conn, what: &str, code: i32) {
    bindings::rds_rust_trace_failed(conn.0, name(what), code);
}

/// Traces `rds:rds_congestion`: a local port has become congested or uncongested.
pub(crate) fn congestion(addr: Ipv6Addr, port: u16, full: bool) {
    let addr = bindings::rds_trace_addr {
        octets: addr.octets(),
    };
    bindings::rds_rust_trace_port(addr, port, full);
}
