// SPDX-License-Identifier: GPL-2.0

//! RDMA and atomic operations that are attached to messages.
//!
//! # Operation
//!
//! Work requests wait in the [`RdmaOp`] of a message, and then in the send queue of a queue pair.
//! Each holds the [`Op`], which holds the local memory. When the last one is done the memory is
//! released, and its [`CompletionNotifier`] notifies the program once, in any case.
//!
//! # Order
//!
//! Releasing memory takes a variable time, and some operations complete only when the peer
//! acknowledges a later frame. Programs are notified in the order of posting. So each
//! [`CompletionNotifier`] holds that of the next operation on its connection.

use crate::{
    kapi::{
        net::{
            poll,
            Sock, //
        },
        rdma::{
            Operation,
            OperationItem,
            PostError,
            RejectedOp,
            WcStatus, //
        },
        sync::{
            new_spinlock_bh,
            Fifo,
            Item,
            ReadOnce,
            SpinLockBh, //
        },
        task::UserId, //
    },
    proto::faults::{
        Admission,
        Standing, //
    },
    rdma_mem::{
        LocalMemory,
        OnRelease, //
    },
    socket::{
        BounceCharge,
        Notification,
        SndbufCharge,
        Socket, //
    },
    uapi::rdma::Status, //
};
use core::mem;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// State of the operation that was posted next on the connection.
enum Next {
    None,
    /// Its notification has to wait.
    Notifier(Arc<CompletionNotifier>),
    /// Its notification need not wait, because this operation has finished.
    Over,
}

/// Result of an operation as far as known. `Dropped` until more is known.
#[pin_data]
pub(crate) struct OpStatus {
    status: Atomic<i32>,
    #[pin]
    next: SpinLockBh<Next>,
}

impl OpStatus {
    /// The message is not queued: the system call reports errors.
    const UNQUEUED: i32 = -1;

    /// Creates the status of an operation whose message is not queued yet.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                status: Atomic::new(Self::UNQUEUED),
                next <- new_spinlock_bh!(Next::None, "OpStatus::next"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn set(&self, status: Status) {
        self.status.store(status as i32, Relaxed);
    }

    /// Returns the status, or `None` as long as the message is not queued.
    pub(crate) fn get(&self) -> Option<Status> {
        Status::from_number(self.status.read_once())
    }

    /// Delays `notifier` until the notifier of this operation has finished. The caller must not
    /// hold the last reference to `notifier`.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn set_next(&self, notifier: Arc<CompletionNotifier>) {
        let mut next = self.next.lock();
        if !matches!(*next, Next::Over) {
            *next = Next::Notifier(notifier);
        }
    }

    /// Notes that the program was notified, if required. Returns the notifier that waited for that.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn end(&self) -> Option<Arc<CompletionNotifier>> {
        match mem::replace(&mut *self.next.lock(), Next::Over) {
            Next::Notifier(notifier) => Some(notifier),
            Next::None | Next::Over => None,
        }
    }

    /// Notes that the message is queued. From now on the result is reported by notification.
    pub(crate) fn queue(&self) {
        self.set(Status::Dropped);
    }

    /// Notes the completion of a work request; `last` if it is the last one. With
    /// `completion_is_local_only` success is known only from the peer's acknowledgement.
    pub(crate) fn done(&self, last: bool, completion_is_local_only: bool, status: WcStatus) {
        if status == WcStatus::SUCCESS {
            if last && !completion_is_local_only {
                self.set(Status::Success);
            }
        } else if status.is_refused_by_peer() {
            self.set(Status::RemoteError);
        } else if !status.is_flush() {
            self.set(Status::OtherError);
        }
    }

    /// Notes that the peer has received a frame behind the last work request.
    pub(crate) fn acknowledge(&self) {
        self.set(Status::Success);
    }

    /// Notes that the program cancelled the operation before anything was posted.
    pub(crate) fn cancel(&self) {
        self.set(Status::Canceled);
    }

    /// Notes that the operation cannot be posted to this peer.
    pub(crate) fn refuse(&self) {
        self.set(Status::OtherError);
    }
}

