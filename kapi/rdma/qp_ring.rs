// SPDX-License-Identifier: GPL-2.0

//! Rings of a queue pair: what the send and the receive ring have in common, and the receive ring.
//!
//! # Operation
//!
//! Each ring has one slot for each work request that may be outstanding. A slot contains the buffer
//! and nothing else. The device reads the C work requests only during the post. So a ring has a
//! single chain of them, each with one scatter/gather entry (SGE). The chain is linked once. A post
//! writes a few words into each request, and cuts the chain after the last one.
//!
//! The work requests of a ring are numbered in the order of posting. `wr_id` is that number, with
//! [`SEND`] for a send. Successful sends report their completion only if they were posted signaled.
//! Such a completion covers all sends before it.
//!
//! # Ownership
//!
//! A slot is occupied while it contains a buffer. Work requests of a reliable connection start and
//! complete in the order of posting (InfiniBand Architecture Specification, volume 1, chapter
//! 10.8). So slots are used in turn, and the number of the next completion is known.
//!
//! # Errors
//!
//! A completion with another number has no effect on its ring, which releases no buffer early. It
//! was reported twice, or others before it are missing. A receive that is missing was a frame of
//! the peer. So the connection has to end. A missing completion of a send does no harm, because the
//! next one covers it.
//!
//! Flushed work requests end the connection anyway, in whichever order. Soft-iWARP flushes one that
//! is posted during the flush before those that were there.

use super::{
    batch::Batch,
    buf::BufMut,
    domain::Domain, //
};
use crate::{
    bindings,
    kapi::errno::Errno, //
};
use core::{
    mem,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Every `SIGNAL_EVERY`th send reports its completion, and thereby that of all before it. A small
/// ring has one signaled send for each half. Otherwise free slots would never be reported.
pub(super) const SIGNAL_EVERY: u32 = 16;

/// Flag in the `wr_id` of sends. Numbers of work requests are far below any kernel address, so they
/// cannot be confused with addresses of completion entries.
const SEND: u64 = 1 << 31;

/// Number of a work request in its ring, modulo 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrNumber(u32);

impl WrNumber {
    /// Returns the number of the work request that is posted after `count` others.
    #[inline]
    pub(super) fn of(count: u64) -> Self {
        // CAST: the number has 31 bits.
        Self((count & (SEND - 1)) as u32)
    }

    /// Returns the number of work requests from `earlier` to `self`, without `self`.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> u32 {
        let Self(count) = Self::of(self.0.wrapping_sub(earlier.0).into());
        count
    }

    /// Returns the `wr_id` of a send with this number.
    #[inline]
    pub(super) fn send_id(self) -> u64 {
        SEND | u64::from(self.0)
    }
}

/// The work request that a `wr_id` names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WrId {
    Recv(WrNumber),
    Send(WrNumber),
    /// Not of a ring: the address of a completion entry.
    Foreign,
}

impl WrId {
    #[inline]
    pub(super) fn of(wr_id: u64) -> Self {
        match wr_id {
            id if id < SEND => Self::Recv(WrNumber::of(id)),
            id if id < 2 * SEND => Self::Send(WrNumber::of(id)),
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

/// Returns the slot that is `count` slots before `index`. `count` is at most `slots`.
pub(super) fn before(index: usize, count: usize, slots: usize) -> usize {
    match index.checked_sub(count) {
        Some(index) => index,
        None => index.wrapping_add(slots).wrapping_sub(count),
    }
}

/// A chain of work requests for the next post.
///
/// The device follows pointers into this memory. So at most one request and its SGE are borrowed at
/// a time: a reference to the whole memory would invalidate these pointers.
///
/// # Invariants
///
/// - `links` is a box that `self` owns.
/// - The `next` of each request points to the following request, or is null in the last one. Its
///   `sg_list` points to the SGE with the same index.
pub(super) struct Chain<Wr> {
    links: NonNull<[ChainEntry<Wr>; CHAIN]>,
}

/// A request and its SGE, in one cache line. The request is at the begin.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct ChainEntry<Wr> {
    wr: Wr,
    sge: bindings::ib_sge,
}

const _: () = assert!(size_of::<ChainEntry<bindings::ib_send_wr>>() == 64);

/// Maximum number of work requests in one post: enough for a message of 64 KiB and a few more.
pub(super) const CHAIN: usize = 24;

/// Common interface of `struct ib_recv_wr` and `struct ib_send_wr` for [`Chain`].
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
    /// Allocates and links the requests. `lkey` is the key of all buffers.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(lkey: u32) -> Result<Self> {
        let sge = bindings::ib_sge {
            lkey,
            ..Default::default()
        };
        let wr = Wr::default();
        let links = KBox::new([ChainEntry { wr, sge }; CHAIN], GFP_KERNEL)?;
        let links = NonNull::new(KBox::into_raw(links)).ok_or(ENOMEM)?;
        // INVARIANT: `this` owns the box. The loop links the requests, beginning with the last one.
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

    /// Returns the addresses of a request and its SGE.
    #[inline]
    fn pointers(&self, index: usize) -> (*mut Wr, *mut bindings::ib_sge) {
        let link = self
            .links
            .as_ptr()
            .cast::<ChainEntry<Wr>>()
            .wrapping_add(index);
        let sge = link.wrapping_byte_add(mem::offset_of!(ChainEntry<Wr>, sge));
        (link.cast(), sge.cast())
    }

    /// Returns a request and its SGE.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> Option<(&mut Wr, &mut bindings::ib_sge)> {
        if index >= CHAIN {
            return None;
        }
        let (wr, sge) = self.pointers(index);
        // SAFETY: `index` is in range. By the type invariants `self` owns the request, and is
        // borrowed.
        let wr = unsafe { &mut *wr };
        // SAFETY: As above.
        let sge = unsafe { &mut *sge };
        Some((wr, sge))
    }

