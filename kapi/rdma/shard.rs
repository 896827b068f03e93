// SPDX-License-Identifier: GPL-2.0

//! Shards: pieces of memory with one DMA mapping each, divided into buffers of one size.
//!
//! A shard has a slot for each of its buffers. An [`Arena`](super::Arena) owns shards, and the
//! handles of buffers are in `buf.rs`.

use super::{
    bounce::{
        ArenaAccount,
        Bounced, //
    },
    device::IbDevice,
    domain::Domain,
    shard_mapping::ShardMapping, //
};
use crate::bindings;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    list::{
        define_list_arc_field_getter,
        impl_list_arc_safe,
        impl_list_item,
        ListArc,
        ListArcField,
        ListLinks, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Refcount, //
    }, //
};

/// Number of words in the bitmap of free slots. It limits the number of slots in a shard.
const BITMAP_WORDS: usize = 4;
/// Maximum number of slots in a shard.
pub(super) const MAX_SLOTS: u32 = 256;

/// Pages that were zeroed when they were allocated.
///
/// # Invariants
///
/// `ptr` points to 2^`order` contiguous pages that `self` owns.
struct ShardMemory {
    ptr: NonNull<u8>,
    order: u32,
}

impl ShardMemory {
    /// Allocates pages. The page allocator only tries hard for the order `smallest`.
    ///
    /// # Context
    ///
    /// Sleeps if `may_sleep`. Otherwise any context except hard interrupt.
    fn new(node: i32, order: u32, smallest: u32, may_sleep: bool) -> Option<Self> {
        // SAFETY: The caller may sleep if `may_sleep` is set. There are no other preconditions.
        let ptr = unsafe { bindings::rds_rust_alloc_shard(node, order, smallest, may_sleep) };
        // INVARIANT: The allocation is new.
        NonNull::new(ptr.cast()).map(|ptr| Self { ptr, order })
    }
}

impl Drop for ShardMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `self` owns the memory, which has this order.
        unsafe { bindings::rds_rust_free_shard(self.ptr.as_ptr().cast(), self.order) };
    }
}

