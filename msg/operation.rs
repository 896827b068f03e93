// SPDX-License-Identifier: GPL-2.0

//! Operations on memory of peers that go with messages.
//!
//! An operation goes through these hands: its work requests wait in the [`RdmaOp`] of a message, then in the send
//! queue of a queue pair. All of them hold the [`Op`], which holds the local memory. When the last one is done, the
//! memory goes to be released, and the [`CompletionNotifier`] that comes with it tells the program, once, whatever has happened.
//!
//! Memory takes more or less time to be released, and some operations are done only when the peer has acknowledged what
//! came after them. So that programs are told in the order in which operations were posted, each one's [`CompletionNotifier`] keeps
//! that of the next on its connection.

use super::{notify_queue::Notification, SndbufCharge, Socket};
use crate::conn::{LocalMemory, OnRelease};
use crate::kapi::{
    net::{poll, Sock},
    rdma::{Operation, OperationItem, PostError, RejectedOp, WcStatus},
    sync::{new_spinlock_bh, Fifo, Item, Peek, SpinLockBh},
    task::UserId,
};
use crate::proto::{faults::Standing, rdma::Status};
use core::mem;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// What was posted on a connection after an operation.
enum Next {
    None,
    /// Its program is told later.
    Notifier(Arc<CompletionNotifier>),
    /// It does not wait, as this operation is over.
    Over,
}

/// How an operation has ended, as far as it is known: "dropped" until more is.
#[pin_data]
pub(crate) struct OpStatus {
    status: Atomic<i32>,
    #[pin]
    next: SpinLockBh<Next>,
}

impl OpStatus {
    /// Its message is not queued: the system call tells.
    const UNQUEUED: i32 = -1;

    /// Of an operation whose message is not queued yet. Fails with ENOMEM. May sleep.
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

    /// `None` as long as the message is not queued.
    pub(crate) fn get(&self) -> Option<Status> {
        Status::from_number(self.status.peek())
    }

    /// Has a program wait to be told until the one of this operation was. Any context but a hard interrupt; what is told
    /// must not be about to go.
    fn precede(&self, told: Arc<CompletionNotifier>) {
        let mut next = self.next.lock();
        if !matches!(*next, Next::Over) {
            *next = Next::Notifier(told);
        }
    }

    /// The program was told, if it is to be. Returns who has waited for that. Any context but a hard interrupt.
    fn end(&self) -> Option<Arc<CompletionNotifier>> {
        match mem::replace(&mut *self.next.lock(), Next::Over) {
            Next::Notifier(told) => Some(told),
            Next::None | Next::Over => None,
        }
    }

    /// The message is queued: from now on the program is told.
    pub(crate) fn queue(&self) {
        self.set(Status::Dropped);
    }

    /// A work request is done, the last one or another one. `completion_is_local_only`: that it is done does not mean that it went
    /// well, which the peer's acknowledgement does.
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

    /// The peer has got what came after the last work request.
    pub(crate) fn acknowledge(&self) {
        self.set(Status::Success);
    }

    /// The program does not want it any more, and nothing was posted.
    pub(crate) fn cancel(&self) {
        self.set(Status::Canceled);
    }

    /// Nothing of it can be posted to this peer.
    pub(crate) fn refuse(&self) {
        self.set(Status::OtherError);
    }
}

/// What a program wants to be told of an operation.
pub(crate) struct Wanted {
    /// How it ends.
    pub(crate) all: bool,
    /// That it fails. `None` if the program has not said.
    pub(crate) errors: Option<bool>,
}

impl Wanted {
    /// Whether the program has asked for this, if it is to be told of it at all.
    fn asked(&self, status: Status) -> Option<bool> {
        match (self.all, status, self.errors) {
            (true, ..) => Some(true),
            (false, Status::Success, _) | (false, _, Some(false)) => None,
            (false, _, errors) => Some(errors.is_some()),
        }
    }
}

/// Who tells the program how its operation has ended, by being dropped: as it wants it; and if it went wrong and the
/// program has not said what it wants, those of its calls that have room for it.
pub(crate) struct CompletionNotifier {
    sk: ARef<Sock<Socket>>,
    outcome: Arc<OpStatus>,
    wanted: Wanted,
    /// Made in time, so that there is memory.
    notice: Option<Item<Notification>>,
}

