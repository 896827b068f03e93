// SPDX-License-Identifier: GPL-2.0

//! Human-readable files below `/sys/kernel/debug`.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h),
//! [`include/linux/seq_file.h`](srctree/include/linux/seq_file.h)
//!
//! Files of the `kernel` crate have no owner module. Closing such a file after its module is
//! unloaded would call freed code. An open file of this type prevents unloading.

use crate::{
    bindings,
    kapi::task, //
};
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile, //
};

/// Further writing is useless.
///
/// Either the text exceeds the buffer, and `seq_file` repeats the read with a larger one, or the
/// reader has a fatal signal.
pub(crate) struct Stop;

/// Output of a file that is being read.
pub(crate) struct Page<'a> {
    file: &'a SeqFile,
}

impl Page<'_> {
    /// Appends text.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn write(&mut self, text: fmt::Arguments<'_>) -> Result<(), Stop> {
        self.file.call_printf(text);
        let raw = core::ptr::from_ref(self.file).cast_mut().cast();
        // SAFETY: A `SeqFile` is a `struct seq_file` that is alive as long as the reference.
        let full = unsafe { bindings::rds_rust_seq_is_full(raw) };
        if full || task::check_killed().is_err() {
            return Err(Stop);
        }
        Ok(())
    }
}

/// Writes the whole content of a file that shows a `T`. Process context; may sleep.
type Show<T> = fn(&T, &mut Page<'_>) -> Result<(), Stop>;

/// The data of a file and the function that writes it.
struct DebugView<T> {
    data: T,
    show: Show<T>,
}

/// A debugfs directory.
///
/// Dropping it removes the directory and its files, and waits for readers.
///
/// # Invariants
///
/// `dentry` is a directory that `self` owns, or an error pointer.
pub(crate) struct Dir<T: Send + Sync + 'static> {
    dentry: *mut bindings::dentry,
    /// Private data of the files.
    views: KVec<KBox<bindings::rds_view>>,
    shown: KVec<KBox<DebugView<T>>>,
}

// SAFETY: A directory may be used and removed on any thread, and `T` may be used from all of them.
unsafe impl<T: Send + Sync + 'static> Send for Dir<T> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<T: Send + Sync + 'static> Sync for Dir<T> {}

impl<T: Send + Sync + 'static> Dir<T> {
    /// Creates a directory below the root of debugfs. Without debugfs, or if the name is in use,
    /// there is no directory, and files are not created. That is not an error.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(name: &'static CStr) -> Self {
        // SAFETY: The name is a NUL-terminated string.
        let dentry = unsafe { bindings::rds_rust_debugfs_dir(name.as_char_ptr()) };
        // INVARIANT: The directory is new.
        Self {
            dentry,
            views: KVec::new(),
            shown: KVec::new(),
        }
    }

    /// Adds a file that shows `data`. Only root may read it.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
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
        // SAFETY: By the type invariants `dentry` is a directory or an error pointer; the function
        // accepts both. The view and its data do not move until `drop` has removed the file.
        unsafe { bindings::rds_rust_debugfs_file(name.as_char_ptr(), self.dentry, raw) };
        Ok(self)
    }
}

impl<T: Send + Sync + 'static> Drop for Dir<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants `dentry` is a directory or an error pointer; the function
        // accepts both. It waits for readers.
        unsafe { bindings::rds_rust_debugfs_remove(self.dentry) };
    }
}

/// Shows a file: the `show` function of its view.
///
/// # Safety
///
/// `m` must be the file that is being read, and `data` a `DebugView<T>` that outlives the call.
unsafe extern "C" fn show_callback<T>(m: *mut bindings::seq_file, data: *mut c_void) -> c_int {
    // SAFETY: By the caller's guarantee `data` is a live `DebugView<T>`. Nothing changes it.
    let shown = unsafe { &*data.cast_const().cast::<DebugView<T>>() };
    // SAFETY: By the caller's guarantee `m` is a live `seq_file`. Only this call uses it.
    let file = unsafe { SeqFile::from_raw(m.cast()) };
    // `Stop` needs no handling: `seq_file` repeats the read, or the reader dies.
    let _ = (shown.show)(&shown.data, &mut Page { file });
    0
}
