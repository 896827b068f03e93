// SPDX-License-Identifier: GPL-2.0

//! What is posted to a queue pair.
//!
//! Each ring has one slot per work request that may be outstanding. A slot holds the buffer and
//! nothing else. The C requests that name a chain's buffers to the device are read while it is posted
//! and not after that, so a ring has one chain of them, each with its one scatter/gather entry. It is
//! linked once; posting writes a few words into each, and cuts the chain where it ends.
//!
//! The completion names the slot: `wr_id` is its number, with [`SEND`] for a send. A slot is taken
//! while it holds a buffer, and free otherwise. Work requests of a reliable connection start and complete in the
//! order in which they were posted (InfiniBand Architecture Specification, volume 1, chapter 10.8),
//! so the slots can be used in turn. If a device broke this rule, posting would find no free slot;
//! no buffer would be given back early.
//!
//! Successful sends report themselves only if they were posted `signaled`; such a completion stands
//! for all sends before it.

use super::{
    batch::Batch,
    domain::Domain,
    shard::{Buf, BufMut},
};
use crate::{bindings, kapi::errno::Errno};
use core::{
    mem,
    ptr::{self, NonNull},
};
use kernel::{error::to_result, prelude::*};

/// Every so many sends one reports its completion, and that of all before it. In a small ring it is one
/// for each half of the ring, or no one would hear that there is room again.
pub(super) const SIGNAL_EVERY: u32 = 16;

/// One send: the first `len` bytes, at least one, of `buf`.
pub(crate) struct SendItem {
    pub(crate) buf: Buf,
    /// In bytes.
    pub(crate) len: u32,
    /// Ask the receiver to treat the message as an event.
    pub(crate) solicited: bool,
    /// Reads and atomics before it are done when it begins.
    pub(crate) fence: bool,
}

impl SendItem {
    /// Where a device of `domain` finds the bytes, if there are any and all within the buffer.
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        // To some devices a length of zero means 2 GiB.
        if self.len as usize > self.buf.capacity() || self.len == 0 {
            return None;
        }
        self.buf.address(domain)
    }
}

/// Set in the `wr_id` of sends, to tell them from receives. Both are far below any address, so that
/// they cannot be taken for the completion entries of others.
pub(super) const SEND: u64 = 1 << 31;

/// Which slot a `wr_id` names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Recv(usize),
    Send(usize),
    /// None of ours: the address of a completion entry.
    Foreign,
}

impl Slot {
    #[inline]
    pub(super) fn of(wr_id: u64) -> Self {
        // CAST: both numbers have 31 bits at most.
        match wr_id {
            id if id < SEND => Self::Recv(id as usize),
            id if id < 2 * SEND => Self::Send((id - SEND) as usize),
            _ => Self::Foreign,
        }
    }
}

pub(super) fn after(index: usize, slots: usize) -> usize {
    match index.wrapping_add(1) {
        next if next < slots => next,
        _ => 0,
    }
}

/// The slot `count`, at most `slots`, before `index`.
pub(super) fn before(index: usize, count: usize, slots: usize) -> usize {
    match index.checked_sub(count) {
        Some(index) => index,
        None => index.wrapping_add(slots).wrapping_sub(count),
    }
}

/// Work requests that the device is about to be given.
///
/// The device follows pointers into this memory, so nobody borrows more of it than one request and
/// its entry: a reference to the whole would end the right of these pointers to be used.
///
/// # Invariants
///
/// - `links` is a box that `self` owns.
/// - Each request's `next` points to the one after it, or is null in the last one, and its `sg_list`
///   to the entry of the same number.
pub(super) struct Chain<Wr> {
    links: NonNull<Links<Wr>>,
}

struct Links<Wr> {
    wrs: [Wr; CHAIN],
    sges: [bindings::ib_sge; CHAIN],
}

/// Most work requests that are posted at once: a message of 64 KiB and some.
pub(super) const CHAIN: usize = 24;

