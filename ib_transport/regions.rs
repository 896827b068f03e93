// SPDX-License-Identifier: GPL-2.0

//! The memory regions of a device: those that programs have, and those that wait to be used again.
//!
//! A program's region is a [`Held`]. When that is dropped, in whatever context, its region becomes stale: peers may
//! still use it for a moment, until the device's worker has invalidated it, together with others. Its memory is
//! released then, and its [`Mr`] kept for the next one.
//!
//! When the device goes, regions go with it; what programs have of them stands for nothing from then on.

use super::registrar::Registrar;
use crate::conn::RemoteMemory;
use crate::kapi::{
    errno::Errno,
    pin::PinnedMemory,
    rdma::{Access, Mr, Pd, Region},
    sync::{new_spinlock_bh, Fifo, Item, OwnedQueue, SpinLockBh},
};
use crate::proto::rdma::Cookie;
use core::net::SocketAddr;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, Mutex},
    workqueue::{new_work, Work, WorkItem},
};

/// The most pages that a region may have: 1 MiB that does not begin with a page.
pub(crate) const MAX_PAGES: usize = 257;
/// Pages of the smaller kind of regions.
const SMALL_PAGES: usize = 3;
/// How many of each kind are kept for the next one.
const SPARE: usize = 64;

/// Those that wait to be used again, of one kind.
struct Spare {
    pages: usize,
    mrs: KVec<Mr>,
}

impl Spare {
    /// Room for all of them. May sleep.
    fn new(pages: usize) -> Result<Self> {
        Ok(Self {
            pages,
            mrs: KVec::with_capacity(SPARE, GFP_KERNEL)?,
        })
    }
}

/// What one caller at a time uses.
struct Device {
    /// Made when it is needed for the first time, and again when it has failed.
    registrar: Option<Registrar>,
    small: Spare,
    large: Spare,
}

impl Device {
    /// The registrar, which `addr` leads to if there is none yet. Sleeps.
    fn registrar(
        &mut self,
        queue: &OwnedQueue,
        pd: &Arc<Pd>,
        addr: &SocketAddr,
    ) -> Result<&Registrar> {
        if self
            .registrar
            .as_ref()
            .is_some_and(|it| it.qp().is_closed())
        {
            self.registrar = None;
        }
        let registrar = match self.registrar.take() {
            Some(usable) => usable,
            None => Registrar::make(queue, pd, addr)?,
        };
        Ok(self.registrar.insert(registrar))
    }

    fn spare(&mut self, pages: usize) -> &mut Spare {
        if pages <= SMALL_PAGES {
            &mut self.small
        } else {
            &mut self.large
        }
    }

    /// Ends what peers may do with the regions, releases their memory, and keeps what can be used again. Sleeps.
    fn invalidate(&mut self, mut stale: Fifo<Region>) {
        let mut some: KVec<Region> = KVec::new();
        loop {
            let next = stale.pop_front().map(Item::into_inner);
            let last = next.is_none();
            // Without memory for it, a region goes by itself; that ends all that peers may do.
            if let Some(region) = next {
                drop(some.push(region, GFP_KERNEL));
            }
            if some.len() < BATCH && !last {
                continue;
            }
            if let Some(registrar) = &self.registrar {
                // Those that are not invalidated by this are destroyed.
                let _ = registrar.qp().invalidate(&some);
            }
            while let Some(region) = some.pop() {
                let pages = region.pages();
                if let Some(mr) = region.release() {
                    // There is room for some; the others go.
                    drop(self.spare(pages).mrs.push_within_capacity(mr));
                }
            }
            if last {
                break;
            }
        }
    }
}

/// How many are invalidated at once.
const BATCH: usize = 32;

/// What changes in any context.
struct State {
    /// What programs have, by number.
    held: RBTree<u64, Item<Region>>,
    next: u64,
    stale: Fifo<Region>,
    closed: bool,
}

/// The regions of a device.
#[pin_data]
pub(super) struct Regions {
    pd: Arc<Pd>,
    queue: Arc<OwnedQueue>,
    /// Before `state`.
    #[pin]
    device: Mutex<Device>,
    #[pin]
    state: SpinLockBh<State>,
    #[pin]
    sweep: Work<Regions>,
}