/// A shard, see the module documentation.
///
/// # Invariants
///
/// - `memory` holds `slots` buffers of `buf_size` bytes; `refs` has `slots` entries.
/// - A slot whose bit in `free` is clear belongs to one [`BufMut`](super::BufMut) or to one or more
///   [`Buf`](super::Buf)s. They are the only users of its bytes.
/// - `arena` points to the arena that the shard was made for.
/// - Bits and `free_count` change only under the lock of that arena.
/// - While a bit is clear, the shard is in one of the lists of the arena, and the arena is alive.
/// - While the domain at `domain` has users, `mapping` is `Some` and starts at `address`.
#[pin_data]
pub(super) struct Shard {
    mapping: ListArcField<Option<ShardMapping>>,
    memory: ShardMemory,
    address: u64,
    domain: *const Domain,
    /// Without its type, because the arena is above this file.
    arena: NonNull<()>,
    buf_size: u32,
    slots: u32,
    /// Memory of the shard divided by the number of slots, in bytes. It may exceed the buffer size.
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

// SAFETY: By the invariants the pointers are to objects that any thread may use. All mutable state
// is atomic, or belongs to the owner of the `ListArc`.
unsafe impl Send for Shard {}
// SAFETY: As above.
unsafe impl Sync for Shard {}

/// Returns a bitmap with `slots` bits set.
fn all_free(slots: u32) -> [Atomic<u64>; BITMAP_WORDS] {
    let mut left = slots;
    [(); BITMAP_WORDS].map(|()| {
        let here = left.min(u64::BITS);
        left = left.saturating_sub(here);
        let none = u64::BITS.saturating_sub(here);
        Atomic::new(u64::MAX.checked_shr(none).unwrap_or(0))
    })
}

/// Parameters of a new shard.
pub(super) struct ShardSpec<'a> {
    /// The arena to which the shard will belong.
    pub(super) arena: NonNull<()>,
    pub(super) buf_size: u32,
    /// Page order of the shard.
    pub(super) order: u32,
    pub(super) smallest: u32,
    pub(super) node: i32,
    pub(super) may_sleep: bool,
    /// Domain and device of the mapping.
    pub(super) target: Option<(&'a Arc<Domain>, ARef<IbDevice>)>,
    /// Account for the bounce buffer, if the mapping needs one.
    pub(super) account: &'a Arc<ArenaAccount>,
}

/// Returns the size of a shard of this page order, in bytes.
pub(super) fn shard_bytes(order: u32) -> usize {
    PAGE_SIZE.checked_shl(order).unwrap_or(usize::MAX)
}

impl Shard {
    /// Allocates and maps a shard. All its slots are free.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the size of a buffer is 0.
    /// - `ENOSPC` if shards use too many bounce buffers already.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// Sleeps if `spec.may_sleep`. Otherwise any context except hard interrupt.
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
        let bounds = spec
            .target
            .as_ref()
            .and_then(|(_, device)| device.bounce_bounds());
        // Without room, nothing is allocated and copied only to find that out.
        let charged = match bounds {
            Some(bounds) => Some(Bounced::charge(spec.account, len, bounds).ok_or(ENOSPC)?),
            None => None,
        };
        let memory =
            ShardMemory::new(spec.node, spec.order, spec.smallest, spec.may_sleep).ok_or(ENOMEM)?;
        // After the pages, as this may reclaim memory. Without pages there is no reason to.
        let mut refs = KVec::with_capacity(slots as usize, flags)?;
        for _ in 0..slots {
            refs.push_within_capacity(Refcount::new(0))
                .map_err(|_| ENOMEM)?;
        }
        let (start, mut address) = (memory.ptr, 0);
        let (domain, device) = match spec.target {
            None => (ptr::null(), None),
            Some((domain, device)) => (Arc::as_ptr(domain), Some(device)),
        };
        let map = |device| -> Result<ShardMapping> {
            // SAFETY: The memory belongs to the shard, which drops the mapping before it. This also
            // holds if the initialisation fails.
            unsafe { ShardMapping::new(device, start, len, Some(spec.account), charged) }
        };
        // INVARIANT: All slots are free.
        ListArc::pin_init(
            try_pin_init!(Self {
                // Mapped after the allocations of the shard and of `memory`. If the initialisation
                // fails, fields are dropped in reverse order.
                memory,
                mapping: {
                    let mapping = device.map(map).transpose()?;
                    address = mapping.as_ref().map_or(address, ShardMapping::address);
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

    /// Returns the pointer to the arena that the shard was made for.
    pub(super) fn arena(&self) -> NonNull<()> {
        self.arena
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) fn bytes(&self) -> usize {
        shard_bytes(self.memory.order)
    }

    /// Returns the NUMA node of the memory.
    pub(super) fn node(&self) -> i32 {
        // SAFETY: By the type invariants of `ShardMemory` the pointer is to allocated pages.
        unsafe { bindings::rds_rust_node_of(self.memory.ptr.as_ptr().cast()) }
    }

    /// Returns the number of free slots. It is stable under the arena's lock only.
    pub(super) fn free_count(&self) -> u32 {
        self.free_count.load(ordering::Relaxed)
    }

    /// Takes a free slot. Returns `None` if there is none.
    ///
    /// # Safety
    ///
    /// The arena's lock must be held, and the arena must live until the result is dropped.
    pub(super) unsafe fn take(&self) -> Option<Slot> {
        let (word, bits, base) = self
            .free
            .iter()
            .zip((0..).step_by(u64::BITS as usize))
            .map(|(word, base)| (word, word.load(ordering::Relaxed), base))
            .find(|(_, bits, _): &(_, _, u32)| *bits != 0)?;
        word.store(bits & bits.wrapping_sub(1), ordering::Relaxed);
        self.free_count
            .store(self.free_count().wrapping_sub(1), ordering::Relaxed);
        // INVARIANT: The slot is taken. The caller holds the lock.
        Some(Slot {
            shard: NonNull::from(self),
            index: base.wrapping_add(bits.trailing_zeros()),
        })
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// The arena's lock must be held, and the slot's last handle must be in its destructor.
    pub(super) unsafe fn put(&self, slot: u32) {
        if let Some(word) = self.free.get((slot / u64::BITS) as usize) {
            let bit = 1u64.wrapping_shl(slot % u64::BITS);
            word.store(word.load(ordering::Relaxed) | bit, ordering::Relaxed);
        }
        self.free_count
            .store(self.free_count().wrapping_add(1), ordering::Relaxed);
    }

    /// Returns the address of the slot's `buf_size` bytes.
    #[inline]
    fn slot_ptr(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * self.buf_size as usize;
        self.memory.ptr.as_ptr().wrapping_add(offset)
    }

    /// Returns the DMA address of the slot, or `None` if the shard is not mapped in `domain`.
    #[inline]
    fn slot_address(&self, slot: u32, domain: *const Domain) -> Option<u64> {
        let offset = u64::from(slot) * u64::from(self.buf_size);
        ptr::eq(self.domain, domain).then(|| self.address.wrapping_add(offset))
    }
}

/// Place of a buffer in its shard. It has 16 bytes, and points to the shard without a counted
/// reference: a shard leaves its arena only when all its slots are free.
///
/// # Invariants
///
/// `index` is the number of a slot of `shard` that is not free.
pub(super) struct Slot {
    shard: NonNull<Shard>,
    index: u32,
}

impl Slot {
    /// Returns the same place once more.
    ///
    /// # Safety
    ///
    /// The slot must not be freed while the result is used.
    #[inline]
    pub(super) unsafe fn again(&self) -> Self {
        // INVARIANT: The slot is not free by the invariants of `self` and the caller's guarantee.
        Self {
            shard: self.shard,
            index: self.index,
        }
    }

    #[inline]
    pub(super) fn shard(&self) -> &Shard {
        // SAFETY: By the type invariants the slot is taken, so the shard is alive.
        unsafe { self.shard.as_ref() }
    }

    /// Returns the number of the slot in its shard.
    #[inline]
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the size of the buffer, in bytes.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.shard().buf_size as usize
    }

    /// Returns the memory that the buffer takes, in bytes. This includes its share of the unused
    /// end of the shard.
    #[inline]
    pub(super) fn true_size(&self) -> usize {
        self.shard().share
    }

    /// Returns the address of the buffer, which has [`Self::capacity`] initialised bytes.
    #[inline]
    pub(super) fn ptr(&self) -> *mut u8 {
        self.shard().slot_ptr(self.index)
    }

    /// Returns the domain for which the buffer is mapped. Null if it is not mapped.
    #[inline]
    pub(super) fn domain(&self) -> *const Domain {
        self.shard().domain
    }

    /// Returns the buffer's DMA address, or `None` if it is not mapped in `domain`.
    #[inline]
    pub(super) fn address(&self, domain: *const Domain) -> Option<u64> {
        self.shard().slot_address(self.index, domain)
    }

    /// Returns the count of handles that only permit reads.
    #[inline]
    pub(super) fn readers(&self) -> Option<&Refcount> {
        self.shard().refs.get(self.index as usize)
    }
}
