// SPDX-License-Identifier: GPL-2.0

//! Locks, queues and counters.

mod append_only_cell;
mod cache_aligned;
mod completion;
mod fifo;
mod gate;
mod percpu;
mod read_once;
mod sections;
mod shared_count;
mod softirqs_off;
mod spinlock_bh;
mod workqueue;

pub(crate) use append_only_cell::AppendOnlyCell;
pub(crate) use cache_aligned::CacheAligned;
pub(crate) use completion::Completion;
pub(crate) use fifo::{
    Fifo,
    Item,
    Pick,
    Walk, //
};
pub(crate) use gate::Gate;
pub(crate) use percpu::PerCpuCounters;
pub(crate) use read_once::ReadOnce;
pub(crate) use sections::{
    Section,
    Sections, //
};
pub(crate) use shared_count::{
    Counted,
    SharedCount, //
};
pub(crate) use softirqs_off::SoftirqsOff;
#[cfg(rds_kunit)]
pub(crate) use spinlock_bh::count_holds;
pub(crate) use spinlock_bh::{
    new_spinlock_bh,
    SpinLockBh,
    SpinLockBhGuard, //
};
pub(crate) use workqueue::{
    cancel,
    cancel_delayed,
    flush,
    OwnedQueue, //
};
