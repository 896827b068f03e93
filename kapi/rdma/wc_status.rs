// SPDX-License-Identifier: GPL-2.0

//! How work requests end.

use crate::bindings;
use kernel::prelude::*;

/// Status of a completion: `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WcStatus(pub(crate) u32);

impl WcStatus {
    pub(crate) const SUCCESS: Self = Self(bindings::ib_wc_status_IB_WC_SUCCESS);
    /// See [`Self::is_flush`].
    pub(super) const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);

    /// The work request did not fail: the queue pair was in error already.
    pub(crate) fn is_flush(self) -> bool {
        self == Self::FLUSHED
    }

    /// The peer's device did not do what was asked of its memory.
    pub(crate) fn is_refused_by_peer(self) -> bool {
        matches!(
            self.0,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
                | bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR
                | bindings::ib_wc_status_IB_WC_REM_OP_ERR
        )
    }

    /// `enum ib_wc_status`.
    pub(crate) fn number(self) -> i32 {
        // CAST: small.
        self.0 as i32
    }

    /// The kernel's words for it.
    pub(crate) fn message(self) -> &'static CStr {
        // SAFETY: The function takes any number.
        let message = unsafe { bindings::ib_wc_status_msg(self.0) };
        // SAFETY: The kernel has a constant string for each.
        unsafe { CStr::from_char_ptr(message) }
    }
}
