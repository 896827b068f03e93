// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs and the RDMA connection manager (CM).
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)
//!
//! # Ownership
//!
//! Children hold references to their parents: a [`Qp`] to its [`Pd`] and its [`CmId`], a [`Pd`] to
//! its [`IbDevice`]. A posted buffer belongs to the queue pair until the device has completed it.
//! So safe code can neither free nor read a buffer that the device may write.
//!
//! # Removal of a device
//!
//! [`Client::removed`] must destroy all objects of the device:
//!
//! - close every queue pair with [`Qp::close`],
//! - drop every [`CmId`],
//! - revoke every arena with [`Arena::revoke`]; buffers that readers hold stay readable,
//! - drop the [`Pd`].
//!
//! The kernel waits for the last reference to the device.
//!
//! # Without RDMA
//!
//! A module without RDMA has the buffers and operations of upper layers, but no device. Then
//! `absent` has the types of devices and of what belongs to them. They have no values.

/// Declares items that a module without RDMA does not have.
macro_rules! with_rdma {
    ($($item:item)*) => {
        $(
            #[cfg(CONFIG_RDS_RUST_RDMA)]
            $item
        )*
    };
}

#[cfg(not(CONFIG_RDS_RUST_RDMA))]
mod absent;
mod access;
mod arena;
mod arena_stats;
mod batch;
mod bounce;
mod bounce_bounds;
mod buf;
mod device_id;
mod domain;
mod faults;
mod operation;
mod send_item;
mod shard;
mod wc_status;

with_rdma! {
    mod addr;
    mod client;
    mod cm;
    mod cm_event;
    mod cm_listen;
    mod cm_state;
    mod completion;
    mod device;
    mod drain;
    mod events;
    mod failure;
    mod local;
    mod local_qp;
    mod mapping;
    mod mark;
    mod mr;
    mod pd;
    mod poller;
    mod qp;
    mod qp_event;
    mod qp_lifetime;
    mod qp_poll;
    mod qp_ring;
    mod raw_mr;
    mod send_chain;
    mod send_ring;
    mod shard_mapping;
    mod verbs;
    #[cfg(rds_kunit)]
    pub(crate) mod fake;
    #[cfg(rds_kunit_iommu)]
    pub(crate) mod stub;
}

#[cfg(not(CONFIG_RDS_RUST_RDMA))]
use absent::{
    device,
    mapping,
    pd,
    shard_mapping, //
};

pub(crate) use access::Access;
pub(crate) use arena::{
    Arena,
    GrowError, //
};
pub(crate) use arena_stats::ArenaStats;
pub(crate) use batch::Batch;
pub(crate) use bounce_bounds::BounceBounds;
pub(crate) use buf::{
    Buf,
    BufMut, //
};
pub(crate) use device_id::DeviceId;
pub(crate) use faults::FaultInjection;
pub(crate) use operation::{
    LocalPiece,
    Operation,
    OperationItem,
    Pieces,
    PostError,
    RejectedOp,
    Verb, //
};
pub(crate) use pd::Pd;
pub(crate) use send_item::SendItem;
pub(crate) use wc_status::WcStatus;

with_rdma! {
    pub(crate) use client::{
        Client,
        ClientCell,
        ClientRegistration, //
    };
    pub(crate) use cm::{
        CmHandler,
        CmId,
        RnrTimer, //
    };
    pub(crate) use cm_event::{
        CmEvent,
        ConnParams,
        STALE_CONNECTION, //
    };
    pub(crate) use cm_listen::{
        IncomingRequest,
        Listener,
        RequestHandler, //
    };
    pub(crate) use completion::Received;
    pub(crate) use device::{
        DeviceCaps,
        IbDevice, //
    };
    pub(crate) use events::PortWatch;
    pub(crate) use failure::{
        Failure,
        Queue, //
    };
    pub(crate) use local::local_device;
    pub(crate) use local_qp::LocalQp;
    pub(crate) use mapping::{
        LocalDmaMapping,
        Mapping, //
    };
    pub(crate) use mr::{
        Mr,
        Region, //
    };
    pub(crate) use qp::{
        Qp,
        QpHandler, //
    };
    pub(crate) use qp_event::QpEvent;
    pub(crate) use send_chain::{
        SendChain,
        MAX_UNSIGNALED, //
    };
    pub(crate) use send_ring::SendProgress;
    pub(crate) use verbs::QpConfig;
}
