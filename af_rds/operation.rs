// SPDX-License-Identifier: GPL-2.0

//! RDMA and atomic operations that programs attach to messages.
//!
//! Source: `include/uapi/linux/rds.h`, rds-rdma(7).

use super::rdma;
use crate::{
    kapi::{
        errno::Errno,
        net::{
            user,
            Sock, //
        },
        rdma::{
            LocalPiece,
            OperationItem,
            Verb, //
        },
        sync::{
            Fifo,
            Item, //
        }, //
    },
    msg::{
        CompletionNotifier,
        FollowUp,
        NotifyRequest,
        Op,
        RdmaOp, //
    },
    proto::faults::Admission,
    rdma_mem::{
        LocalMemory,
        Mapped,
        OnRelease,
        OpKind,
        RdmaOps, //
    },
    socket::{
        BounceCharge,
        Bound,
        SndbufCharge,
        Socket, //
    },
    stats::{
        Counter,
        Stats, //
    },
    uapi::rdma::{
        Area,
        ArgError,
        AtomicArgs,
        Change,
        RdmaFlags,
        Transfer, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

impl From<ArgError> for Error {
    fn from(bad: ArgError) -> Self {
        match bad {
            ArgError::Invalid => EINVAL,
            ArgError::TooLarge => Errno::MessageTooLong.into(),
        }
    }
}

/// An operation that a control message requests.
pub(super) enum OpRequest {
    Transfer(Transfer),
    Atomic(AtomicArgs),
}

impl OpRequest {
    fn flags(&self) -> RdmaFlags {
        match self {
            Self::Transfer(args) => args.flags,
            Self::Atomic(args) => args.flags,
        }
    }

    fn token(&self) -> u64 {
        match self {
            Self::Transfer(args) => args.token,
            Self::Atomic(args) => args.token,
        }
    }

    /// Returns `true` if a message of `len` bytes exists only for its operation, and so has no
    /// frame.
    pub(super) fn is_silent(&self, len: u32) -> bool {
        len == 0 && self.flags().contains(RdmaFlags::SILENT)
    }

    /// Returns the maximum size of bounce buffers for the local memory, in bytes.
    pub(super) fn bounce_bytes(&self) -> usize {
        match self {
            // CAST: at most a few MiB.
            Self::Transfer(args) => args.bounce_bytes(PAGE_SIZE as u64) as usize,
            Self::Atomic(_) => PAGE_SIZE,
        }
    }

    /// Pins the local memory and maps it on the device. Returns the operation to post, and the
    /// statistics to count once it is handed over.
    ///
    /// `charge` is the send buffer charge of a silent message, `bounce` that for bounce buffers.
    ///
    /// # Errors
    ///
    /// - `ENOBUFS` if the program does not read its notifications.
    /// - `EINVAL` if the arguments are invalid.
    /// - `EMSGSIZE` if the operation is too large.
    /// - `EFAULT` if the memory is not accessible, or an atomic operation is not aligned to 8
    ///   bytes.
    /// - `EOPNOTSUPP` if the device does not support the operation.
    /// - Those of [`rdma::pin`] and of the device.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn prepare(
        &self,
        sk: &Sock<Socket>,
        bound: &Bound,
        charge: Option<SndbufCharge>,
        admission: Admission,
        bounce: Option<BounceCharge>,
    ) -> Result<(KBox<RdmaOp>, OpStats)> {
        if sk.notify_queue.is_full() {
            return Err(Errno::NoBufferSpace.into());
        }
        let flags = self.flags();
        let asks = flags.contains(RdmaFlags::NOTIFY_ME);
        let errors = sk.control.lock().recverr;
        let wanted = NotifyRequest { all: asks, errors };
        let notifier = CompletionNotifier::new(sk, self.token(), wanted, bounce)?;
        let mut local = Local {
            rdma: sk.node.transports.rdma(bound.transport)?,
            bound,
            notifier: notifier.clone(),
            memory: KVVec::new(),
            pieces: KVVec::new(),
            completion_is_local_only: false,
        };
        let (verb, rkey, mut remote) = match self {
            Self::Transfer(args) => {
                let verb = local.add_areas(args)?;
                (verb, args.cookie.rkey, args.remote_address()?)
            }
            Self::Atomic(args) => {
                let verb = local.add_word(args)?;
                (verb, args.cookie.rkey, args.remote_address()?)
            }
        };
        let op_stats = OpStats::new(verb, &local.pieces);
        let behind = match charge {
            None => FollowUp::Message,
            // The program wants the result, which only an acknowledgement of the peer provides.
            Some(_) if local.completion_is_local_only && asks => FollowUp::AckRequest,
            Some(_) => FollowUp::Nothing,
        };
        let completion_is_local_only =
            local.completion_is_local_only && behind != FollowUp::Nothing;
        let op = Op::new(notifier, local.memory, charge, completion_is_local_only)?;
        let mut to_post = Fifo::new();
        let mut pieces = local.pieces.into_iter().peekable();
        while let Some(piece) = pieces.next() {
            let (at, last) = (remote, pieces.peek().is_none());
            remote = remote.saturating_add(piece.len().into());
            let item = OperationItem::new(verb, piece, rkey, at, last, op.clone());
            to_post.push_back(Item::new(item, GFP_KERNEL_ACCOUNT)?);
        }
        let fence = flags.contains(RdmaFlags::FENCE);
        let announces_rkey = matches!(self, Self::Transfer(_)) && behind == FollowUp::Message;
        let used = announces_rkey.then_some(rkey);
        let op = RdmaOp::new(&op, to_post, (fence, behind), used, admission)?;
        Ok((op, op_stats))
    }
}

/// Statistics of an operation.
pub(super) struct OpStats {
    verb: Verb,
    bytes: usize,
}

impl OpStats {
    fn new(verb: Verb, pieces: &[LocalPiece]) -> Self {
        let bytes = pieces
            .iter()
            .fold(0usize, |sum, it| sum.saturating_add(it.len() as usize));
        Self { verb, bytes }
    }

    /// Counts the operation when it is accepted.
    pub(super) fn count(self, stats: &Stats) {
        let Self { verb, bytes } = self;
        match verb {
            Verb::Write => stats.count(Counter::SendRdma, Counter::SendRdmaBytes, bytes),
            Verb::Read => stats.count(Counter::SendRdma, Counter::RecvRdmaBytes, bytes),
            Verb::FetchAdd { .. } => stats.inc(Counter::IbAtomicFadd),
            Verb::CompareSwap { .. } => stats.inc(Counter::IbAtomicCswp),
        }
    }
}

/// Local memory of an operation in preparation.
struct Local<'a> {
    rdma: &'a dyn RdmaOps,
    bound: &'a Bound,
    notifier: Arc<CompletionNotifier>,
    memory: KVVec<KBox<dyn LocalMemory>>,
    pieces: KVVec<LocalPiece>,
    completion_is_local_only: bool,
}