kernel::impl_has_work! {
    impl HasWork<Self> for Regions { self.sweep }
}

impl WorkItem for Regions {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.sweep();
    }
}

impl Regions {
    /// Has none, and asks the device for none before [`Self::register`]. May sleep.
    pub(super) fn new(pd: &Arc<Pd>, queue: &Arc<OwnedQueue>) -> Result<Arc<Self>> {
        let device = Device {
            registrar: None,
            small: Spare::new(SMALL_PAGES)?,
            large: Spare::new(MAX_PAGES)?,
        };
        let state = State {
            held: RBTree::new(),
            next: 0,
            stale: Fifo::new(),
            closed: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                pd: pd.clone(),
                queue: queue.clone(),
                device <- new_mutex!(device, "Regions::device"),
                state <- new_spinlock_bh!(state, "Regions::state"),
                sweep <- new_work!("Regions::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Registers memory of a program, by way of a local address of the device if it was not asked before.
    ///
    /// Fails with EMSGSIZE for more than [`MAX_PAGES`], ENODEV if the device goes or has not the address, EIO or
    /// ETIMEDOUT if it fails, ENOMEM. Process context; sleeps.
    pub(super) fn register(
        self: &Arc<Self>,
        addr: &SocketAddr,
        memory: PinnedMemory,
        access: Access,
    ) -> Result<Held> {
        let pages = memory.page_count();
        if pages > MAX_PAGES {
            return Err(Errno::MessageTooLong.into());
        }
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut device = self.device.lock();
        if self.state.lock().closed {
            return Err(ENODEV);
        }
        let spare = device.spare(pages);
        let size = u32::try_from(spare.pages)?;
        let mr = match spare.mrs.pop() {
            Some(mr) => mr,
            None => Mr::new(&self.pd, size).or_else(|_| {
                // Those that are about to go may be in the way.
                device.invalidate(self.take_stale());
                Mr::new(&self.pd, size)
            })?,
        };
        let registrar = device.registrar(&self.queue, &self.pd, addr)?;
        let region = registrar.qp().register(mr, memory, access)?;
        let cookie = Cookie {
            rkey: region.rkey(),
            offset: region.offset(),
        };
        let region = Item::new(region, GFP_KERNEL)?;
        let mut state = self.state.lock();
        let number = state.next;
        state.next = number.wrapping_add(1);
        // The number is new.
        state.held.insert(place.into_node(number, region));
        drop(state);
        drop(device);
        Ok(Held {
            home: self.clone(),
            number,
            cookie,
        })
    }

    fn take_stale(&self) -> Fifo<Region> {
        let mut stale = Fifo::new();
        stale.append(&mut self.state.lock().stale);
        stale
    }

    /// Ends what peers may do with stale regions. Sleeps.
    pub(super) fn sweep(&self) {
        let mut device = self.device.lock();
        let stale = self.take_stale();
        device.invalidate(stale);
    }

    /// The device goes: nothing of it is left when this returns, and nothing can be registered any more. Sleeps.
    pub(super) fn close(&self) {
        let mut device = self.device.lock();
        let mut state = self.state.lock();
        state.closed = true;
        let held = core::mem::replace(&mut state.held, RBTree::new());
        drop(state);
        let stale = self.take_stale();
        device.invalidate(stale);
        // These are destroyed.
        drop(held);
        device.small.mrs.clear();
        device.large.mrs.clear();
        device.registrar = None;
    }
}

/// A region that a program has. May be dropped in any context but a hard interrupt, without locks of this module.
pub(crate) struct Held {
    home: Arc<Regions>,
    number: u64,
    cookie: Cookie,
}

impl RemoteMemory for Held {
    fn cookie(&self) -> Cookie {
        self.cookie
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.home.state.lock();
        let Some(region) = state.held.remove(&self.number) else {
            // It went with its device.
            return;
        };
        state.stale.push_back(region);
        drop(state);
        self.home.queue.enqueue::<_, 0>(self.home.clone());
    }
}
