// SPDX-License-Identifier: GPL-2.0

//! Refill of the receive ring, and the adaptation of its depth.
//!
//! Softirqs refill the ring from the pool after each run of completions. If there is no memory, the
//! device's worker does it, which may sleep. At the end of a period the worker also shrinks a ring
//! that did not need its depth. A ring without buffers is starved: the peer waits, and gets a sign
//! of life. In the end one connection is given up, so that its memory suffices for the others.

use super::{
    endpoint_list::NextCheck,
    qp_context::QpContext,
    recv_ring::RecvRingPolicy, //
};
use crate::{
    kapi::{
        errno::Errno,
        print::pr_info_ratelimited,
        rdma::{
            Qp,
            RnrTimer, //
        },
        time, //
    },
    proto::{
        starvation::Shortage,
        wire::FragmentSize, //
    },
    recv_pool::{
        Batch,
        Context,
        GrowError, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    },
    time::{
        Delta,
        Instant, //
    }, //
};

/// Maximum number of pings per period that shrink the receive ring of an idle connection.
const MAX_PROBES: u32 = 64;

/// Interval of headers to the peer while the ring is starved. The peer gets no answers.
const STARVED_HEADER_INTERVAL: Delta = Delta::from_secs(1);

/// RNR timer for peers that are faster than the local receive ring grows.
pub(super) const RNR_TIMER: RnrTimer = RnrTimer::Microseconds40;

/// RNR timer while the ring is starved: the interval of the worker's checks. Earlier retries would
/// only cost both nodes time.
const STARVED_TIMER: RnrTimer = RnrTimer::Milliseconds20;

/// Result of filling a ring in which something is posted.
pub(super) enum Filled {
    /// The ring has its depth.
    Depth,
    /// There are no buffers for more.
    Short(Shortage),
}

/// Reason why no receive could be posted.
pub(super) enum FillError {
    Short(Shortage),
    Failed(Error),
}

impl From<Error> for FillError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<GrowError> for FillError {
    fn from(error: GrowError) -> Self {
        match error {
            GrowError::Limit => Self::Short(Shortage::Limit),
            GrowError::NoMemory | GrowError::Exhausted => Self::Short(Shortage::NoMemory),
            GrowError::Revoked => Self::Failed(ENODEV),
        }
    }
}

impl From<FillError> for Error {
    fn from(why: FillError) -> Error {
        match why {
            FillError::Short(_) => ENOMEM,
            FillError::Failed(error) => error,
        }
    }
}

impl QpContext {
    /// Posts receives until the ring has its depth or memory is short. May sleep, so `context` is
    /// not [`Context::Atomic`].
    ///
    /// # Errors
    ///
    /// - [`FillError`] if not even one is posted, so that nothing would ever complete.
    pub(super) fn fill(qp: &Qp<Self>, context: Context) -> Result<Filled, FillError> {
        let this = qp.handler();
        loop {
            let (missing, posted) =
                qp.with_poll(|ring| (ring.depth.missing(), ring.depth.posted()));
            if missing == 0 {
                return Ok(Filled::Depth);
            }
            let mut batch = Batch::new();
            let pool = this.device.pools.recv(this.shared.fragment());
            let found = pool.alloc_many(missing as usize, context, &mut batch);
            if let Err(why) = found {
                this.connection.node.stats.inc(Counter::IbRxAllocLimit);
                // For good, so not because of an earlier attempt in this run of the device's work.
                // Even if that was the one for this ring, it is lowered by a later run.
                let may_lower = posted > 0 && why != GrowError::Exhausted;
                if may_lower && qp.with_poll(|ring| ring.depth.lower(ring.usual)) {
                    continue;
                }
                return match why.into() {
                    FillError::Short(why) if posted > 0 => Ok(Filled::Short(why)),
                    error => Err(error),
                };
            }
            qp.with_poll(|ring| -> Result {
                let posted = qp.post_recv(&mut batch)?;
                ring.note_posted(posted, true);
                // Not later: another endpoint may have reset the credits by then.
                this.advertise_posted(posted, ring.depth.posted());
                Ok(())
            })?;
        }
    }

    /// Posts spare buffers, and others from the pool, until the ring has its depth. Some may be
    /// posted before an error.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if memory is short.
    /// - Any error of the device.
    pub(super) fn refill(qp: &Qp<Self>, ring: &mut RecvRingPolicy) -> Result {
        let this = qp.handler();
        while ring.depth.missing() > 0 {
            let wanted = (ring.depth.missing() as usize)
                .min(Batch::MAX)
                .saturating_sub(ring.spare.len());
            let pool = this.device.pools.recv(this.shared.fragment());
            // Without new buffers the spare ones may suffice.
            let got = pool.alloc_many(wanted, Context::Atomic, &mut ring.spare);
            let posted = qp.post_recv(&mut ring.spare)?;
            if posted == 0 {
                this.connection.node.stats.inc(Counter::IbRxAllocLimit);
                return Err(ENOMEM);
            }
            ring.note_posted(posted, got.is_ok_and(|got| got > 0));
            this.advertise_posted(posted, ring.depth.posted());
        }
        Ok(())
    }

    /// Refills the ring if softirqs could not, and adapts its depth at the end of a period. May
    /// sleep.
    pub(super) fn service_ring(qp: &Qp<Self>, period_ends: bool) -> NextCheck {
        let this = qp.handler();
        // The next endpoint of the connection may have begun.
        if this.shared.progress.has_ended() {
            return NextCheck::Done;
        }
        // Cleared before all checks, so that a later request causes another check.
        this.needs_service.xchg(false, Full);
        let next_check = Self::check_ring(qp, period_ends);
        if next_check == NextCheck::Soon {
            this.needs_service.store(true, Relaxed);
        }
        next_check
    }

