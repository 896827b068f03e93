// SPDX-License-Identifier: GPL-2.0

//! For the KUnit suites: an RDMA device that can do nothing, except that memory can be mapped for it, and that it notes a
//! work request. Memory goes to a PCI device, which QEMU has, or to a device of no bus.

use super::{
    device::Device,
    domain::{Domain, DomainUse},
    operation::{LocalPiece, Operation, OperationItem, PieceOwner, Verb},
    pd::Pd,
    shard::{BufMut, ShardMapping},
    wc_status::WcStatus,
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{error::to_result, prelude::*, sync::Arc};

/// The device. Dropping it waits for the last reference.
///
/// # Invariants
///
/// The pointer is to a device with a reference that `self` owns.
pub(crate) struct StubDevice(NonNull<bindings::ib_device>);

impl StubDevice {
    /// A device next to the NUMA node `node`; a negative number means wherever the PCI device is. Fails
    /// with ENODEV if there is no PCI device. May sleep.
    pub(crate) fn new(node: i32) -> Result<Self> {
        Self::make(node, false)
    }

    /// A device of no bus, which no IOMMU is before. Fails with ENODEV if it cannot be made. May sleep.
    pub(crate) fn direct() -> Result<Self> {
        const ANY_NODE: i32 = -1;
        Self::make(ANY_NODE, true)
    }

    fn make(node: i32, direct: bool) -> Result<Self> {
        // SAFETY: The function has no preconditions.
        let raw = unsafe { bindings::rds_rust_stub_alloc(node, direct) };
        // INVARIANT: The device is new, and its reference ours.
        NonNull::new(raw).map(Self).ok_or(ENODEV)
    }

    pub(crate) fn device(&self) -> &Device {
        // SAFETY: By the type invariants the device is there, and no one frees it but `drop`.
        unsafe { Device::from_raw(self.0.as_ptr()) }
    }

    /// Whether an IOMMU stands between the device and memory.
    pub(crate) fn translates(&self) -> bool {
        // SAFETY: The device is there by the type invariants.
        unsafe { bindings::rds_rust_stub_translates(self.0.as_ptr()) }
    }

    /// The memory that there is for bounce buffers, if the device gets at memory only by way of them, in bytes.
    pub(crate) fn bounce_bytes(&self) -> usize {
        // SAFETY: The device is there by the type invariants.
        unsafe { bindings::rds_rust_stub_bounce_bytes(self.0.as_ptr()) }
    }

    /// Maps contiguous memory, a page times two to the power of `order`, as an operation of this node's has it mapped.
    /// Sleeps.
    pub(crate) fn map_contiguous(&self, order: u32) -> Result {
        // SAFETY: The device is there by the type invariants.
        to_result(unsafe { bindings::rds_rust_stub_map(self.0.as_ptr(), order) })
    }

    /// Reads what is at an address, as the device does. Fails with EFAULT if there is nothing.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result {
        let (raw, start, len) = (self.0.as_ptr(), bytes.as_mut_ptr(), bytes.len());
        // SAFETY: The device is there by the type invariants, and room for so many bytes.
        to_result(unsafe { bindings::rds_rust_stub_access(raw, address, start.cast(), len, false) })
    }

    /// Writes to an address, as the device does. Fails with EFAULT if nothing is there.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result {
        let (raw, start, len) = (self.0.as_ptr(), bytes.as_ptr(), bytes.len());
        let start = start.cast_mut();
        // SAFETY: The device is there by the type invariants; the bytes are only read.
        to_result(unsafe { bindings::rds_rust_stub_access(raw, address, start.cast(), len, true) })
    }

    /// Maps `size` bytes of a page, from `offset` on, as memory that peers may use; whether the kernel trusts the device
    /// with the rest of the page. May sleep.
    pub(crate) fn share(&self, offset: u32, size: u32, untrusted: bool) -> Result {
        // CAST: a `u32` fits.
        let size = size as c_ulong;
        // SAFETY: The device is there by the type invariants.
        to_result(unsafe {
            bindings::rds_rust_stub_share(self.0.as_ptr(), offset, size, untrusted)
        })
    }
}

/// What the device is asked to do with eight bytes of a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    FetchAdd,
    CompareSwap,
    MaskedFetchAdd,
    MaskedCompareSwap,
}

