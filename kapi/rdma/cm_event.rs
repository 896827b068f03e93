// SPDX-License-Identifier: GPL-2.0

//! Events of the RDMA connection manager (CM), and connection parameters.

use crate::{
    bindings,
    kapi::errno::Errno, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    fmt,
    prelude::*, //
};

/// Reason code in an IB `REJ` that the peer's consumer chose.
// CAST: a reason is a 16-bit number.
const CONSUMER_DEFINED: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as i32;
/// Reject reason on InfiniBand and RoCE: the peer still has a connection for this queue pair
/// number.
pub(crate) const STALE_CONNECTION: i32 = bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN as i32;

/// An event of a CM id.
#[derive(Clone, Copy)]
pub(crate) enum CmEvent<'a> {
    /// The address is resolved and the id is bound to a device.
    AddrResolved,
    RouteResolved,
    /// The connection is established. On iWARP the passive side may not send yet.
    Established {
        private_data: &'a [u8],
        /// RDMA READs and atomics that this node may have outstanding, as negotiated. Valid only on
        /// the active side, and not on iWARP, whose drivers define it differently.
        initiator_depth: u8,
    },
    /// The peer rejected the connection.
    Rejected {
        reason: i32,
        /// The peer's listener rejected it, not the peer's CM. On iWARP this may also mean that
        /// nothing listens there; on soft-iWARP, that the TCP connection was reset.
        by_consumer: bool,
        /// Private data from the peer's listener, possibly padded with zeros.
        private_data: &'a [u8],
    },
    /// The peer did not answer. `status` is a negative error number.
    Unreachable {
        status: i32,
    },
    Disconnected,
    /// The device is being removed. The receiver closes the queue pair and drops the id soon,
    /// because the removal waits for that.
    DeviceRemoval,
    /// The local IP address moved to another device or port.
    AddrChange,
    /// The TIMEWAIT state has ended; the queue pair number can be reused.
    TimewaitExit,
    /// Address resolution has timed out.
    AddrUnknown,
    /// Address resolution, route resolution or connecting failed. `status` is a negative error
    /// number.
    Error {
        event: u32,
        status: i32,
    },
}

impl<'a> CmEvent<'a> {
    /// Converts an event of the CM. `refuses_by_reset`: a peer rejects by a reset of the
    /// connection.
    pub(super) fn new(event: &'a bindings::rdma_cm_event, refuses_by_reset: bool) -> Self {
        match event.event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddrResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
                // SAFETY: This event sets `conn` in the union.
                let conn = unsafe { &event.param.conn };
                Self::Established {
                    // SAFETY: `conn` belongs to a valid event of the CM.
                    private_data: unsafe { event_data(conn) },
                    initiator_depth: conn.initiator_depth,
                }
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => {
                // SAFETY: This event sets `conn` in the union.
                let conn = unsafe { &event.param.conn };
                // SAFETY: `conn` belongs to a valid event of the CM.
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

    /// Creates the event of a rejection from the status that the CM reports.
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
    /// Returns the text and the number of a failure, or `None` for other events. The variants
    /// define the number.
    pub(crate) fn failure(&self) -> Option<(&'static str, i32)> {
        match self {
            Self::Rejected {
                reason,
                by_consumer: true,
                ..
            } => Some(("refused", *reason)),
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

/// Returns the kernel's name of an event number.
fn name(event: u32) -> &'static CStr {
    // SAFETY: The function accepts any number.
    let name = unsafe { bindings::rdma_event_msg(event) };
    // SAFETY: The function returns a static string for each number.
    unsafe { CStr::from_char_ptr(name) }
}

/// Text for the log.
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

/// Returns the private data of an event.
///
/// # Safety
///
/// `conn` must come from an event that is being handled, for `'a`.
pub(super) unsafe fn event_data<'a>(conn: &'a bindings::rdma_conn_param) -> &'a [u8] {
    match NonNull::new(conn.private_data.cast_mut().cast::<u8>()) {
        // SAFETY: By the caller's guarantee the event is valid, and has `private_data_len` bytes of
        // data.
        Some(data) => unsafe { slice::from_raw_parts(data.as_ptr(), conn.private_data_len.into()) },
        None => &[],
    }
}

/// Parameters of a connection that each side passes to its CM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnParams<'a> {
    /// At most 56 bytes to connect and 196 bytes to accept on InfiniBand and RoCE.
    pub(crate) private_data: &'a [u8],
    /// RDMA READs and atomics that the peer may have outstanding.
    pub(crate) responder_resources: u8,
    /// RDMA READs and atomics that this node may have outstanding.
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    /// 0 to 7. Ignored on the accepting side.
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
