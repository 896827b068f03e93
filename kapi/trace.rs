// SPDX-License-Identifier: GPL-2.0

//! The tracepoints `rds:*`. Any context.
//!
//! C header: `bindings/rds_trace.h`

use crate::bindings;
use core::net::Ipv6Addr;

/// What names a connection in a trace.
pub(crate) struct Conn(bindings::rds_trace_conn);

impl Conn {
    /// The connection of `laddr` to `faddr`.
    pub(crate) fn new(laddr: Ipv6Addr, faddr: Ipv6Addr, tos: u8) -> Self {
        Self(bindings::rds_trace_conn {
            laddr: laddr.octets(),
            faddr: faddr.octets(),
            tos,
        })
    }

    /// An address of this node, where there is no peer to name.
    pub(crate) fn local(laddr: Ipv6Addr) -> Self {
        Self::new(laddr, Ipv6Addr::UNSPECIFIED, 0)
    }
}

/// A name that is as long as the call.
fn name(text: &str) -> bindings::rds_trace_name {
    bindings::rds_trace_name {
        at: text.as_ptr().cast(),
        len: text.len(),
    }
}

/// `rds:rds_conn_state`: an event has changed the state of a connection.
pub(crate) fn conn_state(conn: &Conn, event: &str, from: &str, to: &str) {
    let (event, from, to) = (name(event), name(from), name(to));
    // SAFETY: All of it lives longer than the call, which reads as many bytes of a name as it has.
    unsafe { bindings::rds_trace_state(&conn.0, &event, &from, &to) };
}

/// `rds:rds_drop`: some messages or frames of a connection are dropped.
pub(crate) fn dropped(conn: &Conn, reason: &str, count: usize) {
    let reason = name(reason);
    // SAFETY: As above.
    unsafe { bindings::rds_trace_dropped(&conn.0, &reason, count as u64) };
}

/// `rds:rds_error`: something of a connection has failed; what the number means depends on that.
pub(crate) fn error(conn: &Conn, what: &str, code: i32) {
    let what = name(what);
    // SAFETY: As above.
    unsafe { bindings::rds_trace_failed(&conn.0, &what, code) };
}

/// `rds:rds_congestion`: a port of this node has become full, or has room again.
pub(crate) fn congestion(addr: Ipv6Addr, port: u16, full: bool) {
    // SAFETY: The call reads the 16 bytes of the address.
    unsafe { bindings::rds_trace_port(addr.octets().as_ptr(), port, full) };
}
