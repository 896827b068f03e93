// SPDX-License-Identifier: GPL-2.0

//! What is posted to a queue pair.
//!
//! Each ring has one slot per work request that may be outstanding. A slot holds everything that
//! the request needs: its completion entry, the C request with its one scatter/gather entry, and
//! the buffer. All but the entry's address is written once, so posting writes a few words; the
//! `next` pointers go round the ring for ever and are cut at the end of a chain while it is posted.
//!
//! The completion names the slot: `wr_cqe` points into the ring. A slot is taken while it holds a
//! buffer, and free otherwise. Work requests of a reliable connection start and complete in the
//! order in which they were posted (InfiniBand Architecture Specification, volume 1, chapter 10.8),
//! so the slots can be used in turn. If a device broke this rule, posting would find no free slot;
//! no buffer would be given back early.
//!
//! Successful sends report themselves only if they were posted `signaled`; such a completion stands
//! for all sends before it.

use super::{
    arena::Batch,
    pd::Domain,
    shard::{Buf, BufMut},
};
use crate::{bindings, kapi::errno::Errno};
use core::{mem, ptr};
use kernel::{error::to_result, prelude::*};

/// One send: the `len` bytes, at least one, from `offset` of `buf`.
pub(crate) struct SendItem {
    pub(crate) buf: Buf,
    /// In bytes.
    pub(crate) offset: u32,
    /// In bytes.
    pub(crate) len: u32,
    /// Report the completion of this and of all earlier sends.
    pub(crate) signaled: bool,
    /// Ask the receiver to treat the message as an event.
    pub(crate) solicited: bool,
}

impl SendItem {
    /// Where a device of `domain` finds the bytes, if there are any and all within the buffer.
    fn address(&self, domain: *const Domain) -> Option<u64> {
        let end = (self.offset as usize).checked_add(self.len as usize)?;
        // To some devices a length of zero means 2 GiB.
        if end > self.buf.capacity() || self.len == 0 {
            return None;
        }
        self.buf.address(domain)?.checked_add(self.offset.into())
    }

    fn flags(&self) -> c_int {
        let mut flags = 0;
        if self.signaled {
            flags |= bindings::ib_send_flags_IB_SEND_SIGNALED;
        }
        if self.solicited {
            flags |= bindings::ib_send_flags_IB_SEND_SOLICITED;
        }
        // CAST: flags are small.
        flags as c_int
    }
}

/// Sends that are posted together, in order.
pub(crate) struct SendChain {
    items: [Option<SendItem>; Self::MAX],
    len: usize,
}

impl SendChain {
    /// Most sends in a chain.
    pub(crate) const MAX: usize = 16;

