// SPDX-License-Identifier: GPL-2.0

//! Shards: pieces of memory with one DMA mapping each, cut into equal buffers.
//!
//! A buffer has a handle of one of two kinds. [`BufMut`] is its only handle: it may be written, and
//! it is what a receive is posted with. [`Buf`] is one of several that may read. A posted
//! [`BufMut`] belongs to the queue pair, so nobody reads what the device may be writing.
//!
//! A handle is 16 bytes and points to its shard without counting a reference: a shard leaves its
//! [`Arena`] only when all of its slots are free.

use super::{arena::Arena, bounce::Bounced, device::Device, domain::Domain};
use crate::bindings;
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};
use kernel::{
    error::to_result,
    list::{
        define_list_arc_field_getter, impl_list_arc_safe, impl_list_item, ListArc, ListArcField,
        ListLinks,
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{ordering, Atomic},
        Arc, Refcount,
    },
};

/// Words of the bitmap of free slots, and thereby the limit to the slots of a shard.
const BITMAP_WORDS: usize = 4;
/// Most slots in one shard.
pub(super) const MAX_SLOTS: u32 = 256;

/// Zeroed pages.
///
/// # Invariants
///
/// `ptr` is the start of `len` bytes, a power of two of pages, that `self` owns.
struct ShardMemory {
    ptr: NonNull<u8>,
    order: u32,
}

impl ShardMemory {
    /// Orders above `smallest` are tried without any effort. Sleeps if `may_sleep`.
    fn new(node: i32, order: u32, smallest: u32, may_sleep: bool) -> Option<Self> {
        // SAFETY: The function has no preconditions but that its caller may sleep if it says so.
        let ptr = unsafe { bindings::rds_rust_alloc_shard(node, order, smallest, may_sleep) };
        // INVARIANT: The allocation is new.
        NonNull::new(ptr.cast()).map(|ptr| Self { ptr, order })
    }
}

impl Drop for ShardMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the memory is ours and has this order.
        unsafe { bindings::rds_rust_free_shard(self.ptr.as_ptr().cast(), self.order) };
    }
}

/// A DMA mapping in both directions, unmapped when dropped. Any context.
///
/// # Invariants
///
/// `address` is a mapping of `len` bytes for `device` that `self` owns.
pub(super) struct ShardMapping {
    device: ARef<Device>,
    address: u64,
    len: usize,
    bounced: Option<Bounced>,
}

impl ShardMapping {
    /// Fails with ENOSPC if too many bounce buffers are in use already.
    ///
    /// # Safety
    ///
    /// The `len` bytes of `memory` must outlive the result.
    pub(super) unsafe fn new(
        device: ARef<Device>,
        memory: NonNull<u8>,
        len: usize,
    ) -> Result<Self> {
        let mut address = 0;
        // SAFETY: The device is registered, the caller vouches for the memory.
        to_result(unsafe {
            bindings::rds_rust_ib_dma_map(
                device.as_raw(),
                memory.as_ptr().cast(),
                len,
                &mut address,
            )
        })?;
        // INVARIANT: The mapping is new.
        let mut this = Self {
            device,
            address,
            len,
            bounced: None,
        };
        // SAFETY: The device is registered, and the mapping its own.
        match unsafe { bindings::rds_rust_ib_dma_bounce_bytes(this.device.as_raw(), address) } {
            0 => {}
            all => {
                let charged = Bounced::charge(len, all);
                this.bounced = Some(charged.ok_or(ENOSPC)?);
            }
        }
        Ok(this)
    }

    /// The most that an arena may have mapped in this way, in bytes; `None` if there is no bound.
    pub(super) fn bound(&self) -> Option<usize> {
        self.bounced.as_ref().map(Bounced::share_of_arena)
    }

    /// Where the device finds the first byte.
    #[cfg(rds_kunit_iommu)]
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    #[cfg(rds_kunit_iommu)]
    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for ShardMapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the mapping is ours.
        unsafe { bindings::rds_rust_ib_dma_unmap(self.device.as_raw(), self.address, self.len) };
    }
}

