// SPDX-License-Identifier: GPL-2.0

//! Processing of the completions of queue pairs.
//!
//! # Operation
//!
//! A queue pair has one completion queue for both directions. It is polled in the `irq_poll`
//! softirq, as the kernel does for `ib_alloc_cq()`. Compared to one callback per completion, the
//! lock of a ring is taken once for a batch. And the handler is notified when a run ends
//! ([`QpHandler::polled`]): the time to refill the receive ring and to acknowledge.

use super::{
    buf::BufMut,
    completion::{
        is_message,
        succeeded,
        wr_id,
        Received, //
    },
    drain::DrainEntry,
    failure::{
        Failure,
        Queue, //
    },
    operation::OperationItem,
    poller::{
        Flow,
        Poller,
        MANY_PARTS,
        MOST_PARTS,
        SMALL_BATCH, //
    },
    qp::{
        Qp,
        QpHandler, //
    },
    qp_ring::WrId,
    wc_status::WcStatus, //
};
use crate::{
    bindings,
    kapi::sync::{
        Fifo,
        ReadOnce, //
    }, //
};
use kernel::{
    cpu::CpuId,
    prelude::*, //
};

impl<H: QpHandler> Qp<H> {
    /// Handles up to `budget` completions. Returns their number, or `budget` after [`MOST_PARTS`].
    pub(super) fn run(&self, budget: c_int) -> c_int {
        let mut poller = self.poller.lock();
        let mut done: c_int = 0;
        let was_paused = poller.flow == Flow::Pause;
        let mut parts = match was_paused {
            true => self.deliver_kept(&mut poller),
            false => 0,
        };
        let cq = poller.cq;
        // `cq` is null if the device calls before `open` has stored it. `open` rearms the queue.
        while !cq.is_null() && poller.flow != Flow::Pause {
            let batch = match poller.small_batches || parts >= MOST_PARTS / 2 {
                true => SMALL_BATCH,
                // CAST: the number of entries is small.
                false => poller.wcs.len() as c_int,
            };
            let want = batch.min(budget.wrapping_sub(done));
            // SAFETY: By the invariants of `Poller` the queue is alive; there is room for `want`.
            let got = unsafe { bindings::rds_rust_ib_poll_cq(cq, want, poller.wcs.as_mut_ptr()) };
            let Ok(count) = usize::try_from(got) else {
                break;
            };
            let work = self.complete(&mut poller, count);
            if got > 0 {
                // CAST: a count is not negative.
                poller.small_batches = work > MANY_PARTS.wrapping_mul(got as u32);
            }
            parts = parts.saturating_add(work);
            done = done.wrapping_add(got);
            if got == want && parts >= MOST_PARTS {
                done = budget;
            }
            if got < want || done >= budget {
                break;
            }
        }
        if done > 0 {
            poller.cpu = Some(CpuId::current());
        }
        if done > 0 || was_paused {
            self.handler.polled(self, &mut poller.handler);
        }
        if done < budget {
            // SAFETY: This is the poll function, and it returns less than its budget.
            unsafe { bindings::irq_poll_complete(self.iop()) };
            let rearms = !cq.is_null() && poller.flow != Flow::Pause;
            // SAFETY: The completion queue is alive until `close` has taken the poller's lock.
            if rearms && unsafe { bindings::rds_rust_ib_rearm_cq(cq) } {
                // SAFETY: `softirq` was initialised.
                unsafe { bindings::rds_rust_poll_sched(self.softirq.get()) };
            }
        }
        done
    }

    /// Passes the message in `slot` to the handler, unless an earlier one waits or was dropped.
    /// Returns its number of parts.
    #[inline]
    fn deliver(
        &self,
        handler: &mut H::Poll,
        slot: &mut Option<Received>,
        flow: &mut Flow,
        closing: bool,
    ) -> u32 {
        let Some(message) = slot.take_if(|_| *flow != Flow::Pause) else {
            return 0;
        };
        if *flow == Flow::Discard {
            return 0;
        }
        match self.handler.received(self, handler, message) {
            Ok(parts) => return parts,
            Err(_) if closing => *flow = Flow::Discard,
            Err(message) => {
                *slot = Some(message);
                *flow = Flow::Pause;
            }
        }
        0
    }

    /// Passes the messages that a paused poller has kept to the handler. Returns their number of
    /// parts.
    #[cold]
    fn deliver_kept(&self, poller: &mut Poller<H::Poll>) -> u32 {
        let Poller {
            messages,
            handler,
            flow,
            closing,
            ..
        } = poller;
        *flow = Flow::Deliver;
        messages.iter_mut().fold(0u32, |parts, slot| {
            parts.wrapping_add(self.deliver(handler, slot, flow, *closing))
        })
    }

