// SPDX-License-Identifier: GPL-2.0

//! A queue that links its elements through the boxes that they live in.
//!
//! Pushing and popping never allocate and move one pointer, so it is fit for use under a spinlock.
//! An element is in one queue at most because the queue owns it.
//!
//! All pointers to a node are those that its box gave: what a reference to a node was made into could
//! not be used any more after the next one was made.

use crate::kapi::alloc::{kmalloc_size, Direct};
use core::{
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
};
use kernel::{
    alloc::{kbox::Box, AllocError},
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// The next node, if there is one: a box that whoever has the link owns.
type Link<T> = Option<NonNull<Node<T>>>;

struct Node<T> {
    next: Link<T>,
    value: T,
}

// SAFETY: A node has its next one as it would a box.
unsafe impl<T: Send> Send for Node<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for Node<T> {}

/// A value in a box that can be queued.
///
/// # Invariants
///
/// The node has no next one.
pub(crate) struct Item<T>(Box<Node<T>, Direct>);

impl<T> Item<T> {
    /// What an element takes of memory, in bytes.
    pub(crate) const SIZE: usize = kmalloc_size(size_of::<Node<T>>());

    pub(crate) fn new(value: T, flags: kernel::alloc::Flags) -> Result<Self, AllocError> {
        let next = None;
        // INVARIANT: There is no next one.
        Ok(Self(Box::new(Node { next, value }, flags)?))
    }

    /// As [`Self::new`], but the value is made where it stays.
    pub(crate) fn init(
        value: impl Init<T>,
        flags: kernel::alloc::Flags,
    ) -> Result<Self, AllocError> {
        let node = init!(Node {
            next: None,
            value <- value,
        });
        match Box::init::<core::convert::Infallible>(node, flags) {
            // INVARIANT: There is no next one.
            Ok(node) => Ok(Self(node)),
            Err(_) => Err(AllocError),
        }
    }

    /// The node, which the caller owns now.
    fn into_node(self) -> NonNull<Node<T>> {
        let node = Box::into_raw(self.0);
        // SAFETY: A box is not null.
        unsafe { NonNull::new_unchecked(node) }
    }

    /// # Safety
    ///
    /// The caller must own the node, which comes from [`Self::into_node`] and has no next one.
    unsafe fn from_node(node: NonNull<Node<T>>) -> Self {
        // SAFETY: The caller says so.
        // INVARIANT: As above.
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

/// The number of a queue's first element. What is put in front of it has lower ones.
const FIRST: u64 = 1 << 63;

/// The number that a queue gets when it is walked for the first time.
static NEXT_ID: Atomic<u64> = Atomic::new(1);

/// A first-in, first-out queue.
///
/// # Invariants
///
/// The queue owns the nodes that are reached from `head`, which come from [`Item::into_node`].
/// `tail` is null when `head` is `None`; otherwise it points to the last of them.
///
/// The elements have the numbers from `popped` to `pushed - 1`, in this order. A number from `settled` on
/// was never another element's since `id` was set; 64 bits do not overflow. Not zero, `id` is no other
/// queue's, ever.
pub(crate) struct Fifo<T> {
    head: Link<T>,
    tail: *mut Node<T>,
    popped: u64,
    pushed: u64,
    settled: u64,
    id: u64,
}

/// What [`Fifo::extract_some`] does about an element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    Take,
    Leave,
    /// Leaves it, and ends the walk.
    End,
}

/// How far a walk over a queue has come. See [`Fifo::walk`].
///
/// # Invariants
///
/// Unless it is null, `last` points to what was the node of element `next - 1` of the queue `id`.
pub(crate) struct Walk<T> {
    id: u64,
    next: u64,
    end: u64,
    last: *mut Node<T>,
}

impl<T> Walk<T> {
    /// At the start of whatever queue it is used for first.
    pub(crate) const fn new() -> Self {
        // INVARIANT: Null.
        Self {
            id: 0,
            next: 0,
            end: 0,
            last: ptr::null_mut(),
        }
    }
}

// SAFETY: The queue owns its elements; `tail` points to one of them.
unsafe impl<T: Send> Send for Fifo<T> {}
// SAFETY: A shared queue gives out shared references to its elements only.
unsafe impl<T: Sync> Sync for Fifo<T> {}

impl<T> Fifo<T> {
    pub(crate) const fn new() -> Self {
        // INVARIANT: Empty.
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
        // CAST: no more than fit in memory.
        self.pushed.wrapping_sub(self.popped) as usize
    }

    pub(crate) fn front(&self) -> Option<&T> {
        let node = self.head?.as_ptr();
        // SAFETY: By the type invariants it is a node that `self` owns, which is borrowed.
        Some(unsafe { &(*node).value })
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        let node = self.head?.as_ptr();
        // SAFETY: As above, and `&mut self` is exclusive.
        Some(unsafe { &mut (*node).value })
    }

    /// Hangs a chain of nodes, of which `last` is the last, behind the queue, which owns them then.
    fn hang(&mut self, first: NonNull<Node<T>>, last: *mut Node<T>) {
        if self.tail.is_null() {
            self.head = Some(first);
        } else {
            // SAFETY: By the type invariants `tail` points to a node that `self` owns, and
            // `&mut self` is exclusive.
            unsafe { (*self.tail).next = Some(first) };
        }
        // INVARIANT: It is the last node of the queue.
        self.tail = last;
    }

    pub(crate) fn push_back(&mut self, item: Item<T>) {
        let node = item.into_node();
        self.hang(node, node.as_ptr());
        self.pushed = self.pushed.wrapping_add(1);
    }

    pub(crate) fn push_front(&mut self, mut item: Item<T>) {
        item.0.next = self.head;
        let node = item.into_node();
        if self.tail.is_null() {
            // INVARIANT: The queue was empty: the first node is the last.
            self.tail = node.as_ptr();
        }
        self.head = Some(node);
        // INVARIANT: The number that it gets was another element's, maybe, and so were those below.
        self.settled = self.settled.max(self.popped);
        self.popped = self.popped.wrapping_sub(1);
    }

    /// Takes the first element if `pred` holds for it.
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
        // SAFETY: By the type invariants it is a node that `self` owns, and `&mut self` is
        // exclusive.
        self.head = unsafe { (*node.as_ptr()).next.take() };
        if self.head.is_none() {
            // INVARIANT: Empty again.
            self.tail = ptr::null_mut();
        }
        self.popped = self.popped.wrapping_add(1);
        // SAFETY: It is not reached from `head` any more, and the next one was taken off it.
        Some(unsafe { Item::from_node(node) })
    }

    /// Puts all of `other` behind what is here; `other` is empty afterwards.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(head) = other.head.take() else {
            return;
        };
        // INVARIANT: `other` is empty from here on.
        let last = core::mem::replace(&mut other.tail, ptr::null_mut());
        self.hang(head, last);
        // INVARIANT: They get new numbers here, and the ones that they had are not used again there.
        let count = other.pushed.wrapping_sub(other.popped);
        other.popped = other.pushed;
        self.pushed = self.pushed.wrapping_add(count);
    }

    /// Moves the elements for which `pred` holds, in order, to the end of `out`.
    pub(crate) fn extract(&mut self, mut pred: impl FnMut(&T) -> bool, out: &mut Self) {
        let mut kept = Self::new();
        while let Some(item) = self.pop_front() {
            if pred(&item) {
                out.push_back(item);
            } else {
                kept.push_back(item);
            }
        }
        // INVARIANT: The numbers start again, and so `id` does.
        core::mem::swap(self, &mut kept);
    }

    /// Has `each` see up to `most` elements, oldest first, from where the walk has come to, as far as the
    /// queue went when the walk began, or until `each` returns false. Returns whether there may be more.
    ///
    /// The queue may be used between two calls. If elements were taken out of its midst the walk begins
    /// again: `each` sees elements twice, and those that have come since.
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
            // SAFETY: By the type invariants it is a node that `self` owns, which is borrowed.
            if !each(unsafe { &(*node).value }) {
                return false;
            }
            // INVARIANT: The node that was at `next`.
            walk.last = node;
            walk.next = walk.next.wrapping_add(1);
        }
        true
    }

    /// Moves those of up to `most` elements that `pick` takes, in order, to the end of `out`: oldest first, from
    /// where the walk has come to, as far as the queue went when the walk began, or `pick` ends it. Returns whether
    /// there may be more.
    ///
    /// As [`Self::walk`]. Other walks begin again if this takes elements.
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
            // SAFETY: By the type invariants it is a node that `self` owns, and `&mut self` is
            // exclusive.
            match pick(unsafe { &mut (*node.as_ptr()).value }) {
                Pick::Take => {}
                Pick::Leave => {
                    // INVARIANT: The node that was at `next`.
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
                // INVARIANT: It was the last one; the one before it is now, if there is one.
                self.tail = walk.last;
            }
            self.pushed = self.pushed.wrapping_sub(1);
            walk.end = walk.end.wrapping_sub(1);
            // SAFETY: It is not reached from `head` any more, and the next one was taken off it.
            out.push_back(unsafe { Item::from_node(node) });
        }
        if self.pushed != before {
            // INVARIANT: The numbers start again, but this walk knows.
            self.id = NEXT_ID.fetch_add(1, Relaxed);
            self.settled = self.popped;
            walk.id = self.id;
        }
        more
    }

    /// Sets a walk to the start of this queue, unless it is on its way over it.
    fn begin(&mut self, walk: &mut Walk<T>) {
        if self.id == 0 {
            // INVARIANT: The only one that gets this number. Whatever is numbered later is pushed, unless
            // it comes to the front.
            self.id = NEXT_ID.fetch_add(1, Relaxed);
            self.settled = self.popped;
        }
        if walk.id != self.id {
            // INVARIANT: Null.
            *walk = Walk {
                id: self.id,
                next: self.popped,
                end: self.pushed,
                last: ptr::null_mut(),
            };
        }
    }

    /// The link to the element at which a walk over this queue is, or to the first one if it is gone: the walk is
    /// there then. `None` if the walk is over. From here on `walk.last` is the node before it, or null.
    fn link_at(&mut self, walk: &mut Walk<T>) -> Option<&mut Link<T>> {
        if walk.next.max(self.popped) >= walk.end {
            return None;
        }
        let last = walk.next.wrapping_sub(1);
        if !walk.last.is_null() && last >= self.popped.max(self.settled) && last < self.pushed {
            // SAFETY: By the invariants of both types it is the node that has this number now: it is in
            // the queue, which is borrowed.
            return Some(unsafe { &mut (*walk.last).next });
        }
        let mut place = &mut self.head;
        // INVARIANT: Null, or what is passed below.
        walk.last = ptr::null_mut();
        // Few: only what was put in front again can be between.
        for _ in self.popped..walk.next {
            let node = (*place)?.as_ptr();
            walk.last = node;
            // SAFETY: By the type invariants it is a node that `self` owns, which is borrowed.
            place = unsafe { &mut (*node).next };
        }
        walk.next = walk.next.max(self.popped);
        Some(place)
    }

    /// Drops the elements one by one: dropping the head would recurse through all the links.
    #[inline(never)]
    fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    /// The elements, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            // SAFETY: By the type invariants it is a node that `self` owns, which is borrowed.
            let node = unsafe { &*next?.as_ptr() };
            next = node.next;
            Some(&node.value)
        })
    }
}

impl<T> Drop for Fifo<T> {
    // Most are empty.
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.clear();
        }
    }
}
