// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that RDMA devices access: regions for peers, and local memory of operations.
//!
//! Sockets and operations hold such memory. The transport that has the devices implements these
//! traits.

#![deny(unsafe_code)]

use crate::{
    kapi::{
        pin::PinnedMemory,
        rdma::{
            Access,
            DeviceId,
            Pieces, //
        }, //
    },
    proto::rdma::Cookie, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Memory of a program that peers may access. Dropping it revokes the access soon after.
///
/// # Context
///
/// Dropped in any context except hard interrupt, without a lock.
pub(crate) trait RemoteMemory: Send + Sync {
    fn cookie(&self) -> Cookie;

    /// Returns the device on which the memory is registered.
    ///
    /// # Context
    ///
    /// Any context.
    fn mr_device(&self) -> Arc<dyn MrDevice>;
}

/// A device on which memory of programs is registered. Waiting for it does not depend on other
/// devices.
pub(crate) trait MrDevice: Send + Sync {
    /// Returns the identity of the device.
    ///
    /// # Context
    ///
    /// Any context.
    fn id(&self) -> DeviceId;

    /// Waits until no peer can access memory whose registration on the device was dropped before.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn flush(&self);

    /// Returns `true` if the device was removed, with all its registrations.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn is_removed(&self) -> bool;
}

/// Memory of a program that a local operation uses. Dropping it releases the memory soon after.
///
/// # Context
///
/// Dropped in any context except hard interrupt.
pub(crate) trait LocalMemory: Send + Sync {
    /// Notes that the operation is not known to have succeeded, so the device may still use the
    /// memory.
    ///
    /// # Context
    ///
    /// Any context.
    fn poison(&self);
}

/// Observer of a memory release. It is dropped, in process context, when the memory is released.
pub(crate) trait OnRelease: Send + Sync {}

/// Memory that is mapped for an operation.
pub(crate) struct Mapped {
    pub(crate) memory: KBox<dyn LocalMemory>,
    pub(crate) pieces: Pieces,
    /// A completion of a write does not mean success (iWARP: only that TCP has the data). Success
    /// is known when the peer acknowledges a later message.
    pub(crate) completion_is_local_only: bool,
}

/// The kind of an operation, which decides what the device must support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
    /// Atomic operation.
    Atomic,
    /// Atomic operation with masks.
    MaskedAtomic,
}

/// RDMA operations of a transport, on the devices that have local addresses.
pub(crate) trait RdmaOps: Send + Sync {
    /// Registers memory of a program for access by peers of a local address.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if no device has the address, or the device is being removed.
    /// - `EMSGSIZE` if the memory is too large.
    /// - Any error of the device.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn register(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<KBox<dyn RemoteMemory>>;

    /// Returns the boundary (power of two, in bytes) that one local buffer must not cross. Larger
    /// buffers must be split there.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if no device has the address.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn max_contiguous_map(&self, addr: Ipv6Addr, scope: u32) -> Result<u64>;

    /// Returns the bytes of bounce buffers that local memory of operations may take, if the device
    /// of a local address needs them.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn bounce_limit(&self, addr: Ipv6Addr, scope: u32) -> Result<Option<usize>>;

    /// Maps memory of a program on the device of a local address, for a local operation. `then` is
    /// dropped when the memory is released.
    ///
    /// # Errors
    ///
    /// - Those of [`Self::register`].
    /// - `EOPNOTSUPP` if the device does not support the operation.
    ///
    /// # Context
    ///
    /// Sleeps.
    fn map(
        &self,
        addr: Ipv6Addr,
        scope: u32,
        memory: PinnedMemory,
        needs: OpKind,
        then: Arc<dyn OnRelease>,
    ) -> Result<Mapped>;

    /// Waits until the device of a local address has released all memory that was dropped before.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps.
    fn flush_memory(&self, addr: Ipv6Addr, scope: u32) -> Result;
}
