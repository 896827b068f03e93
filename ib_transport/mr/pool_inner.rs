// SPDX-License-Identifier: GPL-2.0

//! Invalidation of regions in batches, and release of their memory.
//!
//! The state of registrations and that of releases have a lock each. So registrations do not wait
//! for the device while it invalidates regions.

use super::{
    super::{
        endpoint_list::EndpointList,
        quirks::ReadQuiesceQueue, //
    },
    entry::{
        MrEntry,
        MrMemory, //
    },
    free_list::MrFreeList,
    reg_qp::RegQp, //
};
use crate::kapi::{
    rdma::{
        Mr,
        Pd,
        Region, //
    },
    sync::{
        Fifo,
        Item,
        OwnedQueue, //
    }, //
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex,
        UniqueArc, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// Number of regions that are invalidated together.
const BATCH: usize = 32;

/// Back-off after a registration timed out. Until it ends, callers fail at once instead of timing
/// out as well.
const RETRY_DELAY: Delta = Delta::from_secs(5);

/// State of registrations. It is locked for moments, except while a queue pair is closed or
/// created. All registrations wait for that.
pub(super) struct MrPoolInner {
    /// Created on first use, and again after a failure. Callers use it without the lock.
    pub(super) reg_qp: Option<Arc<RegQp>>,
    /// Time of the last timeout, and the address that was used.
    pub(super) late_at: Option<(Instant<Monotonic>, SocketAddr)>,
    pub(super) free_list: MrFreeList<Mr>,
}

impl MrPoolInner {
    /// Returns `true` if a registration through the address `addr` would only time out as well.
    pub(super) fn backs_off(&self, addr: &SocketAddr) -> bool {
        // Another address may lead to the device.
        self.late_at
            .as_ref()
            .is_some_and(|(since, by)| by == addr && since.elapsed() < RETRY_DELAY)
    }

    /// Begins a back-off if a registration through the address `addr` has timed out.
    pub(super) fn note_timeout(&mut self, addr: &SocketAddr, error: Error) {
        if error == ETIMEDOUT {
            self.late_at = Some((Instant::now(), *addr));
        }
    }

    /// Takes the registration queue pair if it is closed or being closed. Its drop sleeps.
    pub(super) fn take_closed(&mut self) -> Option<Arc<RegQp>> {
        self.reg_qp.take_if(|it| it.qp().is_closed())
    }

    /// Returns the registration queue pair. Creates it through the address `addr` if there is none.
    /// Sleeps.
    pub(super) fn reg_qp(
        &mut self,
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        endpoints: &Arc<EndpointList>,
        addr: &SocketAddr,
    ) -> Result<Arc<RegQp>> {
        if let Some(usable) = &self.reg_qp {
            return Ok(usable.clone());
        }
        // Allocated first. Otherwise a queue pair without a place would be disconnected here.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let made = place.write(RegQp::make(queue, pd, endpoints, addr)?);
        Ok(self.reg_qp.insert(made.into()).clone())
    }
}

/// State of releases. One caller at a time invalidates regions and waits for the device.
pub(super) struct MrReleases {
    pub(super) quiesces: ReadQuiesceQueue<MrEntry>,
}

impl MrReleases {
    /// Invalidates regions and releases memory. Appends the released entries to `released`. Sleeps.
    pub(super) fn invalidate(
        &mut self,
        device: &Mutex<MrPoolInner>,
        mut pending_invalidate: Fifo<MrEntry>,
        released: &mut Fifo<MrEntry>,
    ) {
        let mut some: KVec<Region> = KVec::new();
        // Entries of the regions in `some`.
        let mut batch_entries = Fifo::new();
        loop {
            let next = pending_invalidate.pop_front();
            let last = next.is_none();
            if let Some(mut entry) = next {
                // If there is no memory for the batch, the region is destroyed on its own.
                let batched = !entry.poisoned && some.reserve(1, GFP_KERNEL).is_ok();
                match entry.release() {
                    Some(region) if batched => {
                        drop(some.push_within_capacity(region));
                        batch_entries.push_back(entry);
                    }
                    Some(region) => self.end(region, entry, released),
                    None => released.push_back(entry),
                }
            }
            if some.len() < BATCH && !last {
                continue;
            }
            let reg_qp = device.lock().reg_qp.clone();
            if let Some(reg_qp) = reg_qp {
                // Regions that this does not invalidate are destroyed.
                let _ = reg_qp.qp().invalidate(&some);
            }
            for region in some.drain_all() {
                let Some(mut entry) = batch_entries.pop_front() else {
                    break;
                };
                if !entry.read_from {
                    reuse(device, region);
                    released.push_back(entry);
                } else if region.is_invalid() {
                    entry.memory = MrMemory::Region(region);
                    self.quiesces.add(entry);
                } else {
                    self.end(region, entry, released);
                }
            }
            if last {
                break;
            }
        }
    }

    /// Destroys a region that was not invalidated. Appends its entry to `released` if its memory is
    /// released. Sleeps.
    fn end(&mut self, region: Region, mut entry: Item<MrEntry>, released: &mut Fifo<MrEntry>) {
        let mapping = region.end();
        if entry.read_from {
            entry.memory = MrMemory::Mapped { _mapping: mapping };
            self.quiesces.add(entry);
        } else {
            drop(mapping);
            released.push_back(entry);
        }
    }

    /// Releases memory that no READ response uses any more, and appends the entries to `released`.
    /// Sleeps.
    pub(super) fn pass(
        &mut self,
        device: &Mutex<MrPoolInner>,
        endpoints: &EndpointList,
        released: &mut Fifo<MrEntry>,
    ) {
        let mut passed = self.quiesces.pass(endpoints);
        while let Some(mut entry) = passed.pop_front() {
            if let Some(region) = entry.release() {
                reuse(device, region);
            }
            released.push_back(entry);
        }
    }
}

/// Releases the memory of an invalid region, and keeps its MR if that can be reused. Sleeps.
fn reuse(device: &Mutex<MrPoolInner>, region: Region) {
    let pages = region.pages();
    if let Some(mr) = region.release() {
        // An MR for which there is no room is destroyed after the lock.
        let excess = device.lock().free_list.keep(pages, mr);
        drop(excess);
    }
}

/// Destroys all free MRs, each without the lock. Sleeps.
pub(super) fn destroy_free(device: &Mutex<MrPoolInner>) {
    loop {
        let free = device.lock().free_list.take_any();
        if free.is_none() {
            return;
        }
    }
}
