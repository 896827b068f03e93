// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that a device uses: its registration, invalidation and reuse.
//!
//! [`pool`] comes last: it puts together what the other files have.

mod entry;
pub(crate) mod free_list;
pub(crate) mod pool;
pub(crate) mod reg_qp;

pub(crate) use entry::MrEntry;
pub(crate) use pool::MrPool;
