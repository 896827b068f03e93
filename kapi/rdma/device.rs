// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::aref::{ARef, AlwaysRefCounted},
    types::Opaque,
};

/// A registered RDMA device (`struct ib_device`).
///
/// A reference keeps the device registered: its driver waits for the last one before it lets the
/// device go.
///
/// # Invariants
///
/// Instances are always devices with a reference count above zero.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

// SAFETY: Verbs may be called from any thread, and the count is atomic.
unsafe impl Send for Device {}
// SAFETY: As above; nothing here changes the device without the kernel's own locks.
unsafe impl Sync for Device {}

// SAFETY: The count of an `ib_device` keeps it registered and thereby in memory.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {
        // SAFETY: `self` is a device by the type invariants. The count is above zero, so this
        // cannot fail.
        unsafe { bindings::rds_ib_device_try_get(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference and gives it up.
        unsafe { bindings::ib_device_put(obj.as_ptr().cast()) };
    }
}

/// Which device it is: a number that no other device has at the same time, nor for long after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DeviceId(pub(crate) u32);

impl DeviceId {
    /// In order no device is before this one.
    pub(crate) const LEAST: Self = Self(0);
}

/// What a device can do, decided once when it appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCaps {
    /// Most work requests in one queue.
    pub(crate) max_qp_wr: u32,
    /// Most entries in a completion queue.
    pub(crate) max_cqe: u32,
    /// RDMA reads and atomics that a peer may have outstanding here.
    pub(crate) max_responder_resources: u8,
    /// RDMA reads and atomics that may be outstanding from here.
    pub(crate) max_initiator_depth: u8,
    /// Most pages in one fast registration; 0 without [`Self::fast_registration`].
    pub(crate) max_fast_reg_pages: u32,
    /// Memory can be registered by work requests.
    pub(crate) fast_registration: bool,
    /// Peers may change memory of this node in one go, and the other way round.
    pub(crate) atomics: bool,
    /// Also if they look at some of the bits only.
    pub(crate) masked_atomics: bool,
    /// The sink of an RDMA read needs a registration that allows remote writes (iWARP).
    pub(crate) read_sink_is_remote: bool,
    /// A read is reported when what it brings has come, and what was posted after it when it is sent, which may
    /// be before that (iWARP).
    pub(crate) reads_end_late: bool,
    /// The key of the region that a read brings to is looked at when the answer begins, and not for the rest of it, which
    /// goes to whatever the region stands for by then (soft-iWARP).
    pub(crate) reads_run_on: bool,
    /// A write is done when it is sent: that it has arrived is known when something that was sent after it is
    /// answered (iWARP).
    pub(crate) writes_unheard: bool,
    /// A message that finds no receive is sent again later. Otherwise it ends the connection (iWARP).
    pub(crate) receiver_not_ready: bool,
    /// The side that asked for the connection has to send first: what comes from the other side
    /// before that is taken for a part of the handshake, and ends it (iWARP).
    pub(crate) active_side_first: bool,
    /// A send's buffer may be in use until the peer has got it, unless the send reports its own
    /// completion (iWARP: soft-iWARP leaves pages of unreported sends to TCP).
    pub(crate) report_all_sends: bool,
    /// The device reads and writes memory through the CPU, so that buffers need no cache
    /// maintenance.
    pub(crate) virtual_dma: bool,
}

impl Device {
    /// # Safety
    ///
    /// `device` must stay registered for `'a`.
    pub(super) unsafe fn from_raw<'a>(device: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: The caller says that the device is alive, and `Device` is transparent over it.
        unsafe { &*device.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// A reference of its own, or `None` if the device is going.
    ///
    /// # Safety
    ///
    /// `device` must point to an `ib_device` whose memory is not freed during the call.
    pub(super) unsafe fn try_get(device: *mut bindings::ib_device) -> Option<ARef<Self>> {
        let ptr = NonNull::new(device)?;
        // SAFETY: The caller says that this is a device in memory.
        if !unsafe { bindings::rds_ib_device_try_get(device) } {
            return None;
        }
        // SAFETY: The reference just taken belongs to the result; `Device` is transparent.
        Some(unsafe { ARef::from_raw(ptr.cast()) })
    }

    /// Its number.
    pub(crate) fn id(&self) -> DeviceId {
        // SAFETY: `self` is a device by the type invariants.
        DeviceId(unsafe { bindings::rds_ib_device_index(self.as_raw()) })
    }

    /// Calls `f` with the device's name, which an administrator may change at any time.
    pub(crate) fn with_name<R>(&self, f: impl FnOnce(&CStr) -> R) -> R {
        let mut name = [0u8; bindings::IB_DEVICE_NAME_MAX as usize];
        // SAFETY: `self` is a device by the type invariants; there is room for the longest name.
        unsafe { bindings::rds_ib_name(self.as_raw(), name.as_mut_ptr().cast()) };
        f(CStr::from_bytes_until_nul(&name).unwrap_or_default())
    }

    /// Whether the device speaks InfiniBand, RoCE or iWARP, as opposed to usNIC and the like.
    pub(crate) fn has_reliable_connections(&self) -> bool {
        // SAFETY: `self` is a device by the type invariants.
        let node_type = unsafe { bindings::rds_ib_node_type(self.as_raw()) };
        // CAST: node types are small positive numbers.
        node_type == bindings::RDMA_NODE_IB_CA as i32
            || node_type == bindings::RDMA_NODE_RNIC as i32
    }

    /// The NUMA node next to the device, or a negative number.
    pub(crate) fn numa_node(&self) -> i32 {
        // SAFETY: `self` is a device by the type invariants.
        unsafe { bindings::rds_ib_numa_node(self.as_raw()) }
    }

    /// What the slowest port that is active takes in a second, in megabits; 0 if nobody knows.
    /// Sleeps.
    pub(crate) fn port_mbits(&self) -> u32 {
        // SAFETY: `self` is a device by the type invariants.
        unsafe { bindings::rds_ib_port_mbits(self.as_raw()) }
    }

    /// Asks the device what it can do.
    pub(crate) fn caps(&self) -> DeviceCaps {
        let mut limits = bindings::rds_ib_limits::default();
        // SAFETY: `self` is a device by the type invariants; `limits` is ours.
        unsafe { bindings::rds_ib_limits(self.as_raw(), &mut limits) };
        let depth = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        DeviceCaps {
            max_qp_wr: limits.max_qp_wr,
            max_cqe: limits.max_cqe,
            max_responder_resources: depth(limits.max_qp_rd_atom),
            max_initiator_depth: depth(limits.max_qp_init_rd_atom),
            max_fast_reg_pages: limits.max_fast_reg_page_list_len,
            fast_registration: limits.mem_mgt_extensions,
            atomics: limits.atomics,
            masked_atomics: limits.masked_atomics,
            read_sink_is_remote: limits.iwarp,
            reads_end_late: limits.iwarp,
            reads_run_on: limits.reads_run_on,
            writes_unheard: limits.iwarp,
            receiver_not_ready: !limits.iwarp,
            active_side_first: limits.iwarp,
            report_all_sends: limits.iwarp,
            virtual_dma: limits.virt_dma,
        }
    }
}
