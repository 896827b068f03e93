// SPDX-License-Identifier: GPL-2.0

//! Invalidation of regions in batches, and release of their memory.

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
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Number of regions that are invalidated together.
const BATCH: usize = 32;

/// State of the pool that only one caller at a time uses.
pub(super) struct MrPoolInner {
    /// Created on first use, and again after a failure.
    pub(super) reg_qp: Option<RegQp>,
    /// Time of the last timeout, and the address that was used.
    pub(super) late_at: Option<(Instant<Monotonic>, SocketAddr)>,
    pub(super) free_list: MrFreeList<Mr>,
    pub(super) quiesces: ReadQuiesceQueue<MrEntry>,
}

impl MrPoolInner {
    /// Returns the registration queue pair. Creates it through the address `addr` if there is none.
    /// Sleeps.
    pub(super) fn reg_qp(
        &mut self,
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        endpoints: &Arc<EndpointList>,
        addr: &SocketAddr,
    ) -> Result<&RegQp> {
        if self.reg_qp.as_ref().is_some_and(|it| it.qp().is_closed()) {
            self.reg_qp = None;
        }
        let reg_qp = match self.reg_qp.take() {
            Some(usable) => usable,
            None => RegQp::make(queue, pd, endpoints, addr)?,
        };
        Ok(self.reg_qp.insert(reg_qp))
    }

    /// Invalidates regions and releases memory. Appends the released entries to `released`. Sleeps.
    pub(super) fn invalidate(
        &mut self,
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
            if let Some(reg_qp) = &self.reg_qp {
                // Regions that this does not invalidate are destroyed.
                let _ = reg_qp.qp().invalidate(&some);
            }
            for region in some.drain_all() {
                let Some(mut entry) = batch_entries.pop_front() else {
                    break;
                };
                if !entry.read_from {
                    self.reuse(region);
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

    /// Releases the memory of an invalid region, and keeps its MR if that can be reused. Sleeps.
    fn reuse(&mut self, region: Region) {
        let pages = region.pages();
        if let Some(mr) = region.release() {
            drop(self.free_list.keep(pages, mr));
        }
    }

    /// Releases memory that no READ response uses any more, and appends the entries to `released`.
    /// Sleeps.
    pub(super) fn pass(&mut self, endpoints: &EndpointList, released: &mut Fifo<MrEntry>) {
        let mut passed = self.quiesces.pass(endpoints);
        while let Some(mut entry) = passed.pop_front() {
            if let Some(region) = entry.release() {
                self.reuse(region);
            }
            released.push_back(entry);
        }
    }
}
