// SPDX-License-Identifier: GPL-2.0

//! Reliable connected queue pairs that own the work requests posted to them, and the interface
//! through which their user handles completions and events. `qp_poll.rs` has the processing of
//! completions, and `qp_lifetime.rs` the creation and end of queue pairs.
//!
//! # Locks
//!
//! Each ring has a lock. It is also held while work requests are posted to the device, so any
//! number of contexts may post. Callers that serialise posting anyway pay for one uncontended lock.
//! The poller has another lock, which is the outermost one and is held while the handler is called.
//! [`Qp::close`] waits for it.
//!
//! # Ownership
//!
//! Buffers belong to the queue pair from posting to completion. [`Qp::close`] refuses further
//! posts, waits until the device has flushed what is posted, and destroys the queue pair. Then it
//! frees the remaining buffers. Memory is safe even if the flush fails or takes too long: the
//! device does not access any buffer after the queue pair is destroyed.

use super::{
    batch::Batch,
    cm::RnrTimer,
    completion::Received,
    failure::{
        Failure,
        Queue, //
    },
    operation::OperationItem,
    poller::Poller,
    qp_event::QpEvent,
    qp_ring::RecvRing,
    send_ring::SendRing,
    verbs::Verbs, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        sync::{
            CacheAligned,
            Completion,
            SpinLockBh, //
        }, //
    }, //
};
use core::marker::PhantomPinned;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
    },
    types::Opaque, //
};

/// Handler of the completions and events of a queue pair.
///
/// # Context
///
/// Methods without this section are called in softirq context, one at a time for each queue pair.
pub(crate) trait QpHandler: Sized + Send + Sync + 'static {
    /// State that only the poller uses, so it needs no lock of its own.
    type Poll: Send + Unpin;

    /// Handles a received message. Returns the number of its parts, on which the peer decides.
    ///
    /// A run of completions ends after [`MOST_PARTS`](super::poller::MOST_PARTS) parts, or a few
    /// more.
    ///
    /// # Errors
    ///
    /// Returns a message that cannot be handled now. It is passed again after [`Qp::resume`],
    /// before any other. Nothing is polled meanwhile.
    fn received(
        &self,
        qp: &Qp<Self>,
        poll: &mut Self::Poll,
        message: Received,
    ) -> Result<u32, Received>;

    /// Notes a completed work request of an operation, before the operation does.
    fn operated(&self, _item: &OperationItem) {}

    /// Handles completed sends. Their slots are free, and `reports` of them have reported their
    /// completion.
    fn sent(&self, qp: &Qp<Self>, reports: usize);

    /// Handles a failed or flushed work request.
    ///
    /// It is called for the first one in each queue, and for later ones that have failed and are
    /// not only flushed. The buffers are freed.
    fn failed(&self, qp: &Qp<Self>, failure: Failure);

    /// Handles a receive that was used up, but contains no message. Its buffer is freed.
    ///
    /// `opcode` is the opcode of the completion. The peer has used a write with immediate data, or
    /// a send that invalidates an rkey. The buffer may not contain any of that data.
    fn unexpected_opcode(&self, opcode: u32);

    /// Handles a completion that is not the next one of its queue, but was reported twice, or after
    /// others that are missing. It is called for the first one. Flushed work requests may
    /// complete in any order.
    ///
    /// Its buffer is not freed before the queue pair is closed. A message that it reports is
    /// dropped, because it may not overtake the missing ones.
    fn out_of_order(&self, queue: Queue);

    /// Handles the failure of a flush: the device refused it or took too long when the queue pair
    /// was closed. The queue pair is destroyed in any case.
    ///
    /// # Context
    ///
    /// Process context.
    fn not_flushed(&self, error: Error);

    /// Handles the end of a run of at most 64 completions. The next run may follow at once.
    fn polled(&self, qp: &Qp<Self>, poll: &mut Self::Poll);

    /// Handles a notification that there are completions. They are polled afterwards.
    ///
    /// # Context
    ///
    /// Any context, including hard interrupt. It must not take locks.
    fn notified(&self);

    /// Handles an asynchronous event.
    ///
    /// # Context
    ///
    /// Any context, including hard interrupt. It must not take locks.
    fn event(&self, qp: &Qp<Self>, event: QpEvent);
}

/// Numbers by which tools of the device know a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct QpNumbers {
    pub(crate) own: u32,
    /// 0 if the device does not tell, or on iWARP.
    pub(crate) peer: u32,
    /// Completion vector, which selects the interrupt.
    pub(crate) vector: u32,
    /// CPU that has processed the last completions. `None` if there was none.
    pub(crate) cpu: Option<u32>,
}

