// SPDX-License-Identifier: GPL-2.0

//! Intrusive queues: an element is linked through the box that contains it.
//!
//! # Operation
//!
//! A push or a pop does not allocate and only changes a few words, so it is suitable under a
//! spinlock.
//!
//! # Ownership
//!
//! A queue owns its elements, so an element is in at most one queue. Every pointer to a node is the
//! raw pointer from its box. A pointer that is derived from a reference would become invalid when
//! the next reference to the node is created.

use crate::kapi::alloc::{
    kmalloc_size,
    Direct, //
};
use core::{
    ops::{
        Deref,
        DerefMut, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    alloc::{
        kbox::Box,
        AllocError, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The next node, or `None`. The owner of a link owns its node, as with a box.
type Link<T> = Option<NonNull<QueueNode<T>>>;

struct QueueNode<T> {
    next: Link<T>,
    value: T,
}

// SAFETY: A node owns the next node as it would own a box.
unsafe impl<T: Send> Send for QueueNode<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for QueueNode<T> {}

/// A boxed value that can be put into a queue.
///
/// # Invariants
///
/// The `next` of the node is `None`.
pub(crate) struct Item<T>(Box<QueueNode<T>, Direct>);

impl<T> Item<T> {
    /// Memory that an element takes, in bytes.
    pub(crate) const SIZE: usize = kmalloc_size(size_of::<QueueNode<T>>());

    /// Allocates an item.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory.
    pub(crate) fn new(value: T, flags: kernel::alloc::Flags) -> Result<Self, AllocError> {
        let next = None;
        // INVARIANT: `next` is `None`.
        Ok(Self(Box::new(QueueNode { next, value }, flags)?))
    }

    /// Creates an item like [`Self::new`], and initialises its value in place.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory.
    pub(crate) fn init(
        value: impl Init<T>,
        flags: kernel::alloc::Flags,
    ) -> Result<Self, AllocError> {
        let node = init!(QueueNode {
            next: None,
            value <- value,
        });
        match Box::init::<core::convert::Infallible>(node, flags) {
            // INVARIANT: `next` is `None`.
            Ok(node) => Ok(Self(node)),
            Err(_) => Err(AllocError),
        }
    }

    /// Returns the node. The caller owns it.
    fn into_node(self) -> NonNull<QueueNode<T>> {
        let node = Box::into_raw(self.0);
        // SAFETY: The pointer from a box is not null.
        unsafe { NonNull::new_unchecked(node) }
    }

    /// Creates an item from its node.
    ///
    /// # Safety
    ///
    /// The caller must own the node, which must come from [`Self::into_node`] and have no next
    /// node.
    unsafe fn from_node(node: NonNull<QueueNode<T>>) -> Self {
        // SAFETY: By the caller's guarantee the pointer comes from a box, and the caller owns it.
        // INVARIANT: By the caller's guarantee the node has no next node.
        Self(unsafe { Box::from_raw(node.as_ptr()) })
    }
}

impl<T> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Item<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

/// Number of the first element of a new queue. Elements that are put in front get lower numbers.
const FIRST: u64 = 1 << 63;

/// The next unused `id` of a queue. A queue gets it when it is walked for the first time.
static NEXT_ID: Atomic<u64> = Atomic::new(1);

/// A first-in, first-out queue.
///
/// # Invariants
///
/// - The queue owns the nodes that are reachable from `head`. They come from [`Item::into_node`].
/// - `tail` is null if `head` is `None`. Otherwise it points to the last node.
/// - The elements have the numbers from `popped` to `pushed - 1`, in this order. 64 bits do not
///   overflow.
/// - Since `id` was set, no number from `settled` on has been that of two elements.
/// - An `id` other than 0 is never used for two queues.
// A push and a pop write the first four fields.
#[repr(C)]
pub(crate) struct Fifo<T> {
    head: Link<T>,
    tail: *mut QueueNode<T>,
    popped: u64,
    pushed: u64,
    settled: u64,
    id: u64,
}

/// Decision about an element in [`Fifo::extract_some`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    Take,
    Leave,
    /// Leaves the element and ends the walk.
    End,
}

/// Position of a walk over a queue, see [`Fifo::walk`].
///
/// # Invariants
///
/// `last` is null, or points to the former node of element `next - 1` of the queue with `id`.
pub(crate) struct Walk<T> {
    id: u64,
    next: u64,
    end: u64,
    last: *mut QueueNode<T>,
}

impl<T> Walk<T> {
    /// Creates a walk that begins at the start of the queue for which it is used first.
    pub(crate) const fn new() -> Self {
        // INVARIANT: `last` is null.
        Self {
            id: 0,
            next: 0,
            end: 0,
            last: ptr::null_mut(),
        }
    }
}

// SAFETY: The queue owns its elements. `tail` points to one of them.
unsafe impl<T: Send> Send for Fifo<T> {}
// SAFETY: A shared queue only gives access to shared references to its elements.
unsafe impl<T: Sync> Sync for Fifo<T> {}

impl<T> Fifo<T> {
    pub(crate) const fn new() -> Self {
        // INVARIANT: The queue is empty.
        Self {
            head: None,
            tail: ptr::null_mut(),
            popped: FIRST,
            pushed: FIRST,
            settled: FIRST,
            id: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        // CAST: no more elements than fit into memory.
        self.pushed.wrapping_sub(self.popped) as usize
    }

    pub(crate) fn front(&self) -> Option<&T> {
        let node = self.head?.as_ptr();
        // SAFETY: By the type invariants `self` owns the node. `self` is borrowed.
        Some(unsafe { &(*node).value })
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        let node = self.head?.as_ptr();
        // SAFETY: By the type invariants `self` owns the node, and `&mut self` is exclusive.
        Some(unsafe { &mut (*node).value })
    }

    /// Appends a chain of nodes that ends with `last`. The queue owns them afterwards.
    fn link_nodes(&mut self, first: NonNull<QueueNode<T>>, last: *mut QueueNode<T>) {
        if self.tail.is_null() {
            self.head = Some(first);
        } else {
            // SAFETY: By the type invariants `tail` points to a node that `self` owns, and
            // `&mut self` is exclusive.
            unsafe { (*self.tail).next = Some(first) };
        }
        // INVARIANT: `last` is the last node of the queue.
        self.tail = last;
    }

    pub(crate) fn push_back(&mut self, item: Item<T>) {
        let node = item.into_node();
        self.link_nodes(node, node.as_ptr());
        self.pushed = self.pushed.wrapping_add(1);
    }

    pub(crate) fn push_front(&mut self, mut item: Item<T>) {
        item.0.next = self.head;
        let node = item.into_node();
        if self.tail.is_null() {
            // INVARIANT: The queue was empty, so the first node is the last one.
            self.tail = node.as_ptr();
        }
        self.head = Some(node);
        // INVARIANT: The new number, and lower ones, may have been those of other elements.
        self.settled = self.settled.max(self.popped);
        self.popped = self.popped.wrapping_sub(1);
    }

    /// Removes and returns the first element, if `pred` returns `true` for it.
    #[inline]
    pub(crate) fn pop_front_if(&mut self, pred: impl FnOnce(&T) -> bool) -> Option<Item<T>> {
        if pred(self.front()?) {
            self.pop_front()
        } else {
            None
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<Item<T>> {
        let node = self.head?;
        // SAFETY: By the type invariants `self` owns the node, and `&mut self` is exclusive.
        self.head = unsafe { (*node.as_ptr()).next.take() };
        if self.head.is_none() {
            // INVARIANT: The queue is empty.
            self.tail = ptr::null_mut();
        }
        self.popped = self.popped.wrapping_add(1);
        // SAFETY: The node is not reachable from `head` any more, and its `next` was taken.
        Some(unsafe { Item::from_node(node) })
    }

    /// Moves all elements of `other` to the end of `self`.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(head) = other.head.take() else {
            return;
        };
        // INVARIANT: `other` is empty.
        let last = core::mem::replace(&mut other.tail, ptr::null_mut());
        self.link_nodes(head, last);
        // INVARIANT: The elements get new numbers in `self`. `other` does not reuse their old
        // numbers.
        let count = other.pushed.wrapping_sub(other.popped);
        other.popped = other.pushed;
        self.pushed = self.pushed.wrapping_add(count);
    }

    /// Moves the elements for which `pred` returns `true` to the end of `out`, in order.
    #[cfg(rds_kunit)]
    pub(crate) fn extract(&mut self, mut pred: impl FnMut(&T) -> bool, out: &mut Self) {
        let mut kept = Self::new();
        while let Some(item) = self.pop_front() {
            if pred(&item) {
                out.push_back(item);
            } else {
                kept.push_back(item);
            }
        }
        // INVARIANT: The numbers restart, and `id` is 0 again.
        core::mem::swap(self, &mut kept);
    }

    /// Calls `each` for the next elements of a walk, oldest first. Returns `true` if there may be
    /// more.
    ///
    /// A call handles at most `most` elements. The walk ends when `each` returns `false`, or with
    /// the element that was the last one when the walk began.
    ///
    /// The queue may change between two calls. If elements were removed from its middle, the walk
    /// restarts. Then `each` sees elements again, and those that were added since.
    pub(crate) fn walk(
        &mut self,
        walk: &mut Walk<T>,
        most: usize,
        mut each: impl FnMut(&T) -> bool,
    ) -> bool {
        self.begin(walk);
        for _ in 0..most {
            let Some(node) = self.link_at(walk).and_then(|place| *place) else {
                return false;
            };
            let node = node.as_ptr();
            // SAFETY: By the type invariants `self` owns the node. `self` is borrowed.
            if !each(unsafe { &(*node).value }) {
                return false;
            }
            // INVARIANT: The node had the number `next`.
            walk.last = node;
            walk.next = walk.next.wrapping_add(1);
        }
        true
    }

    /// Calls `pick` for the next elements of a walk, oldest first, and moves those that it takes to
    /// the end of `out`. Returns `true` if there may be more.
    ///
    /// A call handles at most `most` elements. The walk ends when `pick` returns [`Pick::End`], or
    /// with the element that was the last one when the walk began.
    ///
    /// As for [`Self::walk`], the queue may change between two calls. Other walks restart if this
    /// one removes elements.
    pub(crate) fn extract_some(
        &mut self,
        walk: &mut Walk<T>,
        most: usize,
        mut pick: impl FnMut(&mut T) -> Pick,
        out: &mut Self,
    ) -> bool {
        self.begin(walk);
        let before = self.pushed;
        let mut more = true;
        for _ in 0..most {
            let Some(place) = self.link_at(walk) else {
                more = false;
                break;
            };
            let Some(node) = *place else {
                more = false;
                break;
            };
            // SAFETY: By the type invariants `self` owns the node, and `&mut self` is exclusive.
            match pick(unsafe { &mut (*node.as_ptr()).value }) {
                Pick::Take => {}
                Pick::Leave => {
                    // INVARIANT: The node had the number `next`.
                    walk.last = node.as_ptr();
                    walk.next = walk.next.wrapping_add(1);
                    continue;
                }
                Pick::End => {
                    more = false;
                    break;
                }
            }
            // SAFETY: As above.
            *place = unsafe { (*node.as_ptr()).next.take() };
            if place.is_none() {
                // INVARIANT: The removed node was the last one. The one before it, if any, is the
                // last now.
                self.tail = walk.last;
            }
            self.pushed = self.pushed.wrapping_sub(1);
            walk.end = walk.end.wrapping_sub(1);
            // SAFETY: The node is not reachable from `head` any more, and its `next` was taken.
            out.push_back(unsafe { Item::from_node(node) });
        }
        if self.pushed != before {
            // INVARIANT: The numbers restart with a new `id`. The position of this walk is up to
            // date.
            self.id = NEXT_ID.fetch_add(1, Relaxed);
            self.settled = self.popped;
            walk.id = self.id;
        }
        more
    }

    /// Sets a walk to the start of the queue, unless it is a walk over this queue already.
    fn begin(&mut self, walk: &mut Walk<T>) {
        if self.id == 0 {
            // INVARIANT: Each number from `NEXT_ID` is used once. Elements that are added later get
            // new numbers, except those that are put in front.
            self.id = NEXT_ID.fetch_add(1, Relaxed);
            self.settled = self.popped;
        }
        if walk.id != self.id {
            // INVARIANT: `last` is null.
            *walk = Walk {
                id: self.id,
                next: self.popped,
                end: self.pushed,
                last: ptr::null_mut(),
            };
        }
    }

    /// Returns the link to the next element of the walk, or `None` if the walk has ended.
    ///
    /// If that element is gone, the walk continues at the first one. Afterwards `walk.last` is the
    /// node before it, or null.
    fn link_at(&mut self, walk: &mut Walk<T>) -> Option<&mut Link<T>> {
        if walk.next.max(self.popped) >= walk.end {
            return None;
        }
        let last = walk.next.wrapping_sub(1);
        if !walk.last.is_null() && last >= self.popped.max(self.settled) && last < self.pushed {
            // SAFETY: By the invariants of both types `walk.last` is the node that has the number
            // `last` now. So it is in the queue, which is borrowed.
            return Some(unsafe { &mut (*walk.last).next });
        }
        let mut place = &mut self.head;
        // INVARIANT: `last` is null, or a node that is passed in the loop.
        walk.last = ptr::null_mut();
        // Few iterations: only elements that were put in front again are before the position.
        for _ in self.popped..walk.next {
            let node = (*place)?.as_ptr();
            walk.last = node;
            // SAFETY: By the type invariants `self` owns the node. `self` is borrowed.
            place = unsafe { &mut (*node).next };
        }
        walk.next = walk.next.max(self.popped);
        Some(place)
    }

    /// Drops the elements one by one. A drop of the head would recurse through all links.
    #[inline(never)]
    fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    /// Returns an iterator over the elements, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            // SAFETY: By the type invariants `self` owns the node. `self` is borrowed.
            let node = unsafe { &*next?.as_ptr() };
            next = node.next;
            Some(&node.value)
        })
    }
}

impl<T> Drop for Fifo<T> {
    // Inlined because most queues are empty when they are dropped.
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.clear();
        }
    }
}
