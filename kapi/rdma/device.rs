// SPDX-License-Identifier: GPL-2.0

//! RDMA devices: identity, capabilities and properties.

use super::{
    bounce_bounds::BounceBounds,
    device_id::DeviceId, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque, //
};

/// A registered RDMA device (`struct ib_device`).
///
/// A reference keeps the device registered: removal of the device waits for the last reference.
///
/// # Invariants
///
/// Each instance is a device with a reference count above zero.
#[repr(transparent)]
pub(crate) struct IbDevice(Opaque<bindings::ib_device>);

// SAFETY: Verbs may be called from any thread, and the count is atomic.
unsafe impl Send for IbDevice {}
// SAFETY: As above. All changes to the device are made under the kernel's own locks.
unsafe impl Sync for IbDevice {}

// SAFETY: The reference count of an `ib_device` keeps it registered and therefore in memory.
unsafe impl AlwaysRefCounted for IbDevice {
    fn inc_ref(&self) {
        // SAFETY: `self` is a device by the type invariants. The count is above zero, so the call
        // cannot fail.
        unsafe { bindings::rds_rust_ib_device_try_get(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller passes a reference that it owns.
        unsafe { bindings::ib_device_put(obj.as_ptr().cast()) };
    }
}

/// Capabilities of a device, determined once when the device is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCaps {
    /// Maximum number of work requests in one queue.
    pub(crate) max_qp_wr: u32,
    /// Maximum number of entries in a completion queue.
    pub(crate) max_cqe: u32,
    /// Maximum number of RDMA READs and atomics that a peer may have outstanding at this node.
    pub(crate) max_responder_resources: u8,
    /// Maximum number of RDMA READs and atomics that this node may have outstanding.
    pub(crate) max_initiator_depth: u8,
    /// Maximum number of pages in one fast registration; 0 without [`Self::fast_registration`].
    pub(crate) max_fast_reg_pages: u32,
    /// MRs can be registered by work requests.
    pub(crate) fast_registration: bool,
    /// Atomic operations are supported, as initiator and as target.
    pub(crate) atomics: bool,
    /// Masked atomic operations are supported as well.
    pub(crate) masked_atomics: bool,
    /// The sink buffer of an RDMA READ must be registered for remote writes (iWARP).
    pub(crate) read_sink_is_remote: bool,
    /// Completions may be out of order behind a READ (iWARP). A READ completes when its data has
    /// arrived. Later requests complete when they are sent, which may be earlier.
    pub(crate) reads_end_late: bool,
    /// Both ends of a READ check the key of their MR only at the start of the READ response
    /// (soft-iWARP). The rest is read from, or written to, the memory that the MR has by then.
    pub(crate) reads_run_on: bool,
    /// A WRITE completion only means that the data was sent (iWARP). Its arrival is known when the
    /// peer answers something that was sent after it.
    pub(crate) writes_complete_locally: bool,
    /// A message that finds no posted receive is retried later. On iWARP it terminates the
    /// connection instead.
    pub(crate) receiver_not_ready: bool,
    /// The active side of a connection must send first (iWARP). Data from the passive side before
    /// that is taken for a part of the handshake, and terminates the connection.
    pub(crate) active_side_first: bool,
    /// The buffer of an unsignaled send may be in use until the peer has received it. So every send
    /// must be signaled (iWARP: soft-iWARP passes pages of unsignaled sends to TCP).
    pub(crate) report_all_sends: bool,
    /// The device accesses memory through the CPU, so buffers need no cache maintenance.
    pub(crate) virtual_dma: bool,
    /// A work item of the device handles answers of the peer (soft-RoCE). A disconnect that the
    /// peer has sent later may be reported before.
    pub(crate) answers_late: bool,
    /// Bytes of bounce buffers that local memory of operations may take. `None` if the device
    /// needs none.
    pub(crate) bounce_limit: Option<usize>,
}

impl IbDevice {
    /// # Safety
    ///
    /// `device` must stay registered for `'a`.
    pub(super) unsafe fn from_raw<'a>(device: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the caller's guarantee the device is registered. `IbDevice` is transparent
        // over it.
        unsafe { &*device.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// Takes a reference to a device. Returns `None` if the device is being removed.
    ///
    /// # Safety
    ///
    /// `device` must point to an `ib_device` whose memory is not freed during the call.
    pub(super) unsafe fn try_get(device: *mut bindings::ib_device) -> Option<ARef<Self>> {
        let ptr = NonNull::new(device)?;
        // SAFETY: By the caller's guarantee `device` is in memory.
        if !unsafe { bindings::rds_rust_ib_device_try_get(device) } {
            return None;
        }
        // SAFETY: The reference taken above is passed to the result. `IbDevice` is transparent.
        Some(unsafe { ARef::from_raw(ptr.cast()) })
    }

    /// Returns the device's identifier.
    pub(crate) fn id(&self) -> DeviceId {
        // SAFETY: `self` is a device by the type invariants.
        DeviceId(unsafe { bindings::rds_rust_ib_device_index(self.as_raw()) })
    }

    /// Calls `f` with the device's name, which an administrator may change at any time.
    pub(crate) fn with_name<R>(&self, f: impl FnOnce(&CStr) -> R) -> R {
        let mut name = [0u8; bindings::IB_DEVICE_NAME_MAX as usize];
        // SAFETY: `self` is a device by the type invariants; there is room for the longest name.
        unsafe { bindings::rds_rust_ib_name(self.as_raw(), name.as_mut_ptr().cast()) };
        f(CStr::from_bytes_until_nul(&name).unwrap_or_default())
    }

    /// Returns the bounds on bounce buffers if the device accesses all memory through them.
    pub(crate) fn bounce_bounds(&self) -> Option<BounceBounds> {
        // SAFETY: `self` is a device by the type invariants.
        BounceBounds::new(unsafe { bindings::rds_rust_ib_bounce_bytes(self.as_raw()) })
    }

    /// Returns the bounds on bounce buffers if the device may access memory of programs through
    /// them.
    fn operation_bounce_bounds(&self) -> Option<BounceBounds> {
        // SAFETY: `self` is a device by the type invariants.
        BounceBounds::new(unsafe { bindings::rds_rust_ib_operation_bounce_bytes(self.as_raw()) })
    }

    /// Returns `true` for InfiniBand, RoCE and iWARP devices, and `false` for usNIC and others.
    pub(crate) fn has_reliable_connections(&self) -> bool {
        // SAFETY: `self` is a device by the type invariants.
        let node_type = unsafe { bindings::rds_rust_ib_node_type(self.as_raw()) };
        // CAST: node types are small positive numbers.
        node_type == bindings::RDMA_NODE_IB_CA as i32
            || node_type == bindings::RDMA_NODE_RNIC as i32
    }

    /// Returns the NUMA node of the device, or a negative number if unknown.
    pub(crate) fn numa_node(&self) -> i32 {
        // SAFETY: `self` is a device by the type invariants.
        unsafe { bindings::rds_rust_ib_numa_node(self.as_raw()) }
    }

    /// Returns the rate of the slowest active port in Mbit/s. Returns 0 if no rate is known, or if
    /// the device moves data with the CPU.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn port_mbits(&self) -> u32 {
        // SAFETY: `self` is a device by the type invariants.
        unsafe { bindings::rds_rust_ib_port_mbits(self.as_raw()) }
    }

    /// Reads the device's capabilities.
    pub(crate) fn caps(&self) -> DeviceCaps {
        let mut limits = bindings::rds_rust_ib_limits::default();
        // SAFETY: `self` is a device by the type invariants; `limits` is a local variable.
        unsafe { bindings::rds_rust_ib_limits(self.as_raw(), &mut limits) };
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
            writes_complete_locally: limits.iwarp,
            receiver_not_ready: !limits.iwarp,
            active_side_first: limits.iwarp,
            report_all_sends: limits.iwarp,
            virtual_dma: limits.virt_dma,
            answers_late: limits.virt_dma && !limits.iwarp,
            bounce_limit: self.operation_bounce_bounds().map(BounceBounds::operations),
        }
    }
}
