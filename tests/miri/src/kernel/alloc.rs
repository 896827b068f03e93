// SPDX-License-Identifier: GPL-2.0

//! `kernel::alloc`: boxes and vectors.

use core::{
    alloc::Layout,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError;

/// Error of a push without room. Returns the value.
pub struct PushError<T>(pub T);

impl<T> core::fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no room")
    }
}

#[derive(Debug)]
pub struct RemoveError;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

pub mod flags {
    use super::Flags;

    pub const GFP_KERNEL: Flags = Flags(0);
    pub const GFP_ATOMIC: Flags = Flags(1);
    pub const GFP_KERNEL_ACCOUNT: Flags = Flags(2);
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NumaNode(i32);

impl NumaNode {
    pub const NO_NODE: Self = Self(-1);
}

/// # Safety
///
/// The requirements of the kernel's trait of this name apply.
pub unsafe trait Allocator {
    const MIN_ALIGN: usize;

    fn alloc(layout: Layout, flags: Flags, nid: NumaNode) -> Result<NonNull<[u8]>, AllocError>;

    /// # Safety
    ///
    /// `ptr` must be memory of this allocator, with its layout.
    unsafe fn realloc(
        ptr: Option<NonNull<u8>>,
        layout: Layout,
        old_layout: Layout,
        flags: Flags,
        nid: NumaNode,
    ) -> Result<NonNull<[u8]>, AllocError>;

    /// # Safety
    ///
    /// As for [`Self::realloc`]. The caller passes ownership of the memory.
    unsafe fn free(ptr: NonNull<u8>, layout: Layout);
}

pub mod allocator {
    use super::*;
    use crate::bindings;

    /// Allocator that shares its memory with `bindings`: each may free what the other has
    /// allocated.
    pub struct Kmalloc;

    // SAFETY: Memory is valid until it is freed.
    unsafe impl Allocator for Kmalloc {
        const MIN_ALIGN: usize = 8;

        fn alloc(layout: Layout, _: Flags, _: NumaNode) -> Result<NonNull<[u8]>, AllocError> {
            // As the kernel does, so that the memory has the alignment.
            let layout = layout.pad_to_align();
            assert!(layout.align() <= 64, "nothing needs more");
            if layout.size() == 0 {
                let dangling = NonNull::new(layout.align() as *mut u8).ok_or(AllocError)?;
                return Ok(NonNull::slice_from_raw_parts(dangling, 0));
            }
            // SAFETY: `rds_rust_kmalloc` accepts any size.
            let memory = unsafe { bindings::rds_rust_kmalloc(layout.size(), false) };
            let memory = NonNull::new(memory.cast()).ok_or(AllocError)?;
            Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
        }

        unsafe fn realloc(
            _: Option<NonNull<u8>>,
            _: Layout,
            _: Layout,
            _: Flags,
            _: NumaNode,
        ) -> Result<NonNull<[u8]>, AllocError> {
            unimplemented!("vectors are those of the host")
        }

        unsafe fn free(ptr: NonNull<u8>, layout: Layout) {
            if layout.size() != 0 {
                // SAFETY: The caller passes ownership of the memory.
                unsafe { bindings::kfree(ptr.as_ptr().cast()) };
            }
        }
    }
}
use allocator::Kmalloc;

/// `kernel::alloc::kbox`. As with the kernel's, a box may be moved while pointers into it exist.
pub mod kbox {
    use super::*;
    use crate::{error::Error, pin_init::Init};

    pub struct Box<T: ?Sized, A: Allocator>(NonNull<T>, PhantomData<A>);

    // SAFETY: The box owns its value.
    unsafe impl<T: ?Sized + Send, A: Allocator> Send for Box<T, A> {}
    // SAFETY: As above.
    unsafe impl<T: ?Sized + Sync, A: Allocator> Sync for Box<T, A> {}

    impl<T, A: Allocator> Box<T, A> {
        fn place(flags: Flags) -> Result<Box<MaybeUninit<T>, A>, AllocError> {
            let memory = A::alloc(Layout::new::<T>(), flags, NumaNode::NO_NODE)?;
            Ok(Box(memory.cast(), PhantomData))
        }

        pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
            let mut place = Self::place(flags)?;
            place.write(value);
            // SAFETY: Just written.
            Ok(unsafe { place.assume_init() })
        }

        pub fn init<E>(init: impl Init<T, E>, flags: Flags) -> Result<Self, Error>
        where
            Error: From<E>,
        {
            let mut place = Self::place(flags)?;
            // SAFETY: The memory has the layout of a `T`.
            unsafe { init.make(place.as_mut_ptr()) }?;
            // SAFETY: Just initialised.
            Ok(unsafe { place.assume_init() })
        }

        pub fn into_raw(this: Self) -> *mut T {
            core::mem::ManuallyDrop::new(this).0.as_ptr()
        }

        /// # Safety
        ///
        /// `raw` must come from [`Self::into_raw`].
        pub unsafe fn from_raw(raw: *mut T) -> Self {
            // SAFETY: The pointer of a box is not null.
            Self(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
        }

        pub fn into_inner(this: Self) -> T {
            let this = core::mem::ManuallyDrop::new(this);
            // SAFETY: The value is moved out, so only the memory is left.
            let value = unsafe { this.0.read() };
            // SAFETY: As above.
            unsafe { A::free(this.0.cast(), Layout::new::<T>()) };
            value
        }
    }

    impl<T, A: Allocator> Box<MaybeUninit<T>, A> {
        unsafe fn assume_init(self) -> Box<T, A> {
            let this = core::mem::ManuallyDrop::new(self);
            Box(this.0.cast(), PhantomData)
        }
    }

    impl<T: ?Sized, A: Allocator> Deref for Box<T, A> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: The box owns its value.
            unsafe { self.0.as_ref() }
        }
    }

    impl<T: ?Sized, A: Allocator> DerefMut for Box<T, A> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: As above.
            unsafe { self.0.as_mut() }
        }
    }

    impl<T: ?Sized, A: Allocator> Drop for Box<T, A> {
        fn drop(&mut self) {
            let layout = Layout::for_value::<T>(self);
            // SAFETY: The box owns its value, and ends here.
            unsafe { self.0.drop_in_place() };
            // SAFETY: As above.
            unsafe { A::free(self.0.cast(), layout) };
        }
    }
}
pub type KBox<T> = kbox::Box<T, Kmalloc>;

/// Vector of the host, with the kernel's names.
pub struct KVec<T>(Vec<T>);
pub type KVVec<T> = KVec<T>;

impl<T> KVec<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn with_capacity(capacity: usize, _: Flags) -> Result<Self, AllocError> {
        Ok(Self(Vec::with_capacity(capacity)))
    }

    pub fn push(&mut self, value: T, _: Flags) -> Result<(), AllocError> {
        self.0.push(value);
        Ok(())
    }

    pub fn push_within_capacity(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.0.len() == self.0.capacity() {
            return Err(PushError(value));
        }
        self.0.push(value);
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    pub fn remove(&mut self, index: usize) -> Result<T, RemoveError> {
        if index < self.0.len() {
            Ok(self.0.remove(index))
        } else {
            Err(RemoveError)
        }
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> IntoIterator for KVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