/// What [`Chain`] needs of `struct ib_recv_wr` and `struct ib_send_wr`.
pub(super) trait WorkRequest: Copy + Default {
    fn link(&mut self, next: *mut Self, sge: *mut bindings::ib_sge);
    fn next(&mut self) -> &mut *mut Self;
    fn set_id(&mut self, id: u64);
}

impl WorkRequest for bindings::ib_recv_wr {
    fn link(&mut self, next: *mut Self, sge: *mut bindings::ib_sge) {
        self.next = next;
        self.sg_list = sge;
        self.num_sge = 1;
    }

    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }

    #[inline]
    fn set_id(&mut self, id: u64) {
        self.__bindgen_anon_1.wr_id = id;
    }
}

impl WorkRequest for bindings::ib_send_wr {
    fn link(&mut self, next: *mut Self, sge: *mut bindings::ib_sge) {
        self.next = next;
        self.sg_list = sge;
        self.num_sge = 1;
        self.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
    }

    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }

    #[inline]
    fn set_id(&mut self, id: u64) {
        self.__bindgen_anon_1.wr_id = id;
    }
}

impl<Wr: WorkRequest> Chain<Wr> {
    /// May sleep.
    pub(super) fn new(lkey: u32) -> Result<Self> {
        let sge = bindings::ib_sge {
            lkey,
            ..Default::default()
        };
        let links = KBox::new(
            Links {
                wrs: [Wr::default(); CHAIN],
                sges: [sge; CHAIN],
            },
            GFP_KERNEL,
        )?;
        let links = NonNull::new(KBox::into_raw(links)).ok_or(ENOMEM)?;
        // INVARIANT: The box is owned. The requests are linked below, from the last one on.
        let mut this = Self { links };
        let mut next = ptr::null_mut();
        for index in (0..CHAIN).rev() {
            let (wr_ptr, sge_ptr) = this.pointers(index);
            if let Some((wr, _)) = this.at(index) {
                wr.link(next, sge_ptr);
            }
            next = wr_ptr;
        }
        Ok(this)
    }

    /// Where the request of this number and its entry are.
    #[inline]
    fn pointers(&self, index: usize) -> (*mut Wr, *mut bindings::ib_sge) {
        let links = self.links.as_ptr();
        // SAFETY: By the type invariants it is a place in memory that `self` owns.
        let wrs = unsafe { &raw mut (*links).wrs };
        // SAFETY: As above.
        let sges = unsafe { &raw mut (*links).sges };
        let (wrs, sges) = (wrs.cast::<Wr>(), sges.cast::<bindings::ib_sge>());
        (wrs.wrapping_add(index), sges.wrapping_add(index))
    }

    /// The request of this number and its entry.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> Option<(&mut Wr, &mut bindings::ib_sge)> {
        if index >= CHAIN {
            return None;
        }
        let (wr, sge) = self.pointers(index);
        // SAFETY: There are as many; by the type invariants `self` owns them, and is borrowed.
        let wr = unsafe { &mut *wr };
        // SAFETY: As above.
        let sge = unsafe { &mut *sge };
        Some((wr, sge))
    }

    /// Calls `post` with the first `count` requests. Fails with the number of those that were posted.
    pub(super) fn post(
        &mut self,
        count: usize,
        post: impl FnOnce(*const Wr, &mut *const Wr) -> c_int,
    ) -> Result<(), (usize, Error)> {
        let mut bad: *const Wr = ptr::null();
        let cut = count.wrapping_sub(1);
        let next = self.set_next(cut, ptr::null_mut());
        let (first, _) = self.pointers(0);
        let result = to_result(post(first, &mut bad));
        self.set_next(cut, next);
        result.map_err(|error| {
            // Everything from `bad` on was not posted. If the device does not say, all might have been.
            let offset = (bad as usize).wrapping_sub(first as usize);
            ((offset / size_of::<Wr>()).min(count), error)
        })
    }

    fn set_next(&mut self, index: usize, next: *mut Wr) -> *mut Wr {
        match self.at(index) {
            Some((wr, _)) => mem::replace(wr.next(), next),
            None => ptr::null_mut(),
        }
    }
}