    pub(crate) const fn new() -> Self {
        Self {
            items: [const { None }; Self::MAX],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a send at the end, or gives it back if there is no room.
    pub(crate) fn push(&mut self, item: SendItem) -> Result<(), SendItem> {
        match self.items.get_mut(self.len) {
            Some(place) => {
                *place = Some(item);
                self.len = self.len.wrapping_add(1);
                Ok(())
            }
            None => Err(item),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &SendItem> + '_ {
        self.items.iter().map_while(Option::as_ref)
    }

    fn drain(&mut self) -> impl Iterator<Item = SendItem> + '_ {
        self.len = 0;
        self.items.iter_mut().map_while(Option::take)
    }
}

/// Where the completion entries of a ring are.
#[derive(Clone, Copy)]
pub(super) struct CqeRange {
    base: usize,
    stride: usize,
    slots: usize,
}

impl CqeRange {
    fn new<T>(slots: &[T]) -> Self {
        Self {
            base: slots.as_ptr() as usize,
            stride: size_of::<T>(),
            slots: slots.len(),
        }
    }

    /// The slot within which `address` is.
    #[inline]
    pub(super) fn slot(&self, address: usize) -> Option<usize> {
        let index = address.wrapping_sub(self.base).checked_div(self.stride)?;
        (index < self.slots).then_some(index)
    }
}

fn after(index: usize, slots: usize) -> usize {
    match index.wrapping_add(1) {
        next if next < slots => next,
        _ => 0,
    }
}

/// One receive.
#[repr(C)]
struct RecvSlot {
    /// Only its address is used: the queue pair polls its completion queue itself.
    cqe: bindings::ib_cqe,
    wr: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buf: Option<BufMut>,
}

/// One send.
#[repr(C)]
struct SendSlot {
    /// As in [`RecvSlot`].
    cqe: bindings::ib_cqe,
    wr: bindings::ib_send_wr,
    sge: bindings::ib_sge,
    buf: Option<Buf>,
}

/// The receives of a queue pair.
///
/// # Invariants
///
/// - `qp` is null, or a queue pair of the protection domain `domain` which is not destroyed before
///   `qp` is made null.
/// - The pointers in `slots` point into `slots`, which never moves: `next` to the next slot,
///   `sg_list` and `wr_cqe` to the same one.
/// - While a work request may still complete, its buffer is in its slot.
pub(super) struct RecvRing {
    qp: *mut bindings::ib_qp,
    domain: *const Domain,
    slots: KVVec<RecvSlot>,
    /// The slot of the next receive.
    head: usize,
    /// Slots with a buffer.
    posted: u32,
}

// SAFETY: The pointers are to the ring's own memory or to things that any thread may use.
unsafe impl Send for RecvRing {}

impl RecvRing {
    /// May sleep.
    pub(super) fn new(slots: u32, domain: *const Domain, lkey: u32) -> Result<Self> {
        let mut this = Self {
            qp: ptr::null_mut(),
            domain,
            slots: KVVec::with_capacity(slots as usize, GFP_KERNEL)?,
            head: 0,
            posted: 0,
        };
        for _ in 0..slots {
            let slot = RecvSlot {
                cqe: bindings::ib_cqe::default(),
                wr: bindings::ib_recv_wr {
                    num_sge: 1,
                    ..Default::default()
                },
                sge: bindings::ib_sge {
                    lkey,
                    ..Default::default()
                },
                buf: None,
            };
            this.slots.push_within_capacity(slot)?;
        }
        // INVARIANT: The slots do not move after this.
        let mut next = this
            .slots
            .first_mut()
            .map_or(ptr::null_mut(), |slot| &raw mut slot.wr);
        for slot in this.slots.iter_mut().rev() {
            slot.wr.__bindgen_anon_1.wr_cqe = &raw mut slot.cqe;
            slot.wr.sg_list = &raw mut slot.sge;
            slot.wr.next = next;
            next = &raw mut slot.wr;
        }
        Ok(this)
    }

    pub(super) fn range(&self) -> CqeRange {
        CqeRange::new(&self.slots)
    }

    /// # Safety
    ///
    /// As the type invariants say of `qp`. Its completions must name the slots of this ring.
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
        let first = self.head;
        let mut last = None;
        let mut count = 0u32;
        while let Some(slot) = self.slots.get_mut(self.head).filter(|s| s.buf.is_none()) {
            let Some(buf) = batch.pop() else {
                break;
            };
            let Some(address) = buf.address(self.domain) else {
                return match last {
                    Some(last) => self.submit(first, last, count, batch),
                    None => Err(EINVAL),
                };
            };
            prepare(address, buf.capacity());
            slot.sge.addr = address;
            // CAST: a buffer is smaller than a shard.
            slot.sge.length = buf.capacity() as u32;
            slot.buf = Some(buf);
            last = Some(self.head);
            self.head = after(self.head, slots);
            count = count.wrapping_add(1);
        }
        match last {
            Some(last) => self.submit(first, last, count, batch),
            None => Ok(0),
        }
    }

    /// Gives the `count` slots from `first` to `last` to the device.
    fn submit(&mut self, first: usize, last: usize, count: u32, batch: &mut Batch) -> Result<u32> {
        let Some(wr) = self.slots.get(first).map(|slot| &raw const slot.wr) else {
            return Ok(0);
        };
        self.posted = self.posted.wrapping_add(count);
        let next = self.set_next(last, ptr::null_mut());
        let mut bad: *const bindings::ib_recv_wr = ptr::null();
        // SAFETY: By the type invariants the queue pair is alive and the chain from `first` to
        // `last` well formed; each buffer stays in its slot until its completion.
        let ret = unsafe { bindings::rds_ib_post_recv(self.qp, wr, &mut bad) };
        self.set_next(last, next);
        let Err(error) = to_result(ret) else {
            return Ok(count);
        };
        // Everything from `bad` on was not posted. If the device does not say, all might have been.
        let Some(bad) = self.range().slot(bad as usize) else {
            return Err(error);
        };
        let mut left = 0;
        let mut index = bad;
        while left < count {
            let Some(buf) = self.complete(index) else {
                break;
            };
            // There is room: it came from there.
            drop(batch.push(buf));
            left = left.wrapping_add(1);
            index = after(index, self.slots.len());
        }
        self.head = bad;
        match count.wrapping_sub(left) {
            0 => Err(error),
            posted => Ok(posted),
        }
    }

    fn set_next(
        &mut self,
        slot: usize,
        next: *mut bindings::ib_recv_wr,
    ) -> *mut bindings::ib_recv_wr {
        match self.slots.get_mut(slot) {
            Some(slot) => mem::replace(&mut slot.wr.next, next),
            None => ptr::null_mut(),
        }
    }

    /// The buffer of a receive that the device is done with.
    #[inline]
    pub(super) fn complete(&mut self, slot: usize) -> Option<BufMut> {
        let buf = self.slots.get_mut(slot)?.buf.take()?;
        self.posted = self.posted.wrapping_sub(1);
        Some(buf)
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

/// The sends of a queue pair.
///
/// # Invariants
///
/// As those of [`RecvRing`]. The `used` slots from `tail` on have buffers, and `head` follows them.
pub(super) struct SendRing {
    qp: *mut bindings::ib_qp,
    domain: *const Domain,
    slots: KVVec<SendSlot>,
    head: usize,
    tail: usize,
    used: u32,
}

// SAFETY: As for `RecvRing`.
unsafe impl Send for SendRing {}

impl SendRing {
    /// May sleep.
    pub(super) fn new(slots: u32, domain: *const Domain, lkey: u32) -> Result<Self> {
        let mut this = Self {
            qp: ptr::null_mut(),
            domain,
            slots: KVVec::with_capacity(slots as usize, GFP_KERNEL)?,
            head: 0,
            tail: 0,
            used: 0,
        };
        for _ in 0..slots {
            let slot = SendSlot {
                cqe: bindings::ib_cqe::default(),
                wr: bindings::ib_send_wr {
                    num_sge: 1,
                    opcode: bindings::ib_wr_opcode_IB_WR_SEND,
                    ..Default::default()
                },
                sge: bindings::ib_sge {
                    lkey,
                    ..Default::default()
                },
                buf: None,
            };
            this.slots.push_within_capacity(slot)?;
        }
        // INVARIANT: The slots do not move after this.
        let mut next = this
            .slots
            .first_mut()
            .map_or(ptr::null_mut(), |slot| &raw mut slot.wr);
        for slot in this.slots.iter_mut().rev() {
            slot.wr.__bindgen_anon_1.wr_cqe = &raw mut slot.cqe;
            slot.wr.sg_list = &raw mut slot.sge;
            slot.wr.next = next;
            next = &raw mut slot.wr;
        }
        Ok(this)
    }

    pub(super) fn range(&self) -> CqeRange {
        CqeRange::new(&self.slots)
    }

    /// # Safety
    ///
    /// As the type invariants say of `qp`. Its completions must name the slots of this ring.
    pub(super) unsafe fn open(&mut self, qp: *mut bindings::ib_qp) {
        self.qp = qp;
    }

    /// Number of sends that could be posted now.
    pub(super) fn space(&self) -> u32 {
        // CAST: `new` got the number as a `u32`.
        (self.slots.len() as u32).saturating_sub(self.used)
    }

    /// Posts all of `chain`, in order, with one call to the device. An error with nothing posted
    /// leaves `chain` as it was, unless it came from the device.
    pub(super) fn post(&mut self, chain: &mut SendChain, prepare: impl Fn(u64, usize)) -> Result {
        // CAST: a chain is short.
        let count = chain.len() as u32;
        if self.qp.is_null() {
            return Err(Errno::NotConnected.into());
        }
        if count > self.space() {
            return Err(EAGAIN);
        }
        let domain = self.domain;
        if chain.iter().any(|item| item.address(domain).is_none()) {
            return Err(EINVAL);
        }
        let first = self.head;
        let mut last = first;
        for item in chain.drain() {
            let Some((slot, address)) = self.slots.get_mut(self.head).zip(item.address(domain))
            else {
                break;
            };
            prepare(address, item.len as usize);
            slot.sge.addr = address;
            slot.sge.length = item.len;
            slot.wr.send_flags = item.flags();
            slot.buf = Some(item.buf);
            last = self.head;
            self.head = after(self.head, self.slots.len());
            self.used = self.used.wrapping_add(1);
        }
        if count == 0 {
            return Ok(());
        }
        self.submit(first, last, count)
    }

    /// Gives the `count` slots from `first` to `last` to the device.
    fn submit(&mut self, first: usize, last: usize, count: u32) -> Result {
        let Some(wr) = self.slots.get(first).map(|slot| &raw const slot.wr) else {
            return Ok(());
        };
        let next = self.set_next(last, ptr::null_mut());
        let mut bad: *const bindings::ib_send_wr = ptr::null();
        // SAFETY: By the type invariants the queue pair is alive and the chain from `first` to
        // `last` well formed; each buffer stays in its slot until its completion.
        let ret = unsafe { bindings::rds_ib_post_send(self.qp, wr, &mut bad) };
        self.set_next(last, next);
        let Err(error) = to_result(ret) else {
            return Ok(());
        };
        // Everything from `bad` on was not posted. If the device does not say, all might have been.
        let Some(bad) = self.range().slot(bad as usize) else {
            return Err(error);
        };
        let mut index = bad;
        for _ in 0..count {
            if !self.free(index) {
                break;
            }
            index = after(index, self.slots.len());
        }
        self.head = bad;
        Err(error)
    }

    fn set_next(
        &mut self,
        slot: usize,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        match self.slots.get_mut(slot) {
            Some(slot) => mem::replace(&mut slot.wr.next, next),
            None => ptr::null_mut(),
        }
    }

    /// Drops the buffer of a slot; false if there was none.
    fn free(&mut self, slot: usize) -> bool {
        let taken = self.slots.get_mut(slot).and_then(|slot| slot.buf.take());
        self.used = self.used.wrapping_sub(u32::from(taken.is_some()));
        taken.is_some()
    }

    /// The device is done with `slot` and with all before it. Returns how many sends that were.
    pub(super) fn complete(&mut self, slot: usize) -> u32 {
        let mut count = 0;
        let mut at = self.tail;
        while self.free(at) {
            count = u32::wrapping_add(count, 1);
            let done = at == slot;
            at = after(at, self.slots.len());
            if done {
                break;
            }
        }
        self.tail = at;
        count
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