/// Notifications that a program wants for an operation.
pub(crate) struct NotifyRequest {
    /// Any result.
    pub(crate) all: bool,
    /// Errors. `None` if the program has not set `RDS_RECVERR`.
    pub(crate) errors: Option<bool>,
}

impl NotifyRequest {
    /// Returns `None` if the result is not reported, otherwise `true` if the program requested it.
    fn is_requested(&self, status: Status) -> Option<bool> {
        match (self.all, status, self.errors) {
            (true, ..) => Some(true),
            (false, Status::Success, _) | (false, _, Some(false)) => None,
            (false, _, errors) => Some(errors.is_some()),
        }
    }
}

/// Queues the notification of an operation when dropped, if the program wants it.
///
/// If an operation fails and the program has not set `RDS_RECVERR`, the notification is only for
/// calls that have room for it.
pub(crate) struct CompletionNotifier {
    /// Charge for bounce buffers of the memory, which was released before. Dropped before `sk`,
    /// which keeps the module loaded.
    _bounce: Option<BounceCharge>,
    sk: ARef<Sock<Socket>>,
    outcome: Arc<OpStatus>,
    requested: NotifyRequest,
    /// Allocated in advance, so reporting cannot fail.
    notification: Option<Item<Notification>>,
}

impl CompletionNotifier {
    /// Creates a notifier. `token` is the program's name for the operation. `bounce` is released
    /// with the notifier.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        sk: &Sock<Socket>,
        token: u64,
        requested: NotifyRequest,
        bounce: Option<BounceCharge>,
    ) -> Result<Arc<Self>> {
        let notification = Notification {
            token,
            status: Status::Dropped,
            requested: false,
        };
        let this = Self {
            _bounce: bounce,
            sk: sk.hold(),
            outcome: OpStatus::new()?,
            requested,
            notification: Some(Item::new(notification, GFP_KERNEL_ACCOUNT)?),
        };
        Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
    }

    /// Queues the notification, at most once.
    fn notify(&mut self) {
        let (Some(mut notification), Some(status)) = (self.notification.take(), self.outcome.get())
        else {
            return;
        };
        let Some(requested) = self.requested.is_requested(status) else {
            return;
        };
        if !self.sk.is_closed() {
            notification.status = status;
            notification.requested = requested;
            self.sk.notify_queue.add(notification);
            self.sk.wake_readers(poll::IN);
        }
    }

    /// Queues the notification and returns the notifier that waited for it.
    fn end(&mut self) -> Option<Arc<Self>> {
        self.notify();
        self.outcome.end()
    }
}

impl OnRelease for CompletionNotifier {}

impl Drop for CompletionNotifier {
    fn drop(&mut self) {
        let mut next = self.end();
        // A loop instead of recursion: there may be thousands.
        while let Some(notifier) = next {
            next = Arc::into_unique_or_drop(notifier).and_then(|mut notifier| notifier.end());
        }
    }
}

/// Number of the next operation. It is for all network namespaces, as traces are.
static NEXT_NUMBER: Atomic<u64> = Atomic::new(1);

/// An operation, and the resources that it holds until it is done.
pub(crate) struct Op {
    /// Identifies the operation in traces.
    number: u64,
    /// Held here because the memory may be released earlier, with its device.
    notifier: Arc<CompletionNotifier>,
    memory: KVVec<KBox<dyn LocalMemory>>,
    /// Send buffer charge of a message without a frame.
    _charge: Option<SndbufCharge>,
    /// Success is known only from the peer's acknowledgement, not from the completions.
    completion_is_local_only: bool,
    /// User whose program started the operation.
    user: UserId,
}

