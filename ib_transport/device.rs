// SPDX-License-Identifier: GPL-2.0

//! An RDMA device of this node: its protection domain, pools and MRs, and its endpoints.
//!
//! The device has a work item that checks the receive rings of its endpoints, which softirqs could
//! not refill, and a [`CqWatchdog`].

use super::{
    cq_watchdog::CqWatchdog,
    endpoint_list::{
        EndpointList,
        EndpointQp,
        NextCheck, //
    },
    mr::MrPool,
    quirks::DeferredDestroy,
    IbTunables, //
};
use crate::{
    cm::laddr::AddrOwners,
    kapi::{
        rdma::{
            DeviceCaps,
            DeviceId,
            IbDevice,
            Pd, //
        },
        shrinker::Shrinker,
        sync::{
            cancel,
            cancel_delayed,
            OwnedQueue, //
        },
        task::without_io,
        time, //
    },
    proto::{
        keepalive::time_for_operations,
        starvation::next_give_up,
        wire::FragmentSize, //
    },
    recv_pool::{
        Context,
        LoweredLimit,
        PoolShared,
        Pools, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};

/// Period of the checks of deep receive rings.
const PERIOD_MS: u32 = 2000;
/// Delay of a check that an endpoint needs before the period ends.
const SOON_MS: u32 = 20;

/// A device that connections can use.
#[pin_data]
pub(crate) struct Device {
    pub(super) id: DeviceId,
    pub(super) pd: Arc<Pd>,
    pub(super) pools: Arc<Pools>,
    _shrinker: Shrinker<Pools>,
    pub(super) caps: DeviceCaps,
    pub(super) endpoints: Arc<EndpointList>,
    watch: Arc<CqWatchdog>,
    pub(super) regions: Arc<MrPool>,
    queue: Arc<OwnedQueue>,
    parking: Arc<DeferredDestroy>,
    _lowered: Option<LoweredLimit>,
    /// Work item that checks the receive rings.
    #[pin]
    service_ring: DelayedWork<Device, 0>,
    /// The work item is scheduled.
    service_armed: Atomic<bool>,
    /// The work item is scheduled after [`SOON_MS`] or less.
    soon: Atomic<bool>,
    /// Monotonic time in nanoseconds at which the current period ends.
    period_end: Atomic<u64>,
    /// Monotonic time in nanoseconds before which no connection may be given up for memory.
    next_give_up: Atomic<u64>,
    /// Rate of the port when the last queue pair was created, in Mbit/s; 0 if unknown.
    mbits: Atomic<u32>,
}

/// Returns the time `delay_ms` after `now`, in nanoseconds.
fn later(now: u64, delay_ms: u32) -> u64 {
    now.saturating_add(u64::from(delay_ms).saturating_mul(1_000_000))
}

kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Device { self.service_ring }
}

impl WorkItem<0> for Device {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let _: usize = this.service_ring();
        });
    }
}

