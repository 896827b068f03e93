// SPDX-License-Identifier: GPL-2.0

//! DMA mappings of shards.

use super::{
    bounce::{
        ArenaAccount,
        Bounced, //
    },
    bounce_bounds::BounceBounds,
    device::IbDevice, //
};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

/// A bidirectional DMA mapping. It is unmapped when dropped, in any context.
///
/// # Invariants
///
/// `address` is a DMA mapping of `len` bytes for `device` that `self` owns.
pub(super) struct ShardMapping {
    device: ARef<IbDevice>,
    address: u64,
    len: usize,
    /// Charge for the bounce buffer, if there is one.
    bounced: Option<Bounced>,
}

impl ShardMapping {
    /// Maps `len` bytes at `memory`.
    ///
    /// If that takes a bounce buffer, it is charged to `account`, unless `charged` already has the
    /// charge. Without `account` it is not counted.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` if shards use too many bounce buffers already.
    /// - `ENOMEM` if the memory cannot be mapped.
    ///
    /// # Safety
    ///
    /// The `len` bytes of `memory` must outlive the result.
    pub(super) unsafe fn new(
        device: ARef<IbDevice>,
        memory: NonNull<u8>,
        len: usize,
        account: Option<&Arc<ArenaAccount>>,
        charged: Option<Bounced>,
    ) -> Result<Self> {
        let mut address = 0;
        // SAFETY: The device is registered. The caller guarantees that the memory is valid.
        to_result(unsafe {
            bindings::rds_rust_ib_dma_map(
                device.as_raw(),
                memory.as_ptr().cast(),
                len,
                &mut address,
            )
        })?;
        // INVARIANT: The mapping is new.
        let mut this = Self {
            device,
            address,
            len,
            bounced: charged,
        };
        // SAFETY: The device is registered, and the mapping belongs to it.
        let total =
            unsafe { bindings::rds_rust_ib_dma_bounce_bytes(this.device.as_raw(), address) };
        match (BounceBounds::new(total), account) {
            (None, _) => this.bounced = None,
            (Some(bounds), Some(account)) if this.bounced.is_none() => {
                let charged = Bounced::charge(account, len, bounds);
                this.bounced = Some(charged.ok_or(ENOSPC)?);
            }
            (Some(_), _) => {}
        }
        Ok(this)
    }

    /// Returns the DMA address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    #[cfg(rds_kunit_iommu)]
    pub(super) fn device(&self) -> &IbDevice {
        &self.device
    }
}

impl Drop for ShardMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the mapping.
        unsafe { bindings::rds_rust_ib_dma_unmap(self.device.as_raw(), self.address, self.len) };
    }
}
