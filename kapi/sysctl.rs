// SPDX-License-Identifier: GPL-2.0

//! Settings below `/proc/sys`, which a network namespace has.
//!
//! C headers: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::{
    bindings,
    kapi::{
        net::{
            NetRef,
            NetUse, //
        },
        sync::ReadOnce, //
    }, //
};
use core::{
    ffi::c_int,
    ops::RangeInclusive,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    }, //
};

/// A number that root, or root of its network namespace, may change at any time.
pub(crate) struct Setting {
    value: Atomic<c_int>,
    least: c_int,
    most: c_int,
}

impl Setting {
    /// Creates a setting with initial value `value`. Writes outside of `range` fail with `EINVAL`.
    pub(crate) const fn new(value: c_int, range: RangeInclusive<c_int>) -> Self {
        Self {
            value: Atomic::new(value),
            least: *range.start(),
            most: *range.end(),
        }
    }

    /// Returns the current value.
    ///
    /// # Context
    ///
    /// Any context.
    #[inline]
    pub(crate) fn get(&self) -> c_int {
        self.value.read_once()
    }

    /// Sets the value, as root would.
    #[cfg(rds_kunit)]
    pub(crate) fn set(&self, value: c_int) {
        self.value.store(value, kernel::sync::atomic::Relaxed);
    }

    /// Returns the current value of a setting that is never negative.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.get()).unwrap_or(0)
    }
}

/// The file of a setting, with limits on what may be written.
pub(crate) struct Entry<'a> {
    name: &'static CStr,
    setting: &'a Setting,
    least: *const c_int,
    most: *const c_int,
}

impl<'a> Entry<'a> {
    pub(crate) const fn new(name: &'static CStr, setting: &'a Setting) -> Self {
        Self {
            name,
            setting,
            least: &raw const setting.least,
            most: &raw const setting.most,
        }
    }

    /// Replaces the lower limit by the value that another setting has at the time of a write.
    pub(crate) const fn at_least(mut self, other: &'a Setting) -> Self {
        self.least = other.value.as_ptr();
        self
    }

    /// Replaces the upper limit by the value that another setting has at the time of a write.
    pub(crate) const fn at_most(mut self, other: &'a Setting) -> Self {
        self.most = other.value.as_ptr();
        self
    }
}

/// The settings of one directory.
pub(crate) trait Settings: Send + Sync + 'static {
    /// Path of the directory below `/proc/sys`.
    const PATH: &'static CStr;

    /// Iterates over the files.
    fn each(&self) -> impl Iterator<Item = Entry<'_>>;
}

/// A directory of settings in a network namespace.
///
/// Dropping it removes the files, and sleeps until no program is reading or writing them.
///
/// # Invariants
///
/// `header` is the registration of `_table`. The entries of that table point into `_settings` or
/// into objects that `_settings` keeps alive.
pub(crate) struct Directory<S: Settings> {
    header: NonNull<bindings::ctl_table_header>,
    _table: KVec<bindings::ctl_table>,
    _settings: Arc<S>,
    /// Keeps the namespace until the table is unregistered.
    _net: NetUse,
}

// SAFETY: A table may be unregistered on any thread, and `S` may be used from all of them.
unsafe impl<S: Settings> Send for Directory<S> {}
// SAFETY: A shared reference offers no operation.
unsafe impl<S: Settings> Sync for Directory<S> {}

impl<S: Settings> Directory<S> {
    /// Creates the files.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the namespace has ended.
    /// - `ENOMEM` if there is no memory for the table.
    /// - `EEXIST` if the registration fails: a file of that name exists (the kernel logs it), or
    ///   there is no memory.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(net: &NetRef, settings: Arc<S>) -> Result<Self> {
        let net = net.try_use()?;
        // SAFETY: The object lives as long as the reference in `Self`, and only shared references
        // to it exist.
        let shared: &S = unsafe { &*Arc::as_ptr(&settings) };
        let mut table = KVec::new();
        for file in shared.each() {
            let entry = bindings::ctl_table {
                procname: file.name.as_char_ptr(),
                data: file.setting.value.as_ptr().cast(),
                // CAST: the size is 4.
                maxlen: size_of::<c_int>() as c_int,
                mode: 0o644,
                proc_handler: Some(bindings::proc_dointvec_minmax),
                extra1: file.least.cast_mut().cast(),
                extra2: file.most.cast_mut().cast(),
                ..Default::default()
            };
            table.push(entry, GFP_KERNEL_ACCOUNT)?;
        }
        // SAFETY: The path and the names are never freed. The namespace, the table and all that it
        // points to stay in place until `drop` has unregistered it. The handler accesses the value
        // as one word, and only reads the limits.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net.as_raw(),
                S::PATH.as_char_ptr(),
                table.as_mut_ptr(),
                table.len(),
            )
        };
        // INVARIANT: Registered just now.
        Ok(Self {
            header: NonNull::new(header).ok_or(EEXIST)?,
            _table: table,
            _settings: settings,
            _net: net,
        })
    }
}

impl<S: Settings> Drop for Directory<S> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the table is registered. The call waits for users of its
        // entries.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
    }
}
