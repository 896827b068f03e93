// SPDX-License-Identifier: GPL-2.0

//! Memory of programs that a device uses: its registration, invalidation and reuse.
//!
//! [`pool`] comes last: it puts together the entries, the free lists and the queue pair on which
//! memory is registered.

mod entry;
pub(crate) mod free_list;
pub(crate) mod pool;
mod pool_inner;
pub(crate) mod reg_qp;

pub(crate) use pool::MrPool;
