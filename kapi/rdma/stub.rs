// SPDX-License-Identifier: GPL-2.0

//! A minimal RDMA device for the KUnit suites.
//!
//! It only supports DMA mappings, and records one posted work request. Its DMA device is the PCI
//! device that QEMU emulates, or a device without a bus.

use super::{
    buf::BufMut,
    device::IbDevice,
    domain::{
        Domain,
        DomainUse, //
    },
    operation::{
        LocalPiece,
        Operation,
        OperationItem,
        PieceOwner,
        Verb, //
    },
    pd::Pd,
    shard_mapping::ShardMapping,
    wc_status::WcStatus, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Argument of [`StubDevice::new`]: the NUMA node of the PCI device stays as it is.
pub(crate) const ANY_NODE: i32 = -1;

/// A minimal device. Dropping it waits for the last reference.
///
/// # Invariants
///
/// The pointer is to a device, and `self` owns a reference to it.
pub(crate) struct StubDevice(NonNull<bindings::ib_device>);

impl StubDevice {
    /// Creates a device on NUMA node `node`. A negative number means the node of the PCI device.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if there is no PCI device.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(node: i32) -> Result<Self> {
        Self::make(node, false)
    }

    /// Creates a device without a bus, and so without an IOMMU.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device cannot be created.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn direct() -> Result<Self> {
        Self::make(ANY_NODE, true)
    }

    fn make(node: i32, direct: bool) -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = unsafe { bindings::rds_rust_stub_alloc(node, direct) };
        // INVARIANT: The device is new, and its initial reference is passed to `self`.
        NonNull::new(raw).map(Self).ok_or(ENODEV)
    }

    pub(crate) fn device(&self) -> &IbDevice {
        // SAFETY: The device is alive by the type invariants, and only `drop` frees it.
        unsafe { IbDevice::from_raw(self.0.as_ptr()) }
    }

    /// Returns `true` if an IOMMU translates the addresses of the device.
    pub(crate) fn translates(&self) -> bool {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_stub_translates(self.0.as_ptr()) }
    }

    /// Returns the size of all bounce buffers in bytes, or 0 if the device does not need them.
    pub(crate) fn bounce_bytes(&self) -> usize {
        // SAFETY: The device is alive by the type invariants.
        unsafe { bindings::rds_rust_fake_bounce_bytes(self.0.as_ptr()) }
    }

    /// Maps 2^`order` contiguous pages as for a local operation, and unmaps them.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`, or the error of the mapping.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn map_contiguous(&self, order: u32) -> Result {
        // SAFETY: The device is alive by the type invariants.
        to_result(unsafe { bindings::rds_rust_stub_map(self.0.as_ptr(), order) })
    }

    /// Reads from a DMA address, as the device does.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if nothing is mapped there.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result {
        let (raw, start, len) = (self.0.as_ptr(), bytes.as_mut_ptr(), bytes.len());
        // SAFETY: The device is alive by the type invariants. `start` points to `len` bytes.
        to_result(unsafe { bindings::rds_rust_fake_access(raw, address, start.cast(), len, false) })
    }

    /// Writes to a DMA address, as the device does.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if nothing is mapped there.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result {
        let (raw, start, len) = (self.0.as_ptr(), bytes.as_ptr(), bytes.len());
        let start = start.cast_mut();
        // SAFETY: The device is alive by the type invariants; the bytes are only read.
        to_result(unsafe { bindings::rds_rust_fake_access(raw, address, start.cast(), len, true) })
    }

    /// Maps `size` bytes of a page, from `offset` on, for access by peers, and unmaps them.
    ///
    /// If the device is `untrusted`, the kernel gives it a bounce buffer instead of a part of a
    /// page.
    ///
    /// # Errors
    ///
    /// - `EIO` if the mapping needs a bounce buffer.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn share(&self, offset: u32, size: u32, untrusted: bool) -> Result {
        // CAST: a `u32` fits.
        let size = size as c_ulong;
        // SAFETY: The device is alive by the type invariants.
        to_result(unsafe {
            bindings::rds_rust_stub_share(self.0.as_ptr(), offset, size, untrusted)
        })
    }
}

/// Opcode of an atomic operation on eight bytes of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    FetchAdd,
    CompareSwap,
    MaskedFetchAdd,
    MaskedCompareSwap,
}

/// An atomic work request, as the driver gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) opcode: Opcode,
    pub(crate) signaled: bool,
    pub(crate) lkey: u32,
    pub(crate) length: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) remote_address: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) compare_add_mask: u64,
    pub(crate) swap_mask: u64,
}

/// Owner of an operation that ignores its completion.
struct NoCompletion;

impl Operation for NoCompletion {
    fn number(&self) -> u64 {
        0
    }

    fn owner(&self) -> u64 {
        0
    }

    fn done(&self, _last: bool, _status: WcStatus) {}
}

