// SPDX-License-Identifier: GPL-2.0

//! `kernel::list`. The links are not in the elements, because only the users of lists are tested.

use crate::{
    alloc::Flags,
    error::{Error, Result},
    pin_init::Init,
    sync::Arc,
};
use core::{cell::UnsafeCell, ops::Deref, ptr};
use std::collections::VecDeque;

pub use crate::{define_list_arc_field_getter, impl_list_arc_safe, impl_list_item};

/// The only reference to an element that may be in a list.
pub struct ListArc<T>(Arc<T>);

impl<T> ListArc<T> {
    pub fn pin_init<E>(init: impl Init<T, E>, flags: Flags) -> Result<Self>
    where
        Error: From<E>,
    {
        Arc::pin_init(init, flags).map(Self)
    }
}

impl<T> Deref for ListArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A field that the owner of the [`ListArc`] may change.
pub struct ListArcField<T>(UnsafeCell<T>);

impl<T> ListArcField<T> {
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    ///
    /// The caller must have exclusive access to the [`ListArc`].
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn assert_mut(&self) -> &mut T {
        // SAFETY: The caller has exclusive access.
        unsafe { &mut *self.0.get() }
    }
}

/// Placeholder for the links of the kernel.
pub struct ListLinks;

impl ListLinks {
    pub fn new() -> Self {
        Self
    }
}

#[macro_export]
macro_rules! define_list_arc_field_getter {
    ($pub:vis fn $name:ident(&mut self<0>) -> &mut $type:ty { $field:ident }) => {
        $pub fn $name(self: &mut $crate::list::ListArc<Self>) -> &mut $type {
            // SAFETY: The [`ListArc`] is borrowed exclusively.
            unsafe { $crate::list::ListArcField::assert_mut(&self.$field) }
        }
    };
}

#[macro_export]
macro_rules! impl_list_arc_safe {
    ($($item:tt)*) => {};
}

#[macro_export]
macro_rules! impl_list_item {
    ($($item:tt)*) => {};
}

pub struct List<T>(VecDeque<ListArc<T>>);

impl<T> List<T> {
    pub fn new() -> Self {
        Self(VecDeque::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn push_front(&mut self, item: ListArc<T>) {
        self.0.push_front(item);
    }

    pub fn push_back(&mut self, item: ListArc<T>) {
        self.0.push_back(item);
    }

    pub fn pop_front(&mut self) -> Option<ListArc<T>> {
        self.0.pop_front()
    }

    pub fn pop_back(&mut self) -> Option<ListArc<T>> {
        self.0.pop_back()
    }

    pub fn push_all_back(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// # Safety
    ///
    /// `item` must not be in another list.
    pub unsafe fn remove(&mut self, item: &T) -> Option<ListArc<T>> {
        let index = self.0.iter().position(|other| ptr::eq(&**other, item))?;
        self.0.remove(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|item| &**item)
    }

    pub fn cursor_front(&mut self) -> Cursor<'_, T> {
        Cursor(self)
    }
}

/// Cursor before the first element.
pub struct Cursor<'a, T>(&'a mut List<T>);

impl<T> Cursor<'_, T> {
    pub fn peek_next(&mut self) -> Option<CursorPeek<'_, T>> {
        (!self.0.is_empty()).then_some(CursorPeek(self.0))
    }
}

/// Cursor at the first element.
pub struct CursorPeek<'a, T>(&'a mut List<T>);

impl<T> CursorPeek<'_, T> {
    pub fn arc(&self) -> Arc<T> {
        self.0 .0[0].0.clone()
    }

    pub fn remove(self) -> ListArc<T> {
        self.0.pop_front().unwrap()
    }
}
