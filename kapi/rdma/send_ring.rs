// SPDX-License-Identifier: GPL-2.0

//! What is posted to the send queue of a queue pair: messages, and operations on memory of the peer. See
//! [`qp_ring`](super::qp_ring) for what rings have in common.

use super::{
    domain::Domain,
    operation::{OperationItem, PostError, Posted, RejectedOp},
    qp_ring::{after, before, empty_slots, Chain, SendItem, WorkRequest, CHAIN, SEND},
    wc_status::WcStatus,
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        sync::{Fifo, Item},
    },
};
use core::{mem, ptr};
use kernel::{error::to_result, prelude::*};

/// The sends of a queue pair.
///
/// # Invariants
///
/// As those of [`RecvRing`]. The `used` slots from `tail` on have buffers, and `head` follows them;
/// the last `staged` of them were not given to the device yet, but are in `chain`.
pub(super) struct SendRing {
    qp: *mut bindings::ib_qp,
    domain: *const Domain,
    slots: KVVec<Option<Posted>>,
    chain: Chain<bindings::ib_send_wr>,
    head: usize,
    tail: usize,
    used: u32,
    staged: usize,
    /// Every so many sends one reports its completion.
    signal_every: u32,
    /// Sends since the last that does.
    unsignaled: u32,
    /// Whether callers have to wait for reads before they post anything else. A fence will not do: a device of
    /// which both ends wait so is stuck (soft-iWARP).
    wait_for_reads: bool,
    /// Work requests of operations that were posted, and are not known to be done.
    operations: u32,
    /// Those of them that are reads.
    reads: u32,
    /// How many sends are known to be done; so many and `used` were posted or staged.
    done: u64,
    /// The last of these that reports its completion, counted from 1.
    last_report: u64,
}

/// How far a device is with what was posted to a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendProgress {
    /// Work requests that the device was given, or will be in a moment.
    pub(crate) posted: u64,
    /// Work requests that are known to be done.
    pub(crate) done: u64,
    /// The device is to report one that it has.
    pub(crate) due: bool,
    /// Work requests of operations are not known to be done.
    pub(crate) operates: bool,
}

// SAFETY: As for `RecvRing`.
unsafe impl Send for SendRing {}