impl CompletionNotifier {
    /// The program calls the operation by `token`. Fails with ENOMEM. May sleep.
    pub(crate) fn new(sk: &Sock<Socket>, token: u64, wanted: Wanted) -> Result<Arc<Self>> {
        let notice = Notification {
            token,
            status: Status::Dropped,
            asked: false,
        };
        let this = Self {
            sk: sk.hold(),
            outcome: OpStatus::new()?,
            wanted,
            notice: Some(Item::new(notice, GFP_KERNEL_ACCOUNT)?),
        };
        Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
    }

    /// Tells the program, once.
    fn tell(&mut self) {
        let (Some(mut notice), Some(status)) = (self.notice.take(), self.outcome.get()) else {
            return;
        };
        let Some(asked) = self.wanted.asked(status) else {
            return;
        };
        if !self.sk.is_closed() {
            notice.status = status;
            notice.asked = asked;
            self.sk.notify_queue.add(notice);
            self.sk.wake_readers(poll::IN);
        }
    }

    /// Tells the program, and returns who has waited for that.
    fn end(&mut self) -> Option<Arc<Self>> {
        self.tell();
        self.outcome.end()
    }
}

impl OnRelease for CompletionNotifier {}

impl Drop for CompletionNotifier {
    fn drop(&mut self) {
        let mut next = self.end();
        // One after the other, and not each amid the one before: there may be thousands.
        while let Some(told) = next {
            next = Arc::into_unique_or_drop(told).and_then(|mut told| told.end());
        }
    }
}

/// An operation, and what it holds until it is done.
pub(crate) struct Op {
    /// Also if the memory goes earlier, with its device.
    told: Arc<CompletionNotifier>,
    memory: KVVec<KBox<dyn LocalMemory>>,
    /// What a message without a frame of its own takes of the send buffer.
    _ticket: Option<SndbufCharge>,
    /// That its work requests are done does not mean that they went well: the peer's acknowledgement does.
    completion_is_local_only: bool,
    /// Whose program began it.
    user: UserId,
}

impl Op {
    /// Holds the memory. It is the calling program's. Fails with ENOMEM. May sleep.
    pub(crate) fn new(
        told: Arc<CompletionNotifier>,
        memory: KVVec<KBox<dyn LocalMemory>>,
        charge: Option<SndbufCharge>,
        completion_is_local_only: bool,
    ) -> Result<Arc<Self>> {
        let this = Self {
            told,
            memory,
            _ticket: charge,
            completion_is_local_only,
            user: UserId::current(),
        };
        Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.told.outcome.get() != Some(Status::Success) {
            self.memory.iter().for_each(|it| it.poison());
        }
    }
}

/// The owner of an operation that a peer has refused.
pub(crate) struct Owner {
    pub(crate) user: UserId,
    /// That of the socket, before it was refused.
    pub(crate) standing: Standing,
}

impl Owner {
    /// The owner as a number, by which [`Self::from_number`] gives it back.
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
    fn owner(&self) -> u64 {
        let standing = self.told.sk.standing();
        Owner {
            user: self.user,
            standing,
        }
        .number()
    }

    fn done(&self, last: bool, status: WcStatus) {
        // What was flushed says nothing of this program.
        let well = status == WcStatus::SUCCESS;
        if (well && last) || status.is_refused_by_peer() {
            self.told.sk.note_operation(well);
        }
        self.told
            .outcome
            .done(last, self.completion_is_local_only, status);
    }
}

/// What became of a work request.
pub(crate) enum Posted {
    Yes,
    /// Nor will it be on the next connection: see [`PostError::Never`]; or the peer does not serve it.
    Never,
    /// The queue pair is of no use.
    Failed,
}

/// What goes behind the work requests of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Its message.
    Message,
    /// A frame that the peer acknowledges and no program gets.
    Question,
    /// Nothing: the message is there for the operation only.
    Nothing,
}