    /// Handles the first `count` entries of `poller.wcs`. Returns their number of message parts.
    fn complete(&self, poller: &mut Poller<H::Poll>, count: usize) -> u32 {
        let Poller {
            cq,
            wcs,
            messages,
            handler,
            drains,
            send_failed,
            recv_failed,
            out_of_order,
            small_batches: _,
            flow,
            cpu: _,
            closing,
        } = poller;
        let Some(wcs) = wcs.get_mut(..count) else {
            return 0;
        };
        let mut parts = 0u32;
        let receives_ordered = self.take_received(wcs, messages);
        let (reports, refused, sends_ordered) = self.take_sent(wcs);
        if reports > 0 {
            self.handler.sent(self, reports);
        }
        let in_order = receives_ordered && sends_ordered;
        if !in_order && !core::mem::replace(out_of_order, true) {
            self.handler.out_of_order(match receives_ordered {
                true => Queue::Send,
                false => Queue::Recv,
            });
        }
        for (wc, message) in wcs.iter_mut().zip(messages.iter_mut()) {
            if message.is_some() {
                parts = parts.wrapping_add(self.deliver(handler, message, flow, *closing));
                continue;
            }
            let (queue, reported) = match wr_id(wc) {
                WrId::Recv(_) => (Queue::Recv, &mut *recv_failed),
                WrId::Send(_) => (Queue::Send, &mut *send_failed),
                WrId::Foreign => {
                    // SAFETY: By the invariants of `Poller` the entries are live.
                    unsafe { DrainEntry::forward(drains, *cq, wc) };
                    continue;
                }
            };
            if succeeded(wc) {
                if queue == Queue::Recv && !is_message(wc) {
                    self.handler.unexpected_opcode(wc.opcode);
                }
                continue;
            }
            let status = WcStatus(wc.status);
            let failure = Failure {
                queue,
                status,
                refused: refused.filter(|_| queue == Queue::Send && status.is_refused_by_peer()),
                vendor_err: wc.vendor_err,
            };
            let again = core::mem::replace(reported, true);
            if !again || !failure.status.is_flush() {
                self.handler.failed(self, failure);
            }
        }
        parts
    }

    /// Removes the buffers of the receives among `wcs` from their ring. The lock is taken once.
    /// Returns `false` if the receives were not the next ones. Flushed ones may come in any order:
    /// soft-iWARP flushes what is posted meanwhile before the receives that were there.
    fn take_received(&self, wcs: &[bindings::ib_wc], messages: &mut [Option<Received>]) -> bool {
        let (mut ring, mut ordered) = (None, true);
        for (wc, message) in wcs.iter().zip(messages) {
            let WrId::Recv(number) = wr_id(wc) else {
                continue;
            };
            let ring = ring.get_or_insert_with(|| self.recv.lock());
            let buf = ring.complete(number);
            ordered &= buf.is_some() || WcStatus(wc.status).is_flush();
            let buf = buf.filter(|_| is_message(wc));
            *message = buf.map(|buf| self.message(buf, wc.byte_len));
        }
        ordered
    }

    /// Removes the sends among `wcs` from their ring. The lock is taken once. Returns their number,
    /// the owner of the last operation that the peer has refused, and `false` if a successful
    /// send was not outstanding. Flushed ones may come in any order, as receives. And soft-iWARP
    /// may report the failure of a READ that its response has completed already.
    fn take_sent(&self, wcs: &[bindings::ib_wc]) -> (usize, Option<u64>, bool) {
        let (mut ring, mut reports, mut refused, mut ordered) = (None, 0usize, None, true);
        let mut completed: Fifo<OperationItem> = Fifo::new();
        for wc in wcs {
            if let WrId::Send(number) = wr_id(wc) {
                let status = WcStatus(wc.status);
                let ring = ring.get_or_insert_with(|| self.send.lock());
                let outstanding = ring.complete(number, status, &mut completed);
                ordered &= outstanding || status != WcStatus::SUCCESS;
                reports = reports.wrapping_add(usize::from(outstanding));
            }
        }
        let settled = ring.as_ref().is_some_and(|it| it.has_settled());
        drop(ring);
        while let Some(item) = completed.pop_front() {
            if item.status.is_refused_by_peer() {
                refused = Some(item.operation.owner());
            }
            self.handler.operated(&item);
            item.operation.done(item.last, item.status);
        }
        if settled && self.is_awaited.read_once() {
            self.settled.signal();
        }
        (reports, refused, ordered)
    }

    /// Creates the message that arrived in `buf`, synced for the CPU.
    fn message(&self, buf: BufMut, len: u32) -> Received {
        // CAST: a buffer is smaller than a shard.
        let len = len.min(buf.capacity() as u32);
        if let (true, Some(address)) = (self.sync, buf.posted_address()) {
            // SAFETY: The queue pair exists, so the device is valid and its mappings are kept.
            unsafe { bindings::rds_rust_ib_dma_sync_for_cpu(self.device, address, len as usize) };
        }
        Received { buf, len }
    }
}
