// SPDX-License-Identifier: GPL-2.0

//! Parts of `kernel::sync` that the protocols need.

pub(crate) mod atomic;