/// What a message has of its operation.
pub(crate) struct RdmaOp {
    /// Who is told.
    sk: ARef<Sock<Socket>>,
    /// By whom, until it has its turn.
    told: Option<Arc<CompletionNotifier>>,
    /// Work requests that wait to be posted, in order. The last one is in front when the others are gone.
    to_post: Fifo<OperationItem>,
    begun: bool,
    outcome: Arc<OpStatus>,
    /// Kept for the acknowledgement.
    completion_is_local_only: Option<Arc<Op>>,
    /// The message goes when a read is done, not before.
    pub(crate) fence: bool,
    pub(crate) behind: FollowUp,
    /// The peer's key, if the peer is to hear that it was used.
    pub(crate) rkey: Option<u32>,
}

impl RdmaOp {
    /// Fails with ENOMEM. May sleep.
    pub(crate) fn new(
        op: &Arc<Op>,
        to_post: Fifo<OperationItem>,
        (fence, behind): (bool, FollowUp),
        rkey: Option<u32>,
    ) -> Result<KBox<Self>> {
        let this = Self {
            sk: op.told.sk.clone(),
            told: Some(op.told.clone()),
            to_post,
            begun: false,
            outcome: op.told.outcome.clone(),
            completion_is_local_only: op.completion_is_local_only.then(|| op.clone()),
            fence,
            behind,
            rkey,
        };
        Ok(KBox::new(this, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether this socket sent it.
    pub(super) fn is_from(&self, sk: &Sock<Socket>) -> bool {
        core::ptr::eq(&*self.sk, sk)
    }

    /// Whether the socket that sent it is closed.
    pub(super) fn is_from_closed(&self) -> bool {
        self.sk.is_closed()
    }

    /// The message is queued: from now on the program is told.
    pub(super) fn queue(&self) {
        self.outcome.queue();
    }

    /// The first of it is to be posted now: its program is told after that of the `last` operation that was. Called with the
    /// queue locked.
    pub(crate) fn take_turn(&mut self, last: &mut Option<Arc<OpStatus>>) {
        let Some(told) = self.told.take() else {
            return;
        };
        // What waits to be posted has `told`, too, so it does not go here.
        if let Some(last) = last.replace(self.outcome.clone()) {
            last.precede(told);
        }
    }

    /// Ends an operation that this peer does not serve, so that nothing of it can be posted. Returns whether that is so.
    pub(crate) fn refuse_unserved(&mut self) -> bool {
        let peer_has_no_responder = self
            .to_post
            .front()
            .is_some_and(OperationItem::is_served_by_peer);
        if peer_has_no_responder {
            self.outcome.refuse();
        }
        peer_has_no_responder
    }

    /// Takes the next work request and has it posted by `post`, which may give it back.
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
        // It is not dropped here, with what it holds.
        self.to_post.push_front(item);
        match why {
            PostError::Never if !self.begun => Posted::Never,
            // What has begun is dropped with the connection.
            PostError::Never | PostError::NotNow => Posted::Failed,
        }
    }

    /// Whether there is one.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.to_post.is_empty()
    }

    /// Whether the next work request is a read.
    pub(super) fn reads_next(&self) -> bool {
        self.to_post.front().is_some_and(OperationItem::is_read)
    }

    /// Whether some was posted, and others were not.
    pub(super) fn is_partially_sent(&self) -> bool {
        self.begun && self.is_waiting()
    }

    /// Whether only the peer's acknowledgement tells that it went well.
    pub(super) fn is_awaiting_first_frame(&self) -> bool {
        self.completion_is_local_only.is_some()
    }

    /// The peer has got the message.
    pub(super) fn acknowledge(&self) {
        if self.completion_is_local_only.is_some() && !self.is_waiting() {
            self.outcome.acknowledge();
        }
    }

    /// Whether the queue pair that had some of it is gone, and it is not known to have gone well.
    pub(super) fn is_lost(&self) -> bool {
        self.begun && self.outcome.get() != Some(Status::Success)
    }

    /// The program does not want it any more.
    pub(super) fn cancel(&self) {
        if !self.begun {
            self.outcome.cancel();
        }
    }
}
