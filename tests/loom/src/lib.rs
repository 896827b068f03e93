// SPDX-License-Identifier: GPL-2.0

//! The lock-free protocols of the module under the model checker loom. It explores the
//! interleavings of a few threads, with every stale value that the memory model lets a load see.
//!
//! The protocols are the files of the module. Their environment is modelled here: the kernel's
//! atomics ([`sync::atomic`]), a wait queue ([`wait`]), a work item ([`work`]), and the callers.
//!
//! `cargo test` in this folder runs the models with at most three preemptions in an execution.
//! `LOOM_MAX_PREEMPTIONS` sets another number.

#![cfg(test)]
// Each model has the name of the file under test.
#![allow(clippy::module_inception)]

// The files of the module name the crate `kernel`.
extern crate self as kernel;

mod kapi;
#[allow(dead_code)]
#[path = "../../../proto/mod.rs"]
mod proto;
mod sync;
mod wait;
mod work;

mod cong_notify;
mod event_mask;
mod laddr_table;
mod path_table;
mod reader_lock;
mod send_room;
mod send_token;
mod shared_room;

/// Runs a model in all interleavings.
fn check(model: impl Fn() + Send + Sync + 'static) {
    check_few(3, model);
}

/// Runs a large model with at most `preemptions` preemptions.
fn check_few(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}
