// SPDX-License-Identifier: GPL-2.0

//! A queue of boxes that are linked through a field of their own.
//!
//! Pushing and popping never allocate and move one pointer, so it is fit for use under a spinlock.
//! An element is in one queue at most because the queue owns it.

use core::{marker::PhantomData, ptr};
use kernel::prelude::*;

/// A type with a link for a [`Fifo`].
pub(crate) trait Linked: Sized {
    /// The link. Only the queue uses it while the element is queued.
    fn next(&mut self) -> &mut Option<KBox<Self>>;
}

/// A first-in, first-out queue of `KBox<T>`.
///
/// # Invariants
///
/// `tail` is null when `head` is `None`; otherwise it points to the last element that is reached
/// from `head`.
pub(crate) struct Fifo<T: Linked> {
    head: Option<KBox<T>>,
    tail: *mut T,
    len: usize,
    _own: PhantomData<KBox<T>>,
}

// SAFETY: The queue owns its elements; `tail` points to one of them.
unsafe impl<T: Linked + Send> Send for Fifo<T> {}
// SAFETY: A shared queue gives out shared references to its elements only.
unsafe impl<T: Linked + Sync> Sync for Fifo<T> {}

impl<T: Linked> Fifo<T> {
    pub(crate) const fn new() -> Self {
        // INVARIANT: Empty.
        Self {
            head: None,
            tail: ptr::null_mut(),
            len: 0,
            _own: PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.head.as_deref()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.head.as_deref_mut()
    }

    pub(crate) fn push_back(&mut self, mut element: KBox<T>) {
        *element.next() = None;
        let raw: *mut T = &mut *element;
        if self.tail.is_null() {
            self.head = Some(element);
        } else {
            // SAFETY: By the type invariants `tail` points to an element that `self` owns, and
            // `&mut self` is exclusive.
            let last = unsafe { &mut *self.tail };
            *last.next() = Some(element);
        }
        // INVARIANT: The new element is the last one; a box does not move what it holds.
        self.tail = raw;
        self.len = self.len.wrapping_add(1);
    }

    pub(crate) fn push_front(&mut self, mut element: KBox<T>) {
        let raw: *mut T = &mut *element;
        *element.next() = self.head.take();
        if self.tail.is_null() {
            // INVARIANT: The queue was empty: the first element is the last.
            self.tail = raw;
        }
        self.head = Some(element);
        self.len = self.len.wrapping_add(1);
    }

    pub(crate) fn pop_front(&mut self) -> Option<KBox<T>> {
        let mut element = self.head.take()?;
        self.head = element.next().take();
        if self.head.is_none() {
            // INVARIANT: Empty again.
            self.tail = ptr::null_mut();
        }
        self.len = self.len.wrapping_sub(1);
        Some(element)
    }

    /// Puts all of `other` behind what is here; `other` is empty afterwards.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(head) = other.head.take() else {
            return;
        };
        if self.tail.is_null() {
            self.head = Some(head);
        } else {
            // SAFETY: By the type invariants `tail` points to an element that `self` owns, and
            // `&mut self` is exclusive.
            let last = unsafe { &mut *self.tail };
            *last.next() = Some(head);
        }
        // INVARIANT: The last element of `other` is now the last of `self`, and `other` is empty.
        self.tail = other.tail;
        other.tail = ptr::null_mut();
        self.len = self.len.wrapping_add(other.len);
        other.len = 0;
    }

    /// Moves the elements for which `pred` holds, in order, to the end of `out`.
    pub(crate) fn extract(&mut self, mut pred: impl FnMut(&mut T) -> bool, out: &mut Self) {
        let mut kept = Self::new();
        while let Some(mut element) = self.pop_front() {
            if pred(&mut element) {
                out.push_back(element);
            } else {
                kept.push_back(element);
            }
        }
        core::mem::swap(self, &mut kept);
    }

    /// Calls `f` for each element, oldest first.
    pub(crate) fn for_each(&mut self, mut f: impl FnMut(&mut T)) {
        let mut next = self.head.as_deref_mut();
        while let Some(element) = next {
            f(element);
            next = element.next().as_deref_mut();
        }
    }
}

impl<T: Linked> Drop for Fifo<T> {
    fn drop(&mut self) {
        // One by one: dropping the head would recurse through all the links.
        while self.pop_front().is_some() {}
    }
}
