// SPDX-License-Identifier: GPL-2.0

//! Settings below `/proc/sys`.
//!
//! C headers: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::{bindings, kapi::sync::Peek};
use core::{ffi::c_int, ops::RangeInclusive, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{atomic::Atomic, Arc},
};

/// A number that root may set at any time.
pub(crate) struct Setting {
    value: Atomic<c_int>,
    least: c_int,
    most: c_int,
}

impl Setting {
    /// It is `value` until it is set to another number of `range`; others are refused with EINVAL.
    pub(crate) const fn new(value: c_int, range: RangeInclusive<c_int>) -> Self {
        Self {
            value: Atomic::new(value),
            least: *range.start(),
            most: *range.end(),
        }
    }

    /// What it is now. Any context.
    #[inline]
    pub(crate) fn get(&self) -> c_int {
        self.value.peek()
    }

    /// What it is now, if it is never negative. Any context.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.get()).unwrap_or(0)
    }
}

/// A file of a setting.
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

    /// What is less than another setting is at the moment is refused, too.
    pub(crate) const fn at_least(mut self, other: &'a Setting) -> Self {
        self.least = other.value.as_ptr();
        self
    }

    /// What is more than another setting is at the moment is refused, too.
    pub(crate) const fn at_most(mut self, other: &'a Setting) -> Self {
        self.most = other.value.as_ptr();
        self
    }
}

/// The settings of one directory.
pub(crate) trait Settings: Send + Sync + 'static {
    /// The directory below `/proc/sys`.
    const PATH: &'static CStr;

    /// The files.
    fn each(&self) -> impl Iterator<Item = Entry<'_>>;
}

/// A directory of settings of the initial network namespace.
///
/// Dropping it sleeps until nobody reads or writes them; then the files are gone.
///
/// # Invariants
///
/// `header` is the registration of `_table`, whose entries point into `_settings`, or what that keeps.
pub(crate) struct Directory<S: Settings> {
    header: NonNull<bindings::ctl_table_header>,
    _table: KVec<bindings::ctl_table>,
    _settings: Arc<S>,
}

// SAFETY: It may be unregistered on any thread, and `S` may be used from all of them.
unsafe impl<S: Settings> Send for Directory<S> {}
// SAFETY: There is nothing to do with a shared reference.
unsafe impl<S: Settings> Sync for Directory<S> {}

impl<S: Settings> Directory<S> {
    /// Makes the files. May sleep.
    ///
    /// # Errors
    ///
    /// ENOMEM; EEXIST if there is a file of that name, which the kernel log says, or for want of memory.
    pub(crate) fn new(settings: Arc<S>) -> Result<Self> {
        // SAFETY: It lives as long as the reference in `Self`, and all there ever is are shared ones.
        let shared: &S = unsafe { &*Arc::as_ptr(&settings) };
        let mut table = KVec::new();
        for file in shared.each() {
            let entry = bindings::ctl_table {
                procname: file.name.as_char_ptr(),
                data: file.setting.value.as_ptr().cast(),
                // CAST: four.
                maxlen: size_of::<c_int>() as c_int,
                mode: 0o644,
                proc_handler: Some(bindings::proc_dointvec_minmax),
                extra1: file.least.cast_mut().cast(),
                extra2: file.most.cast_mut().cast(),
                ..Default::default()
            };
            table.push(entry, GFP_KERNEL)?;
        }
        // SAFETY: The function has no preconditions.
        let net = unsafe { bindings::rds_init_net() };
        // SAFETY: The namespace, the path and the names live for ever. The table and what it points to live
        // until `drop` has unregistered it, and stay where they are. The handler reads and writes the
        // value as one word, and only reads its limits.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net,
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
        })
    }
}

impl<S: Settings> Drop for Directory<S> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is registered; this waits for who uses an entry.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
    }
}