impl Op {
    /// Creates an operation that holds `memory` of the calling program.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        notifier: Arc<CompletionNotifier>,
        memory: KVVec<KBox<dyn LocalMemory>>,
        charge: Option<SndbufCharge>,
        completion_is_local_only: bool,
    ) -> Result<Arc<Self>> {
        let this = Self {
            number: NEXT_NUMBER.fetch_add(1, Relaxed),
            notifier,
            memory,
            _charge: charge,
            completion_is_local_only,
            user: UserId::current(),
        };
        Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.notifier.outcome.get() != Some(Status::Success) {
            self.memory.iter().for_each(|it| it.poison());
        }
    }
}

/// The owner of an operation that a peer has refused.
pub(crate) struct Owner {
    pub(crate) user: UserId,
    /// The socket's standing before the refusal.
    pub(crate) standing: Standing,
}

impl Owner {
    /// Encodes the owner as a number for [`Self::from_number`].
    fn number(self) -> u64 {
        u64::from(self.user.number()) << 32 | u64::from(self.standing == Standing::New)
    }

    pub(crate) fn from_number(number: u64) -> Self {
        let standing = if number & 1 != 0 {
            Standing::New
        } else {
            Standing::Bad
        };
        Self {
            // CAST: the upper half.
            user: UserId::from_number((number >> 32) as u32),
            standing,
        }
    }
}

impl Operation for Op {
    fn number(&self) -> u64 {
        self.number
    }

    fn owner(&self) -> u64 {
        let standing = self.notifier.sk.standing();
        Owner {
            user: self.user,
            standing,
        }
        .number()
    }

    fn done(&self, last: bool, status: WcStatus) {
        // A flush does not depend on this program's operation.
        let succeeded = status == WcStatus::SUCCESS;
        if (succeeded && last) || status.is_refused_by_peer() {
            self.notifier.sk.note_operation(succeeded);
        }
        self.notifier
            .outcome
            .done(last, self.completion_is_local_only, status);
    }
}

/// Result of posting a work request.
pub(crate) enum Posted {
    Yes,
    /// The request cannot be posted on a later connection either, see [`PostError::Never`], or the
    /// peer does not serve it.
    Never,
    /// The queue pair is unusable.
    Failed,
}

/// Content that follows the work requests of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// The message of the operation.
    Message,
    /// A frame that the peer acknowledges and does not deliver.
    AckRequest,
    /// Nothing: the message exists only for the operation.
    Nothing,
}

/// The part of an operation that belongs to its message.
pub(crate) struct RdmaOp {
    /// Socket that is notified.
    sk: ARef<Sock<Socket>>,
    /// Notifier of the operation, until [`Self::order_notification`].
    notifier: Option<Arc<CompletionNotifier>>,
    /// Work requests that wait to be posted, in order.
    to_post: Fifo<OperationItem>,
    begun: bool,
    user: UserId,
    pub(crate) admission: Admission,
    outcome: Arc<OpStatus>,
    /// Number of areas of local memory.
    areas: u32,
    /// Kept until the acknowledgement, if that decides about success.
    awaiting_ack: Option<Arc<Op>>,
    /// The message must not be sent before a read is done.
    pub(crate) fence: bool,
    pub(crate) behind: FollowUp,
    /// The peer's key, if the peer is to be notified of its use.
    pub(crate) rkey: Option<u32>,
}

