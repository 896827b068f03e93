// SPDX-License-Identifier: GPL-2.0

//! Files below `/sys/kernel/debug`, for people to read.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h),
//! [`include/linux/seq_file.h`](srctree/include/linux/seq_file.h)
//!
//! The `kernel` crate's files belong to no module, so closing one after its module has gone calls
//! operations that are not there any more. While one of these is open the module cannot be unloaded.

use crate::{bindings, kapi::task};
use kernel::{fmt, prelude::*, seq_file::SeqFile};

/// There is no use in writing more: what is written has no room, and is asked for again with more of it,
/// or the reader is to die.
pub(crate) struct Stop;

/// What is being read.
pub(crate) struct Page<'a> {
    file: &'a SeqFile,
}

impl Page<'_> {
    /// Adds text. Process context.
    pub(crate) fn write(&mut self, text: fmt::Arguments<'_>) -> Result<(), Stop> {
        self.file.call_printf(text);
        let raw = core::ptr::from_ref(self.file).cast_mut().cast();
        // SAFETY: A `SeqFile` is a `struct seq_file`, alive as long as the reference.
        let full = unsafe { bindings::rds_seq_is_full(raw) };
        if full || task::check_killed().is_err() {
            return Err(Stop);
        }
        Ok(())
    }
}

/// Writes what a file shows of `T`: all of it each time. Process context; may sleep.
type Show<T> = fn(&T, &mut Page<'_>) -> Result<(), Stop>;

/// What a file shows.
struct DebugView<T> {
    data: T,
    show: Show<T>,
}

/// A directory. Dropping it removes it with its files, and waits for those who read.
///
/// # Invariants
///
/// `dentry` is a directory that `self` owns, or an error pointer.
pub(crate) struct Dir<T: Send + Sync + 'static> {
    dentry: *mut bindings::dentry,
    /// What the files point to.
    views: KVec<KBox<bindings::rds_view>>,
    shown: KVec<KBox<DebugView<T>>>,
}

// SAFETY: A directory may be used and removed on any thread, and so may what its files show.
unsafe impl<T: Send + Sync + 'static> Send for Dir<T> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<T: Send + Sync + 'static> Sync for Dir<T> {}

impl<T: Send + Sync + 'static> Dir<T> {
    /// Without debugfs, or with a directory of that name, there is none, and nobody minds. May sleep.
    pub(crate) fn new(name: &'static CStr) -> Self {
        // SAFETY: The name is a NUL-terminated string.
        let dentry = unsafe { bindings::rds_debugfs_dir(name.as_char_ptr()) };
        // INVARIANT: It is new.
        Self {
            dentry,
            views: KVec::new(),
            shown: KVec::new(),
        }
    }

    /// Adds a file that shows `data` to root. Fails with ENOMEM. May sleep.
    pub(crate) fn add(mut self, name: &'static CStr, data: T, show: Show<T>) -> Result<Self> {
        let shown = KBox::new(DebugView { data, show }, GFP_KERNEL)?;
        let view = bindings::rds_view {
            show: Some(show_callback::<T>),
            data: core::ptr::from_ref(&*shown).cast_mut().cast(),
        };
        let mut view = KBox::new(view, GFP_KERNEL)?;
        let raw: *mut bindings::rds_view = &mut *view;
        self.shown.push(shown, GFP_KERNEL)?;
        self.views.push(view, GFP_KERNEL)?;
        // SAFETY: The directory is ours or an error pointer by the type invariants, which the function
        // minds. The view and what it points to stay where they are until `drop` has removed the file.
        unsafe { bindings::rds_debugfs_file(name.as_char_ptr(), self.dentry, raw) };
        Ok(self)
    }
}

impl<T: Send + Sync + 'static> Drop for Dir<T> {
    fn drop(&mut self) {
        // SAFETY: The directory is ours or an error pointer by the type invariants, which the function
        // minds. It waits for those who read.
        unsafe { bindings::rds_debugfs_remove(self.dentry) };
    }
}

/// # Safety
///
/// `m` must be the file that is being read, and `data` a `DebugView<T>` that lives through the call.
unsafe extern "C" fn show_callback<T>(m: *mut bindings::seq_file, data: *mut c_void) -> c_int {
    // SAFETY: The caller says what `data` is; nobody changes it.
    let shown = unsafe { &*data.cast_const().cast::<DebugView<T>>() };
    // SAFETY: The caller says what `m` is, and only this call uses it.
    let file = unsafe { SeqFile::from_raw(m.cast()) };
    // Whoever stopped it knows.
    let _ = (shown.show)(&shown.data, &mut Page { file });
    0
}
