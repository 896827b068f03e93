// SPDX-License-Identifier: GPL-2.0

//! RDMA operations on memory of a peer: reads, writes and atomics.
//!
//! A program's operation consists of one or more work requests ([`OperationItem`]). Each names one
//! piece of local memory, and holds what keeps that memory alive until the device is done.
//! Completions and errors go to the [`Operation`].

use super::{
    domain::Domain,
    mapping::{
        LocalDmaMapping,
        Mapping, //
    },
    wc_status::WcStatus, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        sync::Item, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The kind of an operation and its operands, in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    /// Adds to eight bytes and returns the old value. A set bit in `boundary` is the highest bit of
    /// a field: no carry leaves it.
    FetchAdd {
        add: u64,
        boundary: u64,
    },
    /// Replaces the bits of `swap_mask` in eight bytes if the bits of `compare_mask` equal
    /// `compare`. Returns the old value.
    CompareSwap {
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
}

/// Owner of the memory of a piece.
#[derive(Clone)]
pub(super) enum PieceOwner {
    /// An MR of the domain. Its key is valid only while it has memory.
    Region(Arc<Domain>),
    Mapping(Arc<LocalDmaMapping>),
}

/// A contiguous piece of the local memory of an operation.
#[derive(Clone)]
pub(crate) struct LocalPiece {
    pub(super) lkey: u32,
    /// Start address for `lkey`, in bytes.
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) of: PieceOwner,
}

impl LocalPiece {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the domain in which the key is valid.
    pub(super) fn domain(&self) -> &Domain {
        match &self.of {
            PieceOwner::Region(domain) => domain,
            PieceOwner::Mapping(local_mapping) => local_mapping.domain(),
        }
    }

    /// Returns the mapping to hold while the piece is posted.
    ///
    /// # Errors
    ///
    /// [`PostError::Never`] if the memory has been released.
    pub(super) fn keep(&self) -> Result<Option<Arc<Mapping>>, PostError> {
        match &self.of {
            PieceOwner::Region(_) => Ok(None),
            PieceOwner::Mapping(local_mapping) => {
                local_mapping.mapping().map(Some).ok_or(PostError::Never)
            }
        }
    }
}

/// Local memory of an operation, in the order of its bytes.
pub(crate) type Pieces = KVec<LocalPiece>;

/// Receiver of completions of an operation's work requests.
pub(crate) trait Operation: Send + Sync {
    /// Returns the number of the operation, which no other operation has, before or after it.
    fn number(&self) -> u64;

    /// Returns a number that identifies the owner. [`Failure::refused`](super::Failure::refused)
    /// contains it.
    ///
    /// # Context
    ///
    /// Softirq.
    fn owner(&self) -> u64;

    /// Handles the completion of a work request, successful or not. `last` tells whether it is the
    /// last one of the operation.
    ///
    /// It is not called for work requests that the device did not flush when the queue pair was
    /// closed.
    ///
    /// # Context
    ///
    /// Softirq.
    fn done(&self, last: bool, status: WcStatus);
}

/// One work request of an operation.
pub(crate) struct OperationItem {
    /// Mapping that the device uses while the request is posted. Dropped before `operation`, so
    /// that `operation` holds the last reference.
    pub(super) kept: Option<Arc<Mapping>>,
    pub(super) local: LocalPiece,
    verb: Verb,
    rkey: u32,
    remote_address: u64,
    pub(super) last: bool,
    /// Set on posting if the device is to report the completion.
    pub(super) reports: bool,
    /// Set on completion.
    pub(super) status: WcStatus,
    /// Holds the memory and is notified of the completion.
    pub(super) operation: Arc<dyn Operation>,
}

