// SPDX-License-Identifier: GPL-2.0

//! Status of work completions.

use crate::bindings;
use kernel::prelude::*;

/// Status of a work completion: `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WcStatus(pub(crate) u32);

impl WcStatus {
    pub(crate) const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);
    /// See [`Self::is_flush`].
    pub(super) const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);

    /// Returns `true` if the work request did not fail itself, but was flushed: the queue pair was
    /// in the error state already.
    pub(crate) fn is_flush(self) -> bool {
        self == Self::FLUSHED
    }

    /// Returns `true` if the peer's device refused the access to its memory.
    pub(crate) fn is_refused_by_peer(self) -> bool {
        matches!(
            self.0,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
                | bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR
                | bindings::ib_wc_status_IB_WC_REM_OP_ERR
        )
    }

    /// Returns the number from `enum ib_wc_status`.
    pub(crate) fn number(self) -> i32 {
        // CAST: the numbers are small.
        self.0 as i32
    }

    /// Returns the kernel's description.
    pub(crate) fn message(self) -> &'static CStr {
        // SAFETY: The function accepts any number.
        let message = unsafe { bindings::ib_wc_status_msg(self.0) };
        // SAFETY: The function returns a static string for each number.
        unsafe { CStr::from_char_ptr(message) }
    }
}