/// A reliable connected queue pair with its completion queue and its buffers.
///
/// Dropping it closes it, which sleeps. Before a softirq may drop it, [`Self::close`] is called.
///
/// # Context
///
/// Methods without this section may be called in any context except hard interrupt.
///
/// # Invariants
///
/// - The completion queue and the queue pair have `self` as context, and are destroyed before it.
/// - While a ring is open, `device` is valid.
#[pin_data(PinnedDrop)]
pub(crate) struct Qp<H: QpHandler> {
    #[pin]
    pub(super) handler: H,
    pub(super) device: *mut bindings::ib_device,
    /// The DMA mappings need syncs. Unset for devices that use CPU addresses.
    pub(super) sync: bool,
    #[pin]
    pub(super) send: CacheAligned<SpinLockBh<SendRing>>,
    #[pin]
    pub(super) recv: SpinLockBh<RecvRing>,
    #[pin]
    pub(super) poller: SpinLockBh<Poller<H::Poll>>,
    #[pin]
    pub(super) softirq: Opaque<bindings::rds_poll>,
    /// A caller of [`Self::await_operations`] waits for `settled`.
    pub(super) is_awaited: Atomic<bool>,
    #[pin]
    pub(super) settled: Completion,
    #[pin]
    pub(super) verbs: Mutex<Option<Verbs>>,
    #[pin]
    pub(super) _pin: PhantomPinned,
}

// SAFETY: All mutable state is atomic or behind locks. `device` is used as a shared reference.
unsafe impl<H: QpHandler> Send for Qp<H> {}
// SAFETY: As above.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl<H: QpHandler> Qp<H> {
    /// Runs `f` with the handler's polling state, without polling. Not to be called by the handler.
    pub(crate) fn with_poll<R>(&self, f: impl FnOnce(&mut H::Poll) -> R) -> R {
        f(&mut self.poller.lock().handler)
    }

    /// Polls again, after the handler could not handle a message.
    pub(crate) fn resume(&self) {
        let poller = self.poller.lock();
        if !poller.cq.is_null() {
            // SAFETY: `softirq` was initialised. `close` takes the lock and clears `cq` before it
            // waits for what was scheduled.
            unsafe { bindings::rds_rust_poll_sched(self.softirq.get()) };
        }
    }

    pub(super) fn iop(&self) -> *mut bindings::irq_poll {
        self.softirq.get().cast()
    }

    pub(crate) fn handler(&self) -> &H {
        &self.handler
    }

    /// Posts buffers of `batch` as receives, as far as there is room. Returns their number.
    pub(crate) fn post_recv(&self, batch: &mut Batch) -> Result<u32> {
        let mut ring = self.recv.lock();
        ring.post(batch, |address, len| self.sync_for_device(address, len))
    }

    /// Returns the numbers by which tools of the device know the queue pair. `None` once it is
    /// closed.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn numbers(&self) -> Option<QpNumbers> {
        let cpu = self.poller.lock().cpu.map(|cpu| cpu.as_u32());
        let verbs = self.verbs.lock();
        let verbs = (*verbs).as_ref()?;
        let qp = verbs.qp();
        if qp.is_null() {
            return None;
        }
        Some(QpNumbers {
            // SAFETY: By the invariants of `Verbs` the queue pair is alive.
            own: unsafe { bindings::rds_rust_ib_qpn(qp) },
            // SAFETY: As above.
            peer: unsafe { bindings::rds_rust_ib_peer_qpn(qp) },
            vector: verbs.vector,
            cpu,
        })
    }

    /// Waits until the device has reported the operations that are posted, or a failure, and the
    /// handler knows. Does not wait longer than `timeout_ms`. There is one caller at a time.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn await_operations(&self, timeout_ms: u32) {
        // The lock orders this before the check, so that `take_sent` sees one or the other.
        self.is_awaited.store(true, Relaxed);
        if !self.send.lock().has_settled() {
            // After the timeout the caller goes on all the same.
            let _ = self.settled.wait(timeout_ms);
        }
        self.is_awaited.store(false, Relaxed);
        // The poller may have taken the completions without having called the handler yet.
        self.with_poll(|_| {});
    }

    /// Returns `true` while [`Self::await_operations`] waits.
    #[cfg(rds_kunit)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Relaxed)
    }

    /// Sets the RNR NAK timer of a connected queue pair: the time after which the peer retries.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn set_rnr_timer(&self, timer: RnrTimer) -> Result {
        let verbs = self.verbs.lock();
        let verbs = (*verbs).as_ref().ok_or(Errno::NotConnected)?;
        // SAFETY: By the invariants of `Verbs` the queue pair is alive. `open` has created it.
        to_result(unsafe { bindings::rds_rust_ib_set_rnr_timer(verbs.qp(), timer as u8) })
    }

    /// Syncs a buffer for the device. The lock of an open ring must be held.
    #[inline]
    pub(super) fn sync_for_device(&self, address: u64, len: usize) {
        if self.sync {
            // SAFETY: A ring is open, so the device is valid and its mappings are kept.
            unsafe { bindings::rds_rust_ib_dma_sync_for_device(self.device, address, len) };
        }
    }
}