/// One shard.
///
/// # Invariants
///
/// - `memory` holds `slots` buffers of `buf_size` bytes; `refs` has `slots` entries.
/// - A slot whose bit in `free` is clear belongs to one [`BufMut`] or to one or more [`Buf`]s,
///   which are the only users of its bytes. Bits and `free_count` change under the lock of `arena`
///   only.
/// - The shard is in one of the lists of `arena`, and `arena` alive, while a bit is clear.
/// - While the domain at `domain` has users, `mapping` is there and `address` is where it starts.
#[pin_data]
pub(super) struct Shard {
    mapping: ListArcField<Option<ShardMapping>>,
    memory: ShardMemory,
    address: u64,
    domain: *const Domain,
    arena: NonNull<Arena>,
    buf_size: u32,
    slots: u32,
    /// Memory that a slot stands for, in bytes: more than its size.
    share: usize,
    free_count: Atomic<u32>,
    free: [Atomic<u64>; BITMAP_WORDS],
    refs: KVec<Refcount>,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Shard { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Shard { using ListLinks { self.links }; }
}

// SAFETY: The pointers are to things that any thread may use: see the invariants. All that changes
// is atomic or belongs to the owner of the `ListArc`.
unsafe impl Send for Shard {}
// SAFETY: As above.
unsafe impl Sync for Shard {}

/// A bitmap of `slots` ones.
fn all_free(slots: u32) -> [Atomic<u64>; BITMAP_WORDS] {
    let mut left = slots;
    [(); BITMAP_WORDS].map(|()| {
        let here = left.min(u64::BITS);
        left = left.saturating_sub(here);
        let none = u64::BITS.saturating_sub(here);
        Atomic::new(u64::MAX.checked_shr(none).unwrap_or(0))
    })
}

/// What a new shard is for.
pub(super) struct ShardSpec<'a> {
    /// Where the shard will belong.
    pub(super) arena: NonNull<Arena>,
    pub(super) buf_size: u32,
    /// Bytes of a shard: a page times two to the power of this.
    pub(super) order: u32,
    pub(super) smallest: u32,
    pub(super) node: i32,
    pub(super) may_sleep: bool,
    /// Domain and device of the mapping.
    pub(super) target: Option<(&'a Arc<Domain>, ARef<Device>)>,
}

/// Bytes of a shard of this order.
pub(super) fn shard_bytes(order: u32) -> usize {
    PAGE_SIZE.checked_shl(order).unwrap_or(usize::MAX)
}

impl Shard {
    pub(super) fn new(spec: ShardSpec<'_>) -> Result<ListArc<Self>> {
        let flags = if spec.may_sleep {
            GFP_KERNEL
        } else {
            GFP_ATOMIC
        };
        let len = shard_bytes(spec.order);
        let slots = u32::try_from(len)?
            .checked_div(spec.buf_size)
            .ok_or(EINVAL)?
            .min(MAX_SLOTS);
        let mut refs = KVec::with_capacity(slots as usize, flags)?;
        for _ in 0..slots {
            refs.push_within_capacity(Refcount::new(0))
                .map_err(|_| ENOMEM)?;
        }
        let memory =
            ShardMemory::new(spec.node, spec.order, spec.smallest, spec.may_sleep).ok_or(ENOMEM)?;
        let (start, mut address) = (memory.ptr, 0);
        let (domain, device) = match spec.target {
            None => (ptr::null(), None),
            Some((domain, device)) => (Arc::as_ptr(domain), Some(device)),
        };
        let map = |device| -> Result<ShardMapping> {
            // SAFETY: The memory is that of the shard, which drops the mapping first, also when it is not made.
            unsafe { ShardMapping::new(device, start, len) }
        };
        // INVARIANT: All slots are free.
        ListArc::pin_init(
            try_pin_init!(Self {
                // Not before the shard has its place, and after the memory: what is made here goes in reverse order.
                memory,
                mapping: {
                    let mapping = device.map(map).transpose()?;
                    address = mapping.as_ref().map_or(address, |mapping| mapping.address);
                    ListArcField::new(mapping)
                },
                address,
                domain,
                arena: spec.arena,
                buf_size: spec.buf_size,
                slots,
                share: len.checked_div(*slots as usize).unwrap_or(len),
                free: all_free(*slots),
                free_count: Atomic::new(*slots),
                refs,
                links <- ListLinks::new(),
            }),
            flags,
        )
    }

