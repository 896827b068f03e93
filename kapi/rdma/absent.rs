// SPDX-License-Identifier: GPL-2.0

//! Types of devices and of what belongs to them, in a module without RDMA.
//!
//! They have no values. So buffers are never mapped, and operations never have local memory.

pub(super) mod device {
    //! Devices.

    use crate::kapi::rdma::BounceBounds;
    use core::ptr::NonNull;
    use kernel::sync::aref::AlwaysRefCounted;

    /// An RDMA device.
    pub(crate) enum IbDevice {}

    // SAFETY: There are no values.
    unsafe impl AlwaysRefCounted for IbDevice {
        fn inc_ref(&self) {
            match *self {}
        }

        unsafe fn dec_ref(_: NonNull<Self>) {}
    }

    impl IbDevice {
        pub(crate) fn bounce_bounds(&self) -> Option<BounceBounds> {
            match *self {}
        }

        pub(crate) fn numa_node(&self) -> i32 {
            match *self {}
        }
    }
}

pub(super) mod pd {
    //! Protection domains.

    use super::{
        super::domain::Domain,
        device::IbDevice, //
    };
    use kernel::sync::Arc;

    /// A protection domain.
    pub(crate) enum Pd {}

    impl Pd {
        pub(crate) fn device(&self) -> &IbDevice {
            match *self {}
        }

        pub(in crate::kapi::rdma) fn domain(&self) -> &Arc<Domain> {
            match *self {}
        }
    }
}

pub(super) mod shard_mapping {
    //! DMA mappings of shards.

    use super::{
        super::bounce::{
            ArenaAccount,
            Bounced, //
        },
        device::IbDevice, //
    };
    use core::ptr::NonNull;
    use kernel::{
        prelude::*,
        sync::{
            aref::ARef,
            Arc, //
        }, //
    };

    /// A DMA mapping.
    pub(in crate::kapi::rdma) enum ShardMapping {}

    // As drops of mappings are explicit.
    impl Drop for ShardMapping {
        fn drop(&mut self) {
            match *self {}
        }
    }

    impl ShardMapping {
        /// Fails, as the device cannot exist.
        ///
        /// # Safety
        ///
        /// Nothing is required.
        pub(in crate::kapi::rdma) unsafe fn new(
            _: ARef<IbDevice>,
            _: NonNull<u8>,
            _: usize,
            _: Option<&Arc<ArenaAccount>>,
            _: Option<Bounced>,
        ) -> Result<Self> {
            Err(ENODEV)
        }

        pub(in crate::kapi::rdma) fn address(&self) -> u64 {
            match *self {}
        }
    }
}

pub(super) mod mapping {
    //! Local memory of operations.

    use super::super::domain::Domain;
    use kernel::sync::Arc;

    /// Memory that is mapped for a device.
    pub(crate) enum Mapping {}

    /// A mapping that operations use.
    pub(crate) enum LocalDmaMapping {}

    impl LocalDmaMapping {
        pub(in crate::kapi::rdma) fn domain(&self) -> &Domain {
            match *self {}
        }

        pub(in crate::kapi::rdma) fn mapping(&self) -> Option<Arc<Mapping>> {
            match *self {}
        }
    }
}