/// An atomic work request, as a device sees it.
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

/// Who is not interested.
struct Nobody;

impl Operation for Nobody {
    fn owner(&self) -> u64 {
        0
    }

    fn done(&self, _last: bool, _status: WcStatus) {}
}

/// What a device of `pd`, which is that of a [`StubDevice`], is asked for by an atomic operation on 8 bytes at 0x7000,
/// whose key is 1, and 8 bytes of a peer at 0x9000, whose key is 2. EINVAL if it is another operation. May sleep.
pub(crate) fn asked_for(pd: &Arc<Pd>, verb: Verb, reports: bool) -> Result<Asked> {
    let local = LocalPiece {
        lkey: 1,
        address: 0x7000,
        len: 8,
        of: PieceOwner::Region(pd.domain().clone()),
    };
    let who = Arc::new(Nobody, GFP_KERNEL)?;
    let mut item = OperationItem::new(verb, local, 2, 0x9000, true, who);
    item.reports = reports;
    if matches!(verb, Verb::Read | Verb::Write) {
        return Err(EINVAL);
    }
    let mut seen = bindings::rds_ib_operation::default();
    // SAFETY: The device is there while its domain is, and both operations while they are borrowed.
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
        // SAFETY: By the type invariants the device is ours.
        unsafe { bindings::rds_rust_stub_free(self.0.as_ptr()) };
    }
}

/// In the place of a queue pair: what is mapped in its protection domain stays mapped.
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

    /// Where the device finds a buffer, if it is mapped in the domain.
    pub(crate) fn address(&self, buf: &BufMut) -> Option<u64> {
        buf.address(Arc::as_ptr(self.pd.domain()))
    }

    /// What a receive ring does with a buffer before the CPU reads it.
    pub(crate) fn sync_for_cpu(&self, buf: &BufMut) {
        if let Some(address) = self.address(buf) {
            let device = self.pd.device().as_raw();
            // SAFETY: The buffer is mapped for the device, and stays so while the domain is in use.
            unsafe { bindings::rds_rust_ib_dma_sync_for_cpu(device, address, buf.capacity()) };
        }
    }

    /// What it does with a buffer before it posts it.
    pub(crate) fn sync_for_device(&self, buf: &BufMut) {
        if let Some(address) = self.address(buf) {
            let device = self.pd.device().as_raw();
            // SAFETY: As above.
            unsafe { bindings::rds_rust_ib_dma_sync_for_device(device, address, buf.capacity()) };
        }
    }
}

/// A buffer with a mapping of its own. Fields are dropped in this order.
pub(crate) struct MappedBuf {
    mapping: ShardMapping,
    buf: BufMut,
}

impl MappedBuf {
    pub(crate) fn new(device: &Device, mut buf: BufMut) -> Result<Self> {
        let bytes = buf.bytes_mut();
        let len = bytes.len();
        let memory = NonNull::from(bytes).cast();
        // SAFETY: The buffer is dropped after its mapping.
        let mapping = unsafe { ShardMapping::new(device.into(), memory, len) }?;
        Ok(Self { mapping, buf })
    }

    /// Where the device finds the buffer.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// What a user that keeps its buffers mapped does with each message.
    pub(crate) fn sync(&self) {
        let (device, len) = (self.mapping.device().as_raw(), self.buf.capacity());
        // SAFETY: The mapping is ours.
        unsafe { bindings::rds_rust_ib_dma_sync_for_cpu(device, self.address(), len) };
        // SAFETY: As above.
        unsafe { bindings::rds_rust_ib_dma_sync_for_device(device, self.address(), len) };
    }
}

/// The NUMA node that a buffer is on.
pub(crate) fn node_of(buf: &BufMut) -> i32 {
    // SAFETY: A buffer lies in pages that the kernel has mapped where it has all memory.
    unsafe { bindings::rds_rust_node_of(buf.bytes().as_ptr().cast()) }
}

/// How many NUMA nodes there are.
pub(crate) fn online_nodes() -> i32 {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_online_nodes() }
}

/// How many connections the suite `rds_pool_dma` goes up to.
pub(crate) fn most_connections() -> usize {
    // SAFETY: The function has no preconditions.
    unsafe { bindings::rds_rust_pool_dma_connections() as usize }
}