    define_list_arc_field_getter! {
        pub(super) fn mapping_mut(&mut self<0>) -> &mut Option<ShardMapping> { mapping }
    }

    pub(super) fn arena(&self) -> NonNull<Arena> {
        self.arena
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn bytes(&self) -> usize {
        shard_bytes(self.memory.order)
    }

    /// The NUMA node that the memory is on.
    pub(super) fn node(&self) -> i32 {
        // SAFETY: By the type invariants of `ShardMemory` these are pages.
        unsafe { bindings::rds_rust_node_of(self.memory.ptr.as_ptr().cast()) }
    }

    /// Number of free slots. Stable under the arena's lock only.
    pub(super) fn free_count(&self) -> u32 {
        self.free_count.load(ordering::Relaxed)
    }

    /// Takes a free slot.
    ///
    /// # Safety
    ///
    /// The arena's lock must be held, and the arena must live until the result is dropped.
    pub(super) unsafe fn take(&self) -> Option<BufMut> {
        let (word, bits, base) = self
            .free
            .iter()
            .zip((0..).step_by(u64::BITS as usize))
            .map(|(word, base)| (word, word.load(ordering::Relaxed), base))
            .find(|(_, bits, _): &(_, _, u32)| *bits != 0)?;
        word.store(bits & bits.wrapping_sub(1), ordering::Relaxed);
        self.free_count
            .store(self.free_count().wrapping_sub(1), ordering::Relaxed);
        // INVARIANT: The slot was free, so it has no other handle. The caller holds the lock.
        Some(BufMut {
            shard: NonNull::from(self),
            slot: base.wrapping_add(bits.trailing_zeros()),
        })
    }

    /// Makes a slot free.
    ///
    /// # Safety
    ///
    /// The arena's lock must be held, and the slot's last handle be on its way out.
    pub(super) unsafe fn put(&self, slot: u32) {
        if let Some(word) = self.free.get((slot / u64::BITS) as usize) {
            let bit = 1u64.wrapping_shl(slot % u64::BITS);
            word.store(word.load(ordering::Relaxed) | bit, ordering::Relaxed);
        }
        self.free_count
            .store(self.free_count().wrapping_add(1), ordering::Relaxed);
    }

    /// Where the slot's bytes are: `buf_size` of them.
    #[inline]
    fn slot_ptr(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * self.buf_size as usize;
        self.memory.ptr.as_ptr().wrapping_add(offset)
    }

    /// Where a device of `domain` finds the slot's bytes.
    #[inline]
    fn slot_address(&self, slot: u32, domain: *const Domain) -> Option<u64> {
        let offset = u64::from(slot) * u64::from(self.buf_size);
        ptr::eq(self.domain, domain).then(|| self.address.wrapping_add(offset))
    }
}

/// The only handle of a buffer. Dropping it frees the buffer, in any context but a hard interrupt.
///
/// # Invariants
///
/// `slot` is a slot of `shard` that is not free, and there is no other handle of it.
pub(crate) struct BufMut {
    shard: NonNull<Shard>,
    slot: u32,
}

// SAFETY: The buffer is plain bytes and the shard is `Sync`.
unsafe impl Send for BufMut {}
// SAFETY: Shared references only read.
unsafe impl Sync for BufMut {}

impl BufMut {
    #[inline]
    fn shard(&self) -> &Shard {
        // SAFETY: By the type invariants the slot is taken, so that the shard is alive.
        unsafe { self.shard.as_ref() }
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.shard().buf_size as usize
    }