/// Counts a send, and says whether it reports its completion.
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
    /// Every `signal_every`th send reports its completion, or more do if there are few slots. May
    /// sleep.
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

    /// How far the device is. Nothing is due when the queue pair is closed.
    pub(super) fn progress(&self) -> SendProgress {
        SendProgress {
            posted: self.posted(),
            done: self.done,
            due: !self.qp.is_null() && self.last_report > self.done,
            operates: self.operations > 0,
        }
    }

    /// The next send reports its completion.
    pub(super) fn report_next(&mut self) {
        self.unsignaled = self.signal_every;
    }

    /// How many were posted or staged.
    fn posted(&self) -> u64 {
        self.done.wrapping_add(self.used.into())
    }

    /// Whether nothing but reads may be posted.
    pub(super) fn awaits_reads(&self) -> bool {
        self.wait_for_reads && self.reads > 0
    }

    /// # Safety
    ///
    /// As the type invariants say of `qp`. Its sends must name the slots of this ring.
    pub(super) unsafe fn open(&mut self, qp: *mut bindings::ib_qp) {
        self.qp = qp;
    }

    /// Number of sends that could be posted now.
    pub(super) fn space(&self) -> u32 {
        // CAST: `new` got the number as a `u32`.
        (self.slots.len() as u32).saturating_sub(self.used)
    }

    /// Number of sends that were posted or staged, and are not known to be done.
    pub(super) fn in_flight(&self) -> u32 {
        self.used
    }

    /// Puts a send behind those that are staged, after those were given to the device if there are
    /// many.
    ///
    /// Fails with ENOTCONN if the queue pair is closed, EAGAIN if there is no room, EINVAL if the
    /// send is empty, or its buffer too short or not mapped for the queue pair's protection domain,
    /// and as [`Self::submit`] does.
    pub(super) fn stage(&mut self, item: SendItem, prepare: impl Fn(u64, usize)) -> Result {
        if self.qp.is_null() {
            return Err(Errno::NotConnected.into());
        }
        let address = item.address(self.domain).ok_or(EINVAL)?;
        if self.staged >= CHAIN {
            self.submit()?;
        }
        let waits = item.fence && !self.wait_for_reads;
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
        wr.set_id(SEND | self.head as u64);
        // CAST: flags are small.
        wr.send_flags = flags as c_int;
        *slot = Some(Posted::Frame(item.buf));
        self.head = after(self.head, self.slots.len());
        self.used = self.used.wrapping_add(1);
        self.staged = self.staged.wrapping_add(1);
        if signaled {
            self.last_report = self.posted();
        }
        Ok(())
    }

    /// Gives what is staged to the device, in order, with one call. If the device refuses, a part
    /// may be posted, and completes in the usual way; the rest is dropped, and the ring closed.
    pub(super) fn submit(&mut self) -> Result {
        let count = mem::take(&mut self.staged);
        if count == 0 {
            return Ok(());
        }
        let qp = self.qp;
        // SAFETY: By the type invariants the queue pair is alive, and by those of `Chain` the chain
        // is well formed; each buffer stays in its slot until its completion.
        let post = |wr, bad: &mut _| unsafe { bindings::rds_ib_post_send(qp, wr, bad) };
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
        // What comes after this would arrive without what was dropped.
        self.close();
        Err(error)
    }

    /// Posts a work request of an operation behind all that is staged, or gives it back.
    pub(super) fn operate(&mut self, mut item: Item<OperationItem>) -> Result<(), RejectedOp> {
        match self.try_operate(&mut item) {
            Ok(head) => {
                let reports = item.reports;
                if let Some(slot) = self.slots.get_mut(head) {
                    *slot = Some(Posted::Operation(item));
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

    /// Posts a work request, which the caller puts into the slot that this returns.
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
        // What the device says of the frames is nothing about the operation.
        self.submit().map_err(|_| PostError::NotNow)?;
        let (head, qp) = (self.head, self.qp);
        if self.slots.get(head).is_none_or(|slot| slot.is_some()) {
            return Err(PostError::NotNow);
        }
        // Counted when it is posted.
        let mut unsignaled = self.unsignaled;
        item.reports = reports(&mut unsignaled, self.signal_every) || item.last;
        let raw = item.raw();
        // SAFETY: By the type invariants the queue pair is alive. The item keeps the memory until the completion.
        let posted =
            to_result(unsafe { bindings::rds_ib_post_operation(qp, &raw, SEND | head as u64) });
        posted.map_err(|error| {
            // No other error: a program may have caused that.
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

    /// Takes what is in a slot.
    fn free(&mut self, slot: usize) -> Option<Posted> {
        let taken = self.slots.get_mut(slot).and_then(|slot| slot.take());
        self.used = self.used.wrapping_sub(u32::from(taken.is_some()));
        taken
    }

    /// The device is done with `slot`, and with all before it. Those went well, but for one whose own report got lost,
    /// if `status` is no success: nobody knows. Who has to be told is added to `told`.
    pub(super) fn complete(
        &mut self,
        slot: usize,
        status: WcStatus,
        told: &mut Fifo<OperationItem>,
    ) {
        // CAST: a `u32` fits.
        if before(slot, self.tail, self.slots.len()) >= self.used as usize {
            // It is not outstanding: nobody is to believe it.
            return;
        }
        let mut at = self.tail;
        while let Some(posted) = self.free(at) {
            let done = at == slot;
            at = after(at, self.slots.len());
            self.done = self.done.wrapping_add(1);
            if let Posted::Operation(mut item) = posted {
                self.operations = self.operations.wrapping_sub(1);
                self.reads = self.reads.wrapping_sub(u32::from(item.is_read()));
                if done {
                    item.status = status;
                } else if item.reports && status != WcStatus::SUCCESS {
                    item.status = WcStatus::FLUSHED;
                }
                told.push_back(item);
            }
            if done {
                break;
            }
        }
        self.tail = at;
        if status != WcStatus::SUCCESS {
            // It does nothing more. Who is told may want the next one at once, and that is for another queue pair.
            self.close();
        }
    }

    /// Ends the use of the queue pair: nothing is posted any more.
    pub(super) fn close(&mut self) {
        self.qp = ptr::null_mut();
    }

    /// Takes the ring apart; to be dropped when no lock is held.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed.
    pub(super) unsafe fn take_slots(&mut self) -> impl Sized {
        mem::replace(&mut self.slots, KVVec::new())
    }
}
