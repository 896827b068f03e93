// SPDX-License-Identifier: GPL-2.0

//! What the connection manager tells, and what it is told to connect.

use crate::bindings;
use crate::kapi::errno::Errno;
use core::{ptr::NonNull, slice};
use kernel::{fmt, prelude::*};

/// The consumer's own reason in an IB `REJ`.
// CAST: a reason is a 16-bit number.
const CONSUMER_DEFINED: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as i32;
/// The reason of a rejection on InfiniBand and RoCE: the peer still knows a queue pair of the same
/// number.
pub(crate) const STALE_CONNECTION: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN as i32;

/// An event of a connection identifier.
#[derive(Clone, Copy)]
pub(crate) enum CmEvent<'a> {
    /// The address is resolved and the identifier bound to a device.
    AddrResolved,
    RouteResolved,
    /// The connection is up. The data is the peer's reply on the active side, empty on the passive
    /// side, and may be padded with zeros. On iWARP the passive side may not send yet.
    Established {
        private_data: &'a [u8],
        /// On the active side, but on iWARP, whose drivers mean different things by it: RDMA reads and atomics that
        /// may be outstanding from here, as agreed on.
        initiator_depth: u8,
    },
    /// The peer refused, with a reason of the transport's own (an IB `REJ` reason, or a negative
    /// error number on iWARP).
    Rejected {
        reason: i32,
        /// It was not the manager on the other side, but who listens there. On iWARP it may have
        /// been that nobody listens, and with soft-iWARP that the TCP connection was reset.
        by_consumer: bool,
        /// What that one says, which may be padded with zeros.
        private_data: &'a [u8],
    },
    /// No answer. A negative error number.
    Unreachable {
        status: i32,
    },
    Disconnected,
    /// The device goes: close the queue pair and drop the identifier soon, the removal waits for
    /// it.
    DeviceRemoval,
    /// The network address moved to another device or port.
    AddrChange,
    /// The queue pair's number can be used again.
    TimewaitExit,
    /// The address was not resolved within the time that was given.
    AddrUnknown,
    /// Resolving or connecting failed. A negative error number.
    Error {
        event: u32,
        status: i32,
    },
}

impl<'a> CmEvent<'a> {
    /// `refuses_by_reset`: a peer's refusal comes as a reset of the connection.
    pub(super) fn new(event: &'a bindings::rdma_cm_event, refuses_by_reset: bool) -> Self {
        match event.event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: Of the union's members this event has `conn`.
                let conn = unsafe { &event.param.conn };
                Self::Established {
                    // SAFETY: The manager's event is valid.
                    private_data: unsafe { event_data(conn) },
                    initiator_depth: conn.initiator_depth,
                }
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => {
                // SAFETY: Of the union's members this event has `conn`.
                let conn = unsafe { &event.param.conn };
                // SAFETY: The manager's event is valid.
                let private_data = unsafe { event_data(conn) };
                Self::rejected(event.status, private_data, refuses_by_reset)
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable {
                status: event.status,
            },
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => Self::AddrChange,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR
                if event.status == Error::from(Errno::TimedOut).to_errno() =>
            {
                Self::AddrUnknown
            }
            other => Self::Error {
                event: other,
                status: event.status,
            },
        }
    }

    /// The event of a rejection, from what the manager gives as its status.
    pub(crate) fn rejected(status: i32, private_data: &'a [u8], refuses_by_reset: bool) -> Self {
        Self::Rejected {
            reason: status,
            private_data,
            by_consumer: status == CONSUMER_DEFINED
                || status == Error::from(Errno::ConnectionRefused).to_errno()
                || (refuses_by_reset && status == Error::from(Errno::ConnectionReset).to_errno()),
        }
    }
}

impl CmEvent<'_> {
    /// What has failed, if something has, and the number that says why: see the variants.
    pub(crate) fn failure(&self) -> Option<(&'static str, i32)> {
        match self {
            Self::Rejected { reason, .. } => Some(("rejected", *reason)),
            Self::Unreachable { status } => Some(("no answer", *status)),
            Self::Error { event, status } => Some((name(*event).to_str().ok()?, *status)),
            Self::AddrChange => Some((
                "address change",
                Error::from(Errno::AddressNotAvailable).to_errno(),
            )),
            _ => None,
        }
    }
}

/// The kernel's name of an event number.
fn name(event: u32) -> &'static CStr {
    // SAFETY: The function takes any number.
    let name = unsafe { bindings::rdma_event_msg(event) };
    // SAFETY: The kernel has a constant string for each.
    unsafe { CStr::from_char_ptr(name) }
}

/// For the log.
impl fmt::Display for CmEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddrResolved => f.write_str("address resolved"),
            Self::RouteResolved => f.write_str("route resolved"),
            Self::Established { .. } => f.write_str("established"),
            Self::Rejected { reason, .. } => f.write_fmt(fmt!("rejected, reason {reason}")),
            Self::Unreachable { status } => f.write_fmt(fmt!("no answer, status {status}")),
            Self::Disconnected => f.write_str("disconnected"),
            Self::DeviceRemoval => f.write_str("device removal"),
            Self::AddrChange => f.write_str("address change"),
            Self::TimewaitExit => f.write_str("timewait exit"),
            Self::AddrUnknown => f.write_str("address unknown"),
            Self::Error { event, status } => f.write_fmt(fmt!("{}, status {status}", name(*event))),
        }
    }
}

/// The private data of an event.
///
/// # Safety
///
/// `conn` must come from an event that is being handled, for `'a`.
pub(super) unsafe fn event_data<'a>(conn: &'a bindings::rdma_conn_param) -> &'a [u8] {
    match NonNull::new(conn.private_data.cast_mut().cast::<u8>()) {
        // SAFETY: The caller says that the event is valid; then there is as much data as it says.
        Some(data) => unsafe { slice::from_raw_parts(data.as_ptr(), conn.private_data_len.into()) },
        None => &[],
    }
}

/// What both sides say when they connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnParams<'a> {
    /// At most 56 bytes to connect and 196 to accept on InfiniBand and RoCE.
    pub(crate) private_data: &'a [u8],
    /// RDMA reads and atomics that the peer may have outstanding.
    pub(crate) responder_resources: u8,
    /// RDMA reads and atomics that may be outstanding from here.
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    /// 0 to 7. Ignored by the side that accepts.
    pub(crate) retry_count: u8,
    /// 0 to 6, or 7 for no limit.
    pub(crate) rnr_retry_count: u8,
}

impl ConnParams<'_> {
    pub(super) fn raw(&self) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len().try_into()?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: self.flow_control.into(),
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ..Default::default()
        })
    }
}
