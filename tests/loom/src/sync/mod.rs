// SPDX-License-Identifier: GPL-2.0

//! `kernel::sync`, as far as the protocols need it.

pub(crate) mod atomic;
