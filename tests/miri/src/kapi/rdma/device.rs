// SPDX-License-Identifier: GPL-2.0

//! `kapi::rdma::device`: a device that counts its references.

use super::bounce_bounds::BounceBounds;
use crate::{bindings, sync::aref::AlwaysRefCounted};
use core::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct IbDevice {
    pub(super) references: AtomicUsize,
}

// SAFETY: The creator of the device drops it after all references.
unsafe impl AlwaysRefCounted for IbDevice {
    fn inc_ref(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: The caller has a reference.
        unsafe { this.as_ref() }
            .references
            .fetch_sub(1, Ordering::Release);
    }
}

impl IbDevice {
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn numa_node(&self) -> i32 {
        -1
    }

    pub(crate) fn bounce_bounds(&self) -> Option<BounceBounds> {
        None
    }
}