    /// Memory that the buffer takes, its share of what is lost at the end of its shard included, in
    /// bytes.
    #[inline]
    pub(crate) fn true_size(&self) -> usize {
        self.shard().share
    }

    /// Whether what can reach the buffers of `arena` can reach this one.
    #[inline]
    pub(crate) fn is_for(&self, arena: &Arena) -> bool {
        ptr::eq(self.shard().domain, arena.domain())
    }

    /// All bytes. What was not written since the buffer was allocated has old contents.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let shard = self.shard();
        // SAFETY: The slot's bytes are initialised (the pages were zeroed), and by the type
        // invariants nobody else uses them.
        unsafe { core::slice::from_raw_parts(shard.slot_ptr(self.slot), shard.buf_size as usize) }
    }

    /// All bytes, for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.capacity();
        // SAFETY: The slot's bytes are initialised (the pages were zeroed), and by the type
        // invariants nobody else uses them.
        unsafe { core::slice::from_raw_parts_mut(self.shard().slot_ptr(self.slot), len) }
    }

    /// Ends writing: from now on the buffer may have several handles.
    #[inline]
    pub(crate) fn freeze(self) -> Buf {
        let this = ManuallyDrop::new(self);
        if let Some(refs) = this.shard().refs.get(this.slot as usize) {
            refs.set(1);
        }
        // INVARIANT: The slot had one handle, which the count of one now stands for.
        Buf {
            shard: this.shard,
            slot: this.slot,
        }
    }

    /// Where a device finds the buffer, if it is mapped in `domain`.
    #[inline]
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        self.shard().slot_address(self.slot, domain)
    }

    /// Where the device finds a buffer that was posted.
    #[inline]
    pub(super) fn posted_address(&self) -> Option<u64> {
        self.address(self.shard().domain)
    }
}

impl Drop for BufMut {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants this was the slot's only handle.
        unsafe { Arena::release(self.shard, self.slot) };
    }
}

/// A handle of a buffer that may have others and is only read. Cloning counts one up; dropping the
/// last handle frees the buffer. Any context but a hard interrupt.
///
/// # Invariants
///
/// `slot` is a slot of `shard` that is not free; its entry in `refs` counts `self`.
pub(crate) struct Buf {
    shard: NonNull<Shard>,
    slot: u32,
}

// SAFETY: The buffer is plain bytes that nobody writes, and the shard is `Sync`.
unsafe impl Send for Buf {}
// SAFETY: As above.
unsafe impl Sync for Buf {}

impl Buf {
    #[inline]
    fn shard(&self) -> &Shard {
        // SAFETY: By the type invariants the slot is taken, so that the shard is alive.
        unsafe { self.shard.as_ref() }
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.shard().buf_size as usize
    }

    /// Begins writing again, if there is no other handle.
    #[inline]
    pub(crate) fn thaw(self) -> Result<BufMut, Self> {
        let alone = self
            .shard()
            .refs
            .get(self.slot as usize)
            .is_some_and(|refs| refs.as_atomic().load(ordering::Acquire) == 1);
        if !alone {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // INVARIANT: The one handle was `self`, and without it nobody can make another.
        Ok(BufMut {
            shard: this.shard,
            slot: this.slot,
        })
    }

    /// Where a device finds the buffer, if it is mapped in `domain`.
    #[inline]
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        self.shard().slot_address(self.slot, domain)
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Self {
        if let Some(refs) = self.shard().refs.get(self.slot as usize) {
            refs.inc();
        }
        // INVARIANT: Just counted; a count that saturates never gets back to zero.
        Self {
            shard: self.shard,
            slot: self.slot,
        }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        let last = match self.shard().refs.get(self.slot as usize) {
            Some(refs) => refs.dec_and_test(),
            None => false,
        };
        if last {
            // SAFETY: The count reached zero, so this was the last handle.
            unsafe { Arena::release(self.shard, self.slot) };
        }
    }
}
