// SPDX-License-Identifier: GPL-2.0

//! Creation and end of queue pairs, and the functions that the RDMA core calls in between.

use super::{
    cm::{
        Anchor,
        CmHandler,
        CmId, //
    },
    drain::{
        Drain,
        DrainEntry, //
    },
    pd::Pd,
    poller::{
        Poller,
        POLL_BUDGET, //
    },
    qp::{
        Qp,
        QpHandler, //
    },
    qp_event::QpEvent,
    qp_ring::{
        RecvRing,
        SIGNAL_EVERY, //
    },
    send_ring::SendRing,
    verbs::{
        QpConfig,
        Verbs, //
    }, //
};
use crate::{
    bindings,
    kapi::{
        errno::Errno,
        sync::{
            new_spinlock_bh,
            CacheAligned,
            Completion, //
        }, //
    }, //
};
use core::{
    marker::PhantomPinned,
    ptr, //
};
use kernel::{
    error::from_err_ptr,
    new_mutex,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
    types::Opaque, //
};

impl<H: QpHandler> Qp<H> {
    /// Creates the queue pair of `cm`, which must not have one yet.
    ///
    /// `cm` must have resolved its address, or come from a request. Receives can be posted at once.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the protection domain is closed.
    /// - `EBUSY` if `cm` has had a queue pair.
    /// - `ENOMEM`, or errors of the device.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn create<E: CmHandler>(
        cm: &CmId<E>,
        pd: &Arc<Pd>,
        config: QpConfig,
        handler: impl PinInit<H>,
        poll: H::Poll,
    ) -> Result<Arc<Self>> {
        let this = Self::new(cm.anchor(), pd, config, handler, poll)?;
        // The CM must not bind the identifier meanwhile. Its handler may close queue pairs, so the
        // handler mutex is locked before `verbs`.
        let _lock = cm.lock();
        // If this fails, the drop of `this` destroys the objects created so far.
        this.open(config)?;
        Ok(this)
    }

    /// Creates an object without a queue pair, see [`Self::open`]. May sleep.
    pub(super) fn new(
        cm: Arc<dyn Anchor>,
        pd: &Arc<Pd>,
        config: QpConfig,
        handler: impl PinInit<H>,
        poll: H::Poll,
    ) -> Result<Arc<Self>> {
        let verbs = Verbs::new(cm, pd)?;
        let domain = Arc::as_ptr(pd.domain());
        let lkey = pd.local_dma_lkey();
        let signal_every = config.report_every.clamp(1, SIGNAL_EVERY);
        let wait = config.wait_for_reads;
        let send = SendRing::new(config.max_send_wr, domain, lkey, signal_every, wait)?;
        let recv = RecvRing::new(config.max_recv_wr, domain, lkey)?;
        let poller = Poller::new(poll)?;
        Arc::pin_init(
            pin_init!(Self {
                handler <- handler,
                device: pd.device().as_raw(),
                sync: !pd.device().caps().virtual_dma,
                send <- CacheAligned::new(new_spinlock_bh!(send, "rdma_qp_send")),
                recv <- new_spinlock_bh!(recv, "rdma_qp_recv"),
                poller <- new_spinlock_bh!(poller, "rdma_qp_poll"),
                softirq <- Opaque::ffi_init(|slot| {
                    // SAFETY: `slot` is valid, uninitialised memory.
                    unsafe { bindings::rds_rust_poll_init(slot, POLL_BUDGET, Some(Self::poll)) };
                }),
                is_awaited: Atomic::new(false),
                settled <- Completion::new(),
                verbs <- new_mutex!(Some(verbs), "rdma_qp_verbs"),
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )
    }

    /// Creates the C objects. Called once. May sleep.
    pub(super) fn open(&self, config: QpConfig) -> Result {
        let mut guard = self.verbs.lock();
        let Some(verbs) = (*guard).as_mut() else {
            return Err(Errno::NotConnected.into());
        };
        let cap = bindings::ib_qp_cap {
            max_send_wr: config.max_send_wr.saturating_add(1),
            max_recv_wr: config.max_recv_wr.saturating_add(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        };
        let context: *mut c_void = ptr::from_ref(self).cast_mut().cast();
        let entries = cap.max_send_wr.saturating_add(cap.max_recv_wr);
        // SAFETY: `pd` keeps the device registered. The context outlives the completion queue.
        let cq = unsafe {
            bindings::rds_rust_ib_create_cq(
                self.device,
                Some(Self::completion),
                Some(Self::async_event),
                context,
                entries,
                &mut verbs.vector,
            )
        };
        let cq = from_err_ptr(cq)?;
        self.poller.lock().cq = cq;

        let attr = bindings::ib_qp_init_attr {
            event_handler: Some(Self::async_event),
            qp_context: context,
            cap,
            ..Default::default()
        };
        // SAFETY: The completion queue is new and has no other owner.
        unsafe { verbs.create_qp(cq, attr) }?;
        // SAFETY: `close` closes the ring before it destroys the queue pair. Only this ring's slots
        // are posted to its send queue.
        unsafe { self.send.lock().open(verbs.qp()) };
        // SAFETY: As above, for the receive queue.
        unsafe { self.recv.lock().open(verbs.qp()) };
        // SAFETY: The completion queue is alive. Nothing is posted yet, so nothing can be missed.
        unsafe { bindings::rds_rust_ib_rearm_cq(cq) };
        Ok(())
    }

    /// Closes the queue pair. Afterwards its handler is not called any more.
    ///
    /// Posted work requests are flushed, which ends in [`QpHandler::failed`], or after some seconds
    /// in [`QpHandler::not_flushed`]. A second call does nothing, and does not wait for the first.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn close(&self) {
        // The lock is not held during the flush: others need it to see that `verbs` is gone.
        let verbs = self.verbs.lock().take();
        let Some(mut verbs) = verbs else {
            return;
        };
        self.send.lock().close();
        self.recv.lock().close();
        pin_init::stack_pin_init!(let drain = Drain::new());
        if !verbs.qp().is_null() {
            let mut poller = self.poller.lock();
            // INVARIANT: The entries live until `cq` is null.
            poller.drains = drain.entries();
            poller.closing = true;
            drop(poller);
            // A paused poller would not see the entries.
            self.resume();
            // SAFETY: By the invariants of `Verbs` the queue pair is alive. The rings are closed,
            // so nothing else posts. `open` has requested room for one more in each queue. `drain`
            // is dropped at the end of this function, when the completion queue is gone.
            if let Err(error) = unsafe { drain.as_ref().wait(verbs.qp()) } {
                self.handler.not_flushed(error);
            }
            verbs.destroy_qp();
        }
        // SAFETY: `softirq` was initialised. It does not poll any more after this.
        unsafe { bindings::irq_poll_disable(self.iop()) };
        // The poller rearms the queue after it has left `irq_poll`. The lock waits for that, too.
        let mut poller = self.poller.lock();
        poller.cq = ptr::null_mut();
        poller.drains = [DrainEntry::NONE; 2];
        let kept = core::mem::take(&mut poller.messages);
        drop(poller);
        drop(kept);
        // SAFETY: `verbs` owned the queue, which `open` has created. The queue pair is gone.
        verbs.destroy_cq(|cq| unsafe { bindings::rds_rust_ib_destroy_cq(cq) });
        // SAFETY: `softirq` was initialised. No completion queue can schedule it any more.
        unsafe { bindings::rds_rust_poll_sync(self.softirq.get()) };
        // SAFETY: The queue pair is destroyed.
        let sends = unsafe { self.send.lock().take_slots() };
        // SAFETY: As above.
        let recvs = unsafe { self.recv.lock().take_slots() };
        drop(sends);
        drop(recvs);
        drop(verbs);
    }

    /// # Safety
    ///
    /// Only for the driver, as `comp_handler` of a completion queue that has a `Self` as context.
    unsafe extern "C" fn completion(_cq: *mut bindings::ib_cq, context: *mut c_void) {
        // SAFETY: By the type invariants the context is a live `Self`.
        let this = unsafe { &*context.cast::<Self>() };
        this.handler.notified();
        // SAFETY: `softirq` was initialised.
        unsafe { bindings::rds_rust_poll_sched(this.softirq.get()) };
    }

    /// # Safety
    ///
    /// Only for the RDMA core, as `event_handler` of objects that have a `Self` as context.
    unsafe extern "C" fn async_event(event: *mut bindings::ib_event, context: *mut c_void) {
        // SAFETY: By the type invariants the context is a live `Self`.
        let this = unsafe { &*context.cast::<Self>() };
        // SAFETY: The RDMA core passes a valid event.
        let event = unsafe { (*event).event };
        this.handler.event(this, QpEvent::new(event));
    }

    /// # Safety
    ///
    /// Only for `irq_poll`, as poll function of the `softirq` of a `Self`.
    unsafe extern "C" fn poll(iop: *mut bindings::irq_poll, budget: c_int) -> c_int {
        // `iop` is the first field of `rds_poll`.
        let softirq: *mut Opaque<bindings::rds_poll> = iop.cast();
        // SAFETY: Only `softirq` fields of this type are initialised with this function.
        let this: *const Self = unsafe { kernel::container_of!(softirq, Self, softirq) };
        // SAFETY: `close` waits for this function, and `Self` is closed before it is dropped.
        let this = unsafe { &*this };
        this.run(budget)
    }
}

#[pinned_drop]
impl<H: QpHandler> PinnedDrop for Qp<H> {
    fn drop(self: Pin<&mut Self>) {
        self.close();
    }
}