    /// Calls `post` with the first `count` requests.
    ///
    /// # Errors
    ///
    /// The number of requests that were posted, and the error of `post`.
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
            // The request `bad` and those after it were not posted. If the device does not set
            // `bad`, any number may have been posted.
            let offset = (bad as usize).wrapping_sub(first as usize);
            ((offset / size_of::<ChainEntry<Wr>>()).min(count), error)
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
        // SAFETY: By the type invariants `self` owns the box, and its lifetime ends here.
        drop(unsafe { KBox::from_raw(self.links.as_ptr()) });
    }
}

/// The receives of a queue pair.
///
/// # Invariants
///
/// - `qp` is null, or a queue pair of the protection domain `domain`. It is not destroyed before
///   `qp` is set to null.
/// - While a work request may still complete, its buffer is in its slot.
/// - The slots from `tail` to `head` are those of the receives from `done` to `posted`.
pub(super) struct RecvRing {
    qp: *mut bindings::ib_qp,
    domain: *const Domain,
    slots: KVVec<Option<BufMut>>,
    chain: Chain<bindings::ib_recv_wr>,
    /// The slot of the next receive.
    head: usize,
    /// The slot of the oldest receive.
    tail: usize,
    /// Number of receives posted.
    posted: u64,
    /// Number of receives completed.
    done: u64,
}

// SAFETY: The pointers point to the ring's own memory or to objects that any thread may use.
unsafe impl Send for RecvRing {}

/// Allocates empty slots.
///
/// # Errors
///
/// `ENOMEM` if there is no memory.
///
/// # Context
///
/// May sleep.
pub(super) fn empty_slots<T>(count: u32) -> Result<KVVec<Option<T>>> {
    let mut slots = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
    for _ in 0..count {
        slots.push_within_capacity(None)?;
    }
    Ok(slots)
}

impl RecvRing {
    /// Creates a closed ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(slots: u32, domain: *const Domain, lkey: u32) -> Result<Self> {
        Ok(Self {
            qp: ptr::null_mut(),
            domain,
            slots: empty_slots(slots)?,
            chain: Chain::new(lkey)?,
            head: 0,
            tail: 0,
            posted: 0,
            done: 0,
        })
    }

    /// Opens the ring for posts to `qp`.
    ///
    /// # Safety
    ///
    /// `qp` must satisfy the type invariants. Its receives must be those of this ring.
    pub(super) unsafe fn open(&mut self, qp: *mut bindings::ib_qp) {
        self.qp = qp;
    }

    /// Posts buffers of `batch` with one call to the device. Returns the number of posted buffers.
    ///
    /// Buffers stay in `batch` if there are no free slots or the device refuses them. A buffer that
    /// is not mapped for the device is dropped.
    ///
    /// # Errors
    ///
    /// - `ENOTCONN` if the queue pair is closed.
    /// - `EINVAL` if the first buffer is not mapped for the device.
    /// - Errors of the device, if it refuses all buffers or does not say which.
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
            let WrNumber(id) = WrNumber::of(self.posted);
            wr.set_id(id.into());
            sge.addr = address;
            // CAST: a buffer is smaller than a shard.
            sge.length = buf.capacity() as u32;
            *slot = Some(buf);
            self.head = after(self.head, slots);
            self.posted = self.posted.wrapping_add(1);
            count = count.wrapping_add(1);
        }
        if count == 0 {
            return Ok(0);
        }
        let qp = self.qp;
        // SAFETY: By the type invariants the queue pair is alive, and by those of `Chain` the chain
        // is well formed; each buffer stays in its slot until its completion.
        let post = |wr, bad: &mut _| unsafe { bindings::rds_rust_ib_post_recv(qp, wr, bad) };
        let Err((posted, error)) = self.chain.post(count, post) else {
            // CAST: a chain is short.
            return Ok(count as u32);
        };
        let left = count.wrapping_sub(posted);
        self.head = before(self.head, left, slots);
        self.posted = self.posted.wrapping_sub(left as u64);
        let mut at = self.head;
        for _ in 0..left {
            // There is room, because the buffer comes from this batch.
            if let Some(buf) = self.slots.get_mut(at).and_then(|slot| slot.take()) {
                drop(batch.push(buf));
            }
            at = after(at, slots);
        }
        // CAST: as above.
        match posted as u32 {
            0 => Err(error),
            posted if left > 0 => Ok(posted),
            // The device did not say which requests it refused.
            _ => Err(error),
        }
    }

    /// Returns the buffer of a receive that the device has completed. `None` if another receive
    /// would have been the next.
    #[inline]
    pub(super) fn complete(&mut self, number: WrNumber) -> Option<BufMut> {
        if number != WrNumber::of(self.done) {
            return None;
        }
        // The slot is empty if nothing is posted.
        let buf = self.slots.get_mut(self.tail)?.take()?;
        self.tail = after(self.tail, self.slots.len());
        self.done = self.done.wrapping_add(1);
        Some(buf)
    }

    /// Closes the ring: nothing is posted any more.
    pub(super) fn close(&mut self) {
        self.qp = ptr::null_mut();
    }

    /// Takes the slots out of the ring. The caller drops them without locks held.
    ///
    /// # Safety
    ///
    /// The queue pair must have been destroyed.
    pub(super) unsafe fn take_slots(&mut self) -> impl Sized {
        mem::replace(&mut self.slots, KVVec::new())
    }
}