impl<Wr> Drop for Chain<Wr> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the box, and it ends here.
        drop(unsafe { KBox::from_raw(self.links.as_ptr()) });
    }
}

/// The receives of a queue pair.
///
/// # Invariants
///
/// - `qp` is null, or a queue pair of the protection domain `domain` which is not destroyed before
///   `qp` is made null.
/// - While a work request may still complete, its buffer is in its slot.
pub(super) struct RecvRing {
    qp: *mut bindings::ib_qp,
    domain: *const Domain,
    slots: KVVec<Option<BufMut>>,
    chain: Chain<bindings::ib_recv_wr>,
    /// The slot of the next receive.
    head: usize,
}

// SAFETY: The pointers are to the ring's own memory or to things that any thread may use.
unsafe impl Send for RecvRing {}

/// Slots without a buffer. May sleep.
pub(super) fn empty_slots<T>(count: u32) -> Result<KVVec<Option<T>>> {
    let mut slots = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
    for _ in 0..count {
        slots.push_within_capacity(None)?;
    }
    Ok(slots)
}

impl RecvRing {
    /// May sleep.
    pub(super) fn new(slots: u32, domain: *const Domain, lkey: u32) -> Result<Self> {
        Ok(Self {
            qp: ptr::null_mut(),
            domain,
            slots: empty_slots(slots)?,
            chain: Chain::new(lkey)?,
            head: 0,
        })
    }

    /// # Safety
    ///
    /// As the type invariants say of `qp`. Its receives must name the slots of this ring.
    pub(super) unsafe fn open(&mut self, qp: *mut bindings::ib_qp) {
        self.qp = qp;
    }

    /// Posts the buffers of `batch`, as many as there are free slots, with one call to the device.
    /// What was not posted is left in `batch`, but for a buffer that the device cannot reach.
    pub(super) fn post(&mut self, batch: &mut Batch, prepare: impl Fn(u64, usize)) -> Result<u32> {
        if self.qp.is_null() {
            return Err(Errno::NotConnected.into());
        }
        let slots = self.slots.len();
        let mut count = 0usize;
        while let Some(slot) = self.slots.get_mut(self.head).filter(|slot| slot.is_none()) {
            let Some((wr, sge)) = self.chain.at(count) else {
                break;
            };
            let Some(buf) = batch.pop() else {
                break;
            };
            let Some(address) = buf.address(self.domain) else {
                if count == 0 {
                    return Err(EINVAL);
                }
                break;
            };
            prepare(address, buf.capacity());
            wr.set_id(self.head as u64);
            sge.addr = address;
            // CAST: a buffer is smaller than a shard.
            sge.length = buf.capacity() as u32;
            *slot = Some(buf);
            self.head = after(self.head, slots);
            count = count.wrapping_add(1);
        }
        if count == 0 {
            return Ok(0);
        }
        let qp = self.qp;
        // SAFETY: By the type invariants the queue pair is alive, and by those of `Chain` the chain
        // is well formed; each buffer stays in its slot until its completion.
        let post = |wr, bad: &mut _| unsafe { bindings::rds_ib_post_recv(qp, wr, bad) };
        let Err((posted, error)) = self.chain.post(count, post) else {
            // CAST: a chain is short.
            return Ok(count as u32);
        };
        let left = count.wrapping_sub(posted);
        self.head = before(self.head, left, slots);
        let mut at = self.head;
        for _ in 0..left {
            // There is room: it came from there.
            if let Some(buf) = self.complete(at) {
                drop(batch.push(buf));
            }
            at = after(at, slots);
        }
        // CAST: as above.
        match posted as u32 {
            0 => Err(error),
            posted if left > 0 => Ok(posted),
            // The device did not say what it refused.
            _ => Err(error),
        }
    }

    /// The buffer of a receive that the device is done with.
    #[inline]
    pub(super) fn complete(&mut self, slot: usize) -> Option<BufMut> {
        self.slots.get_mut(slot)?.take()
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