impl Device {
    /// Creates the state of a device that endpoints do not use yet. May sleep.
    pub(super) fn new(
        device: &IbDevice,
        unmapped: &Arc<Pools>,
        owners: &Arc<AddrOwners>,
        pool_shared: &PoolShared,
        tunables: &Arc<IbTunables>,
        parking: &Arc<DeferredDestroy>,
    ) -> Result<Arc<Self>> {
        let pd = Pd::new(device)?;
        let endpoints = EndpointList::new(device.id(), owners.sections().clone())?;
        let pools = Pools::new(&pd, unmapped.clone(), pool_shared)?;
        let regions = MrPool::new(&pd, &endpoints, owners, tunables, &pool_shared.queue)?;
        let bounds = device.bounce_bounds();
        Arc::pin_init(
            try_pin_init!(Self {
                id: device.id(),
                pd,
                _shrinker: Shrinker::new(pools.clone())?,
                pools,
                caps: device.caps(),
                watch: CqWatchdog::new(&endpoints, &regions, tunables, &pool_shared.queue)?,
                regions,
                endpoints,
                queue: pool_shared.queue.clone(),
                parking: parking.clone(),
                _lowered: bounds.map(|bounds| pool_shared.most.lower(bounds.arena())),
                service_ring <- kernel::new_delayed_work!("Device::service_ring"),
                service_armed: Atomic::new(false),
                soon: Atomic::new(false),
                period_end: Atomic::new(0),
                next_give_up: Atomic::new(0),
                mbits: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns `true` for the device of this RDMA device. Any context.
    pub(super) fn is(&self, device: &IbDevice) -> bool {
        core::ptr::eq(self.pd.device(), device)
    }

    /// Ends all use of the device, and waits until there is none. Sleeps.
    pub(super) fn close(self: &Arc<Self>) {
        self.endpoints.close();
        self.regions.close();
        // Without endpoints nothing arms these again.
        self.watch.end();
        cancel_delayed::<_, 0>(self);
        // The item owns the queue, which must not end within an item of its own.
        cancel::<_, 0>(&self.regions);
    }

    /// Returns `true` if peers may use memory of programs. Any context except hard interrupt.
    pub(super) fn offers_memory(&self) -> bool {
        self.regions.offer_memory()
    }

    /// Returns the time in nanoseconds that operations of a peer on that memory may take. Any
    /// context except hard interrupt.
    pub(super) fn time_for_operations(&self) -> u64 {
        time_for_operations(self.mbits.load(Relaxed), self.endpoints.len())
    }

    /// Notes that a posted send completed, or that a queue pair is gone. Any context.
    #[inline]
    pub(super) fn note_progress(&self) {
        self.regions.note_progress();
    }

    /// Schedules a check of the receive rings at the end of the period. Any context.
    pub(super) fn service_later(self: &Arc<Self>) {
        if !self.service_armed.load(Relaxed) && !self.service_armed.xchg(true, Full) {
            // A shorter delay that was set meanwhile must not be replaced.
            self.queue.arm_unless_set::<_, 0>(self.clone(), PERIOD_MS);
        }
    }

    /// Schedules a check after `delay_ms`, even before the end of the period. Any context.
    fn service_in(self: &Arc<Self>, delay_ms: u32) {
        self.service_armed.store(true, Relaxed);
        self.queue.arm::<_, 0>(self.clone(), delay_ms);
    }

    /// Schedules a check after [`SOON_MS`]. Any context.
    pub(super) fn service_soon(self: &Arc<Self>) {
        // Repeated requests must not postpone the check.
        if !self.soon.xchg(true, Full) {
            self.service_in(SOON_MS);
        }
    }

    /// Schedules a check at once. Any context.
    pub(super) fn service_now(self: &Arc<Self>) {
        self.service_in(0);
    }

    /// Returns `true` if a connection may be given up at time `now` for the memory that it keeps or
    /// needs. Called only by `service_ring`. May sleep.
    ///
    /// `lacks_pieces`: it has found no memory in large pieces, so its next endpoint uses small
    /// ones. These are allocated here, because free ones may be for an endpoint that begins.
    pub(super) fn may_give_up(&self, now: u64, lacks_pieces: bool) -> bool {
        if now < self.next_give_up.load(Relaxed) {
            return false;
        }
        let small = self.pools.recv(FragmentSize::K4);
        let begin = time::monotonic_ns();
        let in_small_pieces = lacks_pieces && small.add_shard(Context::Worker).is_ok();
        let spent = time::monotonic_ns().saturating_sub(begin);
        let next = next_give_up(now, spent, in_small_pieces);
        self.next_give_up.store(next, Relaxed);
        true
    }

    /// Checks the receive rings of endpoints that request it, and of all when a period ends. Also
    /// destroys deferred CM ids. Returns the number of checked endpoints. Sleeps.
    pub(super) fn service_ring(self: &Arc<Self>) -> usize {
        self.service_armed.store(false, Relaxed);
        // Ordered before the check of the endpoints, or a request between both would be lost.
        self.soon.xchg(false, Full);
        let now = time::monotonic_ns();
        let period_ends = now >= self.period_end.load(Relaxed);
        if period_ends {
            self.period_end.store(later(now, PERIOD_MS), Relaxed);
        }
        // Endpoints that are skipped now may need a check then.
        let mut next = match period_ends || self.endpoints.is_empty() {
            true => NextCheck::Done,
            false => NextCheck::AtNextPeriod,
        };
        let mut serviced = 0usize;
        self.pools.begin_check();
        self.endpoints.for_each(
            |_, user| {
                let qp = user.qp.as_ref();
                qp.filter(|qp| period_ends || qp.needs_service()).cloned()
            },
            |qp| {
                serviced = serviced.saturating_add(1);
                next = next.max(qp.service_ring(period_ends));
            },
        );
        if self.parking.sweep(self.id) {
            next = next.max(NextCheck::AtNextPeriod);
        }
        match next {
            NextCheck::Done => {}
            NextCheck::AtNextPeriod => self.service_later(),
            NextCheck::Soon => self.service_soon(),
        }
        serviced
    }
}

/// Use of a device by an endpoint.
pub(super) struct DeviceUse {
    pub(super) device: Arc<Device>,
    /// Number of the endpoint in `endpoints`.
    pub(super) number: u64,
}

impl DeviceUse {
    /// Records the endpoint's queue pair, and the rate of the port. Sleeps.
    pub(super) fn set_qp(&self, qp: Arc<dyn EndpointQp>) {
        self.device.endpoints.set_qp(self.number, qp);
        let mbits = self.device.pd.device().port_mbits();
        self.device.mbits.store(mbits, Relaxed);
        self.device.watch.begin();
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.device.endpoints.leave(self.number);
        self.device.note_progress();
    }
}