impl Local<'_> {
    /// Adds the areas of a transfer.
    fn add_areas(&mut self, args: &Transfer) -> Result<Verb> {
        // At most 16 KiB.
        let len = (args.local_count as usize).saturating_mul(Area::LEN);
        // The areas are read once, because the program may change them at any time.
        let bytes = user::read_bytes(args.local_address, len)?;
        let areas = || {
            bytes
                .chunks_exact(Area::LEN)
                .filter_map(|it| Area::parse(it.first_chunk()?))
        };
        args.local_bytes(areas(), PAGE_SIZE as u64)?;
        let (verb, needs) = if args.flags.contains(RdmaFlags::READWRITE) {
            (Verb::Write, OpKind::Write)
        } else {
            (Verb::Read, OpKind::Read)
        };
        let boundary = self
            .rdma
            .max_contiguous_map(self.bound.addr, self.bound.scope)?;
        for area in areas() {
            let mut rest = Some(area);
            while let Some(area) = rest {
                let (first, after) = area.split(boundary);
                self.add(first.address, u32::try_from(first.bytes)?, needs)?;
                rest = after;
            }
        }
        Ok(verb)
    }

    /// Adds the buffer for the result of an atomic operation.
    fn add_word(&mut self, args: &AtomicArgs) -> Result<Verb> {
        if args.local_address % u64::from(AtomicArgs::BYTES) != 0 {
            return Err(EFAULT);
        }
        let verb = match args.change {
            Change::FetchAdd { add, boundary } => Verb::FetchAdd { add, boundary },
            Change::CompareSwap {
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => Verb::CompareSwap {
                compare,
                swap,
                compare_mask,
                swap_mask,
            },
        };
        let needs = if args.change.is_masked() {
            OpKind::MaskedAtomic
        } else {
            OpKind::Atomic
        };
        self.add(args.local_address, AtomicArgs::BYTES, needs)?;
        Ok(verb)
    }

    fn add(&mut self, address: u64, len: u32, needs: OpKind) -> Result {
        let writable = needs != OpKind::Write;
        let memory = rdma::pin(self.rdma, self.bound, address, len, writable)?;
        let then: Arc<dyn OnRelease> = self.notifier.clone();
        let Mapped {
            memory,
            pieces,
            completion_is_local_only,
        } = self
            .rdma
            .map(self.bound.addr, self.bound.scope, memory, needs, then)?;
        self.memory.push(memory, GFP_KERNEL_ACCOUNT)?;
        for piece in pieces {
            self.pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        }
        self.completion_is_local_only |= completion_is_local_only;
        Ok(())
    }
}
