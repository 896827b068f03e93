// SPDX-License-Identifier: GPL-2.0

//! Operations on memory of a peer: reads, writes and atomics.

use super::{
    domain::Domain,
    mr::{LocalDmaMapping, Mapping},
    shard::Buf,
    wc_status::WcStatus,
};
use crate::{
    bindings,
    kapi::{errno::Errno, sync::Item},
};
use kernel::{prelude::*, sync::Arc};

/// What an operation does. All numbers are in the byte order of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    /// Adds to eight bytes, and brings what they were. Each bit of `boundary` is the last that a carry goes to.
    FetchAdd {
        add: u64,
        boundary: u64,
    },
    /// Changes the bits of `swap_mask` in eight bytes if those of `compare_mask` are as expected, and brings what
    /// they were.
    CompareSwap {
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
}

/// Whose memory a piece is.
#[derive(Clone)]
pub(super) enum PieceOwner {
    /// A region of the domain, whose key is good only while it has memory.
    Region(Arc<Domain>),
    Mapping(Arc<LocalDmaMapping>),
}

/// Some of the local memory of an operation, in one piece.
#[derive(Clone)]
pub(crate) struct LocalPiece {
    pub(super) lkey: u32,
    /// Where it begins, as the key counts, in bytes.
    pub(super) address: u64,
    /// In bytes.
    pub(super) len: u32,
    pub(super) of: PieceOwner,
}

impl LocalPiece {
    /// In bytes.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Where the key is good.
    pub(super) fn domain(&self) -> &Domain {
        match &self.of {
            PieceOwner::Region(domain) => domain,
            PieceOwner::Mapping(lent) => lent.domain(),
        }
    }

    /// What is to be kept while it is posted. Fails if the memory was released.
    pub(super) fn keep(&self) -> Result<Option<Arc<Mapping>>, PostError> {
        match &self.of {
            PieceOwner::Region(_) => Ok(None),
            PieceOwner::Mapping(lent) => lent.mapping().map(Some).ok_or(PostError::Never),
        }
    }
}

/// Who hears of the end of work requests.
pub(crate) trait Operation: Send + Sync {
    /// Whose it is: a number that comes back with [`Failure::refused`](super::Failure::refused). Softirq context.
    fn owner(&self) -> u64;

    /// One of its work requests is done, the last of them or another one, or has failed. Softirq context.
    ///
    /// It is not called for what the device had when the queue pair was closed and did not flush.
    fn done(&self, last: bool, status: WcStatus);
}

/// One work request of an operation.
pub(crate) struct OperationItem {
    /// What the device uses while it is posted. Goes before `who`, so that it is not the last to have it.
    pub(super) kept: Option<Arc<Mapping>>,
    pub(super) local: LocalPiece,
    verb: Verb,
    rkey: u32,
    remote_address: u64,
    pub(super) last: bool,
    /// The device is to report it. Set when it is posted.
    pub(super) reports: bool,
    /// Set when it is done.
    pub(super) status: WcStatus,
    /// Who holds the memory, and hears of the end.
    pub(super) who: Arc<dyn Operation>,
}

impl OperationItem {
    /// A work request on the peer's region with the key `rkey`, from `remote_address` on, as that region counts, in
    /// bytes. `last`: its operation has none after it. `who` keeps what the local memory came with.
    pub(crate) fn new(
        verb: Verb,
        local: LocalPiece,
        rkey: u32,
        remote_address: u64,
        last: bool,
        who: Arc<dyn Operation>,
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
            who,
        }
    }

    /// Whether it brings what is there before it is done.
    pub(crate) fn is_read(&self) -> bool {
        self.verb == Verb::Read
    }

    /// Of an atomic operation, whether it has masks.
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

    /// Whether the peer has to answer with bytes: it serves only so many of these at a time.
    pub(crate) fn is_served_by_peer(&self) -> bool {
        self.verb != Verb::Write
    }

    /// As C wants it.
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

/// Why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostError {
    /// The queue pair takes nothing more, or nothing now: on the next connection it may be posted.
    NotNow,
    /// Its memory is not there for the queue pair, or the device takes no such work request.
    Never,
}

impl PostError {
    /// What the error means that a device gives. What devices cannot do they refuse with several numbers: EINVAL, or
    /// EOPNOTSUPP (mlx5, of atomics). So all but a few are for good.
    pub(super) fn of_device(error: Error) -> Self {
        // EIO: the device has failed.
        if [ENOMEM, EAGAIN, EIO, Errno::NotConnected.into()].contains(&error) {
            Self::NotNow
        } else {
            Self::Never
        }
    }
}

/// A work request that was not posted, and why.
pub(crate) type RejectedOp = (Item<OperationItem>, PostError);

/// What a send slot keeps until the device is done with it.
pub(super) enum Posted {
    /// What is sent is kept, and read by nobody.
    Frame(#[expect(dead_code, reason = "kept for the device")] Buf),
    Operation(Item<OperationItem>),
}