/// Returns the work request that the driver gets for an atomic operation.
///
/// `pd` belongs to a [`StubDevice`]. The local memory is 8 bytes at 0x7000 with lkey 1, the peer's
/// 8 bytes at 0x9000 with rkey 2.
///
/// # Errors
///
/// - `EINVAL` if the operation is not atomic.
///
/// # Context
///
/// May sleep.
pub(crate) fn asked_for(pd: &Arc<Pd>, verb: Verb, reports: bool) -> Result<Asked> {
    let local = LocalPiece {
        lkey: 1,
        address: 0x7000,
        len: 8,
        of: PieceOwner::Region(pd.domain().clone()),
    };
    let operation = Arc::new(NoCompletion, GFP_KERNEL)?;
    let mut item = OperationItem::new(verb, local, 2, 0x9000, true, operation);
    item.reports = reports;
    if matches!(verb, Verb::Read | Verb::Write) {
        return Err(EINVAL);
    }
    let mut seen = bindings::rds_ib_operation::default();
    // SAFETY: The device is alive while its domain is, and both operations while they are borrowed.
    to_result(unsafe {
        bindings::rds_rust_stub_post(pd.device().as_raw(), &item.raw(), &mut seen)
    })?;
    Ok(Asked {
        opcode: match seen.opcode {
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd,
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => Opcode::CompareSwap,
            bindings::ib_wr_opcode_IB_WR_MASKED_ATOMIC_FETCH_AND_ADD => Opcode::MaskedFetchAdd,
            bindings::ib_wr_opcode_IB_WR_MASKED_ATOMIC_CMP_AND_SWP => Opcode::MaskedCompareSwap,
            _ => return Err(EINVAL),
        },
        signaled: seen.signaled,
        lkey: seen.lkey,
        length: seen.length,
        address: seen.address,
        rkey: seen.rkey,
        remote_address: seen.remote_address,
        compare_add: seen.compare_add,
        swap: seen.swap,
        compare_add_mask: seen.compare_add_mask,
        swap_mask: seen.swap_mask,
    })
}

impl Drop for StubDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns a reference to the device.
        unsafe { bindings::rds_rust_stub_free(self.0.as_ptr()) };
    }
}

/// Replacement for a queue pair. While it exists, the mappings of its protection domain are kept.
pub(crate) struct StubQp {
    _in_domain: DomainUse,
    pd: Arc<Pd>,
}

impl StubQp {
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Self> {
        Ok(Self {
            _in_domain: Domain::enter(pd.domain())?,
            pd: pd.clone(),
        })
    }

    /// Returns the DMA address of a buffer, if it is mapped in the domain.
    pub(crate) fn address(&self, buf: &BufMut) -> Option<u64> {
        buf.address(Arc::as_ptr(self.pd.domain()))
    }

    /// Syncs a buffer as a receive ring does before the CPU reads it.
    pub(crate) fn sync_for_cpu(&self, buf: &BufMut) {
        if let Some(address) = self.address(buf) {
            let device = self.pd.device().as_raw();
            // SAFETY: The buffer is mapped for the device, and stays mapped while the domain is in
            // use.
            unsafe { bindings::rds_rust_ib_dma_sync_for_cpu(device, address, buf.capacity()) };
        }
    }

    /// Syncs a buffer as a receive ring does before it posts the buffer.
    pub(crate) fn sync_for_device(&self, buf: &BufMut) {
        if let Some(address) = self.address(buf) {
            let device = self.pd.device().as_raw();
            // SAFETY: As above.
            unsafe { bindings::rds_rust_ib_dma_sync_for_device(device, address, buf.capacity()) };
        }
    }
}

/// A buffer with its own mapping. The fields are dropped in this order.
pub(crate) struct MappedBuf {
    mapping: ShardMapping,
    buf: BufMut,
}

impl MappedBuf {
    pub(crate) fn new(device: &IbDevice, mut buf: BufMut) -> Result<Self> {
        let bytes = buf.bytes_mut();
        let len = bytes.len();
        let memory = NonNull::from(bytes).cast();
        // SAFETY: The buffer is dropped after its mapping.
        let mapping = unsafe { ShardMapping::new(device.into(), memory, len, None, None) }?;
        Ok(Self { mapping, buf })
    }

    /// Returns the DMA address of the buffer.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// Syncs the buffer as a user that keeps its buffers mapped does for each message.
    pub(crate) fn sync(&self) {
        let (device, len) = (self.mapping.device().as_raw(), self.buf.capacity());
        // SAFETY: `self` owns the mapping.
        unsafe { bindings::rds_rust_ib_dma_sync_for_cpu(device, self.address(), len) };
        // SAFETY: As above.
        unsafe { bindings::rds_rust_ib_dma_sync_for_device(device, self.address(), len) };
    }
}

/// Returns the NUMA node of a buffer.
pub(crate) fn node_of(buf: &BufMut) -> i32 {
    // SAFETY: A buffer lies in pages of the kernel's linear mapping.
    unsafe { bindings::rds_rust_node_of(buf.bytes().as_ptr().cast()) }
}

/// Returns the number of online NUMA nodes.
pub(crate) fn online_nodes() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_online_nodes() }
}

/// Returns the maximum number of connections in the suite `rds_pool_dma`.
pub(crate) fn most_connections() -> usize {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_pool_dma_connections() as usize }
}