impl OperationItem {
    /// Creates a work request on the peer's MR with the key `rkey`.
    ///
    /// `remote_address` is in bytes and relative to the address space of that MR. `last` marks the
    /// last request of an operation. `operation` keeps the resources behind the local memory alive.
    pub(crate) fn new(
        verb: Verb,
        local: LocalPiece,
        rkey: u32,
        remote_address: u64,
        last: bool,
        operation: Arc<dyn Operation>,
    ) -> Self {
        Self {
            kept: None,
            local,
            verb,
            rkey,
            remote_address,
            last,
            reports: false,
            status: WcStatus::SUCCESS,
            operation,
        }
    }

    /// Returns the kind of the operation and its operands.
    pub(crate) fn verb(&self) -> Verb {
        self.verb
    }

    /// Returns the length of the local memory, in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.local.len
    }

    /// Returns the number of the operation, which all its work requests have.
    pub(crate) fn number(&self) -> u64 {
        self.operation.number()
    }

    /// Returns `true` for the last request of an operation.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// Returns the status of the completion, once there is one.
    pub(crate) fn status(&self) -> WcStatus {
        self.status
    }

    /// Returns `true` for an RDMA READ.
    pub(crate) fn is_read(&self) -> bool {
        self.verb == Verb::Read
    }

    /// Returns whether an atomic operation needs masks; `None` for reads and writes.
    pub(super) fn atomic_with_masks(&self) -> Option<bool> {
        match self.verb {
            Verb::Write | Verb::Read => None,
            Verb::FetchAdd { boundary, .. } => Some(boundary != 0),
            Verb::CompareSwap {
                compare_mask,
                swap_mask,
                ..
            } => Some((compare_mask, swap_mask) != (u64::MAX, u64::MAX)),
        }
    }

    /// Returns `true` if the peer's device has to respond with data. It serves a limited number of
    /// such requests at a time.
    pub(crate) fn is_served_by_peer(&self) -> bool {
        self.verb != Verb::Write
    }

    /// Converts the request to the C structure.
    pub(super) fn raw(&self) -> bindings::rds_ib_operation {
        let mut raw = bindings::rds_ib_operation {
            signaled: self.reports,
            lkey: self.local.lkey,
            length: self.local.len,
            address: self.local.address,
            rkey: self.rkey,
            remote_address: self.remote_address,
            ..Default::default()
        };
        raw.opcode = match self.verb {
            Verb::Write => bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
            Verb::Read => bindings::ib_wr_opcode_IB_WR_RDMA_READ,
            Verb::FetchAdd { add, boundary } => {
                (raw.compare_add, raw.compare_add_mask) = (add, boundary);
                match boundary {
                    0 => bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD,
                    _ => bindings::ib_wr_opcode_IB_WR_MASKED_ATOMIC_FETCH_AND_ADD,
                }
            }
            Verb::CompareSwap {
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => {
                (raw.compare_add, raw.swap) = (compare, swap);
                (raw.compare_add_mask, raw.swap_mask) = (compare_mask, swap_mask);
                match (compare_mask, swap_mask) {
                    (u64::MAX, u64::MAX) => bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP,
                    _ => bindings::ib_wr_opcode_IB_WR_MASKED_ATOMIC_CMP_AND_SWP,
                }
            }
        };
        raw
    }
}

/// Reasons why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostError {
    /// The queue pair accepts nothing now, or is closed. The request may be posted on the next
    /// connection.
    NotNow,
    /// The memory is not available to the queue pair, or the device does not support the request.
    Never,
}

impl PostError {
    /// Classifies an error that the device returned.
    ///
    /// Devices refuse unsupported requests with different errors: `EINVAL`, or `EOPNOTSUPP` (mlx5,
    /// for atomics). So all errors except a few are permanent.
    pub(super) fn of_device(error: Error) -> Self {
        // `EIO` means that the device has failed.
        if [ENOMEM, EAGAIN, EIO, Errno::NotConnected.into()].contains(&error) {
            Self::NotNow
        } else {
            Self::Never
        }
    }
}

/// A work request that was not posted, and the reason.
pub(crate) type RejectedOp = (Item<OperationItem>, PostError);