    fn check_ring(qp: &Qp<Self>, period_ends: bool) -> NextCheck {
        let this = qp.handler();
        Self::make_room(qp);
        if this.shared.progress.has_ended() {
            return NextCheck::Done;
        }
        this.connection.resume();
        if qp.with_poll(|ring| ring.delayed.is_some()) {
            Self::show_life(qp);
            this.connection.fill_recv_reserve();
            qp.resume();
        }
        if period_ends {
            Self::end_period(qp);
        }
        if qp.with_poll(|ring| ring.depth.is_low()) {
            if let Some(next_check) = Self::refill_low_ring(qp) {
                return next_check;
            }
        }
        if qp.with_poll(|ring| core::mem::take(&mut ring.rnr_timer_raised)) {
            // After a failure the peer only waits longer than needed.
            let _ = qp.set_rnr_timer(RNR_TIMER);
        }
        if this.is_awaiting_first_frame() {
            // The connection may not be up yet; the next check sends the header then.
            this.connection.send_header();
            return NextCheck::Soon;
        }
        qp.with_poll(|ring| {
            if ring.send_starvation.is_starved() {
                NextCheck::Soon
            } else if ring.depth.is_small() {
                NextCheck::Done
            } else {
                NextCheck::AtNextPeriod
            }
        })
    }

    /// Adapts the depth of the ring to the period that ends.
    fn end_period(qp: &Qp<Self>) {
        let this = qp.handler();
        let decision = qp.with_poll(|ring| {
            let decision = ring.depth.end_period(MAX_PROBES);
            if decision.shrank {
                // Nothing is posted before the surplus is used, so advertising must not wait for
                // it.
                this.advertise_posted(0, ring.depth.depth().min(ring.depth.posted()));
            }
            decision
        });
        let stats = &this.connection.node.stats;
        stats.add(Counter::IbRxRingShrunk, decision.shrank.into());
        this.connection.probe(decision.ask);
    }

    /// Refills a ring that is low. Returns the time of the next check if the ring still is.
    fn refill_low_ring(qp: &Qp<Self>) -> Option<NextCheck> {
        let this = qp.handler();
        let stats = &this.connection.node.stats;
        stats.inc(Counter::IbRxRefillFromThread);
        match Self::fill(qp, Context::Worker) {
            // With flow control the peer stops before the ring is empty. No frame of it causes a
            // refill.
            Ok(Filled::Short(why)) if this.controlled => {
                let (posted, is_empty) =
                    qp.with_poll(|ring| (ring.depth.posted(), ring.is_empty()));
                this.advertise_posted(0, posted);
                return Some(match is_empty {
                    true => Self::on_ring_empty(qp, why),
                    false => NextCheck::Soon,
                });
            }
            Ok(_) => {}
            Err(FillError::Short(why)) => return Some(Self::on_ring_empty(qp, why)),
            // The queue pair is being closed.
            Err(FillError::Failed(error)) if error == Errno::NotConnected.into() => {}
            Err(FillError::Failed(error)) => this.give_up("receive memory", error),
        }
        None
    }

    /// Sends a header now and then to a peer from which nothing is received, so that it knows that
    /// this node lives.
    fn show_life(qp: &Qp<Self>) {
        let is_due = qp.with_poll(|ring| {
            let last = ring.last_header;
            let is_due = last.is_none_or(|last| last.elapsed() >= STARVED_HEADER_INTERVAL);
            if is_due {
                ring.last_header = Some(Instant::now());
            }
            is_due
        });
        if is_due {
            qp.handler().connection.send_header();
        }
    }

    /// Handles a starved ring: at most the receive that flow control reserves is posted, and there
    /// are no buffers. The peer waits, so no frame causes a refill; the worker has to try again.
    ///
    /// A partial message keeps its memory until the rest has arrived. If such messages keep all
    /// memory, one of them has to go with its connection, and is sent again. If the receives of
    /// idle connections keep it, or memory is free in small pieces only, the next endpoint uses
    /// small fragments. Those come from another pool.
    fn on_ring_empty(qp: &Qp<Self>, why: Shortage) -> NextCheck {
        let this = qp.handler();
        let stats = &this.connection.node.stats;
        stats.inc(Counter::IbRxRingEmpty);
        let posted = || qp.with_poll(|ring| ring.depth.posted());
        trace::recv_ring_empty(|| this.connection.key.traced(), posted);
        let path = &this.connection.path;
        let (ack, partial) = (path.ack(), path.in_reassembly());
        let fragment = this.shared.fragment();
        let now = time::monotonic_ns();
        let lasts = qp.with_poll(|ring| ring.starvation.wait(now, why, fragment, ack, partial));
        Self::show_life(qp);
        if this.device.caps.receiver_not_ready
            && !qp.with_poll(|ring| core::mem::replace(&mut ring.rnr_timer_raised, true))
        {
            // After a failure the peer only retries more often than needed, or the queue pair is
            // not connected yet.
            let _ = qp.set_rnr_timer(STARVED_TIMER);
        }
        let lacks_pieces = why == Shortage::NoMemory && fragment != FragmentSize::K4;
        if lasts && !this.shared.progress.has_ended() && this.device.may_give_up(now, lacks_pieces)
        {
            qp.with_poll(|ring| ring.starvation.end());
            stats.inc(Counter::IbRxStarvedDrop);
            pr_info_ratelimited!(
                this.connection.log_limit,
                "{}: no memory to receive: dropping the connection\n",
                this.connection.key
            );
            this.give_up_for_memory("receive memory", ENOMEM);
        }
        NextCheck::Soon
    }
}
