// SPDX-License-Identifier: GPL-2.0

//! Send ring of a queue pair: frames, and work requests of operations on memory of the peer.
//!
//! Frames are staged in a chain and given to the device together. Each posted request keeps its
//! buffer or its operation in a slot until its completion, or that of a later request, arrives. If
//! the device refuses a frame or a request fails, the ring closes. See [`qp_ring`](super::qp_ring)
//! for what both rings have in common.
//!
//! # Ownership
//!
//! A failure does not cover an operation before it that has to report its own completion. Either
//! that was lost, or the device still accesses the memory. For example, soft-iWARP reports a READ
//! that it cannot send while earlier ones wait for their responses. Such requests stay in their
//! slots until they are flushed, or the queue pair is destroyed.

use super::{
    buf::Buf,
    domain::Domain,
    operation::{
        OperationItem,
        PostError,
        RejectedOp, //
    },
    qp_ring::{
        after,
        before,
        empty_slots,
        Chain,
        WorkRequest,
        WrNumber,
        CHAIN, //
    },
    send_item::SendItem,
    wc_status::WcStatus, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        sync::{
            Fifo,
            Item, //
        }, //
    }, //
};
use core::{
    mem,
    ptr, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Content of a send slot until the device is done with it.
enum PostedOp {
    /// Only held until the device has sent it, never read.
    Frame(#[expect(dead_code, reason = "kept for the device")] Buf),
    Operation(Item<OperationItem>),
}

/// The sends of a queue pair.
///
/// # Invariants
///
/// - Those of [`RecvRing`](super::qp_ring::RecvRing).
/// - The `used` slots from `tail` on are occupied, and `head` follows them.
/// - The last `staged` of these are in `chain` and were not given to the device yet.
// Each send of a frame writes the fields up to `last_report`. The lock is in the same cache line.
#[repr(C)]
pub(super) struct SendRing {
    used: u32,
    /// Number of sends since the last one that reports its completion.
    unsignaled: u32,
    head: usize,
    staged: usize,
    /// Number of sends known to be completed. `done + used` sends were posted or staged.
    done: u64,
    /// Number (counted from 1) of the last send that reports its completion.
    last_report: u64,
    qp: *mut bindings::ib_qp,
    /// Every `signal_every`th send reports its completion.
    signal_every: u32,
    /// Callers must post nothing but reads while reads are outstanding. A fence is no alternative:
    /// a soft-iWARP connection hangs if both ends wait through a fence.
    wait_for_reads: bool,
    domain: *const Domain,
    slots: KVVec<Option<PostedOp>>,
    chain: Chain<bindings::ib_send_wr>,
    tail: usize,
    /// Number of work requests of operations that are not known to be completed.
    operations: u32,
    /// Number of these that are reads.
    reads: u32,
}

const _: () = assert!(
    mem::offset_of!(SendRing, domain) <= 56,
    "the line has room for the lock and these"
);

/// Progress of a device with a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendProgress {
    /// Number of work requests posted or staged.
    pub(crate) posted: u64,
    /// Number of work requests known to be completed.
    pub(crate) done: u64,
    /// The device owes a completion.
    pub(crate) due: bool,
    /// Work requests of operations are outstanding.
    pub(crate) operates: bool,
}

// SAFETY: As for `RecvRing`.
unsafe impl Send for SendRing {}

/// Counts a send. Returns `true` if it has to report its completion.
#[inline]
fn reports(unsignaled: &mut u32, signal_every: u32) -> bool {
    *unsignaled = unsignaled.wrapping_add(1);
    let reports = *unsignaled >= signal_every;
    if reports {
        *unsignaled = 0;
    }
    reports
}

impl SendRing {
    /// Creates a closed ring. Every `signal_every`th send reports its completion, or more of them
    /// if there are few slots.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(
        slots: u32,
        domain: *const Domain,
        lkey: u32,
        signal_every: u32,
        wait_for_reads: bool,
    ) -> Result<Self> {
        Ok(Self {
            qp: ptr::null_mut(),
            domain,
            slots: empty_slots(slots)?,
            chain: Chain::new(lkey)?,
            head: 0,
            tail: 0,
            used: 0,
            staged: 0,
            signal_every: signal_every.min(slots / 2),
            unsignaled: 0,
            wait_for_reads,
            operations: 0,
            reads: 0,
            done: 0,
            last_report: 0,
        })
    }

    /// Returns the progress of the device. Nothing is due if the queue pair is closed.
    pub(super) fn progress(&self) -> SendProgress {
        SendProgress {
            posted: self.posted(),
            done: self.done,
            due: !self.qp.is_null() && self.last_report > self.done,
            operates: self.operations > 0,
        }
    }

    /// Requests a completion for the next send.
    pub(super) fn report_next(&mut self) {
        self.unsignaled = self.signal_every;
    }

    /// Returns the number of sends posted or staged.
    fn posted(&self) -> u64 {
        self.done.wrapping_add(self.used.into())
    }

    /// Returns the number of the next send.
    fn next_number(&self) -> WrNumber {
        WrNumber::of(self.posted())
    }

    /// Returns `true` if only reads may be posted.
    pub(super) fn awaits_reads(&self) -> bool {
        self.wait_for_reads && self.reads > 0
    }

    /// Opens the ring for posts to `qp`.
    ///
    /// # Safety
    ///
    /// `qp` must satisfy the type invariants. Its sends must be those of this ring.
    pub(super) unsafe fn open(&mut self, qp: *mut bindings::ib_qp) {
        self.qp = qp;
    }

    /// Returns the number of sends that could be posted now.
    pub(super) fn space(&self) -> u32 {
        // CAST: `new` got the number of slots as a `u32`.
        (self.slots.len() as u32).saturating_sub(self.used)
    }

    /// Returns the number of sends that were posted or staged and are not known to be completed.
    pub(super) fn in_flight(&self) -> u32 {
        self.used
    }

    /// Stages a send. If the chain is full, posts it first.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed.
    /// - `EAGAIN` if there is no room.
    /// - `EINVAL` if the send is empty, or its buffer is too short or is not mapped for the queue
    ///   pair's protection domain.
    /// - Those of [`Self::submit`].
    pub(super) fn stage(&mut self, item: SendItem, prepare: impl Fn(u64, usize)) -> Result {
        if self.qp.is_null() {
            return Err(Errno::NotConnected.into());
        }
        let address = item.address(self.domain).ok_or(EINVAL)?;
        if self.staged >= CHAIN {
            self.submit()?;
        }
        let waits = item.fence && !self.wait_for_reads;
        let number = self.next_number();
        let slot = self
            .slots
            .get_mut(self.head)
            .filter(|slot| slot.is_none())
            .ok_or(EAGAIN)?;
        let (wr, sge) = self.chain.at(self.staged).ok_or(EAGAIN)?;
        prepare(address, item.len as usize);
        let mut flags = 0;
        if waits {
            flags |= bindings::ib_send_flags_IB_SEND_FENCE;
        }
        let signaled = reports(&mut self.unsignaled, self.signal_every);
        if signaled {
            flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
        }
        if item.solicited {
            flags |= bindings::ib_send_flags_IB_SEND_SOLICITED;
        }
        sge.addr = address;
        sge.length = item.len;
        wr.set_id(number.send_id());
        // CAST: flags are small.
        wr.send_flags = flags as c_int;
        *slot = Some(PostedOp::Frame(item.buf));
        self.head = after(self.head, self.slots.len());
        self.used = self.used.wrapping_add(1);
        self.staged = self.staged.wrapping_add(1);
        if signaled {
            self.last_report = self.posted();
        }
        Ok(())
    }

    /// Gives the staged sends to the device, in order, with one call.
    ///
    /// # Errors
    ///
    /// Errors of the device. A part of the sends may be posted then, and completes normally. The
    /// rest is dropped, and the ring closes.
    pub(super) fn submit(&mut self) -> Result {
        let count = mem::take(&mut self.staged);
        if count == 0 {
            return Ok(());
        }
        let qp = self.qp;
        // SAFETY: By the type invariants the queue pair is alive, and by those of `Chain` the chain
        // is well formed; each buffer stays in its slot until its completion.
        let post = |wr, bad: &mut _| unsafe { bindings::rds_rust_ib_post_send(qp, wr, bad) };
        let Err((posted, error)) = self.chain.post(count, post) else {
            return Ok(());
        };
        let slots = self.slots.len();
        let left = count.wrapping_sub(posted);
        self.head = before(self.head, left, slots);
        let mut at = self.head;
        for _ in 0..left {
            drop(self.free(at));
            at = after(at, slots);
        }
        self.last_report = self.last_report.min(self.posted());
        // Later sends would arrive without the dropped ones.
        self.close();
        Err(error)
    }

    /// Posts a work request of an operation after all staged sends. Returns the request if it was
    /// not posted.
    pub(super) fn operate(&mut self, mut item: Item<OperationItem>) -> Result<(), RejectedOp> {
        match self.try_operate(&mut item) {
            Ok(head) => {
                let reports = item.reports;
                if let Some(slot) = self.slots.get_mut(head) {
                    *slot = Some(PostedOp::Operation(item));
                }
                self.head = after(head, self.slots.len());
                self.used = self.used.wrapping_add(1);
                if reports {
                    self.last_report = self.posted();
                }
                Ok(())
            }
            Err(why) => {
                item.kept = None;
                Err((item, why))
            }
        }
    }

    /// Posts a work request. Returns the slot into which the caller must put it.
    fn try_operate(&mut self, item: &mut OperationItem) -> Result<usize, PostError> {
        if self.qp.is_null() {
            return Err(PostError::NotNow);
        }
        if !ptr::eq(item.local.domain(), self.domain) {
            return Err(PostError::Never);
        }
        let (atomic, domain) = (item.atomic_with_masks(), item.local.domain());
        if atomic.is_some_and(|masked| domain.refuses_atomics(masked)) {
            return Err(PostError::Never);
        }
        item.kept = item.local.keep()?;
        // An error for the frames says nothing about the operation.
        self.submit().map_err(|_| PostError::NotNow)?;
        let (head, qp) = (self.head, self.qp);
        if self.slots.get(head).is_none_or(|slot| slot.is_some()) {
            return Err(PostError::NotNow);
        }
        // The counter is stored only after a successful post.
        let mut unsignaled = self.unsignaled;
        item.reports = reports(&mut unsignaled, self.signal_every) || item.last;
        let (raw, id) = (item.raw(), self.next_number().send_id());
        // SAFETY: By the type invariants the queue pair is alive. The item keeps the memory mapped
        // until the completion.
        let posted = to_result(unsafe { bindings::rds_rust_ib_post_operation(qp, &raw, id) });
        posted.map_err(|error| {
            // Only this error is remembered: arguments of the program can cause the others.
            if let (Some(masked), true) = (atomic, error == Errno::NotSupported.into()) {
                item.local.domain().note_no_atomics(masked);
            }
            PostError::of_device(error)
        })?;
        self.unsignaled = unsignaled;
        self.operations = self.operations.wrapping_add(1);
        self.reads = self.reads.wrapping_add(u32::from(item.is_read()));
        Ok(head)
    }

    /// Empties a slot and returns its content.
    fn free(&mut self, slot: usize) -> Option<PostedOp> {
        let taken = self.slots.get_mut(slot).and_then(|slot| slot.take());
        self.used = self.used.wrapping_sub(u32::from(taken.is_some()));
        taken
    }

    /// Returns `true` if one of the oldest `count` sends is an operation that has to report its
    /// completion.
    fn owes_report(&self, count: u32) -> bool {
        let mut at = self.tail;
        (0..count).any(|_| {
            let slot = self.slots.get(at);
            at = after(at, self.slots.len());
            matches!(slot, Some(Some(PostedOp::Operation(item))) if item.reports)
        })
    }

    /// Completes the send `number` and all sends before it, which have succeeded. Adds their work
    /// requests of operations to `completed`. Returns `false`, and does nothing, if this send is
    /// not outstanding.
    ///
    /// The ring only closes if `status` is an error and [`Self::owes_report`] of those before.
    pub(super) fn complete(
        &mut self,
        number: WrNumber,
        status: WcStatus,
        completed: &mut Fifo<OperationItem>,
    ) -> bool {
        let mut earlier = number.since(WrNumber::of(self.done));
        if earlier >= self.used {
            return false;
        }
        if status != WcStatus::SUCCESS {
            // The queue pair is unusable now. A notified owner may post the next request at once,
            // which has to go to another queue pair.
            self.close();
            if self.owes_report(earlier) {
                return true;
            }
        }
        let mut at = self.tail;
        while let Some(posted) = self.free(at) {
            let done = earlier == 0;
            earlier = earlier.wrapping_sub(1);
            at = after(at, self.slots.len());
            self.done = self.done.wrapping_add(1);
            if let PostedOp::Operation(mut item) = posted {
                self.operations = self.operations.wrapping_sub(1);
                self.reads = self.reads.wrapping_sub(u32::from(item.is_read()));
                if done {
                    item.status = status;
                }
                completed.push_back(item);
            }
            if done {
                break;
            }
        }
        self.tail = at;
        true
    }

    /// Returns `true` if no operation is posted, or a failure has closed the ring.
    pub(super) fn has_settled(&self) -> bool {
        self.operations == 0 || self.qp.is_null()
    }

    /// Closes the ring: nothing is posted any more.
    pub(super) fn close(&mut self) {
        self.qp = ptr::null_mut();
    }

    /// Takes the slots out of the ring. The caller drops them without locks held.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed.
    pub(super) unsafe fn take_slots(&mut self) -> impl Sized {
        mem::replace(&mut self.slots, KVVec::new())
    }
}