impl RdmaOp {
    /// Creates the message's part of `op`.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(
        op: &Arc<Op>,
        to_post: Fifo<OperationItem>,
        (fence, behind): (bool, FollowUp),
        rkey: Option<u32>,
        admission: Admission,
    ) -> Result<KBox<Self>> {
        let this = Self {
            sk: op.notifier.sk.clone(),
            notifier: Some(op.notifier.clone()),
            to_post,
            begun: false,
            user: op.user,
            admission,
            outcome: op.notifier.outcome.clone(),
            areas: u32::try_from(op.memory.len()).unwrap_or(u32::MAX),
            awaiting_ack: op.completion_is_local_only.then(|| op.clone()),
            fence,
            behind,
            rkey,
        };
        Ok(KBox::new(this, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns `true` if `sk` sent the operation.
    pub(super) fn is_from(&self, sk: &Sock<Socket>) -> bool {
        core::ptr::eq(&*self.sk, sk)
    }

    /// Returns `true` if the socket that sent the operation is closed.
    pub(super) fn is_from_closed(&self) -> bool {
        self.sk.is_closed()
    }

    /// Notes that the message is queued. From now on the result is reported by notification.
    pub(super) fn queue(&self) {
        self.outcome.queue();
    }

    /// Orders the notification behind that of `last`, the previously posted operation. Called with
    /// `Path::tx` held, before the first work request is posted.
    pub(crate) fn order_notification(&mut self, last: &mut Option<Arc<OpStatus>>) {
        let Some(notifier) = self.notifier.take() else {
            return;
        };
        // The requests to post hold `notifier` as well, so this does not drop the last reference.
        if let Some(last) = last.replace(self.outcome.clone()) {
            last.set_next(notifier);
        }
    }

    /// Returns `true` if the next work request needs a responder at the peer.
    pub(crate) fn needs_responder(&self) -> bool {
        let first = self.to_post.front();
        first.is_some_and(OperationItem::is_served_by_peer)
    }

    /// Fails the operation because its peer has no responder.
    pub(crate) fn refuse(&self) {
        self.outcome.refuse();
    }

    /// Posts the next work request with `post`, which may return it.
    pub(crate) fn post_next(
        &mut self,
        post: impl FnOnce(Item<OperationItem>) -> Result<(), RejectedOp>,
    ) -> Posted {
        let Some(item) = self.to_post.pop_front() else {
            return Posted::Failed;
        };
        let Err((item, why)) = post(item) else {
            self.begun = true;
            return Posted::Yes;
        };
        // Dropping the request, and all that it holds, is not allowed here.
        self.to_post.push_front(item);
        match why {
            PostError::Never if !self.begun => Posted::Never,
            // A partially posted operation is dropped with the connection.
            PostError::Never | PostError::NotNow => Posted::Failed,
        }
    }

    /// Returns `true` if a work request was posted.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns the user whose program started the operation, and the present standing of its
    /// socket.
    pub(crate) fn owner(&self) -> (UserId, Standing) {
        (self.user, self.sk.standing())
    }

    /// Returns `true` if work requests wait to be posted.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.to_post.is_empty()
    }

    /// Returns `true` if the next work request is a read.
    pub(super) fn reads_next(&self) -> bool {
        self.to_post.front().is_some_and(OperationItem::is_read)
    }

    /// Returns `true` if some work requests were posted and others were not.
    pub(super) fn is_partially_sent(&self) -> bool {
        self.begun && self.is_waiting()
    }

    /// Returns `true` if success is known only from the peer's acknowledgement.
    pub(super) fn is_awaiting_ack(&self) -> bool {
        self.awaiting_ack.is_some()
    }

    /// Returns the number of areas of local memory, which the end of the operation releases.
    pub(crate) fn areas(&self) -> u32 {
        self.areas
    }

    /// Returns the number of areas of local memory that are kept until the acknowledgement.
    pub(super) fn kept_areas(&self) -> usize {
        self.awaiting_ack
            .as_ref()
            .map_or(0, |_| self.areas as usize)
    }

    /// Notes that the peer has received the message.
    pub(super) fn acknowledge(&self) {
        if self.awaiting_ack.is_some() && !self.is_waiting() {
            self.outcome.acknowledge();
        }
    }

    /// Returns `true` if the operation was started on a queue pair that is gone, and is not known
    /// to have succeeded.
    pub(super) fn is_lost(&self) -> bool {
        self.begun && self.outcome.get() != Some(Status::Success)
    }

    /// Cancels the operation, unless it was started.
    pub(super) fn cancel(&self) {
        if !self.begun {
            self.outcome.cancel();
        }
    }
}
